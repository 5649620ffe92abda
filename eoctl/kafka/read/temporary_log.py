"""Keep a partition of `__transaction_state` for one reading, if there is no cache.

Its batches are in an unlinked temporary file, so memory does not grow with the log.
"""

import tempfile
import weakref
from array import array
from collections.abc import Set as AbstractSet
from typing import IO

from recovery.inspect.log_part import LogPart, Wholeness, part_of
from recovery.inspect.log_tokens import tokens
from recovery.inspect.state_log import Extent, Fetched
from recovery.values import Value

MOST_IN_MEMORY = 64 << 10  # bytes of one log


class _Extent(Value):
    """The batches of one `add`. hashes: of the ids in it."""

    file: IO[bytes]
    begin: int
    size: int
    hashes: "array[int]"
    opaque: bool

    def may_hold(self, tokens: AbstractSet[int]) -> bool:
        return not tokens.isdisjoint(self.hashes)

    def part(self) -> LogPart:
        self.file.seek(self.begin)
        return part_of(self.file.read(self.size))


class TemporaryLog:
    """`KeptBatches` that end with this object; in memory if no temporary file can be created."""

    def __init__(self, wholeness: Wholeness | None = None) -> None:
        self.extents: list[Extent] = []
        self.wholeness = wholeness or Wholeness()
        self._size = 0
        # ends with this object, not with a block
        self._file: IO[bytes] | None = tempfile.SpooledTemporaryFile(MOST_IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add(self, part: LogPart, begun: int | None) -> None:
        """Add batches, without known ones. begun: as in `Wholeness`."""
        new = part.after(self.wholeness.end - 1)
        if new is not None:
            self.wholeness.add(new, begun)
            self.extents.append(self._written(new) or Fetched(new))

    def cut(self, name: str) -> int:
        return 0

    def _written(self, part: LogPart) -> _Extent | None:
        """Write the batches; return None if that is impossible, now or later."""
        if self._file is None:
            return None
        size = part.scan.end
        try:
            self._file.seek(self._size)
            self._file.write(memoryview(part.data)[:size])
        except OSError:
            if not self._size:  # earlier batches can still be read
                self._file.close()
            self._file = None
            return None
        self._size += size
        return _Extent(self._file, self._size - size, size, *tokens(part))
