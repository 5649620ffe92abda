"""How far a stream has read: for each partition, the offset before which everything was read.

Spark keeps it as JSON in a query's checkpoint. An offset alone does not identify its log, so each
topic is kept with its id and each offset with the leader epoch of its log: a recreated topic and a
log that was cut off and written again (KIP-320) are other logs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from recovery.errors import IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.log_position import LogPosition, Standing
from recovery.values import Value, replace

SCHEMA = "eoctl.stream/v1"
ANEW = "begin again with another checkpoint (and another job name for what it writes)"


class Position(Value):
    """A place in a partition before whose `offset` everything was read."""

    offset: int
    leader_epoch: int | None = None
    """Of the leader that gave the offset; None: the broker has no leader epochs."""
    last_stable_offset: int | None = None
    """Transactional records from here on were open; None: none was, below `offset`."""
    record_epoch: int | None = None
    """Of the record before the offset; None: not known, as in offsets of eoctl 0.2.0."""

    @property
    def in_log(self) -> LogPosition:
        """Return the position in the form that is checked against its log."""
        if self.record_epoch is None:
            return LogPosition(self.offset, self.leader_epoch, "leader")
        return LogPosition(self.offset, self.record_epoch)


class StreamOffset(Value):
    """The topics' ids, None if brokers have no ids, and the positions in their partitions."""

    ids: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    positions: Mapping[TopicPartition, Position] = msgspec.field(default_factory=dict)


def encode(offset: StreamOffset) -> dict[str, Any]:
    """Return the JSON; equal offsets give equal JSON, because Spark compares its text."""
    topics: dict[str, Any] = {}
    for (topic, partition), position in sorted(offset.positions.items()):
        one = topics.setdefault(topic, {"id": offset.ids.get(topic) or "", "partitions": {}})
        words = {
            "offset": position.offset,
            "leader_epoch": position.leader_epoch,
            "last_stable_offset": position.last_stable_offset,
            "record_epoch": position.record_epoch,
        }
        one["partitions"][str(partition)] = {k: v for k, v in words.items() if v is not None}
    return {"schema": SCHEMA, "topics": topics}


def decode(content: Any) -> StreamOffset:
    """Return what `encode` was given. Raises RefusedError for another source's offsets."""
    try:
        if content["schema"] != SCHEMA:
            raise KeyError("schema")
        topics = content["topics"]
        return StreamOffset(
            {topic: one["id"] or None for topic, one in topics.items()},
            {
                TopicPartition(topic, int(partition)): Position(**words)
                for topic, one in topics.items()
                for partition, words in one["partitions"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RefusedError(
            "the offsets in the query's checkpoint are not of this source", remedy=ANEW
        ) from None


def moved(
    offset: StreamOffset, facts: Iterable[PartitionFacts]
) -> dict[TopicPartition, LogPosition]:
    """Return the positions in partitions whose leader epoch has risen.

    Only the leader of such a partition knows whether its log continues at the position.
    """
    return {
        f.topic_partition: position.in_log
        for f in facts
        if (position := offset.positions.get(f.topic_partition)) is not None
        and position.leader_epoch is not None
        and f.leader_epoch is not None
        and f.leader_epoch > position.leader_epoch
    }


def with_record_epochs(
    offset: StreamOffset, epochs: Mapping[TopicPartition, int | None]
) -> StreamOffset:
    """Return the offset with the leader epoch of the record before each of these positions."""
    stamped = {p: replace(offset.positions[p], record_epoch=epoch) for p, epoch in epochs.items()}
    return replace(offset, positions={**offset.positions, **stamped})


def refuse_other_logs(
    offset: StreamOffset,
    facts: Iterable[PartitionFacts],
    ids: Mapping[str, set[str | None]],
    standings: Mapping[TopicPartition, Standing],
) -> None:
    """Refuse positions that belong to another log than the present one.

    facts: partitions as they are now; positions in others are not judged. ids: by topic, as its
    leaders report them. standings: for the positions from `moved`. Raises RefusedError, and
    IncompleteError if a broker may lag behind.
    """
    for f in facts:
        partition, where = f.topic_partition, f"{f.topic}-{f.partition}"
        position = offset.positions.get(partition)
        if position is None:
            continue
        before, told = offset.ids.get(f.topic), ids.get(f.topic, set())
        if before is not None and told - {before, None}:
            raise RefusedError(
                "the topic was deleted and created again, since the stream read it",
                where=f.topic,
                remedy=ANEW,
            )
        if before is not None and before not in told:
            raise IncompleteError("its leader did not return the topic's id", where=where)
        standing = standings.get(partition)
        if standing is not None and standing.held is False:
            raise RefusedError(
                f"its log was cut off at {standing.divergence} and written again, and the stream "
                f"has read up to {position.offset} ({standing.because}): records were lost and "
                "their offsets given to others",
                where=where,
                remedy=ANEW,
            )
        now, epoch = f.leader_epoch, position.leader_epoch
        if now is not None and epoch is not None and now < epoch:
            raise IncompleteError(
                f"its leader epoch went back from {epoch} to {now}: the cluster is another one, "
                "was restored, or a broker is behind",
                where=where,
                remedy=f"start the query again; if the epoch stays back, {ANEW}",
            )
        if f.high_watermark is not None and f.high_watermark < position.offset:
            raise IncompleteError(
                f"its log ends at {f.high_watermark}, and the stream has read up to "
                f"{position.offset}: records were lost, or a new leader is behind",
                where=where,
                remedy=f"start the query again; if the log still ends there, {ANEW}",
            )


def refuse_deleted(offset: StreamOffset, facts: Iterable[PartitionFacts]) -> None:
    """Refuse to go on if records after a position were deleted before they were read.

    A partition without a position is new and is read from offset 0 on. Raises IncompleteError.
    """
    for f in facts:
        position = offset.positions.get(f.topic_partition, Position(0))
        if f.log_start_offset is not None and position.offset < f.log_start_offset:
            raise IncompleteError(
                f"records {position.offset} to {f.log_start_offset - 1} were deleted before the "
                "stream read them",
                where=f"{f.topic}-{f.partition}",
                remedy="failOnDataLoss=false goes on with what is left",
            )


def advanced(
    start: StreamOffset,
    facts: Iterable[PartitionFacts],
    *,
    committed: bool,
    most: int | None = None,
    target: StreamOffset | None = None,
) -> StreamOffset:
    """Return how far the stream may go from `start`.

    committed: never past the last stable offset, otherwise up to the high watermark. most: offsets
    of all partitions together, divided among them (see `shares`). target: never past it. A position
    that does not move keeps its leader epoch, and positions in partitions that are not in facts do
    not move either. A new partition is read from offset 0 on and has no position until it has
    records.
    """
    ids, positions = dict(start.ids), dict(start.positions)
    first: dict[TopicPartition, int] = {}
    sizes: dict[TopicPartition, int] = {}
    present = {f.topic_partition: f for f in facts}
    for topic_partition, f in present.items():
        end = f.last_stable_offset if committed else f.high_watermark
        assert end is not None
        known = start.positions.get(topic_partition, Position(0))
        if target is not None:
            end = min(end, target.positions.get(topic_partition, known).offset)
        first[topic_partition] = max(known.offset, f.log_start_offset or 0)
        sizes[topic_partition] = max(0, end - first[topic_partition])
    if most is not None:
        sizes = shares(sizes, most)
    for topic_partition, f in present.items():
        if not sizes[topic_partition]:
            continue
        stable, end = f.last_stable_offset, first[topic_partition] + sizes[topic_partition]
        ids.setdefault(topic_partition[0], f.topic_id)
        positions[topic_partition] = Position(
            end, f.leader_epoch, stable if stable is not None and stable < end else None
        )
    return replace(start, ids=ids, positions=positions)


def shares(sizes: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return how many offsets each partition gives, about `most` in all.

    Shares are proportional to what partitions have, but at least one so that none starves, as in
    Spark's Kafka source (KafkaMicroBatchStream.rateLimit). The sum may exceed `most` by up to the
    number of partitions.

    >>> shares({("a", 0): 900, ("a", 1): 100, ("a", 2): 0, ("b", 0): 1}, 100)
    {('a', 0): 89, ('a', 1): 9, ('a', 2): 0, ('b', 0): 1}
    """
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    return {partition: min(size, max(1, most * size // total)) for partition, size in sizes.items()}
