"""`__transaction_state` as read before, kept by offset: the next run reads only what is new.

One file per cluster, topic id and partition: the record batches as fetched, then their CRC-32C.
It is a cache: losing it, or finding it damaged, costs a longer read. Compaction takes records from
the log that the cache still has, so it knows more than the log, never less.
"""

import os
import re

from eoctl.config import cache_dir
from recovery.errors import EoctlError

_CHECK = 4  # bytes of the checksum
MOST_BYTES = 256 << 20  # of one partition; a larger one is read anew each time


class StateCache:
    """Batches of one cluster's `__transaction_state`, in the user's cache folder."""

    def __init__(self, cluster_id: str, topic_id: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{cluster_id}.{topic_id}")
        self._folder = cache_dir() / "transaction-state" / name

    def load(self, partition: int) -> bytes:
        """Whole batches in offset order, from the log start at that time; empty if none."""
        from crc32c import crc32c

        try:
            data = (self._folder / f"{partition}.batches").read_bytes()
        except OSError:
            return b""
        batches, check = data[:-_CHECK], data[-_CHECK:]
        return batches if crc32c(batches).to_bytes(_CHECK, "big") == check else b""

    def save(self, partition: int, batches: list[bytes]) -> None:
        """Replace what is kept of a partition. A full or read-only disk is no trouble."""
        from crc32c import crc32c

        path = self._folder / f"{partition}.batches"
        part = path.with_suffix(f".{os.getpid()}")
        try:
            if sum(map(len, batches)) > MOST_BYTES:
                path.unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with part.open("wb") as file:
                file.writelines(batches)
                check = 0
                for data in batches:
                    check = crc32c(data, check)
                file.write(check.to_bytes(_CHECK, "big"))
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
