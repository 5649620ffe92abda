"""The files of a state: Parquet with its rows.

Each file has a name that no other attempt uses, and counts only once a manifest lists it with its
hash, so leftovers of a killed task are never taken for a result.
"""

import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from eoctl.stores.storage import NewFile, Storage
from recovery.errors import RefusedError
from recovery.formats.columns import rows_schema
from recovery.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

DATA = "data"
_ROWS_AT_ONCE = 1 << 16
GROUP_ROWS = 1 << 16  # rows per row group, at least, except in a file's last one


class StateFile(Value):
    """A Parquet file. path: its name in the state's storage. size: bytes."""

    path: str
    rows: int
    size: int
    sha256: str


class StateWriter:
    """Writes the rows of one partition: `write` tables, then `close`.

    Columns: partition int32, offset int64, timestamp int64 (ms), key and value binary, then those
    that the format adds.
    """

    def __init__(self, storage: Storage, topic: str, partition: int) -> None:
        self._storage = storage
        self._partition = partition
        self._name = f"{DATA}/{topic}/{partition}-{uuid.uuid4()}.parquet"
        self._file: NewFile | None = None
        self._writer: Any = None
        self._held: list[pa.Table] = []
        self._held_rows = self._rows = 0

    def write(self, rows: "pa.Table") -> None:
        """Write live rows from `ChangelogFormat.finish`. Raises IncompleteError: disk full."""
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
        with self._storage.writing(self._name):
            if self._file is None:
                self._file = self._storage.new_file(self._name)
                self._writer = pq.ParquetWriter(
                    self._file.sink,
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
        """Return the file, safe in its storage. Call `write` first, even if without rows.

        Raises IncompleteError: disk full.
        """
        if self._held:
            self._write_group()
        assert self._file is not None
        with self._storage.writing(self._name):
            self._writer.close()
            size, sha256 = self._file.finish()
        return StateFile(self._name, self._rows, size, sha256)


def _same(value: int, n: int) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(
        pa.int32(), n, [None, pa.py_buffer(np.full(n, value, dtype=np.int32))]
    )


def read_rows(storage: Storage, file: StateFile) -> Iterator["pa.RecordBatch"]:
    """Yield the records of a listed file, without the format's additions. Raises RefusedError if
    the file is not what the manifest lists."""
    import pyarrow.parquet as pq

    check_file(storage, file)
    schema = rows_schema()
    opened = pq.ParquetFile(storage.opened(file.path, file.size))
    for group in range(opened.num_row_groups):
        table = opened.read_row_group(group, columns=schema.names).cast(schema)
        yield from table.to_batches(max_chunksize=_ROWS_AT_ONCE)


def check_file(storage: Storage, file: StateFile) -> None:
    """Raise RefusedError if a listed file is missing, has changed, or is not in the storage."""
    listed = PurePosixPath(file.path)
    if listed.is_absolute() or ".." in listed.parts:
        raise RefusedError(
            f"its manifest lists {file.path!r}, which leads out of the state's folder",
            where=storage.address,
            remedy="do not use this state: rebuild it",
        )
    try:
        if storage.sha256(file.path, file.size) == file.sha256:
            return
        what = "has changed since the manifest was written"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    raise RefusedError(what, where=storage.shown(file.path), remedy="rebuild the state")
