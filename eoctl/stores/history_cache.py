"""`__transaction_state` as read before, kept by offset: the next run reads only what is new.

One file per cluster, topic id and partition: the record batches as fetched, the length of each, the
format's version, how many there are, and the CRC-32C of it all. The highest bit of a length marks
the first batch of a later read (version 1): between two reads the log may have been compacted.
Losing it, or finding it damaged, costs a longer read. But it also knows what the cluster has
forgotten, and that is evidence: records that compaction took, an end that an unclean election cut
off, a log that was deleted. So what the log contradicts is set aside (`retire`) and never dropped.
Beside it: which ids the topics had. They tell a cluster too: another one may bear the same cluster
id (a fixed one, a cluster that was installed anew), and its producer ids mean other producers.
"""

import itertools
import json
import mmap
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from eoctl.settings.folders import cache_dir
from eoctl.stores.journal import who
from eoctl.stores.locks.lock import WAIT_SECONDS, lock_file
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.formats.batches import places_at
from recovery.inspect.state_log import Former, LogPart
from recovery.inspect.topic_sightings import Sighting

MOST_BYTES = 256 << 20  # of one partition; what goes beyond is read anew each time
VERSION = 1  # of the batches' format; in version 0 any batch may have begun a read
SIGHTINGS_VERSION = 0  # of topics.json
_LATER_READ = 1 << 31
_END = 12  # bytes: the version in one, the number of batches in seven, the checksum in four


class StateCache:
    """Batches of one cluster's `__transaction_state`, in the user's cache folder."""

    def __init__(self, cluster_id: str, topic_id: str) -> None:
        self._cluster = _plain(f"{cluster_id}.")
        self._folder = cache_dir() / "transaction-state" / _plain(f"{cluster_id}.{topic_id}")

    def load(self, partition: int) -> LogPart | None:
        """Whole batches in offset order, from the log start at that time; None if none."""
        return _read(self._folder / f"{partition}.batches")

    def retire(self, partition: int, part: LogPart) -> None:
        """Set aside what the log of this topic does not hold any more, as it was loaded."""
        path = self._folder / f"{partition}.batches"
        now = _read(path)
        if now is None or now.data != part.data:
            return  # another process has set it aside, and kept what the log holds now
        try:
            path.replace(next(p for p in self._names(partition) if not p.exists()))
        except OSError:
            return

    def _names(self, partition: int) -> Iterator[Path]:
        return (self._folder / f"{partition}.{number}.lost" for number in itertools.count())

    @property
    def has_earlier(self) -> bool:
        """Something is kept under this cluster id of another topic than the present one."""
        return any(folder != self._folder for folder in self._folders())

    def _folders(self) -> list[Path]:
        return sorted(self._folder.parent.glob(f"{self._cluster}*"))

    def former(self, present: Mapping[str, str]) -> list[Former]:
        """All that was set aside, and all that was kept of earlier topics of this cluster.

        present: topic → id now. What was kept beside none of these ids may be of another cluster.
        """
        ours = [
            f for f in self._folders() if f == self._folder or _shares(_read_sightings(f), present)
        ]
        return [
            Former(int(number), part, path.parent == self._folder)
            for path in sorted(path for folder in ours for path in folder.glob("*"))
            if path.suffix == ".lost" or (path.suffix == ".batches" and path.parent != self._folder)
            if (number := path.name.split(".")[0]).isdecimal()
            if (part := _read(path)) is not None
        ]

    def sightings(self, topics: Iterable[str]) -> dict[str, list[Sighting]]:
        """The ids that each topic's name had, as far as this host saw them, first seen first."""
        known = _read_sightings(self._folder).get("topics", {})
        return {
            topic: [
                Sighting(topic_id, _numbers(after), _numbers(before))
                for topic_id, (after, before) in known.get(topic, {}).items()
            ]
            for topic in topics
        }

    def noted_ends(self) -> dict[int, int]:
        """The ends of `__transaction_state` that the last look left."""
        return _numbers(_read_sightings(self._folder).get("ends", {}))

    async def sight(
        self,
        topics: Mapping[str, str],
        ends: Mapping[int, int],
        confirmed: Collection[str] = (),
        before: Mapping[int, int] | None = None,
    ) -> None:
        """Note the ids of topics. ends: of `__transaction_state`, read after the ids were.

        confirmed: topics whose own leaders know them by these ids, asked after `before`
        (`noted_ends`) was read: what stands below it is not about a later topic of that name.
        Nothing is noted where another process writes for long, or on a full or read-only disk.
        """
        lock_path = self._folder / "topics.lock"
        try:
            lock = await lock_file(lock_path, "the topics seen", who(), WAIT_SECONDS)
        except RefusedError:
            return
        try:
            self._sight(topics, ends, confirmed, before or {})
        finally:
            lock.release()

    def _sight(
        self,
        topics: Mapping[str, str],
        ends: Mapping[int, int],
        confirmed: Collection[str],
        before: Mapping[int, int],
    ) -> None:
        sightings = _read_sightings(self._folder)
        known = sightings.setdefault("topics", {})
        for topic, topic_id in topics.items():
            ids = known.setdefault(topic, {})
            after, until = ids.setdefault(topic_id, [{}, {}])
            after |= _texts(ends) | after
            if topic in confirmed and topic_id == next(reversed(ids)):  # no later id was seen
                until |= _texts(before)
        sightings["version"] = SIGHTINGS_VERSION
        sightings["ends"] = sightings.get("ends", {}) | _texts(ends)
        path = self._folder / "topics.json"
        part = path.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(sightings), encoding="utf-8")
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()

    def save(self, partition: int, parts: Sequence[LogPart]) -> None:
        """Replace what is kept of a partition. A full or read-only disk is no trouble."""
        from crc32c import crc32c

        path = self._folder / f"{partition}.batches"
        part = path.with_suffix(f".{os.getpid()}")
        sizes = [
            b - a for p in parts for a, b in pairwise([*map(int, p.scan.positions), p.scan.end])
        ]
        for row in _reads(parts):
            sizes[row] |= _LATER_READ
        data = [p.data[: p.scan.end] for p in parts]
        pieces: list[bytes | memoryview] = [
            *data,
            struct.pack(f"<{len(sizes)}I", *sizes),
            bytes([VERSION]) + len(sizes).to_bytes(_END - 5, "big"),
        ]
        try:
            if sum(map(len, pieces)) > MOST_BYTES:
                return  # what is kept already stays: it is evidence, and still saves reading it
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


def _reads(parts: Sequence[LogPart]) -> list[int]:
    """Rows with which a later read began: those kept, and the first one that was read now."""
    kept, *new = parts
    if kept.reads is None:
        return []
    return [*kept.reads, len(kept.scan)] if new else list(kept.reads)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _read_sightings(folder: Path) -> dict[str, Any]:
    """Read what `StateCache.sight` wrote in this folder; nothing where it is damaged."""
    try:
        content = json.loads((folder / "topics.json").read_text(encoding="utf-8"))
        if (version := content.get("version", SIGHTINGS_VERSION)) != SIGHTINGS_VERSION:
            raise _newer(folder / "topics.json", version, SIGHTINGS_VERSION)
        _numbers(content.get("ends", {}))
        for ids in content.get("topics", {}).values():
            for after, before in ids.values():
                _numbers(after), _numbers(before)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return dict(content)


def _newer(path: Path, version: object, newest: int) -> UsageError:
    return UsageError(
        f"the cache is of version {str(version)[:20]!r}, and this eoctl reads version {newest}",
        where=str(path),
        remedy="use the newer eoctl that wrote it, or set EOCTL_CACHE_DIR to another folder",
    )


def _shares(sightings: Mapping[str, Any], present: Mapping[str, str]) -> bool:
    """Return True if one of the topics seen exists today with the same id."""
    return any(present.get(topic) in ids for topic, ids in sightings.get("topics", {}).items())


def _texts(ends: Mapping[int, int]) -> dict[str, int]:
    return {str(number): end for number, end in ends.items()}


def _numbers(ends: Mapping[str, int]) -> dict[int, int]:
    """Raises ValueError, TypeError, AttributeError for what is no such thing."""
    if not all(isinstance(end, int) for end in ends.values()):
        raise ValueError("an end is a number")
    return {int(number): end for number, end in ends.items()}


def _read(path: Path) -> LogPart | None:
    from crc32c import crc32c

    try:
        with path.open("rb") as file:
            # mapped: fifty of them may be more than there is memory
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None
    if len(data) < _END or crc32c(data[:-4]).to_bytes(4, "big") != data[-4:]:
        return None
    if (version := data[-_END]) > VERSION:
        raise _newer(path, version, VERSION)
    count = int.from_bytes(data[-_END + 1 : -4], "big")
    behind = len(data) - _END - 4 * count
    if behind <= 0:
        return None
    sizes = struct.unpack_from(f"<{count}I", data, behind)
    reads: Sequence[int] = range(1, count)
    if version:
        reads = [row for row, size in enumerate(sizes) if size & _LATER_READ]
    starts = list(itertools.accumulate((size & ~_LATER_READ for size in sizes), initial=0))[:-1]
    return LogPart(data, places_at(data, starts, behind), reads)


def state_cache(cluster_id: str | None, topic_id: str | None) -> StateCache | None:
    """The cache of this cluster's log; None where it has no ids, or there is no place for one."""
    if cluster_id is None or topic_id is None:
        return None
    try:
        return StateCache(cluster_id, topic_id)
    except EoctlError:
        return None
