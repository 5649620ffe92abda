"""The logs that a comparison reads: of a cluster, or of a source that only a mirror map knows."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from eoctl.engine.audit_reading import AuditOptions, columns, seen_by_readers
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.pump import ChunkProgress
from recovery.audit.audit_request import Resolved
from recovery.audit.mirror_map import BY_TIME, MapPartition, digest_text
from recovery.audit.mirror_steps import Rest
from recovery.audit.mirror_table import FIELDS
from recovery.errors import RefusedError
from recovery.formats.batches import scan_headers
from recovery.formats.columns import NO_TIMESTAMP, OUTCOMES, Batches, ColumnBatch, Slices
from recovery.shared.record_digests import record_digests
from recovery.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Digested = AsyncGenerator[tuple[ColumnBatch, "NDArray[np.uint64]"], None]
"""Records, and their digests as `recovery.shared.record_digests` gives them."""
OnProgress = Callable[[int, int], None]


class Progress:
    """Adds up what several readings have read. on_progress: None = nobody wants to know."""

    def __init__(self, on_progress: ChunkProgress | None) -> None:
        self._on_progress = on_progress
        self._size = 0

    def over(self, total: int) -> OnProgress:
        """Return the function to call in one pass over `total` offsets."""
        done = 0

        def advance(size: int, offsets: int) -> None:
            nonlocal done
            self._size, done = self._size + size, done + offsets
            if self._on_progress is not None:
                self._on_progress(self._size, done, total)

        return advance


class MirrorLog(Protocol):
    """A log that can be read several times."""

    def read(self, r: Resolved, end: int, on_progress: OnProgress) -> Digested:
        """Yield the records of the range up to `end`. Raises EoctlError; use with aclosing."""
        ...


@dataclass(frozen=True)
class ClusterLog:
    """The logs of a cluster. compared: the fields that make two records the same."""

    cluster: Cluster
    reading: AuditOptions
    compared: tuple[str, ...] = FIELDS

    async def read(self, r: Resolved, end: int, on_progress: OnProgress) -> Digested:
        """See MirrorLog."""
        parts = columns(self.cluster, r, end, self.reading, on_progress)
        async with aclosing(parts):
            async for part in parts:
                yield part, self._digests(part)

    def _digests(self, part: ColumnBatch) -> "NDArray[np.uint64]":
        return record_digests(
            part, timestamps="timestamp" in self.compared, headers="headers" in self.compared
        )


_MIX = 0x9E3779B97F4A7C15


class DigestSum:
    """The number of records and the sum of their digests, each multiplied by an odd hash of its
    offset, in ranges of offsets: records at other places have another sum.

    edges: where ranges begin and end, rising.
    """

    def __init__(self, edges: "NDArray[np.int64]") -> None:
        import numpy as np

        self._edges = edges
        self.count = np.zeros(len(edges) + 1, np.int64)
        self.sums = np.zeros((len(edges) + 1, 2), np.uint64)

    def add(self, offsets: "NDArray[np.int64]", digests: "NDArray[np.uint64]") -> None:
        """Add records, in any order."""
        import numpy as np

        at = np.searchsorted(self._edges, offsets, side="right")
        self.count += np.bincount(at, minlength=len(self.count))
        places = (offsets.astype(np.uint64) * np.uint64(_MIX)) >> np.uint64(31)
        factors = places * np.uint64(_MIX) | np.uint64(1)
        np.add.at(self.sums, at, digests * factors[:, None])

    def text(self, number: int) -> str:
        """Return the sum of the range before edge `number`."""
        return digest_text(self.sums[number].tolist())


@dataclass
class MappedLog:
    """A source's log as a mirror map knows it: its records are read in the mirror.

    mirror_range: of the mirror, up to its last stable offset. compacted: the mirror may be, so that
    records of the map may be gone. offset: a group's. Of the last complete reading: found_unread:
    pairs from that offset on; unchecked: records in blocks of which others are gone.
    """

    mirror: ClusterLog
    mirror_range: Resolved
    kept: MapPartition
    compacted: bool
    offset: int
    found_unread: int = field(default=0, init=False)
    unchecked: int = field(default=0, init=False)

    async def read(self, r: Resolved, end: int, on_progress: OnProgress) -> Digested:
        """See MirrorLog. Raises RefusedError if the mirror's records are not those of the map."""

        steps, rest = self.kept.unpacked()
        sums = sums_of(self.kept)
        self.found_unread = 0
        parts = self.mirror.read(self.mirror_range, self.mirror_range.end, on_progress)
        async with aclosing(parts):
            async for part, digests in parts:
                rows = seen_by_readers(part) & (part.offset < self.mirror_range.end)
                sums.add(part.offset[rows], digests[rows])
                sources = steps.sources(part.offset)
                rows &= sources >= 0
                if not rows.any():
                    continue
                sources = sources[rows]
                self.found_unread += int((sources >= self.offset).sum())
                yield replace(part.select(rows), offset=sources), digests[rows]
        self.unchecked = check_blocks(
            self.kept, sums, self.mirror_range, BY_TIME, compacted=self.compacted
        )
        # a read record that the mirror left out must not take the copy of a newer one like it
        lost = rest.visible & (rest.offset < min(self.offset, steps.reach))
        rest = rest.select(~lost)
        # of equal records the first ones have the pairs, and those without follow
        if len(rest):
            yield self._rest(rest)

    def _rest(self, rest: Rest) -> "tuple[ColumnBatch, NDArray[np.uint64]]":
        """Return records of which the map has the digest alone."""
        import numpy as np

        n = len(rest)
        began = NO_TIMESTAMP if self.kept.began is None else self.kept.began
        empty = Slices(np.zeros(0, np.uint8), np.zeros(n, np.int64), np.full(n, -1, np.int64))
        outcome = np.arange(len(OUTCOMES), dtype=np.int8)
        part = ColumnBatch(
            offset=rest.offset,
            timestamp=np.full(n, began, np.int64),
            key=empty,
            value=empty,
            headers=empty,
            batch=rest.outcome.astype(np.int64),
            batches=Batches(scan_headers(b""), outcome),
        )
        return part, rest.digest


def sums_of(kept: MapPartition) -> DigestSum:
    """Return the sum to which a mirror's records are added for `check_blocks`."""
    import numpy as np

    edges = [b.start for b in kept.blocks] + [b.end for b in kept.blocks[-1:]]
    return DigestSum(np.array(edges, np.int64))


def check_blocks(
    kept: MapPartition, sums: DigestSum, mirror: Resolved, remedy: str, *, compacted: bool
) -> int:
    """Compare the mirror's records with the map's blocks. Raise RefusedError if they are others.

    compacted: the mirror may be. Return the number of records in blocks that cannot be compared, as
    others of them are deleted.
    """
    unchecked = 0
    for number, block in enumerate(kept.blocks, 1):
        found = int(sums.count[number])
        deleted = block.start < mirror.start
        if deleted or (compacted and found < block.records):
            unchecked += found
        elif (found, sums.text(number)) != (block.records, block.digest):
            raise RefusedError(
                f"its records from {block.start} to {block.end} are not those that the map "
                f"saw: {found:,}, not {block.records:,}",
                where=str(mirror.topic_partition),
                remedy=f"the mirror was written again since: {remedy}",
            )
    return unchecked
