"""The exact ground truth of a break, as printed, and the ledger that keeps it.

The truth is known by construction: a Ledger writes one partition and notes what each offset is. It
is never taken from eoctl's own answers.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from eoctl.lab.client import NOT_NOW, Client, NewRecord
from eoctl.lab.producer import Producer
from recovery.errors import UnverifiedError
from recovery.facts import HasPartition
from recovery.row import Row

# If verification was switched off a moment ago, the broker may not know that yet.
STRAY_NOT_YET = NOT_NOW | {
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "TRANSACTION_ABORTABLE",  # the answer to newer requests
}

Content = Literal[
    "committed", "aborted", "control", "plain", "idempotent", "missing", "open", "lost"
]


class OffsetTruth(Row):
    """The truth about one offset.

    missing: compacted away. open: in a transaction that no marker ended, whoever owns it.
    lost: decided as `outcome` says, but its marker is not there.
    """

    offset: int
    content: Content


class GroundTruth(HasPartition, Row):
    """One trouble that was made. Null = does not apply. Offsets before a break are not listed.

    verdict: what recovery's rules should call it (interface: txn-hanging), rule: by which of them,
    where only one fits. producer_id, producer_epoch: of the batch at start_offset, the first
    offset of the trouble (null: nothing is held).
    coordinator: broker that coordinates transactional_id; coordinator_state and
    current_producer_epoch: what it says of the id, null when it knows no such id.
    fences: how many open transactions of the id an initialisation ended before this one.
    outcome: what was decided for `lost` records. refused: Kafka's error for the zombie's write.
    frozen_broker: answers nothing until it is thawed. stopped_broker: was stopped and left so.
    owner_pid: process that holds it open.
    """

    kind: str
    variant: str | None = None
    verdict: str | None = None
    rule: str | None = None
    mixed: bool = False
    cluster_id: str | None
    transaction_version: int
    topic: str
    partition: int
    leader: int | None
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    start_offset: int | None = None
    last_stable_offset: int
    high_watermark: int
    offsets: tuple[OffsetTruth, ...]
    coordinator: int | None = None
    coordinator_state: str | None = None
    current_producer_epoch: int | None = None
    timeout_ms: int | None = None
    fences: int | None = None
    group: str | None = None
    group_topic: str | None = None
    group_partition: int | None = None
    committed_offset: int | None = None
    pending_offset: int | None = None
    outcome: Literal["commit", "abort"] | None = None
    refused: str | None = None
    frozen_broker: int | None = None
    stopped_broker: int | None = None
    owner_pid: int | None = None
    repair: str


class Ledger(HasPartition):
    """Writes one partition and knows the truth of each offset that it wrote."""

    def __init__(self, client: Client, topic: str, partition: int, stable: int, end: int) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.content: dict[int, Content] = {}
        self.end = end
        self._held = stable if stable < end else None  # by transactions that existed before
        self._open: dict[int, list[int]] = {}

    @classmethod
    async def begin(cls, client: Client, topic: str, partition: int) -> "Ledger":
        """Return a ledger from the partition's present end on."""
        _, stable, end = await client.until(lambda: client.offsets(topic, partition))
        return cls(client, topic, partition, stable, end)

    @property
    def stable(self) -> int:
        """Return the LSO by construction: the first open offset, else the end."""
        starts = [offsets[0] for offsets in self._open.values()]
        if self._held is not None:
            starts.append(self._held)
        return min(starts, default=self.end)

    async def plain(self, records: Sequence[NewRecord]) -> int:
        """Write records without a producer id."""
        base = await self.client.plain(self.topic, self.partition, records)
        return self._note(base, len(records), "plain")

    async def send(self, producer: Producer, records: Sequence[NewRecord]) -> int:
        """Write records of an idempotent producer, or in a producer's transaction."""
        base = await producer.send(self.topic, self.partition, records)
        if producer.transactional_id is None:
            return self._note(base, len(records), "idempotent")
        return self._note(base, len(records), "open", producer.producer_id)

    async def stray(self, producer: Producer, records: Sequence[NewRecord]) -> int:
        """Write transactional records that no coordinator knows about."""
        base = await self.client.until(
            lambda: producer.write(self.topic, self.partition, records), also=STRAY_NOT_YET
        )
        return self._note(base, len(records), "open", producer.producer_id)

    async def written_for(self, producer_id: int) -> int:
        """Note one record that the broker itself wrote in a transaction; return its offset."""
        base = self._note(self.end, 1, "open", producer_id)
        await self._ends_here("the offset commit")
        return base

    async def ended(self, producer_id: int, *, commit: bool) -> None:
        """Check that the producer's transaction got its marker here. Raises UnverifiedError."""
        for offset in self._open.pop(producer_id):
            self.content[offset] = "committed" if commit else "aborted"
        self.content[self.end] = "control"
        self.end += 1
        await self._ends_here("the marker")

    async def marked(self) -> None:
        """Check that a marker without an open transaction came. Raises UnverifiedError if not."""
        self.content[self.end] = "control"
        self.end += 1
        await self._ends_here("the marker")

    def vanish(self, offsets: Iterable[int]) -> None:
        """Note that compaction removes these."""
        self.content.update(dict.fromkeys(offsets, "missing"))

    def decided(self, producer_id: int) -> None:
        """Note that the producer's transaction is decided, but its marker did not come."""
        for offset in self._open[producer_id]:
            self.content[offset] = "lost"

    def _note(self, base: int, count: int, content: Content, producer_id: int | None = None) -> int:
        self._same("a write's first offset", base, self.end)
        self.content.update(dict.fromkeys(range(base, base + count), content))
        if producer_id is not None:
            self._open.setdefault(producer_id, []).extend(range(base, base + count))
        self.end = base + count
        return base

    async def _ends_here(self, what: str) -> None:
        _, _, end = await self.client.offsets(self.topic, self.partition)
        self._same(f"the end after {what}", end, self.end)

    def _same(self, what: str, actual: int, expected: int) -> None:
        if actual != expected:
            raise UnverifiedError(
                f"{what} is {actual} where {expected} was expected: somebody else writes here",
                where=str(self.topic_partition),
                remedy="break a topic of your own, or leave --topic away",
            )

    def truths(self) -> tuple[OffsetTruth, ...]:
        """Return every offset written so far with its truth, in order."""
        return tuple(
            OffsetTruth(offset=offset, content=content)
            for offset, content in sorted(self.content.items())
        )
