"""`audit mirror --keep`: a map of the pairs, continued from where the last run left it.

The groups' commits are read first, then the mirror's ends, then the source's: so the map knows
every record before a commit, and every record that the mirror's part can hold. The map is
saved as partitions are read. The document: `recovery.audit.mirror_map`.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.kafka.ask.groups import list_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.committed import with_offsets
from eoctl.operations.audit.map_commits import commits_of, compared_with_log
from eoctl.operations.audit.mirror import (
    EARLIEST,
    STABLE,
    MirrorRequest,
    log_settings,
    one_sided,
    topic_id,
)
from eoctl.operations.audit.mirror_continuing import continued
from eoctl.operations.audit.mirror_logs import ClusterLog, Progress
from eoctl.operations.audit.ranges import AuditOptions, Resolved, not_read, resolve
from eoctl.settings.context import Context
from eoctl.stores.locks.running import only_one
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import MirrorKeptRow
from recovery.audit.mirror_map import (
    MapCommit,
    MapPartition,
    MapRange,
    MirrorMap,
    ids_unknown,
    refuse_other_map,
    with_partition,
)
from recovery.audit.mirror_table import FIELDS
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import Missing, TopicPartition
from recovery.selectors import parse_selector
from recovery.shared import log_position
from recovery.values import replace

SAVE_SECONDS = 10.0
"""What a killed run loses at most, beside the partition that it was reading."""
ANEW = "keep a new map: another file; this one still is exact for what it saw"


async def keep_mirror(
    source: Cluster, own: Context, request: MirrorRequest, path: Path, reading: AuditOptions
) -> Answer:
    """Make a map of the topic, or bring it up to date. own: the source's context.

    Raises RefusedError if the map is of other topics or of logs that were replaced, BusyError if
    another run keeps it.
    """
    with only_one("audit mirror --keep", str(path)):
        settings = (request.cluster or own).settings()
        async with Cluster(settings, source.deadline, read_only=True) as mirror:
            return await _Keeper(source, mirror, request, path, reading).kept()


class _Keeper:
    def __init__(
        self,
        source: Cluster,
        mirror: Cluster,
        request: MirrorRequest,
        path: Path,
        reading: AuditOptions,
    ) -> None:
        self._source = source
        self._mirror = mirror
        self._asked = request
        self._path = path
        self._reading = reading

    async def kept(self) -> Answer:
        """Bring the map up to date, a partition at a time."""
        began = now_ms()
        now, unproven = await self._opened()
        commits, unseen = await self._commits(began)
        theirs, mine, missing = await self._ranges()
        parts = now.by_number()
        refused = await self._other_logs(parts)
        missing += [*unseen, *refused.values()]
        if unproven is not None:
            missing.append(Missing("topic", "UNPROVEN", unproven, topic=now.source_topic))
        rows, size, saved = [], 0, time.monotonic()
        for number in sorted(mine.keys() & theirs.keys() - refused.keys()):
            before = parts.get(number)
            try:
                part = await self._continued(now, before, mine[number], theirs[number])
            except EoctlError as error:
                missing.append(not_read(mine[number].topic_partition, error))
                continue
            part = part.model_copy(update={"looked_at": began})
            rows.append(_row(before, part, mine[number]))
            # a map must reach as far as the commits in it: those of other partitions stay
            now = with_partition(now, part, commits, complete=not unseen)
            if time.monotonic() - saved >= SAVE_SECONDS:
                mirror_maps.write(now, self._path)
                saved = time.monotonic()
        if rows:
            size = mirror_maps.write(now, self._path)
        return self._answer(began, now, rows, size, missing)

    def _answer(
        self,
        began: int,
        now: MirrorMap,
        rows: list[MirrorKeptRow],
        size: int,
        missing: list[Missing],
    ) -> Answer:
        return Answer(
            schema="audit-mirror-keep",
            cluster_id=self._source.cluster_id,
            collected_at=began,
            rows=rows,
            errors=error_rows(missing),
            extra={
                "map": str(self._path),
                "bytes": size,
                "topic": now.source_topic,
                "mirror_topic": now.mirror_topic,
                "mirror_cluster_id": now.mirror_cluster_id,
                "compared": list(now.compared),
                "commits": len(now.commits),
                "groups": len({c.group for c in now.commits}),
            },
        )

    async def _opened(self) -> tuple[MirrorMap, str | None]:
        """Return the map as it was, or a new one, and why it may be of other topics.

        Raises RefusedError if it is.
        """
        known = mirror_maps.known(self._path)
        now = await self._empty()
        if known is None:
            return now, None
        refuse_other_map(known, now, str(self._path), ANEW)
        kept = {"partitions": known.partitions, "commits": known.commits}
        return now.model_copy(update=kept), ids_unknown(known)

    async def _empty(self) -> MirrorMap:
        """Return the map that these topics have, without partitions."""
        topic, copy = self._topics
        ids = await topic_id(self._source, topic), await topic_id(self._mirror, copy)
        (compacted, _), stamped = await log_settings(self._source, self._mirror, topic, copy)
        ignored = self._asked.ignored | (frozenset({"timestamp"}) if stamped else frozenset())
        return MirrorMap(
            source_cluster_id=self._source.cluster_id or "",
            source_topic=topic,
            source_topic_id=ids[0],
            mirror_cluster_id=self._mirror.cluster_id or "",
            mirror_topic=copy,
            mirror_topic_id=ids[1],
            compared=tuple(name for name in FIELDS if name not in ignored),
            compacted=compacted,
            partitions=(),
            commits=(),
        )

    @property
    def _topics(self) -> tuple[str, str]:
        topic = self._asked.source.literal
        assert topic is not None
        return topic, self._asked.mirror

    async def _commits(self, now: int) -> tuple[tuple[MapCommit, ...], list[Missing]]:
        """Return what all groups have committed on the source's topic, and what was not seen."""
        topic, _ = self._topics
        groups, missing = await list_groups(self._source)
        read = [g for g in groups if (g.type or "").lower() != "share"]
        metadata = await self._source.metadata([topic])
        partitions = [p.topic_partition for p in metadata.topics[topic].partitions]
        read, more = await with_offsets(self._source, read, partitions)
        commits = await compared_with_log(self._source, commits_of(read, now))
        return commits, [*missing, *more]

    async def _ranges(self) -> tuple[dict[int, Resolved], dict[int, Resolved], list[Missing]]:
        """Return the partitions of mirror and source, and those that cannot be read."""
        copy = replace(parse_selector(self._asked.mirror), partitions=self._asked.source.partitions)
        theirs, missing = await resolve(self._mirror, [copy], EARLIEST, STABLE)
        mine, more = await resolve(self._source, [self._asked.source], EARLIEST, STABLE)
        missing += more
        missing += one_sided(mine, theirs, *self._topics, missing)
        return {r.partition: r for r in theirs}, {r.partition: r for r in mine}, missing

    async def _other_logs(self, parts: Mapping[int, MapPartition]) -> dict[int, Missing]:
        """Raise RefusedError if a log is no longer the one of the map; return those not proven."""
        topic, copy = self._topics
        by_number = {}
        for cluster, name in ((self._source, topic), (self._mirror, copy)):
            places = {
                TopicPartition(name, p.partition): end.position
                for p in parts.values()
                for end in [p.source if cluster is self._source else p.mirror]
            }
            standings = await positions.standings(cluster, places)
            for partition, standing in standings.items():
                log_position.refuse_diverged(partition, places[partition], standing, ANEW)
                if standing.held is None:
                    text = f"its map was left as it is: {standing.because}; {ANEW}"
                    number = partition.partition
                    by_number[number] = Missing("partition", "UNPROVEN", text, None, topic, number)
        return by_number

    async def _continued(
        self, now: MirrorMap, before: MapPartition | None, mine: Resolved, theirs: Resolved
    ) -> MapPartition:
        mine, theirs = ranges_after(before, mine, theirs)
        logs = [ClusterLog(c, self._reading, now.compared) for c in (self._source, self._mirror)]
        progress, timed = Progress(self._reading.progress), "timestamp" in now.compared
        part = await continued(before, (logs[0], mine), (logs[1], theirs), progress, timed=timed)
        source_end = await self._end(self._source, mine, part.source)
        mirror_end = await self._end(self._mirror, theirs, part.mirror)
        return part.model_copy(update={"source": source_end, "mirror": mirror_end})

    async def _end(self, cluster: Cluster, r: Resolved, found: MapRange) -> MapRange:
        """Return a range with the leader epoch of the record before its end."""
        partition = r.topic_partition
        epochs = await positions.record_epochs(cluster, {partition: found.end})
        return found.model_copy(update={"leader_epoch": epochs[partition]})


def ranges_after(
    before: MapPartition | None, mine: Resolved, theirs: Resolved
) -> tuple[Resolved, Resolved]:
    """Return what of source and mirror is to be read after the map's last run.

    Raises RefusedError for records that are gone, IncompleteError for an end that stepped back.
    """
    if before is None:
        return mine, theirs
    for r, seen in ((mine, before.source.end), (theirs, before.mirror.end)):
        if r.end < seen:
            raise IncompleteError(
                f"its log ends below what the map has seen: at {r.end}, not {seen}",
                where=str(r.topic_partition),
                remedy="the map is as it was: try again in a few seconds",
            )
    if mine.log_start_offset > before.source.end:
        raise RefusedError(
            f"retention deleted the records from {before.source.end} to {mine.log_start_offset} "
            "before the map saw them",
            remedy=ANEW,
        )
    start = max(theirs.log_start_offset, before.mirror.end)
    return replace(mine, start=before.source.end), replace(theirs, start=min(start, theirs.end))


def _row(before: MapPartition | None, now: MapPartition, mine: Resolved) -> MirrorKeptRow:
    return MirrorKeptRow(
        partition=now.partition,
        source_start=now.source.start,
        source_end=now.source.end,
        mirror_start=now.mirror.start,
        mirror_end=now.mirror.end,
        pairs=now.pairs,
        new_pairs=now.pairs - (0 if before is None else before.pairs),
        steps=now.number,
        waiting=now.waiting,
        unread=mine.end - now.source.end,
    )
