"""Decisions, wholeness and lost markers from records written out by hand."""

from dataclasses import replace

import pytest

from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.history import (
    History,
    Marker,
    StateLog,
    StateRecord,
    read_history,
    still_open_in_log,
)
from recovery.lost_markers import covers, lost_decisions
from recovery.observation import StartBatch

PID, HERE, ELSEWHERE = 4001, ("t", 0), ("t", 1)
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
    named: tuple[tuple[str, int], ...] = (HERE,),
) -> StateRecord:
    """A record of "orders"; lastUpdate is far off on purpose: it is no ground."""
    partitions = named if state in ("O", "PC", "PA") else ()
    value = TransactionValue(
        pid, epoch, 60_000, TransactionState(NAMES[state]), partitions, 1, when,
        client_transaction_version=version,
    )  # fmt: skip
    return StateRecord("orders", HOME, offset, when, value)


def log(*records: StateRecord, whole_from: int = 0, since: int | None = None) -> StateLog:
    return StateLog(HOME, records, whole_from, since)


def others(whole_from: int = 0, since: int | None = None) -> list[StateLog]:
    return [StateLog(n, (), whole_from, since) for n in (1, 2)]


def past(
    *records: StateRecord,
    start: StartBatch | None = None,
    markers: tuple[Marker, ...] = (),
    whole_from: int = 0,
    since: int | None = None,
    markers_from: int | None = 0,
) -> History:
    return read_history(
        start or StartBatch(PID, 0),
        HERE,
        [log(*records, whole_from=whole_from, since=since), *others()],
        PARTITIONS,
        markers=markers,
        markers_from=markers_from,
        skew=SKEW,
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


def test_a_decision_of_another_producer_id_is_none_of_this_one() -> None:
    h = past(record(0, "E", 0), record(1, "PC", 1000, pid=4002))
    assert h.decisions == ()


def test_an_open_transaction_in_the_log_and_one_that_ended() -> None:
    assert still_open_in_log(past(record(0, "E", 0), record(1, "O", 10)))
    assert still_open_in_log(past(record(0, "E", 0), record(1, "PC", 10, named=(ELSEWHERE,))))
    assert not still_open_in_log(past(record(0, "PC", 0), record(1, "CC", 10)))
    assert not still_open_in_log(past(record(0, "E", 0), record(1, "O", 10, pid=4007)))


# --- whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "records", "since", "reason"),
    [
        # v2: a record of the batch's own epoch comes before any decision on it
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=5, version=2)], None, None),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=6, version=2)], None, "history-compacted"),
        # v1: an epoch begins with Empty; a Complete* may have swallowed a decision of that epoch
        (StartBatch(PID, 5), [record(9, "E", 0, epoch=5)], None, None),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=5)], None, "history-compacted"),
        (StartBatch(PID, 5), [record(9, "O", 0, epoch=5)], None, "history-compacted"),
        (StartBatch(PID, 5), [record(9, "CC", 0, epoch=4)], None, None),
        # an earlier producer id of the same id; a later one proves nothing
        (
            StartBatch(PID, 0),
            [record(9, "CC", 0, pid=4000), record(10, "CC", 0)],
            None,
            None,
        ),
        (
            StartBatch(PID, 0),
            [record(9, "CC", 0), record(10, "E", 0, pid=4007)],
            None,
            "history-compacted",
        ),
        # by time: beyond the skew, and only by a broker's clock
        (StartBatch(PID, 5, marker_before=15_001), [record(9, "CC", 0, epoch=5)], 10_000, None),
        (
            StartBatch(PID, 5, marker_before=15_000),
            [record(9, "CC", 0, epoch=5)],
            10_000,
            "history-compacted",
        ),
        (StartBatch(PID, 5, 15_001, True), [record(9, "CC", 0, epoch=5)], 10_000, None),
        (
            StartBatch(PID, 5, 15_001, False),
            [record(9, "CC", 0, epoch=5)],
            10_000,
            "history-compacted",
        ),
    ],
)
def test_whole_since_before_the_start_batch(
    start: StartBatch, records: list[StateRecord], since: int | None, reason: str | None
) -> None:
    assert past(*records, start=start, whole_from=9, since=since).reason == reason


def test_a_record_below_the_gap_is_no_anchor() -> None:
    h = past(record(3, "E", 0), record(9, "CC", 10), whole_from=9)
    assert h.reason == "history-compacted"


def test_only_the_partition_of_a_known_id_must_be_whole() -> None:
    records = (record(0, "E", 0), record(1, "CC", 1))
    for logs, reason in (
        ([log(*records), *others(whole_from=7)], None),
        ([log(*records)], None),
        ([log(*records, whole_from=1), *others()], "history-compacted"),
    ):
        h = read_history(StartBatch(PID, 0), HERE, logs, PARTITIONS, skew=SKEW)
        assert h.reason == reason


def test_all_partitions_must_be_whole_while_no_id_is_known() -> None:
    start = StartBatch(PID, 0)
    for logs, reason in (
        ([log(), *others()], None),
        ([log(), *others(whole_from=7)], "history-compacted"),
        ([log(), *others()[:1]], "history-not-read"),
        ([log(), others()[0], StateLog(2, (), 0, None, "TIMED_OUT")], "history-not-read"),
        ([log(), *others(7, 10_000)], "history-compacted"),
    ):
        assert read_history(start, HERE, logs, PARTITIONS, skew=SKEW).reason == reason
    late = replace(start, marker_before=15_001)
    assert read_history(late, HERE, [log(), *others(7, 10_000)], PARTITIONS, skew=SKEW).whole


def test_an_id_that_only_the_coordinator_knows_has_its_partition() -> None:
    h = read_history(
        StartBatch(PID, 0), HERE, others(), PARTITIONS, known_ids=["orders"], skew=SKEW
    )
    assert h.reason == "history-not-read"  # partition 0 is the one that matters


def test_a_record_that_cannot_be_read_is_a_gap() -> None:
    odd = StateRecord("orders", HOME, 1, 5, UnknownVersion(9))
    assert past(record(0, "E", 0), odd).reason == "history-unreadable"


# --- which decision covers the batch ---------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "epoch", "version", "expected"),
    [
        ("PC", 5, 0, True),  # v1: the batch's own epoch
        ("PA", 6, 0, True),  # v1: a fence or a timeout
        ("PC", 6, 0, False),  # v1: a later session's commit
        ("PC", 6, 2, True),  # v2: + 1
        ("PC", 5, 2, False),  # v2: the end of the transaction before
        ("PC", 7, 2, False),  # v2: a later one
    ],
)
def test_covers(state: str, epoch: int, version: int, expected: bool) -> None:
    (decision,) = past(record(0, state, 0, epoch=epoch, version=version)).decisions
    assert covers(decision, StartBatch(PID, 5)) is expected


# --- which decisions lack their marker ---------------------------------------------------------


def lost(h: History, start: StartBatch | None = None, offset: int = 100) -> list[int] | None:
    found = lost_decisions(h, start or StartBatch(PID, 0), offset, SKEW)
    return None if found is None else [d.offset for d in found]


def commits(*times: int) -> list[StateRecord]:
    """v1: Empty, then Prepare and Complete 10 ms later, at each time; Prepare has odd offsets."""
    found = [record(0, "E", 0)]
    for t in times:
        found += [
            record(len(found), "PC", t),
            record(len(found) + 1, "CC", t + 10),
        ]
    return found


def test_v2_tells_by_epoch_alone_whatever_the_clocks() -> None:
    h = past(
        record(0, "PC", 9_999_999, epoch=5, version=2),
        record(1, "PC", 1, epoch=6, version=2),
        markers=(marker(50, 9_999_999, epoch=5),),
    )
    assert lost(h, StartBatch(PID, 5)) == [1]
    assert lost(h, StartBatch(PID, 6)) == []


def test_v1_paired_decisions_are_not_lost() -> None:
    h = past(*commits(1000, 1200), markers=(marker(10, 1005), marker(20, 1205)))
    assert lost(h) == []


def test_v1_one_decision_more_than_markers() -> None:
    apart = past(*commits(1000, 60_000), markers=(marker(10, 1005),))
    assert lost(apart) == [3]
    close = past(*commits(1000, 1200), markers=(marker(10, 1005),))
    assert lost(close) is None  # the marker may be the second's, the first's lost before it


@pytest.mark.parametrize(("gap", "expected"), [(4990, None), (5000, None), (5011, [3])])
def test_v1_two_clocks_break_a_tie_only_beyond_the_skew(
    gap: int, expected: list[int] | None
) -> None:
    h = past(*commits(1000, 1010 + gap), markers=(marker(10, 1010),))
    assert lost(h) == expected


def test_v1_outcomes_must_be_equal() -> None:
    records = [*commits(1000), record(3, "PA", 1300), record(4, "CA", 1310)]
    assert lost(past(*records, markers=(marker(10, 1005),))) == [3]  # a commit marker: the first's
    assert lost(past(*records, markers=(marker(10, 1305, "abort"),))) == []  # the second's


def test_v1_a_marker_lost_in_between_was_closed_by_the_next() -> None:
    h = past(*commits(1000, 60_000), markers=(marker(10, 60_005),))
    assert lost(h) == []


def test_v1_no_marker_at_all() -> None:
    assert lost(past(*commits(1000))) == [1]
    assert lost(past(*commits(1000), markers_from=40)) is None  # it may be below what was read
    assert lost(past(*commits(1000), markers_from=None)) is None


def test_v1_a_batch_with_a_broker_time_after_the_decision() -> None:
    """LogAppendTime: the batch came long after the decision; its marker is below what was read."""
    h = past(*commits(1000), markers_from=40)
    assert lost(h, StartBatch(PID, 0, 60_000, True)) == []
    assert lost(h, StartBatch(PID, 0, 60_000, False)) is None  # by the producer's clock: no ground


def test_v1_markers_of_decisions_that_were_compacted_away() -> None:
    # from offset 9 on whole, by time; the marker at 1005 belongs to a decision below the gap
    start = StartBatch(PID, 0, marker_before=500_000)
    before = (record(9, "O", 100_000), record(10, "PC", 200_000), record(11, "CC", 200_010))
    paired = past(
        *before,
        start=start,
        whole_from=9,
        since=100_000,
        markers=(marker(10, 1005), marker(20, 200_005)),
    )
    assert lost(paired, replace(start, marker_before=200_005)) == []
    unpaired = past(*before, start=start, whole_from=9, since=100_000, markers=(marker(10, 1005),))
    assert lost(unpaired, replace(start, marker_before=1005)) == [10]


def test_v1_a_decision_below_the_gap_is_older_than_the_batch() -> None:
    h = past(
        record(3, "PC", 1000),
        record(9, "E", 100_000),
        start=StartBatch(PID, 0, marker_before=500_000),
        whole_from=9,
        since=100_000,
    )
    assert h.whole
    assert lost(h, StartBatch(PID, 0, marker_before=500_000)) == []


def test_v1_a_leader_ahead_of_the_coordinator_within_the_skew_is_a_tie() -> None:
    assert lost(past(*commits(1000, 1200), markers=(marker(10, 3000),))) is None


def test_v1_a_decision_long_after_the_batch_by_a_broker_clock() -> None:
    h = past(*commits(60_000), markers_from=40)
    assert lost(h, StartBatch(PID, 0, marker_after=54_999)) == [1]
    assert lost(h, StartBatch(PID, 0, marker_after=55_001)) is None


def test_v1_a_timeout_is_told_by_its_epoch() -> None:
    h = past(*commits(1000), record(3, "PA", 1100, epoch=1), markers=(marker(10, 1005),))
    assert lost(h) == [3]
