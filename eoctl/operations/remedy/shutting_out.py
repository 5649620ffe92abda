"""Raise a transactional id with our own requests, until a live owner is shut out.

A live owner accepts the answer to its next request: it may continue with an epoch that eoctl
raised. So the id is raised beyond any epoch that such an owner can get, and transactions that the
owner begins meanwhile are ended too. Every request expects the described epoch.
"""

import asyncio
from collections.abc import Callable

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.write import markers as repairs
from eoctl.operations.change.steps import die_here_in_tests
from recovery.errors import IncompleteError, UnverifiedError
from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import Incarnation, follows, is_shut_out
from recovery.inspect.observation import CLOSED_STATES
from recovery.remedy.fences import incarnation, is_half_fenced
from recovery.remedy.repairs import EndRequest, InitRequest
from recovery.values import Value

PAUSE_SECONDS = 0.05
STALE = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"})
"""The id moved on since it was described: it is described again."""


async def described(cluster: Cluster, name: str) -> TransactionFacts | None:
    """Return the id as its coordinator describes it; None if unknown. Raises IncompleteError."""
    rows, missing = await coordinators.find(cluster, [name])
    if rows:
        return rows[0]
    error = missing[0] if missing else None
    if error is not None and error.error == coordinators.NOT_FOUND:
        return None
    raise IncompleteError(error.detail if error else "it could not be described", where=name)


class ShutOut(Value):
    """How far an id was raised.

    used: the last incarnation that an owner was seen to use. at: the one in the answer to our last
    request. other: an incarnation that no request of ours made; None = none was seen. cut_short: a
    request of ours may have aborted a transaction of that one. error: the coordinator's error that
    ended it.
    """

    used: Incarnation
    at: Incarnation
    other: Incarnation | None = None
    cut_short: bool = False
    error: str = "NONE"

    @property
    def proven(self) -> bool:
        """Return True if no owner that used `used` can write any more."""
        return self.other is None and is_shut_out(self.used, self.at)


async def taken_over(
    cluster: Cluster, row: TransactionFacts, used: Incarnation, outcome: str, timeout_ms: int
) -> ShutOut | None:
    """Return an idle id's state if somebody else initialised it; None: an earlier run did.

    A raise of eoctl names the epoch before it. Sent again it returns the current epoch and changes
    nothing (KIP-360). A client that starts the id names none, and the same request is then refused;
    likewise after the coordinator moved, since it forgets the epoch before.
    """
    if is_half_fenced(row, used, outcome=outcome, owner_is_gone=False):
        return None
    now = incarnation(row)
    before = Incarnation(now.producer_id, now.producer_epoch - 1)
    if row.state != "Empty" or before.producer_epoch < used.producer_epoch:
        return ShutOut(used, used, other=now)
    init = InitRequest(row.transactional_id, before.producer_id, before.producer_epoch, timeout_ms)
    answer = await repairs.initialise_producer(cluster, row.coordinator, init)
    if (answer.producer_id, answer.producer_epoch) == (now.producer_id, now.producer_epoch):
        return None
    cut_short = answer.error == "CONCURRENT_TRANSACTIONS"
    return ShutOut(used, used, other=now, cut_short=cut_short)


class Raising:
    """One id while it is raised.

    by_end: the first request is EndTxn v5 (abort), which raises an idle id too and changes nothing
    if its epoch is stale. insist: also an incarnation that no request of ours made is shut out.
    ensure_held: called before each request but the first, raises when the lock is lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        timeout_ms: int,
        *,
        end_version: int,
        by_end: bool,
        insist: bool,
        ensure_held: Callable[[], None],
        first: bool,
    ) -> None:
        self._cluster, self._name, self._timeout_ms = cluster, name, timeout_ms
        self._end_version, self._by_end, self._insist = end_version, by_end, insist
        self._ensure_held, self._first = ensure_held, first
        self._cut_short = False  # InitProducerId may have aborted what somebody had begun

    async def until_shut_out(self, used: Incarnation, mine: Incarnation) -> ShutOut:
        """Raise the id from `mine` until an owner of `used` is shut out, or as far as possible."""
        deadline = self._cluster.silence()
        while not deadline.passed:
            row = await described(self._cluster, self._name)
            if row is None or row.producer_epoch is None:
                raise UnverifiedError("its coordinator no longer knows it", where=self._name)
            if row.state.startswith("Prepare"):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            now = incarnation(row)
            if now != mine:
                # of the owner that took `mine`; an incarnation that began later ends higher still
                ended = self._cut_short and row.state == "CompleteAbort"
                aborted = ended and follows(mine, now)
                if not aborted and not self._insist:
                    return ShutOut(used, mine, other=now, cut_short=ended)
                used, mine = (mine, now) if aborted else (now, now)
            self._cut_short = False
            is_open = row.state not in CLOSED_STATES
            if is_open:
                used = now  # a live owner has adopted this epoch
            elif is_shut_out(used, mine):
                return ShutOut(used, mine)
            answer = await self._send(row, mine, is_open=is_open)
            if answer.error not in ("NONE", *repairs.RETRIABLE, *STALE):
                return ShutOut(used, mine, error=answer.error)
            if answer.producer_id is not None and answer.producer_epoch is not None:
                mine = Incarnation(answer.producer_id, answer.producer_epoch)
                die_here_in_tests("id-raised")
            elif answer.error != "NONE":
                await asyncio.sleep(PAUSE_SECONDS)
        return ShutOut(used, mine, error="NO_ANSWER")

    async def _send(
        self, row: TransactionFacts, mine: Incarnation, *, is_open: bool
    ) -> repairs.Answered:
        """Send one request that expects `mine`: end a transaction or raise an idle id."""
        if not self._first:
            self._ensure_held()
        self._first = False
        at = self._name, mine.producer_id, mine.producer_epoch
        if is_open or self._by_end:
            version = self._end_version if is_open else 5
            end = EndRequest(version, *at)
            answer = await repairs.end_transaction(self._cluster, row.coordinator, end)
            if not is_open:
                self._by_end = answer.error in repairs.RETRIABLE
            return answer
        init = InitRequest(*at, self._timeout_ms)
        answer = await repairs.initialise_producer(self._cluster, row.coordinator, init)
        self._cut_short = answer.error == "CONCURRENT_TRANSACTIONS"
        if answer.error == repairs.INVALID_TIMEOUT and self._end_version >= 5:
            self._by_end = True  # EndTxn names no timeout
            return repairs.Answered("CONCURRENT_TRANSACTIONS")
        return answer
