"""The files of a state: Parquet with its rows, and runs, what did not fit into memory meanwhile.

Each file has a name that no other attempt has, and counts only once a manifest lists it with its
hash: what a killed task leaves behind is never taken for a result.
"""

import errno
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from eoctl.stores import private
from recovery.errors import EoctlError, IncompleteError, RefusedError, UsageError
from recovery.formats.columns import rows_schema

if TYPE_CHECKING:
    import pyarrow as pa

DATA, RUNS = "data", "runs"
_ROWS_AT_ONCE = 1 << 16
GROUP_ROWS = 1 << 16  # of a row group at least, but for a file's last one
BUCKETS = 256  # of a run: a key's hash tells its bucket, in every run alike
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        self._held: list[pa.Table] = []
        self._held_rows = self._rows = 0

    def write(self, rows: "pa.Table") -> None:
        """Live rows, as `ChangelogFormat.finish` gives them. Raises IncompleteError: disk full."""
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.concat_tables(self._held)
        self._held, self._held_rows = [], 0
        whole = rows.add_column(0, "partition", _same(self._partition, len(rows)))
        with _writing(self._path):
            if self._writer is None:
                private.make_folder(self._path.parent)
                self._writer = pq.ParquetWriter(
                    private.make_file(self._path),
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
        """The file, safe on disk. `write` must have been called, if only with an empty table.

        Raises IncompleteError: disk full.
        """
        if self._held:
            self._write_group()
        with _writing(self._path):
            self._writer.close()
            size = sync(self._path)
        return StateFile(self._relative, self._rows, size, sha256_of(self._path))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full disk in a sentence, and what could not be written whole takes no room on it."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        if error.errno in _FULL:
            raise not_written(path, error) from None
        raise


def not_written(path: Path, error: OSError) -> EoctlError:
    """Return the error for a file of a state that cannot be written."""
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno not in _FULL:
        return UsageError(f"cannot be written: {why}", where=str(path))
    return IncompleteError(
        f"cannot be written: {why}",
        where=str(path),
        remedy="make space there, and run the same command again: it continues",
    )


def _same(value: int, n: int) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(
        pa.int32(), n, [None, pa.py_buffer(np.full(n, value, dtype=np.int32))]
    )


def write_run(folder: Path, name: str, buckets: Iterable["pa.Table"]) -> str:
    """One table per bucket; the run's path, relative to `folder`. Raises IncompleteError: disk
    full."""
    import pyarrow as pa

    relative = f"{RUNS}/{name}-{uuid.uuid4()}.arrow"
    path = folder / relative
    with _writing(path):
        private.make_folder(path.parent)
        with pa.OSFile(str(private.make_file(path)), "wb") as file:
            _write_tables(file, buckets)
    return relative


def _write_tables(file: Any, tables: Iterable["pa.Table"]) -> None:
    """Write tables as record batches of one Arrow file."""
    import pyarrow as pa

    writer: Any = None
    for table in tables:
        if writer is None:
            writer = pa.ipc.new_file(file, table.schema)
        batches = table.combine_chunks().to_batches()
        writer.write_batch(batches[0] if batches else _no_rows(table.schema))
    writer.close()


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
    """Raises RefusedError when a listed file is missing, has changed, or is not in the folder."""
    listed = PurePosixPath(file.path)
    if listed.is_absolute() or ".." in listed.parts:
        raise RefusedError(
            f"its manifest lists {file.path!r}, which leads out of the state's folder",
            where=str(folder),
            remedy="do not use this state: rebuild it",
        )
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
