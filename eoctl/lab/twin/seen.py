"""What a bundle saw, looked up by partition, for the logs of a twin."""

from base64 import b64decode
from dataclasses import dataclass
from functools import cached_property

from eoctl.kafka.read.producer_markers import MARKER_WINDOW
from eoctl.stores.bundle_files import Bundle, SeenTransaction, facts_of
from recovery.facts import PartitionFacts, ProducerFacts, TopicPartition, grouped
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.cluster_rows import StripRow

MOST_FILLED = 10_000_000
"""Offsets of all held partitions that get a record though the bundle does not hold it."""


@dataclass(frozen=True)
class Seen:
    """A bundle, and how far its times are moved: shift is ms from its snapshot to the twin's."""

    bundle: Bundle
    shift: int

    @property
    def filled(self) -> int:
        """Return how many offsets below a first open transaction get a record."""
        return min(MARKER_WINDOW, MOST_FILLED // max(1, len(self.open)))

    @cached_property
    def partitions(self) -> dict[TopicPartition, PartitionFacts]:
        """Return the offsets of each partition; the later reading of a held one counts."""
        facts = {p.topic_partition: p for p in facts_of(self.bundle.offsets).partitions}
        for t in self.bundle.open_transactions:
            newest = (t.second or t.first).sample.partition
            if newest.error is None:
                facts[newest.topic_partition] = newest
        return facts

    @cached_property
    def producers(self) -> dict[TopicPartition, tuple[ProducerFacts, ...]]:
        """Return the producers of each partition that answered, as they were seen last."""
        facts = dict(facts_of(self.bundle.producers).producers)
        for t in self.bundle.open_transactions:
            sample = (t.second or t.first).sample
            if sample.producers is not None:
                facts[sample.partition.topic_partition] = sample.producers
        return facts

    @cached_property
    def strips(self) -> dict[TopicPartition, tuple[StripRow, ...]]:
        return {TopicPartition(t, p): rows or () for t, p, rows in self.bundle.strips}

    @cached_property
    def records(self) -> dict[TopicPartition, bytes]:
        """Return the batches that the bundle took along; those with keys and values first."""
        taken = grouped((r.topic_partition, r.data) for r in self.bundle.taken)
        return {where: b"".join(map(b64decode, parts)) for where, parts in taken.items()}

    @cached_property
    def open(self) -> dict[TopicPartition, list[SeenTransaction]]:
        """Return the open transactions of each partition."""
        return grouped((t.about.topic_partition, t) for t in self.bundle.open_transactions)

    @cached_property
    def epochs(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return (offset, leader epoch) of records that groups' commits name, in order."""
        points = {
            (o.topic_partition, o.committed_offset - 1, o.leader_epoch)
            for g in self.bundle.groups
            for o in g.offsets
            if o.committed_offset and o.leader_epoch is not None
        }
        return grouped((where, (offset, epoch)) for where, offset, epoch in sorted(points))

    def size(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 = there is none."""
        return next((len(t.partitions) for t in self.bundle.topics if t.name == topic), 0)

    def home_of(self, group: str) -> int:
        """Return the group's partition of `__consumer_offsets`."""
        return coordinator_partition(group, max(1, self.size(CONSUMER_OFFSETS)))

    def moved(self, timestamp: int | None) -> int:
        """Return a time of the twin; None = unknown, then the moment of the snapshot."""
        known = self.bundle.diagnosis.collected_at if timestamp is None else timestamp
        return known + self.shift if known >= 0 else known
