"""Of a busy `__transaction_state` little is read: then that nothing is found says nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.recent_log import OF_RECORDS, Tail, Tails
from eoctl.operations.doctor.collecting import outages_seen, versions_seen
from eoctl.operations.doctor.doctor_answer import bounds_reached
from eoctl.render.doctor_words import remedy_of
from recovery.doctor.findings import DoctorFacts, judged
from recovery.doctor.recent_states import RecentStates
from recovery.doctor.rules import RULES
from recovery.facts import TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.values import replace
from tests.unit.diagnose.test_contest_log import written
from tests.unit.doctor.test_version_rules import NEW, running
from tests.unit.doctor_facts import DAY, NOW, STATE, txn, with_ids

MINUTE = 60_000
TIMEOUT = 5 * MINUTE
ONGOING, ABORT = TransactionState.ONGOING, TransactionState.PREPARE_ABORT
ALL_READ, SECONDS, MINUTES = None, 42_000, 3 * MINUTE


def record(
    name: str, ago: int, version: int = 2, state: TransactionState = ONGOING, began: int = 0
) -> bytes:
    """Written so many ms ago. began: how long ago its transaction did; 0: at once."""
    value = TransactionValue(
        7,
        0,
        TIMEOUT,
        state,
        (TopicPartition("t", 0),),
        NOW - ago,
        NOW - (began or ago),
        client_transaction_version=version,
    )
    # the later, the higher
    return written(StateRecord(name, 0, DAY - ago, NOW - ago, value))


def tail_of(
    records: Mapping[str, Sequence[bytes]],
    back: int | None = None,
    unfinished: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> Tail[RecentStates]:
    """A reading of the partitions of some ids; back: ms, how far; None: as far as asked."""
    homes = {name: coordinator_partition(name, 50) for name in records}
    assert len({*homes.values()}) == len(homes)
    ranges = tuple(Range(STATE, home, 0, 9) for home in homes.values())
    tails = Tails(STATE, 50, NOW - DAY, OF_RECORDS, ranges)
    tail = Tail(tails, RecentStates(NOW - 10 * MINUTE))
    for name, mine in records.items():
        end = 8 if name in unfinished else 9
        data = b"".join(mine)
        tail.take(Chunk(STATE, homes[name], 0, end, data, None, 9, 9, 0))
        if name in failed:
            tail.take(Ended(STATE, homes[name], end, "NOT_LEADER_OR_FOLLOWER"))
    if back is not None:
        tail._oldest[0] = NOW - back
    return tail


def answers(facts: DoctorFacts, rule: str) -> list[tuple[str, str]]:
    return [(f.state, f.name) for r, f in judged(facts, RULES) if r.name == rule]


def versions(tail: Tail[RecentStates]) -> DoctorFacts:
    return replace(running(NEW, NEW, NEW), **versions_seen(tail, NOW))


@pytest.mark.parametrize(
    ("spoken", "back", "expected"),
    [
        (2, ALL_READ, []),
        (2, MINUTES, []),
        (2, SECONDS, [("unknown", "*")]),
        (0, ALL_READ, [("finding", "a")]),
        (0, SECONDS, [("finding", "a")]),
    ],
)
def test_seconds_of_a_log_do_not_show_that_nobody_speaks_version_1(
    spoken: int, back: int | None, expected: list[tuple[str, str]]
) -> None:
    facts = versions(tail_of({"a": [record("a", 1000, spoken)]}, back))
    assert answers(facts, "speaks-v1") == expected
    said = bounds_reached(facts) + [m.detail for m in facts.missing]
    assert len(said) == (back is not None), said
    if expected == [("unknown", "*")]:
        [one] = said
        assert one == (
            "only the last 42 s of __transaction_state were read, since it has more records than "
            "are read in one look, so which protocol ids there speak is not seen"
        )
        [(rule, finding)] = [one for one in judged(facts, RULES) if one[0].name == "speaks-v1"]
        assert "`eoctl txn history ID`" in remedy_of(rule.name, finding)


@pytest.mark.parametrize("more", [{"unfinished": ["a"]}, {"failed": ["a"]}])
def test_an_older_record_of_a_partition_read_in_part_proves_nothing(more: Any) -> None:
    """The newest one, which was not read, may be of version 2."""
    both = {"a": [record("a", 1000, 0)], "b": [record("b", 1000, 2)]}
    facts = versions(tail_of(both, **more))
    assert answers(facts, "speaks-v1") == [("unknown", "*")]
    facts = versions(tail_of({**both, "b": [record("b", 1000, 0)]}, **more))
    assert answers(facts, "speaks-v1") == [("finding", "b"), ("unknown", "*")]


AWAY = [
    record("sink-0-7", 40 * MINUTE),
    record("sink-0-7", 34 * MINUTE, state=ABORT, began=40 * MINUTE),
]
BACK = [record("sink-0-8", 20 * MINUTE)]


def jobs(tail: Tail[RecentStates], timeout: int = TIMEOUT) -> DoctorFacts:
    ids = [replace(txn(name), timeout_ms=timeout) for name in ("sink-0-7", "sink-0-8")]
    facts = with_ids(*ids, facts=running(NEW, NEW, NEW))
    found = tail.sink.sinks.outages
    return replace(facts, **outages_seen(tail, found, NOW))


@pytest.mark.parametrize(
    ("back", "more", "expected"),
    [
        (ALL_READ, {}, [("finding", "sink-0-7")]),
        (50 * MINUTE, {}, [("finding", "sink-0-7")]),
        # what the sink did before that on other partitions was not read: it may have been there
        (39 * MINUTE, {}, []),
        (ALL_READ, {"unfinished": ["other"]}, [("unknown", "*")]),
        (ALL_READ, {"failed": ["other"]}, [("unknown", "*")]),
    ],
)
def test_a_job_is_away_only_as_far_as_all_partitions_were_read(
    back: int | None, more: Any, expected: list[tuple[str, str]]
) -> None:
    tail = tail_of(
        {"sink-0-7": AWAY, "sink-0-8": BACK, "other": [record("other", 1000)]}, back, **more
    )
    assert answers(jobs(tail), "timeout-too-short") == expected


@pytest.mark.parametrize(
    ("back", "expected"), [(ALL_READ, []), (MINUTES, []), (SECONDS, [("unknown", "*")])]
)
def test_seconds_of_a_log_show_no_job_that_was_away(
    back: int | None, expected: list[tuple[str, str]]
) -> None:
    assert answers(jobs(tail_of({"sink-0-8": BACK}, back)), "timeout-too-short") == expected
