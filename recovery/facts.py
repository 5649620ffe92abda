"""A cluster as it was seen, and what could not be seen: frozen values, no judgement.

The same types come from a live cluster (`eoctl.kafka.ask.collect`), a bundle or a broker's files.
Offsets are absolute; times are epoch milliseconds by the clock that the field names; None means
unknown, which is never 0 or -1.
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
        """Return the partition in a text from `str`."""
        topic, _, partition = text.rpartition(":")
        return cls(topic, int(partition))


class HasPartition:
    """A value about the one partition in its fields `topic` and `partition`."""

    __slots__ = ()
    if TYPE_CHECKING:
        topic: str
        partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition as one value: a key, or as text `orders:3`."""
        return TopicPartition(self.topic, self.partition)


def was_refused(error: str | None) -> bool:
    """Return True if an answer says that a permission is missing."""
    return error is not None and error.endswith("AUTHORIZATION_FAILED")


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
    def refused(self) -> bool:
        return was_refused(self.error)

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Return the partition concerned; None: the scope is wider."""
        if self.topic is None or self.partition is None:
            return None
        return TopicPartition(self.topic, self.partition)


def known(value: int) -> int | None:
    """Return None for a negative number, with which Kafka writes that a value is absent."""
    return value if value >= 0 else None


class BrokerFacts(Value):
    """A broker in Metadata. up: whether it answered us."""

    id: int
    host: str
    port: int
    rack: str | None = None
    up: bool | None = None


class PartitionFacts(HasPartition, Value, gc=False):
    """Offsets of a partition as its leader gave them.

    last_stable_offset is read after high_watermark on the same connection, so that a partition with
    traffic does not look like one that is held: held > 0 was true at one moment.
    error: Kafka's error name if the leader did not give the offsets.
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
        """Return how many offsets are from LSO to high watermark, markers too; None: unknown."""
        if self.high_watermark is None or self.last_stable_offset is None:
            return None
        return self.high_watermark - self.last_stable_offset


class ProducerFacts(HasPartition, Value):
    """One producer's state in one partition (DescribeProducers, KIP-664).

    producer_epoch: that of the producer's last batch. last_timestamp: from that batch, by the
    producer's clock or, on LogAppendTime topics, the broker's. current_txn_start_offset: the first
    offset of its open transaction here.
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
    coordinator's clock) and partitions are None until the id was described. ghost: a broker with
    the id's former partition lists it, and the present coordinator knows no such state.
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

    @property
    def decided(self) -> str | None:
        """Return the outcome of an id in Prepare*, commit or abort; None: it is not decided."""
        prefix = "Prepare"
        return self.state.removeprefix(prefix).lower() if self.state.startswith(prefix) else None


def log_of_coordinator(partition: int) -> str:
    """Return the name of a partition of `__transaction_state`, the log of its coordinator."""
    return str(TopicPartition("__transaction_state", partition))


class CoordinatorFacts(Value):
    """One partition of `__transaction_state` and whether its coordinator could be seen.

    seen: its leader answered the listing, and the probe (a made-up transactional id of this
    partition, described before and after the listing) got TRANSACTIONAL_ID_NOT_FOUND both times.
    """

    partition: int
    leader: int | None
    seen: bool
    error: str | None = None
    in_sync: int | None = None  # replicas in sync on brokers that answer; None = unknown
    away: tuple[int, ...] = ()  # brokers of the other replicas
    least: int | None = None  # min.insync.replicas, at most the replicas; None = hidden, not asked

    @property
    def name(self) -> str:
        """Return the name of the partition, its coordinator's log."""
        return log_of_coordinator(self.partition)

    @property
    def takes_no_record(self) -> bool:
        """Return True if its coordinator cannot write anything: too few replicas are in sync."""
        return None not in (self.in_sync, self.least) and (self.in_sync or 0) < (self.least or 0)


class CoordinatorClock(Value):
    """A coordinator's clock. ahead: ms ahead of ours (negative: behind), to about a second."""

    broker: int
    ahead: int


class GroupOffsetFacts(HasPartition, Value):
    """A group's committed offset for one partition (OffsetFetch).

    pending: a transaction holds a newer, undecided commit (UNSTABLE_OFFSET_COMMIT);
    committed_offset is then the last stable one. pending_offset, pending_producer_id: of the newest
    such commit, read from `__consumer_offsets`; None: not read, or the commit deletes the offset.
    is_share: the offset is the start offset of a share group (KIP-932), and lag, in records, is
    Kafka's own value (KIP-1226); None: Kafka gives none.
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
    pending_offset: int | None = None
    pending_producer_id: int | None = None


class ConnectTask(NamedTuple):
    """A task of a connector."""

    connector: str
    task: int


class ConnectWorker(Value):
    """A worker of Kafka Connect, as its group knows it: the REST address that it advertises, and
    its tasks."""

    client_id: str
    host: str
    url: str
    tasks: tuple[ConnectTask, ...] = ()


class StreamsProcess(Value):
    """A member of a group of the streams protocol, and its process of Kafka Streams."""

    client_id: str
    host: str
    process_id: str


class GroupFacts(Value):
    """A consumer group: its type, state, members as (client id, host), and committed offsets.

    members None: not seen, which does not mean that there are none: see
    `recovery.inspect.group_life`.
    protocol: of a described classic group: `consumer`, `connect`, or another protocol.
    workers: the members of a group with the protocol `connect`, those that could be read.
    processes: the members of a streams group (KIP-1071), with their processes.
    isolation: of a share group, its share.isolation.level; None: hidden, or not requested.
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
    """When an offset was committed, and when it expires if the client set that; ms, the
    coordinator's clock. expires_at None: by offsets.retention.minutes."""

    committed_at: int
    expires_at: int | None = None


class GroupTimes(Value):
    """What `__consumer_offsets` has recorded about a group since an instant.

    state_since: since when a classic group has been in its last state, ms by the coordinator's
    clock; members: how many it then had. members None: its last record is older than the instant,
    or the group is of another kind; only state_since None: Kafka before 2.1 wrote no time.
    commits: the last commit that counts of each partition, None if the offset was deleted; a
    missing partition had none since the instant. unmoved_since: since when at least each offset
    that counts has been the same. last_clients: (client id, host) of a classic group's last
    members; () = no record tells them.
    """

    state_since: int | None = None
    members: int | None = None
    commits: Mapping[TopicPartition, CommitTime | None] = {}
    unmoved_since: Mapping[TopicPartition, int] = {}
    last_clients: tuple[tuple[str, str], ...] = ()


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key in their order."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


class Transactions(Value, dict=True):
    """All coordinators' transactions, and which coordinators could be seen.

    clocks: those of coordinators whose clock could be measured. described_at: epoch ms, our clock,
    before the first id was described; None = none was, or an earlier version collected them.
    """

    rows: tuple[TransactionFacts, ...] = ()
    coordinators: tuple[CoordinatorFacts, ...] = ()
    missing: tuple[Missing, ...] = ()
    clocks: tuple[CoordinatorClock, ...] = ()
    described_at: int | None = None

    @property
    def complete(self) -> bool:
        """Return True if nothing is missing and every coordinator partition was seen."""
        return not self.missing and all(c.seen for c in self.coordinators)

    def ahead(self, broker: int) -> int | None:
        """Return the ms that this coordinator's clock is ahead of ours; None: not measured."""
        return next((c.ahead for c in self.clocks if c.broker == broker), None)

    def log_of(self, transactional_id: str) -> CoordinatorFacts | None:
        """Return the `__transaction_state` partition that an id hashes to; None: not seen."""
        if not self.coordinators:
            return None
        return self.coordinators[coordinator_partition(transactional_id, len(self.coordinators))]

    def owners(self, producer_id: int) -> tuple[TransactionFacts, ...]:
        """Return the ids whose current producer id is `producer_id`, without ghosts."""
        return tuple(self._by_producer.get(producer_id, ()))

    @cached_property
    def _by_producer(self) -> dict[int, list[TransactionFacts]]:
        # An index, since a search among thousands of transactions for each of them takes too long.
        return grouped((t.producer_id, t) for t in self.rows if not t.ghost)


class Facts(Value):
    """One snapshot of a cluster. missing: () = everything requested was seen.

    scanned: how many partitions were examined, those not in `partitions` included. producers: those
    of partitions that were asked and answered; a missing partition is unknown.
    transaction_version: the finalized feature `transaction.version` (0 if the cluster does not know
    it). notes: sentences for people about the request.
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
