"""What every kind of break shares: options, needs of the lab, targets to write to."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eoctl.kafka.connection import messages
from eoctl.lab import admin
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.producer import Producer
from recovery.errors import RefusedError, UsageError
from recovery.facts import HasPartition
from recovery.plurals import counted
from recovery.values import Value

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

UNSTABLE = "unstable.api.versions.enable"
PARTITIONS_PER_TOPIC = 10  # if many are made


class Options(Value):
    """The options of a break. Each kind lists those it takes beyond the first five.

    variant: which variant of the kind. later: what the id does after its marker was lost. hold:
    keep a process alive that owns what is open. age_seconds: the records' age by their timestamps.
    outcome: what was decided before the marker was lost. ahead: how many epochs a foreign marker is
    ahead of the coordinator.
    """

    topic: str | None = None
    partition: int = 0
    count: int = 1
    transactional_id: str | None = None
    records: int = 3
    timeout_ms: int | None = None
    hold: bool = True
    variant: str | None = None
    later: str | None = None
    group: str | None = None
    age_seconds: float = 0.0
    outcome: Literal["commit", "abort"] = "commit"
    ahead: int = 1000


COMMON = frozenset({"topic", "partition", "count", "transactional_id", "records"})


class BreakTarget(HasPartition, Value):
    """The partition of one of `count` faults, and the transactional id it uses."""

    topic: str
    partition: int
    transactional_id: str


@dataclass(slots=True)
class Stage:
    """One break under way. open_producers: those whose transactions it leaves open."""

    kind: str
    options: Options
    client: Client
    lab: "Lab"
    open_producers: list[Producer] = field(default_factory=list)

    async def targets(
        self,
        *,
        per_trouble: int = 1,
        replicas: Sequence[int] = (),
        configs: Mapping[str, str] | None = None,
    ) -> list[BreakTarget]:
        """Return `count` x `per_trouble` targets, each on its own partition; create the topics.

        replicas: the brokers that hold every partition, instead of all brokers.
        """
        options, count = self.options, self.options.count * per_trouble
        names = await self.client.topics()
        if options.topic is not None:
            if options.topic in names:
                return await self._in_existing(options.topic, count)
            sizes = {options.topic: options.partition + count}
        else:
            first = 1 + max(
                (
                    int(name.removeprefix(f"lab-{self.kind}-"))
                    for name in names
                    if name.removeprefix(f"lab-{self.kind}-").isdecimal()
                ),
                default=0,
            )
            full, rest = divmod(count, PARTITIONS_PER_TOPIC)
            each = [PARTITIONS_PER_TOPIC] * full + [rest] * bool(rest)
            sizes = {f"lab-{self.kind}-{first + i}": size for i, size in enumerate(each)}
        brokers = len(self.client.cluster.brokers)
        for topic, size in sizes.items():
            await admin.create_topic(
                self.client,
                topic,
                size,
                min(3, brokers),
                configs,
                replicas=[list(replicas)] * size if replicas else (),
            )
        in_topics = [
            self._target(topic, partition)
            for topic, size in sizes.items()
            for partition in range(options.partition if options.topic else 0, size)
        ]
        return self._name(in_topics)

    async def _in_existing(self, topic: str, count: int) -> list[BreakTarget]:
        there = len(await self.client.partitions(topic))
        last = self.options.partition + count - 1
        if last >= there:
            raise UsageError(
                f"the topic has {counted(there, 'partition')} and the break needs partition {last}",
                where=topic,
                remedy="name a new topic, or leave --topic away",
            )
        return self._name([self._target(topic, self.options.partition + i) for i in range(count)])

    def _target(self, topic: str, partition: int) -> BreakTarget:
        # a dot, not a dash: Flink's two-phase ids end with `-1-0`
        return BreakTarget(topic, partition, f"{topic}.{partition}")

    def _name(self, targets: list[BreakTarget]) -> list[BreakTarget]:
        given = self.options.transactional_id
        if given is None:
            return targets
        if self.options.count == 1:  # a fault in several places belongs to one id
            return [BreakTarget(p.topic, p.partition, given) for p in targets]
        return [BreakTarget(p.topic, p.partition, f"{given}.{i}") for i, p in enumerate(targets)]

    def variant(self, *known: str) -> str:
        """Return the requested variant, else the first. Raises UsageError for an unknown one."""
        chosen = self.options.variant or known[0]
        if chosen not in known:
            raise UsageError(
                f"{chosen!r} is no sort of {self.kind}", remedy=f"one of {', '.join(known)}"
            )
        return chosen

    async def truth(
        self,
        ledger: Ledger,
        transactional_id: str | None = None,
        producer: Producer | None = None,
        start: int | None = None,
        **known: Any,
    ) -> GroundTruth:
        """Return the ground truth of what `ledger` wrote, with what the id's coordinator says.

        producer: its transaction began at `start`.
        """
        transaction = None
        if producer is not None:
            known |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            known["start_offset"] = start
        if transactional_id is not None:
            known["transactional_id"] = transactional_id
            known["coordinator"] = await self.client.until(
                lambda: self.client.coordinator(transactional_id)
            )
            transaction = await self.client.until(lambda: self.client.transaction(transactional_id))
        return GroundTruth(
            kind=self.kind,
            cluster_id=self.client.cluster.cluster_id,
            transaction_version=self.client.transaction_version,
            topic=ledger.topic,
            partition=ledger.partition,
            last_stable_offset=ledger.stable,
            high_watermark=ledger.end,
            offsets=ledger.truths(),
            coordinator_state=transaction.state if transaction else None,
            current_producer_epoch=transaction.producer_epoch if transaction else None,
            timeout_ms=transaction.timeout_ms if transaction else None,
            **({"leader": await self.client.leader(ledger.topic, ledger.partition)} | known),
        )


def group_offsets(group: str, target: BreakTarget, committed: int, pending: int) -> dict[str, Any]:
    """Return what a truth says about a group's commit of `target` that a transaction holds."""
    return {
        "group": group,
        "group_topic": target.topic,
        "group_partition": target.partition,
        "committed_offset": committed,
        "pending_offset": pending,
    }


Make = Callable[[Stage], Awaitable[list[GroundTruth]]]


class BreakKind(Value):
    """One kind of fault. settings: broker settings without which it cannot be made.

    A numeric setting must be at least the number given here. takes: options beyond the common ones.
    leaves_open: whether these options leave a transaction open that a process can own.
    """

    name: str
    summary: str
    make: Make
    brokers: int = 1
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    takes: frozenset[str] = frozenset()
    leaves_open: Callable[[Options], bool] = lambda options: False

    async def check(self, client: Client) -> None:
        """Raise RefusedError if the cluster lacks what this kind needs."""
        brokers = client.cluster.brokers
        if len(brokers) < self.brokers:
            raise RefusedError(
                f"`{self.name}` needs {counted(self.brokers, 'broker')} and this cluster has "
                f"{len(brokers)}",
                remedy=f"eoctl lab up --brokers {self.brokers}",
            )
        for broker in brokers if self.settings else ():
            actual = await admin.broker_settings(client, broker, list(self.settings))
            if UNSTABLE in self.settings:  # internal to Kafka: DescribeConfigs hides it
                connection = await client.cluster.connection(broker)
                newest = connection.supports(messages.InitProducerIdRequest, 6)
                actual[UNSTABLE] = str(newest).lower()
            lacking = [k for k, v in self.settings.items() if not _suffices(actual.get(k), v)]
            if lacking:
                settings = " ".join(f"--set {k}={v}" for k, v in self.settings.items())
                raise RefusedError(
                    f"`{self.name}` cannot be made: broker {broker} has "
                    + ", ".join(f"{k}={actual.get(k)}" for k in lacking),
                    remedy=f"eoctl lab down, then eoctl lab up {settings}",
                )


def _suffices(actual: str | None, needed: str) -> bool:
    if needed.isdecimal():
        return actual is not None and actual.isdecimal() and int(actual) >= int(needed)
    return actual == needed


def batch(count: int, name: str, age_seconds: float = 0.0) -> list[NewRecord]:
    """Return `count` records with their own keys: `name-0`, `name-1`, ..."""
    stamp = None
    if age_seconds:
        import time

        stamp = int((time.time() - age_seconds) * 1000)
    return [
        NewRecord(b"value %d of %s" % (i, name.encode()), f"{name}-{i}".encode(), stamp)
        for i in range(count)
    ]
