"""Check or copy one input partition of a dedup: both engines run this, one task per partition.

A copy's transactions hold records and the position up to which the input was read. A copy opens its
`Writer` first, which fences the previous copy, and only then asks what is `left`. If a copy is
killed at any point, on either engine, the next one continues from there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict

from eoctl.engine import dedup_memory
from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer, committed
from eoctl.stores.storage import Storage
from recovery.dedup.dedup_request import DedupJob, DedupPart
from recovery.dedup.repeats import Deduplicator, Tally, visible
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.columns import ABORTED, ColumnBatch
from recovery.plurals import count, counted
from recovery.shared.log_position import RecordEpochs
from recovery.shared.source_numbers import Scattered

SAVE_SECONDS = 300.0
TRANSACTION_MS = 60_000
TRANSACTION_SECONDS = 5.0
TRANSACTION_RECORDS = 100_000

CopyProgress = Callable[[int, int], None]
"""Called with offsets read, offsets in all."""


async def look(
    cluster: Cluster,
    job: DedupJob,
    part: DedupPart,
    memory: Storage | None,
    scattered: Scattered | None = None,
    progress: CopyProgress | None = None,
) -> Tally:
    """Return what copying the part would do. memory: where the ids seen are kept.

    scattered: takes in which source records have outputs here. Raises RefusedError, with the
    reason, if the copy would be wrong, IncompleteError.
    """
    ids = await _remembered(cluster, job, part, memory)
    before = Tally(**asdict(ids.tally))
    ids.share(scattered)
    await _read(cluster, job, part.partition, (part.start, part.end), ids, progress)
    return ids.tally.since(before)


async def left(cluster: Cluster, job: DedupJob, part: DedupPart) -> DedupPart | None:
    """Return the part of a partition that is not copied yet, None if none is left.

    Raises RefusedError if another job is at work.
    """
    topic_partition = TopicPartition(job.request.source, part.partition)
    name = str(topic_partition)
    # before the position: what another attempt writes in between comes with a position
    output = (await partitions(cluster, job.request.output))[part.partition]
    standing = (await committed(cluster, job.request.group, [topic_partition])).get(topic_partition)
    if standing is None:
        if part.start != part.begin:
            raise RefusedError("its position is gone since the plan", where=name)
        await refuse_written(cluster, output)
        if stable(output) != output.high_watermark:  # the caller has ended the job's own
            raise IncompleteError(
                "a transaction is open in it: another copy's, or somebody else writes",
                where=str(output.topic_partition),
                remedy="look with `eoctl txn list`",
            )
        return part
    beside = job.beside(standing.metadata, name)
    await refuse_other_log(cluster, {topic_partition: standing})
    if standing.offset < part.start:
        raise RefusedError(
            f"the job is at offset {standing.offset}, planned was [{part.start}, {part.end}): its "
            "position was set back",
            where=name,
            remedy="plan again",
        )
    if standing.offset >= part.end:
        return None
    return part.model_copy(update={"start": standing.offset, "seen": beside.seen})


async def copy(
    cluster: Cluster,
    job: DedupJob,
    part: DedupPart,
    writer: Writer,
    memory: Storage | None,
    *,
    ensure_held: Callable[[], None] = lambda: None,
    on_point: Callable[[str], None] = lambda point: None,
) -> Tally:
    """Copy a part, or what is `left` of it; return the outcome of these records.

    writer: open; its transaction is aborted when the copy fails. ensure_held: called before each
    commit. on_point: called after the read records were sent ("batch") and "committed".
    """
    try:
        return await _copy(cluster, _Copy(writer, job, part, ensure_held, on_point), memory)
    except BaseException:
        await asyncio.to_thread(writer.abort)
        raise


async def partitions(cluster: Cluster, topic: str) -> list[PartitionFacts]:
    """Return all partitions of a topic by number, with all offsets. Raises IncompleteError."""
    topics = (await cluster.metadata([topic])).topics.values()
    every = [p for t in topics for p in t.partitions]
    facts, missing = await collect.partition_offsets(cluster, topics, every)
    if missing or any(f.error or f.last_stable_offset is None for f in facts):
        why = missing[0].detail if missing else "the broker did not return its offsets"
        raise IncompleteError(f"cannot be read: {why}", where=topic)
    return sorted(facts, key=lambda f: f.partition)


def stable(facts: PartitionFacts) -> int:
    """Return the last stable offset of a partition whose offsets are known."""
    assert facts.last_stable_offset is not None
    return facts.last_stable_offset


async def refuse_written(cluster: Cluster, output: PartitionFacts) -> None:
    """Refuse an output that holds records, if no position was committed.

    Records of a run that was killed in its first transaction do not count: they are aborted, or
    open and will be aborted by the copy's `Writer.open`.
    """
    where = str(output.topic_partition)
    refused = RefusedError(
        "it has been written to, but no position of this job is known: it has expired, or "
        "somebody else wrote",
        where=where,
        remedy="begin again with an empty output and another --job",
    )
    if output.log_start_offset != 0:
        raise refused
    end = stable(output)
    read = read_columns(
        cluster, Range(output.topic, output.partition, 0, end), last_stable_offset=end
    )
    async with aclosing(read):
        async for records in read:
            if (records.outcome != ABORTED).any():
                raise refused


async def refuse_other_log(
    cluster: Cluster, standing: Mapping[TopicPartition, CommittedPosition]
) -> list[str]:
    """Refuse positions of logs that were cut off since; return a sentence per unproven position.

    Raises RefusedError with the offset of the divergence, IncompleteError.
    """
    in_logs = {topic_partition: at.in_log for topic_partition, at in standing.items()}
    remedy = "begin again with an empty output and another --job"
    return await positions.refuse_other_logs(cluster, in_logs, remedy)


def refuse_lost(facts: PartitionFacts, start: int, end: int) -> None:
    """Refuse unless all of [start, end) exists and is decided: else records would be skipped."""
    assert facts.log_start_offset is not None
    name = str(facts.topic_partition)
    if start < facts.log_start_offset:
        raise RefusedError(
            f"the job is at offset {start}, the log begins at {facts.log_start_offset} now: "
            f"{counted(facts.log_start_offset - start, 'offset is', 'offsets are')} gone",
            where=name,
        )
    if stable(facts) < end:
        raise IncompleteError(
            f"it is to be read up to {end}, but its last stable offset is {stable(facts)} now: a "
            "new leader is behind, or the log was cut off",
            where=name,
            remedy="look with `eoctl lso`; where the log was cut off, begin again",
        )


async def _remembered(
    cluster: Cluster, job: DedupJob, part: DedupPart, kept: Storage | None
) -> Deduplicator:
    """Return the memory of all records of [begin, start): the kept part, the rest read again.

    Raises RefusedError if some were deleted: their repeats would be taken for new.
    """
    request, partition, begin, start = job.request, part.partition, part.begin, part.start
    settings = (request.source, partition, request.by, request.horizon_ms, request.horizon_offsets)
    memory = Deduplicator(*settings)
    from_file = None
    if kept is not None:
        from_file = dedup_memory.load(kept, request.job, partition, job.digest, start)
    if from_file is not None:
        try:
            memory.load(from_file[1])
            begin = from_file[0]
        except (ValueError, TypeError, KeyError, IndexError):  # a shortcut of another version
            memory = Deduplicator(*settings)
    where = str(TopicPartition(request.source, partition))
    if begin < start:
        there = "here" if kept is None else f"in {kept.address}"
        gone = f"what was copied of offsets [{begin}, {start}) is neither remembered {there} nor"
        remedy = "run it where it ran before, or begin again with an empty output"
        [facts] = [p for p in await partitions(cluster, request.source) if p.partition == partition]
        assert facts.log_start_offset is not None
        if begin < facts.log_start_offset:
            raise RefusedError(
                f"{gone} in the log, which begins at {facts.log_start_offset}",
                where=where,
                remedy=remedy,
            )
        await _read(cluster, job, partition, (begin, start), memory, None)
    if memory.tally.records != part.seen:  # in offsets: compaction leaves the log's start
        raise RefusedError(
            f"{counted(part.seen, 'record was', 'records were')} copied from offsets "
            f"[{part.begin}, {start}), and the log still holds {count(memory.tally.records)}: a "
            "repeat of another would be taken for new",
            where=where,
            remedy="run it where it ran before, or begin again with an empty output",
        )
    return memory


async def _read(
    cluster: Cluster,
    job: DedupJob,
    partition: int,
    offsets: tuple[int, int],
    memory: Deduplicator,
    progress: CopyProgress | None,
) -> None:
    """Judge the records of a range, for the memory and the tally only."""
    start, end = offsets
    done = 0

    def more(_bytes: int, count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, end - start)

    rate = job.request.max_rate
    read = read_columns(
        cluster,
        Range(job.request.source, partition, start, end),
        last_stable_offset=end,  # as when the range was chosen: a leader may lag since
        max_rate=rate,
        progress=more,
        nearest=True,
    )
    async with aclosing(read):
        async for records in read:
            await asyncio.to_thread(memory.judge, visible(records))


async def _copy(cluster: Cluster, copying: "_Copy", kept: Storage | None) -> Tally:
    job, part = copying.job, copying.part
    request, partition, start, end = job.request, part.partition, part.start, part.end
    [facts] = [p for p in await partitions(cluster, request.source) if p.partition == partition]
    refuse_lost(facts, start, end)
    memory = await _remembered(cluster, job, part, kept)
    before = Tally(**asdict(memory.tally))

    epochs = copying.epochs
    if start == end:  # nothing to read: ask about the record before it
        topic_partition = TopicPartition(request.source, partition)
        epoch = (await positions.record_epochs(cluster, {topic_partition: end}))[topic_partition]
        epochs.add([] if epoch is None else [(end - 1, end - 1, epoch)])

    async def commit(at: int) -> None:
        await asyncio.to_thread(copying.commit, at, memory.tally.records)
        if kept is not None:
            values = request.job, partition, at, job.digest, memory.dump()
            await asyncio.to_thread(dedup_memory.save, kept, *values)

    saved = time.monotonic()
    at = start
    rate = request.max_rate
    read = read_columns(
        cluster,
        Range(request.source, partition, start, end),
        last_stable_offset=end,
        max_rate=rate,
        nearest=True,
        epochs=epochs,
    )
    async with aclosing(read):
        while True:
            next_one = asyncio.ensure_future(anext(read, None))
            try:
                # if --max-rate is low, or a leader dies, no transaction must grow old over them
                if not (await asyncio.wait({next_one}, timeout=copying.seconds_left))[0]:
                    await asyncio.to_thread(copying.commit, at, memory.tally.records)
                records = await next_one
            finally:
                if not next_one.done():
                    next_one.cancel()
                    await asyncio.wait({next_one})
            if records is None:
                break
            if not len(records):
                continue
            at = int(records.offset[-1]) + 1
            await asyncio.to_thread(copying.send, visible(records), at, memory)
            if time.monotonic() - saved > SAVE_SECONDS:
                await commit(at)
                saved = time.monotonic()
    await commit(end)
    return memory.tally.since(before)


class _Copy:
    """The transactions of one partition's copy; used in a thread."""

    def __init__(
        self,
        writer: Writer,
        job: DedupJob,
        part: DedupPart,
        ensure_held: Callable[[], None],
        on_point: Callable[[str], None],
    ) -> None:
        self.job, self.part = job, part
        self._writer = writer
        self._ensure_held, self._told = ensure_held, on_point
        self._sent = 0
        self._until: float | None = None  # of the open transaction
        self.epochs = RecordEpochs()

    def send(self, records: ColumnBatch, position: int, memory: Deduplicator) -> None:
        """Send the records that are new, in order. position: after all that was read."""
        before = memory.tally.records
        copied = memory.judge(records)
        chosen = records.select(copied)
        visible_before = (before + 1 + copied.nonzero()[0]).tolist()  # for each, itself included
        output, times = self.job.request.output, chosen.timestamp.tolist()
        for i in range(len(chosen)):
            if self._until is None:
                self._ensure_held()
                self._writer.begin()
                self._sent, self._until = 0, time.monotonic() + TRANSACTION_SECONDS
            self._writer.send(
                output,
                self.part.partition,
                chosen.key[i],
                chosen.value[i],
                headers=chosen.header_list(i),
                timestamp=times[i],
            )
            self._sent += 1
            if self._sent >= TRANSACTION_RECORDS or time.monotonic() > self._until:
                self.commit(int(chosen.offset[i]) + 1, visible_before[i])
        # nothing is sent for repeats alone: the transaction must not time out over them
        if self._until is not None and time.monotonic() > self._until:
            self.commit(position, memory.tally.records)
        self._told("batch")

    @property
    def seconds_left(self) -> float | None:
        """Return for how long the open transaction may still run, None if none is open."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def commit(self, position: int, visible_records: int) -> None:
        """Commit the sent records and the position, even if nothing was sent. visible_records:
        their number from the job's first offset to the position."""
        self._ensure_held()
        if self._until is None:
            self._writer.begin()
        metadata = self.job.metadata(self.part.begin, self.part.end, visible_records)
        at = CommittedPosition(position, metadata, self.epochs.before(position))
        self._writer.commit({TopicPartition(self.job.request.source, self.part.partition): at})
        self._until = None
        self._told("committed")
