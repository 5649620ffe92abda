"""Run `merge replay` on Spark, for logs too big for one process; the output is identical.

The log is read first, in ranges, and refused if it is wrong, before anything is sent. Its entries
are joined with the inputs' records by topic, partition and offset, sorted by their position in the
log within each partition, staged once, and sent by the sink's attempts. These commit what the local
engine commits, under its transactional ids, so each engine can resume the other's replay.
"""

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.errors import EoctlError, RefusedError
from recovery.facts import TopicPartition
from recovery.formats.columns import ABORTED, OPEN
from recovery.merge.log import Tail, merge_format
from recovery.merge.merge_request import MergePart, ReplayRequest
from recovery.merge.reading import beyond, entries_of, goes_back, no_input, refuse_unreadable
from recovery.restart.observed import SourceRange
from recovery.shared import cut as cut_files
from recovery.shared.cut import ranges as pieces
from recovery.shared.log_position import EpochSteps
from spark_jobs.merge_rows import checked, decode
from spark_jobs.merge_sending import ReplayAttempt, Sending
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress
from spark_jobs.sink import staging
from spark_jobs.sink import write as sink
from spark_jobs.sink.commit import Work
from spark_jobs.source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROBES = 4
ROWS_PER_TRANSACTION = 100_000
LOG, INPUTS = "eoctl-merge-log", "eoctl-merge-inputs"

Sources = dict[TopicPartition, SourceRange]
"""What a stretch of the log names of each input partition."""


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job: read the log, refuse it or stage the merged stream, then send the stream."""
    replay = job.understood(ReplayRequest.model_validate, request)
    sink.refuse_speculation(spark)
    root, _, name = replay.staging.rpartition("/")
    shared = storage_at(root)
    shared.delete_folder(name)  # left by a killed run: everything is read again from its commit
    storage = storage_at(f"{replay.staging}/{uuid.uuid4().hex}")
    executors.check_storage(spark, storage, shared, PROBES)
    stages = _Stages(progress)
    try:
        stages.stage("read the log")
        scans = _scanned(spark, replay, access)
        ranges, entries = _judged(replay, scans)
        stages.stage("join and sort", sum(entries))
        files = _staged(spark, replay, access, storage, ranges)
        _refuse_other_rows(replay, files, entries)
        stages.stage("send", sum(f.rows for f in files))
        answers = _sent(spark, replay, access, storage, files, scans)
    finally:
        with suppress(EoctlError):  # the next run removes the files
            shared.delete_folder(name)
    return {
        "sent": {str(a["partition"]): a["sent"] for a in answers},
        "takeovers": sum(a["takeovers"] for a in answers),
    }


class _Stages:
    """The current one of three stages, and the number of records in each."""

    def __init__(self, progress: JobProgress) -> None:
        self._progress, self._number = progress, -1

    def stage(self, name: str, records: int | None = None) -> None:
        self._number += 1
        values = {"stage": name, "stages_done": self._number, "stages_total": 3}
        self._progress.watch({**values, "records": None, "records_total": records}.copy)


class Scan(NamedTuple):
    """What one part's log names before its position and from there on. end: the offset after the
    last entry. epochs: the entries' leader epochs, see `EpochSteps`."""

    before: Sources
    after: Sources
    end: int
    epochs: tuple[tuple[int, int], ...]


def _scanned(spark: "SparkSession", replay: ReplayRequest, access: Access) -> list[Scan]:
    """Read the log of each part. Raises RefusedError for a record that is not an entry."""
    stretches = [
        (number, later, start, end)
        for number, part in enumerate(replay.parts)
        for later, (low, high) in enumerate(
            [(part.base.merge_offset, part.position), (part.position, part.tip)]
        )
        if low < high
        for start, end in pieces(low, high, replay.range_offsets)
    ]

    def scan(task: int) -> list[Any]:
        number, _, start, end = stretches[task]
        return asyncio.run(_scan(access, replay, replay.parts[number], start, end))

    answers = executors.run(spark, scan, len(stretches), "eoctl merge replay: the log")
    ends = [part.position for part in replay.parts]
    each: dict[tuple[int, int], Sources] = {}
    epochs = [_epochs_of(part) for part in replay.parts]
    for (number, later, *_), (end, rows, steps) in zip(stretches, answers, strict=True):
        sources = {TopicPartition(t, p): SourceRange(*rest) for t, p, *rest in rows}
        each[number, later] = _joined(each.get((number, later), {}), sources)
        if later and end is not None:
            ends[number] = end
            for step in steps:
                epochs[number].add(*step)
    return [
        Scan(each.get((number, 0), {}), each.get((number, 1), {}), end, tuple(epochs[number].steps))
        for number, end in enumerate(ends)
    ]


def _epochs_of(part: MergePart) -> EpochSteps:
    epochs = EpochSteps()
    if part.position:
        epochs.add(part.position - 1, part.leader_epoch)
    return epochs


async def _scan(
    access: Access, replay: ReplayRequest, part: MergePart, start: int, end: int
) -> list[Any]:
    """Read a range of the log. Return the offset after its last entry (or None), rows of topic,
    partition and SourceRange's fields, and the steps of leader epochs."""
    tail, last, form, epochs = Tail(), None, merge_format(replay.format), EpochSteps()
    merge = TopicPartition(replay.merge, part.partition)
    async with Cluster(access.settings(), Deadline(None), read_only=True) as cluster:
        read = read_columns(cluster, Range(*merge, start, end), last_stable_offset=part.tip)
        async with aclosing(read):
            async for batch in read:
                visible = batch.select((batch.outcome != ABORTED) & (batch.outcome != OPEN))
                if not len(visible):
                    continue
                offsets = visible.offset.tolist()
                keys, values = visible.key.array().to_pylist(), visible.value.array().to_pylist()
                tail.add_all(entries_of(form, merge, offsets, keys, values))
                last = offsets[-1] + 1
                for offset, epoch in zip(offsets, visible.leader_epoch.tolist(), strict=True):
                    epochs.add(offset, epoch)
    rows = [
        [*partition, s.first, s.last, s.entries, s.rising] for partition, s in tail.sources.items()
    ]
    return [last, rows, epochs.steps]


def _joined(before: Sources, after: Sources) -> Sources:
    """Return two adjacent stretches as one."""
    sources = before | after
    for partition in before.keys() & after.keys():
        a, b = before[partition], after[partition]
        rising = a.rising and b.rising and a.last < b.first
        sources[partition] = SourceRange(a.first, b.last, a.entries + b.entries, rising)
    return sources


NumberedRange = tuple[int, str, int, int, int]
"""Number of the part, topic, partition, first offset, offset after the last."""


def _judged(replay: ReplayRequest, scans: list[Scan]) -> tuple[list[NumberedRange], list[int]]:
    """Return the input ranges to read for each part, and each part's number of entries.

    Raises RefusedError if the log names records that cannot be read, or names them out of order.
    """
    inputs, ranges, entries = replay.by_partition, list[NumberedRange](), list[int]()
    for number, (part, scan) in enumerate(zip(replay.parts, scans, strict=True)):
        before, after = scan.before, scan.after
        merge = TopicPartition(replay.merge, part.partition)
        for topic_partition, source in sorted(before.items()):
            if not source.rising:
                raise goes_back(merge, topic_partition)
        for topic_partition, source in sorted(after.items()):
            if topic_partition[0] not in replay.inputs or topic_partition not in inputs:
                raise no_input(merge, topic_partition)
            low, high = inputs[topic_partition].low, inputs[topic_partition].high
            refuse_unreadable(topic_partition, source.first, (low, high))
            if source.last >= high:
                raise beyond(topic_partition, source.last, high)
            begin = before[topic_partition].last + 1 if topic_partition in before else source.first
            if not source.rising or source.first < begin:
                raise goes_back(merge, topic_partition)
            if begin < low:
                raise RefusedError(
                    f"[{begin}, {low}) is gone, and the log may have left out records of it",
                    where=str(topic_partition),
                    remedy="begin at a later commit: --from-merge-offset, --output-offset",
                )
            ranges.append((number, *topic_partition, begin, source.last + 1))
        entries.append(sum(source.entries for source in after.values()))
    return ranges, entries


def _staged(
    spark: "SparkSession",
    replay: ReplayRequest,
    access: Access,
    storage: Storage,
    ranges: list[NumberedRange],
) -> list[staging.StagedFile]:
    """Stage a file for each part: its records in the log's order, without those to be dropped."""
    executors.ship(spark)
    parts = replay.parts
    numbers = {part.partition: number for number, part in enumerate(parts)}
    log = {
        TopicPartition(replay.merge, p.partition): (p.position, p.tip)
        for p in parts
        if p.position < p.tip
    }
    options = {"columns": "partition,offset,key,value"}
    entries = _source(spark, access, LOG, replay, log, storage, options).mapInArrow(
        decode(replay.format, replay.merge, numbers),
        "part int, merge_offset bigint, topic string, partition int, offset bigint",
    )
    inputs: dict[TopicPartition, tuple[int, int]] = {}
    for _, topic, partition, start, end in ranges:
        topic_partition = TopicPartition(topic, partition)
        low, high = inputs.get(topic_partition, (start, end))
        inputs[topic_partition] = min(low, start), max(high, end)
    options = {
        "columns": "topic,partition,offset,key,value,headers,timestamp",
        "isolation": replay.isolation,
    }
    if replay.max_rate is not None:
        options["max_rate"] = str(replay.max_rate)
    records = _source(spark, access, INPUTS, replay, inputs, storage, options)
    ordered = _joined_in_order(spark, entries, records, ranges, len(parts))
    return staging.stage(ordered, storage, len(parts), checked(replay))


def _source(
    spark: "SparkSession",
    access: Access,
    name: str,
    replay: ReplayRequest,
    ranges: dict[TopicPartition, tuple[int, int]],
    storage: Storage,
    options: dict[str, str],
) -> "DataFrame":
    """Return the Data Source's frame for these ranges of a cut."""
    file = f"{name}.json"
    storage.put(file, cut_files.dump(replay.cut(ranges)).encode())
    options |= {"cut": storage.shown(file), "range_offsets": str(replay.range_offsets)}
    register(spark, access, name, **options)
    return spark.read.format(name).load()


def _joined_in_order(
    spark: "SparkSession",
    entries: "DataFrame",
    records: "DataFrame",
    ranges: list[NumberedRange],
    parts: int,
) -> "DataFrame":
    """Return all entries with their records, part by part in the log's order. Rows with only one
    side remain, as reasons to refuse; those without an entry come first."""
    from pyspark.sql.functions import asc_nulls_first, broadcast, col, lit

    kinds = "part int, t string, p int, start bigint, end bigint"
    spans = broadcast(spark.createDataFrame(ranges, kinds))
    inside = (
        (col("topic") == col("t"))
        & (col("partition") == col("p"))
        & (col("offset") >= col("start"))
        & (col("offset") < col("end"))
    )
    mine = records.join(spans, inside).drop("t", "p", "start", "end").withColumn("there", lit(1))
    keys = ["part", "topic", "partition", "offset"]
    return (
        entries.join(mine, keys, "full_outer")
        .repartitionById(parts, col("part"))
        .sortWithinPartitions(asc_nulls_first("merge_offset"), "offset")
    )


def _refuse_other_rows(
    replay: ReplayRequest, files: list[staging.StagedFile], entries: Iterable[int]
) -> None:
    """Raise RefusedError if the number of staged rows is not the number of entries."""
    rows = [f.rows for f in files]
    expected = [n - part.drop_left for n, part in zip(entries, replay.parts, strict=True)]
    if rows != expected:
        raise RefusedError(
            f"records staged for each partition: {rows}, entries of the log: {expected}; nothing "
            "was sent",
            where=replay.merge,
        )


def _sent(
    spark: "SparkSession",
    replay: ReplayRequest,
    access: Access,
    storage: Storage,
    files: list[staging.StagedFile],
    scans: list[Scan],
) -> list[dict[str, int]]:
    works = [
        Sending(
            Work(
                access=access,
                job=replay.group,
                topic=replay.output,
                batch=0,
                manifest="",
                partition=part.partition,
                file=file,
                folder=storage.address,
                transaction_timeout_ms=sink.TRANSACTION_TIMEOUT_MS,
                rows_per_transaction=ROWS_PER_TRANSACTION,
            ),
            part,
            replay.merge,
            scan.end,
            scan.epochs,
        )
        for part, file, scan in zip(replay.parts, files, scans, strict=True)
    ]
    answers: list[dict[str, int]] = executors.run(
        spark,
        lambda number: ReplayAttempt(works[number]).run(),
        len(works),
        "eoctl merge replay: sending",
        sends=True,
    )
    return answers


if __name__ == "__main__":
    job.main("merge_replay", work)
