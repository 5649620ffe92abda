"""What a plan needs of a cluster that is gone, from mirror maps that were kept of its topics."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eoctl.engine.mirror_logs import ClusterLog, MappedLog, MirrorLog
from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.operations.audit.failover_source import Commits, Compared
from eoctl.operations.audit.map_commits import of_bundle
from eoctl.operations.audit.mirror import topic_id
from eoctl.operations.audit.ranges import Resolved
from eoctl.operations.restart.restart_request import Origin
from eoctl.stores import bundle_files
from eoctl.stores.offsets import mirror_maps
from eoctl.stores.offsets.store import StoreEntry
from recovery.audit.failover import Found
from recovery.audit.mirror_map import BY_TIME, MapCommit, MapPartition, MirrorMap, ids_unknown
from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.quoting import some
from recovery.restart.decision import Check
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.selectors import Selector
from recovery.shared import log_position
from recovery.times import rfc3339
from recovery.values import replace


@dataclass
class MapSource:
    """maps: by the source's topic; all of one cluster. name: their files. committed: by all
    groups, as the maps have it or a later bundle. unproven: why a mirror's log may be another.
    """

    name: str
    maps: Mapping[str, MirrorMap]
    committed: Sequence[MapCommit]
    unproven: dict[TopicPartition, str] = field(default_factory=dict)
    _moved: dict[TopicPartition, MapCommit] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "MapSource":
        """Return the source that these files describe: maps, and a later bundle if there is one.

        Raises UsageError, RefusedError.
        """
        maps: dict[str, MirrorMap] = {}
        bundles = [path for path in paths if bundle_files.is_bundle(path)]
        for path in paths:
            if path in bundles:
                continue
            kept = mirror_maps.read(path)
            if kept.source_topic in maps:
                raise UsageError(f"a second map of {kept.source_topic}", where=str(path))
            maps[kept.source_topic] = kept
        if len({(m.source_cluster_id, m.mirror_cluster_id) for m in maps.values()}) > 1:
            raise UsageError("the maps are of different clusters", where="--from-cluster")
        committed = of_bundle(bundles, maps)
        if committed is None:
            committed = tuple(c for kept in maps.values() for c in kept.commits)
        return cls(", ".join(map(str, paths)), maps, committed)

    @property
    def cluster_id(self) -> str | None:
        return next(iter(self.maps.values())).source_cluster_id

    @property
    def mirrors(self) -> Mapping[str, str]:
        return {topic: kept.mirror_topic for topic, kept in self.maps.items()}

    async def commits(
        self, group: str, selectors: Sequence[Selector], there: Collection[str]
    ) -> Commits:
        """See FailoverSource: as the files have them. Raises RefusedError if a map is missing."""
        self._moved = {
            c.topic_partition: c
            for c in self.committed
            if c.group == group
            and (not selectors or any(s.matches(c.topic, c.partition) for s in selectors))
        }
        for commit in self._moved.values():
            _refuse_unknown(commit, self.name)
        entries = {p: _entry(c, c.offset) for p, c in self._moved.items() if c.offset is not None}
        unmapped = sorted({topic for topic, _ in entries} - self.maps.keys())
        if unmapped:
            raise RefusedError(
                f"the group has committed {some(unmapped)}, of which there is no map",
                where=f"group {group} in {self.name}",
                remedy="give its map with --from-cluster, or name the other topics with --topic",
            )
        return entries

    async def compared(self, mirror: Cluster, topic: str, copy: str) -> Compared:
        """See FailoverSource. Raises RefusedError if the mirror is not the topic of the map."""
        kept = self.maps[topic]
        await refuse_other_mirror(mirror, kept, copy, BY_TIME)
        numbers = {p.partition for p in self._moved if p.topic == topic}
        self.unproven |= await refuse_cut_off(mirror, kept, numbers, BY_TIME)
        if (unknown := ids_unknown(kept)) is not None:
            partitions = [TopicPartition(topic, p.partition) for p in kept.partitions]
            self.unproven |= dict.fromkeys(partitions, unknown)
        configs, _ = await topic_configs(mirror, [copy], ("cleanup.policy",))
        policy = configs.get(copy, {}).get("cleanup.policy")
        return Compared(
            (kept.compacted, None if policy is None else "compact" in policy), kept.compared
        )

    async def ranges(
        self, topic: str, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[int, Resolved]:
        """See FailoverSource: what the map knows of each partition."""
        known, ranges = self.maps[topic].by_number(), {}
        for partition, stored in commits.items():
            number = partition.partition
            if number not in known:
                raise RefusedError(
                    "the map does not know this partition yet", where=str(partition), remedy=BY_TIME
                )
            source = known[number].source
            if stored.offset < source.start:
                raise RefusedError(
                    f"the group is at {stored.offset}, but the map begins at {source.start}: "
                    "older records are deleted",
                    where=str(partition),
                    remedy=BY_TIME,
                )
            start, end = source.start, source.end
            ranges[number] = Resolved(topic, number, start, end, start, end, end)
        return ranges

    async def not_proven(
        self, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[TopicPartition, str]:
        """See FailoverSource: why the commit or the mirror is not proven."""
        texts = {}
        for partition in commits:
            commit = self._moved[partition]
            mine = None if commit.held else f"the commit may be of another log: {commit.because}"
            reasons = (
                mine,
                self.unproven.get(partition),
                _gap(self.maps[partition.topic], partition.partition),
            )
            if both := [text for text in reasons if text is not None]:
                texts[partition] = "; ".join(both)
        return texts

    def log(
        self, mirror: ClusterLog, copy: Resolved, commit: StoredOffset, *, compacted: bool
    ) -> MirrorLog:
        """See FailoverSource."""
        part = self._part(commit.topic_partition)
        return MappedLog(mirror, copy, part, compacted, commit.offset)

    def _part(self, partition: TopicPartition) -> MapPartition:
        return self.maps[partition.topic].by_number()[partition.partition]

    def known_to(self, partition: TopicPartition) -> int | None:
        """See FailoverSource."""
        return self._part(partition).mirror.end

    async def completed(self, found: Found, source: Resolved, log: MirrorLog) -> Found:
        """Add what the mirror lacks of the records that the map knows, and what it cannot know."""
        assert isinstance(log, MappedLog)
        place = found.place
        place = replace(place, lost=place.lost + lacking(log, place.reach))
        commit = self._moved[found.source]
        return replace(
            found,
            place=place,
            behind=0,
            known_at=commit.seen_at,
            unseen=max(0, found.offset - log.kept.source.end),
            pending=commit.pending,
            unchecked=log.unchecked,
        )

    def assumed(self) -> list[Check]:
        """See FailoverSource."""
        text = f"cluster {self.cluster_id} was not asked: nobody reads there as this group any more"
        return [Check("left", None, text)]

    def origin(self, group: str, commits: Commits) -> Origin:
        """See FailoverSource."""
        kept = {str(partition): entry.kept for partition, entry in sorted(commits.items())}
        seen_at = rfc3339(min(c.seen_at for c in self._moved.values()))
        return Origin(self.name, self.cluster_id, group, kept, map_of=seen_at)


def lacking(log: MappedLog, reach: int) -> int:
    """Return how many records the mirror lacks that a group has not read, beside `Place.lost`.

    Those are below the reach and never had a copy; these have had one, or are behind it.
    """
    steps, rest = log.kept.unpacked()
    late = rest.visible & (rest.offset >= max(log.offset, reach))
    return steps.unread(log.offset) - log.found_unread + int(late.sum())


async def refuse_other_mirror(mirror: Cluster, kept: MirrorMap, copy: str, remedy: str) -> None:
    """Raise RefusedError if a mirror is not the topic of a map. copy: the mirror's name."""
    for what, then, now in (
        ("cluster", kept.mirror_cluster_id, mirror.cluster_id),
        ("topic", kept.mirror_topic, copy),
        ("topic id", kept.mirror_topic_id, await topic_id(mirror, copy)),
    ):
        if then != now:
            raise RefusedError(
                f"the map of {kept.source_topic} is of another mirror: {what} {then}, not {now}",
                where=copy,
                remedy=f"use the map of this mirror, or {remedy}",
            )


async def refuse_cut_off(
    mirror: Cluster, kept: MirrorMap, numbers: Collection[int], remedy: str
) -> dict[TopicPartition, str]:
    """Raise RefusedError if a mirror's log was cut off below the end that a map saw.

    numbers: of partitions. Return, by the source's partition, why a log is not proven to be the one
    of the map.
    """
    places = {
        TopicPartition(kept.mirror_topic, p.partition): p.mirror.position
        for p in kept.partitions
        if p.partition in numbers
    }
    standings = await positions.standings(mirror, places)
    for partition, standing in standings.items():
        log_position.refuse_diverged(partition, places[partition], standing, remedy)
    return {
        TopicPartition(kept.source_topic, partition.partition): "the mirror's log may not be "
        f"the one that the map saw: {standing.because}"
        for partition, standing in standings.items()
        if standing.held is None
    }


def _entry(c: MapCommit, offset: int) -> StoreEntry:
    stored = StoredOffset(
        topic=c.topic, partition=c.partition, offset=offset, leader_epoch=c.leader_epoch
    )
    kept = {"offset": offset, "leader_epoch": c.leader_epoch, "metadata": c.metadata}
    return StoreEntry(StoredPartition(input=stored), kept)


def _gap(kept: MirrorMap, number: int) -> str | None:
    """Return why the pairs of a partition are not proven: their copies may be other records'."""
    part = kept.by_number().get(number)
    if part is None or not part.gaps:
        return None
    last = part.gaps[-1]
    seen = "no run saw" if last.proven else "it is not known whether a run saw"
    return (
        f"{seen} what the mirror deleted below {last.end}: of equal records in A, the copies that "
        "B has may be others'"
    )


def _refuse_unknown(c: MapCommit, where: str) -> None:
    """Raise RefusedError for a commit that says nothing of what the group has read."""
    if c.held is False:
        raise RefusedError(
            f"the group's offset {c.offset} is of a log that was cut off and written again: "
            f"{c.because}",
            where=f"{c.topic_partition} in {where}",
            remedy=f"leave it out, --topic, and {BY_TIME}",
        )
    if c.offset is None:
        raise RefusedError(
            "an open transaction held the group's first commit here: what it has read is unknown",
            where=f"{c.topic_partition} in {where}",
            remedy=f"leave it out, --topic, and {BY_TIME}",
        )
