"""The alphabet of Kafka's formats: integers, varints, strings, arrays and tagged fields from bytes.

Every decoder in this package reads through `Reader`, so that cut or absurd bytes end as one
`CorruptError` with their position, never as an IndexError.
Source: Kafka's protocol guide, "Protocol Primitive Types"; KIP-482 (flexible versions);
classes ByteBufferAccessor and ByteUtils.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, Self, TypeVar

from recovery.errors import IncompleteError

T = TypeVar("T")

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")


class CorruptError(IncompleteError):
    """Bytes that are not what their format says; the question on them cannot be answered."""

    def within(self, where: str) -> Self:
        """The same finding, with the place that only the caller knows (a partition, a file)."""
        inner = f"{where}, {self.where}" if self.where else where
        return type(self)(self.what, where=inner, remedy=self.remedy)


class UnknownVersion(NamedTuple):
    """A key or value in a version this decoder does not know: something was written, unreadable."""

    version: int


class Reader:
    """A position in a buffer (bytes, bytearray or memoryview); each call reads one value.

    Raises CorruptError when the bytes end within a value or a length is impossible. `where` names
    the thing that is read, for the error's sentence.
    """

    __slots__ = ("_buffer", "_end", "_where", "position")

    def __init__(self, buffer: bytes | bytearray | memoryview, where: str) -> None:
        self._buffer = memoryview(buffer)
        self._end = len(self._buffer)
        self._where = where
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self._end - self.position

    def corrupt(self, what: str) -> CorruptError:
        """The error to raise for `what`, with the place reached."""
        return CorruptError(what, where=f"{self._where}, byte {self.position}")

    def _fixed(self, form: struct.Struct) -> int:
        if self.remaining < form.size:
            raise self.corrupt(f"{form.size} bytes expected, {self.remaining} left")
        value: int = form.unpack_from(self._buffer, self.position)[0]
        self.position += form.size
        return value

    def int8(self) -> int:
        return self._fixed(_I8)

    def int16(self) -> int:
        return self._fixed(_I16)

    def int32(self) -> int:
        return self._fixed(_I32)

    def int64(self) -> int:
        return self._fixed(_I64)

    def uint32(self) -> int:
        return self._fixed(_U32)

    def uvarint(self) -> int:
        """An unsigned 32-bit varint, little groups of seven bits first."""
        value = 0
        for shift in range(0, 35, 7):
            if not self.remaining:
                raise self.corrupt("the bytes end within a varint")
            byte = self._buffer[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.corrupt("a varint is longer than five bytes")

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        if not 0 <= length <= self.remaining:
            raise self.corrupt(f"a length of {length} bytes, {self.remaining} left")
        start = self.position
        self.position += length
        return bytes(self._buffer[start : self.position])

    def string(self, *, compact: bool = False) -> str:
        """A string that may not be null; malformed UTF-8 becomes U+FFFD, as in Kafka."""
        length = self.uvarint() - 1 if compact else self.int16()
        return self.take(length).decode("utf-8", "replace")

    def array(self, item: Callable[[], T], *, compact: bool = False) -> list[T] | None:
        """An array; None where it is null."""
        count = self.uvarint() - 1 if compact else self.int32()
        if count == -1:
            return None
        # No item of any Kafka array is shorter than a byte: an absurd count must not be believed.
        if not 0 <= count <= self.remaining:
            raise self.corrupt(f"an array of {count} items, {self.remaining} bytes left")
        return [item() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a flexible structure, known or not: tag to raw value."""
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}
