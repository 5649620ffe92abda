"""Run `dedup` on Spark: each task checks or copies one partition of the input.

Tasks do what `eoctl.engine.dedup_task` does for the local engine, and commit the same transactional
id, group and metadata. An attempt fences all others before it reads how far they came, on Spark or
in the local engine, so neither a retried task nor a zombie repeats a record.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from eoctl.engine import dedup_task
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.dedup.dedup_request import DedupInput, DedupJob, DedupPart, scattered_error
from recovery.dedup.repeats import Tally
from recovery.shared.source_numbers import Chunk, Scattered
from recovery.values import replace
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress
from spark_jobs.sink import write as sink
from spark_jobs.sink.taking_over import TakingOver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROBES = 4
PATIENCE_SECONDS = 3600.0  # an attempt that took over may read long before it moves the position


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job. Return {"tallies": T} for a check, {"copied": T} for a copy. T: {partition:
    tally}; a copy's tally is that of the attempt that finished it."""
    copying, rule = job.understood(_read, request)
    sink.refuse_speculation(spark)
    if copying.memory is not None and copying.shared:
        storage = storage_at(copying.memory)
        executors.check_storage(spark, storage, storage, PROBES)
    offsets = sum(part.end - part.start for part in copying.parts)
    stage = {"stage": "copy" if copying.copies else "look", "stages_done": 0, "stages_total": 1}
    progress.watch({**stage, "records": None, "records_total": offsets}.copy)
    tasks = Tasks(access, rule, copying)
    if copying.copies:
        answers = executors.run(
            spark,
            lambda number: tasks.copy(copying.parts[number]),
            len(copying.parts),
            "eoctl dedup: copy",
            sends=True,
        )
        return {"copied": _by_partition(copying, answers)}
    return {"tallies": _by_partition(copying, _looked(spark, tasks))}


def _read(request: Mapping[str, Any]) -> tuple[DedupInput, DedupJob]:
    """Return the request, and the job with each task's share of the rate limit."""
    copying = DedupInput.model_validate(request)
    rule = copying.job
    if rule.request.max_rate is not None:
        rate = max(1.0, rule.request.max_rate / len(copying.parts))
        rule = replace(rule, request=replace(rule.request, max_rate=rate))
    return copying, rule


def _by_partition(copying: DedupInput, answers: list[Any]) -> dict[str, Any]:
    return {str(p.partition): answer for p, answer in zip(copying.parts, answers, strict=True)}


class Tasks:
    """The work of the tasks; pickled with the cluster's access."""

    def __init__(self, access: Access, rule: DedupJob, copying: DedupInput) -> None:
        self.access, self.rule, self.asked = access, rule, copying

    @property
    def memory(self) -> Storage | None:
        return None if self.asked.memory is None else storage_at(self.asked.memory)

    def look(self, part: DedupPart, scattered: Scattered | None) -> dict[str, int]:
        """Return the tally of one part. scattered: collects the part's source records."""

        async def ask(cluster: Cluster) -> Tally:
            return await dedup_task.look(cluster, self.rule, part, self.memory, scattered)

        return asdict(self.access.ask(ask))

    def copy(self, part: DedupPart) -> dict[str, int]:
        """Copy one part to its end and return the tally."""
        done: dict[str, int] = _Copying(self, part).run()
        return done


class _Copying(TakingOver):
    """One attempt to copy a part."""

    def __init__(self, tasks: Tasks, part: DedupPart) -> None:
        request = tasks.rule.request
        name = f"{request.output}:{part.partition}"
        super().__init__(tasks.access, name, dedup_task.TRANSACTION_MS, PATIENCE_SECONDS)
        self._tasks, self._part = tasks, part
        self._left: DedupPart | None = None
        self._tally = Tally()

    @property
    def ids(self) -> tuple[str, str]:
        rule = self._tasks.rule
        return rule.transactional_id(self._part.partition), rule.request.group

    def position(self) -> int | None:
        async def ask(cluster: Cluster) -> DedupPart | None:
            return await dedup_task.left(cluster, self._tasks.rule, self._part)

        self._left = self._tasks.access.ask(ask)
        return None if self._left is None else self._left.start

    def _send_from(self, position: int) -> None:
        writer, tasks, left = self.writer, self._tasks, self._left
        assert writer is not None
        assert left is not None

        async def copy(cluster: Cluster) -> Tally:
            return await dedup_task.copy(cluster, tasks.rule, left, writer, tasks.memory)

        self._tally = tasks.access.ask(copy)

    def _answer(self, takeovers: int) -> dict[str, int]:
        return asdict(self._tally)


def _looked(spark: "SparkSession", tasks: Tasks) -> list[dict[str, int]]:
    """Return the tally of each part. Raises the first failed part's error, and RefusedError if
    outputs of one source record are in two partitions."""
    parts, request = tasks.asked.parts, tasks.rule.request
    executors.ship(spark)
    tasks_and_chunks = "task int, answer string, topic binary, source string, number long, part int"
    schema = f"{tasks_and_chunks}, bits binary"
    refusals = executors.Refusals(spark)

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                scattered = Scattered() if request.by.kind == "source" else None
                one = partial(tasks.look, scattered=scattered)
                answer = refusals.tried(one, parts[task])
                yield _row(task=task, answer=json.dumps(answer))
                for chunk in scattered.chunks() if scattered is not None else ():
                    topic = chunk.topic.encode("utf-8", "surrogateescape")
                    yield _row(None, None, topic, str(chunk.source), *chunk[2:])

    def join(table: Any) -> Any:
        return _scattered_rows(table)

    count = len(parts)
    frame = spark.range(0, count, 1, count).mapInArrow(look, schema)
    joined = frame.groupBy("task", "topic", "source", "number").applyInArrow(
        join, "task int, answer string, found string"
    )
    rows = executors.collected(spark, joined, "eoctl dedup: look", refusals)
    answers = {row["task"]: json.loads(row["answer"]) for row in rows if row["found"] is None}
    in_order = [answers[task] for task in range(count)]
    executors.raise_first(in_order)
    if twice := sorted(row["found"] for row in rows if row["found"] is not None):
        raise scattered_error(request, twice[0])
    return [one["answer"] for one in in_order]


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("task", pa.int32()),
            ("answer", pa.string()),
            ("topic", pa.binary()),
            ("source", pa.string()),  # may be any number of 19 digits
            ("number", pa.int64()),
            ("part", pa.int32()),
            ("bits", pa.binary()),
        ]
    )


def _row(
    task: int | None,
    answer: str | None,
    topic: bytes | None = None,
    source: str | None = None,
    number: int | None = None,
    part: int | None = None,
    bits: bytes | None = None,
) -> Any:
    """Return a row with a task's answer, or with a chunk of the source offsets it saw."""
    import pyarrow as pa

    cells = (task, answer, topic, source, number, part, bits)
    return pa.RecordBatch.from_arrays(
        [pa.array([c], f.type) for c, f in zip(cells, _schema(), strict=True)], schema=_schema()
    )


def _scattered_rows(table: Any) -> Any:
    """Return answers as they are. Return a row for a stretch of a source if two partitions' chunks
    share an offset in it."""
    import pyarrow as pa

    schema = pa.schema([("task", pa.int32()), ("answer", pa.string()), ("found", pa.string())])
    rows = []
    scattered = Scattered()
    for row in table.to_pylist():
        if row["task"] is not None:
            rows.append({"task": row["task"], "answer": row["answer"], "found": None})
            continue
        topic = row["topic"].decode("utf-8", "surrogateescape")
        source = int(row["source"])
        scattered.add_chunk(Chunk(topic, source, row["number"], row["part"], row["bits"]))
    if scattered.found:
        rows.append({"task": None, "answer": None, "found": scattered.found})
    return pa.Table.from_pylist(rows, schema=schema)


if __name__ == "__main__":
    job.main("dedup", work)
