"""Idempotent and transactional producers that proceed step by step, as the lab's breaks need it.

A transaction proceeds as with a client of the cluster's transaction.version. Version 2 (KIP-890):
Produce 12 and TxnOffsetCommit 5 add what they write to, EndTxn 5 returns the next epoch. Below:
AddPartitionsToTxn 3, AddOffsetsToTxn, EndTxn 3, and the epoch does not change.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab.client import GROUP, Client, NewRecord, refuse
from recovery.facts import TopicPartition


class Producer:
    """One producer incarnation. `sequences` holds the next sequence per partition.

    version: of its transactions; None = the cluster's. Older clients use 1 with any cluster.
    """

    def __init__(
        self,
        client: Client,
        producer_id: int,
        epoch: int,
        transactional_id: str | None,
        *,
        version: int | None = None,
    ) -> None:
        self.client = client
        self.version = client.transaction_version if version is None else version
        self.producer_id = producer_id
        self.epoch = epoch
        self.transactional_id = transactional_id
        self.sequences: dict[TopicPartition, int] = {}
        self._joined: set[TopicPartition | str] = set()  # partitions and groups added so far

    @classmethod
    async def init(
        cls,
        client: Client,
        transactional_id: str | None = None,
        timeout_ms: int = 60_000,
        *,
        two_phase: bool = False,
        version: int | None = None,
    ) -> Self:
        """Get a new producer id, or the id's next epoch (which aborts what the id has open).

        two_phase: use KIP-939. Raises WireError UNSUPPORTED_VERSION if it is switched off.
        """

        async def attempt() -> Self:
            if transactional_id is None:
                broker = client.any_broker
            else:
                broker = await client.coordinator(transactional_id)
            question = messages.InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                enable2_pc=two_phase,
            )
            least, most = (6, 6) if two_phase else (0, 5)
            answer = await client.cluster.ask(broker, question, least=least, most=most)
            refuse(answer.error_code, f"InitProducerId of {transactional_id!r}")
            return cls(
                client,
                answer.producer_id,
                answer.producer_epoch,
                transactional_id,
                version=version,
            )

        return await client.until(attempt)

    async def send(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Write a batch with the next sequence, transactional for an id; return its offset."""
        most = 11
        if self.transactional_id is not None:
            if self.version >= 2:
                most = 12
            else:
                await self.add_partition(topic, partition)
        return await self.client.until(lambda: self.write(topic, partition, records, most))

    async def write(
        self, topic: str, partition: int, records: Sequence[NewRecord], most: int = 11
    ) -> int:
        """Do what `send` does, but try once. Up to Produce 11 nothing adds the partition."""
        topic_partition = TopicPartition(topic, partition)
        sequence = self.sequences.get(topic_partition, 0)
        offset = await self.client.write(
            topic,
            partition,
            records,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            transactional_id=self.transactional_id,
            most=most,
        )
        self.sequences[topic_partition] = sequence + len(records)
        return offset

    async def commit(self) -> None:
        """Commit and wait until every marker is written."""
        await self.end(commit=True)
        await self.completed()

    async def abort(self) -> None:
        """Abort and wait until every marker is written."""
        await self.end(commit=False)
        await self.completed()

    async def end(self, *, commit: bool) -> None:
        """Send EndTxn. Its answer says that the outcome is decided, not that markers exist."""
        name = self._name
        version = 5 if self.version >= 2 else 3

        async def attempt() -> None:
            question = messages.EndTxnRequest(
                transactional_id=name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            broker = await self.client.coordinator(name)
            answer = await self.client.cluster.ask(broker, question, most=version)
            refuse(answer.error_code, f"EndTxn of {name!r}")
            self._joined.clear()
            if version == 5:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()

        await self.client.until(attempt)

    async def completed(self) -> None:
        """Wait until the coordinator has no open transaction of this id."""

        async def attempt() -> None:
            transaction = await self.client.transaction(self._name)
            if transaction is not None and transaction.state not in {
                "Empty",
                "CompleteCommit",
                "CompleteAbort",
            }:
                raise WireError(
                    "CONCURRENT_TRANSACTIONS", f"{self._name!r} is still {transaction.state}"
                )

        await self.client.until(attempt)

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit a group's offsets within the transaction."""
        if self.version < 2:
            await self.add_group(group)
        most = 5 if self.version >= 2 else 4
        await self.client.until(lambda: self.write_offsets(group, offsets, most))

    async def write_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], most: int = 4
    ) -> None:
        """Do what `send_offsets` does, but once. Up to TxnOffsetCommit 4 nothing adds the group."""
        topic = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        rows: dict[str, list[object]] = {}
        for (name, partition), offset in offsets.items():
            rows.setdefault(name, []).append(
                topic.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
            )
        question = messages.TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[topic(name=name, partitions=parts) for name, parts in rows.items()],
        )
        broker = await self.client.coordinator(group, GROUP)
        answer = await self.client.cluster.ask(broker, question, most=most)
        for result in answer.topics:
            for row in result.partitions:
                refuse(row.error_code, f"TxnOffsetCommit of group {group!r}")

    @property
    def _name(self) -> str:
        assert self.transactional_id is not None, "this producer has no transactional id"
        return self.transactional_id

    async def add_partition(self, topic: str, partition: int) -> None:
        """Send AddPartitionsToTxn 3, once per transaction, to begin one before writing anything."""
        if (topic, partition) in self._joined:
            return
        part = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        async def attempt() -> None:
            question = messages.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[part(name=topic, partitions=[partition])],
            )
            broker = await self.client.coordinator(self._name)
            answer = await self.client.cluster.ask(broker, question, most=3)
            for result in answer.results_by_topic_v3_and_below:
                for row in result.results_by_partition:
                    refuse(row.partition_error_code, f"AddPartitionsToTxn of {self._name!r}")

        await self.client.until(attempt)
        self._joined.add(TopicPartition(topic, partition))

    async def add_group(self, group: str) -> None:
        """Send AddOffsetsToTxn, once per transaction."""
        if group in self._joined:
            return

        async def attempt() -> None:
            question = messages.AddOffsetsToTxnRequest(
                transactional_id=self._name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            broker = await self.client.coordinator(self._name)
            answer = await self.client.cluster.ask(broker, question)
            refuse(answer.error_code, f"AddOffsetsToTxn of group {group!r}")

        await self.client.until(attempt)
        self._joined.add(group)
