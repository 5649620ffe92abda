"""Runs: records sorted by their keys' hashes, which one task writes and another merges.

A run is groups of about GROUP_BYTES, each an Arrow IPC stream of its own, compressed by lz4: the
columns of `rows_schema` and `hash`. After them is an index of the groups, with their CRC-32C. Any
number of runs is read in parallel, a window of hashes at a time. Only eoctl reads a run: Parquet
took three times as long to read, and a file that is deleted soon needs no SHA-256.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.stores.state.files import StateFile
from eoctl.stores.storage import NewFile, Storage
from recovery.errors import RefusedError
from recovery.formats.arrays import int64_values, one_chunk
from recovery.state.latest import by_hash

if TYPE_CHECKING:
    import pyarrow as pa

RUNS, SUFFIX = "runs", ".run"
GROUP_BYTES = 512 << 10
WINDOW_BYTES = 32 << 20
_MAGIC = b"eoctlrun"
_INDEX = [  # for each group
    ("first", "<i8"),  # the lowest hash
    ("size", "<i8"),  # bytes in memory
    ("position", "<i8"),
    ("length", "<i8"),  # bytes in the file
    ("crc", "<u4"),
]
_END = [("groups", "<i8"), ("crc", "<u4"), ("magic", "S8")]  # crc: of the index


def write_run(storage: Storage, name: str, parts: Iterable["pa.Table"]) -> StateFile:
    """Write a run. parts: each one's hashes are at or above the previous one's.

    Raises IncompleteError: disk full.
    """
    import numpy as np
    import pyarrow as pa
    from crc32c import crc32c

    run = f"{RUNS}/{name}-{uuid.uuid4()}{SUFFIX}"
    how = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    index: list[tuple[int, int, int, int, int]] = []
    rows = position = 0
    with storage.writing(run):
        file: NewFile = storage.new_file(run)
        for part in parts:
            for group in by_hash(part, GROUP_BYTES):
                made = pa.BufferOutputStream()
                with pa.ipc.new_stream(made, group.schema, options=how) as writer:
                    writer.write_table(group)
                content = made.getvalue()
                file.sink.write(content)
                first = int64_values(one_chunk(group.column("hash")))[0]
                index.append((first, group.nbytes, position, content.size, crc32c(content)))
                position += content.size
                rows += len(group)
        table = np.array(index, np.dtype(_INDEX)).tobytes()
        end = np.array([(len(index), crc32c(table), _MAGIC)], np.dtype(_END)).tobytes()
        file.sink.write(table + end)
        size, _ = file.finish(hashed=False)
    return StateFile(run, rows, size, "")


class RunReader:
    """Reads a run by ascending hash, from `low` on. Raises RefusedError if it is damaged.

    first: int64[n], the lowest hash of each group; sizes: int64[n], their bytes in memory.
    """

    def __init__(self, storage: Storage, run: str, low: int) -> None:
        import numpy as np

        self._file = storage.opened(run)
        self._where = storage.shown(run)
        self._index = self._read_index(storage.size(run))
        self.first = np.ascontiguousarray(self._index["first"])
        self.sizes = np.ascontiguousarray(self._index["size"])
        self._held: list[pa.Table] = []
        self._next = max(0, int(np.searchsorted(self.first, low)) - 1)
        self.below(low)  # skip rows of the first group below `low`

    def below(self, edge: int) -> list["pa.Table"]:
        """Return the not yet returned rows with lower hashes, including the column `hash`.

        Each table is sorted by hash.
        """
        import numpy as np

        while self._next < len(self.first) and self.first[self._next] < edge:
            self._held.append(self._group(self._next))
            self._next += 1
        taken, held = [], []
        for table in self._held:
            hashes = int64_values(one_chunk(table.column("hash")))
            behind = int(np.searchsorted(hashes, edge))
            if behind:
                taken.append(table.slice(0, behind))
            if behind < len(table):
                held.append(table.slice(behind))
        self._held = held
        return taken

    def _read_index(self, size: int) -> Any:
        """Return the array of _INDEX."""
        import numpy as np
        from crc32c import crc32c

        end, row = np.dtype(_END), np.dtype(_INDEX)
        if size >= end.itemsize:
            (found,) = np.frombuffer(self._bytes(size - end.itemsize, end.itemsize), end)
            length = int(found["groups"]) * row.itemsize
            if found["magic"] == _MAGIC and 0 <= length <= size - end.itemsize:
                table = self._bytes(size - end.itemsize - length, length)
                if crc32c(table) == found["crc"]:
                    return np.frombuffer(table, row)
        raise self._damaged()

    def _group(self, number: int) -> "pa.Table":
        import pyarrow as pa
        from crc32c import crc32c

        entry = self._index[number]
        content = self._bytes(int(entry["position"]), int(entry["length"]))
        if crc32c(content) != entry["crc"]:
            raise self._damaged()
        how = pa.ipc.IpcReadOptions(use_threads=False)
        return pa.ipc.open_stream(content, options=how).read_all()

    def _bytes(self, position: int, length: int) -> "pa.Buffer":
        self._file.seek(position)
        return self._file.read_buffer(length)

    def _damaged(self) -> RefusedError:
        return RefusedError(
            "what a task of this rebuild has written is not what is there now",
            where=self._where,
            remedy="give another --output, or in a folder begin again with --clean",
        )


def windows(readers: Sequence[RunReader], low: int, behind: int) -> list[int]:
    """Return ascending hashes, the last one `behind`: from `low` on, the runs have about
    WINDOW_BYTES between any two."""
    import numpy as np

    first = np.concatenate([np.empty(0, np.int64), *(reader.first for reader in readers)])
    sizes = np.concatenate([np.empty(0, np.int64), *(reader.sizes for reader in readers)])
    inside = np.flatnonzero((first > low) & (first < behind))
    order = inside[np.argsort(first[inside])]
    number = np.cumsum(sizes[order]) // WINDOW_BYTES
    edges = np.unique(first[order][np.flatnonzero(np.diff(number, prepend=0))])
    return [*edges.tolist(), behind]
