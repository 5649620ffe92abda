"""`audit sequences`: gaps, repeats and epochs that decrease, from batch headers alone.

All partitions are read at once at read_uncommitted: sequences are the producers' numbers, whatever
the outcome of their transactions. The rule: `recovery.audit.sequences`.
"""

from dataclasses import dataclass
from typing import ClassVar

from eoctl.engine.audit_reading import read_sequences
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.engine import AuditedRanges, RangesAudit
from eoctl.operations.audit.ranges import AuditOptions
from recovery.answers import Answer, error_rows
from recovery.audit.audit_request import (
    PartitionSequences,
    Resolved,
    SequencesFound,
    SequencesRequest,
    joined_sequences,
)
from recovery.audit.audit_rows import AuditSequencesRow, SequencesExamined


@dataclass(frozen=True)
class SequencesAudit(RangesAudit[SequencesFound]):
    """Compares every batch of [start, end) with its producer's batch before it."""

    job: ClassVar[str] = "audit_sequences"
    spark_offsets: ClassVar[int] = 200_000_000
    answer_type = SequencesFound

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> SequencesFound:
        result = await read_sequences(cluster, audited.ranges, reading, reading.most)
        return joined_sequences([result], reading.most)

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> SequencesRequest:
        return SequencesRequest(**self.asked(audited, reading))

    def answer(self, audited: AuditedRanges, result: SequencesFound) -> Answer:
        ranges = {r.topic_partition: r for r in audited.ranges}
        examined = [_examined(ranges[p.topic_partition], p) for p in result.partitions]
        findings = sum(e.gaps + e.repeats + e.epochs_back for e in examined)
        return Answer(
            schema="audit-sequences",
            cluster_id=audited.cluster_id,
            collected_at=now_ms(),
            rows=[row for p in result.partitions for row in _rows(p)],
            errors=error_rows(audited.unseen(result)),
            extra={
                "findings": findings,
                "examined": [e.json_values() for e in examined],
            },
            judging=True,
            finding=findings > 0,
        )


def _rows(part: PartitionSequences) -> list[AuditSequencesRow]:
    return [
        AuditSequencesRow.of(f, topic=part.topic, partition=part.partition, finding=f.kind)
        for f in part.findings
    ]


def _examined(r: Resolved, part: PartitionSequences) -> SequencesExamined:
    e = part.examined
    return SequencesExamined.of(e, topic=r.topic, partition=r.partition, start=r.start, end=r.end)
