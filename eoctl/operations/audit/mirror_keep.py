"""`audit mirror --keep`: a map of the pairs, continued from where the last run left it.

The groups' commits are read first, then the mirror's ends, then the source's: so the map knows
every record before a commit, and every record that the mirror's part can hold. Partitions are read
by this process, or by a task of a Spark job each; this process saves the map as they come in. The
document: `recovery.audit.mirror_map`.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from eoctl.engine.mirror_task import ANEW, continued_pair
from eoctl.host.clock import now_ms
from eoctl.kafka.ask.groups import list_groups
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.committed import with_offsets
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.map_commits import commits_of, compared_with_log
from eoctl.operations.audit.mirror import (
    MirrorRequest,
    compared_fields,
    log_settings,
    ranges_of,
    refuse_itself,
    topic_id,
)
from eoctl.operations.audit.ranges import AuditOptions, Resolved, not_read
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.locks.running import only_one
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer, error_rows
from recovery.audit.audit_request import (
    PART,
    MirrorKeepRequest,
    MirrorKept,
    MirrorPair,
    TopicOf,
    not_told,
)
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
from recovery.errors import EoctlError, IncompleteError, UnreachableError
from recovery.facts import GroupFacts, Missing
from recovery.values import replace

SAVE_SECONDS = 10.0
"""What a killed run loses, beside the partitions that it was reading; more if saves take long."""
MOST_SECONDS = 60.0  # of a save while a job is watched
_SAVES = 20  # a save takes at most this part of the time


@dataclass
class KeptMap:
    """The map as far as it is brought up to date. began: epoch ms, before anything was read.

    commits, groups: what was read of groups; complete: of all of them. rows: by partition. due:
    when to save.
    """

    path: Path
    now: MirrorMap
    began: int
    commits: Sequence[MapCommit]
    groups: set[str]
    complete: bool
    pairs: Sequence[MirrorPair]
    rows: dict[int, MirrorKeptRow] = field(default_factory=dict)
    unseen: list[Missing] = field(default_factory=list)
    size: int = 0
    unsaved: bool = False
    due: float = field(default_factory=lambda: time.monotonic() + SAVE_SECONDS)

    def add(self, part: MapPartition) -> None:
        """Take a partition in, with what groups have committed of it."""
        before = self.now.by_number().get(part.partition)
        mine = next(p.source for p in self.pairs if p.source.partition == part.partition)
        known = 0 if before is None else before.looked_at
        at_end = part.source.end >= mine.end
        part = part.model_copy(update={"looked_at": self.began if at_end else known})
        self.rows[part.partition] = _row(before, part, mine)
        self.unseen += _newly_unseen(before, part, mine)
        # a map must reach as far as the commits in it: those of other partitions stay
        self.now = with_partition(
            self.now, part, self.commits, complete=self.complete, read=self.groups
        )
        self.unsaved = True

    def is_due(self, *, last: bool) -> bool:
        """Return True if it is time to save. last: it is the last chance."""
        return self.unsaved and (last or time.monotonic() >= self.due)

    async def save(self, source: Cluster, mirror: Cluster, question: MirrorRequest) -> None:
        """Write the map. Raises RefusedError if a topic was created again while it was read."""
        now = await empty_map(source, mirror, question)
        refuse_other_map(self.now, now, str(self.path), ANEW)
        began = time.monotonic()
        self.size, self.unsaved = mirror_maps.write(self.now, self.path), False
        ended = time.monotonic()
        self.due = ended + max(SAVE_SECONDS, _SAVES * (ended - began))


class KeptRanges(AuditedRanges, kw_only=True):
    """ranges: what is new in both logs. kept: the map, which grows."""

    kept: KeptMap


@dataclass(frozen=True)
class MirrorKeep(Audit[MirrorKept]):
    """Makes a map of the topic, or brings it up to date."""

    question: MirrorRequest
    path: Path

    job: ClassVar[str] = "audit_mirror"
    spark_offsets: ClassVar[int] = 20_000_000
    answer_type = MirrorKept

    def access(self, context: Context) -> Access:
        return self.question.access()

    def alone(self) -> AbstractContextManager[None]:
        return only_one("audit mirror --keep", str(self.path), "map")

    async def look(self, cluster: Cluster) -> KeptRanges:
        """Raise RefusedError if the map is of other topics or of logs that were replaced."""
        async with self.question.opened(cluster) as mirror:
            return await self._looked(cluster, mirror)

    async def _looked(self, source: Cluster, mirror: Cluster) -> KeptRanges:
        began = now_ms()
        now, unproven = await _opened(source, mirror, self.question, self.path)
        commits, groups, unseen = await _commits(source, self.question.topics[0], began)
        both, missing = await self.question.ranges(source, mirror)
        pairs = [MirrorPair(*pair) for pair in both]
        hidden = {m.partition for m in missing if m.partition is not None}
        asked = {*now.asked, *(pair.source.partition for pair in pairs), *hidden}
        now = now.model_copy(update={"asked": tuple(sorted(asked))})
        missing += unseen
        if unproven is not None:
            missing.append(Missing("topic", "UNPROVEN", unproven, topic=now.source_topic))
        kept = KeptMap(self.path, now, began, commits, groups, not unseen, pairs)
        new = ranges_of([_new(pair, now.by_number()) for pair in pairs])
        return KeptRanges(source.cluster_id, new, missing, kept=kept)

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> MirrorKeepRequest:
        assert isinstance(audited, KeptRanges)
        now = audited.kept.now
        return MirrorKeepRequest(
            **self.asked(audited, reading),
            pairs=tuple(audited.kept.pairs),
            topics=(
                TopicOf(now.source_cluster_id or None, now.source_topic_id),
                TopicOf(now.mirror_cluster_id or None, now.mirror_topic_id),
            ),
            fields=now.compared,
            path=str(self.path),
        )

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> MirrorKept:
        """Bring the map up to date, a partition at a time."""
        assert isinstance(audited, KeptRanges)
        kept, request = audited.kept, self.request(audited, reading)
        known, failed = kept.now.by_number(), list[Missing]()
        async with self.question.opened(cluster) as mirror:
            for pair in request.pairs:
                before = known.get(pair.source.partition)
                try:
                    part = await continued_pair(cluster, mirror, request, pair, before, reading)
                except EoctlError as error:
                    failed.append(not_read(pair.source.topic_partition, error))
                    continue
                kept.add(part)
                if kept.is_due(last=False):
                    await kept.save(cluster, mirror, self.question)
            if kept.is_due(last=True):
                await kept.save(cluster, mirror, self.question)
        return MirrorKept(failed=tuple(failed))

    def take(self, audited: AuditedRanges, folder: Path, *, last: bool) -> None:
        """Take the partitions that a job has read, and save the map when it is time."""
        assert isinstance(audited, KeptRanges)
        kept = audited.kept
        for file in sorted(folder.glob(f"*{PART}")):
            kept.add(MapPartition.model_validate_json(file.read_bytes()))
            file.unlink()
        if not kept.is_due(last=last):
            return
        kept.due = time.monotonic() + SAVE_SECONDS  # one that fails is not tried at every beat
        try:
            with_cluster(self.question.own, MOST_SECONDS, partial(self._saved, kept))
        except (UnreachableError, IncompleteError):
            if last:  # before that the job goes on, and a later save has these too
                raise

    async def _saved(self, kept: KeptMap, source: Cluster) -> None:
        async with self.question.opened(source) as mirror:
            await kept.save(source, mirror, self.question)

    def answer(self, audited: AuditedRanges, result: MirrorKept) -> Answer:
        assert isinstance(audited, KeptRanges)
        kept = audited.kept
        now = kept.now
        return Answer(
            schema="audit-mirror-keep",
            cluster_id=audited.cluster_id,
            collected_at=kept.began,
            rows=[kept.rows[number] for number in sorted(kept.rows)],
            errors=error_rows(
                [
                    *audited.unseen(result),
                    *not_told(kept.pairs, kept.rows, result.failed),
                    *kept.unseen,
                ]
            ),
            extra={
                "map": str(self.path),
                "bytes": kept.size,
                "topic": now.source_topic,
                "mirror_topic": now.mirror_topic,
                "mirror_cluster_id": now.mirror_cluster_id,
                "compared": list(now.compared),
                "commits": len(now.commits),
                "groups": len({c.group for c in now.commits}),
            },
        )


def _new(pair: MirrorPair, known: dict[int, MapPartition]) -> MirrorPair:
    """Return what is new of a pair, to say how much is to be read."""
    before = known.get(pair.source.partition)
    if before is None:
        return pair
    return MirrorPair(_after(pair.source, before.source), _after(pair.mirror, before.mirror))


def _after(r: Resolved, seen: MapRange) -> Resolved:
    return replace(r, start=min(r.end, max(r.start, seen.end)))


async def _opened(
    source: Cluster, mirror: Cluster, question: MirrorRequest, path: Path
) -> tuple[MirrorMap, str | None]:
    """Return the map as it was, or a new one, and why it may be of other topics.

    Raises RefusedError if it is.
    """
    known = mirror_maps.known(path)
    now = await empty_map(source, mirror, question)
    if known is None:
        return now, None
    refuse_other_map(known, now, str(path), ANEW)
    kept = {
        "compacted": either(known.compacted, now.compacted),
        "asked": known.asked,
        "partitions": known.partitions,
        "commits": known.commits,
    }
    return now.model_copy(update=kept), ids_unknown(known)


async def empty_map(source: Cluster, mirror: Cluster, question: MirrorRequest) -> MirrorMap:
    """Return the map that these topics have, without partitions."""
    topic, copy = question.topics
    refuse_itself(source, mirror, topic, copy)
    ids = await topic_id(source, topic), await topic_id(mirror, copy)
    (compacted, _), stamped = await log_settings(source, mirror, topic, copy)
    return MirrorMap(
        source_cluster_id=source.cluster_id or "",
        source_topic=topic,
        source_topic_id=ids[0],
        mirror_cluster_id=mirror.cluster_id or "",
        mirror_topic=copy,
        mirror_topic_id=ids[1],
        compared=compared_fields(question.ignored, stamped=stamped),
        compacted=compacted,
        partitions=(),
        commits=(),
    )


async def _commits(
    source: Cluster, topic: str, now: int
) -> tuple[tuple[MapCommit, ...], set[str], list[Missing]]:
    """Return what all groups have committed on the source's topic, which groups were read
    completely, and what was not seen."""
    groups, missing = await list_groups(source)
    read = [g for g in groups if (g.type or "").lower() != "share"]
    metadata = await source.metadata([topic])
    partitions = [p.topic_partition for p in metadata.topics[topic].partitions]
    read, more = await with_offsets(source, read, partitions)
    missing += more
    commits = await compared_with_log(source, commits_of(read, now))
    return commits, groups_read(read, missing), missing


def either(then: bool | None, now: bool | None) -> bool | None:
    """Return True if one is, None if that is unknown of one."""
    return True if then or now else None if then is None or now is None else False


def groups_read(groups: Iterable[GroupFacts], missing: Sequence[Missing]) -> set[str]:
    """Return the groups whose commits are all known. missing: what was not read."""
    unread = {m.id for m in missing}
    anywhere = any(m.scope != "group" for m in missing)
    return {g.group for g in groups if g.offsets or not (anywhere or g.group in unread)}


def _newly_unseen(before: MapPartition | None, now: MapPartition, mine: Resolved) -> list[Missing]:
    """Return what the mirror deleted since the last run before this one saw it."""
    return [
        Missing(
            "partition",
            "UNPROVEN",
            f"the mirror deleted its records from {r.start} to {r.end} before the map saw them: "
            "which of the source's they were is unknown; keep the map more often than that",
            None,
            *mine.topic_partition,
        )
        for r in now.unseen_since(before)
    ]


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
        unseen=sum(r.end - r.start for r in now.unseen or () if r.proven),
    )
