"""When an owner that lives is shut out, and what a fence says that did not get there."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.change.steps import Effect
from eoctl.operations.remedy import fence, raising, shutting_out
from eoctl.operations.remedy.raising import stand
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from eoctl.operations.remedy.shutting_out import ShutOut
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import Missing, ProducerFacts, TopicPartition, TransactionFacts
from recovery.inspect.incarnation import Incarnation, holds, is_shut_out
from recovery.inspect.observation import Settings
from recovery.remedy.fences import beyond_fence, is_half_fenced

PID, OTHER, LAST = 4001, 4002, 32_766
USED = Incarnation(PID, 4)


def id_at(epoch: int, state: str = "Empty", producer_id: int = PID) -> TransactionFacts:
    return TransactionFacts("x", 1, producer_id, state, epoch, 60_000, 1, ())


class Coordinator:
    """InitProducerId and EndTxn v5 (abort) on an idle id, as Kafka 4.3.1 carries them out.

    Expecting the present incarnation raises it; expecting the one before answers the present one.
    """

    def __init__(self, now: Incarnation) -> None:
        self.now, self.before = now, now

    def ask(self, expected: Incarnation) -> Incarnation | None:
        """None = fenced."""
        if expected == self.now:
            self.before, self.now = self.now, _next(self.now)
            return self.now
        return self.now if expected == self.before else None


def _next(now: Incarnation) -> Incarnation:
    if now.producer_epoch >= LAST:  # KIP-360: another producer id
        return Incarnation(OTHER, 0)
    return Incarnation(now.producer_id, now.producer_epoch + 1)


@given(st.integers(0, LAST), st.integers(0, 3))
def test_an_owner_that_asked_once_at_any_moment_is_refused_everything_afterwards(
    epoch: int, moment: int
) -> None:
    """Whatever the owner is answered between two of our requests: it is two below, or more."""
    used = Incarnation(PID, epoch)
    coordinator, owner = Coordinator(used), used
    mine, sent = used, 0
    while not is_shut_out(used, mine):
        if sent == moment:
            answer = coordinator.ask(owner)
            if coordinator.now != mine:
                used = mine = coordinator.now  # seen: no request of ours made it
            owner = answer or owner
        answered = coordinator.ask(mine)
        assert answered is not None
        mine, sent = answered, sent + 1
    assert coordinator.now == mine
    assert coordinator.ask(owner) is None


@pytest.mark.parametrize(
    ("now", "shut_out"),
    [
        (Incarnation(PID, 5), False),
        (Incarnation(PID, 6), False),  # an owner answered 5 is answered this one too
        (Incarnation(PID, 7), True),
        (Incarnation(OTHER, 0), False),
        (Incarnation(OTHER, 1), False),
        (Incarnation(OTHER, 2), True),
    ],
)
def test_an_owner_is_shut_out_beyond_what_it_can_be_answered(
    now: Incarnation, shut_out: bool
) -> None:
    assert is_shut_out(USED, now) is shut_out


@pytest.mark.parametrize(
    ("now", "written", "known", "kept_out"),
    [
        (Incarnation(PID, 7), 4, 5, True),  # a v2 marker of the fence bears 5
        (Incarnation(PID, 8), 4, 5, False),  # somebody has initialised it: a process that lives
        (Incarnation(OTHER, 0), 4, 5, False),
        (Incarnation(PID, 7), None, None, True),
        (Incarnation(PID, 6), 4, 4, False),  # its coordinator has lost the fence
        (Incarnation(PID, 7), 5, 5, False),  # records of an epoch that the fence did not see
        (Incarnation(PID, 9), 4, 8, False),  # and what is known of the partition is of a later one
    ],
)
def test_a_fence_of_the_journal_still_keeps_its_owner_out(
    now: Incarnation, written: int | None, known: int | None, kept_out: bool
) -> None:
    at = Incarnation(PID, 7)
    assert holds(USED, at, now, is_idle=True, written=written, known=known) is kept_out
    assert not holds(USED, at, now, is_idle=False, written=written, known=known)


@pytest.mark.parametrize(
    ("now", "goes_on"),
    [(id_at(7), False), (id_at(7, "Ongoing"), True), (id_at(8, "Ongoing"), False)],
)
def test_a_journal_keeps_no_proof_of_an_epoch_that_an_owner_goes_on_with(
    now: TransactionFacts, goes_on: bool
) -> None:
    raised = ShutOut(USED, Incarnation(PID, 7))
    assert raised.proven
    assert ("shut_out" not in stand(now, raised)) is goes_on


@pytest.mark.parametrize(
    ("now", "beyond"),
    [
        (id_at(7), None),
        (id_at(9, "Ongoing"), None),  # its application was started again
        (id_at(2, producer_id=OTHER), None),
        (id_at(5, "CompleteAbort"), "ASSUMED: the old process is dead. It was not fenced"),
        (id_at(6), "ASSUMED: the old process is dead. It was not fenced"),
        (id_at(0, producer_id=OTHER), "eoctl txn fence x --owner-is-gone"),
        (id_at(4, "CompleteCommit"), "its owner committed: nothing was aborted"),
        (id_at(5, "CompleteCommit"), "its owner committed: nothing was aborted"),
        (id_at(5, "Ongoing"), "an owner goes on with epoch 5"),
    ],
)
def test_a_fence_that_shuts_nobody_out_says_so(now: TransactionFacts, beyond: str | None) -> None:
    said = beyond_fence(now, USED, outcome="abort")
    assert said is None if beyond is None else said is not None and beyond in said


@pytest.mark.parametrize(
    ("now", "half", "if_gone"),
    [
        (id_at(4, "CompleteAbort"), True, True),  # after EndTxn v3
        (id_at(5, "CompleteAbort"), True, True),  # after EndTxn v5
        (id_at(5, "Empty"), False, True),  # somebody has initialised it
        (id_at(5, "CompleteCommit"), False, True),
        (id_at(6, "CompleteAbort"), False, True),
        (id_at(5, "Ongoing"), False, False),
        (id_at(7, "CompleteAbort"), False, False),  # shut out already
    ],
)
def test_a_fence_that_was_cut_off_goes_on_where_nobody_came_after(
    now: TransactionFacts, half: bool, if_gone: bool
) -> None:
    assert is_half_fenced(now, USED, outcome="abort", owner_is_gone=False) is half
    assert is_half_fenced(now, USED, outcome="abort", owner_is_gone=True) is if_gone


def nobody() -> Cluster:
    """A cluster whose only broker is not there."""
    return Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))


def raise_step(above: int = 4) -> Step:
    parameters = {
        "producer_id": PID,
        "producer_epoch": 4,
        "above": above,
        "timeout_ms": 60_000,
        "end_version": None,
    }
    return Step(action="raise-id", target="x", parameters=parameters, does="", stands_on=())


def after_raise(
    monkeypatch: pytest.MonkeyPatch,
    now: TransactionFacts | None,
    raised: ShutOut | None,
    above: int = 4,
) -> Effect:
    """What is seen of a step that was to raise the id from USED."""

    async def described(*given: Any) -> TransactionFacts | None:
        return now

    monkeypatch.setattr(raising, "described", described)
    return asyncio.run(raising.ended(nobody(), raise_step(above), raised))


@pytest.mark.parametrize(
    ("now", "done", "untouched", "resumable"),
    [
        (id_at(4), False, True, False),
        (id_at(4, "CompleteCommit"), False, True, False),
        (id_at(4, "Ongoing"), False, False, False),  # its owner went on
        (id_at(5), False, False, True),
        (id_at(6, "CompleteAbort"), False, False, True),
        (id_at(6, "Ongoing"), False, False, False),
        (id_at(7), True, False, True),
        (id_at(7, "Ongoing"), True, False, False),  # a later owner's, by an earlier run's request
        (id_at(1, producer_id=OTHER), False, False, True),
        (id_at(2, producer_id=OTHER), True, False, True),
    ],
)
def test_what_a_raise_came_to(
    monkeypatch: pytest.MonkeyPatch,
    now: TransactionFacts,
    *,
    done: bool,
    untouched: bool,
    resumable: bool,
) -> None:
    """An idle id as it was planned is untouched; one between may be raised the rest of the way."""
    effect = after_raise(monkeypatch, now, None)
    assert (effect.done, effect.untouched, effect.resumable) == (done, untouched, resumable)


def test_a_raise_counts_from_the_higher_epoch_that_may_be_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not after_raise(monkeypatch, id_at(7), None, above=5).done
    assert after_raise(monkeypatch, id_at(8), None, above=5).done
    assert not after_raise(monkeypatch, id_at(6), None, above=3).done


def test_an_owner_that_took_the_raised_epoch_is_not_shut_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = ShutOut(USED, Incarnation(PID, 7))
    assert not after_raise(monkeypatch, id_at(7, "Ongoing"), raised).done
    assert after_raise(monkeypatch, id_at(7), raised).done
    assert after_raise(monkeypatch, id_at(8, "Ongoing"), raised).done


def test_an_id_that_no_coordinator_knows_can_write_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert after_raise(monkeypatch, None, None).done
    unseen = TransactionFacts("x", 1, PID, "Empty", None, 60_000, 1, ())
    assert after_raise(monkeypatch, unseen, None).done is None


@pytest.mark.parametrize(
    ("now", "held", "why"),
    [
        (id_at(4), False, "its lock was lost"),
        (id_at(4, "Ongoing"), True, "it is Ongoing now"),
        (None, True, "it is forgotten now"),
    ],
)
def test_a_raise_that_may_not_begin_has_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, now: TransactionFacts | None, *, held: bool, why: str
) -> None:
    async def described(*given: Any) -> TransactionFacts | None:
        return now

    def ensure_held() -> None:
        if not held:
            raise UnverifiedError("its lock was lost")

    monkeypatch.setattr(raising, "described", described)
    with pytest.raises(RefusedError, match=f"{why}; nothing was sent"):
        asyncio.run(raising.send(nobody(), raise_step(), ensure_held))


def test_partitions_that_could_not_be_judged_allow_no_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even with --owner-is-gone, which vouches for its owner alone."""

    async def partitions(*given: Any) -> tuple[TopicPartition, ...]:
        return (TopicPartition("t", 0),)

    async def diagnose(*given: Any, **named: Any) -> Any:
        return SimpleNamespace(
            missing=(Missing("partition", "X", "it is silent", topic="t"),), judged=()
        )

    monkeypatch.setattr(fence, "partitions_of", partitions)
    monkeypatch.setattr(fence, "diagnose", diagnose)
    request = RemedyRequest("fence", transactional_id="x", owner_is_gone=True)
    judging = fence.judged_for(nobody(), id_at(4, "Ongoing"), request, Settings(), 0)
    with pytest.raises(IncompleteError, match="it is silent"):
        asyncio.run(judging)


def test_a_fence_that_was_cut_off_waits_for_the_markers_of_its_own_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed after its EndTxn; on a slow cluster the next run still finds PrepareAbort."""
    parameters = {
        "producer_id": PID,
        "producer_epoch": 4,
        "start_timestamp": 1,
        "timeout_ms": 60_000,
        "end_version": 5,
        "partitions": [],
        "owner_is_gone": True,
    }
    step = Step(action="fence", target="x", parameters=parameters, does="", stands_on=())
    states = [id_at(5, "PrepareAbort"), id_at(5, "PrepareAbort"), id_at(5, "CompleteAbort")]

    async def described(*given: Any) -> TransactionFacts:
        return states.pop(0) if len(states) > 1 else states[0]

    async def taken_over(*given: Any) -> ShutOut:
        return ShutOut(USED, Incarnation(PID, 7), other=Incarnation(PID, 8))

    monkeypatch.setattr(shutting_out, "described", described)
    monkeypatch.setattr(shutting_out, "taken_over", taken_over)
    seen = asyncio.run(fence.ended(nobody(), step, None))
    assert (seen.done, seen.untouched, seen.resumable) == (False, False, True)
    raised = asyncio.run(fence.send(nobody(), step, lambda: None))
    assert raised is not None
    assert raised.other == Incarnation(PID, 8)
    assert len(states) == 1

    states[:] = [id_at(5, "PrepareCommit")]  # its owner's own decision
    assert not asyncio.run(fence.ended(nobody(), step, None)).resumable


@pytest.mark.parametrize(
    ("epoch", "start", "done"),
    [
        (4, 10, False),  # the fenced transaction is open there
        (4, None, True),  # its marker is written
        (5, 12, True),  # another incarnation's: it began afterwards
        (None, None, None),  # the leader did not say
    ],
)
def test_a_fence_is_over_only_where_nothing_of_it_is_open(
    monkeypatch: pytest.MonkeyPatch, epoch: int | None, start: int | None, *, done: bool | None
) -> None:
    parameters = {
        "producer_id": PID,
        "producer_epoch": 4,
        "start_timestamp": 1,
        "timeout_ms": 60_000,
        "end_version": 5,
        "partitions": ["t:0"],
        "owner_is_gone": True,
    }
    step = Step(action="fence", target="x", parameters=parameters, does="", stands_on=())
    here = TopicPartition("t", 0)

    async def described(*given: Any) -> TransactionFacts:
        return id_at(7)

    async def metadata(_topics: object) -> Any:
        partition = SimpleNamespace(topic_partition=here)
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=(partition,))})

    async def producers(*given: Any) -> Any:
        if epoch is None:
            return {}, []
        another = ProducerFacts(*here, OTHER, 1, 1, 1, 0, 5)  # is open there, too
        return {here: (ProducerFacts(*here, PID, epoch, 1, 1, 0, start), another)}, []

    monkeypatch.setattr(shutting_out, "described", described)
    monkeypatch.setattr(collect, "producers", producers)
    cluster = nobody()
    monkeypatch.setattr(cluster, "metadata", metadata)
    raised = ShutOut(USED, Incarnation(PID, 7))
    assert asyncio.run(fence.ended(cluster, step, raised)).done is done
