"""`restart plan --from-cluster`: the offsets of a group on another cluster, found by its records.

Each partition is compared as `audit mirror` does; `recovery.audit.mirror_place` finds the offset
and `recovery.audit.failover` judges it. The plan is then one of `eoctl.operations.restart`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from eoctl.engine.mirror_logs import ClusterLog
from eoctl.engine.mirror_reading import Both, BothLogs, PartitionMirror
from eoctl.kafka.ask.log_dirs import NONE_DENIED, Denied, denied_topics
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.failover_map import MapSource
from eoctl.operations.audit.failover_source import FailoverSource, LiveSource, stable_ranges
from eoctl.operations.audit.mirror import may_be_compacted
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart.origin import opened_origin
from eoctl.operations.restart.restart_request import AdHoc
from recovery.audit.failover import (
    Found,
    aliases_of,
    checks,
    likely_names,
    mirror_names,
    origin,
    promise,
    refuse_ranges,
    refuse_unpaired,
)
from recovery.audit.mirror_place import Around
from recovery.audit.mirror_table import explained
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.quoting import some
from recovery.restart.adhoc import End, Target
from recovery.restart.decision import Check
from recovery.restart.stored import StoredOffset
from recovery.selectors import Selector
from recovery.values import Value, replace


class FailoverRequest(Value):
    """A group's way to another cluster.

    context: of the cluster it leaves; maps: of its topics, if it is gone. selectors: there; none =
    every partition that it has committed. names: topics there → their mirrors. at: the end of a
    range; None = refuse.
    """

    context: str
    group: str
    selectors: tuple[Selector, ...] = ()
    names: Mapping[str, str] = {}
    at: End | None = None
    maps: tuple[Path, ...] = ()


async def resolve_failover(mirror: Cluster, request: FailoverRequest, reading: Reading) -> AdHoc:
    """Return the move, each partition with its offset in `mirror`.

    Raises RefusedError where the records do not say it, IncompleteError where they cannot be read.
    """
    options = AuditOptions(reading.check_crc, reading.max_rate, reading.progress, most=0)
    if request.maps:
        known = MapSource.read(request.maps)
        return await _Failover(known, mirror, request, options).resolved()
    async with opened_origin(request.context, mirror.deadline) as cluster:
        live = LiveSource(request.context, cluster, options)
        return await _Failover(live, mirror, request, options).resolved()


class _Failover:
    def __init__(
        self,
        source: FailoverSource,
        mirror: Cluster,
        request: FailoverRequest,
        reading: AuditOptions,
    ) -> None:
        self._source = source
        self._mirror = mirror
        self._asked = request
        self._partitions_there: dict[str, int] = {}  # the mirror's partitions
        self._reading = reading

    async def resolved(self) -> AdHoc:
        """Return the move."""
        source, mirror, group = self._source, self._mirror, self._asked.group
        if source.cluster_id == mirror.cluster_id:
            raise UsageError(
                f"is the cluster that the plan is for ({mirror.cluster_id})",
                where="--from-cluster",
                remedy="name the cluster that the group leaves; --context is the one it goes to",
            )
        metadata = await mirror.metadata(None)
        usual = [t for t in metadata.topics.values() if t.error is None and not t.internal]
        self._partitions_there = {t.name: len(t.partitions) for t in usual}
        commits = await source.commits(group, self._asked.selectors, self._partitions_there.keys())
        if not commits:
            raise self._nothing_committed()
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
        left = source.origin(group, commits)
        return AdHoc(group, target, tuple(sorted(target.offsets)), left)

    def _nothing_committed(self) -> RefusedError:
        name, group = self._source.name, self._asked.group
        remedy = (
            f"see `eoctl offsets show --group {group} --context {name}`; what it has committed "
        )
        remedy += "on topics without DESCRIBE is hidden: name them with --topic"
        if self._asked.maps:
            remedy = "a map has what groups had committed at its last look: see `commits` in it"
        return RefusedError(
            "it has committed nothing" + (" there" if self._asked.selectors else ""),
            where=f"group {group} in {name}",
            remedy=remedy,
        )

    async def _names(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the mirror of each topic: as named, else the only one that it may be by its name.

        Raises UsageError for a name that is not needed, RefusedError for none or several mirrors,
        IncompleteError if a hidden topic may be one.
        """
        unknown = sorted(self._asked.names.keys() - set(topics))
        if unknown:
            raise UsageError(
                f"the group has committed nothing of {unknown[0]} there", where="--map"
            )
        mirrors, there = self._source.mirrors, self._partitions_there.keys()
        named = {t: mirrors[t] for t in topics if t in mirrors} | dict(self._asked.names)
        denied = NONE_DENIED
        if not named.keys() >= set(topics):
            likely = likely_names(topics, aliases_of(topics, there))
            denied = await denied_topics(self._mirror, likely)
        by_name = mirror_names(topics, [*there, *denied.topics], named)
        return {topic: _only(topic, alike, denied) for topic, alike in by_name.items()}

    async def _of_topic(
        self, topic: str, copy: str, commits: Mapping[TopicPartition, StoredOffset]
    ) -> list[Found]:
        """Compare the partitions of one topic. The mirror's ends are read first."""
        partitions = tuple((p, p) for _, p in sorted(commits))
        count_there = self._partitions_there.get(copy, 0)
        if 0 < count_there <= partitions[-1][0]:
            raise RefusedError(
                f"it has {counted(count_there, 'partition')}, and the group has committed "
                f"{topic}:{partitions[-1][0]}: partitions pair by number",
                where=copy,
                remedy="the mirror spreads records otherwise: restart by time, --to-datetime",
            )
        theirs = await stable_ranges(self._mirror, copy, [p for p, _ in partitions])
        mine = await self._source.ranges(topic, commits)
        how = await self._source.compared(self._mirror, topic, copy)
        not_proven = await self._source.not_proven(commits)
        log = ClusterLog(self._mirror, self._reading, how.fields)
        compacted = may_be_compacted(how.compacted)
        found = []
        for partition, stored in sorted(commits.items()):
            ranges = mine[partition.partition], theirs[partition.partition]
            left = self._source.log(log, ranges[1], stored, compacted=compacted[1])
            both = Both(left, log, self._reading, how.fields, explained(*compacted))
            known_to = self._source.known_to(partition)
            pairing = PartitionMirror(*ranges, around=Around(stored.offset), known_to=known_to)
            one = _found(await both.read(pairing), stored, how.fields, how.compacted[0])
            one = replace(one, not_proven=not_proven.get(partition))
            refuse_unpaired(one)
            found.append(await self._source.completed(one, ranges[0], left))
        return found

    async def _assumed(self, found: Sequence[Found]) -> list[Check]:
        """Return what no log shows: what the mirror does from now on, and partitions left out."""
        isolation = "the group reads B with read_committed, and so does the mirror read A: else "
        isolation += "aborted records come, too"
        assumed = [*self._source.assumed(), Check("isolation", None, isolation)]
        topics = sorted({f.mirror.topic for f in found})
        metadata = await self._mirror.metadata(topics)
        moved = {f.mirror for f in found}
        for p in sorted(p.topic_partition for t in topics for p in metadata.topics[t].partitions):
            if p not in moved:
                text = "nothing moves here: the group has committed nothing for it in A"
                assumed.append(Check("no-commit", None, text, str(p)))
        return assumed


def _only(topic: str, alike: Sequence[str], denied: Denied) -> str:
    """Return the mirror of a topic, the only one of these. Raises as `_Failover._names`."""
    by_name = f"name its mirror: --map {topic}=TOPIC; or leave it out: --topic"
    if hidden := sorted(set(alike) & set(denied.topics)):
        raise IncompleteError(
            f"{some(hidden)} may be its mirror in the cluster that the group goes to, where "
            "DESCRIBE is not granted on it",
            where=topic,
            remedy=f"grant it, or {by_name}",
        )
    if len(alike) == 1:
        return alike[0]
    what = f"several topics may be its mirror: {some(alike)}"
    if not alike:
        seen = "is" if denied.all_known else "that you may see is"
        what = f"no topic of its name {seen} in the cluster that the group goes to"
    raise RefusedError(what, where=topic, remedy=by_name)


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
        end=logs.mirror.end,
        place=logs.place,
        pairs=logs.pairs,
        records=int(logs.mirror_sums.count.sum()),
        behind=logs.behind,
        held=logs.mirror.high_watermark - logs.mirror.end,
        timed="timestamp" in compared,
        deleted=logs.source.start > 0 or logs.mirror.start > 0,
        compacted=compacted,
    )
