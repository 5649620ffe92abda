"""Write and read a Kafka Streams task's files, with rocksdict.

The RocksDB of rocksdict and that of Streams differ in version: written files keep to the table
format of RocksDB 6.6 and to the settings that Streams opens its stores with. Nothing remains in a
write-ahead log, which Streams does not use.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.formats import streams_directory as names
from recovery.formats.arrays import int64_values, null_mask, one_chunk
from recovery.formats.columns import rows_schema
from recovery.shared.digest import Digest, digest

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE_FORMAT = 5  # that of RocksDB 6.6 and later; Streams 3.0 has 6.19
_BUFFER = 64 << 20  # of memory before a file is written
_AT_ONCE = 10_000  # rows between two writes
_OWN = "rocksdict-config.json"  # what rocksdict leaves beside RocksDB's files


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock that an application's process holds while it runs in the folder.

    Raises RefusedError if one does, IncompleteError if that cannot be seen.
    """
    try:
        descriptor = os.open(folder / names.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IncompleteError(
            f"the application's lock cannot be opened: {error.strerror}", where=str(folder)
        ) from None
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def refuse_running(folder: Path) -> None:
    """Raise RefusedError if an application runs in the folder, IncompleteError if unknown."""
    if (folder / names.LOCK).exists():  # reading creates no lock file
        with held(folder):
            pass


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Java's FileLock is a lock of lockf
    except (BlockingIOError, PermissionError):
        raise RefusedError(
            "an application is running in it, or another delivery",
            where=str(folder),
            remedy="stop the application first",
        ) from None
    except OSError as error:
        raise IncompleteError(
            f"whether an application is running cannot be seen: {error.strerror}", where=str(folder)
        ) from None


def write_store(folder: Path, rows: Iterable["pa.Table"], *, timestamped: bool) -> None:
    """Write a new store and close it. rows: of one partition, with key, timestamp and value.

    Raises IncompleteError if RocksDB fails: the store is then incomplete.
    """
    from rocksdict import WriteBatch, WriteOptions

    folder.mkdir(parents=True)
    with _opened(folder, timestamped, writes=True) as (store, handle):
        without_log = WriteOptions()
        without_log.disable_wal = True
        for table in rows:
            ordered = table.sort_by("key")  # four times as fast as in the order of offsets
            for low in range(0, len(ordered), _AT_ONCE):
                part = ordered.slice(low, _AT_ONCE)
                batch = WriteBatch(raw_mode=True)
                batch.set_default_column_family(handle)
                for key, value in zip(
                    part.column("key").to_pylist(), _values(part, timestamped), strict=True
                ):
                    batch.put(key, value)
                store.write(batch, without_log)
        store.flush()


def read_store(folder: Path, partition: int, *, timestamped: bool) -> Digest:
    """Return the digest of everything in a store; a plain store has no timestamps (-1).

    rocksdict ends silently at a damaged block: the digest reveals it.
    """
    total = Digest()
    with _opened(folder, timestamped, writes=False) as (store, _):
        keys: list[bytes] = []
        values: list[bytes] = []
        for key, value in store.items():
            keys.append(key)
            values.append(value)
            if len(keys) == _AT_ONCE:
                total += digest(partition, _table(keys, values, timestamped))
                keys, values = [], []
        return total + digest(partition, _table(keys, values, timestamped))


def without_timestamps(rows: "pa.Table") -> "pa.Table":
    """Return rows as a plain store holds them."""
    import pyarrow as pa

    whole = rows.select(rows_schema().names).cast(rows_schema())
    at = rows_schema().get_field_index("timestamp")
    return whole.set_column(at, "timestamp", pa.nulls(len(whole), pa.int64()))


def write_checkpoint(task: Path, ends: Mapping[TopicPartition, int]) -> None:
    """Write the offsets of a task's stores, on disk when it returns. Raises OSError."""
    with (task / names.CHECKPOINT).open("x", encoding="ascii") as file:
        file.write(names.checkpoint(ends))
        file.flush()
        os.fsync(file.fileno())


def has_checkpoint(task: Path, ends: Mapping[TopicPartition, int]) -> bool:
    """Return True if a task directory holds exactly these offsets as `write_checkpoint` wrote them.

    Streams 4.3 removes the file at its first start, earlier versions rewrite it.
    """
    try:
        text = (task / names.CHECKPOINT).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False
    return text == names.checkpoint(ends)


def marks(task: Path) -> list[tuple[str, int, int]]:
    """Return what changes with a task's stores: each file's name, size and time (ns)."""
    files = [p for p in (task / names.ROCKSDB).rglob("*") if p.is_file()]
    return sorted((str(p.relative_to(task)), p.stat().st_size, p.stat().st_mtime_ns) for p in files)


def settle(folder: Path, *, deep: bool = True) -> None:
    """Sync the names in a folder to disk and, if deep, in all folders below. Raises OSError."""
    for path, folders, files in os.walk(folder):
        if not deep:
            folders.clear()
        for name in (*(files if deep else ()), "."):
            descriptor = os.open(Path(path, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _opened(folder: Path, timestamped: bool, *, writes: bool) -> Iterator[tuple[Any, Any]]:
    """Open a store's column family: yield its reader and writer, and its handle for a batch."""
    from rocksdict import AccessType, Rdict

    families = {names.TIMESTAMPED: _options()} if timestamped else {}
    how = AccessType.read_write() if writes else AccessType.read_only(False)
    family = names.TIMESTAMPED if timestamped else "default"
    try:
        whole = Rdict(str(folder), _options(), column_families=families, access_type=how)
        try:
            store = whole.get_column_family(family)
            yield store, whole.get_column_family_handle(family)
            store.close()
        finally:
            whole.close()
    except Exception as error:  # rocksdict raises plain exceptions, with RocksDB's words
        if type(error) is not Exception:
            raise
        raise IncompleteError(f"RocksDB failed: {error}", where=str(folder)) from None
    finally:
        with suppress(OSError):
            (folder / _OWN).unlink(missing_ok=True)


def _options() -> Any:
    """Return options with which Streams could have made the store."""
    from rocksdict import (
        BlockBasedOptions,
        ChecksumType,
        DBCompactionStyle,
        DBCompressionType,
        Options,
    )

    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    tables.set_checksum_type(ChecksumType.crc32c())  # every version has it
    tables.set_block_size(4096)
    tables.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(tables)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_BUFFER)
    return options


def _values(rows: "pa.Table", timestamped: bool) -> list[bytes]:
    import numpy as np

    values: list[bytes] = rows.column("value").to_pylist()
    if not timestamped:
        return values
    times = one_chunk(rows.column("timestamp"))
    known = np.where(null_mask(times), -1, int64_values(times))  # a record without one is of -1
    head = known.astype(">i8").tobytes()
    return [head[8 * n : 8 * n + 8] + value for n, value in enumerate(values)]


def _table(keys: list[bytes], values: list[bytes], timestamped: bool) -> "pa.Table":
    import pyarrow as pa

    times: list[int | None] = [None] * len(keys)
    if timestamped:
        times = [int.from_bytes(value[:8], "big", signed=True) for value in values]
        values = [value[8:] for value in values]
    schema = rows_schema()
    columns = {"key": keys, "value": values, "timestamp": times}
    return pa.table(
        {name: pa.array(column, schema.field(name).type) for name, column in columns.items()}
    )
