"""`audit sequences`: gaps, repeats and epochs that go back, from batch headers alone.

All partitions are read at once at read_uncommitted: sequences are the producers' numbers, whatever
becomes of their transactions. The rule: `recovery.combine.audit_sequences`.
"""

from collections.abc import Sequence

from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import Failed, Reading, Resolved, read_chunks, resolve
from eoctl.operations.session import now_ms
from recovery.answers import Answer, error_rows
from recovery.combine.audit_sequences import SequenceAudit
from recovery.facts import TopicPartition
from recovery.formats.batches import HeaderScan
from recovery.formats.reader import Buffer
from recovery.offset_bounds import Bound
from recovery.rows_audit import AuditSequencesRow, SequencesExamined
from recovery.selectors import Selector


async def audit_sequences(
    cluster: Cluster, selectors: Sequence[Selector], start: Bound, end: Bound, reading: Reading
) -> Answer:
    """Every batch of [start, end) against its producer's batch before it."""
    ranges, missing = await resolve(cluster, selectors, start, end)
    audits, failed = await _read(cluster, ranges, reading)
    missing += failed.values()
    rows: list[AuditSequencesRow] = []
    examined: list[SequencesExamined] = []
    found = 0
    for r in ranges:
        if r.key in failed:
            continue
        audit = audits[r.key]
        e = audit.examined
        found += e.gaps + e.repeats + e.epochs_back
        rows += [
            AuditSequencesRow(
                topic=r.topic,
                partition=r.partition,
                finding=f.kind,
                producer_id=f.producer_id,
                producer_epoch=f.producer_epoch,
                offset=f.offset,
                after_offset=f.after_offset,
                expected=f.expected,
                found=f.found,
                records=f.records,
            )
            for f in audit.findings
        ]
        examined.append(
            SequencesExamined(
                topic=r.topic,
                partition=r.partition,
                start=r.start,
                end=r.end,
                batches=e.batches,
                records=e.records,
                unnumbered=e.unnumbered,
                producers=e.producers,
                gaps=e.gaps,
                repeats=e.repeats,
                epochs_back=e.epochs_back,
                explained=e.explained,
            )
        )
    return Answer(
        schema="audit-sequences",
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=rows[: reading.most],
        errors=error_rows(missing),
        extra={
            "findings": found,
            "examined": [e.model_dump(mode="json", by_alias=True) for e in examined],
        },
        judging=True,
        finding=found > 0,
    )


async def _read(
    cluster: Cluster, ranges: Sequence[Resolved], reading: Reading
) -> tuple[dict[TopicPartition, SequenceAudit], Failed]:
    audits = {
        r.key: SequenceAudit(
            r.start,
            from_beginning=r.start == r.log_start_offset == 0,
            most=reading.most,
        )
        for r in ranges
    }
    ends = {r.key: r.end for r in ranges}

    def add(key: TopicPartition, _: Buffer, scan: HeaderScan) -> None:
        audits[key].add(scan, ends[key])

    return audits, await read_chunks(cluster, ranges, add, reading)
