"""`audit duplicates`: find records that share a key, value, header, JSON field or source.

What a read_committed reader sees is read once, and again only if some ids are suspected. The rules:
`recovery.audit.duplicates`, `recovery.shared.record_ids`.
"""

import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from eoctl.engine.audit_reading import Failed, not_read, visible
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.engine import AuditedRanges, RangesAudit
from eoctl.operations.audit.ranges import AuditOptions, Resolved
from recovery.answers import Answer, error_rows
from recovery.audit.audit_request import DuplicatesFound, DuplicatesRequest, RecordsRead
from recovery.audit.audit_rows import AuditDuplicatesRow, RecordPlace
from recovery.audit.duplicates import Copies, Duplicate, Suspects, suspects_of
from recovery.errors import EoctlError
from recovery.formats.columns import ColumnBatch
from recovery.plurals import counted
from recovery.shared.record_ids import RecordId, digests

RANGE_OFFSETS = 5_000_000


@dataclass(frozen=True)
class DuplicatesAudit(RangesAudit[DuplicatesFound]):
    """Finds ids that more than one visible record of all these ranges has."""

    by: RecordId
    range_offsets: int = RANGE_OFFSETS

    job: ClassVar[str] = "audit_duplicates"
    spark_offsets: ClassVar[int] = 20_000_000
    answer_type = DuplicatesFound

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> DuplicatesFound:
        look = _Look(cluster, audited.ranges, reading)
        suspects = Suspects(audited.offsets)
        records = {r.topic_partition: 0 for r in audited.ranges}
        without_id = dict(records)
        async for r, part in look.visible():
            try:
                ids, has = digests(self.by, part)
            except EoctlError as error:
                look.fail(r, error)
                continue
            suspects.add(ids[has])
            records[r.topic_partition] += len(part)
            without_id[r.topic_partition] += len(part) - int(has.sum())
        halves, copies = suspects.halves(), Copies(reading.most)
        if len(halves):
            async for r, part in look.visible():
                try:
                    suspects_here = list(suspects_of(self.by, r.topic_partition, part, halves))
                except EoctlError as error:  # it could be read a moment ago
                    look.fail(r, error)
                    continue
                for one in suspects_here:
                    copies.add(one)
        copies.end()
        return DuplicatesFound(
            failed=tuple(look.failed.values()),
            findings=copies.findings,
            repeats=copies.repeats,
            read=tuple(
                RecordsRead(
                    topic=r.topic,
                    partition=r.partition,
                    records=records[r.topic_partition],
                    without_id=without_id[r.topic_partition],
                )
                for r in audited.ranges
            ),
            shown=tuple(copies.duplicates()),
        )

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> DuplicatesRequest:
        asked = self.asked(audited, reading)
        return DuplicatesRequest(**asked, by=self.by, range_offsets=self.range_offsets)

    def answer(self, audited: AuditedRanges, result: DuplicatesFound) -> Answer:
        read = [r for r in result.read if r.topic_partition not in result.unread]
        return Answer(
            schema="audit-duplicates",
            cluster_id=audited.cluster_id,
            collected_at=now_ms(),
            rows=[_row(one) for one in result.shown],
            errors=error_rows(audited.unseen(result)),
            extra={
                "by": self.by.text,
                "findings": result.findings,
                "repeats": result.repeats,
                "records": sum(r.records for r in read),
                "without_id": sum(r.without_id for r in read),
                "partitions": len(audited.ranges) - len(result.failed),
            },
            judging=True,
            finding=result.findings > 0,
        )


class _Look:
    """A pass over the visible records of all ranges: each pass reads the same records."""

    def __init__(self, cluster: Cluster, ranges: Sequence[Resolved], reading: AuditOptions) -> None:
        self._cluster, self._ranges, self._reading = cluster, ranges, reading
        self._size = 0
        self.failed: Failed = {}

    async def visible(self) -> AsyncGenerator[tuple[Resolved, ColumnBatch], None]:
        done, total = 0, sum(r.end - r.start for r in self._ranges)

        def told(size: int, offsets: int) -> None:
            nonlocal done
            self._size, done = self._size + size, done + offsets
            if self._reading.progress is not None:
                self._reading.progress(self._size, done, total)

        for r in self._ranges:
            if r.topic_partition in self.failed:
                continue
            parts = visible(self._cluster, r, self._reading, told)
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield r, part
                        if r.topic_partition in self.failed:
                            break
            except EoctlError as error:
                self.fail(r, error)

    def fail(self, r: Resolved, error: EoctlError) -> None:
        """Give up a partition that cannot be judged: stop reading it."""
        self.failed.setdefault(r.topic_partition, not_read(r.topic_partition, error))


def _row(one: Duplicate) -> AuditDuplicatesRow:
    from eoctl.render.sanitise import readable

    span = None
    if one.oldest is not None and one.newest is not None:
        span = (one.newest - one.oldest) / 1000
    return AuditDuplicatesRow(
        id=None if one.id is None else base64.b64encode(one.id).decode(),
        text=f"a value of {counted(one.size, 'byte')}" if one.id is None else readable(one.id),
        copies=one.copies,
        same_value=one.same_value,
        partitions=one.partitions,
        places=[RecordPlace.of(p) for p in one.first_copies],
        nearest_offsets=one.nearest,
        farthest_offsets=one.farthest,
        span_seconds=span,
    )
