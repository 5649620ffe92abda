"""Groups whose offsets Kafka deletes soon: which count from when (KIP-211), and which are at work.

Retention is Kafka's default of seven days. What each case expects was counted by hand from Kafka's
offsetExpirationCondition.
"""

from typing import Any

import pytest

from eoctl.render.watch_words import check_row
from recovery.facts import (
    CommitTime,
    GroupFacts,
    GroupOffsetFacts,
    GroupTimes,
    Missing,
    TopicPartition,
)
from recovery.values import replace
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import Observed
from recovery.watch.group_rule import group_expiry
from tests.unit.check_facts import DAY, HOUR, NOW, observed

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
Kind = dict[str, Any]
LEFT: Kind = {"protocol": "consumer"}
SIMPLE: Kind = {"protocol": None}
NEWER: Kind = {"protocol": None, "type": "Consumer"}


def group(
    name: str = "g",
    *,
    state: str | None = "Empty",
    partitions: tuple[tuple[str, int], ...] = (A,),
    pending: bool = False,
    **kind: Any,
) -> GroupFacts:
    """A group with an offset on each of these partitions, on the last one perhaps undecided."""
    offsets = tuple(
        GroupOffsetFacts(name, *partition, 40, pending=pending and partition == partitions[-1])
        for partition in partitions
    )
    return GroupFacts(name, state, members=(), offsets=offsets, **{"type": "Classic", **kind})


def ago(since: int | None = None, members: int | None = None, **commits: int) -> GroupTimes:
    """In its state since so many ms ago; a, b: when its offsets of A and B were committed."""
    partitions = {"a": A, "b": B}
    return GroupTimes(
        None if since is None else NOW - since,
        0 if since is not None and members is None else members,
        {partitions[name]: CommitTime(NOW - at) for name, at in commits.items()},
    )


def expiry(facts: Observed, threshold: float) -> CheckRow:
    return check_row(group_expiry(facts, threshold))


def judged(g: GroupFacts, times: GroupTimes, threshold: float = DAY / 1000) -> CheckRow:
    """The row of one group alone. threshold: seconds."""
    return expiry(observed(groups=(g,), times={g.group: times}), threshold)


@pytest.mark.parametrize(
    ("g", "times", "left"),
    [
        # it had members: from when the last one left, whatever it committed when
        (group(**LEFT), ago(6 * DAY, a=6 * DAY), DAY),
        (group(**LEFT), ago(6 * DAY - 1, a=6 * DAY), None),
        (group(**LEFT), ago(6 * DAY + HOUR), DAY - HOUR),
        (group(**LEFT), ago(HOUR), None),  # its commits are older than the retention: no matter
        (group(**LEFT), ago(), 0),  # it left before all that was read
        (group(**LEFT), ago(a=6 * DAY + HOUR), 0),  # whenever it committed since then
        (group(protocol="connect"), ago(6 * DAY + HOUR), DAY - HOUR),
        # Kafka before 2.1 wrote no time: from the commit
        (group(**LEFT), ago(members=0, a=6 * DAY + HOUR), DAY - HOUR),
        (group(**LEFT), ago(members=0, a=HOUR), None),
        (group(**{**LEFT, "type": None}), ago(6 * DAY + HOUR), DAY - HOUR),  # Kafka before 3.8
        # it never had a member: from each commit
        (group(**SIMPLE), ago(a=6 * DAY), DAY),
        (group(**SIMPLE), ago(a=6 * DAY - 1), None),
        (group(**SIMPLE), ago(a=1000), None),
        (group(**SIMPLE), ago(), 0),
        (group(**SIMPLE, partitions=(A, B)), ago(a=6 * DAY + HOUR, b=6 * DAY), DAY - HOUR),
        # the newer kinds: from each commit too
        (group(**NEWER), ago(a=6 * DAY + HOUR), DAY - HOUR),
        (group(**NEWER, partitions=(A, B)), ago(a=8 * HOUR), 0),
        (group(protocol=None, type="Streams"), ago(a=6 * DAY + HOUR), DAY - HOUR),
        # share groups keep no such offsets
        (group(protocol=None, type="Share"), ago(), None),
    ],
)
def test_what_kafka_counts_from(g: GroupFacts, times: GroupTimes, left: int | None) -> None:
    row = judged(g, times)
    assert (row.observed, row.ok) == ((None, True) if left is None else (left / 1000, False))
    assert row.detail == (
        "no group without members loses its offsets so soon"
        if left is None
        else "group 'g' has no members and commits nothing: Kafka may delete its offsets then"
    )


@pytest.mark.parametrize(
    ("g", "times", "ok"),
    [
        # partition B was left behind: Kafka deletes its offset, and the job does not mind
        (group(**SIMPLE, partitions=(A, B)), ago(a=1000), True),
        (group(**SIMPLE, partitions=(A, B)), ago(a=6 * HOUR - 1, b=6 * DAY + HOUR), True),
        (group(**SIMPLE, partitions=(A, B)), ago(a=6 * HOUR, b=6 * DAY + HOUR), False),
        # it was subscribed once, and a job of Flink commits now: Kafka counts from when it left
        (group(**LEFT), ago(6 * DAY + HOUR, a=1000), True),
        (group(**LEFT), ago(6 * DAY + HOUR, a=6 * HOUR), False),
        (group(**LEFT), ago(a=1000), True),
        # members came back after it was described
        (group(**LEFT), ago(6 * DAY + HOUR, members=2), True),
    ],
)
def test_a_group_that_is_at_work_is_no_finding(g: GroupFacts, times: GroupTimes, ok: bool) -> None:
    assert judged(g, times).ok is ok


def test_what_has_members_or_no_offset_that_can_go_is_not_looked_at() -> None:
    for state in ("Stable", "PreparingRebalance", "Assigning", "Dead", None):
        assert judged(group(state=state, **SIMPLE), ago()).ok is True
    day = DAY / 1000
    for offset in (None, GroupOffsetFacts("g", *A, None, error="UNKNOWN_SERVER_ERROR")):
        bare = replace(group(**SIMPLE), offsets=() if offset is None else (offset,))
        # nor is it missed that nobody read when it committed
        assert expiry(observed(groups=(bare,)), day).ok is True
    # Kafka keeps an offset while a commit of it waits for its transaction
    waiting = group(pending=True, **SIMPLE)
    assert judged(waiting, ago()).ok is True
    assert expiry(observed(groups=(waiting,)), day).ok is True
    # a partition without an offset has none that can expire
    bare = group(partitions=(A, B), **SIMPLE)
    bare = replace(bare, offsets=(replace(bare.offsets[0], committed_offset=None), bare.offsets[1]))
    assert judged(bare, ago(b=6 * DAY + HOUR)).observed == (DAY - HOUR) / 1000
    both = group(partitions=(A, B), pending=True, **SIMPLE)
    assert judged(both, ago(a=6 * DAY + HOUR)).observed == (DAY - HOUR) / 1000


def test_an_offset_that_was_deleted_meanwhile_is_gone() -> None:
    gone = GroupTimes(None, None, {A: None})
    assert judged(group(**SIMPLE), gone).ok is True
    half = GroupTimes(None, None, {A: None, B: CommitTime(NOW - 6 * DAY - HOUR)})
    assert judged(group(**SIMPLE, partitions=(A, B)), half).observed == (DAY - HOUR) / 1000


def test_an_end_that_the_client_named_is_kafkas_too() -> None:
    """OffsetCommit with a retention of its own, as of Sarama's Offsets.Retention."""
    ends = GroupTimes(NOW - HOUR, 0, {A: CommitTime(NOW - 7 * HOUR, NOW + HOUR)})
    assert judged(group(**LEFT), ends).observed == HOUR / 1000
    later = GroupTimes(None, None, {A: CommitTime(NOW - 6 * DAY - HOUR, NOW + 30 * DAY)})
    assert judged(group(**SIMPLE), later).ok is True
    often = GroupTimes(None, None, {A: CommitTime(NOW - 1000, NOW + HOUR)})
    assert judged(group(**SIMPLE), often).ok is True


def test_at_most_half_of_the_retention_counts_as_near() -> None:
    """A job that commits every third hour of a retention of seven is well, however cautious one is.

    With a retention so short, three and a half hours without a commit are rest enough.
    """
    year = 365 * DAY / 1000
    for since, ok in ((3 * HOUR, True), (int(3.5 * HOUR), False)):
        g = group(**SIMPLE)
        facts = observed(groups=(g,), retention=7 * HOUR, times={"g": ago(a=since)})
        assert expiry(facts, year).ok is ok
    assert judged(group(**SIMPLE), ago(a=int(3.5 * DAY) - 1), year).ok is True
    assert judged(group(**SIMPLE), ago(a=int(3.5 * DAY)), year).ok is False


def test_the_soonest_comes_first() -> None:
    times = {name: ago(a=6 * DAY + number * HOUR) for number, name in enumerate("abcde")}
    groups = tuple(group(name, **SIMPLE) for name in "abcde")
    row = expiry(observed(groups=groups, times=times), DAY / 1000)
    assert row.observed == 20 * HOUR / 1000
    assert row.detail.startswith("groups 'e', 'd', 'c' and 2 more have no members")
    assert (row.rule, row.unit, row.threshold) == ("group_expiry", "seconds", DAY / 1000)


def test_what_was_not_seen_makes_it_unknown_and_a_finding_stands() -> None:
    g, other = group(**SIMPLE), group("h", **SIMPLE)
    well, soon = ago(a=1000), ago(a=6 * DAY + HOUR)
    day = DAY / 1000
    hidden = (Missing("group", "GROUP_AUTHORIZATION_FAILED", "", id="x"),)

    row = expiry(observed(groups=(g,), retention=None), day)
    assert (row.ok, row.observed) == (None, None)
    assert row.detail == (
        "offsets.retention.minutes is hidden: grant DESCRIBE_CONFIGS on the cluster"
    )
    row = expiry(observed(groups=(g, other), times={"g": well}), day)
    assert row.ok is None
    assert row.detail == (
        "no group without members loses its offsets so soon; 1 of 2 groups without members not seen"
    )
    row = expiry(observed(groups=(g, other), times={"g": soon}), day)
    assert row.ok is False
    assert row.detail.startswith("group 'g' has no members")
    row = expiry(observed(groups=(g,), groups_missing=hidden, times={"g": well}), day)
    assert row.ok is None
    assert "not all groups were seen" in row.detail
    assert expiry(observed(groups=()), day).ok is True
    row = expiry(observed(groups=None), day)
    assert row.ok is None
    assert "not all groups were seen" in row.detail
