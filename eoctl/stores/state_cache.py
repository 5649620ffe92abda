"""`__transaction_state` as read before, kept by offset: the next run reads only what is new.

One file per cluster, topic id and partition: the record batches as fetched, the length of each,
how many there are, and the CRC-32C of it all. Losing it, or finding it damaged, costs a longer
read. But it also knows what the cluster has forgotten, and that is evidence: records that
compaction took, an end that an unclean election cut off, a log that was deleted. So what the log
contradicts is set aside (`retire`) and never dropped. Beside it: which ids the topics had.
"""

import json
import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.config import cache_dir
from recovery.errors import EoctlError
from recovery.formats.batches import scan_at
from recovery.formats.state_log import Former, Part
from recovery.topic_sightings import Sighting

MOST_BYTES = 256 << 20  # of one partition; a larger one is read anew each time
_END = 12  # bytes: the number of batches, the checksum


class StateCache:
    """Batches of one cluster's `__transaction_state`, in the user's cache folder."""

    def __init__(self, cluster_id: str, topic_id: str) -> None:
        self._cluster = _plain(f"{cluster_id}.")
        self._folder = cache_dir() / "transaction-state" / _plain(f"{cluster_id}.{topic_id}")

    def load(self, partition: int) -> Part | None:
        """Whole batches in offset order, from the log start at that time; None if none."""
        return _read(self._folder / f"{partition}.batches")

    def retire(self, partition: int) -> None:
        """Set aside what the log of this topic does not hold any more."""
        path = self._folder / f"{partition}.batches"
        number = len(list(self._folder.glob(f"{partition}.*.lost")))
        try:
            path.replace(self._folder / f"{partition}.{number}.lost")
        except OSError:
            return

    def former(self) -> list[Former]:
        """All that was set aside, and all that was kept of earlier topics of this cluster."""
        return [
            Former(int(number), part, path.parent == self._folder)
            for path in sorted(self._folder.parent.glob(f"{self._cluster}*/*"))
            if path.suffix == ".lost" or (path.suffix == ".batches" and path.parent != self._folder)
            if (number := path.name.split(".")[0]).isdecimal()
            if (part := _read(path)) is not None
        ]

    def sightings(self, topics: Iterable[str]) -> dict[str, list[Sighting]]:
        """The ids that each topic's name had, as far as this host saw them."""
        known = self._seen().get("topics", {})
        return {
            topic: [
                Sighting(topic_id, _numbers(after), _numbers(before))
                for topic_id, (after, before) in known.get(topic, {}).items()
            ]
            for topic in topics
        }

    def sight(self, topics: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Note the ids of topics. ends: of `__transaction_state`, read after the ids were.

        The ends that an earlier call left were read before these ids were.
        """
        seen = self._seen()
        before = seen.get("ends", {})
        known = seen.setdefault("topics", {})
        for topic, topic_id in topics.items():
            row = known.setdefault(topic, {}).setdefault(topic_id, [{}, {}])
            row[0] = {str(n): end for n, end in ends.items()} | row[0]
            row[1] = row[1] | before
        seen["ends"] = before | {str(n): end for n, end in ends.items()}
        path = self._folder / "topics.json"
        part = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_text(json.dumps(seen), encoding="utf-8")
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()

    def _seen(self) -> dict[str, Any]:
        """What `sight` wrote; nothing where that is damaged."""
        try:
            found = json.loads((self._folder / "topics.json").read_text(encoding="utf-8"))
            _numbers(found.get("ends", {}))
            for ids in found.get("topics", {}).values():
                for after, before in ids.values():
                    _numbers(after), _numbers(before)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}
        return dict(found)

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
            with suppress(OSError):
                part.unlink()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _numbers(ends: Mapping[str, int]) -> dict[int, int]:
    """Raises ValueError, TypeError, AttributeError for what is no such thing."""
    if not all(isinstance(end, int) for end in ends.values()):
        raise ValueError("an end is a number")
    return {int(number): end for number, end in ends.items()}


def _read(path: Path) -> Part | None:
    import numpy as np
    from crc32c import crc32c

    try:
        with path.open("rb") as file:
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


def state_cache(cluster_id: str | None, topic_id: str | None) -> StateCache | None:
    """The cache of this cluster's log; None where it has no ids, or there is no place for one."""
    if cluster_id is None or topic_id is None:
        return None
    try:
        return StateCache(cluster_id, topic_id)
    except EoctlError:
        return None
