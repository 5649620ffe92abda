"""Flink's `_metadata`: which state of which operator a checkpoint or savepoint holds, and where.

Only operator state is kept: keyed state and channel state are skipped, since neither Kafka's sink
nor its source keeps anything in them. Pure: the file's bytes in, values out.
Source: Flink's classes Checkpoints, MetadataV3Serializer to MetadataV6Serializer,
MetadataV2V3SerializerBase, ChannelStateHandleSerializer (Flink 1.11 to 2.2); all big-endian.
"""

from collections.abc import Callable
from typing import NamedTuple

from recovery.errors import RefusedError
from recovery.formats.reader import Buffer, Reader
from recovery.plurals import counted
from recovery.values import Value

MAGIC = 0x4960672D
VERSIONS = range(3, 7)

_MASTER_MAGIC = 0xC96B1696
_MODES = 3  # SPLIT_DISTRIBUTE, UNION, BROADCAST
_MOST_DEPTH = 16  # handles within handles; Flink itself nests two


class StateHandle(NamedTuple):
    """Where a state's bytes are.

    inline: the bytes themselves, if they are in `_metadata`; otherwise path: the file, relative to
    the folder of `_metadata` if `relative`, else as Flink names it (a URI or a path). start, size:
    the part of the file, in bytes; size -1 = all of it.
    """

    inline: bytes | None = None
    path: str = ""
    relative: bool = False
    start: int = 0
    size: int = -1


class NamedState(Value):
    """One list state of one subtask. offsets: where its items begin at `handle`."""

    name: str
    subtask: int
    offsets: tuple[int, ...]
    handle: StateHandle


class Operator(Value):
    """One operator. id: 32 hex digits; name, uid: "" if the format has none (before 5)."""

    id: str
    name: str
    uid: str
    parallelism: int
    states: tuple[NamedState, ...]


class Metadata(Value):
    """A checkpoint's or savepoint's own file. version: of its format."""

    version: int
    checkpoint_id: int
    operators: tuple[Operator, ...]


def read_metadata(data: Buffer) -> Metadata:
    """Read the bytes of a `_metadata` file.

    Raises CorruptError for damaged bytes, RefusedError for an unknown format version or kind of
    handle. What follows the operator states (Java-serialised properties) is not read.
    """
    reader = Reader(data, "_metadata")
    if reader.uint32() != MAGIC:
        raise reader.corrupt("it does not begin as Flink's _metadata does")
    version = reader.int32()
    if version not in VERSIONS:
        raise RefusedError(
            f"its format version is {version}; known are {VERSIONS[0]} to {VERSIONS[-1]} "
            "(Flink 1.11 to 2.2)",
            where="_metadata",
        )
    checkpoint_id = reader.int64()
    if checkpoint_id < 0:
        raise reader.corrupt(f"the checkpoint id is {checkpoint_id}")
    for _ in range(_count(reader, "master states")):
        if reader.uint32() != _MASTER_MAGIC:
            raise reader.corrupt("a master state does not begin as it must")
        reader.take(reader.int32())
    operators = _Operators(reader, version)
    return Metadata(
        version, checkpoint_id, tuple(operators.one() for _ in range(_count(reader, "operators")))
    )


def _count(reader: Reader, of: str, least_bytes: int = 1) -> int:
    """Read a number of things of at least `least_bytes` each: an impossible number is refused."""
    count = reader.int32()
    if not 0 <= count * least_bytes <= reader.remaining:
        raise reader.corrupt(f"{of}: {count}, with {counted(reader.remaining, 'byte')} left")
    return count


class _Operators:
    """The operators of one file, read one after the other."""

    def __init__(self, reader: Reader, version: int) -> None:
        self._reader, self._version = reader, version

    def one(self) -> Operator:
        reader = self._reader
        name = uid = ""
        if self._version >= 5:
            name, uid = reader.java_text(), reader.java_text()
        lower, upper = reader.take(8), reader.take(8)
        parallelism = reader.int32()
        reader.int32()  # the highest parallelism
        _handle(reader)  # the coordinator's state
        states: list[NamedState] = []
        subtasks = reader.int32()
        if not -1 <= subtasks <= reader.remaining:  # -1: all of its subtasks have finished
            raise reader.corrupt(
                f"subtasks: {subtasks}, with {counted(reader.remaining, 'byte')} left"
            )
        for _ in range(subtasks):
            subtask = reader.int32()
            if subtask >= 0:  # a negative one has finished and has no state
                states += self._subtask(subtask)
        return Operator((lower + upper).hex(), name, uid, parallelism, tuple(states))

    def _subtask(self, subtask: int) -> list[NamedState]:
        reader = self._reader
        states: list[NamedState] = []
        for _ in ("managed", "raw"):
            if reader.int32() != 0:
                states += self._operator_state(subtask)
        for _ in ("managed", "raw"):
            _keyed(reader)
        for _ in ("input", "output"):
            for _ in range(_count(reader, "channel states")):
                self._channel()
        return states

    def _operator_state(self, subtask: int) -> list[NamedState]:
        reader = self._reader
        kind = reader.int8()
        if kind == 0:
            return []
        if kind not in (4, 17):
            raise _unknown("an operator state", kind)
        found = []
        for _ in range(_count(reader, "states", 7)):
            name = reader.java_text()
            mode = reader.int8()
            if not 0 <= mode < _MODES:
                raise reader.corrupt(f"a state's distribution mode is {mode}")
            found.append((name, _longs(reader)))
        if kind == 17:  # of merged files: two folders, and whether it is empty
            reader.java_text()
            reader.java_text()
            reader.int8()
        handle = _handle(reader)
        if handle is None:
            if any(offsets for _, offsets in found):
                raise reader.corrupt("a state has items and no bytes")
            return []
        return [NamedState(name, subtask, offsets, handle) for name, offsets in found]

    def _channel(self) -> None:
        reader = self._reader
        kind = reader.int8() if self._version >= 6 else 1
        if kind in (1, 2):
            reader.take(12)  # subtask, and two numbers that name the channel
            _longs(reader)
            reader.int64()
            _handle(reader)
        elif kind in (3, 4):  # all channels of a subtask in one
            reader.take(12)
            _handle(reader)
            reader.take(reader.int32())
        else:
            raise _unknown("a channel state", kind)


def _longs(reader: Reader) -> tuple[int, ...]:
    return tuple(reader.int64() for _ in range(_count(reader, "numbers", 8)))


def _unknown(of: str, kind: int) -> RefusedError:
    return RefusedError(f"{of} has a handle of type {kind}, which is not known", where="_metadata")


def _handle(reader: Reader, depth: int = 0) -> StateHandle | None:
    """Read a handle of bytes; None: it has none."""
    kind = reader.int8()
    if kind in (0, 16):
        return None
    if kind == 1:
        reader.java_text()
        return StateHandle(inline=reader.take(reader.int32()))
    if kind == 2:
        size = reader.int64()
        return StateHandle(path=reader.java_text(), size=_size(reader, size))
    if kind == 6:
        path = reader.java_text()
        return StateHandle(path=path, relative=True, size=_size(reader, reader.int64()))
    if kind == 15:  # a part of a merged file
        start, size = reader.int64(), _size(reader, reader.int64())
        reader.int32()
        path = reader.java_text()
        reader.java_text()
        if start < 0:
            raise reader.corrupt(f"a part of a file begins at {start}")
        return StateHandle(path=path, start=start, size=size)
    if kind == 3:
        reader.int32()
        _longs(reader)
        return _handle(reader, _deeper(reader, depth))
    raise _unknown("a state", kind)


def _size(reader: Reader, size: int) -> int:
    if size < 0:
        raise reader.corrupt(f"a state of {counted(size, 'byte')}")
    return size


def _deeper(reader: Reader, depth: int) -> int:
    if depth >= _MOST_DEPTH:
        raise reader.corrupt("handles within handles without end")
    return depth + 1


def _keyed(reader: Reader, depth: int = 0) -> None:
    """Skip a handle of keyed state."""
    kind = reader.int8()
    if kind == 0:
        return
    passed = _KEYED.get(kind)
    if passed is None:
        raise _unknown("a keyed state", kind)
    passed(reader, kind, _deeper(reader, depth))


def _key_groups(reader: Reader, kind: int, depth: int) -> None:
    reader.int32()
    _longs(reader)
    _handle(reader)
    if kind == 12:
        reader.java_text()


def _incremental(reader: Reader, kind: int, depth: int) -> None:
    reader.int64()
    reader.java_text()
    reader.take(16 if kind == 11 else 8)  # key groups, and from the second format on the size
    _handle(reader)
    for _ in ("shared", "private"):
        for _ in range(_count(reader, "files", 3)):
            reader.java_text()
            _handle(reader)
    if kind == 11:
        reader.java_text()


def _changelog(reader: Reader, kind: int, depth: int) -> None:
    reader.take(16)
    for _ in ("materialised", "since"):
        for _ in range(_count(reader, "handles")):
            _keyed(reader, depth)
    reader.take(16 if kind == 14 else 8)
    reader.java_text()


def _changelog_bytes(reader: Reader, kind: int, depth: int) -> None:
    reader.take(24)
    for _ in range(_count(reader, "changes", 8)):
        reader.int32()
        reader.take(reader.int32())
    reader.java_text()


def _changelog_files(reader: Reader, kind: int, depth: int) -> None:
    reader.take(8)
    for _ in range(_count(reader, "files", 9)):
        reader.int64()
        _handle(reader)
    reader.take(16)
    reader.java_text()
    if kind == 13:
        reader.java_text()


_KEYED: dict[int, Callable[[Reader, int, int], None]] = {
    3: _key_groups,
    7: _key_groups,
    12: _key_groups,
    5: _incremental,
    11: _incremental,
    8: _changelog,
    14: _changelog,
    9: _changelog_bytes,
    10: _changelog_files,
    13: _changelog_files,
}
