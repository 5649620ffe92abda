"""Define a merge replay with everything resolved, as the Spark job of `merge replay` receives it.

All values are numbers that were read once, so the job reads nothing else again but the log's own
records. Everything fits in JSON, and nothing is secret.
"""

from recovery.documents import Document
from recovery.facts import HasPartition, PartitionFacts, TopicPartition
from recovery.merge.replay import Base, ReplayPosition
from recovery.shared.cut import Cut, CutPartition, CutTopic


class Log(HasPartition, Document):
    """A partition of the merge log or of an input as it was seen. low, high: its first offset, and
    its end for a reader with the isolation level in use."""

    topic: str
    partition: int
    low: int
    high: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None


class MergePart(Document):
    """One partition of the merge log: its entries [position, tip) are replayed.

    committed: the (offset, metadata) committed for the partition when position was counted.
    leader_epoch: of the record before position; None: unknown.
    """

    partition: int
    base: Base
    position: int
    drop_left: int
    tip: int
    committed: tuple[int, str] | None = None
    leader_epoch: int | None = None

    @property
    def begin(self) -> ReplayPosition:
        """Return the position at which the replay continues."""
        return ReplayPosition(self.position, self.drop_left, self.base)


class ReplayRequest(Document):
    """A replay of some partitions. staging: a folder that the job and all executors share.

    max_rate: bytes per second read from the inputs of each partition. range_offsets: the most that
    one task reads.
    """

    merge: str
    format: str
    inputs: tuple[str, ...]
    output: str
    isolation: str
    group: str
    staging: str
    cluster_id: str | None
    created_at: str
    topic_ids: dict[str, str | None]
    logs: tuple[Log, ...]
    parts: tuple[MergePart, ...]
    max_rate: int | None = None
    range_offsets: int

    @property
    def by_partition(self) -> dict[TopicPartition, Log]:
        return {log.topic_partition: log for log in self.logs}

    def cut(self, ranges: dict[TopicPartition, tuple[int, int]]) -> Cut:
        """Return the content of a cut file: these offsets of these partitions."""
        ends = self.by_partition
        topics = sorted({topic for topic, _ in ranges})
        return Cut(
            cluster_id=self.cluster_id,
            created_at=self.created_at,
            at="lso" if self.isolation == "read_committed" else "hw",
            topics=tuple(
                CutTopic(
                    topic=name,
                    topic_id=self.topic_ids[name],
                    partitions=tuple(
                        CutPartition(
                            partition=topic_partition[1],
                            start=start,
                            end=end,
                            last_stable_offset=ends[topic_partition].last_stable_offset,
                            high_watermark=ends[topic_partition].high_watermark,
                            leader_epoch=ends[topic_partition].leader_epoch,
                        )
                        for topic_partition, (start, end) in sorted(ranges.items())
                        if topic_partition[0] == name
                    ),
                )
                for name in topics
            ),
        )


def log_of(facts: PartitionFacts, low: int, high: int) -> Log:
    """Return a partition whose offsets are known; see `Log`."""
    assert facts.last_stable_offset is not None
    assert facts.high_watermark is not None
    return Log(
        topic=facts.topic,
        partition=facts.partition,
        low=low,
        high=high,
        last_stable_offset=facts.last_stable_offset,
        high_watermark=facts.high_watermark,
        leader_epoch=facts.leader_epoch,
    )
