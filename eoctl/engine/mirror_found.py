"""What `audit mirror` found in one partition: counts, rows, and what is not proven."""

import base64
from collections.abc import Sequence

from eoctl.engine.mirror_reading import BothLogs
from recovery.audit.audit_request import MirrorPart
from recovery.audit.audit_rows import (
    AuditMirrorRow,
    MirrorCheckpoint,
    MirrorExamined,
    MirrorRange,
)
from recovery.audit.mirror_pairs import PairRun
from recovery.audit.mirror_table import Difference, explained
from recovery.facts import Missing
from recovery.formats.mirror_maker import Checkpoint, OffsetSync
from recovery.plurals import counted
from recovery.shared.record_digests import KEY_RANGES, range_name
from recovery.values import replace

LONGEST_KEY = 1024  # bytes; longer ones are not shown


def mirror_part(
    logs: BothLogs, translated: Sequence[Checkpoint], compacted: tuple[bool, bool], most: int
) -> MirrorPart:
    """Return what was found in a partition. compacted: whether source and mirror may have been.
    most: rows, 0 or more: fewer are the first of these."""
    topic, partition = logs.source.topic_partition
    excused = explained(*compacted)
    counts = {kind: n for kind, n in logs.counts.items() if kind not in excused}
    unproven = sum(logs.counts.values()) - sum(counts.values())
    rows = [_row(partition, one, logs) for one in logs.differences[:most]]
    missing = []
    if unproven:
        text = (
            f"{counted(unproven, 'difference')} may come from compaction, which took records away"
        )
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    if logs.outside:
        may = counted(logs.outside, "record")
        text = f"{may} may have a partner before the ranges that were read"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    if logs.head:
        text = (
            f"{counted(logs.head, 'record')} before the first that the mirror has may be lost or "
            "outside its range: its timestamps are not the source's"
        )
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    moved: int | None = sum(run.records for run in logs.moved)
    if logs.ambiguous and moved:
        moved = None
        text = "its order is unknown: some equal records of the source are not in the mirror once"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    elif logs.moved:
        rows += [_moved(partition, run) for run in logs.moved[: most - len(rows)]]
    wrong, unknown = _syncs(logs, compacted)
    rows += [_sync(partition, one) for one in wrong[: most - len(rows)]]
    if unknown:
        syncs = counted(unknown, "offset sync")
        text = f"{syncs}: compaction may have taken the records away that are named"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    groups = [
        MirrorCheckpoint(
            group=c.group,
            partition=partition,
            source_offset=c.upstream,
            mirror_offset=c.downstream,
            skipped=t.skipped if within else None,
            read_again=t.again if within else None,
            beyond_end=c.downstream > logs.mirror.high_watermark,
        )
        for c, t in zip(translated, logs.translated, strict=True)
        for within in [c.upstream >= logs.source.start and c.downstream >= logs.mirror.start]
    ]
    if outside := sum(g.skipped is None for g in groups):
        text = (
            f"{counted(outside, 'checkpoint')} before the ranges that were read: what the groups "
            "skip is unknown"
        )
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    bad = [g for g in groups if g.skipped or g.beyond_end]
    rows += [_checkpoint(g) for g in bad[: most - len(rows)]]
    source, mirror = logs.source_sums, logs.mirror_sums
    examined = MirrorExamined(
        partition=partition,
        source_start=logs.source.start,
        source_end=logs.source.end,
        mirror_start=logs.mirror.start,
        mirror_end=logs.mirror.end,
        source_records=int(source.count.sum()),
        mirror_records=int(mirror.count.sum()),
        source_digest=source.text(),
        mirror_digest=mirror.text(),
        same=logs.pairs,
        mirrored_to=logs.mirrored_to,
        behind=logs.behind,
        source_before=logs.source_before,
        mirror_before=logs.mirror_before,
        lost=counts.get("lost", 0),
        repeats=counts.get("repeat", 0),
        changed=counts.get("changed", 0),
        only_in_mirror=counts.get("only-in-mirror", 0),
        aborted=counts.get("aborted", 0),
        open=counts.get("open", 0),
        moved=moved,
        unproven=unproven + logs.outside,
        syncs=len(logs.syncs),
        syncs_wrong=len(wrong),
        ranges=[
            MirrorRange(
                keys=range_name(n),
                source_records=int(source.count[n]),
                mirror_records=int(mirror.count[n]),
                source_digest=source.text(n),
                mirror_digest=mirror.text(n),
            )
            for n in range(KEY_RANGES + 1)
            if source.count[n] != mirror.count[n] or source.text(n) != mirror.text(n)
        ],
    )
    findings = sum(counts.values()) + (moved or 0) + len(wrong) + len(bad)
    return MirrorPart(examined, rows, findings, missing, groups)


def _syncs(logs: BothLogs, compacted: tuple[bool, bool]) -> tuple[list[OffsetSync], int]:
    """Return syncs that name different records, and how many may name compacted ones."""
    wrong, unknown = [], 0
    for sync, mine, theirs in logs.syncs:
        if (mine is None and compacted[0]) or (theirs is None and compacted[1]):
            unknown += 1
        elif mine is None or mine != theirs:
            wrong.append(sync)
    return wrong, unknown


def _row(partition: int, one: Difference, logs: BothLogs) -> AuditMirrorRow:
    """Return the row of a difference, without the text of a key that it has."""
    key, timestamp = logs.key_and_timestamp(one)
    fits = key is not None and len(key) <= LONGEST_KEY
    return AuditMirrorRow(
        partition=partition,
        finding=one.kind,
        source_offset=one.source_offset,
        mirror_offset=one.mirror_offset,
        first_copy=one.first_copy,
        records=1,
        key=base64.b64encode(key).decode() if key is not None and fits else None,
        text=None if key is None or fits else f"a key of {len(key)} bytes",
        timestamp=timestamp,
        differs=list(one.differs),
        group=None,
    )


def _plain(
    partition: int, finding: str, source: int | None, mirror: int | None, records: int | None
) -> AuditMirrorRow:
    return AuditMirrorRow(
        partition=partition,
        finding=finding,  # type: ignore[arg-type]
        source_offset=source,
        mirror_offset=mirror,
        first_copy=None,
        records=records,
        key=None,
        text=None,
        timestamp=None,
        differs=[],
        group=None,
    )


def _moved(partition: int, run: PairRun) -> AuditMirrorRow:
    return _plain(partition, "moved", run.source_first, run.mirror_first, run.records)


def _sync(partition: int, sync: OffsetSync) -> AuditMirrorRow:
    return _plain(partition, "offset-sync", sync.upstream, sync.downstream, 1)


def _checkpoint(c: MirrorCheckpoint) -> AuditMirrorRow:
    row = _plain(c.partition, "checkpoint", c.source_offset, c.mirror_offset, c.skipped)
    return replace(row, group=c.group)
