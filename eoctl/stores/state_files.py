"""The files of a state: Parquet with its rows, and runs, what did not fit into memory meanwhile.

Each file has a name that no other attempt has, and counts only once a manifest lists it with its
hash: what a killed task leaves behind is never taken for a result.
"""

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.errors import RefusedError
from recovery.formats.columns import rows_schema

if TYPE_CHECKING:
    import pyarrow as pa

DATA, RUNS = "data", "runs"
_ROWS_AT_ONCE = 1 << 16
BUCKETS = 256  # of a run: a key's hash tells its bucket, in every run alike


@dataclass(frozen=True, slots=True)
class StateFile:
    """A Parquet file. path: relative to the state's folder. size: bytes."""

    path: str
    rows: int
    size: int
    sha256: str


class StateWriter:
    """Writes the rows of one partition: `write` tables, then `close`.

    Columns: partition int32, offset int64, timestamp int64 (ms), key and value binary, then those
    that the format adds.
    """

    def __init__(self, folder: Path, topic: str, partition: int) -> None:
        self._folder = folder
        self._partition = partition
        self._relative = f"{DATA}/{topic}/{partition}-{uuid.uuid4()}.parquet"
        self._path = folder / self._relative
        self._writer: Any = None
        self._rows = 0

    def write(self, rows: "pa.Table") -> None:
        """Live rows, as `ChangelogFormat.finish` gives them."""
        import pyarrow.parquet as pq

        whole = rows.add_column(0, "partition", _same(self._partition, len(rows)))
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._path,
                whole.schema,
                compression="zstd",
                use_dictionary=False,
                write_statistics=["partition", "offset", "timestamp"],
                store_schema=False,
            )
        if len(whole):
            self._writer.write_table(whole)
        self._rows += len(whole)

    def close(self) -> StateFile:
        """The file, safe on disk. `write` must have been called, if only with an empty table."""
        self._writer.close()
        size = sync(self._path)
        return StateFile(self._relative, self._rows, size, sha256_of(self._path))


def _same(value: int, n: int) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(
        pa.int32(), n, [None, pa.py_buffer(np.full(n, value, dtype=np.int32))]
    )


def write_run(folder: Path, name: str, buckets: Iterable["pa.Table"]) -> str:
    """One table per bucket; the run's path, relative to `folder`."""
    import pyarrow as pa

    relative = f"{RUNS}/{name}-{uuid.uuid4()}.arrow"
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    writer: Any = None
    with pa.OSFile(str(path), "wb") as file:
        for table in buckets:
            if writer is None:
                writer = pa.ipc.new_file(file, table.schema)
            batches = table.combine_chunks().to_batches()
            writer.write_batch(batches[0] if batches else _no_rows(table.schema))
        writer.close()
    return relative


def read_bucket(folder: Path, run: str, bucket: int) -> "pa.Table":
    """One bucket of a run."""
    import pyarrow as pa

    with pa.OSFile(str(folder / run), "rb") as file:
        return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(bucket)])


def _no_rows(schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    nothing = pa.py_buffer(bytes(8))
    arrays = [
        pa.Array.from_buffers(
            t, 0, [None, nothing, nothing] if pa.types.is_large_binary(t) else [None, nothing]
        )
        for t in schema.types
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_rows(folder: Path, file: StateFile) -> Iterator["pa.RecordBatch"]:
    """The records of a listed file, without what the format added. Raises RefusedError when it is
    not what the manifest lists."""
    import pyarrow.parquet as pq

    check_file(folder, file)
    schema = rows_schema()
    opened = pq.ParquetFile(folder / file.path)
    for group in range(opened.num_row_groups):
        table = opened.read_row_group(group, columns=schema.names).cast(schema)
        yield from table.to_batches(max_chunksize=_ROWS_AT_ONCE)


def check_file(folder: Path, file: StateFile) -> None:
    """Raises RefusedError when a listed file is missing or has changed."""
    path = folder / file.path
    try:
        if path.stat().st_size == file.size and sha256_of(path) == file.sha256:
            return
        what = "has changed since the manifest was written"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    raise RefusedError(what, where=str(path), remedy="rebuild the state")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> int:
    """Make a written file survive a power cut; its size."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
