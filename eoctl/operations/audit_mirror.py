"""`audit mirror`: a topic against its mirror, in this cluster or another.

First the ends, the mirror's before the source's: what the mirror holds the source held by then.
Then both partitions are read side by side, and once more only for records without a partner. The
rules: `recovery.combine.mirror_pairs`, `recovery.combine.mirror_places`.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eoctl.config import Context
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.configs import topic_configs
from eoctl.kafka.properties import client_settings
from eoctl.operations.audit_ranges import Reading, Resolved, not_read, resolve
from eoctl.operations.mirror_offsets import checkpoints, offset_syncs
from eoctl.operations.mirror_reading import Both, PartitionMirror, Seen
from eoctl.operations.session import now_ms
from recovery.answers import Answer, error_rows
from recovery.combine.mirror_pairs import Run, Translated
from recovery.combine.mirror_places import FIELDS, Difference
from recovery.combine.record_digests import KEY_RANGES, range_name
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import Missing
from recovery.formats.mirror_maker import Checkpoint, OffsetSync
from recovery.formats.reader import CorruptError
from recovery.offset_bounds import Bound
from recovery.rows_mirror import AuditMirrorRow, MirrorCheckpoint, MirrorExamined, MirrorRange
from recovery.selectors import Selector, parse_selector

LONGEST_KEY = 1024  # bytes; longer ones are not shown


@dataclass(frozen=True, slots=True)
class Wish:
    """mirror: its topic. cluster: the mirror's, None = the source's own. start: in both logs.

    ignored: fields of records that are not compared. offset_syncs, checkpoints: their topics, None
    = those that tell of this topic, `none` = leave them out.
    """

    source: Selector
    mirror: str
    cluster: Context | None
    start: Bound
    ignored: frozenset[str] = frozenset()
    offset_syncs: str | None = None
    checkpoints: str | None = None


@dataclass(slots=True)
class _Told:
    """What one partition adds to the answer. missing: what could not be proven there."""

    examined: MirrorExamined | None
    rows: list[AuditMirrorRow]
    findings: int
    missing: list[Missing]
    checkpoints: list[MirrorCheckpoint]


async def audit_mirror(source: Cluster, own: Context, wish: Wish, reading: Reading) -> Answer:
    """Every record of the source's partitions against the mirror's partition of that number.

    own: the source's context. Raises UsageError for topics that are not there.
    """
    other = wish.cluster or own
    settings = client_settings(other.properties, hosts=other.hosts, socks5=other.socks5)
    async with Cluster(settings, source.deadline, read_only=True) as mirror:
        return await _audit(source, mirror, wish, reading)


async def _audit(source: Cluster, mirror: Cluster, wish: Wish, reading: Reading) -> Answer:
    topic = wish.source.literal
    assert topic is not None
    if topic == wish.mirror and source.cluster_id == mirror.cluster_id:
        raise UsageError(
            f"{topic} would be compared with itself",
            remedy="name the mirror's cluster with --mirror-context, or its topic",
        )
    unread: list[Missing] = []
    sync_topic: str | None = None
    checkpoint_topic: str | None = None
    syncs: list[OffsetSync] = []
    translated: list[Checkpoint] = []
    try:
        sync_topic, syncs = await offset_syncs((source, mirror), topic, wish.offset_syncs)
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("offset syncs", wish.offset_syncs, error))
    try:
        checkpoint_topic, translated = await checkpoints(mirror, wish.mirror, wish.checkpoints)
    except (IncompleteError, CorruptError) as error:
        unread.append(_not_known("checkpoints", wish.checkpoints, error))
    end = Bound("lso", "lso")
    copy = replace(parse_selector(wish.mirror), partitions=wish.source.partitions)
    theirs, missing = await resolve(mirror, [copy], wish.start, end)
    mine, more = await resolve(source, [wish.source], wish.start, end)
    missing += [*more, *unread]
    compacted, stamped = await _settings(source, mirror, topic, wish.mirror)
    ignored = wish.ignored | (frozenset({"timestamp"}) if stamped else frozenset())
    compared = tuple(name for name in FIELDS if name not in ignored)
    found = {r.partition: r for r in theirs}
    missing += _unmatched(mine, theirs, topic, wish.mirror, missing)
    told: list[_Told] = []
    both = Both(source, mirror, reading, compared)
    for r in mine:
        if r.partition not in found:
            continue
        partition = PartitionMirror(
            r,
            found[r.partition],
            [s for s in syncs if s.partition == r.partition],
            [Translated(c.upstream, c.downstream) for c in _of(translated, r.partition)],
        )
        try:
            seen = await both.read(partition)
        except EoctlError as error:
            missing.append(not_read(r.key, error))
            continue
        told.append(_told(seen, _of(translated, r.partition), compacted, reading.most))
    missing += [one for t in told for one in t.missing]
    findings = sum(t.findings for t in told)
    return Answer(
        schema="audit-mirror",
        cluster_id=source.cluster_id,
        collected_at=now_ms(),
        rows=[row for t in told for row in t.rows][: reading.most],
        errors=error_rows(missing),
        extra={
            "topic": topic,
            "mirror_topic": wish.mirror,
            "mirror_cluster_id": mirror.cluster_id,
            "compared": list(compared),
            "findings": findings,
            "examined": [t.examined.model_dump(mode="json") for t in told if t.examined],
            "offset_syncs": sync_topic,
            "checkpoints_topic": checkpoint_topic,
            "checkpoints": [c.model_dump(mode="json") for t in told for c in t.checkpoints],
        },
        judging=True,
        finding=findings > 0,
    )


def _not_known(what: str, topic: str | None, error: EoctlError) -> Missing:
    text = f"its {what} were not compared: {error.sentence}"
    return Missing("topic", "NOT_READ", text, topic=topic)


def _of(found: Sequence[Checkpoint], partition: int) -> list[Checkpoint]:
    return [one for one in found if one.partition == partition]


async def _settings(
    source: Cluster, mirror: Cluster, topic: str, copy: str
) -> tuple[tuple[bool, bool], bool]:
    """Whether source and mirror may be compacted, and whether the mirror has times of its own."""
    keys = ("cleanup.policy", "message.timestamp.type")
    mine, _ = await topic_configs(source, [topic], keys)
    theirs, _ = await topic_configs(mirror, [copy], keys)
    policies = (
        found.get(name, {}).get("cleanup.policy") for found, name in ((mine, topic), (theirs, copy))
    )
    # hidden settings prove nothing
    compacted = tuple(policy is None or "compact" in policy for policy in policies)
    stamped = theirs.get(copy, {}).get("message.timestamp.type") == "LogAppendTime"
    return (compacted[0], compacted[1]), stamped


def _unmatched(
    mine: Sequence[Resolved],
    theirs: Sequence[Resolved],
    topic: str,
    copy: str,
    missing: Sequence[Missing],
) -> list[Missing]:
    """Partitions that only one side has."""
    said = {(m.topic, m.partition) for m in missing}
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
        if (name, partition) not in said and (name, None) not in said
    ]


def _told(
    seen: Seen, translated: Sequence[Checkpoint], compacted: tuple[bool, bool], most: int
) -> _Told:
    topic, partition = seen.source.key
    differences, counts, unproven = _proven(seen.differences, compacted)
    rows = [_row(partition, one, seen) for one in differences[:most]]
    missing = []
    if unproven:
        text = f"{unproven} differences may come from compaction, which took records away"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    moved: int | None = sum(run.records for run in seen.moved)
    if seen.ambiguous and moved:
        moved = None
        text = "its order can't be told: equal records of the source are not all in the mirror once"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    elif seen.moved:
        rows += [_moved(partition, run) for run in seen.moved[:most]]
    wrong, unknown = _syncs(seen, compacted)
    rows += [_sync(partition, one) for one in wrong[:most]]
    if unknown:
        text = f"{unknown} offset syncs name records that compaction may have taken away"
        missing.append(Missing("partition", "UNPROVEN", text, None, topic, partition))
    groups = [
        MirrorCheckpoint(
            group=c.group,
            partition=partition,
            source_offset=c.upstream,
            mirror_offset=c.downstream,
            skipped=t.skipped,
            read_again=t.again,
            beyond_end=c.downstream > seen.mirror.high_watermark,
        )
        for c, t in zip(translated, seen.translated, strict=True)
    ]
    bad = [g for g in groups if g.skipped or g.beyond_end]
    rows += [_checkpoint(g) for g in bad]
    source, mirror = seen.source_sums, seen.mirror_sums
    examined = MirrorExamined(
        partition=partition,
        source_start=seen.source.start,
        source_end=seen.source.end,
        mirror_start=seen.mirror.start,
        mirror_end=seen.mirror.end,
        source_records=int(source.count.sum()),
        mirror_records=int(mirror.count.sum()),
        source_digest=source.text(),
        mirror_digest=mirror.text(),
        same=seen.pairs,
        mirrored_to=seen.mirrored_to,
        behind=seen.behind,
        source_before=seen.source_before,
        mirror_before=seen.mirror_before,
        lost=counts.get("lost", 0),
        repeats=counts.get("repeat", 0),
        changed=counts.get("changed", 0),
        only_in_mirror=counts.get("only-in-mirror", 0),
        aborted=counts.get("aborted", 0),
        open=counts.get("open", 0),
        moved=moved,
        unproven=unproven,
        syncs=len(seen.syncs),
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
    findings = len(differences) + (moved or 0) + len(wrong) + len(bad)
    return _Told(examined, rows, findings, missing, groups)


def _proven(
    differences: Sequence[Difference], compacted: tuple[bool, bool]
) -> tuple[list[Difference], Mapping[str, int], int]:
    """Those that compaction cannot explain, how many of each kind, and how many it may explain.

    What a compacted mirror lacks, and what a compacted source lacks, proves nothing.
    """
    source, mirror = compacted
    proven: list[Difference] = []
    counts: dict[str, int] = {}
    for one in differences:
        lacks_mirror = one.kind in ("lost", "changed")
        lacks_source = one.kind in ("repeat", "changed", "only-in-mirror")
        if (lacks_mirror and mirror) or (lacks_source and source):
            continue
        proven.append(one)
        counts[one.kind] = counts.get(one.kind, 0) + 1
    return proven, counts, len(differences) - len(proven)


def _syncs(seen: Seen, compacted: tuple[bool, bool]) -> tuple[list[OffsetSync], int]:
    """Syncs that name different records, and how many may name compacted ones."""
    wrong, unknown = [], 0
    for sync, mine, theirs in seen.syncs:
        if (mine is None and compacted[0]) or (theirs is None and compacted[1]):
            unknown += 1
        elif mine is None or mine != theirs:
            wrong.append(sync)
    return wrong, unknown


def _row(partition: int, one: Difference, seen: Seen) -> AuditMirrorRow:
    from eoctl.render.sanitise import readable

    key, timestamp = seen.shown(one)
    fits = key is not None and len(key) <= LONGEST_KEY
    return AuditMirrorRow(
        partition=partition,
        finding=one.kind,
        source_offset=one.source_offset,
        mirror_offset=one.mirror_offset,
        first_copy=one.first_copy,
        records=1,
        key=base64.b64encode(key).decode() if key is not None and fits else None,
        text=None if key is None else readable(key) if fits else f"a key of {len(key)} bytes",
        timestamp=timestamp,
        differs=list(one.differs),
        group=None,
    )


def _plain(
    partition: int, finding: str, source: int | None, mirror: int | None, records: int
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


def _moved(partition: int, run: Run) -> AuditMirrorRow:
    return _plain(partition, "moved", run.source_first, run.mirror_first, run.records)


def _sync(partition: int, sync: OffsetSync) -> AuditMirrorRow:
    return _plain(partition, "offset-sync", sync.upstream, sync.downstream, 1)


def _checkpoint(c: MirrorCheckpoint) -> AuditMirrorRow:
    row = _plain(c.partition, "checkpoint", c.source_offset, c.mirror_offset, c.skipped)
    return row.model_copy(update={"group": c.group})
