"""Run `audit duplicates` on Spark: shuffle the ids to find suspects, then read those again.

The first pass sends each record's id (16 bytes) to the task that sees all records of that id. This
task names the ids that may occur more than once. The second pass, needed only if some do, reads the
records of those ids; a shuffle brings them together in the order of partitions and offsets.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import visible
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.pump import Reading
from recovery.audit.audit_request import (
    DuplicatesFound,
    DuplicatesRequest,
    RecordsRead,
    Resolved,
    joined_duplicates,
)
from recovery.audit.duplicates import Copies, Copy, Suspect, Suspects, suspects_of
from recovery.errors import IncompleteError
from recovery.facts import Missing
from recovery.formats.columns import ColumnBatch
from recovery.shared.cut import ranges as parts
from recovery.shared.record_ids import RecordId, digests
from recovery.values import replace
from spark_jobs import audits
from spark_jobs.audits import ANSWER, CountRecords, Give, Judge
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

IDS = "piece int, told string, a bigint, b bigint"
SUSPECTS = f"{IDS}, offset bigint, timestamp bigint, value bigint, size bigint, id binary"
WHAT = "eoctl audit duplicates"
CONTENT = 1 << 20  # halves of ids that one row returns to the driver
MOST_SUSPECTS = 50_000_000
"""Each worker that reads holds all, 8 bytes each; the job's own process some four copies."""


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see DuplicatesFound."""
    audit = job.understood(DuplicatesRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 2)
    done = stages.stage("read ids")
    pieces = [
        replace(r, start=start, end=end)
        for r in audit.ranges
        if r.start < r.end
        for start, end in parts(r.start, r.end, audit.range_offsets)
    ]
    reading = audits.reading(spark, audit, len(pieces))
    each = _Pieces(audit.by, access, pieces, reading, audits.Unread(spark))
    count, refusals = audits.buckets(audit), executors.Refusals(spark)
    results: list[DuplicatesFound] = []
    if pieces:
        ids = audits.frame(spark, each.ids(done), len(pieces), IDS, refusals)
        rows = ids.repartition(count, "a").mapInArrow(
            _suspected(2 * audit.offsets // count), ANSWER
        )
        results, contents = audits.answers(spark, rows, DuplicatesFound, WHAT, refusals)
        if contents:
            done = stages.stage("read suspects")
            halves = suspects_in(contents)
            failed = {key for f in results for key in f.unread}
            again = [
                number for number, piece in enumerate(pieces) if piece.topic_partition not in failed
            ]
            second = each.suspects(again, halves, done)
            suspects = audits.frame(spark, second, len(again), SUSPECTS, refusals)
            rows = (
                suspects.repartition(count, "a")
                .sortWithinPartitions("a", "b", "piece", "offset")
                .mapInArrow(_copies(pieces, audit.most), ANSWER)
            )
            results += audits.answers(spark, rows, DuplicatesFound, WHAT, refusals)[0]
    whole = joined_duplicates(results, audit.most)
    stages.end()
    return audits.ended(audit, whole, whole.findings)


def suspects_in(contents: Sequence[bytes], most: int = MOST_SUSPECTS) -> "NDArray[np.uint64]":
    """Return uint64[m], ascending: the first halves of all ids that some task suspects.

    Raises IncompleteError if there are more suspects than workers may be given.
    """
    import numpy as np

    if (count := sum(map(len, contents)) // 8) > most:
        raise IncompleteError(
            f"{count:,} ids may be duplicated, and tasks are given {most:,} at most",
            where=WHAT,
            remedy="name fewer topics or a shorter range with --start and --end, or use "
            "--engine local, which takes some 1.3 KB of memory for each",
        )
    return np.unique(np.frombuffer(b"".join(contents), np.uint64))


@dataclass(frozen=True)
class _Pieces:
    """What the tasks of either pass return for pieces of the ranges."""

    by: RecordId
    access: Access
    pieces: Sequence[Resolved]
    reading: Reading
    unread: audits.Unread

    def ids(self, done: CountRecords) -> Give:
        """Return the first pass: it gives ids, and the number of records."""

        def give(number: int) -> "Iterator[pa.RecordBatch]":
            piece, records, without_id = self.pieces[number], 0, 0

            def of(part: ColumnBatch) -> "pa.RecordBatch":
                nonlocal records, without_id
                ids, has = digests(self.by, part)
                records += len(part)
                without_id += len(part) - int(has.sum())
                return audits.batch(_halves(ids[has]), IDS)

            failed = yield from self._read(number, of)
            done(self.pieces[number].end - self.pieces[number].start)
            read = RecordsRead(
                topic=piece.topic, partition=piece.partition, records=records, without_id=without_id
            )
            yield audits.beside(number, DuplicatesFound(failed=failed, read=(read,)), IDS)

        return give

    def suspects(
        self, numbers: Sequence[int], halves: "NDArray[np.uint64]", done: CountRecords
    ) -> Give:
        """Return the second pass over some pieces: it gives the records of suspects."""

        def give(task: int) -> "Iterator[pa.RecordBatch]":
            number = numbers[task]
            key = self.pieces[number].topic_partition

            def of(part: ColumnBatch) -> "pa.RecordBatch":
                return _rows(number, list(suspects_of(self.by, key, part, halves)))

            failed = yield from self._read(number, of)
            done(self.pieces[number].end - self.pieces[number].start)
            yield audits.beside(number, DuplicatesFound(failed=failed), SUSPECTS)

        return give

    def _read(
        self, number: int, of: "Callable[[ColumnBatch], pa.RecordBatch]"
    ) -> "Generator[pa.RecordBatch, None, tuple[Missing, ...]]":
        """Apply `of` to a piece's records; return why reading stopped early, if it did."""
        piece = self.pieces[number]

        async def made(cluster: Cluster) -> "AsyncGenerator[pa.RecordBatch, None]":
            parts = visible(cluster, piece, self.reading, audits.untold)
            async with aclosing(parts):
                async for part in parts:
                    yield of(part)

        return (yield from audits.read(self.access, made, self.unread, piece.topic_partition))


def _halves(ids: "NDArray[np.uint64]") -> dict[str, Any]:
    import numpy as np

    signed = ids.view(np.int64)
    return {"a": signed[:, 0], "b": signed[:, 1]}


def _rows(number: int, suspects: Sequence[Suspect]) -> "pa.RecordBatch":
    """Return suspects as rows of SUSPECTS."""
    import numpy as np

    ids = np.frombuffer(b"".join(s.digest for s in suspects), np.uint64).reshape(-1, 2)
    values = np.array([s.value_digest for s in suspects], np.uint64)
    columns = {
        "piece": [number] * len(suspects),
        "offset": [s.copy.offset for s in suspects],
        "timestamp": [s.copy.timestamp for s in suspects],
        "value": values.view(np.int64),
        "size": [s.size for s in suspects],
        "id": [s.id for s in suspects],
    }
    return audits.batch({**columns, **_halves(ids)}, SUSPECTS)


def _suspected(expected: int) -> Judge:
    """Return a function that receives all records' ids and finds those that may occur twice."""

    def suspected(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import numpy as np

        suspects = Suspects(expected)
        beside: list[pa.RecordBatch] = []
        for batch in audits.apart(batches, beside):
            columns = [batch.column(name).to_numpy() for name in ("a", "b")]
            suspects.add(np.column_stack(columns).view(np.uint64))
        yield from beside
        halves = suspects.halves()
        for at in range(0, len(halves), CONTENT):
            yield audits.answer_row(content=halves[at : at + CONTENT].tobytes())

    return suspected


def _copies(pieces: Sequence[Resolved], most: int) -> Judge:
    """Return a function that judges records that arrive by id, in the order of partitions."""

    def judged(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        copies = Copies(most)
        beside: list[pa.RecordBatch] = []
        rows = audits.rows_apart(batches, beside)
        for (a, b), same in groupby(rows, key=lambda row: (row["a"], row["b"])):
            digest = b"".join(half.to_bytes(8, "little", signed=True) for half in (a, b))
            for row in same:
                topic, partition = pieces[row["piece"]].topic_partition
                copy = Copy(topic, partition, row["offset"], row["timestamp"])
                copies.add(Suspect(digest, row["id"], row["size"], copy, row["value"]))
            copies.end()
        yield from beside
        result = DuplicatesFound(
            findings=copies.findings, repeats=copies.repeats, shown=tuple(copies.duplicates())
        )
        yield audits.answer_row(audits.answer_json(result))

    return judged


if __name__ == "__main__":
    job.main("audit_duplicates", work)
