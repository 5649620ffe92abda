"""A case (`recovery.diagnose.case`) whose facts are missing, or are of something else: by hand."""

from dataclasses import replace
from typing import Any

import pytest

from recovery.diagnose import remedies
from recovery.diagnose.case import Case
from recovery.diagnose.verdicts import Verdict
from recovery.facts import PartitionFacts, TransactionFacts, Transactions
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import Decision, History, StateRecord
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch

PID, EPOCH, P, Q = 4001, 7, ("t", 0), ("t", 1)
NOW = 2_000_000_000_000


def row(state: str = "Ongoing", **other: Any) -> TransactionFacts:
    plain = TransactionFacts("orders", 1, PID, state, EPOCH, 60_000, NOW - 1000, (P,))
    return replace(plain, **other)


def record(state: str = "Ongoing", name: str = "orders", **other: object) -> StateRecord:
    value = TransactionValue(
        PID, EPOCH, 60_000, TransactionState(state), (P,), NOW, NOW, client_transaction_version=2
    )._replace(**other)  # type: ignore[arg-type]  # fmt: skip
    return StateRecord(name, 0, 5, NOW, value)


def past(*latest: StateRecord, reason: str | None = None) -> History:
    return History(PID, ("orders",), (), latest, reason, 0)


def case(
    *rows: TransactionFacts,
    history: History | None = None,
    twice: bool = False,
    named: tuple[PartitionFacts, ...] = (),
) -> Case:
    led = PartitionFacts(*P, leader=1, last_stable_offset=0, high_watermark=3, log_start_offset=0)
    sample = Sample(led, (), Transactions(rows), NOW, topic_describe=True, named=named)
    about, start = OpenTransaction(*P, PID, 0), StartBatch(PID, EPOCH)
    return Case(about, start, sample, sample if twice else None, history, Settings())


def test_nobody_is_not_moved_not_two_phase_and_has_no_deadline() -> None:
    nobody = case(twice=True)
    assert not nobody.moved
    assert not nobody.two_phase
    assert nobody.deadline is None
    assert nobody.prepared is None
    assert nobody.hidden_in_log is None


@pytest.mark.parametrize(
    ("other", "deadline"),
    [
        ({}, NOW + 59_000),
        ({"timeout_ms": None}, None),
        ({"start_timestamp": None}, None),
        ({"timeout_ms": 2**31 - 1}, None),
    ],
)
def test_the_deadline_needs_a_start_and_a_timeout(
    other: dict[str, Any], deadline: int | None
) -> None:
    assert case(row(**other)).deadline == deadline


@pytest.mark.parametrize(
    ("newest", "found"),
    [
        (record("PrepareCommit"), True),
        (record("PrepareAbort"), False),
        (record("PrepareCommit", name="billing"), False),
        (record("PrepareCommit", producer_epoch=EPOCH - 1), False),
        (replace(record(), value=UnknownVersion(9)), False),
        (replace(record(), value=None), False),
    ],
)
def test_only_the_record_of_this_very_decision_says_when_it_was_made(
    newest: StateRecord, found: bool
) -> None:
    c = case(row("PrepareCommit"), history=past(newest))
    assert (c.prepared is not None) is found


def test_a_moved_id_hides_nothing_in_its_log() -> None:
    c = case(history=past(record()))
    assert c.hidden_in_log is not None
    assert case(history=replace(past(record()), moved="orders")).hidden_in_log is None


@pytest.mark.parametrize(
    ("newest", "clean"),
    [
        (record(), True),
        (record(name="billing"), False),
        (record(producer_epoch=EPOCH + 1), False),
        (record(producer_id=PID + 1), False),
        (record(client_transaction_version=0), False),
        (replace(record(), value=UnknownVersion(9)), False),
        (replace(record(), value=None), False),
    ],
)
def test_compacted_only_its_own_v2_record_proves_that_nothing_lies_below(
    newest: StateRecord, clean: bool
) -> None:
    """Its transaction has an epoch to itself: no earlier one can share the batch's."""
    assert case(row(), history=past(newest, reason="history-compacted")).nothing_decided_below is (
        clean
    )
    nobody = case(history=past(newest, reason="history-compacted"))
    assert not nobody.nothing_decided_below
    assert case(row(), history=past()).nothing_decided_below
    assert not case(row()).nothing_decided_below


@pytest.mark.parametrize(
    ("facts", "leaderless"),
    [
        (PartitionFacts(*Q, leader=1), ()),
        (PartitionFacts(*Q, leader=None), ("t:1",)),
        (PartitionFacts(*Q, leader=1, error="TIMED_OUT"), ("t:1",)),
        (PartitionFacts("u", 1, leader=1), ("t:1",)),
    ],
)
def test_a_partition_without_a_leader_that_answers(
    facts: PartitionFacts, leaderless: tuple[str, ...]
) -> None:
    prepared = record("PrepareCommit", partitions=(P, Q))
    c = case(row("PrepareCommit"), history=past(prepared), named=(facts,))
    assert c.leaderless == leaderless


def test_all_partitions_without_a_leader_are_named() -> None:
    c = case(
        row("PrepareCommit"), history=past(record("PrepareCommit", partitions=(P, Q, ("u", 9))))
    )
    assert c.leaderless == ("t:1", "u:9")


def test_a_history_says_nothing_by_itself() -> None:
    assert not past().begun_by_end
    assert past().named_before == 0


def test_what_a_fence_expects_is_what_was_seen() -> None:
    for settings in (Settings(), Settings(two_phase_patterns=(".*",))):
        remedy = remedies.fence(replace(case(row()), settings=settings))
        assert (remedy.producer_id, remedy.producer_epoch) == (PID, EPOCH)
    alone = remedies.fence(case())
    assert (alone.producer_id, alone.producer_epoch) == (None, None)


@pytest.mark.parametrize("missing", ["timeout_ms", "start_timestamp"])
def test_a_mixed_one_whose_deadline_is_not_known(missing: str) -> None:
    unknown: dict[str, Any] = {missing: None}
    assert remedies.wait_for_commit(case(row(**unknown))).deadline is None
    assert remedies.wait_for_commit(case(row())).deadline == NOW + 59_000
    assert remedies.wait_for_commit(case()).deadline is None


def test_a_mixed_one_says_what_its_commit_does_to_the_earlier_data() -> None:
    def told(outcome: str) -> tuple[str, str]:
        made = Decision("orders", outcome, PID, EPOCH + 1, (P,), 0, 5, NOW, 2, NOW - 9000, None)
        later = past(record(producer_epoch=EPOCH + 1))
        history = replace(later, decisions=(made,), markers_from=0)
        c = case(row(producer_epoch=EPOCH + 1), history=history)
        assert c.lost == (made,)
        remedy = remedies.wait_for_commit(c)
        return remedy.does, dict(remedy.refused)["resolve"]

    does, resolve = told("commit")
    assert "saves the earlier, committed data" in does
    assert "--owner-is-gone" in resolve
    does, resolve = told("abort")
    assert "its commit would deliver it" in does
    assert "--owner-is-gone" not in resolve
    assert "that is its owner's choice" in remedies.wait_for_commit(case(row())).does


def test_only_a_leader_that_never_answered_leaves_it_to_the_coordinator() -> None:
    """Seen in one of two looks it may show what is open: then the partition was not seen."""
    c = case(row("PrepareCommit"), twice=True)
    about = replace(c.about, start_offset=None)
    silent = replace(c.first, partition=replace(c.first.partition, error="TIMED_OUT"))
    for first, second, unseen in (
        (silent, silent, True),
        (silent, c.first, False),
        (c.first, silent, False),
        (c.first, c.first, False),
    ):
        assert replace(c, about=about, first=first, second=second).decided_unseen is unseen


def test_late_is_what_either_clock_says() -> None:
    assert not case(row()).late
    ours = case(row(start_timestamp=NOW - 70_000))
    assert ours.late
    c = case(row(state="Ongoing", partitions=(Q,)))
    assert c.ongoing is None
    assert not c.late
    assert replace(c, first=replace(c.first, over_timeout=frozenset({"orders"}))).late
    assert replace(c, first=replace(c.first, over_long=frozenset({"orders"}))).late
    assert not replace(c, first=replace(c.first, over_long=frozenset({"billing"}))).late


def test_a_verdict_claims_nothing_by_itself() -> None:
    plain = Verdict(case().about, "open", "within-limits", (), remedies.let_it_run(case()))
    assert (plain.mixed, plain.offsets_pending, plain.fence_safe) == (False, False, False)


@pytest.mark.parametrize(("version", "proven"), [(2, "commit"), (0, None)])
def test_a_prepare_of_a_later_session_proves_nothing_of_the_batch(
    version: int, proven: str | None
) -> None:
    """v1: a commit with the batch's epoch + 1 is of whoever was started after its writer."""
    prepared = record("PrepareCommit", producer_epoch=EPOCH + 1)
    made = Decision("orders", "commit", PID, EPOCH + 1, (P,), 0, 5, NOW, version, NOW - 1000, None)
    history = replace(past(prepared), decisions=(made,), markers_from=0)
    c = case(row("PrepareCommit", producer_epoch=EPOCH + 1), history=history)
    assert c.lost == (made,)
    assert c.prepare_proves == proven


def test_without_the_batch_nothing_is_said_of_its_topic() -> None:
    assert not replace(case(history=past(record())), start=None).topic_unclear
    assert not case().topic_unclear
