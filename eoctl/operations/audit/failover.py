"""`restart plan --from-cluster`: the offsets of a group on another cluster, found by its records.

Each partition is compared as `audit mirror` does; `recovery.audit.mirror_place` finds the offset
and `recovery.audit.failover` judges it. The plan is then one of `eoctl.operations.restart`.
"""

from collections.abc import Mapping, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.count import Cuts, count
from eoctl.operations.audit.mirror import log_settings, may_be_compacted
from eoctl.operations.audit.mirror_reading import Both, BothLogs, PartitionMirror
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart.origin import committed_in, opened_origin
from eoctl.operations.restart.restart_request import AdHoc, Origin
from recovery.audit.failover import (
    Found,
    checks,
    origin,
    promise,
    refuse_ranges,
    refuse_unpaired,
)
from recovery.audit.mirror_place import Around
from recovery.audit.mirror_table import FIELDS, explained
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.quoting import some
from recovery.restart.adhoc import End, Target
from recovery.restart.decision import Check
from recovery.restart.stored import StoredOffset
from recovery.selectors import Selector, parse_selector
from recovery.shared import log_position
from recovery.shared.log_position import LogPosition
from recovery.shared.offset_bounds import Bound
from recovery.values import Value, replace

EARLIEST, STABLE = Bound("earliest", "earliest"), Bound("lso", "lso")


class FailoverRequest(Value):
    """A group's way to another cluster.

    context: of the cluster it leaves. selectors: there; none = every partition that it has
    committed. names: topics there → their mirrors. at: the end of a range; None = refuse.
    """

    context: str
    group: str
    selectors: tuple[Selector, ...] = ()
    names: Mapping[str, str] = {}
    at: End | None = None


async def resolve_failover(mirror: Cluster, request: FailoverRequest, reading: Reading) -> AdHoc:
    """Return the move, each partition with its offset in `mirror`.

    Raises RefusedError where the records do not say it, IncompleteError where they cannot be read.
    """
    async with opened_origin(request.context, mirror.deadline) as source:
        if source.cluster_id == mirror.cluster_id:
            raise UsageError(
                f"is the cluster that the plan is for ({mirror.cluster_id})",
                where="--from-cluster",
                remedy="name the cluster that the group leaves; --context is the one it goes to",
            )
        failover = _Failover(source, mirror, request, reading)
        return await failover.resolved()


class _Failover:
    def __init__(
        self, source: Cluster, mirror: Cluster, request: FailoverRequest, reading: Reading
    ) -> None:
        self._source = source
        self._mirror = mirror
        self._asked = request
        self._counts: dict[str, int] = {}  # the mirror's partitions
        self._reading = AuditOptions(reading.check_crc, reading.max_rate, reading.progress, most=0)

    async def resolved(self) -> AdHoc:
        wanted = await self._wanted()
        contents = await committed_in(
            self._source,
            self._asked.context,
            self._asked.group,
            None if wanted is None else sorted({topic for topic, _ in wanted}),
        )
        commits = {
            e.topic_partition: e
            for e in contents.entries
            if wanted is None or e.topic_partition in wanted
        }
        if not commits:
            raise RefusedError(
                "it has committed nothing" + (" there" if wanted is not None else ""),
                where=f"group {self._asked.group} in {self._asked.context}",
                remedy=f"see `eoctl offsets show --group {self._asked.group} "
                f"--context {self._asked.context}`",
            )
        topics = sorted({topic for topic, _ in commits})
        names = await self._names(topics)
        found: list[Found] = []
        for topic in topics:
            mine = {p: e.position.input for p, e in commits.items() if p.topic == topic}
            found += await self._of_topic(topic, names[topic], mine)
        at = self._asked.at
        if at is None:
            refuse_ranges(found)
        target = Target(
            "from-cluster",
            offsets={f.mirror: f.chosen(at).offset for f in found},
            promise=promise(found, at),
            checks=(*(c for f in found for c in checks(f, at)), *await self._assumed(found)),
            origins=tuple(origin(f, at) for f in found),
        )
        left = Origin(
            self._asked.context,
            self._source.cluster_id,
            self._asked.group,
            {str(partition): entry.kept for partition, entry in sorted(commits.items())},
        )
        return AdHoc(self._asked.group, target, tuple(sorted(target.offsets)), left)

    async def _wanted(self) -> set[TopicPartition] | None:
        """Return the partitions that are selected; None: all."""
        if not self._asked.selectors:
            return None
        _, chosen, missing = await selected(self._source, Scope(self._asked.selectors))
        if missing:
            raise IncompleteError(missing[0].detail, where=missing[0].topic)
        return {p.topic_partition for p in chosen}

    async def _names(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the mirror of each topic: as named, else the only one of its name or ALIAS.name.

        Raises UsageError for a name that is not needed, RefusedError for none or several mirrors.
        """
        unknown = sorted(self._asked.names.keys() - set(topics))
        if unknown:
            raise UsageError(
                f"the group has committed nothing of {unknown[0]} there", where="--map"
            )
        metadata = await self._mirror.metadata(None)
        there = [t.name for t in metadata.topics.values() if t.error is None and not t.internal]
        names = {}
        for topic in topics:
            if topic in self._asked.names:
                names[topic] = self._asked.names[topic]
                continue
            alike = sorted(name for name in there if name == topic or name.endswith(f".{topic}"))
            if len(alike) != 1:
                what = (
                    f"several topics may be its mirror: {some(alike)}"
                    if alike
                    else ("no topic of its name is in the cluster that the group goes to")
                )
                raise RefusedError(
                    what,
                    where=topic,
                    remedy=f"name its mirror: --map {topic}=TOPIC; or leave it out: --topic",
                )
            names[topic] = alike[0]
        self._counts = {t.name: len(t.partitions) for t in metadata.topics.values()}
        return names

    async def _of_topic(
        self, topic: str, copy: str, commits: Mapping[TopicPartition, StoredOffset]
    ) -> list[Found]:
        """Compare the partitions of one topic. The mirror's ends are read first."""
        partitions = tuple((p, p) for _, p in sorted(commits))
        count_there = self._counts.get(copy, 0)
        if 0 < count_there <= partitions[-1][0]:
            raise RefusedError(
                f"it has {counted(count_there, 'partition')}, and the group has committed "
                f"{topic}:{partitions[-1][0]}: partitions pair by number",
                where=copy,
                remedy="the mirror spreads records otherwise: restart by time, --to-datetime",
            )
        theirs, mine = [
            await self._ranges(cluster, replace(parse_selector(name), partitions=partitions))
            for cluster, name in ((self._mirror, copy), (self._source, topic))
        ]
        compacted, stamped = await log_settings(self._source, self._mirror, topic, copy)
        compared = tuple(f for f in FIELDS if not (stamped and f == "timestamp"))
        both = Both(
            self._source,
            self._mirror,
            self._reading,
            compared,
            explained(*may_be_compacted(compacted)),
        )
        not_proven = await self._same_log(commits)
        found = []
        for partition, stored in sorted(commits.items()):
            logs = mine[partition.partition], theirs[partition.partition]
            _refuse_outside(logs[0], stored.offset)
            pairing = PartitionMirror(*logs, around=Around(stored.offset))
            one = _found(await both.read(pairing), stored, compared, compacted[0])
            one = replace(one, not_proven=not_proven.get(partition))
            refuse_unpaired(one)
            found.append(replace(one, returning=await self._returning(one, logs[0])))
        return found

    async def _ranges(self, cluster: Cluster, selector: Selector) -> dict[int, Resolved]:
        ranges, missing = await resolve(cluster, [selector], EARLIEST, STABLE)
        if missing:
            at = missing[0]
            where = at.topic if at.partition is None else f"{at.topic}:{at.partition}"
            raise IncompleteError(
                at.detail, where=where, remedy="leave it out with --topic, or name it with --map"
            )
        return {r.partition: r for r in ranges}

    async def _same_log(
        self, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[TopicPartition, str]:
        """Return why a commit is not proven to be of the log that the source has now.

        Raises RefusedError for another log.
        """
        places = {p: LogPosition(s.offset, s.leader_epoch, "commit") for p, s in commits.items()}
        remedy = "what the group has read is no longer in the log: restart by time, --to-datetime"
        standings = await positions.standings(self._source, places)
        for partition, standing in standings.items():
            log_position.refuse_diverged(partition, places[partition], standing, remedy)
        return {p: s.because for p, s in standings.items() if s.held is None}

    async def _returning(self, found: Found, source: Resolved) -> int:
        """Return how many records the mirror has still to copy that the group has read, or that it
        has copied before."""
        place = found.place
        start = source.start if place.next_source is None else place.next_source
        end = max(found.offset, place.reach)
        if start >= end:
            return 0
        cuts = Cuts(
            *source.topic_partition,
            (start, end),
            source.log_start_offset,
            source.last_stable_offset,
        )
        counts, missing = await count(self._source, [cuts], self._reading)
        if missing:
            raise IncompleteError(missing[0].detail, where=str(source.topic_partition))
        return counts[source.topic_partition][0].data

    async def _assumed(self, found: Sequence[Found]) -> list[Check]:
        """Return what no log shows: what the mirror does from now on, and partitions left out."""
        text = "the mirror is not killed before it has copied on: what it copies again comes again"
        isolation = "the group reads B with read_committed, and so does the mirror read A: else "
        isolation += "aborted records come, too"
        assumed = [Check("mirror", None, text), Check("isolation", None, isolation)]
        topics = sorted({f.mirror.topic for f in found})
        metadata = await self._mirror.metadata(topics)
        moved = {f.mirror for f in found}
        for p in sorted(p.topic_partition for t in topics for p in metadata.topics[t].partitions):
            if p not in moved:
                text = "nothing moves here: the group has committed nothing for it in A"
                assumed.append(Check("no-commit", None, text, str(p)))
        return assumed


def _refuse_outside(source: Resolved, offset: int) -> None:
    """Refuse a commit whose neighbours cannot be compared: they are deleted or undecided."""
    where = str(source.topic_partition)
    if offset < source.log_start_offset:
        raise RefusedError(
            f"the group is at {offset}, but the log there begins at {source.log_start_offset}: "
            "what it has not read is deleted",
            where=where,
            remedy="the mirror may still have it: restart by time, --to-datetime",
        )
    if offset > source.last_stable_offset:
        raise RefusedError(
            f"the group is at {offset}, above the last stable offset {source.last_stable_offset}: "
            "what it has read may still be aborted",
            where=where,
            remedy="open transactions there must end first: see `eoctl why`",
        )


def _found(
    logs: BothLogs, stored: StoredOffset, compared: Sequence[str], compacted: bool | None
) -> Found:
    assert logs.place is not None
    return Found(
        source=logs.source.topic_partition,
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        mirror=logs.mirror.topic_partition,
        start=logs.mirror.start,
        place=logs.place,
        pairs=logs.pairs,
        records=int(logs.mirror_sums.count.sum()),
        behind=logs.behind,
        held=logs.mirror.high_watermark - logs.mirror.end,
        timed="timestamp" in compared,
        deleted=logs.source.start > 0 or logs.mirror.start > 0,
        compacted=compacted,
    )
