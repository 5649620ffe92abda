"""`audit end-to-end` on Spark: tasks read pieces of both topics, a shuffle brings ids together.

Both topics are read once. The records of some million ids are a bucket, kept on the executors'
disks: a first pass over all buckets says how far outputs reach, a second one judges. How many
rows were read and how many arrived is compared, as Spark reads a piece again when it has lost some;
at the end the logs must be those that were read.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eoctl.engine import id_buckets
from eoctl.engine.end_to_end_task import (
    compacted_topics,
    ids_of,
    read_rows,
    readers,
    refuse_changed,
)
from eoctl.engine.id_buckets import rows_of
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.pump import Reading
from recovery.answers import status_of
from recovery.audit.audit_request import Resolved
from recovery.audit.end_to_end import FIELDS, Cut, Judged, Reach, Verdicts
from recovery.audit.end_to_end_request import (
    EndToEndFound,
    EndToEndRead,
    EndToEndRequest,
    Tally,
    cut_of,
    not_seen,
)
from recovery.errors import IncompleteError
from recovery.facts import Missing
from recovery.shared.cut import ranges as parts
from spark_jobs import audits
from spark_jobs.audits import ANSWER, CountRecords, Give, Judge
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

ROWS = "piece int, told string, a bigint, b bigint, offset bigint, timestamp bigint, kind int"
"""The DDL of records that have an id. piece: the number of the range; of `told`, of the piece."""
NUMBERS = ("piece", "a", "b", "offset", "timestamp", "kind")
WHAT = "eoctl audit end-to-end"


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see EndToEndFound."""
    audit = job.understood(EndToEndRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 1)
    buckets = _Buckets(spark, audit, access, stages.stage("read records and judge"))
    try:
        tallies, failed, reach = buckets.reach()
        compacted = access.ask(lambda c: compacted_topics(c, audit.topics), read_only=True)
        cut = cut_of(audit, tallies, failed, reach, compacted)
        verdicts = buckets.judged(cut, tallies)
        ids = dict(zip(audit.topics, audit.topic_ids, strict=True))
        access.ask(lambda c: refuse_changed(c, ids, audit.ranges, tallies), read_only=True)
    finally:
        buckets.forget()
    named, known = access.ask(lambda c: readers(c, audit.scope, tallies), read_only=True)
    stages.end()
    found = EndToEndFound(
        failed=failed,
        scope=audit.scope,
        tallies=tuple(tallies),
        ends=tuple(cut.ends.tolist()),
        verdicts=verdicts,
        readers=named,
        readers_known=known,
    )
    status = status_of(not not_seen(found), verdicts.findings > 0)
    return audits.ended(audit, found, verdicts.findings, status)


class Joined(Protocol):
    """Something that every bucket gives a part of."""

    def add(self, rows: "NDArray[Any]") -> None: ...
    def dump(self) -> bytes: ...
    def join(self, content: bytes) -> None: ...


J = TypeVar("J", bound=Joined)


class _Buckets:
    """The records of both topics by id, on the executors' disks, read for the first pass."""

    def __init__(
        self, spark: "SparkSession", audit: EndToEndRequest, access: Access, done: CountRecords
    ) -> None:
        from pyspark import StorageLevel

        self._spark, self._audit = spark, audit
        self._refusals = executors.Refusals(spark)
        pieces = [
            (number, start, end)
            for number, r in enumerate(audit.ranges)
            if r.start < r.end
            for start, end in parts(r.start, r.end, audit.range_offsets)
        ]
        reading = audits.reading(spark, audit, len(pieces))
        give = _Pieces(audit, access, pieces, reading, audits.Unread(spark)).rows(done)
        frame = audits.frame(spark, give, len(pieces), ROWS, self._refusals)
        rows = frame.repartition(audits.buckets(audit, id_buckets.ROWS), "a")
        self._rows = rows.persist(StorageLevel.DISK_ONLY)

    def forget(self) -> None:
        self._rows.unpersist()

    def reach(self) -> tuple[list[Tally], tuple[Missing, ...], Reach]:
        """Return, by range, what was read, what could not be read, and how far outputs reach."""
        scope = self._audit.scope
        empty = partial(Reach, len(scope.inputs), len(scope.outputs))
        reads, reach = self._joined(empty, tells=True)
        tallies = [Tally(position=r.start) for r in self._audit.ranges]
        failed: dict[Any, Missing] = {}
        for one in reads:
            tallies[one.number].join(one.tally)
            for missing in one.failed:
                failed.setdefault(missing.topic_partition, missing)
        refuse_lost(self._audit.ranges, tallies, reach.rows.tolist())
        return tallies, tuple(failed.values()), reach

    def judged(self, cut: Cut, tallies: Sequence[Tally]) -> Verdicts:
        """Return the verdicts on all rows."""
        places = [r.topic_partition for r in self._audit.ranges]
        _, judged = self._joined(partial(Judged, places, cut, self._audit.most), tells=False)
        verdicts = judged.verdicts
        refuse_lost(self._audit.ranges, tallies, verdicts.counts.rows)
        return verdicts

    def _joined(self, empty: Callable[[], J], *, tells: bool) -> tuple[list[EndToEndRead], J]:
        """Return what all buckets give together. tells: return what the pieces' tasks told too.

        One task joins the parts: the driver gets them once, whatever the number of buckets.
        """
        rows = (
            self._rows.mapInArrow(_of_bucket(empty, id_buckets.MOST, tells), ANSWER)
            .repartition(1)
            .mapInArrow(_of_all(empty), ANSWER)
        )
        told, contents = audits.answers(self._spark, rows, EndToEndRead, WHAT, self._refusals)
        whole = empty()
        for content in contents:
            whole.join(content)
        return told, whole


def refuse_lost(
    ranges: Sequence[Resolved], tallies: Sequence[Tally], arrived: Sequence[int]
) -> None:
    """Raise IncompleteError if rows that were read did not arrive, or arrived twice."""
    for r, tally, rows in zip(ranges, tallies, arrived, strict=True):
        if tally.rows != rows:
            raise IncompleteError(
                f"{tally.rows:,} records were read and {rows:,} arrived: Spark lost some and read "
                "again, and since then records were deleted or a transaction has ended",
                where=str(r.topic_partition),
                remedy="run it again",
            )


@dataclass(frozen=True)
class _Pieces:
    """What tasks give of pieces: number of the range, start, end."""

    audit: EndToEndRequest
    access: Access
    pieces: Sequence[tuple[int, int, int]]
    reading: Reading
    unread: audits.Unread

    def rows(self, done: CountRecords) -> Give:
        """Return a function that gives a piece's records that have an id, and its tally."""

        def give(piece: int) -> "Iterator[pa.RecordBatch]":
            number, start, end = self.pieces[piece]
            tally = Tally(position=start)

            async def made(cluster: Cluster) -> "AsyncGenerator[pa.RecordBatch, None]":
                ids, scope = ids_of(self.audit, number), self.audit.scope
                rows = read_rows(
                    cluster, scope, number, end, tally, ids, self.reading, audits.untold
                )
                async with aclosing(rows):
                    async for part in rows:
                        yield _batch(part)

            key = self.audit.ranges[number].topic_partition
            failed = yield from audits.read(self.access, made, self.unread, key)
            done(end - start)
            read = EndToEndRead(failed=failed, number=number, tally=tally)
            yield audits.beside(piece, read, ROWS)

        return give


def _batch(rows: "NDArray[Any]") -> "pa.RecordBatch":
    """Return rows of the audit as rows of ROWS."""
    import numpy as np

    a, b = rows["id"].view(np.int64).reshape(-1, 2).T
    columns = {"piece": rows["range"], "a": a, "b": b, "kind": rows["kind"]}
    return audits.batch(columns | {n: rows[n] for n in ("offset", "timestamp")}, ROWS)


def _bucket(batches: "Iterator[pa.RecordBatch]", most: int) -> "NDArray[Any]":
    """Return the rows of all batches. Raises IncompleteError for more than `most`, once all were
    taken."""
    import numpy as np

    held, count = [np.zeros(0, FIELDS)], 0
    for one in batches:
        count += len(one)
        if count > most:
            held.clear()
            continue
        n = {name: one.column(name).to_numpy() for name in NUMBERS}
        ids = np.column_stack([n["a"], n["b"]]).view(np.uint64)
        held.append(rows_of(ids, n["offset"], n["timestamp"], n["piece"], n["kind"]))
    if count > most:
        raise id_buckets.few_ids()
    return np.concatenate(held)


def _of_bucket(empty: Callable[[], Joined], most: int, tells: bool) -> Judge:
    """Return a function that receives the rows of a bucket and gives its part of the whole."""

    def given(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        part = empty()
        told: list[pa.RecordBatch] = []
        try:
            part.add(_bucket(audits.apart(batches, told), most))
        except IncompleteError as error:  # another try meets it again
            yield audits.answer_row(json.dumps(executors.answered(error)))
            return
        if tells:
            yield from told
        yield audits.answer_row(content=part.dump())

    return given


def _of_all(empty: Callable[[], Joined]) -> Judge:
    """Return a function that joins the parts of all buckets, and passes on what is told."""

    def joined(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        whole = empty()
        for one in batches:
            pieces, answers, contents = one.columns
            for piece, answer, content in zip(pieces, answers, contents, strict=True):
                if content.is_valid:
                    # a part may be megabytes: no copies of them all
                    whole.join(content.as_buffer())
                else:
                    yield audits.answer_row(answer.as_py(), piece=piece.as_py())
        yield audits.answer_row(content=whole.dump())

    return joined


if __name__ == "__main__":
    job.main("audit_end_to_end", work)
