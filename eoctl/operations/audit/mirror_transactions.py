"""`audit mirror-transactions`: what the source committed and its mirror has in part.

The mirror's ends are read first. Then all that the source's coordinators decided, and each
partition: headers for its transactions, records to see how far the mirror has come.
"""

from collections.abc import Mapping

from eoctl.engine.audit_reading import not_read, read_transactions
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.mirror import EARLIEST, STABLE, log_settings, may_be_compacted
from eoctl.operations.audit.mirror_logs import ClusterLog
from eoctl.operations.audit.mirror_reading import Both, PartitionMirror
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.operations.audit.transactions import TransactionsAudit, endings_of
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import MirrorCutPart, MirrorTransactionRow
from recovery.audit.failover import mirror_names
from recovery.audit.mirror_cut import CutTransaction, cut_by_mirror
from recovery.audit.mirror_table import FIELDS, explained
from recovery.errors import EoctlError
from recovery.facts import Missing, TopicPartition
from recovery.plurals import counted
from recovery.quoting import some
from recovery.selectors import Selector, parse_selector
from recovery.values import Value, replace


class MirrorTransactionsRequest(Value):
    """selectors: of the source's topics. names: topics → their mirrors, where names do not tell.

    cluster: the mirror's. skew: how far brokers' clocks may differ, ms.
    """

    selectors: tuple[Selector, ...]
    cluster: Context
    skew: int
    names: Mapping[str, str] = {}


async def audit_mirror_transactions(
    source: Cluster, request: MirrorTransactionsRequest, reading: AuditOptions
) -> Answer:
    """Return the committed transactions that are cut."""
    settings = request.cluster.settings()
    async with Cluster(settings, source.deadline, read_only=True) as mirror:
        return await _Cut(source, mirror, request, reading).answer()


class _Cut:
    def __init__(
        self,
        source: Cluster,
        mirror: Cluster,
        request: MirrorTransactionsRequest,
        reading: AuditOptions,
    ) -> None:
        self._source, self._mirror = source, mirror
        self._asked, self._reading = request, reading
        self._missing: list[Missing] = []

    async def answer(self) -> Answer:
        """Read both clusters, and judge."""
        began = now_ms()
        names = await self._names()
        theirs: dict[TopicPartition, Resolved] = {}
        for topic, copy in names.items():
            ranges, missing = await resolve(self._mirror, [_all_of(copy)], EARLIEST, STABLE)
            self._missing += missing
            theirs |= {TopicPartition(topic, r.partition): r for r in ranges}
        topics = [_all_of(topic) for topic in names]
        audited = await TransactionsAudit(topics, self._asked.skew).look(self._source)
        self._missing += audited.missing
        whole, failed = await read_transactions(self._source, audited.ranges, self._reading)
        self._missing += failed
        reached = {}
        for r in audited.ranges:
            end = await self._reached(r, names[r.topic], theirs.get(r.topic_partition))
            if end is not None and r.topic_partition in whole:
                reached[r.topic_partition] = end
        found = cut_by_mirror(audited.covered, endings_of(whole), reached, self._asked.skew)
        for part in found.unproven:
            text = (
                f"offsets {part.first} to {part.last} are missing in the mirror, and the decision "
                "of their transaction is compacted away: whether it has other parts is not known"
            )
            self._missing.append(
                Missing("partition", "UNPROVEN", text, None, *part.topic_partition)
            )
        return Answer(
            schema="audit-mirror-transactions",
            cluster_id=self._source.cluster_id,
            collected_at=began,
            rows=[_row(one, names) for one in found.cut[: self._reading.most]],
            errors=error_rows(self._missing),
            extra={
                "findings": len(found.cut),
                "partitions": len(reached),
                "mirror_cluster_id": self._mirror.cluster_id,
            },
            judging=True,
            finding=bool(found.cut),
        )

    async def _names(self) -> dict[str, str]:
        """Return the mirror of each topic; one without is named, and left out."""
        _, chosen, missing = await selected(self._source, Scope(self._asked.selectors))
        self._missing += missing
        topics = sorted({p.topic for p in chosen if not p.topic.startswith("__")})
        there = (await self._mirror.metadata(None)).topics
        usual = [name for name, t in there.items() if t.error is None and not t.internal]
        names = {}
        for topic, alike in mirror_names(topics, usual, self._asked.names).items():
            if len(alike) == 1:
                names[topic] = alike[0]
                continue
            text = f"several topics may be its mirror: {some(alike)}" if alike else "has no mirror "
            text += "" if alike else "of its name that you may see"
            self._missing.append(
                Missing("topic", "NOT_READ", f"{text}; name it with --map", topic=topic)
            )
        return names

    async def _reached(self, r: Resolved, copy: str, theirs: Resolved | None) -> int | None:
        """Return the offset below which the mirror has all of a partition; None: unknown."""
        partition = r.topic_partition
        if theirs is None:
            text = f"{copy} has no such partition, or it was not read"
            self._missing.append(Missing("partition", "NOT_READ", text, None, *partition))
            return None
        mine = replace(r, end=max(r.start, r.last_stable_offset))
        policies, stamped = await log_settings(self._source, self._mirror, r.topic, copy)
        fields = tuple(name for name in FIELDS if not (stamped and name == "timestamp"))
        ours, copies = (ClusterLog(c, self._reading, fields) for c in (self._source, self._mirror))
        excused = explained(*may_be_compacted(policies))
        both = Both(ours, copies, self._reading, fields, excused)
        try:
            found = await both.read(PartitionMirror(mine, theirs))
        except EoctlError as error:
            self._missing.append(not_read(partition, error))
            return None
        if lost := found.counts.get("lost", 0):
            text = f"the mirror lacks {counted(lost, 'record')} before its end, whose transactions "
            text += "are not judged: see `audit mirror`"
            self._missing.append(Missing("partition", "UNPROVEN", text, None, *partition))
        if not found.pairs and theirs.end > theirs.start:
            text = f"none of the records of {copy} is one of its: it is not its mirror"
            self._missing.append(Missing("partition", "UNPROVEN", text, None, *partition))
            return None
        return r.start if found.mirrored_to is None else found.mirrored_to


def _all_of(topic: str) -> Selector:
    return parse_selector(topic)


def _row(one: CutTransaction, names: Mapping[str, str]) -> MirrorTransactionRow:
    return MirrorTransactionRow(
        transactional_id=one.decision.transactional_id if one.decision else None,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        decided_at=one.decision.timestamp if one.decision else None,
        partitions=[
            MirrorCutPart(
                topic=p.topic,
                partition=p.partition,
                mirror_topic=names[p.topic],
                first_offset=p.first,
                last_offset=p.last,
                missing_from=p.missing_from,
            )
            for p in one.parts
        ],
    )
