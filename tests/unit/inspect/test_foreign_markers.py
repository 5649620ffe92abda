"""Who decided a marker: cases by hand, beside the generated ones of test_verdicts_model.py."""

from collections.abc import Sequence

import pytest

from recovery.audit.transaction_facts import Data, Ending, Mark, coverage
from recovery.audit.transactions import ForeignMarker, undecided
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import Marker, StateLog, StateRecord
from recovery.inspect.lost_markers import (
    OwnMarker,
    decisions_on,
    own_first,
    past_of,
    with_origins,
)
from recovery.inspect.strip_stretches import markers_of, strip_rows, told
from recovery.values import replace
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

PID, HERE, ELSEWHERE = 7, TopicPartition("t", 0), TopicPartition("t", 1)
S = TransactionState
Step = tuple[TransactionState, int]  # state, epoch


def log(
    *steps: Step, version: int = 2, where: TopicPartition = HERE, first: int = 0, pid: int = PID
) -> StateLog:
    """The records of one id, from offset `first` on: what came before is compacted away."""
    records = []
    for number, (state, epoch) in enumerate(steps):
        named = (where,) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else ()
        value = TransactionValue(
            pid, epoch, 60_000, state, named, number, number, client_transaction_version=version
        )
        records.append(StateRecord("app", 3, first + number, number, value, 0))
    return StateLog(3, tuple(records), first, leader_epoch=5)


def ended(outcome: str, epoch: int, data: int | None, coordinator: int = 0) -> Marker:
    return Marker(10, outcome, epoch, coordinator, 1000, data is not None, data_epoch=data)


def whose(m: Marker, *logs: StateLog) -> str | None:
    [found] = with_origins([m], decisions_on(logs, PID, HERE), past_of(logs, PID))
    return found.origin


V2 = (
    (S.EMPTY, 0),
    (S.ONGOING, 0),
    (S.PREPARE_COMMIT, 1),
    (S.COMPLETE_COMMIT, 1),
    (S.ONGOING, 1),
    (S.PREPARE_ABORT, 2),
    (S.COMPLETE_ABORT, 2),
)


@pytest.mark.parametrize(
    ("m", "origin"),
    [
        (ended("commit", 1, 0), "decided"),
        (ended("abort", 2, 1), "decided"),
        (ended("commit", 1, None), "decided"),  # sent again
        (ended("abort", 0, 0), "foreign"),
        (ended("abort", 1, 0), "foreign"),  # as the coordinator would, but it decided COMMIT
        (ended("commit", 1, 1), "foreign"),  # of the decision before, on later data
        (ended("commit", 2, 1), "foreign"),
        (ended("abort", 2, 2), "foreign"),
        (ended("abort", 3, 2), "decision-gone"),  # no record has that epoch: perhaps lost
        (ended("abort", 3, 3), "decision-gone"),
        (ended("abort", 2, 2, coordinator=6), "decision-gone"),  # the log has not reached it
        (ended("abort", 1, 1, coordinator=6), "foreign"),  # its transaction was decided at epoch 2
    ],
)
def test_v2(m: Marker, origin: str) -> None:
    assert whose(m, log(*V2)) == origin


@pytest.mark.parametrize(
    ("left", "origin"),
    [
        (V2, "foreign"),
        (V2[1:], "foreign"),
        (V2[3:], "foreign"),  # the end that began epoch 1 is left
        (V2[4:], "decision-gone"),
        (V2[6:], "decision-gone"),
    ],
)
def test_what_compaction_left(left: Sequence[Step], origin: str) -> None:
    """An abort by hand of data of epoch 1."""
    assert whose(ended("abort", 1, 1), log(*left, first=90)) == origin


def test_a_decision_on_another_partition_is_none_on_this_one() -> None:
    assert whose(ended("commit", 1, 0), log(*V2, where=ELSEWHERE)) == "foreign"


def test_v1_an_epoch_has_many() -> None:
    steps = ((S.EMPTY, 4), (S.ONGOING, 4), (S.PREPARE_COMMIT, 4), (S.COMPLETE_COMMIT, 4))
    v1 = log(*steps, version=0)
    assert whose(ended("commit", 4, 4), v1) == "decided"
    assert whose(ended("abort", 4, 4), v1) == "foreign"
    # its epoch began in a record that is gone
    assert whose(ended("abort", 4, 4), log(*steps[1:], version=0)) == "decision-gone"


def test_where_the_log_cannot_prove_it() -> None:
    m = ended("abort", 0, 0)
    assert whose(m, log(*V2)) == "foreign"
    assert whose(m) == "decision-gone"
    assert whose(m, log(*V2, pid=8)) == "decision-gone"
    two_homes = [log(*V2), replace(log(*V2), partition=4)]
    assert whose(m, *two_homes) == "decision-gone"
    assert whose(m, replace(log(*V2), cut_epoch=0)) == "decision-gone"
    assert whose(m, replace(log(*V2), error="NOT_SEEN")) == "decision-gone"
    # its older records were not loaded
    assert whose(ended("abort", 0, 0), replace(log(*V2[4:], first=4), cuts={"app": 4})) is None


def test_ours_by_the_journal_once() -> None:
    by_us = OwnMarker(HERE, PID, 0, "abort", since=10)
    m = ended("abort", 0, 0)
    again = replace(m, offset=20)
    origins = [x.origin for x in own_first([again, m], HERE, PID, [by_us])]
    assert origins == ["ours", None]
    for other in (
        OwnMarker(ELSEWHERE, PID, 0, "abort", 10),
        OwnMarker(HERE, 8, 0, "abort", 10),
        OwnMarker(HERE, PID, 1, "abort", 10),
        OwnMarker(HERE, PID, 0, "commit", 10),
        OwnMarker(HERE, PID, 0, "abort", 11),
    ):
        assert own_first([m], HERE, PID, [other])[0].origin is None


def test_an_audit_takes_the_later_reading_for_what_came_meanwhile() -> None:
    before, after = coverage([log(*V2[:4])]), coverage([log(*V2)])
    endings = {
        HERE: {
            PID: [
                Ending(Data(0, 0, 2, 0), Mark(3, "commit", 1, 0, 0)),
                Ending(Data(1, 4, 6, 0), Mark(7, "abort", 2, 0, 0)),
                Ending(Data(2, 8, 9, 0), Mark(10, "abort", 2, 0, 0)),
            ]
        }
    }
    [found] = undecided([*before, *after], endings, ()).foreign
    assert isinstance(found, ForeignMarker)
    assert (found.topic_partition, found.producer_id, found.marker.offset) == (HERE, PID, 10)
    by_us = OwnMarker(HERE, PID, 2, "abort", since=8)
    told_apart = undecided([*before, *after], endings, [by_us])
    assert (told_apart.foreign, told_apart.ours, told_apart.gone) == ((), 1, 0)
    assert undecided((), endings, ()).gone == 3


def put(base: int, epoch: int, records: int = 1) -> bytes:
    items = [Item(n) for n in range(records)]
    return batch(base, items, producer=(1, epoch, 0), transactional=True)


def test_a_strip_has_each_marker_alone_with_the_epoch_of_its_data() -> None:
    below = put(0, 0) + marker(1, 1, ABORT) + marker(2, 1, ABORT) + put(3, 0) + marker(6, 1, COMMIT)
    rows = strip_rows(
        HERE, (0, 9), [(below, ((1, 0),))], (), lso=9, read_to=(7, 9), high_watermark=9
    )
    [[first, repeated, last]] = markers_of(rows).values()
    assert [m.offset for m in (first, repeated, last)] == [1, 2, 6]
    assert [m.outcome for m in (first, repeated, last)] == ["abort", "abort", "commit"]
    # no data is known of the second; before the last an offset is missing
    assert [m.data_epoch for m in (first, repeated, last)] == [0, None, None]
    shown = told(rows, {1: [replace(last, origin="foreign")]})
    assert [r.origin for r in shown if r.kind == "control"] == [None, None, "foreign"]
