"""One partition of `__transaction_state` as read so far: a file of batches, and its index.

The batches are as in Kafka's own segments (`kafka-dump-log.sh` reads the file), each with its
CRC-32C. New ones are appended. The index, `NAME.index`, has an entry for each extent of about 128
KiB: its place, and a hash of each id and producer id in it (`recovery.inspect.log_tokens`). So a
query reads only extents that may answer it, one at a time. The last extent has no entry yet.
Nothing is mapped, and no file stays open.

- A crash or a full disk in mid-append leaves a batch that is cut: the next append overwrites it.
- Processes append under a lock (`folder_lock.held`), and each only what is not in the file yet.
- An index that is missing, damaged or of other batches is made again. What it knew of reads is lost
  then: any batch may have begun one (`Wholeness`).
- A batch elsewhere that does not match its CRC raises DamagedError when its extent is read.
"""

import os
import struct
from array import array
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from crc32c import crc32c

from recovery.errors import EoctlError, UsageError
from recovery.formats.batches import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    crc_matches,
    verify_crcs,
)
from recovery.formats.batches import batch_headers as headers_of
from recovery.formats.reader import Buffer, CorruptError
from recovery.inspect.log_part import LogPart, Wholeness, part_of
from recovery.inspect.log_tokens import encoded, id_token, tokens
from recovery.values import Value, replace

VERSION = 2  # of the index; 0 and 1 were of another file (eoctl.stores.former_cache)
EXTENT_BYTES = 128 << 10
MOST_TAIL = 8 << 20  # bytes without an index entry: more is indexed when it is loaded
_MAGIC = b"eoctlTS" + bytes([VERSION])
_ENTRY = struct.Struct("<II")  # bytes of the entry's content, their CRC-32C
_EXTENT = struct.Struct("<B?Iqqqqq")  # kind, opaque, CRC-32C, begin, end, Wholeness
_MARK = struct.Struct("<Bqqq")  # kind, Wholeness
_CUT = struct.Struct("<BIq")  # kind, token of an id, offset below which it was pruned
_PRUNED = struct.Struct("<Bq")  # kind, bytes from which on it is pruned next
_OF_EXTENT, _OF_MARK, _OF_CUT, _OF_PRUNED = range(4)


class DamagedError(CorruptError):
    """The kept file was changed after it was written."""


class KeptExtent(Value):
    """Batches of the file from byte `begin` up to `end`. hashes: None = not indexed yet."""

    log: "KeptLog"
    begin: int
    end: int
    hashes: "array[int] | None" = None
    opaque: bool = False
    check: int | None = None  # CRC-32C of all bytes: a batch's own CRC leaves out its offset

    def may_hold(self, tokens: AbstractSet[int]) -> bool:
        return self.hashes is None or not tokens.isdisjoint(self.hashes)

    def part(self) -> LogPart:
        """Read the batches and check them. Raises DamagedError."""
        return self.log.read(self.begin, self.end, self.check)


@dataclass
class KeptLog:
    """The log kept at `path`, with the file open for as long as the `with` block lasts."""

    path: Path
    lenient: bool = False  # leave damaged batches out instead of raising
    extents: list[KeptExtent] = field(default_factory=list)
    wholeness: Wholeness = field(default_factory=Wholeness)
    last: BatchHeader | None = None  # header of the last batch; None = nothing is kept
    size: int = 0  # bytes of sound batches
    prune_at: int = 0  # bytes
    bytes_read: int = 0  # of batches, by `read`
    cuts: dict[int, int] = field(default_factory=dict)  # offsets below which ids were pruned
    _unwritten: list[bytes] = field(default_factory=list)  # entries
    _index_size: int = 0  # bytes of sound entries on disk; 0 = there is no index
    _file: int = -1

    def __enter__(self) -> Self:
        """Load the index. Raises DamagedError, UsageError for a newer version, OSError."""
        with suppress(FileNotFoundError):
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self._file >= 0:
            try:
                self._load()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def cut(self, name: str) -> int:
        """Return the offset below which records of this id were pruned; 0 if none were."""
        return self.cuts.get(id_token(encoded(name)), 0)

    def read(self, begin: int, end: int, check: int | None = None) -> LogPart:
        """Read these bytes, which must be complete batches. Raises DamagedError."""
        data = self._bytes(begin, end)
        self.bytes_read += len(data)
        if check is not None and crc32c(data) == check:
            return part_of(data)
        part = _sound(data)
        if check is not None and not self.lenient:
            raise self._damaged(begin)
        if part.scan.end != end - begin and not self.lenient:
            raise self._damaged(begin + part.scan.end)
        return part

    def append(self, part: LogPart, begun: int | None, whole: Wholeness | None = None) -> None:
        """Add batches that follow the last one; under the lock. begun: as in `Wholeness`.

        whole: what is known of the log that these belong to; None = they continue it. Raises
        OSError if nothing can be written; the kept batches are then unchanged.
        """
        if whole is None:
            whole = replace(self.wholeness)
            whole.add(part, begun)
        if (whole.whole_from, whole.stands_from) != (
            self.wholeness.whole_from,
            self.wholeness.stands_from,
        ):
            self._write_index(_mark(whole))  # before the batches, so that it never says too much
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, self.size)
            _write(file, part.data[: part.scan.end], self.size)
        finally:
            os.close(file)
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self.size += part.scan.end
        self.wholeness, self.last = whole, part.header(-1)
        self._index_tail()

    def ended(self, end: int, begun: int) -> None:
        """Note that a read ended at the high watermark `end`; under the lock. Raises OSError."""
        whole = replace(self.wholeness)
        whole.ended(end, begun)
        if whole != self.wholeness:
            self._write_index(_mark(whole))
            self.wholeness = whole

    def note_pruned(self, cuts: dict[int, int], prune_at: int) -> None:
        """Note what this copy no longer holds, by the id's token. Raises OSError.

        It comes first in the index: if the index's end is lost, nothing seems complete.
        """
        self._index_size = 0
        self._unwritten = [
            *(_CUT.pack(_OF_CUT, token, offset) for token, offset in cuts.items()),
            _PRUNED.pack(_OF_PRUNED, prune_at),
            *(self._entry(e) for e in self.extents if e.hashes is not None),
        ]
        self._write_index()
        self.cuts, self.prune_at = cuts, prune_at

    # Loading.

    def _load(self) -> None:
        on_disk = os.fstat(self._file).st_size
        for content in self._index_entries():
            self._take(content)
        if not self._fits(on_disk):
            self.extents, self.cuts, self.last = [], {}, None
            self.wholeness, self._index_size = Wholeness(), 0
        begin = self.extents[-1].end if self.extents else 0
        self.wholeness.end = 0 if self.last is None else self.last.last_offset + 1
        if not self._index_size or on_disk - begin > MOST_TAIL:
            begin = self._index_from(begin, on_disk)
        part = _sound(self._bytes(begin, on_disk))
        self.size = begin + part.scan.end
        if not self._is_cut(self.size, on_disk) and not self.lenient:
            raise self._damaged(self.size)
        if len(part.scan):
            self.last = part.header(-1)
            self.extents.append(KeptExtent(self, begin, self.size))
            self._without_entry(part)

    def _without_entry(self, part: LogPart) -> None:
        """Load batches without an entry; a gap in them may have lost its mark with the entry."""
        whole = replace(self.wholeness)
        whole.add(part, None)
        if whole.whole_from <= self.wholeness.whole_from:  # the read is known
            whole = replace(self.wholeness, end=whole.end)
        self.wholeness = whole

    def _index_entries(self) -> Iterator[bytes]:
        """Yield the contents of the sound entries, and count their bytes."""
        try:
            index = index_of(self.path).read_bytes()
        except FileNotFoundError:
            index = b""
        at = len(_MAGIC)
        if index[: at - 1] != _MAGIC[:-1] or len(index) < at:
            return
        if index[at - 1] > VERSION:
            raise newer(index_of(self.path), index[at - 1], VERSION)
        while len(index) - at >= _ENTRY.size:
            length, check = _ENTRY.unpack_from(index, at)
            content = index[at + _ENTRY.size : at + _ENTRY.size + length]
            if len(content) != length or crc32c(content) != check:
                break
            yield content
            at += _ENTRY.size + length
        self._index_size = at

    def _take(self, content: bytes) -> None:
        kind = content[0]
        if kind == _OF_EXTENT:
            _, opaque, check, begin, end, *whole = _EXTENT.unpack_from(content)
            hashes = array("I", content[_EXTENT.size :])
            self.extents.append(KeptExtent(self, begin, end, hashes, opaque, check))
            self.wholeness = Wholeness(*whole)
        elif kind == _OF_MARK:
            self.wholeness = Wholeness(*_MARK.unpack(content)[1:])
        elif kind == _OF_CUT:
            _, token, offset = _CUT.unpack(content)
            self.cuts[token] = offset
        elif kind == _OF_PRUNED:
            self.prune_at = _PRUNED.unpack(content)[1]

    def _fits(self, on_disk: int) -> bool:
        """Return True if the index belongs to these batches: the last extent is where it says."""
        at = 0
        for extent in self.extents:
            if extent.begin != at or not at < extent.end <= on_disk:
                return False
            at = extent.end
        if self.extents:
            extent = self.extents[-1]
            data = self._bytes(extent.begin, extent.end)
            if len(data) != extent.end - extent.begin or crc32c(data) != extent.check:
                return False
            self.last = part_of(data).header(-1)
        return True

    def _index_from(self, begin: int, on_disk: int) -> int:
        """Make entries from this byte on; the next append writes them."""
        while on_disk - begin >= EXTENT_BYTES:
            part = _sound(self._bytes(begin, begin + EXTENT_BYTES))
            if not len(part.scan):  # a batch that is larger than that, or none
                length = int.from_bytes(self._bytes(begin + 8, begin + LOG_OVERHEAD), "big")
                part = _sound(self._bytes(begin, min(begin + LOG_OVERHEAD + length, on_disk)))
            if not len(part.scan):
                break
            self._without_entry(part)
            self._add_extent(begin, part)
            begin += part.scan.end
            self.last = part.header(-1)
        return begin

    def _is_cut(self, at: int, on_disk: int) -> bool:
        """Return True if the bytes from `at` on are an unfinished append."""
        rest = self._bytes(at, on_disk)
        length = int.from_bytes(rest[8:LOG_OVERHEAD], "big")
        return len(rest) < HEADER_SIZE or LOG_OVERHEAD + length >= len(rest) or not any(rest)

    def _damaged(self, at: int) -> DamagedError:
        return DamagedError("a batch does not match its checksum", where=f"{self.path} byte {at}")

    def _bytes(self, begin: int, end: int) -> bytes:
        return os.pread(self._file, max(0, end - begin), begin)

    # The index.

    def _add_extent(self, begin: int, part: LogPart) -> None:
        hashes, opaque = tokens(part)
        check = crc32c(part.data[: part.scan.end])
        extent = KeptExtent(self, begin, begin + part.scan.end, hashes, opaque, check)
        self.extents.append(extent)
        self._unwritten.append(self._entry(extent))

    def _entry(self, e: KeptExtent) -> bytes:
        assert e.hashes is not None
        w = self.wholeness
        whole = w.end, w.whole_from, w.stands_from
        head = _EXTENT.pack(_OF_EXTENT, e.opaque, e.check, e.begin, e.end, *whole)
        return head + e.hashes.tobytes()

    def _index_tail(self) -> None:
        """Write an entry for each extent that is full."""
        if self.extents and self.extents[-1].hashes is None:
            del self.extents[-1]
        begin = self.extents[-1].end if self.extents else 0
        tail = _sound(self._bytes(begin, self.size))
        first = at = 0
        for position in [*map(int, tail.scan.positions[1:]), tail.scan.end]:
            at = position
            if at - first >= EXTENT_BYTES:
                self._add_extent(begin + first, part_of(memoryview(tail.data)[first:at]))
                first = at
        if first < at:
            self.extents.append(KeptExtent(self, begin + first, begin + at))
        if self._unwritten or not self._index_size:
            self._write_index()

    def _write_index(self, *contents: bytes) -> None:
        rows = [*self._unwritten, *contents]
        data = b"".join(_ENTRY.pack(len(row), crc32c(row)) + row for row in rows)
        file = os.open(index_of(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not self._index_size:
                data = _MAGIC + data
            os.ftruncate(file, self._index_size)
            _write(file, data, self._index_size)
        finally:
            os.close(file)
        self._index_size += len(data)
        self._unwritten = []


def index_of(path: Path) -> Path:
    """Return where the index of this file is."""
    return path.with_name(path.name + ".index")


def newer(path: Path, version: object, newest: int) -> UsageError:
    """Return the refusal of a file that a newer eoctl wrote."""
    return UsageError(
        f"the cache is of version {str(version)[:20]!r}, and this eoctl reads version {newest}",
        where=str(path),
        remedy="use the newer eoctl that wrote it, or set EOCTL_CACHE_DIR to another folder",
    )


def _mark(whole: Wholeness) -> bytes:
    return _MARK.pack(_OF_MARK, whole.end, whole.whole_from, whole.stands_from)


def _write(file: int, data: Buffer, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def _sound(data: bytes) -> LogPart:
    """Return the complete batches up to the first that does not match its CRC."""
    try:
        part = part_of(data)
        verify_crcs(data, part.scan)
    except EoctlError:
        end = 0
        with suppress(EoctlError):
            for header in headers_of(data):
                if not crc_matches(data, header):
                    break
                end = header.position + header.size
        return part_of(data[:end])
    return part
