"""`__transaction_state` as read before, kept by offset: the next run reads only what is new.

One file per cluster, topic id and partition: the record batches as fetched, the length of each,
how many there are, and the CRC-32C of it all. It is a cache: losing it, or finding it damaged,
costs a longer read. Compaction takes records from the log that the cache still has, so it knows
more than the log, never less.
"""

import mmap
import os
import re
from collections.abc import Sequence

from eoctl.config import cache_dir
from recovery.errors import EoctlError
from recovery.formats.batches import scan_at
from recovery.formats.state_log import Part

MOST_BYTES = 256 << 20  # of one partition; a larger one is read anew each time
_END = 12  # bytes: the number of batches, the checksum


class StateCache:
    """Batches of one cluster's `__transaction_state`, in the user's cache folder."""

    def __init__(self, cluster_id: str, topic_id: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{cluster_id}.{topic_id}")
        self._folder = cache_dir() / "transaction-state" / name

    def load(self, partition: int) -> Part | None:
        """Whole batches in offset order, from the log start at that time; None if none."""
        import numpy as np
        from crc32c import crc32c

        try:
            with (self._folder / f"{partition}.batches").open("rb") as file:
                # mapped: fifty of them may be more than there is memory
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):
            return None
        if len(data) < _END or crc32c(data[:-4]).to_bytes(4, "big") != data[-4:]:
            return None
        count = int.from_bytes(data[-_END:-4], "big")
        behind = len(data) - _END - 4 * count
        if behind <= 0:
            return None
        sizes = np.frombuffer(data, "<u4", count, behind).astype(np.int64)
        return Part(data, scan_at(data, np.cumsum(sizes) - sizes, behind))

    def save(self, partition: int, parts: Sequence[Part]) -> None:
        """Replace what is kept of a partition. A full or read-only disk is no trouble."""
        import numpy as np
        from crc32c import crc32c

        path = self._folder / f"{partition}.batches"
        part = path.with_suffix(f".{os.getpid()}")
        sizes = [np.diff([*p.scan.positions, p.scan.end]).astype("<u4") for p in parts]
        count = sum(map(len, sizes)).to_bytes(_END - 4, "big")
        data = [p.data[: p.scan.end] for p in parts]
        pieces: list[bytes | memoryview] = [*data, *(s.tobytes() for s in sizes), count]
        try:
            if sum(map(len, pieces)) > MOST_BYTES:
                path.unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            check = 0
            with part.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                    check = crc32c(piece, check)
                file.write(check.to_bytes(4, "big"))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)


def state_cache(cluster_id: str | None, topic_id: str | None) -> StateCache | None:
    """The cache of this cluster's log; None where it has no ids, or there is no place for one."""
    if cluster_id is None or topic_id is None:
        return None
    try:
        return StateCache(cluster_id, topic_id)
    except EoctlError:
        return None
