"""`audit mirror-transactions`: what the source committed and its mirror has in part.

The mirror's ends are read first. Then all that the source's coordinators decided, and each
partition: headers for its transactions, records to see how far the mirror has come.
"""

from eoctl.engine.audit_reading import not_read, read_transactions
from eoctl.engine.mirror_logs import ClusterLog
from eoctl.engine.mirror_reading import Both, BothLogs, PartitionMirror
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.mirror import (
    EARLIEST,
    STABLE,
    log_settings,
    may_be_compacted,
    refuse_itself,
)
from eoctl.operations.audit.mirror_copies import (
    MirrorTransactionsRequest,
    mirrors_of,
    open_copies,
)
from eoctl.operations.audit.mirror_rows import cut_row, unproven
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.operations.audit.transactions import TransactionsAudit, endings_of
from eoctl.operations.inspect.lists import Scope, selected
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import MirrorOpenRow
from recovery.audit.mirror_cut import cut_by_mirror
from recovery.audit.mirror_table import FIELDS, explained
from recovery.errors import EoctlError
from recovery.facts import Missing, TopicPartition
from recovery.plurals import counted
from recovery.quoting import some
from recovery.selectors import Selector, parse_selector
from recovery.values import replace


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
        self._missing += map(unproven, found.unproven)
        opened = await self._opened(names)
        return Answer(
            schema="audit-mirror-transactions",
            cluster_id=self._source.cluster_id,
            collected_at=began,
            rows=[cut_row(one, names) for one in found.cut[: self._reading.most]],
            errors=error_rows(self._missing),
            extra={
                "findings": len(found.cut),
                "partitions": len(reached),
                "mirror_cluster_id": self._mirror.cluster_id,
                "decisions_until": None,
                "open": [o.json_values() for o in opened],
            },
            judging=True,
            finding=bool(found.cut or opened),
        )

    async def _opened(self, names: dict[str, str]) -> list[MirrorOpenRow]:
        """Return what is open in the mirror; what was not seen of it does not hide what is cut."""
        try:
            opened, unseen = await open_copies(self._source, self._mirror, names, self._asked)
        except EoctlError as error:
            text = "what is open in the mirror: " + error.sentence
            self._missing.append(Missing("cluster", "NOT_READ", text))
            return []
        self._missing += unseen
        return opened

    async def _names(self) -> dict[str, str]:
        """Return the mirror of each topic; one without is named, and left out."""
        _, chosen, missing = await selected(self._source, Scope(self._asked.selectors))
        self._missing += missing
        names, nameless = await mirrors_of({p.topic for p in chosen}, self._mirror, self._asked)
        self._missing += nameless
        for topic, copy in names.items():
            refuse_itself(self._source, self._mirror, topic, copy)
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
