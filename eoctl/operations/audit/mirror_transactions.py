"""`audit mirror-transactions`: what the source committed and its mirror has in part.

The mirror's ends are read first. Then all that the source's coordinators decided, and each
partition: headers for its transactions, records to see how far the mirror has come.
"""

from collections.abc import Mapping

from eoctl.engine.audit_reading import not_read, read_transactions
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.mirror import (
    EARLIEST,
    STABLE,
    log_settings,
    may_be_compacted,
    refuse_itself,
)
from eoctl.operations.audit.mirror_logs import ClusterLog
from eoctl.operations.audit.mirror_reading import Both, BothLogs, PartitionMirror
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.operations.audit.transactions import TransactionsAudit, endings_of
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import MirrorCutPart, MirrorTransactionRow
from recovery.audit.failover import mirror_names
from recovery.audit.mirror_cut import CutTransaction, UnprovenPart, WhyUnproven, cut_by_mirror
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
        skew, endings = self._asked.skew, endings_of(whole)
        found = cut_by_mirror(audited.covered, audited.later, endings, reached, skew)
        self._missing += map(_unproven, found.unproven)
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
                refuse_itself(self._source, self._mirror, topic, alike[0])
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
        if lacking := _without_copy(found):
            self._missing.append(Missing("partition", "UNPROVEN", lacking, None, *partition))
        if not found.pairs and theirs.end > theirs.start:
            text = f"none of the records of {copy} is one of its: it is not its mirror"
            self._missing.append(Missing("partition", "UNPROVEN", text, None, *partition))
            return None
        return r.start if found.mirrored_to is None else found.mirrored_to


def _all_of(topic: str) -> Selector:
    return parse_selector(topic)


def _without_copy(found: BothLogs) -> str | None:
    """Return a sentence on the records before the mirror's end that it does not have as they are,
    None if there are none: their transactions count as copied."""
    counts = {
        "lacks": found.counts.get("lost", 0),
        "has changed": found.counts.get("changed", 0),
        "may lack": found.outside,
    }
    lacking = [f"{what} {counted(n, 'record')}" for what, n in counts.items() if n]
    if not lacking:
        return None
    text = f"before its end the mirror {some(lacking)}, whose transactions are not judged: "
    return text + "see `audit mirror`"


_WHY: Mapping[WhyUnproven, str] = {
    "decision-gone": "the mirror lacks what {} wrote here, and the decisions, which name the other "
    "partitions, are compacted away: whether it has other parts of them is not known; compare "
    "their other topics with `audit mirror`",
    "not-compared": "{} of the other topics wrote here, too, and it was not compared: whether they "
    "are cut is not known; name its topic, and its mirror with --map",
    "no-data": "the mirror lacks other parts of {} that may have written here, of which nothing is "
    "left: they wrote nothing, or retention deleted it; look for it in the mirror",
    "no-marker": "{} may hold data that lost its marker, or a later one that is open: whether the "
    "mirror lacks it is not known; see `audit transactions`",
}


def _unproven(part: UnprovenPart) -> Missing:
    text = _WHY[part.why].format(counted(part.transactions, "transaction"))
    return Missing("partition", "UNPROVEN", text, None, *part.topic_partition)


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
