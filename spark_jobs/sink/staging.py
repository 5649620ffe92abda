"""Stage a DataFrame once: Parquet files that no later attempt changes, and their manifest.

A non-deterministic DataFrame gives different rows each time it is evaluated, so it is evaluated
exactly once: tasks write files under names of their own, and the manifest, published once and in
one step, names the files that count. Every sender sends what the manifest lists.
"""

import hashlib
import json
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.stores.storage import Storage, not_written
from eoctl.stores.storage_address import storage_at
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.values import Value
from spark_jobs.session import executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""What a row may hold, and of which Spark types: as Spark's own Kafka sink."""
MANIFEST = "manifest.json"


Through = Callable[[Iterator[Any]], Iterator[Any]]
"""Makes Arrow batches of others, within one partition."""


class Row(NamedTuple):
    """One record to send.

    timestamp: epoch ms. partition None: by the key's murmur2 hash. position: not sent; the sender's
    commits express their progress in it.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None
    timestamp: int | None
    position: int | None = None


class StagedFile(Value):
    """One sink partition's file: its name below the batch's folder, and its content."""

    partition: int
    file: str
    rows: int
    bytes: int
    sha256: str


class Manifest(Value):
    """The content of one batch. topic ids: a recreated topic is another topic.

    run: the run that owns the batch, because batch numbers recur (a streaming query whose
    checkpoint was deleted begins at 0): the query's id, or what the caller gave; None if neither is
    known. planned: SHA-256 of what the query's checkpoint said about the batch (see
    `spark_jobs.sink.query`); None if no query sends it.
    """

    job: str
    batch: int
    topic: str
    topic_id: str | None
    marker_topic_id: str | None
    files: tuple[StagedFile, ...]
    created: int
    run: str | None = None
    planned: str | None = None

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    def encode(self) -> bytes:
        """Return JSON. A run or planned of None is left out: older markers' hashes lack them."""
        fields = self.as_dict()
        for name in ("run", "planned"):
            if fields[name] is None:
                del fields[name]
        return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()


def load(storage: Storage) -> Manifest | None:
    """Return the manifest published in a batch's folder, None if none is. Raises RefusedError."""
    try:
        fields = json.loads(storage.get(MANIFEST))
        files = tuple(StagedFile(**f) for f in fields["files"])
        if outside := [
            f.file for f in files if f.file in ("", "..") or Path(f.file).name != f.file
        ]:
            raise ValueError(f"it lists {outside[0]!r}, which leads out of the batch's folder")
        return Manifest(**{**fields, "files": files})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        where = storage.shown(MANIFEST)
        raise RefusedError(f"not a staging manifest: {error}", where=where) from None


def publish(storage: Storage, manifest: Manifest) -> Manifest:
    """Publish unless another run was first; return the published manifest.

    Raises IncompleteError: disk full; UnreachableError.
    """
    storage.put_new(MANIFEST, manifest.encode())  # never overwrites another one
    published = load(storage)
    assert published is not None
    return published


def as_records(frame: "DataFrame") -> "DataFrame":
    """Return a record's columns, key and value as bytes. Raises UsageError for other columns."""
    from pyspark.sql.functions import col

    kinds = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    for column, kind in kinds.items():
        allowed = COLUMNS.get(column)
        if allowed is None or kind not in allowed:
            raise UsageError(
                f"column {column} of type {kind} is not a part of a record",
                remedy="select key, value (string or binary) and, where wanted, headers "
                f"({COLUMNS['headers'][0]}), partition (int), timestamp",
            )
    if "value" not in kinds:
        raise UsageError("the DataFrame has no column value")
    binary = [
        col(c).cast("binary").alias(c) if c in ("key", "value") else col(c)
        for c in COLUMNS
        if c in kinds
    ]
    return frame.select(*binary)


def stage(
    frame: "DataFrame", storage: Storage, partitions: int | None, through: Through | None = None
) -> list[StagedFile]:
    """Evaluate the frame once and write a file per partition of the frame.

    partitions: the sink's number, None: not known. A frame may have fewer (one that Spark knows to
    be empty has none, adaptive execution joins small ones): the rest are files without rows.
    through: makes rows of what the frame gives, in its tasks; None: the frame has the rows'
    columns. Raises UsageError, IncompleteError (disk full), UnreachableError (no answer).
    """
    address, token = storage.address, uuid.uuid4().hex
    executors.ship(frame.sparkSession)
    refusals = executors.Refusals(frame.sparkSession)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        rows = batches if through is None else through(batches)
        answer = refusals.tried(lambda given: _staged(address, token, given), rows)
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    given = as_records(frame) if through is None else frame
    written = given.mapInArrow(write, "answer string")
    try:
        rows = executors.collected(frame.sparkSession, written, "eoctl sink: staging", refusals)
        answers = [json.loads(row["answer"]) for row in rows]
        executors.raise_first(answers)
    except Exception:  # the other tasks' files no longer count
        with suppress(OSError, EoctlError):
            storage.delete(name for name in storage.top() if token in name)
        raise
    if not answers and partitions is None:
        raise UsageError(
            "the DataFrame is empty, and nothing says how many partitions the sink has",
            remedy="give partitions=",
        )
    empty = range(len(answers), partitions or 0)
    answers += [{"answer": _write(address, token, p, iter(()))} for p in empty]
    files = sorted((StagedFile(**a["answer"]) for a in answers), key=lambda f: f.partition)
    if [f.partition for f in files] != list(range(len(files))):
        raise RefusedError("the DataFrame's partitions are not numbered from 0", where=address)
    sizes = storage.sizes("")
    for one in files:
        if sizes.get(one.file) != one.bytes:
            raise RefusedError(
                "a staged file is not seen by the process that publishes it",
                where=storage.shown(one.file),
            )
    return files


def _staged(address: str, token: str, batches: Iterator[Any]) -> dict[str, Any]:
    """Stage one task's rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return _write(address, token, context.partitionId(), batches)


def _write(address: str, token: str, partition: int, batches: Iterator[Any]) -> dict[str, Any]:
    """Write rows into a file of this attempt's own name; leave no file if writing fails.

    token: of the complete staging.
    """
    storage = storage_at(address)
    name = f"part-{partition:05}-{token}-{uuid.uuid4().hex}.parquet"
    try:
        with storage.writing(name):
            return _written(storage, name, partition, batches).as_dict()
    except BaseException as error:
        with suppress(OSError, EoctlError):
            storage.delete([name])
        if isinstance(error, OSError):
            raise not_written(Path(storage.shown(name)), error) from None
        raise


def _written(storage: Storage, name: str, partition: int, batches: Iterator[Any]) -> StagedFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = storage.new_file(name)
    rows, writer = 0, None
    for batch in batches:
        _refuse_zero_timestamps(batch, rows)
        if writer is None:
            writer = pq.ParquetWriter(file.sink, batch.schema, compression="zstd")
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is None:
        writer = pq.ParquetWriter(file.sink, pa.schema([("value", pa.binary())]))
    writer.close()
    size, sha256 = file.finish()
    return StagedFile(partition, name, rows, size, sha256)


def _refuse_zero_timestamps(batch: Any, before: int) -> None:
    """Raise RefusedError for timestamp 0: librdkafka would take it for none and write the time."""
    import pyarrow.compute as pc

    if "timestamp" in batch.schema.names:
        is_zero = pc.equal(_millis(batch.column("timestamp")), 0)
        if pc.any(is_zero).as_py():
            raise RefusedError(
                "its timestamp is 1970-01-01T00:00:00Z, which would be sent as now",
                where=f"row {before + is_zero.to_pylist().index(True)} of a partition",
                remedy="give it another one, or none",
            )


def _millis(timestamps: Any) -> Any:
    return timestamps.cast("timestamp[ms]", safe=False).cast("int64")


def row_at(storage: Storage, staged: StagedFile, position: int) -> int:
    """Return the first staged row at or above a position; rows are ordered by position."""
    import pyarrow.parquet as pq

    if not staged.rows:
        return 0
    rows_before = 0
    for batch in pq.ParquetFile(storage.opened(staged.file, staged.bytes)).iter_batches(
        columns=["position"]
    ):
        positions = batch.column(0).to_pylist()
        if positions[-1] >= position:
            return rows_before + bisect_left(positions, position)
        rows_before += len(positions)
    return rows_before


def rows_from(storage: Storage, staged: StagedFile, start: int) -> Iterator[Row]:
    """Yield the staged rows from number `start` on, in order. Raises RefusedError if changed."""
    import pyarrow.parquet as pq

    where = storage.shown(staged.file)
    try:
        digest = storage.sha256(staged.file, staged.bytes)
    except OSError as error:
        raise RefusedError(f"staged file is gone: {error.strerror}", where=where) from None
    if digest != staged.sha256:
        raise RefusedError("staged file is not what the manifest says", where=where)
    at = 0
    for batch in pq.ParquetFile(storage.opened(staged.file, staged.bytes)).iter_batches():
        if at + batch.num_rows > start:
            yield from _rows(batch.slice(max(0, start - at)))
        at += batch.num_rows


def _rows(batch: Any) -> Iterator[Row]:
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "timestamp":
            column = _millis(column)
        columns[name] = column.to_pylist()
    nothing: list[Any] = [None] * batch.num_rows
    headers = [
        None if entry is None else [(h["key"], h["value"]) for h in entry]
        for entry in columns.get("headers", nothing)
    ]
    return (
        Row(*fields)
        for fields in zip(
            columns.get("key", nothing),
            columns.get("value", nothing),
            headers,
            columns.get("partition", nothing),
            columns.get("timestamp", nothing),
            columns.get("position", nothing),
            strict=True,
        )
    )
