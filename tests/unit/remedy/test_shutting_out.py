"""Raising an id: how far, by which requests, and whom a newcomer or a late owner is taken for."""

import asyncio
from typing import Any

import pytest

from eoctl.kafka.ask import coordinators
from eoctl.kafka.write.markers import Answered
from eoctl.operations.remedy import raising, shutting_out
from eoctl.operations.remedy.shutting_out import Raising, ShutOut, taken_over
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import Missing, TransactionFacts
from recovery.inspect.incarnation import Incarnation
from recovery.remedy.repairs import InitRequest
from tests.unit.id_coordinator import (
    LAST,
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


@pytest.mark.parametrize(
    ("state", "epoch", "before", "answer", "other", "cut_short"),
    [
        ("Empty", 6, 5, None, False, False),  # a raise of ours
        ("Empty", 6, 6, None, True, False),  # a client's
        ("Empty", 5, 4, None, False, False),
        ("Empty", 4, 3, None, True, False),  # from before the fence: nobody raised it
        ("CompleteCommit", 6, 5, None, True, False),
        ("Empty", 6, 5, "CONCURRENT_TRANSACTIONS", True, True),
        ("CompleteAbort", 5, 4, None, False, False),
    ],
)
def test_who_raised_an_idle_id(
    ongoing: Coordinator,
    state: str,
    epoch: int,
    before: int,
    answer: str | None,
    *,
    other: bool,
    cut_short: bool,
) -> None:
    ongoing.state, ongoing.now = state, Incarnation(PID, epoch)
    ongoing.before = Incarnation(PID, before)
    ongoing.answers = {} if answer is None else {0: answer}
    found = asyncio.run(taken_over(nobody(), ongoing.row(), USED, "abort", 60_000))
    if other:
        assert found == ShutOut(USED, USED, other=Incarnation(PID, epoch), cut_short=cut_short)
    else:
        assert found is None
    assert ongoing.now == Incarnation(PID, epoch)


def raised_until(
    coordinator: Coordinator,
    used: Incarnation = USED,
    *,
    by_end: bool = False,
    insist: bool = False,
    version: int = 5,
) -> ShutOut:
    def ensure_held() -> None:
        coordinator.held += 1

    made = Raising(
        nobody(),
        "x",
        60_000,
        end_version=version,
        by_end=by_end,
        insist=insist,
        ensure_held=ensure_held,
        first=True,
    )
    return asyncio.run(made.until_shut_out(used, coordinator.now))


def test_an_idle_id_is_raised_by_its_end_first(ongoing: Coordinator) -> None:
    """EndTxn changes nothing if its epoch is stale; InitProducerId follows."""
    ongoing.state = "CompleteCommit"
    raised = raised_until(ongoing, by_end=True)
    assert ongoing.sent == [end_of(5, 4), init_of(5), init_of(6)]
    assert raised == ShutOut(USED, Incarnation(PID, 7))
    assert ongoing.held == 2  # the first was asked for by the caller


def test_a_raise_by_end_that_came_too_early_is_sent_again(ongoing: Coordinator) -> None:
    ongoing.state, ongoing.answers = "CompleteCommit", {0: "CONCURRENT_TRANSACTIONS"}
    raised_until(ongoing, by_end=True)
    assert ongoing.sent == [end_of(5, 4), end_of(5, 4), init_of(5), init_of(6)]


@pytest.mark.parametrize("version", [3, 5])
def test_a_timeout_that_is_too_long_now(ongoing: Coordinator, version: int) -> None:
    """EndTxn v5 names none, and raises it all the same."""
    ongoing.state, ongoing.answers = "CompleteCommit", {0: "INVALID_TRANSACTION_TIMEOUT"}
    raised = raised_until(ongoing, version=version)
    if version == 5:
        assert ongoing.sent == [init_of(4), end_of(5, 4), init_of(5), init_of(6)]
        assert raised.proven
    else:
        assert len(ongoing.sent) == 1
        assert raised == ShutOut(USED, USED, error="INVALID_TRANSACTION_TIMEOUT")


def test_a_raise_beyond_the_last_epoch_counts_on_with_another_id(ongoing: Coordinator) -> None:
    ongoing.state, ongoing.now = "Empty", Incarnation(PID, LAST)
    raised = raised_until(ongoing, Incarnation(PID, LAST))
    assert raised.at == ongoing.now == Incarnation(OTHER, 2)
    assert raised.proven


@pytest.mark.parametrize("insist", [False, True])
def test_a_transaction_begun_between_two_requests_is_ended_and_its_owner_raised_over(
    ongoing: Coordinator, *, insist: bool
) -> None:
    """A live owner has adopted the epoch that we raised: it counts as used from then on."""
    ongoing.state = "CompleteAbort"

    def begins() -> None:
        if len(ongoing.sent) == 2:
            ongoing.state = "Ongoing"

    ongoing.then = begins
    raised = raised_until(ongoing, insist=insist)
    assert ongoing.sent == [init_of(4), init_of(5), end_of(5, 6), init_of(7), init_of(8)]
    assert raised == ShutOut(Incarnation(PID, 6), Incarnation(PID, 9))


@pytest.mark.parametrize("insist", [False, True])
def test_one_that_initialised_it_between_two_requests(
    ongoing: Coordinator, *, insist: bool
) -> None:
    ongoing.state = "CompleteAbort"

    def starts() -> None:
        if len(ongoing.sent) == 1:
            ongoing.initialised()

    ongoing.then = starts
    raised = raised_until(ongoing, insist=insist)
    if insist:
        assert raised == ShutOut(Incarnation(PID, 6), Incarnation(PID, 9))
    else:
        assert raised == ShutOut(USED, Incarnation(PID, 5), other=Incarnation(PID, 6))
        assert not raised.proven


def test_a_transaction_that_our_raise_aborted_is_no_newcomer(ongoing: Coordinator) -> None:
    """CONCURRENT_TRANSACTIONS: InitProducerId aborted what its owner had just begun."""
    ongoing.state = "CompleteAbort"
    initialise = ongoing._initialise

    def late(asked: InitRequest) -> Answered:
        if len(ongoing.sent) == 2:
            ongoing.state = "Ongoing"  # between the look and the request
        return initialise(asked)

    ongoing._initialise = late  # type: ignore[method-assign]
    raised = raised_until(ongoing)
    assert raised.proven
    assert raised.used == Incarnation(PID, 5)
    assert ongoing.now == Incarnation(PID, 8)


@pytest.mark.parametrize("known", [True, False])
def test_an_id_that_is_forgotten_meanwhile(
    ongoing: Coordinator, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    async def described(*given: Any) -> TransactionFacts | None:
        return TransactionFacts("x", 1, PID, "Empty", None, 60_000, 1, ()) if known else None

    monkeypatch.setattr(shutting_out, "described", described)
    with pytest.raises(UnverifiedError, match="no longer knows it"):
        raised_until(ongoing)
    assert ongoing.sent == []


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ([Missing("id", "TRANSACTIONAL_ID_NOT_FOUND", "there is none")], None),
        ([Missing("id", "TIMED_OUT", "it is silent")], "it is silent"),
        ([], "it could not be described"),
    ],
)
def test_an_id_that_is_not_described(
    monkeypatch: pytest.MonkeyPatch, missing: list[Missing], found: str | None
) -> None:
    async def find(*given: Any) -> Any:
        return [], missing

    monkeypatch.setattr(coordinators, "find", find)
    described = shutting_out.described(nobody(), "x")
    if found is None:
        assert asyncio.run(described) is None
    else:
        with pytest.raises(IncompleteError, match=found):
            asyncio.run(described)


def raise_step(**changed: Any) -> Step:
    given = {
        "producer_id": PID,
        "producer_epoch": 4,
        "above": 4,
        "timeout_ms": 60_000,
        "end_version": None,
        "coordinator": 1,
        "owner_is_gone": True,
    }
    about = changed.pop("about", [])
    parameters = given | changed
    return Step(
        action="raise-id", target="x", parameters=parameters, does="", stands_on=(), about=about
    )


def raised_by(coordinator: Coordinator, planned: Step) -> ShutOut:
    def ensure_held() -> None:
        coordinator.held += 1

    return asyncio.run(raising.send(nobody(), planned, ensure_held))


@pytest.mark.parametrize(("version", "first"), [(None, init_of(4)), (5, end_of(5, 4))])
def test_a_raise_of_an_idle_id(ongoing: Coordinator, version: int | None, first: object) -> None:
    ongoing.state = "CompleteCommit"
    raised = raised_by(ongoing, raise_step(end_version=version))
    assert raised == ShutOut(USED, Incarnation(PID, 7))
    assert ongoing.sent == [first, init_of(5), init_of(6)]
    assert ongoing.held == 3


def test_a_raise_counts_from_the_higher_epoch(ongoing: Coordinator) -> None:
    """That of the marker, with which the owner may still write."""
    ongoing.state = "Empty"
    raised = raised_by(ongoing, raise_step(above=5))
    assert raised == ShutOut(Incarnation(PID, 5), Incarnation(PID, 8))


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("wrote", [True, False])
def test_a_raise_and_who_initialised_the_id_since_the_plan(
    ongoing: Coordinator, *, gone: bool, wrote: bool
) -> None:
    """A fence leaves that process alone, unless it was to end one that writes; a raise before a
    marker does not."""
    ongoing.state = "CompleteCommit"
    ongoing.initialised()
    about = [{"looks": {"wrote": True}}] if wrote else []
    raised = raised_by(ongoing, raise_step(owner_is_gone=gone, about=about))
    if gone and not wrote:
        assert raised == ShutOut(USED, USED, other=Incarnation(PID, 5))
        assert ongoing.now == Incarnation(PID, 5)
    else:
        assert raised.proven
        assert ongoing.now == Incarnation(PID, 7)


@pytest.mark.parametrize("error", ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_raise_that_is_refused(ongoing: Coordinator, error: str, at: int) -> None:
    """Nothing was changed: proven by the error and by the id, which is as it was before."""
    ongoing.state, ongoing.answers = "Empty", {at: error}
    kind = RefusedError if at == 0 and error.startswith("TRANS") else UnverifiedError
    with pytest.raises(kind, match=error):
        raised_by(ongoing, raise_step())


def test_a_timeout_above_the_brokers_is_a_refusal(ongoing: Coordinator) -> None:
    ongoing.state, ongoing.answers = "Empty", {0: "INVALID_TRANSACTION_TIMEOUT"}
    with pytest.raises(RefusedError, match="nothing was changed") as refused:
        raised_by(ongoing, raise_step())
    assert "its timeout is 1m, above" in str(refused.value.remedy)
    assert "to 60000 or more" in str(refused.value.remedy)
