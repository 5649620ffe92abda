"""Runs: records sorted by their keys' hashes, which one task leaves and another merges.

A run is Parquet: the columns of `rows_schema` and `hash`, in row groups of about GROUP_BYTES whose
least hash its footer tells. Any number of runs is read side by side, a window of hashes at a time.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.stores.state.files import StateFile
from eoctl.stores.storage import NewFile, Storage
from recovery.formats.arrays import int64_values, one_chunk
from recovery.formats.columns import rows_schema
from recovery.state.latest import by_hash

if TYPE_CHECKING:
    import pyarrow as pa

RUNS = "runs"
GROUP_BYTES = 512 << 10
WINDOW_BYTES = 32 << 20


def write_run(storage: Storage, name: str, parts: Iterable["pa.Table"]) -> StateFile:
    """Write a run. parts: no key's hash is below one of the part before.

    Raises IncompleteError: disk full.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = f"{RUNS}/{name}-{uuid.uuid4()}.parquet"
    schema = rows_schema().append(pa.field("hash", pa.int64()))
    rows = 0
    with storage.writing(run):
        file: NewFile = storage.new_file(run)
        writer: Any = pq.ParquetWriter(
            file.sink, schema, compression="lz4", use_dictionary=False, write_statistics=["hash"]
        )
        for part in parts:
            for group in by_hash(part, GROUP_BYTES):
                writer.write_table(group.cast(schema))
                rows += len(group)
        writer.close()
        size, sha256 = file.finish()
    return StateFile(run, rows, size, sha256)


class RunReader:
    """Reads a run by rising hash, from `low` on.

    first: int64[n], the least hash of each row group; sizes: int64[n], their bytes in memory.
    """

    def __init__(self, storage: Storage, run: str, low: int) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(storage.opened(run))
        metadata = self._file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        at = len(rows_schema())
        least = [group.column(at).statistics.min for group in groups]
        self.first = np.array(least, np.int64)
        self.sizes = np.array([group.total_byte_size for group in groups], np.int64)
        self._held: list[pa.Table] = []
        self._next = max(0, int(np.searchsorted(self.first, low)) - 1)
        self.below(low)  # of the row group in which `low` lies

    def below(self, edge: int) -> list["pa.Table"]:
        """Return the rows with lower hashes that were not returned yet."""
        import numpy as np

        while self._next < len(self.first) and self.first[self._next] < edge:
            self._held.append(self._file.read_row_group(self._next, use_threads=False))
            self._next += 1
        taken, held = [], []
        for table in self._held:
            hashes = int64_values(one_chunk(table.column("hash")))
            behind = int(np.searchsorted(hashes, edge))
            if behind:
                taken.append(table.slice(0, behind).select(rows_schema().names))
            if behind < len(table):
                held.append(table.slice(behind))
        self._held = held
        return taken


def windows(readers: Sequence[RunReader], low: int, behind: int) -> list[int]:
    """Return rising hashes, the last one `behind`: between two of them, or `low` and the first,
    the runs have about WINDOW_BYTES."""
    import numpy as np

    first = np.concatenate([np.empty(0, np.int64), *(reader.first for reader in readers)])
    sizes = np.concatenate([np.empty(0, np.int64), *(reader.sizes for reader in readers)])
    inside = np.flatnonzero((first > low) & (first < behind))
    order = inside[np.argsort(first[inside])]
    number = np.cumsum(sizes[order]) // WINDOW_BYTES
    edges = np.unique(first[order][np.flatnonzero(np.diff(number, prepend=0))])
    return [*edges.tolist(), behind]
