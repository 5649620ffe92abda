"""`__transaction_state` as read before, kept by offset: the next run reads only what is new.

A folder per cluster and topic id, in it a `KeptLog` per partition. Losing a file costs a longer
read. But it also holds what the cluster has forgotten, which is evidence: records that compaction
removed, an end that an unclean election cut off, a log that was deleted. So files that the log
contradicts are set aside (`NUMBER.N.lost`) and never dropped; so is a damaged file
(`NUMBER.N.damaged`), of which the sound part is read. The topics' ids are kept too. They identify a
cluster as well: another one may have the same cluster id (a fixed one, a reinstalled cluster), and
its producer ids mean other producers.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.settings.folders import cache_dir
from eoctl.stores.former_cache import is_former, take_over
from eoctl.stores.journal_files import who
from eoctl.stores.kept_log import KeptLog, newer
from eoctl.stores.locks.folder_lock import held
from eoctl.stores.locks.lock import WAIT_SECONDS, lock_file
from eoctl.stores.log_reading import ASIDE, LogReading, set_aside
from recovery.errors import EoctlError, RefusedError
from recovery.inspect.state_log import Former
from recovery.inspect.topic_sightings import Sighting

SIGHTINGS_VERSION = 0  # of topics.json


class StateCache:
    """The kept part of one cluster's `__transaction_state`, in the user's cache folder."""

    def __init__(self, cluster_id: str, topic_id: str) -> None:
        self._cluster = _plain(f"{cluster_id}.")
        self._folder = cache_dir() / "transaction-state" / _plain(f"{cluster_id}.{topic_id}")

    def reading(self, partition: int) -> LogReading:
        """Begin to read a partition after its kept batches.

        Raises UsageError for a newer format.
        """
        path = self._folder / f"{partition}.log"
        old = path.with_suffix(".batches")
        if old.exists():
            with held(self._folder, exclusive=True) as ours:
                if ours and (path.exists() or not take_over(old, path)):
                    set_aside(old, ".damaged")
        return LogReading(path)

    @property
    def has_earlier(self) -> bool:
        """Return True if another topic than the present one was kept under this cluster id."""
        return any(folder != self._folder for folder in self._folders())

    def _folders(self) -> list[Path]:
        return sorted(self._folder.parent.glob(f"{self._cluster}*"))

    def former(self, present: Mapping[str, str]) -> Iterator[Former]:
        """Yield all logs set aside, and those kept of earlier topics of this cluster.

        Each can be read until the next one is requested. present: topic → id now. A log kept with
        none of these ids may be another cluster's.
        """
        ours = [
            f for f in self._folders() if f == self._folder or _shares(_read_sightings(f), present)
        ]
        for path in sorted(path for folder in ours for path in folder.glob("*")):
            present_topic = path.parent == self._folder
            aside = path.suffix in ASIDE
            if not (aside or (path.suffix in (".log", ".batches") and not present_topic)):
                continue
            number = path.name.split(".")[0]
            if number.isdecimal():
                lost = present_topic and path.suffix == ".lost"
                yield from _former(int(number), path, same_topic=lost)

    def sightings(self, topics: Iterable[str]) -> dict[str, list[Sighting]]:
        """Return the ids that each topic's name had, as far as this host saw them, oldest first."""
        known = _read_sightings(self._folder).get("topics", {})
        return {
            topic: [
                Sighting(topic_id, _numbers(after), _numbers(before))
                for topic_id, (after, before) in known.get(topic, {}).items()
            ]
            for topic in topics
        }

    def noted_ends(self) -> dict[int, int]:
        """Return the ends of `__transaction_state` noted last."""
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
        (`noted_ends`) was read: records below it are not about a later topic of that name. Notes
        nothing while another process writes for long, or on a full or read-only disk.
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


def _former(number: int, path: Path, *, same_topic: bool) -> Iterator[Former]:
    """Yield the batches in this file, if there are any."""
    if path.suffix != ".log" and is_former(path):
        with held(path.parent, exclusive=True) as ours:
            new = path.with_suffix(".log") if path.suffix == ".batches" else path
            if ours and take_over(path, new):
                path = new
    try:
        with KeptLog(path, lenient=True) as log:
            if log.last is not None:
                yield Former(number, log, log.last.leader_epoch, same_topic)
    except OSError:
        return


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _read_sightings(folder: Path) -> dict[str, Any]:
    """Read what `StateCache.sight` wrote in this folder; nothing if it is damaged."""
    try:
        content = json.loads((folder / "topics.json").read_text(encoding="utf-8"))
        if (version := content.get("version", SIGHTINGS_VERSION)) != SIGHTINGS_VERSION:
            raise newer(folder / "topics.json", version, SIGHTINGS_VERSION)
        _numbers(content.get("ends", {}))
        for ids in content.get("topics", {}).values():
            for after, before in ids.values():
                _numbers(after), _numbers(before)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return dict(content)


def _shares(sightings: Mapping[str, Any], present: Mapping[str, str]) -> bool:
    """Return True if one of the topics seen exists today with the same id."""
    return any(present.get(topic) in ids for topic, ids in sightings.get("topics", {}).items())


def _texts(ends: Mapping[int, int]) -> dict[str, int]:
    return {str(number): end for number, end in ends.items()}


def _numbers(ends: Mapping[str, int]) -> dict[int, int]:
    """Return ends by partition. Raises ValueError, TypeError, AttributeError if malformed."""
    if not all(isinstance(end, int) for end in ends.values()):
        raise ValueError("an end is a number")
    return {int(number): end for number, end in ends.items()}


def state_cache(cluster_id: str | None, topic_id: str | None) -> StateCache | None:
    """Return the cache of this cluster's log; None if it has no ids, or there is no folder."""
    if cluster_id is None or topic_id is None:
        return None
    try:
        return StateCache(cluster_id, topic_id)
    except EoctlError:
        return None
