"""Who owns the producers of an application's outputs, and which of them a fence keeps out.

What logs, coordinators and the journal say is given; the rule itself: recovery.inspect.incarnation.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.change.fences import Fence
from eoctl.operations.restart import output_owners
from recovery.facts import ProducerFacts, TransactionFacts, Transactions
from recovery.formats.counting import Counts
from recovery.inspect.incarnation import Incarnation
from recovery.restart.observed import Count, Counted, Log, Observed
from recovery.restart.producers import ProducerRun, Producers
from recovery.values import replace

PID, OTHER = 7, 8
FENCED = Fence("x", Incarnation(PID, 3), Incarnation(PID, 6))
AT_REST = TransactionFacts("x", 1, PID, "Empty", 6)


def counted(partition: int, pid: int, epoch: int, *, transactional: bool = True) -> Observed:
    """One range of an output, written by one producer."""
    run = ProducerRun(pid, 0, 9, transactional)
    written = Producers(runs=(run,), last={pid: (epoch, 9)})
    return Observed(
        None, {}, {}, answers={Count("out", partition, 0, 10): Counted(Counts(), written)}
    )


def log(*producers: ProducerFacts) -> Log:
    return Log("out", 0, None, None, 0, (), producers=producers or None)


def knows(pid: int, epoch: int, *, marked: bool = True) -> ProducerFacts:
    return ProducerFacts("out", 0, pid, epoch, 9, 1_000, 0 if marked else None, None)


def found(
    monkeypatch: pytest.MonkeyPatch,
    *ranges: Observed,
    logs: Sequence[Log] = (),
    now: Sequence[TransactionFacts] = (AT_REST,),
    made: Sequence[Fence] = (FENCED,),
) -> tuple[dict[int, str], set[int]]:
    """The owners by producer id, and the producer ids that can write no more."""

    async def look_at_owners(_: Cluster, ids: Sequence[int]) -> Transactions:
        assert list(ids) == sorted(ids)
        others = TransactionFacts("other", 1, 99, "Empty", 1)
        return Transactions((*(replace(t, error=None) for t in now), others))

    async def find(_: Cluster, names: Sequence[str]) -> Any:
        assert names, "nothing is asked about nobody"
        return [t for t in now if t.transactional_id in names], []

    monkeypatch.setattr(output_owners, "look_at_owners", look_at_owners)
    monkeypatch.setattr(output_owners, "fences", lambda cluster_id: list(made))
    monkeypatch.setattr(coordinators, "find", find)
    nobody = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    answers = {want: answer for one in ranges for want, answer in one.answers.items()}
    observed = Observed(None, {}, {}, answers=answers)
    told = asyncio.run(output_owners.with_owners(nobody, observed, logs))
    return dict(told.owners), set(told.fenced)


NOBODY: tuple[dict[int, str], set[int]] = ({}, set())


def test_the_writer_of_an_output_is_owned_and_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by its records, or by the marker that a leader remembers of it."""
    expected = ({PID: "x"}, {PID})
    assert found(monkeypatch, counted(0, PID, 3)) == expected
    assert found(monkeypatch, logs=[log(knows(PID, 3))]) == expected
    assert found(monkeypatch, counted(0, PID, 3), logs=[log(), log(knows(PID, 4))]) == expected


def test_who_writes_without_transactions_has_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = counted(0, PID, 0, transactional=False)
    assert found(monkeypatch, plain, logs=[log(knows(PID, 0, marked=False))]) == NOBODY
    assert found(monkeypatch) == NOBODY
    without = Observed(None, {}, {}, answers={Count("out", 0, 0, 10): Counted(Counts())})
    assert found(monkeypatch, without) == NOBODY


@pytest.mark.parametrize(
    "now",
    [
        replace(AT_REST, state="Ongoing"),
        replace(AT_REST, producer_epoch=7),
        replace(AT_REST, error="NOT_COORDINATOR"),
        replace(AT_REST, producer_epoch=None),
    ],
)
def test_who_lives_or_is_not_seen_is_not_fenced(
    monkeypatch: pytest.MonkeyPatch, now: TransactionFacts
) -> None:
    assert found(monkeypatch, counted(0, PID, 3), now=[now]) == ({PID: "x"}, set())


def test_an_id_that_nobody_knows_any_more_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, counted(0, PID, 3), now=[]) == NOBODY


def test_a_fence_of_another_producer_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    other = TransactionFacts("y", 1, OTHER, "Empty", 2)
    owned = found(monkeypatch, counted(0, OTHER, 1), now=[AT_REST, other])
    assert owned == ({OTHER: "y"}, set())
    assert found(monkeypatch, counted(0, OTHER, 1), now=[other], made=[]) == ({OTHER: "y"}, set())


@pytest.mark.parametrize("turned", [False, True])
def test_the_newest_that_was_written_or_marked_counts(
    monkeypatch: pytest.MonkeyPatch, *, turned: bool
) -> None:
    """On whichever partition: with a later epoch than the fenced one somebody wrote after it."""
    epochs = [4, 3] if turned else [3, 4]
    ranges = [counted(n, PID, epoch) for n, epoch in enumerate(epochs)]
    assert found(monkeypatch, *ranges) == ({PID: "x"}, set())
    logs = [log(knows(PID, epoch)) for epoch in ([5, 4] if turned else [4, 5])]
    assert found(monkeypatch, logs=logs) == ({PID: "x"}, set())
