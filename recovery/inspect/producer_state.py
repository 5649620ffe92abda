"""Compute a partition leader's knowledge of its producers from record batches, as a leader does.

Begin with a `.snapshot` (or nothing) and apply every later batch in offset order.
Source: Kafka's ProducerStateManager, ProducerAppendInfo and ProducerStateEntry.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from recovery.facts import ProducerFacts, known
from recovery.formats.batches import NO_PRODUCER_ID, BatchHeader
from recovery.formats.broker_files import ProducerState
from recovery.formats.reader import Buffer
from recovery.formats.records import ControlType, marker


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    txn_start: int = -1


@dataclass(slots=True)
class ProducerTable:
    """The producers of one partition as of `end`, the offset after the last batch applied.

    aborted: how many applied markers aborted a transaction with records.
    """

    end: int = 0
    aborted: int = 0
    _producers: dict[int, _Producer] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, offset: int, rows: Iterable[ProducerState]) -> "ProducerTable":
        """Return the state before `offset`, as the file of that name holds it."""
        return cls(
            end=offset,
            _producers={
                r.producer_id: _Producer(
                    epoch=r.producer_epoch,
                    last_sequence=r.last_sequence,
                    last_timestamp=r.timestamp,
                    coordinator_epoch=r.coordinator_epoch,
                    txn_start=r.current_txn_first_offset,
                )
                for r in rows
            },
        )

    def apply(self, buffer: Buffer, header: BatchHeader) -> None:
        """Apply one batch at or above `end`. Raises CorruptError for a malformed marker."""
        self.end = header.last_offset + 1
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.is_control:
            self._marker(buffer, header)
            return
        p = self._at_epoch(header)
        p.last_sequence = header.last_sequence
        p.last_timestamp = header.max_timestamp
        if header.is_transactional and p.txn_start < 0:
            p.txn_start = header.base_offset

    def _marker(self, buffer: Buffer, header: BatchHeader) -> None:
        end_marker = marker(buffer, header)
        if (
            end_marker is None
            or end_marker.type is ControlType.OTHER
            or end_marker.coordinator_epoch is None
        ):
            return  # emptied by compaction: the complete transaction is gone, so nothing is applied
        p = self._at_epoch(header)
        if end_marker.type is ControlType.ABORT and p.txn_start >= 0:
            self.aborted += 1
        p.coordinator_epoch = end_marker.coordinator_epoch
        p.last_timestamp = header.max_timestamp
        p.txn_start = -1

    def _at_epoch(self, header: BatchHeader) -> _Producer:
        """Return the producer of a batch; a new epoch forgets its sequences."""
        p = self._producers.setdefault(header.producer_id, _Producer(header.producer_epoch))
        if p.epoch != header.producer_epoch:
            p.epoch, p.last_sequence = header.producer_epoch, -1
        return p

    @property
    def first_open(self) -> int | None:
        """Return the offset at which the first open transaction begins; None: none is open."""
        starts = [p.txn_start for p in self._producers.values() if p.txn_start >= 0]
        return min(starts, default=None)

    def facts(self, topic: str, partition: int) -> tuple[ProducerFacts, ...]:
        """Return the producers as DescribeProducers would give them."""
        return tuple(
            ProducerFacts(
                topic=topic,
                partition=partition,
                producer_id=pid,
                producer_epoch=p.epoch,
                last_sequence=known(p.last_sequence),
                last_timestamp=known(p.last_timestamp),
                coordinator_epoch=known(p.coordinator_epoch),
                current_txn_start_offset=known(p.txn_start),
            )
            for pid, p in sorted(self._producers.items())
        )
