"""`audit mirror --keep`: a map of the pairs, continued from where the last run left it.

The groups' commits are read first, then the mirror's ends, then the source's: so the map knows
every record before a commit, and every record that the mirror's part can hold. The map is
saved as partitions are read. The document: `recovery.audit.mirror_map`.
"""

import time
from collections.abc import Iterable, Sequence
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
    refuse_itself,
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
    MirrorMap,
    ids_unknown,
    refuse_other_map,
    with_partition,
)
from recovery.audit.mirror_table import FIELDS
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import GroupFacts, Missing, TopicPartition
from recovery.selectors import parse_selector
from recovery.shared import log_position
from recovery.values import replace

SAVE_SECONDS = 10.0
"""What a killed run loses, beside the partition that it was reading; more if a save takes long."""
_SAVES = 20  # a save takes at most this part of the time
ANEW = "keep a new map: another file; this one still is exact for what it saw"


async def keep_mirror(
    source: Cluster, own: Context, request: MirrorRequest, path: Path, reading: AuditOptions
) -> Answer:
    """Make a map of the topic, or bring it up to date. own: the source's context.

    Raises RefusedError if the map is of other topics or of logs that were replaced, BusyError if
    another run keeps it.
    """
    with only_one("audit mirror --keep", str(path), "map"):
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
        self._groups: set[str] = set()

    async def kept(self) -> Answer:
        """Bring the map up to date, a partition at a time."""
        began = now_ms()
        now, unproven = await self._opened()
        commits, unseen = await self._commits(began)
        theirs, mine, missing = await self._ranges()
        hidden = {m.partition for m in missing if m.partition is not None}
        now = now.model_copy(update={"asked": tuple(sorted({*now.asked, *mine, *hidden}))})
        parts = now.by_number()
        missing += unseen
        if unproven is not None:
            missing.append(Missing("topic", "UNPROVEN", unproven, topic=now.source_topic))
        rows, size, due = [], 0, time.monotonic() + SAVE_SECONDS
        for number in sorted(mine.keys() & theirs.keys()):
            before = parts.get(number)
            try:
                part = await self._continued(now, before, mine[number], theirs[number])
            except EoctlError as error:
                missing.append(not_read(mine[number].topic_partition, error))
                continue
            known = 0 if before is None else before.looked_at
            at_end = part.source.end >= mine[number].end
            part = part.model_copy(update={"looked_at": began if at_end else known})
            rows.append(_row(before, part, mine[number]))
            # a map must reach as far as the commits in it: those of other partitions stay
            now = with_partition(now, part, commits, complete=not unseen, read=self._groups)
            if time.monotonic() >= due:
                size, due = await self._saved(now)
        if rows:
            size, _ = await self._saved(now)
        return self._answer(began, now, rows, size, missing)

    async def _saved(self, now: MirrorMap) -> tuple[int, float]:
        """Write the map; return its bytes, and when to write it again.

        Raises RefusedError if a topic was created again while it was read.
        """
        refuse_other_map(now, await self._empty(), str(self._path), ANEW)
        began = time.monotonic()
        size = mirror_maps.write(now, self._path)
        ended = time.monotonic()
        return size, ended + max(SAVE_SECONDS, _SAVES * (ended - began))

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
        kept = {
            "compacted": either(known.compacted, now.compacted),
            "asked": known.asked,
            "partitions": known.partitions,
            "commits": known.commits,
        }
        return now.model_copy(update=kept), ids_unknown(known)

    async def _empty(self) -> MirrorMap:
        """Return the map that these topics have, without partitions."""
        topic, copy = self._topics
        refuse_itself(self._source, self._mirror, topic, copy)
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
        missing += more
        self._groups = groups_read(read, missing)
        return await compared_with_log(self._source, commits_of(read, now)), missing

    async def _ranges(self) -> tuple[dict[int, Resolved], dict[int, Resolved], list[Missing]]:
        """Return the partitions of mirror and source, and those that cannot be read."""
        copy = replace(parse_selector(self._asked.mirror), partitions=self._asked.source.partitions)
        theirs, missing = await resolve(self._mirror, [copy], EARLIEST, STABLE)
        mine, more = await resolve(self._source, [self._asked.source], EARLIEST, STABLE)
        missing += more
        missing += one_sided(mine, theirs, *self._topics, missing)
        return {r.partition: r for r in theirs}, {r.partition: r for r in mine}, missing

    async def _refuse_other_logs(self, before: MapPartition) -> None:
        """Raise RefusedError if a log is no longer the one of the map, IncompleteError if nobody
        can say."""
        for cluster, name, r in zip(
            (self._source, self._mirror), self._topics, (before.source, before.mirror), strict=True
        ):
            partition = TopicPartition(name, before.partition)
            standings = await positions.standings(cluster, {partition: r.position})
            standing = standings[partition]
            log_position.refuse_diverged(partition, r.position, standing, ANEW)
            if standing.held is None:
                raise IncompleteError(
                    f"its map was left as it was: {standing.because}",
                    where=str(partition),
                    remedy=ANEW,
                )

    async def _continued(
        self, now: MirrorMap, before: MapPartition | None, mine: Resolved, theirs: Resolved
    ) -> MapPartition:
        mine, theirs = ranges_after(before, mine, theirs)
        ends = await self._epochs(mine, theirs)
        if before is not None:
            await self._refuse_other_logs(before)
        logs = [ClusterLog(c, self._reading, now.compared) for c in (self._source, self._mirror)]
        progress, timed = Progress(self._reading.progress), "timestamp" in now.compared
        part = await continued(before, (logs[0], mine), (logs[1], theirs), progress, timed=timed)
        read = replace(mine, end=part.source.end)
        epochs = await self._epochs(read, theirs)
        refuse_cut_off(ends, await self._epochs(mine, theirs))
        source, mirror = (
            r.model_copy(update={"leader_epoch": epoch})
            for r, epoch in zip((part.source, part.mirror), epochs, strict=True)
        )
        return part.model_copy(update={"source": source, "mirror": mirror})

    async def _epochs(self, mine: Resolved, theirs: Resolved) -> tuple[int | None, int | None]:
        """Return the leader epochs of the records before the ends of both ranges."""
        found = []
        for cluster, r in ((self._source, mine), (self._mirror, theirs)):
            partition = r.topic_partition
            found.append((await positions.record_epochs(cluster, {partition: r.end}))[partition])
        return found[0], found[1]


def refuse_cut_off(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None]
) -> None:
    """Raise IncompleteError if a record at the end of a range has another leader epoch since."""
    if before != after:
        raise IncompleteError(
            "a log was cut off while it was read, or its end compacted",
            remedy="the map is as it was: try again",
        )


def either(then: bool | None, now: bool | None) -> bool | None:
    """Return True if one is, None if that is unknown of one."""
    return True if then or now else None if then is None or now is None else False


def groups_read(groups: Iterable[GroupFacts], missing: Sequence[Missing]) -> set[str]:
    """Return the groups whose commits are all known. missing: what was not read."""
    unread = {m.id for m in missing}
    anywhere = any(m.scope != "group" for m in missing)
    return {g.group for g in groups if g.offsets or not (anywhere or g.group in unread)}


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
