"""Find duplicates by the source record's number: one number per source partition is enough.

A job that copies source partition s writes its outputs in the order of s; after a restart it goes
back and repeats some. So the highest number (offset, index) of each source is kept, and an output
that is not above it is a repeat. That holds only for one writer in order, so the last numbers are
remembered with a digest of each record: a number that was skipped and comes later, and a number
that comes again with other content, are reported instead of dropped.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from recovery.errors import RefusedError

Judged = Literal["new", "repeated", "differs"]
WINDOW = 100_000


class Number(NamedTuple):
    """A record's origin: topic ("" if there is only one), partition, offset.

    nth: its index among the records made from one source record.
    """

    topic: str
    partition: int
    offset: int
    nth: int = 0

    @property
    def source(self) -> tuple[str, int]:
        return self.topic, self.partition

    def __str__(self) -> str:
        topic = f"{self.topic}:" if self.topic else ""
        index = f" index {self.nth}" if self.nth else ""
        return f"{topic}{self.partition} offset {self.offset}{index}"


@dataclass(slots=True)
class _Source:
    """last: the highest (offset, index); window: the last ones, ascending; digests: theirs."""

    last: tuple[int, int]
    window: deque[tuple[int, int]]
    digests: dict[tuple[int, int], int]
    complete: bool  # the window holds every number that was ever seen


class SourceNumbers:
    """The numbers of each source that one output partition has seen.

    window: how many of the last numbers of each source are remembered with their digests.
    unchecked: repeats of older numbers, dropped by their number alone.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._sources: dict[tuple[str, int], _Source] = {}
        self.unchecked = 0

    def judge(self, number: Number, digest: int, where: str) -> Judged:
        """Judge the log's next record. digest: of its content. where: its place, for the error.

        Raises RefusedError for a number that is below the highest but new: then one number per
        source does not show what is a duplicate.
        """
        at = number.offset, number.nth
        source = self._sources.get(number.source)
        if source is None:
            self._sources[number.source] = _Source(at, deque([at]), {at: digest}, True)
            return "new"
        if at > source.last:
            self._remember(source, at, digest)
            return "new"
        known = source.digests.get(at)
        if known is not None:
            return "repeated" if known == digest else "differs"
        if source.complete or at > source.window[0]:
            offset, index = source.last
            last = Number(*number.source, offset, index)
            raise RefusedError(
                f"source {number} comes for the first time after {last}: the records of a source "
                "are not in order here",
                where=where,
                remedy="compare ids instead: `--by header:NAME`, `--by key` or `--by json:PATH`",
            )
        self.unchecked += 1
        return "repeated"

    def _remember(self, source: _Source, at: tuple[int, int], digest: int) -> None:
        source.last = at
        source.window.append(at)
        source.digests[at] = digest
        if len(source.window) > self._window:
            del source.digests[source.window.popleft()]
            source.complete = False

    def dump(self) -> list[list[object]]:
        """Return everything as JSON values, which `load` reads."""
        return [
            [topic, partition, source.complete, [[*at, source.digests[at]] for at in source.window]]
            for (topic, partition), source in self._sources.items()
        ]

    @classmethod
    def load(cls, content: list[list[object]], window: int = WINDOW) -> "SourceNumbers":
        """Return the numbers from `dump`. Raises ValueError or TypeError for any other content."""
        made = cls(window)
        for topic, partition, complete, rows in content:
            if not (
                isinstance(topic, str) and isinstance(partition, int) and isinstance(rows, list)
            ):
                raise ValueError("no numbers of sources")
            numbers = [((int(o), int(i)), int(d)) for o, i, d in rows]
            made._sources[topic, partition] = _Source(
                numbers[-1][0], deque(at for at, _ in numbers), dict(numbers), bool(complete)
            )
        return made


class Chunk(NamedTuple):
    """Up to 65,536 offsets of a source, with those that have outputs in an output partition.

    number: of the chunk within the source; bits: a bit for each offset, lowest offset first.
    """

    topic: str
    source: int
    number: int
    partition: int
    bits: bytes


class Scattered:
    """One bit per source offset, which finds a record whose outputs went to two partitions.

    Numbers per output partition miss a repeat that went to another partition, which happens if the
    number of partitions changed. Memory: 1/8 byte per source offset and output partition. found:
    the first source record with outputs in two partitions, as a sentence.
    """

    _CHUNK = 16  # bits of an offset inside a chunk

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], dict[int, dict[int, bytearray]]] = {}
        self.found: str | None = None

    def add(self, number: Number, partition: int) -> None:
        """Note that an output of this source record is in this partition."""
        high, low = number.offset >> self._CHUNK, number.offset & ((1 << self._CHUNK) - 1)
        by_partition = self._seen.setdefault(number.source, {}).setdefault(high, {})
        at, bit = low >> 3, 1 << (low & 7)
        mine = by_partition.get(partition)
        if mine is None:
            mine = by_partition[partition] = bytearray(1 << (self._CHUNK - 3))
        mine[at] |= bit
        for other, bits in by_partition.items():
            if other != partition and bits[at] & bit:
                self._note(number, other, partition)

    def chunks(self) -> Iterator[Chunk]:
        """Yield everything in chunks for `add_chunk` elsewhere."""
        for (topic, source), by_number in self._seen.items():
            for number, by_partition in by_number.items():
                for partition, bits in by_partition.items():
                    yield Chunk(topic, source, number, partition, bytes(bits))

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a chunk from another process."""
        by_number = self._seen.setdefault((chunk.topic, chunk.source), {})
        by_partition = by_number.setdefault(chunk.number, {})
        mine = int.from_bytes(chunk.bits, "little")
        for other, bits in by_partition.items():
            both = mine & int.from_bytes(bits, "little")
            if both and other != chunk.partition:
                low = (both & -both).bit_length() - 1
                number = Number(chunk.topic, chunk.source, (chunk.number << self._CHUNK) + low)
                self._note(number, *sorted((other, chunk.partition)))
        by_partition[chunk.partition] = bytearray(chunk.bits)

    def _note(self, number: Number, one: int, other: int) -> None:
        if self.found is None:
            self.found = f"source {number} is in partitions {one} and {other}"
