"""Check whether positions belong to the leaders' present logs, and find the epoch before one.

The only check for everything that keeps a position: OffsetForLeaderEpoch (KIP-101, KIP-320), the
log start and its epoch, and the record itself if these leave a doubt. The rules:
`recovery.shared.log_position`.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from eoctl.kafka.ask.collect import EARLIEST, READ_UNCOMMITTED, ids_of_leaders, list_offsets
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, by_leader
from eoctl.kafka.read.fetch import ABOVE, ENOUGH, Range, read_all
from eoctl.kafka.read.log_checks import EpochAnswer, told_epochs
from recovery.errors import IncompleteError
from recovery.facts import PartitionFacts, TopicPartition, known
from recovery.formats.batches import batch_headers
from recovery.shared import log_position, stream_offset
from recovery.shared.log_position import LogAnswer, LogPosition, Standing
from recovery.shared.stream_offset import StreamOffset

PATIENCE_SECONDS = 20.0  # a dead leader is replaced after 9 to 12 s
PAUSE_SECONDS = 0.3
ONE_BATCH_BYTES = 64 << 10  # a larger batch comes complete, in its own answer

Positions = Mapping[TopicPartition, LogPosition]


async def standings(cluster: Cluster, positions: Positions) -> dict[TopicPartition, Standing]:
    """Return for each position whether its log is the one that its leader has now.

    Raises IncompleteError if a leader does not answer, or the record cannot be read.
    """
    asked = {partition: p for partition, p in positions.items() if log_position.needs_asking(p)}
    epochs = {
        partition: p.leader_epoch for partition, p in asked.items() if p.leader_epoch is not None
    }
    answers = await _answers(cluster, epochs)
    nothing = LogAnswer(None, None, 0, None)
    judgements = {
        partition: log_position.judged(p, answers.get(partition, nothing))
        for partition, p in positions.items()
    }
    doubtful = {
        partition: positions[partition].offset for partition, s in judgements.items() if s is None
    }
    found = await _epochs_at(cluster, doubtful)
    return {
        partition: standing
        if standing is not None
        else log_position.beside_record(positions[partition], answers[partition], found[partition])
        for partition, standing in judgements.items()
    }


async def refuse_other_logs(cluster: Cluster, positions: Positions, remedy: str) -> list[str]:
    """Refuse positions of another log; return a sentence for each one that is not proven.

    Raises RefusedError with the offset of the divergence, and what `standings` raises.
    """
    by_partition = await standings(cluster, positions)
    for partition, standing in sorted(by_partition.items(), key=lambda item: item[0]):
        log_position.refuse_diverged(partition, positions[partition], standing, remedy)
    return log_position.not_proven(
        (partition, positions[partition], standing) for partition, standing in by_partition.items()
    )


async def refuse_other_streams(
    cluster: Cluster, offset: StreamOffset, facts: Iterable[PartitionFacts]
) -> list[str]:
    """Refuse a stream's positions of other logs; return a sentence for each unproven one.

    Raises RefusedError for a recreated topic and for records that were replaced, and
    IncompleteError for what a leader does not say, or a lagging broker may say.
    """
    mine = [f for f in facts if f.topic_partition in offset.positions]
    scope = [
        PartitionMetadata(f.topic, f.partition, f.leader, f.leader_epoch, f.replicas, None)
        for f in mine
    ]
    moved = stream_offset.moved(offset, mine)
    ids, by_partition = await asyncio.gather(
        ids_of_leaders(cluster, scope), standings(cluster, moved)
    )
    stream_offset.refuse_other_logs(offset, mine, ids, by_partition)
    return log_position.not_proven(
        (partition, moved[partition], standing) for partition, standing in by_partition.items()
    )


async def stamped(cluster: Cluster, offset: StreamOffset, before: StreamOffset) -> StreamOffset:
    """Return a stream's offset with the epochs of the records before its new positions.

    before: where the stream was. Raises IncompleteError.
    """
    new = {
        partition: p.offset
        for partition, p in offset.positions.items()
        if before.positions.get(partition) != p
    }
    return stream_offset.with_record_epochs(offset, await record_epochs(cluster, new))


async def record_epochs(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Return the leader epoch of the record before each offset, in the logs as they are now.

    None: no record is before it, or compaction or deletion left no batch at that offset. A reader
    that has reached the offset knows it from the batches and need not ask. Raises IncompleteError.
    """
    asked = {partition: offset for partition, offset in offsets.items() if offset > 0}
    leaders = await _leaders(cluster, asked)
    present = {p: m.leader_epoch for p, m in leaders.items() if m.leader_epoch is not None}
    # where the epoch before the present one ends, the present one begins
    answers = await _answers(
        cluster, {partition: epoch - 1 for partition, epoch in present.items()}
    )
    by_partition: dict[TopicPartition, int | None] = dict.fromkeys(offsets, None)
    unsettled = {}
    for partition, offset in asked.items():
        answer = answers.get(partition)
        if answer is None or answer.log_start >= offset:
            continue
        begins = 0 if present[partition] == 0 else answer.end
        if begins is not None and begins < offset:
            by_partition[partition] = present[partition]
        else:
            unsettled[partition] = offset
    return by_partition | await _epochs_at(cluster, unsettled)


async def _answers(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogAnswer]:
    """Ask the leaders, again if one has moved. Raises IncompleteError."""
    answers: dict[TopicPartition, LogAnswer] = {}
    bound = time.monotonic() + PATIENCE_SECONDS
    while left := {partition: e for partition, e in epochs.items() if partition not in answers}:
        leaders = await _leaders(cluster, left)
        questions = {
            partition: (p.leader, -1 if p.leader_epoch is None else p.leader_epoch, left[partition])
            for partition, p in leaders.items()
            if p.leader is not None
        }
        told, missing = await told_epochs(cluster, questions)
        # After it: an epoch deleted in between would be taken for one that the log has.
        starts = await _log_starts(cluster, list(leaders.values()))
        answers |= {
            partition: _answer(told[partition], starts[partition])
            for partition in told.keys() & starts.keys()
        }
        lacking = [partition for partition in left if partition not in answers]
        if lacking and (time.monotonic() > bound or cluster.deadline.passed):
            error = next((m.error for m in missing), "LEADER_NOT_AVAILABLE")
            raise _unseen(lacking[0], error)
        if lacking:
            await asyncio.sleep(PAUSE_SECONDS)
            cluster.forgive()
    return answers


def _answer(told: EpochAnswer | None, start: tuple[int, int | None]) -> LogAnswer:
    epoch, end = told or (None, None)
    return LogAnswer(epoch, end, *start)


async def _leaders(
    cluster: Cluster, partitions: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, PartitionMetadata]:
    if not partitions:
        return {}
    metadata = await cluster.metadata(sorted({topic for topic, _ in partitions}))
    return {
        p.topic_partition: p
        for t in metadata.topics.values()
        for p in t.partitions
        if p.topic_partition in partitions
    }


async def _log_starts(
    cluster: Cluster, partitions: list[PartitionMetadata]
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return log starts, and their leader epochs, of partitions whose leaders answered."""
    led, _ = by_leader(partitions)
    questions = {
        b: partial(cluster.ask, b, list_offsets(mine, EARLIEST, READ_UNCOMMITTED), most=5)
        for b, mine in led.items()
    }
    answers, _ = await cluster.ask_each(questions)
    return {
        TopicPartition(t.name, row.partition_index): (row.offset, known(row.leader_epoch))
        for answer in answers.values()
        for t in answer.topics
        for row in t.partitions
        if not row.error_code
    }


async def _epochs_at(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Return the leader epoch of the batch at the offset before each of these; None without one."""
    ranges = [Range(*partition, offset - 1, offset) for partition, offset in offsets.items()]
    chunks, ended = (
        await read_all(cluster, ranges, most_chunks=1, partition_bytes=ONE_BATCH_BYTES)
        if ranges
        else ({}, {})
    )
    found: dict[TopicPartition, int | None] = {}
    for partition, offset in offsets.items():
        found[partition] = next(
            (
                known(header.leader_epoch)
                for chunk in chunks[partition]
                for header in batch_headers(chunk.records)
                if header.base_offset < offset <= header.last_offset + 1
            ),
            None,
        )
        end = ended[partition]
        if found[partition] is None and end.error not in (None, ENOUGH):
            lags = "its high watermark is below the position" if end.error == ABOVE else end.detail
            raise _unseen(partition, f"{end.error}: {lags}")
    return found


def _unseen(partition: TopicPartition, error: str) -> IncompleteError:
    return IncompleteError(
        f"whether its log is still the one that was read cannot be seen ({error})",
        where=str(partition),
        remedy="run it again when its leader answers",
    )
