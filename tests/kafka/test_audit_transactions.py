"""`audit transactions` on real brokers: torn transactions and lost markers, and nothing else."""

import asyncio
from collections.abc import Callable

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.audit.transaction_facts import Coverage, Data, Ending, Mark, coverage
from recovery.audit.transactions import judge
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateLog, StateRecord
from tests.kafka.audit_faults import THREE, plant_transactions, torn_of
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.share import share

LONG = (pytest.mark.long, pytest.mark.timeout(1800))
PARTITIONS = THREE


def audit(lab: Lab, *words: str) -> Ran:
    return as_published(
        eoctl("audit", "transactions", *words, "-o", "json", lab=lab, timeout=600),
        "audit-transactions",
    )


@pytest.mark.parametrize(
    "transactions",
    [share(200, 12), pytest.param(4_200, marks=LONG)],  # 5 million records
)
def test_torn_transactions_are_found_and_nothing_else(
    lab1: Lab, topic: MakeTopic, transactions: int
) -> None:
    name = topic(lab1, partitions=PARTITIONS)
    torn = asyncio.run(plant_transactions(lab1, name, transactions))
    ran = audit(lab1, name)
    assert ran.status == 1, ran.stderr
    assert {row["finding"] for row in ran.rows} == {"torn"}
    assert torn_of(ran.rows) == torn
    covered = {c["transactional_id"]: c for c in ran.json["covered"]}
    assert sum(covered[f"{name}-{n}"]["covered"] for n in range(3)) == transactions
    assert covered[f"{name}-open"]["covered"] == 0
    assert covered[f"{name}-fenced"]["covered"] == 1
    assert all(covered[f"{name}-{n}"]["whole"] for n in range(3))
    assert ran.json["markers_without_data"] == 3  # of the decisions that came too late


@pytest.mark.long
def test_torn_transactions_of_version_1(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    lab = start_lab(LabSpec(name="audit-v1", transaction_version=1))
    name = topic(lab, partitions=PARTITIONS)
    torn = asyncio.run(plant_transactions(lab, name, 30))
    ran = audit(lab, name)
    lab.down()
    assert torn_of(ran.rows) == torn
    assert {row["finding"] for row in ran.rows} == {"torn"}
    assert ran.status == 1


@pytest.mark.long
def test_a_lost_commit_marker_is_missing(lab3: Lab) -> None:
    made = eoctl(
        *("lab", "break", "marker-lost", "--name", "three", "-o", "json"),
        timeout=120,
    )
    assert made.status == 0, made.stderr
    (truth,) = made.rows
    ran = audit(lab3, truth["topic"])
    (row,) = ran.rows
    assert (ran.status, row["finding"], row["decided"]) == (1, "marker-missing", "commit")
    assert row["producer_id"] == truth["producer_id"]
    assert row["transactional_id"] == truth["transactional_id"]
    (part,) = row["partitions"]
    assert (part["partition"], part["first_offset"]) == (truth["partition"], truth["start_offset"])
    assert (part["marker"], part["marker_offset"]) == (None, None)


A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PID = 7


def _decided(*decided: tuple[str, int]) -> list[Coverage]:
    """Of one id, transactions v2 on A and B: outcomes and epochs, each one complete."""
    states = TransactionState
    named = {
        "commit": (states.PREPARE_COMMIT, states.COMPLETE_COMMIT),
        "abort": (states.PREPARE_ABORT, states.COMPLETE_ABORT),
    }
    records: list[StateRecord] = []
    for outcome, epoch in decided:
        for state in named[outcome]:
            at = len(records)
            value = TransactionValue(
                PID, epoch, 60_000, state, (A, B), at, at, client_transaction_version=2
            )
            records.append(StateRecord("x", 0, at, at, value))
    return coverage([StateLog(0, tuple(records), 0, None)])


def _ended(*pieces: tuple[int, str | None, int]) -> dict[int, list[Ending]]:
    """(epoch of data, outcome and epoch of its marker) in the order of offsets."""
    return {
        PID: [
            Ending(
                Data(epoch, 20 * i, 20 * i + 9, 0),
                None if outcome is None else Mark(20 * i + 10, outcome, marked, 0, 1_000),
            )
            for i, (epoch, outcome, marked) in enumerate(pieces)
        ]
    }


@pytest.mark.parametrize("decisions", [True, False])
def test_an_abort_that_raised_the_epoch_twice_is_no_finding(decisions: bool) -> None:
    """KAFKA-19367, Kafka 4.0.0: data 4, PrepareAbort and marker 6."""
    covered = _decided(("commit", 4), ("abort", 6), ("commit", 8)) if decisions else []
    pieces = _ended((3, "commit", 4), (4, "abort", 6), (7, "commit", 8))
    assert judge(covered, {A: pieces, B: pieces}, 0) == []


def test_faults_of_an_abort_that_raised_the_epoch_twice() -> None:
    covered = _decided(("abort", 6))
    right = _ended((4, "abort", 6))
    kinds = {
        "torn": _ended((4, "commit", 6)),
        "marker-missing": _ended((4, None, 0)),
        "wrong-marker": _ended((4, "abort", 9)),
    }
    for kind, pieces in kinds.items():
        [found] = judge(covered, {A: right, B: pieces}, 0)
        assert (found.kind, found.epoch) == (kind, 4)
        assert found.decision is not None


@pytest.mark.parametrize("decisions", [True, False])
def test_data_below_the_abort_of_the_next_transaction_is_found(decisions: bool) -> None:
    """Data 4 has lost its marker; the next transaction, data 5, was aborted over it."""
    covered = _decided(("abort", 6)) if decisions else []
    marker = Mark(30, "abort", 6, 0, 1_000)
    both = {PID: [Ending(Data(4, 0, 9, 0), marker), Ending(Data(5, 10, 19, 0), marker)]}
    [found] = judge(covered, {A: both}, 0)
    assert (found.kind, found.epoch) == ("wrong-marker", 4)


def test_an_empty_abort_after_a_transaction_whose_decision_is_gone() -> None:
    """Data 4 was committed by its own marker 5; an abort at 6 named A and nothing was written."""
    ended = {A: _ended((4, "commit", 5)), B: _ended((4, "commit", 5))}
    assert judge(_decided(("abort", 6)), ended, 0) == []


def test_the_abort_of_a_later_transaction_is_told_from_one_that_raised_the_epoch_twice() -> None:
    """Data 4 was committed in A; its marker in B was lost, and another transaction ended there."""
    ended = {A: _ended((4, "commit", 5)), B: _ended((4, "abort", 6))}
    [found] = judge([], ended, 0)
    assert (found.kind, found.epoch) == ("wrong-marker", 4)
