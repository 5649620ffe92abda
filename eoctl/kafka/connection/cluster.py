"""Talk to a cluster over one connection per broker: bootstrap, metadata, asking many at once.

A broker that does not answer costs its silence bound once and is then left alone while this Cluster
lives; facts that it could have given are reported as Missing, never omitted silently.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.patience import Patience
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.connection.read_only import refuse_writing
from eoctl.kafka.connection.wire import Connection, timed_out
from recovery.errors import RefusedError, UnreachableError
from recovery.facts import BrokerFacts, HasPartition, Missing, known
from recovery.formats.records import allow_expanded
from recovery.quoting import quoted
from recovery.values import Value

Key = TypeVar("Key", bound=Hashable)

PROBE_TOPIC = "eoctl-probe"
"""A made-up topic: who may not describe all topics is refused it, others hear: unknown."""
SLOW_SILENCES = 3  # what a slow broker may take for its first connection, or as a new leader
_BOOTSTRAP = -1  # the unknown id of the broker on the first connection
STAGGER_SECONDS = 0.3  # between bootstrap attempts: the most that a dead first server costs


class PartitionMetadata(HasPartition, Value, gc=False):
    """A partition's leader. leader None: nobody leads it. error: Kafka's name, None if none.

    in_sync: the replicas that the leader counts as in sync; None = not reported.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    error: str | None
    topic_id: str | None = None
    in_sync: tuple[int, ...] | None = None


class TopicMetadata(Value):
    """A topic as Metadata describes it. error: why it could not be (then without partitions)."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionMetadata, ...]
    error: str | None


class ClusterMetadata(Value):
    """One Metadata answer."""

    cluster_id: str | None
    controller: int | None
    brokers: Mapping[int, BrokerFacts]
    topics: Mapping[str, TopicMetadata]


class Cluster:
    """Connections to the brokers of one cluster. Use as `async with Cluster(settings, ...)`.

    Raises UnreachableError on entry when no bootstrap server answers or accepts us.
    """

    def __init__(
        self, settings: ClientSettings, deadline: Deadline, *, read_only: bool = False
    ) -> None:
        self.settings = settings
        self.read_only = read_only
        self.deadline = deadline
        self.brokers: dict[int, BrokerFacts] = {}
        self.cluster_id: str | None = None
        self._connections: dict[int, Connection] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._silent: dict[int, WireError] = {}
        silence = settings.request_timeout_ms / 1000
        self._patience = Patience(self._knock, lambda: self.deadline, silence)
        self._withheld: dict[Hashable, Deadline] = {}  # how long each is waited for
        self._bootstrap: Connection | None = None
        self._bootstrap_address: tuple[str, int] | None = None
        self._forget_expanded: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        if self.settings.most_expanded is not None:
            self._forget_expanded = allow_expanded(self.settings.most_expanded)
        try:
            await self._begin(list(self.settings.bootstrap_servers))
        except BaseException:
            self.close()
            raise
        return self

    async def _begin(self, servers: list[tuple[str, int]]) -> None:
        """Learn the brokers from one of the servers, even if one dies right after accepting us."""
        while True:
            self._bootstrap_address = None
            self._bootstrap = await self._first_to_answer(servers)
            try:
                await self.metadata([])
            except UnreachableError:
                servers = [s for s in servers if s != self._bootstrap_address]
                if not servers:
                    raise
            else:
                return

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        if self._forget_expanded is not None:
            self._forget_expanded()
            self._forget_expanded = None
        self._patience.end()
        for connection in self._open_connections():
            connection.close()

    @property
    def requests_sent(self) -> int:
        """Return the number of requests sent so far, negotiation and authentication included."""
        return sum(c.requests_sent for c in self._open_connections())

    def _open_connections(self) -> list[Connection]:
        by_identity = {id(c): c for c in self._connections.values()}
        if self._bootstrap is not None:
            by_identity[id(self._bootstrap)] = self._bootstrap
        return list(by_identity.values())

    @property
    def transaction_version(self) -> int:
        """Return the finalized feature `transaction.version`; 0 if the cluster lacks it."""
        assert self._bootstrap is not None
        return self._bootstrap.features.get("transaction.version", 0)

    def refuse_read_only(self, where: str | None = None) -> None:
        """Raise RefusedError in a read-only context; call this before another client writes."""
        if self.read_only:
            raise RefusedError("nothing is changed: the context is read-only", where=where)

    def silence(self) -> Deadline:
        """Return how long one broker may stay silent from now on."""
        return self._patience.silence()

    def awaits(self, what: Hashable, withheld: bool) -> bool:
        """Return True while a new leader may yet give what it withholds: some seconds of a command.

        withheld: it refused just now. Half of the time is for the rest.
        """
        if not withheld:
            self._withheld.pop(what, None)
            return False
        until = Deadline(self.deadline.half_for(SLOW_SILENCES * self._patience.usual))
        return not self._withheld.setdefault(what, until).passed

    async def _first_to_answer(self, servers: Sequence[tuple[str, int]]) -> Connection:
        """Try these servers, a moment apart, and keep the first that accepts us."""
        # nobody has answered yet, so a slow broker looks like a silent one
        bound = self.deadline.within(SLOW_SILENCES * self._patience.usual)

        async def attempt(position: int, host: str, port: int) -> Connection:
            await asyncio.sleep(position * STAGGER_SECONDS)
            asked = time.monotonic()
            connection = await Connection.open(host, port, self.settings.security, bound)
            self._patience.heard(_BOOTSTRAP, asked)
            if self._bootstrap_address is None:
                self._bootstrap_address = (host, port)
            return connection

        tasks = [
            asyncio.create_task(attempt(position, host, port))
            for position, (host, port) in enumerate(servers)
        ]
        failures: list[WireError] = []
        winner: Connection | None = None
        try:
            for done in asyncio.as_completed(tasks):
                try:
                    winner = await done
                    break
                except WireError as error:
                    failures.append(error)
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Connection) and result is not winner:
                    result.close()
        if winner is None:
            raise _unreachable(failures, servers)
        return winner

    async def metadata(self, topics: Sequence[str] | None) -> ClusterMetadata:
        """Ask any broker that answers for `topics` (None = all, [] = none); never creates a topic.

        Renews the list of brokers. Raises UnreachableError if no broker answers any more.
        """
        question = messages.MetadataRequest(
            topics=_requested(topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )

        def absent(answer: Any) -> str | None:
            names = {t.name for t in answer.topics}
            missing = [name for name in topics or () if name not in names]
            return f"topic {quoted(missing[0])}" if missing else None

        answer = await self.ask_any(question, most=12, absent=absent)
        self.cluster_id = answer.cluster_id
        self.brokers = {
            b.node_id: BrokerFacts(b.node_id, b.host, b.port, b.rack) for b in answer.brokers
        }
        self._adopt_bootstrap()
        return ClusterMetadata(
            cluster_id=answer.cluster_id,
            controller=known(answer.controller_id),
            brokers=self.brokers,
            topics={t.name: _topic(t) for t in answer.topics},
        )

    def _adopt_bootstrap(self) -> None:
        """Keep the bootstrap connection for the broker with its address."""
        for b in self.brokers.values():
            if self._bootstrap_address == (b.host, b.port) and b.id not in self._connections:
                assert self._bootstrap is not None
                self._connections[b.id] = self._bootstrap

    async def topic_operations(self, topics: Sequence[str] | None = None) -> dict[str, int]:
        """Return bits of the allowed operations by visible topic (KIP-430; Kafka 2.3 and above).

        topics: None = all.
        """
        question = messages.MetadataRequest(
            topics=_requested(topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=False,
        )
        answer = await self.ask_any(question, most=12)
        return {t.name: t.topic_authorized_operations for t in answer.topics}

    async def ask_any(
        self,
        question: Any,
        *,
        most: int | None = None,
        absent: Callable[[Any], str | None] = lambda answer: None,
    ) -> Any:
        """Send one request that any broker can answer. Raises UnreachableError if none does.

        absent: returns what an answer lacks although it was asked for; None: nothing. An incomplete
        answer does not count.
        """
        if self._bootstrap is not None and not self._bootstrap.closed:
            try:
                answer = await self._patiently(_BOOTSTRAP, self._bootstrap, question, most=most)
                refuse_short(absent(answer))
                return answer
            except WireError as error:
                self._bootstrap.close(error)
                failures = [error]
        else:
            failures = []
        for broker in list(self.brokers):
            try:
                answer = await self.ask(broker, question, most=most)
                refuse_short(absent(answer))
                return answer
            except WireError as error:
                failures.append(error)
        raise _unreachable(failures, self.settings.bootstrap_servers)

    async def connection(self, broker: int) -> Connection:
        """Return the connection to `broker`. Raises WireError, at once if it was silent before."""
        if broker in self._silent:
            raise self._silent[broker]
        lock = self._opening.setdefault(broker, asyncio.Lock())
        async with lock:
            existing = self._connections.get(broker)
            if existing is not None and not existing.closed:
                return existing
            if broker in self._silent:
                raise self._silent[broker]
            known = self.brokers.get(broker)
            if known is None:
                raise WireError("BROKER_NOT_AVAILABLE", "the cluster does not list this broker")
            asked = time.monotonic()
            try:
                new = await Connection.open(
                    known.host, known.port, self.settings.security, self.silence()
                )
            except WireError as error:
                self._silent[broker] = error
                raise
            self._patience.heard(broker, asked)
            self._connections[broker] = new
            return new

    async def ask(
        self,
        broker: int,
        question: Any,
        *,
        least: int = 0,
        most: int | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Ask one broker one question; return the decoded answer. Raises WireError.

        Waits for a late answer while the broker shows that it lives (`Patience`). seconds: how long
        it may take, if that is longer than its usual silence. In a read-only context a request that
        could change something raises RefusedError.
        """
        if self.read_only:
            refuse_writing(question)
        connection = await self.connection(broker)
        try:
            if seconds is not None:
                bound = self.deadline.within(seconds)
                return await connection.ask(question, bound, least=least, most=most)
            return await self._patiently(broker, connection, question, least=least, most=most)
        except WireError as error:
            if error.error != "UNSUPPORTED_VERSION":
                self._silent[broker] = error
                connection.close(error)
            raise

    async def _patiently(
        self,
        broker: int,
        connection: Connection,
        question: Any,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> Any:
        """Ask, and wait for a late answer while the broker shows that it lives."""
        bound, asked = self._patience.limit(), time.monotonic()
        asking = asyncio.ensure_future(connection.ask(question, bound, least=least, most=most))
        try:
            if not await self._patience.outlasts(broker, asking):
                raise timed_out(question)
            answer = await asking
            self._patience.heard(broker, asked)
            return answer
        finally:
            asking.cancel()

    async def _knock(self, broker: int, bound: Deadline) -> bool:
        """Return True if the broker answers on another connection."""
        known = self.brokers.get(broker)
        address = self._bootstrap_address if known is None else (known.host, known.port)
        if address is None:
            return False
        try:
            another = await Connection.open(*address, self.settings.security, bound)
        except WireError:
            return False
        another.close()
        return True

    async def ask_each(
        self, questions: Mapping[Key, Callable[[], Awaitable[Any]]]
    ) -> tuple[dict[Key, Any], dict[Key, WireError]]:
        """Run one coroutine per key, concurrently; return the answers and the failures."""
        keys = list(questions)
        results = await asyncio.gather(*(questions[key]() for key in keys), return_exceptions=True)
        answers: dict[Key, Any] = {}
        failures: dict[Key, WireError] = {}
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, WireError):
                failures[key] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                answers[key] = result
        return answers, failures

    @property
    def silent(self) -> frozenset[int]:
        """Return the brokers that did not answer."""
        return frozenset(self._silent)

    def forgive(self) -> None:
        """Ask silent brokers again from now on (the next round of a watch)."""
        self._silent.clear()
        self._patience.forget()


def refuse_short(absent: str | None) -> None:
    """Raise WireError for an answer that lacks `absent`, which was requested."""
    if absent is not None:
        raise WireError("NOT_KAFKA", f"its answer leaves out {absent}, which was asked for")


def missing_broker(
    broker: int, error: WireError, scope: str = "broker", detail: str = ""
) -> Missing:
    """Return a broker that did not answer, as a fact."""
    text = f"{detail}: {error.detail}" if detail else error.detail
    return Missing(scope=scope, error=error.error, detail=text, broker=broker)


def by_leader(
    partitions: Iterable[PartitionMetadata],
) -> tuple[dict[int, list[PartitionMetadata]], list[PartitionMetadata]]:
    """Group partitions by the broker that leads them; then those without a leader."""
    led: dict[int, list[PartitionMetadata]] = {}
    orphaned: list[PartitionMetadata] = []
    for p in partitions:
        if p.leader is None:
            orphaned.append(p)
        else:
            led.setdefault(p.leader, []).append(p)
    return led, orphaned


def _topic(t: Any) -> TopicMetadata:
    error = messages.error_name(t.error_code) if t.error_code else None
    topic_id = topic_id_text(t.topic_id)
    return TopicMetadata(
        name=t.name,
        topic_id=topic_id,
        internal=bool(t.is_internal),
        partitions=tuple(
            PartitionMetadata(
                topic=t.name,
                partition=p.partition_index,
                leader=known(p.leader_id),
                leader_epoch=known(p.leader_epoch),
                replicas=tuple(p.replica_nodes),
                error=messages.error_name(p.error_code) if p.error_code else None,
                topic_id=topic_id,
                in_sync=tuple(p.isr_nodes),
            )
            for p in sorted(t.partitions, key=lambda p: p.partition_index)
        ),
        error=error,
    )


def topic_id_text(value: Any) -> str | None:
    """Return a topic id as Kafka prints it: URL-safe base64, unpadded; None for the zero UUID."""
    if value is None or not value.int:
        return None
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _requested(topics: Sequence[str] | None) -> list[Any] | None:
    """Return topics as MetadataRequest names them; None = all."""
    if topics is None:
        return None
    return [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]


def _unreachable(
    failures: Sequence[WireError], servers: Sequence[tuple[str, int]]
) -> UnreachableError:
    names = ", ".join(f"{host}:{port}" for host, port in servers)
    if not failures:
        return UnreachableError("no broker answers", where=names)
    # a broker's answer about us is worth more than a closed port
    order = ("AUTHENTICATION_FAILED", "TLS_FAILED", "NOT_KAFKA")
    ranked = sorted(failures, key=lambda e: order.index(e.error) if e.error in order else 9)
    return UnreachableError(ranked[0].detail, where=names, remedy=ranked[0].remedy)
