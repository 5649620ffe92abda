"""`audit duplicates`: records that are the same by key, value, header, JSON field or source.

What a read_committed reader sees is read once; only if something is suspected it is read again.
The rules: `recovery.combine.audit_duplicates`, `recovery.combine.record_ids`.
"""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import (
    Failed,
    Reading,
    Resolved,
    columns,
    not_read,
    resolve,
    seen_by_readers,
)
from eoctl.operations.session import now_ms
from recovery.answers import Answer, error_rows
from recovery.combine.audit_duplicates import Copies, Copy, Same, Suspects, known_time
from recovery.combine.record_ids import RecordId, digests, id_bytes, value_digests
from recovery.errors import EoctlError
from recovery.formats.columns import ColumnBatch
from recovery.offset_bounds import Bound
from recovery.rows_audit import AuditDuplicatesRow, Place
from recovery.selectors import Selector

LONGEST_ID = 1024  # bytes; longer ones are not shown


async def audit_duplicates(
    cluster: Cluster,
    selectors: Sequence[Selector],
    start: Bound,
    end: Bound,
    by: RecordId,
    reading: Reading,
) -> Answer:
    """Ids that more than one visible record of all these ranges together has."""
    ranges, missing = await resolve(cluster, selectors, start, end)
    look = _Look(cluster, ranges, reading)
    suspects = Suspects(sum(r.end - r.start for r in ranges))
    records = without_id = 0
    async for r, part in look.visible():
        try:
            ids, has = digests(by, part)
        except EoctlError as error:
            look.fail(r, error)
            continue
        suspects.add(ids[has])
        records += len(part)
        without_id += len(part) - int(has.sum())
    copies = Copies()
    if len(suspects):
        async for r, part in look.visible():
            ids, has = digests(by, part)
            rows = (has & suspects.among(ids)).nonzero()[0]
            _keep(copies, by, r, part.select(rows), ids[rows].tobytes())
    missing += look.failed.values()
    found = copies.duplicates()
    return Answer(
        schema="audit-duplicates",
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=[_row(same) for same in found[: reading.most]],
        errors=error_rows(missing),
        extra={
            "by": by.text,
            "findings": len(found),
            "repeats": sum(same.copies - 1 for same in found),
            "records": records,
            "without_id": without_id,
            "partitions": len(ranges) - len(look.failed),
        },
        judging=True,
        finding=bool(found),
    )


class _Look:
    """Reading the visible records of all ranges, as often as need be, the same ones each time."""

    def __init__(self, cluster: Cluster, ranges: Sequence[Resolved], reading: Reading) -> None:
        self._cluster, self._ranges, self._reading = cluster, ranges, reading
        self._size = 0
        self.failed: Failed = {}

    async def visible(self) -> AsyncIterator[tuple[Resolved, ColumnBatch]]:
        done, total = 0, sum(r.end - r.start for r in self._ranges)

        def told(size: int, offsets: int) -> None:
            nonlocal done
            self._size, done = self._size + size, done + offsets
            if self._reading.progress is not None:
                self._reading.progress(self._size, done, total)

        for r in self._ranges:
            if r.key in self.failed:
                continue
            parts = columns(self._cluster, r, r.end, self._reading, told)
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield r, part.select(seen_by_readers(part))
                        if r.key in self.failed:
                            break
            except EoctlError as error:
                self.fail(r, error)

    def fail(self, r: Resolved, error: EoctlError) -> None:
        """This partition cannot be judged: it is read no further."""
        self.failed.setdefault(r.key, not_read(r.key, error))


def _keep(copies: Copies, by: RecordId, r: Resolved, part: ColumnBatch, names: bytes) -> None:
    rows = zip(
        id_bytes(by, part),
        part.offset.tolist(),
        part.timestamp.tolist(),
        value_digests(part).tolist(),
        strict=True,
    )
    for number, (identity, offset, timestamp, value) in enumerate(rows):
        assert identity is not None
        copy = Copy(r.topic, r.partition, offset, known_time(timestamp))
        copies.add(names[16 * number : 16 * number + 16], identity, copy, value)


def _row(same: Same) -> AuditDuplicatesRow:
    from eoctl.render.sanitise import readable

    span = None
    if same.oldest is not None and same.newest is not None:
        span = (same.newest - same.oldest) / 1000
    fits = len(same.id) <= LONGEST_ID
    return AuditDuplicatesRow(
        id=base64.b64encode(same.id).decode() if fits else None,
        text=readable(same.id) if fits else f"a value of {len(same.id)} bytes",
        copies=same.copies,
        same_value=same.same_value,
        partitions=len(same.ends),
        places=[
            Place(topic=p.topic, partition=p.partition, offset=p.offset, timestamp=p.timestamp)
            for p in same.places
        ],
        nearest_offsets=same.nearest,
        farthest_offsets=same.farthest,
        span_seconds=span,
    )
