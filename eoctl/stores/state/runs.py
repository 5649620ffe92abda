"""Runs: records sorted by their keys' hashes, which one task writes and another merges.

A run is groups of about GROUP_BYTES: a header, then an Arrow IPC stream, compressed by lz4, with
the columns of `rows_schema` and `hash`. Where the groups of each section begin is in the row of the
task that wrote the run, so a reader asks for nothing but its slice. Any number of runs is read in
parallel, a window of hashes at a time. Only eoctl reads a run: Parquet took three times as long to
read, and a file that is deleted soon needs no SHA-256.
"""

import base64
import hashlib
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from eoctl.stores.state.sealed import sealed, unsealed
from eoctl.stores.storage import NewFile, Storage
from recovery.errors import RefusedError
from recovery.formats.arrays import int64_values, one_chunk
from recovery.state import task_sizes
from recovery.state.latest import by_hash
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

RUNS, SUFFIX = "runs", ".run"
GROUP_BYTES = 512 << 10
WINDOW_BYTES = 32 << 20
SECTION_BYTES = task_sizes.SECTION_BYTES
_HEADER = struct.Struct("<qII")  # lowest hash; bytes and CRC-32C of what follows
_CRC = struct.Struct("<I")  # of the header
_BEGIN = _HEADER.size + _CRC.size  # of a group


class RunFile(Value):
    """A run. path: its name in the state's storage. size: bytes; memory: bytes when it is read.

    index: base64 of two int64 for each section: its lowest hash, and where it begins. Nothing in
    the run proves it: who merges a run counts its rows.
    """

    path: str
    rows: int
    size: int
    memory: int
    index: str

    def sections(self) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
        """Return the lowest hash of each section, and where each begins, with the run's end.

        Raises ValueError for an index that is none.
        """
        import numpy as np

        index = np.frombuffer(base64.b64decode(self.index, validate=True), "<i8").reshape(-1, 2)
        first, begins = index.T
        begins = np.append(begins, self.size)
        if begins[0] != 0 or (np.diff(begins) <= 0).any() or (np.diff(first) < 0).any():
            raise ValueError("the sections do not follow one another")
        return first, begins


class Run(Value):
    """A run to merge. before: what its format had seen before the range that left the run."""

    file: RunFile
    before: Mapping[str, Any] = msgspec.field(default_factory=dict)


def write_run(storage: Storage, name: str, parts: Iterable["pa.Table"]) -> RunFile:
    """Write a run. name: of a folder for it. parts: each one's hashes are at or above the previous
    one's. Raises IncompleteError: disk full."""
    run = f"{RUNS}/{name}/{uuid.uuid4()}{SUFFIX}"
    index: list[tuple[int, int]] = []
    rows = memory = position = 0
    with storage.writing(run):
        file: NewFile = storage.new_file(run)
        for group in (group for part in parts for group in by_hash(part, GROUP_BYTES)):
            first = int64_values(one_chunk(group.column("hash")))[0]
            if not index or position - index[-1][1] >= SECTION_BYTES:
                index.append((int(first), position))
            position += _write_group(file, group, int(first))
            rows += len(group)
            memory += group.nbytes
        size, _ = file.finish(hashed=False)
    packed = b"".join(struct.pack("<qq", *entry) for entry in index)
    return RunFile(run, rows, size, memory, base64.b64encode(packed).decode("ascii"))


def _write_group(file: NewFile, group: "pa.Table", first: int) -> int:
    """Write a group; return its bytes."""
    import pyarrow as pa
    from crc32c import crc32c

    how = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    made = pa.BufferOutputStream()
    with pa.ipc.new_stream(made, group.schema, options=how) as writer:
        writer.write_table(group)
    content = made.getvalue()
    header = _HEADER.pack(first, content.size, crc32c(content))
    file.sink.write(header + _CRC.pack(crc32c(header)))
    file.sink.write(content)
    return int(_BEGIN + content.size)


class RunReader:
    """Reads the rows of a run with hashes in [low, behind), by ascending hash.

    first: int64[n], the lowest hash of each section; sizes: int64[n], their bytes in memory. rows:
    that were returned so far. Raises RefusedError if the run is damaged.
    """

    def __init__(self, storage: Storage, run: RunFile, low: int, behind: int) -> None:
        import numpy as np

        self._storage, self._run = storage, run
        try:
            first, begins = run.sections()
        except ValueError:
            raise damaged(storage, run.path) from None
        begin = max(0, int(np.searchsorted(first, low)) - 1)
        end = max(begin, int(np.searchsorted(first, behind)))
        self.first = first[begin:end]
        lengths = np.diff(begins)[begin:end]
        self.sizes = lengths * run.memory // max(1, run.size)
        self._at, self._end = int(begins[begin]), int(begins[end])
        self._ahead = memoryview(b"")  # read, and not yet returned
        self._held: list[pa.Table] = []
        self.rows = 0
        self.below(low)  # skip rows of the first section below `low`
        self.rows = 0

    def below(self, edge: int) -> list["pa.Table"]:
        """Return the not yet returned rows with lower hashes, including the column `hash`.

        Each table is sorted by hash.
        """
        import numpy as np

        self._held += self._groups(edge)
        taken, held = [], []
        for table in self._held:
            hashes = int64_values(one_chunk(table.column("hash")))
            behind = int(np.searchsorted(hashes, edge))
            if behind:
                taken.append(table.slice(0, behind))
                self.rows += behind
            if behind < len(table):
                held.append(table.slice(behind))
        self._held = held
        return taken

    def _groups(self, edge: int) -> Iterator["pa.Table"]:
        """Yield the next groups, those that begin below `edge`."""
        while self._ahead or self._at < self._end:
            first, length, crc = self._header()
            if first >= edge:
                return
            content = self._need(_BEGIN + length)[_BEGIN:]
            self._ahead = self._ahead[_BEGIN + length :]
            yield self._group(content, crc)

    def _header(self) -> tuple[int, int, int]:
        """Return the next group's header, see _HEADER."""
        from crc32c import crc32c

        begin = self._need(_BEGIN)
        header, crc = begin[: _HEADER.size], begin[_HEADER.size :]
        if (crc32c(header),) != _CRC.unpack(crc):
            raise damaged(self._storage, self._run.path)
        first, length, content_crc = _HEADER.unpack(header)
        return first, length, content_crc

    def _need(self, size: int) -> memoryview:
        """Return so many of the next bytes, and read ahead for those after them."""
        if len(self._ahead) < size:
            more = max(self._storage.read_bytes, size - len(self._ahead))
            more = min(more, self._end - self._at)
            data = self._range(more) if more else b""
            self._at += more
            self._ahead = memoryview(bytes(self._ahead) + data)
        if len(self._ahead) < size:
            raise damaged(self._storage, self._run.path)
        return self._ahead[:size]

    def _range(self, size: int) -> bytes:
        try:
            return self._storage.get_range(self._run.path, self._at, size)
        except OSError:
            raise damaged(self._storage, self._run.path) from None

    def _group(self, content: memoryview, crc: int) -> "pa.Table":
        import pyarrow as pa
        from crc32c import crc32c

        if crc32c(content) != crc:
            raise damaged(self._storage, self._run.path)
        how = pa.ipc.IpcReadOptions(use_threads=False)
        return pa.ipc.open_stream(pa.py_buffer(content), options=how).read_all()


def damaged(storage: Storage, path: str) -> RefusedError:
    """Return the error for a run, or a plan, that is gone or not what a task has written."""
    return RefusedError(
        "what a task of this rebuild has written is not what is there now",
        where=storage.shown(path),
        remedy="give another --output, or in a folder begin again with --clean",
    )


def windows(readers: Sequence[RunReader], low: int, behind: int) -> list[int]:
    """Return ascending hashes, the last one `behind`: from `low` on, the runs have about
    WINDOW_BYTES between any two.

    Between the beginnings of two sections, a run's bytes are taken as evenly distributed.
    """
    import numpy as np

    firsts = [np.clip(reader.first, low, behind) for reader in readers]
    edges = np.unique(np.concatenate([np.array([low, behind]), *firsts]))
    bytes_below = np.zeros(len(edges))
    for first, reader in zip(firsts, readers, strict=True):
        ends = np.append(first, behind)
        bytes_below += np.interp(edges, ends, np.append(0, np.cumsum(reader.sizes)))
    wanted = np.arange(WINDOW_BYTES, bytes_below[-1], WINDOW_BYTES)
    found = np.unique(np.interp(wanted, bytes_below, edges).astype(np.int64))
    return [*(edge for edge in found.tolist() if low < edge < behind), behind]


def plan_merge(storage: Storage, name: str, runs: Sequence[Run]) -> str:
    """Write the runs of a partition for its buckets' tasks; return the file's name.

    Their indexes are too much to be sent with every task. The name follows from the content, so
    that who merges other runs does not replace the plan.
    """
    content = sealed({"runs": [run.as_dict() for run in runs]})
    path = f"{RUNS}/{name}-{hashlib.sha256(content).hexdigest()[:32]}.json"
    storage.put(path, content)
    return path


def planned(storage: Storage, path: str) -> list[Run]:
    """Return the runs that `plan_merge` has written. Raises RefusedError."""
    try:
        listed = unsealed(storage.get(path))["runs"]
        return [Run(RunFile(**fields["file"]), fields["before"]) for fields in listed]
    except (OSError, ValueError, TypeError, KeyError):
        raise damaged(storage, path) from None
