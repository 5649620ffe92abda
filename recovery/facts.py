"""A cluster as it was seen, and what could not be seen: frozen values, no judgement.

The same types come from a live cluster (`eoctl.kafka.ask.collect`), a bundle or a broker's files.
Offsets are absolute; times are epoch milliseconds by the clock named in the field; None is
"not known", never 0 or -1.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from recovery.formats.coordinator import coordinator_partition
from recovery.values import Value

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class TopicPartition(NamedTuple):
    """A partition of a topic; as text `orders:3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Return the partition that `str` gave as text."""
        topic, _, partition = text.rpartition(":")
        return cls(topic, int(partition))


class HasPartition:
    """A value about one partition, which its fields `topic` and `partition` name."""

    __slots__ = ()
    if TYPE_CHECKING:
        topic: str
        partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition as one value: a key, and as text `orders:3`."""
        return TopicPartition(self.topic, self.partition)


class Missing(Value):
    """One thing that could not be seen. Its presence makes an answer incomplete (exit status 3).

    scope: cluster, broker, topic, partition, coordinator, transaction, group or feature.
    error: Kafka's error name, or TIMED_OUT, CONNECTION_REFUSED, CONNECTION_CLOSED and the like.
    detail: a sentence for a person.
    """

    scope: str
    error: str
    detail: str
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Return the partition that it is about; None where it is about none."""
        if self.topic is None or self.partition is None:
            return None
        return TopicPartition(self.topic, self.partition)


def known(value: int) -> int | None:
    """Return None for a negative number, which is how Kafka writes that there is none."""
    return value if value >= 0 else None


class BrokerFacts(Value):
    """A broker as Metadata lists it; `up` is whether it answered us."""

    id: int
    host: str
    port: int
    rack: str | None = None
    up: bool | None = None


class PartitionFacts(HasPartition, Value, gc=False):
    """Offsets of a partition as its leader gave them.

    last_stable_offset is read after high_watermark on the same connection, so that a partition
    with traffic is not taken for one that is held back: held > 0 was true at one moment.
    error: Kafka's error name when the leader did not give the offsets.
    """

    topic: str
    partition: int
    topic_id: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    log_start_offset: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    error: str | None = None

    @property
    def held(self) -> int | None:
        """Offsets between LSO and high watermark, control records included; None if unknown."""
        if self.high_watermark is None or self.last_stable_offset is None:
            return None
        return self.high_watermark - self.last_stable_offset


class ProducerFacts(HasPartition, Value):
    """One producer's state in one partition (DescribeProducers, KIP-664).

    producer_epoch is that of the producer's last batch. last_timestamp is what that batch
    carries: the producer's clock, or the broker's on LogAppendTime topics.
    current_txn_start_offset: first offset of its open transaction here.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    current_txn_start_offset: int | None


class TransactionFacts(Value):
    """A transactional id as its coordinator knows it (ListTransactions, DescribeTransactions).

    state: Kafka's name (Empty, Ongoing, PrepareCommit, ...). timeout_ms, start_timestamp (the
    coordinator's clock) and partitions are None until the id was described. ghost: listed by a
    broker that keeps the id's former partition; its present coordinator does not know it so.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_timestamp: int | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    error: str | None = None
    ghost: bool = False


class CoordinatorFacts(Value):
    """One partition of `__transaction_state` and whether its coordinator could be seen.

    seen: its leader was asked and the probe (a made-up transactional id of this partition,
    described before and after the listing) answered TRANSACTIONAL_ID_NOT_FOUND both times.
    """

    partition: int
    leader: int | None
    seen: bool
    error: str | None = None
    in_sync: int | None = None  # replicas in sync on brokers that answer; None = not known
    away: tuple[int, ...] = ()  # brokers of the other replicas
    least: int | None = None  # min.insync.replicas, at most the replicas; None = hidden, not asked

    @property
    def takes_no_record(self) -> bool:
        """Return True if its coordinator can write nothing: too few replicas are in sync."""
        return None not in (self.in_sync, self.least) and (self.in_sync or 0) < (self.least or 0)


class CoordinatorClock(Value):
    """A coordinator's clock against ours: ahead, in ms (negative: behind), to about a second."""

    broker: int
    ahead: int


class GroupOffsetFacts(HasPartition, Value):
    """A group's committed offset for one partition (OffsetFetch).

    pending: a transaction holds a newer commit that is not decided yet
    (UNSTABLE_OFFSET_COMMIT); committed_offset is then the last stable one.
    is_share: it is the start offset of a share group (KIP-932), and lag, in records, is what Kafka
    tells of it (KIP-1226); None: Kafka does not.
    """

    group: str
    topic: str
    partition: int
    committed_offset: int | None
    leader_epoch: int | None = None
    metadata: str | None = None
    pending: bool | None = None
    error: str | None = None
    is_share: bool = False
    lag: int | None = None


class ConnectTask(NamedTuple):
    """A task of a connector."""

    connector: str
    task: int


class ConnectWorker(Value):
    """A worker of Kafka Connect, as its group knows it: the REST address that it advertises, and
    the tasks that it was given."""

    client_id: str
    host: str
    url: str
    tasks: tuple[ConnectTask, ...] = ()


class StreamsProcess(Value):
    """A member of a group of the streams protocol, and the process of Kafka Streams it runs in."""

    client_id: str
    host: str
    process_id: str


class GroupFacts(Value):
    """A consumer group: its type, state, members as (client id, host), and committed offsets.

    members None: not seen, which is not "none": ask `recovery.inspect.group_life`.

    protocol: of a classic group that was described: `consumer`, `connect`, or what else it speaks.
    workers: the members of a group that speaks `connect`, as far as they could be read.
    processes: the members of a streams group (KIP-1071), with their processes.
    isolation: of a share group, its share.isolation.level; None: hidden, or not asked for.
    """

    group: str
    state: str | None
    type: str | None = None
    coordinator: int | None = None
    members: tuple[tuple[str, str], ...] | None = None
    offsets: tuple[GroupOffsetFacts, ...] = ()
    protocol: str | None = None
    workers: tuple[ConnectWorker, ...] = ()
    processes: tuple[StreamsProcess, ...] = ()
    isolation: str | None = None


class CommitTime(NamedTuple):
    """When an offset was committed, and when it ends if the client named that; ms, the
    coordinator's clock. expires_at None: by offsets.retention.minutes."""

    committed_at: int
    expires_at: int | None = None


class GroupTimes(Value):
    """What `__consumer_offsets` recorded of a group since an instant.

    state_since: since when a classic group is in its last state, ms by the coordinator's clock, and
    members: how many it had then. members None: its last record is older than the instant, or the
    group is of another kind; state_since alone None: Kafka before 2.1 wrote no time.
    commits: the last commit of each partition that counts, None where the offset was deleted; one
    that is absent had none since the instant.
    """

    state_since: int | None = None
    members: int | None = None
    commits: Mapping[TopicPartition, CommitTime | None] = {}


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key, in their order."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


class Transactions(Value, dict=True):
    """All coordinators' transactions, and which coordinators could be seen.

    clocks: of those coordinators whose clock could be measured. described_at: epoch ms, our clock,
    before the first was described; None = not described, or by an earlier version.
    """

    rows: tuple[TransactionFacts, ...] = ()
    coordinators: tuple[CoordinatorFacts, ...] = ()
    missing: tuple[Missing, ...] = ()
    clocks: tuple[CoordinatorClock, ...] = ()
    described_at: int | None = None

    @property
    def complete(self) -> bool:
        """Every partition of `__transaction_state` was led, asked and proven by the probe."""
        return not self.missing and all(c.seen for c in self.coordinators)

    def ahead(self, broker: int) -> int | None:
        """Milliseconds that this coordinator's clock is ahead of ours; None if not measured."""
        return next((c.ahead for c in self.clocks if c.broker == broker), None)

    def log_of(self, transactional_id: str) -> CoordinatorFacts | None:
        """The partition of `__transaction_state` that an id hashes to; None if not seen."""
        if not self.coordinators:
            return None
        return self.coordinators[coordinator_partition(transactional_id, len(self.coordinators))]

    def owners(self, producer_id: int) -> tuple[TransactionFacts, ...]:
        """The transactional ids whose current producer id is `producer_id`; no ghosts."""
        return tuple(self._by_producer.get(producer_id, ()))

    @cached_property
    def _by_producer(self) -> dict[int, list[TransactionFacts]]:
        # what one of thousands of transactions needs is not looked for among all the others
        return grouped((t.producer_id, t) for t in self.rows if not t.ghost)


class Facts(Value):
    """The result of one look at a cluster. `missing` empty = nothing asked for was left out.

    scanned: partitions looked at, those not in `partitions` included. producers: of partitions
    that were asked and answered; one that is absent is not known. transaction_version: the
    finalized feature `transaction.version` (0 where the cluster knows no such feature). notes:
    sentences for people about what was asked.
    """

    cluster_id: str | None
    collected_at: int
    scanned: int = 0
    transaction_version: int | None = None
    brokers: tuple[BrokerFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    producers: Mapping[TopicPartition, tuple[ProducerFacts, ...]] = {}
    transactions: Transactions | None = None
    groups: tuple[GroupFacts, ...] = ()
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.missing
