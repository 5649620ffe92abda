"""What is done with one partition and its mirror, by this process or by a task of a Spark job."""

from eoctl.engine.audit_reading import AuditOptions
from eoctl.engine.mirror_continuing import continued
from eoctl.engine.mirror_found import mirror_part
from eoctl.engine.mirror_logs import ClusterLog, Progress
from eoctl.engine.mirror_reading import Both, PartitionMirror
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.pump import Reading
from recovery.audit.audit_request import (
    MirrorKeepRequest,
    MirrorPair,
    MirrorPairsRequest,
    MirrorPart,
    Resolved,
)
from recovery.audit.mirror_map import MapPartition
from recovery.audit.mirror_pairs import Translated
from recovery.audit.mirror_table import explained
from recovery.errors import IncompleteError, RefusedError
from recovery.shared import log_position
from recovery.values import replace

ANEW = "keep a new map: another file; this one still is exact for what it saw"


async def compared_pair(
    source: Cluster,
    mirror: Cluster,
    request: MirrorPairsRequest,
    pair: MirrorPair,
    reading: Reading,
) -> MirrorPart:
    """Compare every record of a partition with the mirror's. Raises EoctlError if either cannot be
    read, or if too many records have no partner."""
    how = AuditOptions(reading.check_crc, reading.max_rate, reading.progress, request.most)
    ours, copies = (ClusterLog(cluster, how, request.fields) for cluster in (source, mirror))
    both = Both(ours, copies, how, request.fields, explained(*request.compacted))
    translated = [Translated(c.upstream, c.downstream) for c in pair.checkpoints]
    logs = await both.read(
        PartitionMirror(pair.source, pair.mirror, pair.syncs, translated, request.since)
    )
    return mirror_part(logs, pair.checkpoints, request.compacted, request.most)


async def continued_pair(
    source: Cluster,
    mirror: Cluster,
    request: MirrorKeepRequest,
    pair: MirrorPair,
    before: MapPartition | None,
    reading: Reading,
) -> MapPartition:
    """Return a partition's map after what is new in both logs. before: as the map has it.

    The caller adds when that was. Raises RefusedError if a log is no longer the one of the map,
    IncompleteError if that is unknown, or if a log was cut off meanwhile.
    """
    mine, theirs = ranges_after(before, pair.source, pair.mirror)
    both = ((source, mine), (mirror, theirs))
    ends = await _epochs(*both)
    if before is not None:
        await _refuse_other_logs(both, before)
    how = AuditOptions(reading.check_crc, reading.max_rate, reading.progress)
    ours, copies = (ClusterLog(cluster, how, request.fields) for cluster in (source, mirror))
    timed = "timestamp" in request.fields
    part = await continued(
        before, (ours, mine), (copies, theirs), Progress(reading.progress), timed=timed
    )
    epochs = await _epochs((source, replace(mine, end=part.source.end)), both[1])
    refuse_cut_off(ends, await _epochs(*both))
    known, copied = (
        r.model_copy(update={"leader_epoch": epoch})
        for r, epoch in zip((part.source, part.mirror), epochs, strict=True)
    )
    return part.model_copy(update={"source": known, "mirror": copied})


async def _refuse_other_logs(
    logs: tuple[tuple[Cluster, Resolved], tuple[Cluster, Resolved]], before: MapPartition
) -> None:
    """Raise RefusedError if a log is no longer the one of the map, IncompleteError if nobody can
    say."""
    for (cluster, r), seen in zip(logs, (before.source, before.mirror), strict=True):
        partition = r.topic_partition
        standings = await positions.standings(cluster, {partition: seen.position})
        standing = standings[partition]
        log_position.refuse_diverged(partition, seen.position, standing, ANEW)
        if standing.held is None:
            raise IncompleteError(
                f"its map was left as it was: {standing.because}",
                where=str(partition),
                remedy=ANEW,
            )


async def _epochs(
    *logs: tuple[Cluster, Resolved],
) -> tuple[int | None, ...]:
    """Return the leader epochs of the records before the ends of these ranges."""
    found = []
    for cluster, r in logs:
        partition = r.topic_partition
        found.append((await positions.record_epochs(cluster, {partition: r.end}))[partition])
    return tuple(found)


def refuse_cut_off(before: tuple[int | None, ...], after: tuple[int | None, ...]) -> None:
    """Raise IncompleteError if a record at the end of a range has another leader epoch since."""
    if before != after:
        raise IncompleteError(
            "a log was cut off while it was read, or its end compacted",
            remedy="the map is as it was: try again",
        )


def ranges_after(
    before: MapPartition | None, mine: Resolved, theirs: Resolved
) -> tuple[Resolved, Resolved]:
    """Return what of source and mirror is to be read after the map's last run.

    Raises RefusedError for records that are gone, IncompleteError for an end that stepped back.
    """
    if before is None:
        return mine, theirs
    for r, seen in ((mine, before.source.end), (theirs, before.mirror.end)):
        if r.end < seen:
            raise IncompleteError(
                f"its log ends below what the map has seen: at {r.end}, not {seen}",
                where=str(r.topic_partition),
                remedy="the map is as it was: try again in a few seconds",
            )
    if mine.log_start_offset > before.source.end:
        raise RefusedError(
            f"retention deleted the records from {before.source.end} to {mine.log_start_offset} "
            "before the map saw them",
            remedy=ANEW,
        )
    start = max(theirs.log_start_offset, before.mirror.end)
    return replace(mine, start=before.source.end), replace(theirs, start=min(start, theirs.end))
