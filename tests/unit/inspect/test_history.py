"""Decisions, wholeness and lost markers from records written out by hand."""

import time
import tracemalloc
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.facts import TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import (
    Decision,
    History,
    Marker,
    MarkerOrigin,
    Markers,
    Source,
    StateLog,
    StateRecord,
    read_history,
    still_open_in_log,
)
from recovery.inspect.lost_markers import covers, lost_decisions, topic_unclear
from recovery.inspect.observation import StartBatch
from recovery.inspect.topic_sightings import Sighting, Sightings
from recovery.values import replace

PID, HERE, ELSEWHERE = 4001, TopicPartition("t", 0), TopicPartition("t", 1)
SKEW = 5000
HOME, PARTITIONS = 0, 3
"""The partition that "orders" belongs to, of three (Java: abs("orders".hashCode()) % 3)."""
NAMES = {
    "E": "Empty", "O": "Ongoing", "PC": "PrepareCommit", "PA": "PrepareAbort",
    "CC": "CompleteCommit", "CA": "CompleteAbort",
}  # fmt: skip


def record(
    offset: int,
    state: str,
    when: int,
    *,
    epoch: int = 0,
    pid: int = PID,
    version: int = 0,
    named: tuple[TopicPartition, ...] = (HERE,),
) -> StateRecord:
    """A record of "orders"; lastUpdate is far off on purpose: it is no ground."""
    partitions = named if state in ("O", "PC", "PA") else ()
    value = TransactionValue(
        pid, epoch, 60_000, TransactionState(NAMES[state]), partitions, 1, when,
        client_transaction_version=version,
    )  # fmt: skip
    return StateRecord("orders", HOME, offset, when, value)


def log(*records: StateRecord, whole_from: int = 0, cut_epoch: int | None = None) -> StateLog:
    return StateLog(HOME, records, whole_from, cut_epoch=cut_epoch)


def others(whole_from: int = 0) -> list[StateLog]:
    return [StateLog(n, (), whole_from) for n in (1, 2)]


def past(
    *records: StateRecord,
    start: StartBatch | None = None,
    markers: tuple[Marker, ...] = (),
    whole_from: int = 0,
    markers_from: int | None = 0,
) -> History:
    return read_history(
        start or StartBatch(PID, 0),
        HERE,
        [log(*records, whole_from=whole_from), *others()],
        PARTITIONS,
        markers=markers,
        markers_from=markers_from,
    )


def marker(offset: int, when: int, outcome: str = "commit", epoch: int = 0) -> Marker:
    return Marker(offset, outcome, epoch, 0, when)


# --- decisions ---------------------------------------------------------------------------------


def test_every_prepare_that_names_the_partition_is_a_decision_not_only_the_newest() -> None:
    h = past(
        record(0, "E", 0),
        record(1, "PC", 1000),
        record(2, "CC", 1010),
        record(3, "PA", 2000, named=(ELSEWHERE, HERE)),
        record(4, "CA", 2010),
        record(5, "PC", 3000, named=(ELSEWHERE,)),
        record(6, "CC", 3010),
    )
    assert [(d.offset, d.outcome, d.completed_at) for d in h.decisions] == [
        (1, "commit", 1010),
        (3, "abort", 2010),
    ]
    assert [r.offset for r in h.latest] == [6]


def test_where_nothing_was_read_every_bound_is_the_logs_beginning() -> None:
    for sightings in (None, Sightings("id", (Sighting("id", {0: 3}, {0: 5}),))):
        h = read_history(StartBatch(PID, 0), HERE, others(), PARTITIONS, sightings=sightings)
        assert (h.window, h.named_since, h.named_before, h.cached_until) == (0, None, 0, 0)


def test_decisions_of_several_ids_are_in_the_order_of_the_log() -> None:
    """A log that was created again gives a producer id to another transactional id too."""
    records = [record(0, "E", 0), record(1, "PC", 1), record(5, "PC", 5)]
    other = replace(record(3, "PA", 3), transactional_id="billing")
    h = past(*records[:2], other, records[2])
    assert [(d.transactional_id, d.offset) for d in h.decisions] == [
        ("orders", 1),
        ("billing", 3),
        ("orders", 5),
    ]


def test_a_decision_of_another_producer_id_is_none_of_this_one() -> None:
    h = past(record(0, "E", 0), record(1, "PC", 1000, pid=4002))
    assert h.decisions == ()


def test_an_open_transaction_in_the_log_and_one_that_ended() -> None:
    assert still_open_in_log(past(record(0, "E", 0), record(1, "O", 10)))
    assert still_open_in_log(past(record(0, "E", 0), record(1, "PC", 10, named=(ELSEWHERE,))))
    assert not still_open_in_log(past(record(0, "PC", 0), record(1, "CC", 10)))
    assert not still_open_in_log(past(record(0, "E", 0), record(1, "O", 10, pid=4007)))
    for gone in (None, UnknownVersion(9)):
        last = replace(record(1, "O", 10), value=gone)
        assert not still_open_in_log(past(record(0, "E", 0), last))


# --- whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "records", "reason"),
    [
        # v2: the end of the transaction before raised the epoch to the batch's own
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=5, version=2)], None),
        (StartBatch(PID, 5), [record(9, "PC", 0, epoch=5, version=2)], None),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=6, version=2)], "history-compacted"),
        # an Ongoing may be a v2 transaction after v1 ones on the same epoch (a client upgraded)
        (StartBatch(PID, 5), [record(9, "O", 0, epoch=5, version=2)], "history-compacted"),
        # v1: an epoch begins with Empty; a Complete* may have swallowed a decision of that epoch
        (StartBatch(PID, 5), [record(9, "E", 0, epoch=5)], None),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=5)], "history-compacted"),
        (StartBatch(PID, 5), [record(9, "O", 0, epoch=5)], "history-compacted"),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=4), record(10, "E", 1, epoch=5)], None),
        # an earlier producer id of the same id; a later one proves nothing
        (StartBatch(PID, 0), [record(9, "CC", 0, pid=4000), record(10, "CC", 0)], None),
        (StartBatch(PID, 0), [record(9, "CC", 0), record(10, "E", 0, pid=4007)],
         "history-compacted"),
        # an epoch that stands nowhere
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=4)], "history-replaced"),
        (StartBatch(PID, 5), [record(9, "E", 0, epoch=4), record(10, "E", 0, epoch=6)],
         "history-replaced"),
        (StartBatch(PID, 0), [record(9, "CC", 0, pid=4000), record(10, "E", 0, epoch=1)],
         "history-replaced"),
    ],
)  # fmt: skip
def test_whole_since_before_the_start_batch(
    start: StartBatch, records: list[StateRecord], reason: str | None
) -> None:
    """Also where the log begins at 0: that is no proof that it was there."""
    for whole_from in (9, 0):
        assert past(*records, start=start, whole_from=whole_from).reason == reason


@pytest.mark.parametrize("append_time", [True, False])
def test_no_time_makes_it_whole(append_time: bool) -> None:
    start = StartBatch(PID, 5, 10**12, append_time, marker_before=10**12)
    assert past(record(9, "CC", 0, epoch=5), start=start, whole_from=9).reason == (
        "history-compacted"
    )


def test_a_record_below_the_gap_is_no_anchor() -> None:
    h = past(record(3, "E", 0), record(9, "CC", 10), whole_from=9)
    assert h.reason == "history-compacted"


def test_below_what_the_cache_gave_up_of_an_id_its_records_are_not_complete() -> None:
    records = record(3, "E", 0), record(9, "CC", 10)
    for cuts, reason, window in (
        ({}, None, 0),
        ({"orders": 3}, None, 3),
        ({"orders": 4}, "history-compacted", 4),
        ({"billing": 4}, None, 0),
    ):
        made = replace(log(*records), cuts=cuts)
        h = read_history(StartBatch(PID, 0), HERE, [made, *others()], PARTITIONS)
        assert (h.reason, h.window) == (reason, window)


def test_what_two_logs_name_is_of_no_order_and_reached_by_the_lower_epoch() -> None:
    """The id's former partition and its present one: neither shows which record came first."""
    first = replace(log(record(0, "E", 0), record(1, "CC", 1)), leader_epoch=3, end=2)
    second = replace(first, partition=1, leader_epoch=5)
    for epochs, reached in (((3, 5), 3), ((5, 3), 3), ((None, 5), 5), ((None, None), None)):
        both = [replace(x, leader_epoch=e) for x, e in zip((first, second), epochs, strict=True)]
        h = read_history(StartBatch(PID, 0), HERE, both, PARTITIONS)
        assert (h.reason, h.leader_epoch, h.read_until) == ("history-compacted", reached, None)
    # one that lost its end is enough for epochs to come again, and one that a cache kept
    marked = replace(first, cut_epoch=2), replace(second, cached_until=2)
    for two in (marked, marked[::-1]):
        h = read_history(StartBatch(PID, 0), HERE, two, PARTITIONS)
        assert (h.lost_end, h.cached_until) == (True, 2)
    h = read_history(StartBatch(PID, 0), HERE, [first], PARTITIONS)
    assert (h.reason, h.leader_epoch, h.read_until) == (None, 3, 2)
    h = read_history(StartBatch(PID, 0), HERE, [replace(first, error="TIMED_OUT")], PARTITIONS)
    assert (h.reason, h.log_error) == ("history-not-read", "TIMED_OUT")


def test_records_after_which_none_of_their_id_is_missing() -> None:
    made = replace(log(record(0, "E", 0), record(3, "PC", 1), record(4, "CC", 1)), stands_from=3)
    assert [r.offset for r in made.standing] == [3, 4]


def test_what_ended_the_batchs_epoch() -> None:
    """A later epoch, or the id's next producer id; nothing where records may be missing."""

    def rotated(offset: int, **tags: Any) -> StateRecord:
        r = record(offset, "E", 0, pid=4700)
        assert isinstance(r.value, TransactionValue)
        return replace(r, value=r.value._replace(**tags))

    begun, start = record(9, "E", 0, epoch=5), StartBatch(PID, 5)
    assert past(begun, start=start).ended_by is None
    assert past(begun, record(10, "PA", 0, epoch=5), start=start).ended_by is None
    assert past(begun, record(10, "PA", 0, epoch=6), start=start).ended_by == 10
    assert past(begun, record(10, "E", 0, pid=4700), start=start).ended_by == 10
    gone = replace(begun, value=None)
    assert past(begun, replace(gone, offset=10), start=start).ended_by is None
    # the id that had another producer id first, and has another one now
    earlier = replace(rotated(8, next_producer_id=PID), offset=8)
    later = rotated(10, previous_producer_id=PID)
    assert past(earlier, later, start=StartBatch(PID, 0)).ended_by == 10
    assert past(record(8, "CC", 0, pid=4000), begun, start=start).ended_by is None
    # compacted: the record that ended it may be gone
    late = past(record(9, "CC", 0, epoch=5), record(10, "PA", 0, epoch=6), start=start)
    assert (late.reason, late.ended_by) == ("history-compacted", None)


def test_only_the_log_that_names_the_producer_id_must_be_whole() -> None:
    records = (record(0, "E", 0), record(1, "CC", 1))
    for logs, reason in (
        ([log(*records), *others(whole_from=7)], None),
        ([log(*records)], None),
        ([log(*records, whole_from=1), *others()], "history-compacted"),
        ([log(*records), StateLog(1, (), 0, "TIMED_OUT")], None),
    ):
        h = read_history(StartBatch(PID, 0), HERE, logs, PARTITIONS)
        assert h.reason == reason


def test_a_producer_id_that_stands_in_no_log_is_judged_by_none() -> None:
    start = StartBatch(PID, 0)
    for logs, reason in (
        ([log(), *others()], "history-replaced"),
        ([log(record(0, "E", 0, pid=4000)), *others()], "history-replaced"),
        ([log(), *others()[:1]], "history-not-read"),
        ([log(), others()[0], StateLog(2, (), 0, "TIMED_OUT")], "history-not-read"),
    ):
        h = read_history(start, HERE, logs, PARTITIONS)
        assert h.reason == reason
        assert (h.detail is None) == (reason == "history-not-read")


def test_an_id_that_only_the_coordinator_knows_needs_every_log() -> None:
    h = read_history(StartBatch(PID, 0), HERE, others(), PARTITIONS, known_ids=["orders"])
    assert h.reason == "history-not-read"
    h = read_history(StartBatch(PID, 0), HERE, [log(), *others()], PARTITIONS, known_ids=["orders"])
    assert h.reason == "history-replaced"


@pytest.mark.parametrize("tag", ["previous_producer_id", "next_producer_id"])
def test_a_producer_id_in_a_tag_counts_as_named(tag: str) -> None:
    """Its id went on with another one (rotation): its own records were compacted away."""
    r = record(9, "CC", 0, pid=4700, version=2)
    assert isinstance(r.value, TransactionValue)
    tagged = (
        r.value._replace(previous_producer_id=PID)
        if tag == "previous_producer_id"
        else r.value._replace(next_producer_id=PID)
    )
    r = replace(r, value=tagged)
    h = past(r, start=StartBatch(PID, 32_766), whole_from=9)
    assert h.transactional_ids == ("orders",)
    # as the next one it begins at epoch 0
    assert h.reason == ("history-compacted" if tag[0] == "p" else "history-replaced")
    assert past(r, start=StartBatch(PID, 0), whole_from=9).reason == (
        "history-compacted" if tag[0] == "p" else None
    )


def test_a_record_that_cannot_be_read_is_a_gap() -> None:
    odd = StateRecord("orders", HOME, 1, 5, UnknownVersion(9))
    assert past(record(0, "E", 0), odd).reason == "history-unreadable"


def test_what_the_cache_knows_and_the_log_lost() -> None:
    """The log's end was cut off; what was written under a later leader was not lost with it."""
    cut = [record(0, "E", 0, epoch=1), record(1, "CC", 9, epoch=1)]
    lost = record(2, "PC", 10, epoch=2, version=2)

    def read(*records: StateRecord, epoch: int) -> History:
        made = replace(log(*records, cut_epoch=3), former=(log(*cut, lost),))
        return read_history(StartBatch(PID, epoch), HERE, [made, *others()], PARTITIONS)

    h = read(*cut, epoch=1)
    assert (h.reason, [(d.offset, d.source) for d in h.decisions]) == (
        "history-replaced",
        [(2, "forgotten")],
    )
    later = replace(record(2, "E", 20, epoch=2), leader_epoch=4)
    assert read(*cut, later, epoch=2).reason is None
    assert read(*cut, replace(later, leader_epoch=3), epoch=2).reason == "history-replaced"


def test_what_an_earlier_log_shares_with_this_one_is_decided_once() -> None:
    """A log that lost its end kept its beginning: the cache holds both, and no decision twice."""
    shared = record(0, "E", 0), record(1, "PC", 10), record(2, "CC", 20)
    cut = record(3, "PC", 30)
    made = replace(log(*shared, cut_epoch=0), former=(log(*shared, cut),))
    h = read_history(StartBatch(PID, 0), HERE, [made, *others()], PARTITIONS)
    assert [(d.offset, d.source) for d in h.decisions] == [(3, "forgotten"), (1, "log")]


def test_a_decision_that_was_read_earlier_says_so() -> None:
    made = replace(log(record(0, "E", 0), record(1, "PC", 5), record(7, "PC", 9)), cached_until=7)
    h = read_history(StartBatch(PID, 0), HERE, [made], PARTITIONS)
    assert [d.source for d in h.decisions] == ["cache", "log"]


def test_what_began_an_epoch_counts_while_no_read_can_have_missed_what_came_behind_it() -> None:
    """A later record of its id would have taken it, but for one that came between two reads."""
    start, end = StartBatch(PID, 5), record(3, "CC", 0, epoch=5, version=2)
    later = record(9, "PC", 5, epoch=6, version=2)

    def begun_in(*logs: StateLog) -> bool:
        (decision,) = read_history(start, HERE, logs, PARTITIONS).decisions
        return decision.begun

    for stands_from, counts in ((0, True), (3, True), (4, False), (9, False)):
        read = replace(log(end, later, whole_from=9), stands_from=stands_from)
        assert begun_in(read) is counts
        assert begun_in(replace(log(), former=(read,))) is counts  # of a log that is gone
        assert begun_in(replace(log(), former=(read, log(end, later))))
    # nor does it tell what a log that went another way decided
    assert not begun_in(replace(log(later, whole_from=9), former=(log(end),)))
    for other, counts in (
        (record(3, "E", 0, epoch=5), True),
        (record(3, "O", 0, epoch=5, version=2), False),
        (record(3, "CC", 0, epoch=5), False),
        (record(3, "E", 0, epoch=4), False),
        (record(3, "E", 0, epoch=5, pid=4007), False),
        (replace(end, value=None), False),
    ):
        assert begun_in(log(other, later, whole_from=9)) is counts
    # what ended the transaction before began the epoch; it did not come after that
    both = log(record(3, "PC", 0, epoch=5, version=2), later)
    h = read_history(start, HERE, [both], PARTITIONS)
    assert [d.begun for d in h.decisions] == [False, True]


def test_an_id_outside_its_home_has_moved_unless_its_coordinator_confirms_it() -> None:
    away = [replace(r, partition=1) for r in (record(0, "E", 0), record(1, "CC", 1))]
    logs = [log(), StateLog(1, tuple(away), 0), StateLog(2, (), 0)]
    for confirmed, expected in ((["orders"], None), ([], "orders"), (["billing"], "orders")):
        h = read_history(StartBatch(PID, 0), HERE, logs, PARTITIONS, confirmed_ids=confirmed)
        assert (h.moved, h.reason) == (expected, None)


def test_an_id_that_moved_before_it_had_the_producer_id_is_at_home() -> None:
    """Its old records are in a log that names the producer id for another id's sake."""
    name = next(n for n in map(str, range(99)) if coordinator_partition(n, PARTITIONS) == 1)
    neighbour = replace(record(0, "E", 0), partition=1, transactional_id=name)
    away = replace(record(1, "CC", 1, pid=4000), partition=1)
    logs = [log(record(0, "E", 0)), StateLog(1, (neighbour, away), 0), StateLog(2, (), 0)]
    assert read_history(StartBatch(PID, 0), HERE, logs, PARTITIONS).moved is None


# --- which decision covers the batch ---------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "epoch", "version", "expected"),
    [
        ("PC", 5, 0, True),  # v1: the batch's own epoch
        ("PA", 6, 0, True),  # v1: a fence or a timeout
        ("PC", 6, 0, False),  # v1: a later session's commit
        ("PA", 7, 0, False),  # v1: a later session's fence
        ("PA", 4, 0, False),
        ("PC", 6, 2, True),  # v2: + 1
        ("PC", 5, 2, False),  # v2: the end of the transaction before
        ("PC", 7, 2, False),  # v2: a later one
    ],
)
def test_covers(state: str, epoch: int, version: int, expected: bool) -> None:
    (decision,) = past(record(0, state, 0, epoch=epoch, version=version)).decisions
    assert covers(decision, StartBatch(PID, 5)) is expected


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # Kafka 4.0.0 raises twice for an abort: it is the record that ended the epoch
        ([record(0, "E", 0, epoch=5), record(1, "PA", 1, epoch=7, version=2)], True),
        ([record(0, "E", 0, epoch=5), record(1, "PC", 1, epoch=7, version=2)], False),
        # the epoch ended without a decision, and this one is on the next
        (
            [
                record(0, "E", 0, epoch=5),
                record(1, "E", 1, epoch=6),
                record(2, "PA", 2, epoch=7, version=2),
            ],
            False,
        ),
    ],
)
def test_two_epochs_above_are_told_by_the_chain(records: list[StateRecord], expected: bool) -> None:
    start = StartBatch(PID, 5)
    h = past(*records, start=start)
    assert covers(h.decisions[-1], start, h.ended_by) is expected


# --- which decisions lack their marker ---------------------------------------------------------


START = StartBatch(PID, 1)


def v1(
    *records: StateRecord,
    start: StartBatch = START,
    markers: tuple[Marker, ...] = (),
    whole_from: int = 0,
    markers_from: int | None = 0,
) -> History:
    """The past of a batch of epoch 1."""
    return past(
        *records, start=start, markers=markers, whole_from=whole_from, markers_from=markers_from
    )


def lost(h: History, start: StartBatch = START, offset: int = 100) -> list[int] | None:
    found = lost_decisions(h, start, offset, SKEW)
    return None if found is None else [d.offset for d in found]


def commits(*times: int, before: int | None = 0) -> list[StateRecord]:
    """v1: Empty, then Prepare and Complete 10 ms later, at each time; Prepare has even offsets.

    before: when the session before committed once, which measures the clocks; None: it did not.
    """
    found = [record(0, "E", 0), record(1, "O", 0)]
    if before is not None:
        found = [record(0, "PC", before), record(1, "CC", before + 10)]
    found.append(record(2, "E", 0, epoch=1))
    for t in times:
        found += [
            record(len(found) + 1, "PC", t, epoch=1),
            record(len(found) + 2, "CC", t + 10, epoch=1),
        ]
    return found


def markers(*times: int, ahead: int = 0, measured: bool = True) -> tuple[Marker, ...]:
    """Commit markers of epoch 1 by the data leader's clock, after the earlier session's one."""
    first = [marker(1, 5 + ahead, epoch=0)] if measured else []
    return (*first, *(marker(10 * n, t + ahead, epoch=1) for n, t in enumerate(times, 1)))


def test_v2_tells_by_epoch_alone_whatever_the_clocks() -> None:
    h = v1(
        record(0, "PC", 9_999_999, epoch=5, version=2),
        record(1, "PC", 1, epoch=6, version=2),
        markers=(marker(50, 9_999_999, epoch=5),),
    )
    assert lost(h, StartBatch(PID, 4)) == [1], "the marker of epoch 5 is there"
    assert lost(h, StartBatch(PID, 5)) == [1]
    assert lost(h, StartBatch(PID, 6)) == []


@pytest.mark.parametrize(
    ("made", "other", "unclear"),
    [
        ({}, {}, True),
        # its log did not lose its end: no epoch came again
        ({}, {"lost_end": False}, False),
        # the log that is there has it
        ({"source": "log"}, {}, False),
        # the end of the transaction before the batch
        ({"producer_epoch": 1}, {}, False),
        # markers may be below what was read
        ({}, {"markers_from": 40}, False),
        ({}, {"markers_from": None}, False),
        # one marker of any decision shows that this is the topic
        ({}, {"markers": (marker(9, 5, epoch=2),)}, False),
        ({}, {"markers": (marker(9, 5, "abort", epoch=2),)}, True),
        # the topic's id was seen before, by an offset of the log that is there now
        ({}, {"named_since": 0}, True),
    ],
)
def test_v2_after_a_lost_end_an_epoch_may_be_of_an_earlier_topic(
    made: dict[str, Any], other: dict[str, Any], unclear: bool
) -> None:
    h = v1(record(0, "E", 0), record(1, "PC", 9, version=2, epoch=2))
    gone = replace(h.decisions[0], **{"source": "forgotten"} | made)
    changed: dict[str, Any] = {"decisions": (gone,), "lost_end": True}
    h = replace(h, **changed | other)
    assert topic_unclear(h, START, 100) is unclear
    assert (lost(h) is None) is unclear


@pytest.mark.parametrize("measured", [True, False])
def test_v1_paired_decisions_are_not_lost(measured: bool) -> None:
    h = v1(
        *commits(1000, 1200, before=0 if measured else None),
        markers=markers(1005, 1205, measured=measured),
    )
    assert lost(h) == []


@pytest.mark.parametrize("ahead", [0, 3 * 3_600_000, -3 * 3_600_000])
def test_v1_one_decision_more_than_markers(ahead: int) -> None:
    apart = v1(*commits(1000, 60_000), markers=markers(1005, ahead=ahead))
    assert lost(apart) == [6]
    close = v1(*commits(1000, 1200), markers=markers(1005, ahead=ahead))
    assert lost(close) is None  # the marker may be the second's, the first's lost before it


def test_v1_two_clocks_that_were_not_measured_order_nothing() -> None:
    h = v1(*commits(1000, 60_000, before=None), markers=markers(1005, measured=False))
    assert lost(h) is None


@pytest.mark.parametrize(
    "why", ["too long ago", "another data leader", "another coordinator", "twice", "compacted"]
)
def test_v1_what_measures_no_clocks(why: str) -> None:
    made, found = commits(4_000_000, 4_060_000), list(markers(4_000_005))
    if why != "too long ago":
        made[:2] = [record(0, "PC", 3_999_000), record(1, "CC", 3_999_010)]
        found[0] = marker(1, 3_999_005)
    at = 0
    if why == "another data leader":
        found[0] = replace(found[0], leader_epoch=7)
    elif why == "another coordinator":
        made[0] = replace(made[0], leader_epoch=7)
    elif why == "twice":
        found.insert(1, replace(found[0], offset=2, data=False))
    elif why == "compacted":
        at = 2
    h = v1(*made, markers=tuple(found), whole_from=at)
    assert h.whole
    assert lost(h) is None


@pytest.mark.parametrize(("gap", "expected"), [(4990, None), (5000, None), (5016, [6])])
def test_v1_measured_clocks_break_a_tie_only_beyond_the_skew(
    gap: int, expected: list[int] | None
) -> None:
    h = v1(*commits(1000, 1010 + gap), markers=markers(1010))
    assert lost(h) == expected


def test_v1_outcomes_must_be_equal() -> None:
    records = [*commits(1000), record(6, "PA", 1300, epoch=1), record(7, "CA", 1310, epoch=1)]
    assert lost(v1(*records, markers=markers(1005))) == [6]  # a commit marker: the first's
    second = (marker(1, 5), marker(10, 1305, "abort", epoch=1))
    assert lost(v1(*records, markers=second)) == []  # the second's


def test_v1_a_marker_lost_in_between_was_closed_by_the_next() -> None:
    h = v1(*commits(1000, 60_000), markers=markers(60_005))
    assert lost(h) == []


def test_v1_a_marker_may_stand_twice() -> None:
    """Without data since the one before it is a repeat, or a decision's own: both are tried."""
    made = commits(1000, 1200)
    once, again = marker(10, 1005, epoch=1), marker(20, 1205, epoch=1)
    first = marker(1, 5)
    assert lost(v1(*made, markers=(first, once, again))) == []
    assert lost(v1(*made, markers=(first, once, replace(again, data=False)))) is None
    assert lost(v1(*made, markers=(first, once, replace(again, data=None)))) is None
    # a repeat is no second decision's where there is but one
    assert lost(v1(*commits(1000), markers=(first, once, replace(again, data=False)))) == []
    assert lost(v1(*commits(1000), markers=(first, once, again))) is None
    # nor of another outcome
    other = replace(again, outcome="abort", data=False)
    assert lost(v1(*commits(1000), markers=(first, once, other))) is None


def test_v1_a_marker_that_no_decision_explains() -> None:
    h = v1(*commits(), markers=markers(1005))
    assert lost(h) is None
    # v2's end of the transaction before bears the epoch that it began
    begun = v1(record(0, "CC", 0, epoch=1, version=2), markers=(marker(10, 5, epoch=1),))
    assert lost(begun) == []


def test_v1_no_marker_at_all() -> None:
    """The session before has its marker here: it is this topic, and the one after it was lost."""
    assert lost(v1(*commits(1000), markers=markers())) == [4]
    assert lost(v1(*commits(1000), markers_from=40)) is None  # it may be below what was read
    assert lost(v1(*commits(1000), markers_from=None)) is None


@pytest.mark.parametrize(("source", "expected"), [("log", []), ("forgotten", [4])])
def test_v1_the_window_is_of_the_log_that_is_there(source: Source, expected: list[int]) -> None:
    """A decision below it is older than the epoch; one of another log has another numbering."""
    h = v1(*commits(1000), markers=markers())
    made = [replace(d, source=source) if d.offset == 4 else d for d in h.decisions]
    assert lost(replace(h, window=5, decisions=tuple(made))) == expected


def test_v1_a_log_without_any_marker_may_be_another_topic() -> None:
    h = v1(*commits(1000, before=None))
    assert topic_unclear(h, START, 100)
    assert lost(h) is None
    # an id of the topic that was seen before the decisions, or an earlier one after them
    for since, before, expected in (
        (4, 0, [4]),
        (5, 0, None),
        (None, 5, []),
        (None, 4, None),
    ):
        seen = replace(h, named_since=since, named_before=before)
        assert lost(seen) == expected
    # under v2 the epoch names the transaction, whatever the topic
    assert lost(v1(record(0, "E", 0), record(1, "PC", 9, version=2, epoch=2))) == [1]


def test_v1_nothing_older_than_a_matched_marker_is_about_what_lies_behind_it() -> None:
    """A late write of an old session, behind the marker of a later one."""
    records = [*commits(1000), record(8, "E", 2000, epoch=2), record(9, "PC", 3000, epoch=2)]
    h = v1(*records, markers=(marker(50, 3005, epoch=2),))
    assert lost(h, START, offset=60) == []
    assert lost(h, START, offset=40) == [4]


def test_v1_markers_of_decisions_that_were_compacted_away() -> None:
    h = v1(
        record(9, "O", 100_000), record(10, "PC", 200_000), record(11, "CC", 200_010),
        start=StartBatch(PID, 0), whole_from=9,
        markers=(marker(10, 1005), marker(20, 200_005)),
    )  # fmt: skip
    assert h.reason == "history-compacted"
    assert lost(h, StartBatch(PID, 0)) is None  # the second may be any one's


def test_v1_a_leader_ahead_of_the_coordinator_within_the_skew_is_a_tie() -> None:
    assert lost(v1(*commits(1000, 1200), markers=markers(3000))) is None


def test_v1_a_decision_long_after_the_batch_by_a_measured_clock() -> None:
    h = v1(*commits(60_000), markers=markers(), markers_from=40)
    assert lost(h, replace(START, marker_after=54_984)) == [4]
    assert lost(h, replace(START, marker_after=55_001)) is None
    late = replace(START, timestamp=66_000, append_time=True)
    assert lost(h, late) == []


def test_v1_a_timeout_is_told_by_its_epoch() -> None:
    h = v1(*commits(1000), record(6, "PA", 1100, epoch=2), markers=markers(1005))
    assert lost(h) == [6]


# --- exactly at the bounds, and what measures two clocks -----------------------------------------


def session_before(
    *decided: tuple[int, str, int], version: int = 0, sources: tuple[str, ...] = ()
) -> History:
    """Epoch 0 with these (decided at, outcome, marker at), then epoch 1: 10 s, 70 s, one marker.

    Where epoch 0 measures the clocks, the marker at 10.005 s is the first one's.
    """
    records, found = [], []
    for number, (at, outcome, marked) in enumerate(decided):
        state = "PC" if outcome == "commit" else "PA"
        records += [
            record(2 * number, state, at, version=version),
            record(2 * number + 1, "C" + state[1], at + 10, version=version),
        ]
        found.append(marker(number + 1, marked, outcome))
    first = len(records)
    records += [
        record(first, "E", 9000, epoch=1),
        record(first + 1, "PC", 10_000, epoch=1),
        record(first + 2, "CC", 10_010, epoch=1),
        record(first + 3, "PC", 70_000, epoch=1),
    ]
    h = v1(*records, markers=(*found, marker(50, 10_005, epoch=1)))
    if sources:
        made = [replace(d, source=s) for d, s in zip(h.decisions, sources, strict=False)]  # type: ignore[arg-type]
        h = replace(h, decisions=(*made, *h.decisions[len(sources) :]))
    return h


def test_v1_clocks_are_measured_on_each_decision_of_an_epoch_that_has_its_own_marker() -> None:
    pair = (500, "commit", 505), (700, "abort", 705)
    assert lost(session_before(*pair)) == [7]
    for number in (0, 1):
        for data in (False, None):
            h = session_before(*pair)
            ms = list(h.markers)
            ms[number] = replace(ms[number], data=data)
            assert lost(replace(h, markers=tuple(ms))) is None
    assert lost(session_before(*pair, sources=("forgotten", "log"))) is None
    assert lost(session_before(*pair, sources=("log", "forgotten"))) is None
    assert lost(session_before(*pair, sources=("log", "cache"))) == [7]


@pytest.mark.parametrize(
    ("versions", "expected"), [((2, 2), [7]), ((0, 0), None), ((0, 2), None), ((2, 0), None)]
)
def test_v1_an_epoch_of_v1_measures_only_while_none_of_its_decisions_may_be_gone(
    versions: tuple[int, int], expected: list[int] | None
) -> None:
    h = session_before((500, "commit", 505), (700, "abort", 705))
    made = [replace(d, client_version=v) for d, v in zip(h.decisions, versions, strict=False)]
    assert lost(replace(h, decisions=(*made, *h.decisions[2:]))) == [7]
    assert lost(replace(h, window=1, decisions=(*made, *h.decisions[2:]))) == expected


@pytest.mark.parametrize(
    ("source", "offset", "expected"),
    [("log", 9, [7]), ("log", 1, [7]), ("log", 0, None), ("forgotten", 9, None)],
)
def test_v1_only_a_decision_of_this_log_above_its_gap_shows_that_none_is_gone(
    source: Source, offset: int, expected: list[int] | None
) -> None:
    """Below the window decisions may be gone; a known one of an earlier epoch excludes that."""
    h = session_before((500, "commit", 505), (700, "abort", 705))
    earlier = replace(h.decisions[0], producer_epoch=-1, offset=offset, source=source)
    h = replace(h, window=1, decisions=(earlier, *h.decisions))
    assert lost(h) == expected


def test_v1_the_batchs_own_epoch_measures_where_none_of_its_decisions_is_gone() -> None:
    """Its one decision has its marker; clocks once measured say where the batch cannot be."""
    h = v1(*commits(60_000, before=None), markers=markers(60_005, measured=False))
    early = replace(START, marker_after=20_000)
    late = replace(START, timestamp=100_000, append_time=True)
    assert lost(h) == []
    for window in (0, 2):
        whole = replace(h, window=window)
        assert lost(whole, early) is None
        assert lost(whole, late) == []
    # the marker may be that of a decision that was compacted away
    assert lost(replace(h, window=2, reason="history-compacted"), late) is None


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        # the first measures -5 to 5; the skew is 5000
        (705, [7]),
        (5715, [7]),  # 5005 to 5015
        (5716, None),
        (-4305, [7]),  # -5015 to -5005
        (-4306, None),
    ],
)
def test_v1_measurements_that_disagree_by_more_than_the_skew_are_none(
    second: int, expected: list[int] | None
) -> None:
    assert lost(session_before((500, "commit", 505), (700, "commit", second))) == expected


@pytest.mark.parametrize("pairs", [((500, 509), (700, 701)), ((500, 501), (700, 709))])
def test_v1_the_narrowest_measurement_counts(pairs: tuple[tuple[int, int], ...]) -> None:
    """Each marker stands between its decision and the next record: the bounds overlap."""
    wide = session_before(*((at, "commit", marked) for at, marked in pairs))
    # one says -1 to 9, the other -9 to 1: the clocks differ by -1 to 1
    late = replace(START, marker_after=64_998)
    assert lost(replace(wide, markers=wide.markers[:2], markers_from=40), late) == [5, 7]
    later = replace(START, marker_after=64_999)
    assert lost(replace(wide, markers=wide.markers[:2], markers_from=40), later) is None
    early = replace(START, timestamp=75_001, append_time=True)
    assert lost(replace(wide, markers=wide.markers[:2], markers_from=40), early) is None
    earlier = replace(START, timestamp=75_002, append_time=True)
    assert lost(replace(wide, markers=wide.markers[:2], markers_from=40), earlier) == []


@pytest.mark.parametrize(("at", "expected"), [(3_600_000, [6]), (3_600_001, None)])
def test_v1_a_measurement_is_believed_for_an_hour(at: int, expected: list[int] | None) -> None:
    assert lost(v1(*commits(3_540_000, at), markers=markers(3_540_005))) == expected


@pytest.mark.parametrize(("at", "expected"), [(3_660_000, [6]), (3_660_001, None)])
def test_v1_a_later_measurement_is_believed_for_an_hour_too(
    at: int, expected: list[int] | None
) -> None:
    found = marker(1, at + 5, epoch=0), marker(10, 1005, epoch=1)
    assert lost(v1(*commits(1000, 60_000, before=at), markers=found)) == expected


def test_v1_a_decision_that_is_not_complete_may_own_a_marker() -> None:
    """Its coordinator writes the markers before it completes the transaction."""
    assert lost(v1(*commits(1000)[:-1], markers=markers(1005))) == []


@pytest.mark.parametrize(("gap", "expected"), [(5005, None), (5006, [6])])
def test_v1_a_marker_is_not_before_its_decision(gap: int, expected: list[int] | None) -> None:
    assert lost(v1(*commits(1000, 1010 + gap), markers=markers(1010))) == expected


@pytest.mark.parametrize(("at", "expected"), [(6015, [6]), (6016, None)])
def test_v1_a_marker_is_not_after_the_next_record(at: int, expected: list[int] | None) -> None:
    assert lost(v1(*commits(1000, 60_000), markers=markers(at))) == expected


def test_v1_before_or_after_the_batch_exactly_at_the_skew() -> None:
    h = v1(*commits(60_000), markers=markers(), markers_from=40)
    assert lost(h, replace(START, marker_after=54_994)) == [4]
    assert lost(h, replace(START, marker_after=54_995)) is None
    assert lost(h, replace(START, timestamp=65_005, append_time=True)) is None
    assert lost(h, replace(START, timestamp=65_006, append_time=True)) == []


def test_v1_all_that_may_be_after_the_batch_is_lost() -> None:
    """The second is after the batch for sure, the first maybe: neither has a marker then."""
    h = v1(*commits(1000, 60_000), markers=markers(), markers_from=40)
    assert lost(h, replace(START, marker_after=20_000)) == [4, 6]


def test_v1_an_order_that_the_clocks_contradict_is_none() -> None:
    """A marker before the batch, and both decisions long after it: no order explains that."""
    h = v1(*commits(60_000, 120_000), markers=markers(60_005))
    assert lost(h) == [6]
    assert lost(h, replace(START, marker_after=20_000)) is None


def test_v1_the_batch_is_after_what_its_leader_wrote_before_it() -> None:
    """A decision before the batch, without a marker: the batch would lie in its transaction."""
    h = v1(*commits(1000, 60_000), markers=markers(1005))
    assert lost(h) == [6]
    assert lost(h, replace(START, timestamp=100_000, append_time=True)) is None


@pytest.mark.parametrize(("from_", "expected"), [(0, []), (40, None), (None, None)])
def test_v1_the_first_marker_repeats_one_only_where_one_may_stand_below(
    from_: int | None, expected: list[int] | None
) -> None:
    repeat = replace(marker(10, 1005, epoch=1), data=False)
    assert lost(v1(*commits(1000), markers=(marker(1, 5), repeat), markers_from=from_)) == expected


def test_v1_the_latest_matched_marker_closes_what_is_older() -> None:
    records = [*commits(1000), record(8, "E", 2000, epoch=2), record(9, "PC", 3000, epoch=2)]
    h = v1(*records, markers=(marker(1, 5), marker(50, 3005, epoch=2)))
    assert lost(h, START, offset=60) == []
    # not one of another outcome: that is no marker of this decision
    other = v1(*records, markers=(marker(1, 5), marker(50, 3005, "abort", epoch=2)))
    assert lost(other, START, offset=60) == [4]
    # nor that of a decision of another log: its offset is of another numbering
    forgotten = replace(h.decisions[-1], source="forgotten")
    moved = replace(h, decisions=(*h.decisions[:-1], forgotten))
    assert lost(moved, START, offset=60) == [4]


def test_v1_a_decision_at_the_very_beginning_of_the_log_counts() -> None:
    h = v1(record(0, "PC", 1000, epoch=1), record(1, "CC", 1010, epoch=1))
    assert lost(replace(h, named_since=0)) == [0]


def test_v1_one_decision_older_than_the_topic_id_makes_it_unclear() -> None:
    h = replace(v1(*commits(1000, 60_000, before=None)), named_since=5)
    assert topic_unclear(h, START, 100)
    assert lost(h) is None


@pytest.mark.parametrize("forgotten", [False, True])
def test_v1_thousands_of_transactions_of_one_epoch_take_no_time(*, forgotten: bool) -> None:
    """A producer that runs all day has one epoch; the last marker is lost, or nothing is known."""
    times = (*range(1000, 1_000_000, 500), 1_100_000)
    history = v1(*commits(*times), markers=markers(*times[:-1]), whole_from=3 * forgotten)
    begin = time.process_time()
    found = lost(history, offset=10**9)
    assert time.process_time() - begin < 5
    assert found == (None if forgotten else [2 + 2 * len(times)])


def test_three_epochs_above_is_a_later_one() -> None:
    start = StartBatch(PID, 5)
    h = past(record(0, "E", 0, epoch=5), record(1, "PA", 1, epoch=8, version=2), start=start)
    assert h.ended_by == 1
    assert not covers(h.decisions[-1], start, h.ended_by)


def test_an_epoch_that_is_not_known_is_minus_one() -> None:
    """0 is a coordinator epoch; so is every number above it."""
    (made,) = past(record(0, "PC", 0)).decisions
    assert (made.leader_epoch, made.source) == (-1, "log")
    assert record(0, "PC", 0).leader_epoch == marker(0, 0).leader_epoch == -1
    direct = replace(made)
    assert Decision(**{f: getattr(direct, f) for f in REQUIRED}).leader_epoch == -1


REQUIRED = (
    "transactional_id", "outcome", "producer_id", "producer_epoch", "partitions",
    "state_partition", "offset", "timestamp", "client_version", "started", "completed_at",
)  # fmt: skip


@given(
    st.lists(
        st.builds(
            Marker,
            offset=st.integers(0, 2**62),
            outcome=st.sampled_from(["abort", "commit"]),
            producer_epoch=st.integers(0, 32_767),
            coordinator_epoch=st.integers(0, 2**31 - 1),
            timestamp=st.integers(-1, 2**62),
            data=st.sampled_from([True, False, None]),
            leader_epoch=st.integers(-1, 2**31 - 1),
            data_epoch=st.none() | st.integers(0, 32_767),
            origin=st.none() | st.sampled_from(get_args(MarkerOrigin)),
        )
    )
)
def test_markers_in_columns_are_the_same_markers(markers: list[Marker]) -> None:
    kept = Markers(markers)
    assert list(kept) == markers
    assert [kept[n] for n in range(len(kept))] == markers
    assert list(reversed(kept)) == markers[::-1]
    assert kept[1:] == markers[1:]
    assert kept == tuple(markers)
    assert len(kept) == len(markers)


def test_a_marker_in_columns_takes_what_its_numbers_take() -> None:
    """Tens of thousands are kept for each producer of a busy partition."""
    number = 10_000
    tracemalloc.start()
    kept = Markers(Marker(n * 1000, "commit", 300, 400, n * 2000) for n in range(number))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == number
    assert taken < number * 40
