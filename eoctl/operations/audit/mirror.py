"""`audit mirror`: compare a topic with its mirror, in this cluster or another.

The ends are read first, the mirror's before the source's, so the source held everything that the
mirror holds. Then both partitions are read in parallel, and again only for records without a
partner: by this process, or by a task of a Spark job for each partition. MirrorMaker 2's offset
syncs and checkpoints are read from their own topics. The rules: `recovery.audit.mirror_pairs`,
`recovery.audit.mirror_table`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eoctl.engine.mirror_task import compared_pair
from eoctl.host.clock import now_ms
from eoctl.kafka.ask.collect import ids_of_leaders
from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.mirror_maker import checkpoints, offset_syncs
from eoctl.operations.audit.mirror_rows import with_text
from eoctl.operations.audit.ranges import AuditOptions, Resolved, not_read, resolve
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.audit.audit_request import (
    MirrorFound,
    MirrorPair,
    MirrorPairsRequest,
    MirrorPart,
    TopicOf,
    joined_mirror,
)
from recovery.audit.mirror_table import FIELDS
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import Missing
from recovery.formats.mirror_maker import Checkpoint, OffsetSync
from recovery.formats.reader import CorruptError
from recovery.selectors import Selector, parse_selector
from recovery.shared.offset_bounds import Bound
from recovery.values import Value, replace

EARLIEST, STABLE = Bound("earliest", "earliest"), Bound("lso", "lso")


class MirrorRequest(Value):
    """own: the source's context. mirror: its topic; cluster: the mirror's, None = the source's own.
    start: in both logs.

    ignored: record fields that are not compared. offset_syncs, checkpoints: their topics, None =
    those that mention this topic, `none` = leave them out.
    """

    own: Context
    source: Selector
    mirror: str
    cluster: Context | None
    start: Bound
    ignored: frozenset[str] = frozenset()
    offset_syncs: str | None = None
    checkpoints: str | None = None

    @property
    def topics(self) -> tuple[str, str]:
        """Return the source's and the mirror's."""
        assert self.source.literal is not None
        return self.source.literal, self.mirror

    def opened(self, source: Cluster) -> Cluster:
        """Return the mirror's cluster, to be used with `async with`."""
        return Cluster((self.cluster or self.own).settings(), source.deadline, read_only=True)

    def access(self) -> Access:
        """Return what a job needs to reach both clusters."""
        beside = None if self.cluster is None else self.cluster.access
        return replace(self.own.access, beside=beside)

    async def ranges(
        self, source: Cluster, mirror: Cluster
    ) -> tuple[list[tuple[Resolved, Resolved]], list[Missing]]:
        """Return the partitions that both have, and what cannot be read."""
        copy = replace(parse_selector(self.mirror), partitions=self.source.partitions)
        theirs, missing = await resolve(mirror, [copy], self.start, STABLE)
        mine, more = await resolve(source, [self.source], self.start, STABLE)
        missing += more
        missing += one_sided(mine, theirs, *self.topics, missing)
        copies = {r.partition: r for r in theirs}
        return [(r, copies[r.partition]) for r in mine if r.partition in copies], missing


class MirrorRanges(AuditedRanges, kw_only=True):
    """fields: compared. compacted: source and mirror, None: hidden. identities: theirs, too.
    offset_syncs, checkpoints: their topics."""

    pairs: Sequence[MirrorPair]
    fields: tuple[str, ...]
    compacted: tuple[bool | None, bool | None]
    identities: tuple[TopicOf, TopicOf]
    offset_syncs: str | None
    checkpoints: str | None


@dataclass(frozen=True)
class MirrorAudit(Audit[MirrorFound]):
    """Compares every record of the source's partitions with the mirror's partition of that
    number."""

    question: MirrorRequest

    job: ClassVar[str] = "audit_mirror"
    spark_offsets: ClassVar[int] = 20_000_000
    answer_type = MirrorFound

    def access(self, context: Context) -> Access:
        return self.question.access()

    async def look(self, cluster: Cluster) -> MirrorRanges:
        """Raise UsageError for topics that do not exist."""
        async with self.question.opened(cluster) as mirror:
            return await _looked(cluster, mirror, self.question)

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> MirrorPairsRequest:
        assert isinstance(audited, MirrorRanges)
        start = self.question.start
        return MirrorPairsRequest(
            **self.asked(audited, reading),
            pairs=tuple(audited.pairs),
            topics=audited.identities,
            fields=audited.fields,
            compacted=may_be_compacted(audited.compacted),
            since=start.value if start.kind == "time" else None,
        )

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> MirrorFound:
        request = self.request(audited, reading)
        parts: list[MirrorPart] = []
        failed: list[Missing] = []
        async with self.question.opened(cluster) as mirror:
            for pair in request.pairs:
                try:
                    parts.append(await compared_pair(cluster, mirror, request, pair, reading))
                except EoctlError as error:
                    failed.append(not_read(pair.source.topic_partition, error))
        return joined_mirror(parts, failed, reading.most)

    def answer(self, audited: AuditedRanges, result: MirrorFound) -> Answer:
        assert isinstance(audited, MirrorRanges)
        topic, copy = self.question.topics
        parts = result.parts
        return Answer(
            schema="audit-mirror",
            cluster_id=audited.cluster_id,
            collected_at=now_ms(),
            rows=[with_text(row) for part in parts for row in part.rows],
            errors=error_rows([*audited.unseen(result), *result.unproven]),
            extra={
                "topic": topic,
                "mirror_topic": copy,
                "mirror_cluster_id": audited.identities[1].cluster_id,
                "compared": list(audited.fields),
                "findings": result.findings,
                "examined": [part.examined.json_values() for part in parts],
                "offset_syncs": audited.offset_syncs,
                "checkpoints_topic": audited.checkpoints,
                "checkpoints": [c.json_values() for part in parts for c in part.checkpoints],
            },
            judging=True,
            finding=result.findings > 0,
        )


async def _looked(source: Cluster, mirror: Cluster, question: MirrorRequest) -> MirrorRanges:
    topic, copy = question.topics
    refuse_itself(source, mirror, topic, copy)
    unread: list[Missing] = []
    sync_topic: str | None = None
    checkpoint_topic: str | None = None
    syncs: list[OffsetSync] = []
    translated: list[Checkpoint] = []
    try:
        sync_topic, syncs = await offset_syncs((source, mirror), topic, question.offset_syncs)
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("offset syncs", question.offset_syncs, error))
    try:
        checkpoint_topic, translated = await checkpoints(mirror, copy, question.checkpoints)
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("checkpoints", question.checkpoints, error))
    both, missing = await question.ranges(source, mirror)
    policies, stamped = await log_settings(source, mirror, topic, copy)
    pairs = [
        MirrorPair(
            mine,
            theirs,
            tuple(s for s in syncs if s.partition == mine.partition),
            tuple(c for c in translated if c.partition == mine.partition),
        )
        for mine, theirs in both
    ]
    return MirrorRanges(
        source.cluster_id,
        ranges_of(pairs),
        [*missing, *unread],
        pairs=pairs,
        fields=compared_fields(question.ignored, stamped=stamped),
        compacted=policies,
        identities=(await _described(source, topic), await _described(mirror, copy)),
        offset_syncs=sync_topic,
        checkpoints=checkpoint_topic,
    )


async def _described(cluster: Cluster, topic: str) -> TopicOf:
    described = (await cluster.metadata([topic])).topics.get(topic)
    return TopicOf(cluster.cluster_id, None if described is None else described.topic_id)


def ranges_of(pairs: Sequence[MirrorPair]) -> list[Resolved]:
    """Return all that is read, the source's ranges first."""
    return [*(pair.source for pair in pairs), *(pair.mirror for pair in pairs)]


def compared_fields(ignored: frozenset[str], *, stamped: bool) -> tuple[str, ...]:
    """Return the fields that make two records the same. stamped: the mirror has its own times."""
    left_out = ignored | (frozenset({"timestamp"}) if stamped else frozenset())
    return tuple(name for name in FIELDS if name not in left_out)


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
