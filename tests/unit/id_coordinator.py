"""A transactional id's coordinator, which carries requests out as Kafka 4.3.1 does, in memory.

It loses answers before or after that, which a real one does at no command. Real ones are asked in
tests/kafka/test_fenced_living.py.
"""

from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write import markers
from eoctl.kafka.write.markers import Answered
from eoctl.operations.remedy import raising, shutting_out
from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import Incarnation
from recovery.remedy.repairs import EndRequest, InitRequest

PID, OTHER, LAST = 4001, 4002, 32_766
USED = Incarnation(PID, 4)
IDLE = ("Empty", "CompleteAbort", "CompleteCommit")


class Coordinator:
    """One id. sent: each request. loses: at which request its answer is lost, and whether after it
    was carried out; answers: what is answered instead of carrying it out. then: called after each.
    """

    def __init__(self, state: str, epoch: int = 4, producer_id: int = PID) -> None:
        self.state, self.now = state, Incarnation(producer_id, epoch)
        self.before = self.now
        self.sent: list[EndRequest | InitRequest] = []
        self.loses: dict[int, bool] = {}
        self.answers: dict[int, str] = {}
        self.then: Any = lambda: None
        self.held = 0

    def row(self) -> TransactionFacts:
        now = self.now
        return TransactionFacts(
            "x", 1, now.producer_id, self.state, now.producer_epoch, 60_000, 1, ()
        )

    def _next(self) -> None:
        self.before = self.now
        pid, epoch = self.now.producer_id, self.now.producer_epoch + 1
        self.now = Incarnation(pid, epoch) if epoch <= LAST else Incarnation(OTHER, 0)

    def initialised(self) -> None:
        """By a client that starts: it names no epoch."""
        self._next()
        self.before, self.state = self.now, "Empty"

    async def end(self, cluster: Cluster, coordinator: int, asked: EndRequest) -> Answered:
        assert coordinator == 1
        return self._answered(asked, self._end)

    async def initialise(self, cluster: Cluster, coordinator: int, asked: InitRequest) -> Answered:
        assert coordinator == 1
        assert asked.timeout_ms == 60_000
        return self._answered(asked, self._initialise)

    def _answered(self, asked: Any, carry_out: Any) -> Answered:
        assert len(self.sent) < 30, "it never ends"
        number = len(self.sent)
        self.sent.append(asked)
        if number in self.answers:
            return Answered(self.answers[number])
        lost = self.loses.get(number)
        if lost is False:
            raise WireError("NO_ANSWER", "no answer")
        answer: Answered = carry_out(asked)
        self.then()
        if lost:
            raise WireError("NO_ANSWER", "no answer")
        return answer

    def _end(self, asked: EndRequest) -> Answered:
        if Incarnation(asked.producer_id, asked.producer_epoch) != self.now:
            return Answered("INVALID_PRODUCER_EPOCH")
        if self.state in IDLE and asked.version < 5:
            return Answered("INVALID_TXN_STATE")
        self.state = "CompleteCommit" if asked.commit else "CompleteAbort"
        if asked.version < 5:
            return Answered("NONE")
        self._next()
        return Answered("NONE", self.now.producer_id, self.now.producer_epoch)

    def _initialise(self, asked: InitRequest) -> Answered:
        expected = Incarnation(asked.producer_id, asked.producer_epoch)
        if expected not in (self.now, self.before):
            return Answered("PRODUCER_FENCED")
        if self.state not in IDLE:
            self._next()
            self.state = "CompleteAbort"
            return Answered("CONCURRENT_TRANSACTIONS")
        if expected == self.now:
            self._next()
            self.state = "Empty"
        return Answered("NONE", self.now.producer_id, self.now.producer_epoch)


def coordinator_of_x(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """The id x is Ongoing; what the code under test sends goes there."""
    coordinator = Coordinator("Ongoing")

    async def described(*given: Any) -> TransactionFacts:
        return coordinator.row()

    monkeypatch.setattr(shutting_out, "described", described)
    monkeypatch.setattr(raising, "described", described)
    monkeypatch.setattr(markers, "end_transaction", coordinator.end)
    monkeypatch.setattr(markers, "initialise_producer", coordinator.initialise)
    monkeypatch.setattr(shutting_out, "PAUSE_SECONDS", 0)
    return coordinator


def nobody() -> Cluster:
    """A cluster whose only broker is not there."""
    return Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))


def end_of(version: int, epoch: int, *, commit: bool = False) -> EndRequest:
    return EndRequest(version, "x", PID, epoch, commit)


def init_of(epoch: int) -> InitRequest:
    return InitRequest("x", PID, epoch, 60_000)
