"""`audit transactions`: compare the coordinators' decisions with the partitions' markers.

All of `__transaction_state` is read first, then every partition that a decision names, up to its
high watermark, headers only: what was complete in the first has all its markers in the second. The
rules: `recovery.audit.transactions`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from eoctl.engine.audit_reading import read_transactions
from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.ranges import AuditOptions, Resolved, as_resolved
from eoctl.operations.inspect.history_answer import read_state_logs, unread
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.marker_origins import own_markers
from eoctl.operations.inspect.source import StateLogs
from recovery.answers import Answer, error_rows
from recovery.audit.audit_request import TransactionsFound, TransactionsRequest
from recovery.audit.audit_rows import AuditTransactionsRow, NamedMarker, TransactionsCovered
from recovery.audit.transaction_facts import (
    Coverage,
    Ending,
    Endings,
    PartitionTransactions,
    coverage,
)
from recovery.audit.transactions import ForeignMarker, Torn, judge, undecided
from recovery.facts import Missing, TopicPartition, grouped
from recovery.inspect.cluster_rows import MarkerRow
from recovery.inspect.history import StateLog
from recovery.plurals import counted
from recovery.selectors import Selector


@dataclass(frozen=True)
class TransactionsAudit(Audit[TransactionsFound]):
    """Finds incomplete transactions in the named partitions; none named = all in decisions.

    skew: how far brokers' clocks may differ, ms.
    """

    selectors: Sequence[Selector]
    skew: int

    job: ClassVar[str] = "audit_transactions"
    spark_offsets: ClassVar[int] = 200_000_000
    answer_type = TransactionsFound

    async def look(self, cluster: Cluster) -> AuditedRanges:
        logs = await read_state_logs(cluster, None, ())
        missing = [*logs.missing, *unread(logs)]
        covered = coverage(_readable(logs))
        ranges, more = await _ranges(cluster, self.selectors, covered)
        # the partitions' ends are chosen: each marker below them has its decision in the log now
        logs = await read_state_logs(cluster, None, ())
        missing = list(dict.fromkeys([*missing, *logs.missing, *unread(logs), *more]))
        known = set(covered)
        later = [c for c in coverage(_readable(logs)) if c not in known]
        own = own_markers(cluster.cluster_id)
        if own is None:
            text = "the journal cannot be read: a marker that eoctl wrote here counts as foreign"
            missing.append(Missing("journal", "UNREADABLE", text))
        return AuditedRanges(cluster.cluster_id, ranges, missing, covered, later, own or ())

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> TransactionsFound:
        whole, failed = await read_transactions(cluster, audited.ranges, reading)
        endings = endings_of(whole)
        torn = judge(audited.covered, endings, self.skew)
        found = TransactionsFound(
            failed=failed,
            findings=len(torn),
            markers_without_data=sum(t.repeated_markers for t in whole.values()),
            torn=tuple(torn[: reading.most]),
        )
        covered = [*audited.covered, *audited.later]
        return found.with_undecided(undecided(covered, endings, audited.own), reading.most)

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> TransactionsRequest:
        asked = self.asked(audited, reading)
        return TransactionsRequest(
            **asked,
            covered=tuple(audited.covered),
            skew=self.skew,
            later=tuple(audited.later),
            own=tuple(audited.own),
        )

    def answer(self, audited: AuditedRanges, result: TransactionsFound) -> Answer:
        covered = audited.covered
        unproven = [c for c in covered if c.unproven]
        unseen = audited.unseen(result)
        return Answer(
            schema="audit-transactions",
            cluster_id=audited.cluster_id,
            collected_at=now_ms(),
            rows=[_row(t) for t in result.torn],
            errors=error_rows([*unseen, *map(_unproven, unproven)]),
            extra={
                "findings": result.findings,
                "transactions": sum(len(c.decisions) for c in covered),
                "partitions": len(audited.ranges) - len(result.failed),
                "markers_without_data": result.markers_without_data,
                "foreign_markers": result.foreign,
                "own_markers": result.ours,
                "decisions_gone": result.gone,
                "markers": [_foreign(m).json_values() for m in result.foreign_markers],
                "covered": [_covered(c).json_values() for c in covered],
            },
            judging=True,
            finding=result.findings > 0,
            finding_first=not unseen,
        )


def endings_of(whole: Mapping[TopicPartition, PartitionTransactions]) -> Endings:
    """Return what partitions hold of transactions, by producer id."""
    return {key: grouped(transactions.endings()) for key, transactions in whole.items()}


def _readable(logs: StateLogs) -> list[StateLog]:
    return [log for log in logs.logs if log.error is None]


async def _ranges(
    cluster: Cluster, selectors: Sequence[Selector], covered: Sequence[Coverage]
) -> tuple[list[Resolved], list[Missing]]:
    """Return the partitions to read, from log start to high watermark, without deleted topics."""
    named = {
        topic_partition for c in covered for d in c.decisions for topic_partition in d.partitions
    }
    if selectors:
        metadata, partitions, missing = await selected(cluster, Scope(tuple(selectors)))
    else:
        metadata, missing = await cluster.metadata(sorted({topic for topic, _ in named})), []
        partitions = [
            p for t in metadata.topics.values() for p in t.partitions if p.topic_partition in named
        ]
        missing = [
            Missing("topic", t.error, "its partitions were not judged", topic=t.name)
            for t in metadata.topics.values()
            if t.error is not None and t.error != "UNKNOWN_TOPIC_OR_PARTITION"
        ]
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    missing += more
    ranges = [
        as_resolved(f, f.log_start_offset, f.high_watermark)
        for f in facts
        if f.error is None
        and f.log_start_offset is not None
        and f.high_watermark is not None
        and f.last_stable_offset is not None
    ]
    return ranges, missing


def _unproven(c: Coverage) -> Missing:
    if c.ended:
        text = (
            f"of {counted(len(c.ended), 'transaction')} only the end is left: on which partitions "
            "is not known"
        )
    else:
        text = "transactions before the first that is covered may be compacted away"
    return Missing("transaction", "UNPROVEN", text, id=c.transactional_id)


def _row(t: Torn) -> AuditTransactionsRow:
    decision = t.decision
    return AuditTransactionsRow(
        finding=t.kind,
        transactional_id=decision.transactional_id if decision else None,
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        decided=decision.outcome if decision else None,
        decided_at=decision.timestamp if decision else None,
        partitions=[_named(partition, ending) for partition, ending in t.partitions],
    )


def _named(topic_partition: TopicPartition, ending: Ending) -> NamedMarker:
    data, mark = ending
    return NamedMarker(
        topic=topic_partition[0],
        partition=topic_partition[1],
        first_offset=data.first if data else None,
        last_offset=data.last if data else None,
        marker=mark.outcome if mark else None,
        marker_offset=mark.offset if mark else None,
    )


def _foreign(foreign: ForeignMarker) -> MarkerRow:
    return MarkerRow.of(
        foreign.marker,
        topic=foreign.topic,
        partition=foreign.partition,
        producer_id=foreign.producer_id,
    )


def _covered(c: Coverage) -> TransactionsCovered:
    times = [d.timestamp for d in c.decisions]
    return TransactionsCovered(
        transactional_id=c.transactional_id,
        covered=len(c.decisions) - c.pending,
        covered_from=min(times, default=None),
        covered_to=max(times, default=None),
        pending=c.pending,
        unproven=len(c.ended),
        unproven_from=min(c.ended, default=None),
        unproven_to=max(c.ended, default=None),
        whole=c.whole and not c.ended,
    )
