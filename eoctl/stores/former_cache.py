"""Convert files of `__transaction_state` that eoctl 0.2.0 kept into today's (`KeptLog`).

One file per partition: the record batches as fetched, the length of each (u32, little-endian), the
format's version in one byte, their number in seven, and the CRC-32C of all this in four. The
highest bit of a length marks the first batch of a later read in version 1; in version 0 any batch
may have begun one. The batches are evidence, so they are taken over; the old file is then removed.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from crc32c import crc32c

from eoctl.stores.kept_log import KeptLog, index_of, newer
from recovery.formats.reader import CorruptError
from recovery.inspect.log_part import part_of

NEWEST = 1
_LATER_READ = 1 << 31
_END = 12  # bytes after the lengths
_PIECE = 4 << 20


def is_former(path: Path) -> bool:
    """Return True for a sound file of this format. Raises UsageError for a newer one."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _END:
                return False
            check, left = 0, size - 4
            while left:
                data = file.read(min(_PIECE, left))
                if not data:
                    return False
                check, left = crc32c(data, check), left - len(data)
            if file.read(4) != check.to_bytes(4, "big"):
                return False
            file.seek(size - _END)
            version = file.read(1)[0]
    except OSError:
        return False
    if version > NEWEST:
        raise newer(path, version, NEWEST)
    return True


def take_over(old: Path, path: Path) -> bool:
    """Turn an old file into a `KeptLog` at `path`, and remove it; under the lock.

    Return False if it is no old file, is damaged, or nothing can be written: it is then unchanged.
    """
    new_path = path.with_name(path.name + ".new")
    try:
        if not is_former(old):
            return False
        for leftover in (new_path, index_of(new_path)):
            leftover.unlink(missing_ok=True)
        _copy(old, new_path)
        index_of(new_path).replace(index_of(path))
        new_path.replace(path)
        if old != path:
            old.unlink()
    except OSError:
        return False
    except CorruptError:
        return False
    return True


def _copy(old: Path, new_path: Path) -> None:
    with old.open("rb") as file, KeptLog(new_path) as log:
        size = file.seek(-_END, os.SEEK_END) + _END
        version, *number = file.read(8)
        count = int.from_bytes(bytes(number), "big")
        file.seek(size - _END - 4 * count)
        sizes = struct.unpack(f"<{count}I", file.read(4 * count))
        file.seek(0)
        begun: int | None = 0 if version else None
        for later_read, length in _pieces(sizes):
            if version and later_read:
                begun = log.wholeness.end
            log.append(part_of(file.read(length)), begun)


def _pieces(sizes: Iterable[int]) -> Iterator[tuple[bool, int]]:
    """Yield pieces, cut also where a later read began: whether one began in it, its bytes."""
    later_read, length = False, 0
    for size in sizes:
        if length and (size & _LATER_READ or length >= _PIECE):
            yield later_read, length
            later_read, length = False, 0
        later_read = later_read or bool(size & _LATER_READ)
        length += size & ~_LATER_READ
    if length:
        yield later_read, length
