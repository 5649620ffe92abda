"""`audit mirror`: compare a topic with its mirror, in this cluster or another.

The ends are read first, the mirror's before the source's, so the source held everything that the
mirror holds. Then both partitions are read in parallel, and again only for records without a
partner. MirrorMaker 2's offset syncs and checkpoints are read from their own topics. The rules:
`recovery.audit.mirror_pairs`, `recovery.audit.mirror_table`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect
from eoctl.kafka.ask.collect import ids_of_leaders
from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.operations.audit.mirror_logs import ClusterLog
from eoctl.operations.audit.mirror_reading import Both, PartitionMirror
from eoctl.operations.audit.mirror_rows import MirrorAnswer, mirror_answer
from eoctl.operations.audit.ranges import AuditOptions, Resolved, not_read, resolve, seen_by_readers
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import AuditMirrorRow
from recovery.audit.mirror_pairs import Translated
from recovery.audit.mirror_table import FIELDS, explained
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import Missing
from recovery.formats.mirror_maker import Checkpoint, OffsetSync, decode_checkpoint, decode_sync
from recovery.formats.reader import CorruptError
from recovery.selectors import Selector, parse_selector
from recovery.shared.offset_bounds import Bound
from recovery.values import Value, replace

EARLIEST, STABLE = Bound("earliest", "earliest"), Bound("lso", "lso")
NOTHING = "none"
MirrorEntry = TypeVar("MirrorEntry", OffsetSync, Checkpoint)


class MirrorRequest(Value):
    """mirror: its topic. cluster: the mirror's, None = the source's own. start: in both logs.

    ignored: record fields that are not compared. offset_syncs, checkpoints: their topics, None =
    those that mention this topic, `none` = leave them out.
    """

    source: Selector
    mirror: str
    cluster: Context | None
    start: Bound
    ignored: frozenset[str] = frozenset()
    offset_syncs: str | None = None
    checkpoints: str | None = None


async def audit_mirror(
    source: Cluster, own: Context, request: MirrorRequest, reading: AuditOptions
) -> Answer:
    """Compare every record of the source's partitions with the mirror's partition of that number.

    own: the source's context. Raises UsageError for topics that do not exist.
    """
    other = request.cluster or own
    settings = other.settings()
    async with Cluster(settings, source.deadline, read_only=True) as mirror:
        return await _audit(source, mirror, request, reading)


async def _audit(
    source: Cluster, mirror: Cluster, request: MirrorRequest, reading: AuditOptions
) -> Answer:
    topic = request.source.literal
    assert topic is not None
    refuse_itself(source, mirror, topic, request.mirror)
    unread: list[Missing] = []
    sync_topic: str | None = None
    checkpoint_topic: str | None = None
    syncs: list[OffsetSync] = []
    translated: list[Checkpoint] = []
    try:
        sync_topic, syncs = await offset_syncs((source, mirror), topic, request.offset_syncs)
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("offset syncs", request.offset_syncs, error))
    try:
        checkpoint_topic, translated = await checkpoints(
            mirror, request.mirror, request.checkpoints
        )
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("checkpoints", request.checkpoints, error))
    copy = replace(parse_selector(request.mirror), partitions=request.source.partitions)
    theirs, missing = await resolve(mirror, [copy], request.start, STABLE)
    mine, more = await resolve(source, [request.source], request.start, STABLE)
    missing += [*more, *unread]
    policies, stamped = await log_settings(source, mirror, topic, request.mirror)
    compacted = may_be_compacted(policies)
    ignored = request.ignored | (frozenset({"timestamp"}) if stamped else frozenset())
    compared = tuple(name for name in FIELDS if name not in ignored)
    mirror_ranges = {r.partition: r for r in theirs}
    missing += one_sided(mine, theirs, topic, request.mirror, missing)
    parts: list[MirrorAnswer] = []
    rows: list[AuditMirrorRow] = []
    ours, copies = (ClusterLog(cluster, reading, compared) for cluster in (source, mirror))
    both = Both(ours, copies, reading, compared, explained(*compacted))
    for r in mine:
        if r.partition not in mirror_ranges:
            continue
        partition = PartitionMirror(
            r,
            mirror_ranges[r.partition],
            [s for s in syncs if s.partition == r.partition],
            [Translated(c.upstream, c.downstream) for c in _of(translated, r.partition)],
            request.start.value if request.start.kind == "time" else None,
        )
        try:
            logs = await both.read(partition)
        except EoctlError as error:
            missing.append(not_read(r.topic_partition, error))
            continue
        of_groups = _of(translated, r.partition)
        parts.append(mirror_answer(logs, of_groups, compacted, reading.most - len(rows)))
        rows += parts[-1].rows
    missing += [one for t in parts for one in t.missing]
    findings = sum(t.findings for t in parts)
    return Answer(
        schema="audit-mirror",
        cluster_id=source.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        errors=error_rows(missing),
        extra={
            "topic": topic,
            "mirror_topic": request.mirror,
            "mirror_cluster_id": mirror.cluster_id,
            "compared": list(compared),
            "findings": findings,
            "examined": [t.examined.json_values() for t in parts],
            "offset_syncs": sync_topic,
            "checkpoints_topic": checkpoint_topic,
            "checkpoints": [c.json_values() for t in parts for c in t.checkpoints],
        },
        judging=True,
        finding=findings > 0,
    )


def refuse_itself(source: Cluster, mirror: Cluster, topic: str, copy: str) -> None:
    """Raise UsageError if both are one topic of one cluster."""
    if topic == copy and source.cluster_id == mirror.cluster_id:
        raise UsageError(
            f"{topic} would be compared with itself",
            remedy="name the mirror's cluster with --mirror-context, or its topic",
        )


def _not_known(what: str, topic: str | None, error: EoctlError) -> Missing:
    text = f"its {what} were not compared: {error.sentence}"
    return Missing("topic", "NOT_READ", text, topic=topic)


def _of(checkpoints: Sequence[Checkpoint], partition: int) -> list[Checkpoint]:
    return [one for one in checkpoints if one.partition == partition]


async def log_settings(
    source: Cluster, mirror: Cluster, topic: str, copy: str
) -> tuple[tuple[bool | None, bool | None], bool]:
    """Return which of (source, mirror) are compacted, None: hidden, and if the mirror has its own
    times."""
    keys = ("cleanup.policy", "message.timestamp.type")
    mine, _ = await topic_configs(source, [topic], keys)
    theirs, _ = await topic_configs(mirror, [copy], keys)
    a, b = (
        configs.get(name, {}).get("cleanup.policy")
        for configs, name in ((mine, topic), (theirs, copy))
    )
    stamped = theirs.get(copy, {}).get("message.timestamp.type") == "LogAppendTime"
    return (None if a is None else "compact" in a, None if b is None else "compact" in b), stamped


async def topic_id(cluster: Cluster, topic: str) -> str | None:
    """Return a topic's id as all of its leaders know it; None: there are no ids.

    The broker that describes topics may still give the id of a topic that was deleted. Raises
    UsageError for an unknown topic, IncompleteError if it is hidden, or if a leader is missing or
    has another id.
    """
    metadata = await cluster.metadata([topic])
    described = metadata.topics.get(topic)
    if described is None or not described.partitions:
        error = None if described is None else described.error
        if error == "TOPIC_AUTHORIZATION_FAILED":
            raise IncompleteError(error, where=topic, remedy="grant DESCRIBE on the topic")
        raise UsageError("there is no such topic", where=topic)
    ids = (await ids_of_leaders(cluster, described.partitions))[topic]
    if ids == {described.topic_id}:
        return described.topic_id
    raise IncompleteError(
        "its leaders do not agree which topic of this name it is, or one does not answer",
        where=topic,
        remedy="try again in a few seconds",
    )


def may_be_compacted(policies: tuple[bool | None, bool | None]) -> tuple[bool, bool]:
    """Return which may be: hidden settings prove nothing."""
    source, mirror = policies
    return source is not False, mirror is not False


def one_sided(
    mine: Sequence[Resolved],
    theirs: Sequence[Resolved],
    topic: str,
    copy: str,
    missing: Sequence[Missing],
) -> list[Missing]:
    """Return the partitions that only one side has."""
    partitions_missing = {(m.topic, m.partition) for m in missing}
    a, b = {r.partition for r in mine}, {r.partition for r in theirs}
    pairs = [(copy, p, topic) for p in sorted(a - b)] + [(topic, p, copy) for p in sorted(b - a)]
    return [
        Missing(
            "partition",
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"there is no such partition, but {there}:{partition}: it was not compared",
            None,
            name,
            partition,
        )
        for name, partition, there in pairs
        if (name, partition) not in partitions_missing and (name, None) not in partitions_missing
    ]


async def offset_syncs(
    clusters: Sequence[Cluster], source: str, named: str | None
) -> tuple[str | None, list[OffsetSync]]:
    """Return their topic, and all syncs of `source`, oldest first. clusters: source, mirror.

    named: the topic that holds them; None: the only `mm2-offset-syncs...internal` that mentions
    this topic. Raises UsageError if there are several, IncompleteError for an unreadable one.
    """
    by_topic: list[tuple[str, list[OffsetSync]]] = []
    for cluster in _each(clusters):
        for topic in await _named(cluster, named, "mm2-offset-syncs", ".internal"):
            syncs = [
                sync
                async for key, value in _records(cluster, topic)
                if value is not None and (sync := decode_sync(key, value)).topic == source
            ]
            if syncs or named:
                by_topic.append((topic, syncs))
    return _one(by_topic, named, "--offset-syncs")


async def checkpoints(
    mirror: Cluster, topic: str, named: str | None
) -> tuple[str | None, list[Checkpoint]]:
    """Return the latest checkpoint of each group and partition of the mirror's topic. Otherwise as
    `offset_syncs`."""
    by_topic: list[tuple[str, list[Checkpoint]]] = []
    for name in await _named(mirror, named, "", ".checkpoints.internal"):
        latest: dict[tuple[str, int], Checkpoint] = {}
        async for key, value in _records(mirror, name):
            if value is None:
                continue
            one = decode_checkpoint(key, value)
            if one.topic == topic:
                latest[one.group, one.partition] = one
        if latest or named:
            by_topic.append((name, [latest[partition] for partition in sorted(latest)]))
    return _one(by_topic, named, "--checkpoints")


def _each(clusters: Sequence[Cluster]) -> list[Cluster]:
    source, mirror = clusters
    if source.cluster_id is not None and source.cluster_id == mirror.cluster_id:
        return [mirror]
    return [source, mirror]


async def _named(cluster: Cluster, named: str | None, begin: str, end: str) -> list[str]:
    if named == NOTHING:
        return []
    metadata = await cluster.metadata(None if named is None else [named])
    return sorted(
        name
        for name, topic in metadata.topics.items()
        if topic.error is None
        and (named is not None or (name.startswith(begin) and name.endswith(end)))
    )


def _one(
    by_topic: list[tuple[str, list[MirrorEntry]]], named: str | None, option: str
) -> tuple[str | None, list[MirrorEntry]]:
    if len(by_topic) > 1:
        names = ", ".join(sorted({topic for topic, _ in by_topic}))
        raise UsageError(
            f"several topics hold offsets of this one: {names}",
            where=option,
            remedy="name the one of this mirror's MirrorMaker",
        )
    if not by_topic and named not in (None, NOTHING):
        raise UsageError(f"there is no topic {named} that you may see", where=option)
    return by_topic[0] if by_topic else (None, [])


async def _records(cluster: Cluster, topic: str) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Return keys and values of all visible records with a key, by partition and offset."""
    metadata = await cluster.metadata([topic])
    partitions = list(metadata.topics[topic].partitions)
    facts, missing = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    for fact in facts:
        if fact.log_start_offset is None or fact.last_stable_offset is None or fact.error:
            text = missing[0].detail if missing else "its offsets could not be read"
            raise IncompleteError(text, where=str(fact.topic_partition))
        parts = read_columns(
            cluster,
            Range(topic, fact.partition, fact.log_start_offset, fact.last_stable_offset),
            last_stable_offset=fact.last_stable_offset,
        )
        try:
            async with aclosing(parts):
                async for part in parts:
                    shown = part.select(seen_by_readers(part))
                    for i in range(len(shown)):
                        if (key := shown.key[i]) is not None:
                            yield key, shown.value[i]
        except EoctlError as error:
            raise IncompleteError(error.sentence, where=str(fact.topic_partition)) from error
