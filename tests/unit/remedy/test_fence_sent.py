"""What a fence sends, in which order, and what it makes of each answer."""

import asyncio
from typing import Any

import pytest

from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write.markers import END_REFUSED
from eoctl.operations.change.steps import Effect
from eoctl.operations.remedy import fence, shutting_out
from eoctl.operations.remedy.shutting_out import ShutOut
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import Incarnation
from tests.unit.id_coordinator import (
    OTHER,
    PID,
    USED,
    Coordinator,
    coordinator_of_x,
    end_of,
    init_of,
    nobody,
)


@pytest.fixture
def ongoing(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    return coordinator_of_x(monkeypatch)


def step(version: int = 5, **changed: Any) -> Step:
    parameters = {
        "end_version": version,
        "initialise": True,
        "producer_id": PID,
        "producer_epoch": 4,
        "timeout_ms": 60_000,
        "coordinator": 1,
        "start_timestamp": 1,
        "partitions": [],
        "owner_is_gone": False,
        "is_stopped": False,
    }
    about = changed.pop("about", [])
    action = changed.pop("action", "fence")
    return Step(
        action=action,
        target="x",
        parameters=parameters | changed,
        does="",
        stands_on=(),
        about=about,
    )


WRITES = [{"looks": {"wrote": True, "records": 1, "apart_ms": 5_000}}]


def sent(coordinator: Coordinator, step: Step, lost_at: int | None = None) -> ShutOut | None:
    """lost_at: the lock is lost when it is asked for that time."""

    def ensure_held() -> None:
        coordinator.held += 1
        if coordinator.held == lost_at:
            raise UnverifiedError("the lock is lost")

    return asyncio.run(fence.send(nobody(), step, ensure_held))


@pytest.mark.parametrize("outcome", [None, "abort", "commit"])
@pytest.mark.parametrize("version", [3, 5])
def test_a_fence_ends_the_transaction_and_raises_the_id_three_epochs(
    ongoing: Coordinator, version: int, outcome: str | None
) -> None:
    given = {} if outcome is None else {"outcome": outcome}
    if outcome == "commit":
        given["action"] = "commit-open"  # its name is not what counts
    raised = sent(ongoing, step(version, **given))
    first = 4 if version == 3 else 5
    end = end_of(version, 4, commit=outcome == "commit")
    assert ongoing.sent == [end, *(init_of(epoch) for epoch in range(first, 7))]
    assert raised == ShutOut(USED, Incarnation(PID, 7))
    assert raised.proven
    assert ongoing.held == len(ongoing.sent)  # each time right before


@pytest.mark.parametrize("outcome", ["abort", "commit"])
def test_an_end_alone_raises_nothing(ongoing: Coordinator, outcome: str) -> None:
    alone = step(5, action="end", initialise=False, outcome=outcome)
    assert sent(ongoing, alone) is None
    assert ongoing.sent == [end_of(5, 4, commit=outcome == "commit")]


def test_an_end_alone_that_is_over_is_refused(ongoing: Coordinator) -> None:
    ongoing.state = "CompleteAbort"
    with pytest.raises(RefusedError, match="no longer the planned one; nothing was sent"):
        sent(ongoing, step(5, action="end", initialise=False))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_an_answer_that_was_lost(ongoing: Coordinator, *, after: bool, alone: bool) -> None:
    """A fence looks if its end was carried out; an end alone leaves that to the check after it."""
    ongoing.loses = {0: after}
    planned = step(5, action="end", initialise=False) if alone else step(5)
    if after and not alone:
        raised = sent(ongoing, planned)
        assert raised is not None
        assert raised.at == Incarnation(PID, 7)
        assert ongoing.sent == [end_of(5, 4), init_of(5), init_of(6)]
    else:
        with pytest.raises(WireError, match="no answer"):
            sent(ongoing, planned)
        assert ongoing.sent == [end_of(5, 4)]


def test_an_end_that_was_carried_out_and_taken_over_is_not_raised(ongoing: Coordinator) -> None:
    """With the answer lost, a process that has initialised the id meanwhile is left alone."""
    ongoing.loses, ongoing.then = {0: True}, ongoing.initialised
    with pytest.raises(WireError):
        sent(ongoing, step(5, owner_is_gone=True))
    assert len(ongoing.sent) == 1


@pytest.mark.parametrize("gone", [False, True])
def test_who_initialises_it_right_after_the_end(ongoing: Coordinator, *, gone: bool) -> None:
    """Only the operator's word that the owner is gone lets a fence go beyond that process."""

    def starts() -> None:
        if len(ongoing.sent) == 1:
            ongoing.initialised()

    ongoing.then = starts
    raised = sent(ongoing, step(5, owner_is_gone=gone, about=WRITES))
    assert raised is not None
    if gone:
        assert raised == ShutOut(Incarnation(PID, 6), Incarnation(PID, 9))
    else:
        assert raised == ShutOut(USED, Incarnation(PID, 5), other=Incarnation(PID, 6))


def test_an_id_that_does_not_show_is_not_ended(
    ongoing: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def described(*given: Any) -> TransactionFacts:
        raise IncompleteError("it is silent")

    monkeypatch.setattr(shutting_out, "described", described)
    with pytest.raises(RefusedError, match="it is silent; nothing was sent"):
        sent(ongoing, step())
    assert ongoing.sent == []


def test_a_decision_whose_markers_do_not_come_is_waited_for_a_while(
    ongoing: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for ever, and not as often as it can be asked."""
    ongoing.state, looks = "PrepareAbort", 0

    async def described(*given: Any) -> TransactionFacts:
        nonlocal looks
        looks += 1
        assert looks < 200
        return ongoing.row()

    monkeypatch.setattr(shutting_out, "described", described)
    monkeypatch.setattr(shutting_out, "PAUSE_SECONDS", 0.05)
    with pytest.raises(RefusedError, match="it is PrepareAbort"):
        sent(ongoing, step())
    assert looks > 1
    assert ongoing.sent == []


@pytest.mark.parametrize("error", [*sorted(END_REFUSED), "NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR"])
def test_what_an_error_proves(ongoing: Coordinator, error: str) -> None:
    ongoing.answers = {0: error}
    kind = RefusedError if error in END_REFUSED else UnverifiedError
    with pytest.raises(kind, match=error):
        sent(ongoing, step())
    assert len(ongoing.sent) == 1


@pytest.mark.parametrize(
    ("state", "epoch", "producer_id", "started"),
    [
        ("Ongoing", 4, PID, 2),  # the next one, under v1 with the same epoch
        ("Ongoing", 5, PID, 1),
        ("Ongoing", 4, OTHER, 1),
        ("CompleteCommit", 4, PID, 1),
        ("Empty", 5, PID, 1),
        ("CompleteAbort", 6, PID, 1),
    ],
)
def test_another_transaction_than_the_planned_one_is_not_ended(
    ongoing: Coordinator, state: str, epoch: int, producer_id: int, started: int
) -> None:
    ongoing.state, ongoing.now = state, Incarnation(producer_id, epoch)
    with pytest.raises(RefusedError, match="no longer the planned one; nothing was sent"):
        sent(ongoing, step(start_timestamp=started))
    assert ongoing.sent == []


def test_without_the_lock_nothing_is_sent(ongoing: Coordinator) -> None:
    with pytest.raises(RefusedError, match="the lock is lost; nothing was sent"):
        sent(ongoing, step(), lost_at=1)
    assert ongoing.sent == []
    with pytest.raises(UnverifiedError, match="the lock is lost"):
        sent(ongoing, step(), lost_at=3)  # once before: see above
    assert ongoing.sent == [end_of(5, 4)]


@pytest.mark.parametrize("outcome", [None, "abort", "commit"])
@pytest.mark.parametrize("epoch", [4, 5])
def test_a_fence_that_was_cut_off_only_raises(
    ongoing: Coordinator, epoch: int, outcome: str | None
) -> None:
    ongoing.state, ongoing.now = (
        f"Complete{(outcome or 'abort').capitalize()}",
        Incarnation(PID, epoch),
    )
    given = {} if outcome is None else {"outcome": outcome}
    raised = sent(ongoing, step(5, **given))
    assert ongoing.sent == [init_of(e) for e in range(epoch, 7)]
    assert raised == ShutOut(USED, Incarnation(PID, 7))


@pytest.mark.parametrize("insists", [False, True])
def test_who_initialised_it_after_the_end_is_left_alone(
    ongoing: Coordinator, *, insists: bool
) -> None:
    """Unless the plan was made, and confirmed, for an owner that writes."""
    ongoing.state, ongoing.now = "CompleteAbort", Incarnation(PID, 5)
    ongoing.initialised()
    about = WRITES if insists else []
    raised = sent(ongoing, step(5, owner_is_gone=True, about=about))
    assert raised is not None
    if insists:
        assert raised.proven
        assert ongoing.now == Incarnation(PID, 9)  # beyond the newcomer's, too
    else:
        assert raised == ShutOut(USED, USED, other=Incarnation(PID, 6))
        assert ongoing.now == Incarnation(PID, 6)


def seen(coordinator: Coordinator, step: Step, raised: ShutOut | None) -> Effect:
    return asyncio.run(fence.ended(nobody(), step, raised))


@pytest.mark.parametrize(
    ("state", "epoch", "raised_to", "outcome", "said"),
    [
        ("Empty", 7, 7, "abort", None),
        ("CompleteCommit", 6, 7, "abort", "its owner committed: nothing was aborted"),
        ("CompleteCommit", 6, 7, None, "its owner committed: nothing was aborted"),
        ("CompleteCommit", 6, 7, "commit", "ASSUMED: the old process is dead"),
        ("Ongoing", 7, 7, "abort", "an owner goes on with epoch 7"),
        ("Empty", 6, 6, "abort", "ASSUMED: the old process is dead"),
        ("CompleteAbort", 5, 5, "abort", "ASSUMED: the old process is dead"),
    ],
)
def test_how_a_finished_fence_ended(
    ongoing: Coordinator,
    state: str,
    epoch: int,
    raised_to: int,
    outcome: str | None,
    said: str | None,
) -> None:
    ongoing.state, ongoing.now = state, Incarnation(PID, epoch)
    given = {} if outcome is None else {"outcome": outcome}
    effect = seen(
        ongoing,
        step(5, start_timestamp=9, **given),
        ShutOut(USED, Incarnation(PID, raised_to)),
    )
    assert effect.done is True
    assert (effect.beyond is None) is (said is None)
    assert said is None or said in str(effect.beyond)


@pytest.mark.parametrize(
    ("state", "epoch", "started", "done", "untouched", "resumable"),
    [
        ("Ongoing", 4, 1, False, True, False),
        ("Ongoing", 4, 2, True, False, False),  # its owner's next one, under v1
        ("PrepareAbort", 4, 1, False, False, True),
        ("PrepareCommit", 4, 1, False, False, False),
        ("CompleteAbort", 5, 1, False, False, True),
        ("Empty", 7, 1, True, False, False),
    ],
)
def test_what_an_earlier_run_left(
    ongoing: Coordinator,
    state: str,
    epoch: int,
    started: int,
    *,
    done: bool,
    untouched: bool,
    resumable: bool,
) -> None:
    ongoing.state, ongoing.now = state, Incarnation(PID, epoch)
    effect = seen(ongoing, step(5, start_timestamp=started), None)
    assert (effect.done, effect.untouched, effect.resumable) == (done, untouched, resumable)


def test_a_transaction_of_another_producer_id_is_not_the_planned_one(ongoing: Coordinator) -> None:
    """Its epochs ran out, and its owner goes on with the next id."""
    ongoing.state, ongoing.now = "Ongoing", Incarnation(OTHER, 0)
    assert seen(ongoing, step(), None).done is True


def test_an_end_alone_is_done_once_it_is_over(ongoing: Coordinator) -> None:
    ongoing.state = "CompleteAbort"
    effect = seen(ongoing, step(5, action="end", initialise=False), None)
    assert (effect.done, effect.beyond, effect.resumable) == (True, None, False)
    ongoing.state = "PrepareAbort"
    assert not seen(ongoing, step(5, action="end", initialise=False), None).resumable
