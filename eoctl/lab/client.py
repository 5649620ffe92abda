"""A Kafka client that does exactly what its caller says, even if that is wrong.

Breaks and tests make their ground truth with it: the caller chooses a batch's producer id, epoch
and sequence, and a request is repeated only if the broker said that nothing had happened. Producers
and their transactions are in `eoctl.lab.producer`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import ClientSettings, client_settings
from recovery.facts import ProducerFacts, TransactionFacts
from recovery.values import Value, replace

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1  # FindCoordinator's key types
PATIENCE_SECONDS = 60.0
REQUEST_TIMEOUT_MS = 30_000

# The broker answered "not now" or "not here", and did nothing.
NOT_NOW = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_ENOUGH_REPLICAS",  # also for Produce up to 11: the coordinator could not say yet
        "BROKER_NOT_AVAILABLE",
        "CONNECTION_REFUSED",
    }
)


class NewRecord(Value):
    """One record to write. timestamp: epoch ms, None = now by this machine's clock."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None


def refuse(code: int, doing: str) -> None:
    """Raise WireError with Kafka's error name unless code is 0."""
    if code:
        name = messages.error_name(code)
        raise WireError(name, f"{doing} was refused with {name}")


class Client:
    """Use as `async with Client(settings) as client`. Refusals are WireError with Kafka's name."""

    def __init__(self, settings: ClientSettings, avoided: int | None = None) -> None:
        self.cluster = Cluster(settings, Deadline(None))
        self.transaction_version = 0  # the cluster's finalized feature
        self._settings = settings
        self._avoided = avoided

    @classmethod
    def of(cls, properties: Mapping[str, str], avoided: int | None = None) -> "Client":
        """Return a client with a Lab's client_properties(). avoided: see `without`."""
        settings = replace(client_settings(properties), request_timeout_ms=REQUEST_TIMEOUT_MS)
        return cls(settings, avoided)

    @classmethod
    def to(cls, bootstrap_servers: str, avoided: int | None = None) -> "Client":
        """Return a client of plaintext listeners, `HOST:PORT,...`."""
        return cls.of({"bootstrap.servers": bootstrap_servers}, avoided)

    def without(self, broker: int) -> Self:
        """Return a client that asks this broker only about what it leads: it will be frozen."""
        known = self.cluster.brokers[broker]
        servers = tuple(
            server
            for server in self._settings.bootstrap_servers
            if server != (known.host, known.port)
        )
        return type(self)(replace(self._settings, bootstrap_servers=servers), broker)

    @property
    def any_broker(self) -> int:
        """Return a broker to ask about what every broker knows."""
        return min(broker for broker in self.cluster.brokers if broker != self._avoided)

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        question = messages.ApiVersionsRequest(
            client_software_name="eoctl", client_software_version="0"
        )
        try:
            answer = await self.cluster.ask(self.any_broker, question, most=3)
        except BaseException:
            self.cluster.close()
            raise
        levels = {f.name: f.max_version_level for f in answer.finalized_features or ()}
        self.transaction_version = levels.get("transaction.version", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cluster.close()

    async def until(self, attempt: Callable[[], Awaitable[T]], also: frozenset[str] = NOT_NOW) -> T:
        """Repeat an attempt that had no effect, for PATIENCE_SECONDS."""
        end = time.monotonic() + PATIENCE_SECONDS
        pause = 0.02
        while True:
            try:
                return await attempt()
            except WireError as error:
                if error.error not in also or time.monotonic() > end:
                    raise
            self.cluster.forgive()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    # -- where things are ---------------------------------------------------------------------

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition. Raises WireError LEADER_NOT_AVAILABLE, say."""
        state = (await self.partitions(topic)).get(partition)
        if state is None or state.error or state.leader is None:
            error = (state and state.error) or "LEADER_NOT_AVAILABLE"
            raise WireError(error, f"no broker leads {topic}:{partition}")
        return state.leader

    async def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """Return the partitions of a topic; none if it does not exist."""
        metadata = await self.cluster.metadata([topic])
        return {p.partition: p for p in metadata.topics[topic].partitions}

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list((await self.cluster.metadata(None)).topics)

    async def coordinator(self, key: str, key_type: int = TRANSACTION) -> int:
        """Return the broker that coordinates an id or a group; creates the internal topic.

        May raise COORDINATOR_NOT_AVAILABLE while that topic is being created.
        """
        request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = await self.cluster.ask(self.any_broker, request, least=4)
        home = answer.coordinators[0]
        refuse(home.error_code, f"FindCoordinator of {key!r}")
        if home.node_id not in self.cluster.brokers:
            await self.cluster.metadata([])
        return int(home.node_id)

    # -- writing ------------------------------------------------------------------------------

    async def write(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        transactional_id: str | None = None,
        most: int = 11,
    ) -> int:
        """Write a batch with exactly these numbers; return its first offset. Never repeats.

        A transactional id makes the batch transactional. Produce 12 and above adds the partition to
        the transaction (KIP-890); up to 11 the broker only verifies that it was added.
        """
        from kafka.record.memory_records import MemoryRecordsBuilder

        builder = MemoryRecordsBuilder(2, 0, 1 << 24)
        if producer_id >= 0:
            builder.set_producer_state(producer_id, epoch, sequence, transactional_id is not None)
        now = now_ms()
        for record in records:
            stamp = now if record.timestamp is None else record.timestamp
            builder.append(stamp, record.key, record.value)
        builder.close()
        data = messages.ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=bytes(builder.buffer()))
        question = messages.ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=topic, partition_data=[part])],
        )
        answer = await self.cluster.ask(
            await self.leader(topic, partition), question, least=3, most=most
        )
        row = answer.responses[0].partition_responses[0]
        refuse(row.error_code, f"Produce to {topic}:{partition}")
        return int(row.base_offset)

    async def plain(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Write one batch without a producer id; return its first offset."""
        return await self.until(lambda: self.write(topic, partition, records))

    # -- reading ------------------------------------------------------------------------------

    async def offsets(self, topic: str, partition: int) -> tuple[int, int, int]:
        """Return (log start, LSO, high watermark) as ListOffsets gives them."""
        broker = await self.leader(topic, partition)
        ends = []
        for timestamp, isolation in ((-2, 0), (-1, 1), (-1, 0)):
            request = messages.ListOffsetsRequest
            part = request.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
            )
            question = request(
                replica_id=-1,
                isolation_level=isolation,
                topics=[request.ListOffsetsTopic(name=topic, partitions=[part])],
            )
            answer = await self.cluster.ask(broker, question, least=2, most=9)
            row = answer.topics[0].partitions[0]
            refuse(row.error_code, f"ListOffsets of {topic}:{partition}")
            ends.append(int(row.offset))
        return ends[0], ends[1], ends[2]

    async def batches(self, topic: str, partition: int, since: int = 0) -> list[Any]:
        """Return every batch from an offset on that is still in the log of a small partition.

        kafka-python decodes them, to compare with what eoctl's own reader says.
        """
        from kafka.record.memory_records import MemoryRecords

        start, _, end = await self.offsets(topic, partition)
        start = max(start, since)
        broker = await self.leader(topic, partition)
        headers: list[Any] = []
        while start < end:
            topic_class = messages.FetchRequest.FetchTopic
            part = topic_class.FetchPartition(
                partition=partition, fetch_offset=start, partition_max_bytes=1 << 22
            )
            question = messages.FetchRequest(
                replica_id=-1,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 22,
                isolation_level=0,
                topics=[topic_class(topic=topic, partitions=[part])],
            )
            answer = await self.cluster.ask(broker, question, least=4, most=11)
            row = answer.responses[0].partitions[0]
            refuse(row.error_code, f"Fetch of {topic}:{partition}")
            new = list(MemoryRecords(bytes(row.records or b"")))
            if not new:
                break  # only the empty rest of a compacted segment is before the end
            headers += new
            start = new[-1].next_offset
        return headers

    async def read(self, topic: str, partition: int) -> dict[int, tuple[bytes | None, bool]]:
        """Return every offset still in the log: its key, and whether it is a control record."""
        return {
            record.offset: (record.key, batch.is_control_batch)
            for batch in await self.batches(topic, partition)
            for record in batch
        }

    async def transaction(self, transactional_id: str) -> TransactionFacts | None:
        """Return the id as its coordinator describes it; None if that does not know the id."""
        broker = await self.coordinator(transactional_id)
        question = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        row = (await self.cluster.ask(broker, question)).transaction_states[0]
        if row.error_code and messages.error_name(row.error_code) == "TRANSACTIONAL_ID_NOT_FOUND":
            return None
        refuse(row.error_code, f"DescribeTransactions of {transactional_id!r}")
        return coordinators.transaction_facts(broker, row)

    async def producers(self, topic: str, partition: int) -> dict[int, ProducerFacts]:
        """Return producer state by producer id, as the leader describes it (DescribeProducers)."""
        request = messages.DescribeProducersRequest
        question = request(topics=[request.TopicRequest(name=topic, partition_indexes=[partition])])
        answer = await self.cluster.ask(await self.leader(topic, partition), question)
        row = answer.topics[0].partitions[0]
        refuse(row.error_code, f"DescribeProducers of {topic}:{partition}")
        return {
            p.producer_id: collect.producer_facts(topic, partition, p) for p in row.active_producers
        }
