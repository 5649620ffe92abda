"""Find out who decided the markers of a partition: a coordinator, this host, or nobody."""

from collections.abc import Mapping, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.history_answer import read_state_logs
from eoctl.stores.journal_files import Journal
from recovery.change.journal import JournalEntry
from recovery.errors import EoctlError
from recovery.facts import TopicPartition
from recovery.inspect.chains import Wanted
from recovery.inspect.cluster_rows import MarkerRow, StripRow
from recovery.inspect.history import Marker
from recovery.inspect.lost_markers import (
    OwnMarker,
    decisions_on,
    own_first,
    past_of,
    with_origins,
)
from recovery.inspect.strip_stretches import markers_of, told
from recovery.remedy.repairs import MARKER_ACTION


async def strip_with_origins(
    cluster: Cluster, where: TopicPartition, rows: Sequence[StripRow]
) -> list[StripRow]:
    """Return a strip with the origins of its markers, from decisions that are read after it."""
    markers, own = markers_of(rows), own_markers(cluster.cluster_id)
    if not markers or own is None:
        return list(rows)
    wanted = {pid: _wanted(where, of_producer) for pid, of_producer in markers.items()}
    logs = await read_state_logs(cluster, (), wanted)
    unread = bool(logs.missing) or any(log.error is not None for log in logs.logs)
    judged: dict[int, list[Marker]] = {}
    for pid, of_producer in markers.items():
        if unread and not any(log.naming(pid) for log in logs.logs):
            continue  # its decisions may lie in what was not read
        named = decisions_on(logs.logs, pid, where)
        of_producer = with_origins(of_producer, named, past_of(logs.logs, pid))
        judged[pid] = own_first(of_producer, where, pid, own)
    return told(rows, judged)


def _wanted(where: TopicPartition, markers: Sequence[Marker]) -> Wanted:
    epochs = {m.producer_epoch - 1 if m.data_epoch is None else m.data_epoch for m in markers}
    return Wanted(frozenset(epochs), frozenset({where}))


def own_markers(cluster_id: str | None) -> tuple[OwnMarker, ...] | None:
    """Return the markers that this host's journal says were sent; None if it cannot be read."""
    try:
        entries = Journal().find().entries
        return tuple(m for entry in entries for m in _sent(entry, cluster_id))
    except EoctlError:
        return None


def _sent(entry: JournalEntry, cluster_id: str | None) -> list[OwnMarker]:
    plan: Mapping[str, object] = entry.begun.data["plan"]
    if plan["cluster_id"] != cluster_id:
        return []
    begun = entry.steps("step-started")
    return [
        OwnMarker(
            topic_partition=TopicPartition(p["topic"], p["partition"]),
            producer_id=p["producer_id"],
            producer_epoch=p["producer_epoch"],
            outcome=p["outcome"],
            since=p.get("end_offset") or p["start_offset"],
        )
        for number, step in enumerate(entry.plan.steps, 1)
        if step.action == MARKER_ACTION and number in begun
        for p in [step.parameters]
    ]


def marker_rows(
    where: TopicPartition, strip: Sequence[StripRow], of_judged: Mapping[int, Sequence[Marker]]
) -> list[MarkerRow]:
    """Return the markers that no coordinator decided, in a strip and of the judged producer ids."""
    found: dict[int, tuple[int | None, Marker | StripRow]] = {
        **{m.offset: (pid, m) for pid, markers in of_judged.items() for m in markers},
        **{r.first_offset: (r.producer_id, r) for r in strip if r.kind == "control"},
    }
    return [
        MarkerRow.of(
            marker,
            topic=where.topic,
            partition=where.partition,
            offset=offset,
            producer_id=pid,
        )
        for offset, (pid, marker) in sorted(found.items())
        if marker.origin in ("ours", "foreign")
    ]
