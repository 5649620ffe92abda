"""Bounds and exclusions of the rules, exactly where they turn: mutations had got past them."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.nearest import question
from eoctl.stores.journal_files import Journal
from recovery.change.journal import Event
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition, TransactionFacts
from recovery.inspect.observation import Sample, Settings
from recovery.inspect.two_phase import looks_precommitted
from recovery.remedy.repairs import remedy_allowed
from recovery.restart.observed import Log, LogEnd
from recovery.restart.output_rules import final_end
from recovery.values import replace
from tests.unit.inspect.test_verdicts import CASES, SETTINGS, P, judged, live, lost, short
from tests.unit.transaction_model import Eyes

LONG = SETTINGS.long_after
SKEW = SETTINGS.clock_skew


@pytest.mark.parametrize(
    ("past", "rule"),
    [
        (-SKEW - 1, "within-limits"),
        (-SKEW, "clock-not-seen"),
        (SKEW, "clock-not-seen"),
        (SKEW + 1, "past-long"),
    ],
)
def test_a_difference_of_exactly_the_skew_tells_nothing(past: int, rule: str) -> None:
    w, _i = live()

    def then(s: Sample) -> Sample:
        (row,) = s.transactions.rows
        assert row.start_timestamp is not None
        return replace(s, collected_at=row.start_timestamp + LONG + past)

    assert judged(w, eyes=Eyes(filters=False), once=True, change=then).rule == rule


@pytest.mark.parametrize(
    ("name", "looks"),
    [("app-12", True), ("app-12-x", False), ("my-app-12", False), ("app-", False)],
)
def test_a_pattern_is_of_the_whole_id(name: str, looks: bool) -> None:
    row = TransactionFacts(name, 1, 7, "Ongoing")
    settings = Settings(two_phase_patterns=("other", "app-[0-9]+"))
    assert looks_precommitted(row, settings) is looks


def test_a_prepare_of_a_much_later_epoch_proves_no_outcome_of_the_batch() -> None:
    """Its own epoch and the next do; one above is a later transaction's."""
    for above, outcome in ((0, "commit"), (1, "commit"), (2, None), (5, None)):
        w, i = live()
        epoch = i.epoch
        w.end(i, "commit", stalled=True)

        def later(s: Sample, raised: int = epoch + above) -> Sample:
            rows = tuple(replace(t, producer_epoch=raised) for t in s.transactions.rows)
            return replace(s, transactions=replace(s.transactions, rows=rows))

        v = judged(w, change=later)
        assert (v.name, v.proven_outcome) == ("prepare", outcome), above


def test_a_decision_under_way_counts_beside_one_that_lost_its_marker() -> None:
    """v1: the earlier one's outcome is not the later one's, which is being carried out."""
    w, i = lost(1)
    w.write(i, P)
    w.tick(20_000)
    w.end(i, "abort", stalled=True)
    v = judged(w)
    assert (v.name, v.proven_outcome) == ("prepare", None)


@pytest.mark.parametrize("name", CASES)
def test_remedies_exclude_one_another(name: str) -> None:
    play, _ = CASES[name]
    verdict = play()
    allowed = {a for a in ("abort", "resolve", "fence") if remedy_allowed(verdict, a) is None}
    assert len(allowed) <= 1, short(verdict)
    carried_out_by = {"write-prepared-marker": "resolve"}
    for action in allowed & {"abort", "resolve"}:
        assert action == carried_out_by.get(verdict.remedy.action, verdict.remedy.action)


@pytest.mark.parametrize(
    ("high", "stable", "held"), [(None, 3, None), (9, None, None), (9, 3, 6), (9, 9, 0)]
)
def test_offsets_that_are_not_known_are_not_none_held(
    high: int | None, stable: int | None, held: int | None
) -> None:
    assert PartitionFacts(*P, high_watermark=high, last_stable_offset=stable).held == held


# --- the journal ---------------------------------------------------------------------------------


def event() -> Event:
    return Event("j-1", "begun", 1, None, {})


def test_a_line_of_the_journal_is_synced_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    synced: list[bytes] = []
    whole = os.fsync

    def seen(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), journal.path.stat()):
            synced.append(journal.path.read_bytes())
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    journal.append(event())
    journal.append(event())
    written = journal.path.read_bytes()
    assert len(synced) == 2
    assert synced[-1] == written
    assert written.count(b"\n") == 2


def test_append_waits_for_whoever_holds_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(event())
    before = journal.path.read_bytes()
    with journal.path.open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=journal.append, args=(event(),))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert journal.path.read_bytes() == before
    thread.join(10)
    assert not thread.is_alive()
    assert journal.path.read_bytes().count(b"\n") == 2


def ends(*offsets: int) -> Log:
    return Log("t", 0, None, 0, 0, tuple(LogEnd(o, o, o) for o in offsets))


def test_an_end_is_final_when_two_looks_agree() -> None:
    assert final_end(ends(7, 7))[0] == 7
    with pytest.raises(IncompleteError, match="read only once"):
        final_end(ends(7))
    with pytest.raises(RefusedError, match="it moved from 7 to 9 meanwhile"):
        final_end(ends(7, 8, 9))


# --- a fetch ------------------------------------------------------------------------------------


def test_a_fetch_bears_the_leader_epoch_that_was_seen() -> None:
    """A broker that leads another log of the partition then refuses it (KIP-320)."""
    asked = question(
        [Range("t", 0, 5, 9)],
        {TopicPartition("t", 0): (1, 7)},
        0,
        most_bytes=10_000,
        partition_bytes=1000,
        max_wait_ms=0,
    )
    [(partition,)] = [topic.partitions for topic in asked.topics]
    assert (partition.current_leader_epoch, partition.fetch_offset) == (7, 5)
