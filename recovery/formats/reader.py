"""Read Kafka's basic types from bytes: integers, varints, strings, arrays and tagged fields.

Every decoder in this package reads through `Reader`, so that cut or impossible bytes end in one
`CorruptError` with their position, never in an IndexError.
Source: Kafka's protocol guide, "Protocol Primitive Types"; KIP-482 (flexible versions);
classes ByteBufferAccessor and ByteUtils.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, Self, TypeVar

from recovery.errors import IncompleteError
from recovery.plurals import counted

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")


class CorruptError(IncompleteError):
    """Bytes that do not fit their format, so that the question about them has no answer."""

    def within(self, where: str) -> Self:
        """Return this error with the place that only the caller knows (a partition, a file)."""
        inner = f"{where}, {self.where}" if self.where else where
        return type(self)(self.what, where=inner, remedy=self.remedy)


class UnknownVersion(NamedTuple):
    """A key or value in a version that this decoder does not know: written, but unreadable."""

    version: int


class Reader:
    """A position in some bytes; each call reads one value.

    Raises CorruptError if the bytes end within a value or a length is impossible. `where` names the
    thing that is read, for the error's sentence.
    """

    __slots__ = ("_data", "_end", "_where", "position")

    def __init__(self, data: Buffer, where: str) -> None:
        self._data = bytes(data)
        self._end = len(self._data)
        self._where = where
        self.position = 0

    @property
    def where(self) -> str:
        """Return the name of what is read, for errors."""
        return self._where

    @property
    def remaining(self) -> int:
        """Return how many bytes are not read yet."""
        return self._end - self.position

    def corrupt(self, what: str) -> CorruptError:
        """Return the error to raise for `what`, with the current position."""
        return CorruptError(what, where=f"{self._where}, byte {self.position}")

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        """Read several integers at once."""
        end = self.position + form.size
        if end > self._end:
            raise self.corrupt(f"{counted(form.size, 'byte')} expected, {self.remaining} left")
        values = form.unpack_from(self._data, self.position)
        self.position = end
        return values

    def int8(self) -> int:
        return self.unpack(_I8)[0]

    def int16(self) -> int:
        return self.unpack(_I16)[0]

    def int32(self) -> int:
        return self.unpack(_I32)[0]

    def int64(self) -> int:
        return self.unpack(_I64)[0]

    def uint32(self) -> int:
        return self.unpack(_U32)[0]

    def uvarint(self) -> int:
        """Read an unsigned 32-bit varint, lowest seven bits first."""
        value = shift = 0
        while shift < 35:
            if self.position >= self._end:
                raise self.corrupt("the bytes end within a varint")
            byte = self._data[self.position]
            self.position += 1
            if byte < 0x80:
                return value | byte << shift
            value |= (byte & 0x7F) << shift
            shift += 7
        raise self.corrupt("a varint is longer than five bytes")

    def take(self, length: int) -> bytes:
        """Read the next `length` bytes."""
        start = self.position
        end = start + length
        if not start <= end <= self._end:
            raise self.corrupt(f"a length of {counted(length, 'byte')}, {self.remaining} left")
        self.position = end
        return self._data[start:end]

    def string(self, *, compact: bool = False) -> str:
        """Read a string that may not be null; malformed UTF-8 becomes U+FFFD, as in Kafka."""
        text = self.nullable_string(compact=compact)
        if text is None:
            raise self.corrupt("a string is null")
        return text

    def nullable_string(self, *, compact: bool = False) -> str | None:
        """Read a string; None if it is null."""
        length = self.uvarint() - 1 if compact else self.int16()
        return None if length == -1 else self.take(length).decode("utf-8", "replace")

    def array(self, item: Callable[[], T], *, compact: bool = False) -> list[T] | None:
        """Read an array; None if it is null."""
        count = self._count(compact=compact)
        return None if count is None else [item() for _ in range(count)]

    def int32s(self, *, compact: bool = False) -> tuple[int, ...]:
        """Read an array of int32; () if it is null."""
        count = self._count(compact=compact) or 0
        return self.unpack(struct.Struct(f">{count}i"))

    def _count(self, *, compact: bool) -> int | None:
        count = self.uvarint() - 1 if compact else self.int32()
        if count == -1:
            return None
        # No item of any Kafka array is shorter than a byte, so a greater count is impossible.
        if not 0 <= count <= self.remaining:
            raise self.corrupt(
                f"an array of {counted(count, 'item')}, {counted(self.remaining, 'byte')} left"
            )
        return count

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a flexible structure, known or not: tag to raw value."""
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}

    def java_text(self) -> str:
        """Read a text as Java's DataOutput.writeUTF writes it: u16 length and modified UTF-8.

        NUL is written as C0 80, and a character above U+FFFF as two surrogates of three bytes each.
        """
        data = self.take(self.int16() & 0xFFFF)
        try:
            units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except UnicodeDecodeError:
            raise self.corrupt("a text is not modified UTF-8") from None

    def ends(self) -> None:
        """Raise CorruptError if bytes are left."""
        if self.remaining:
            raise self.corrupt(counted(self.remaining, "byte follows", "bytes follow"))
