"""What groups had committed in a mirror's source, for its map: from the cluster, or a bundle."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.stores import bundle_files
from recovery.audit.mirror_map import BY_TIME, MapCommit, MirrorMap
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import GroupFacts, TopicPartition
from recovery.shared.log_position import LogPosition, Standing

IN_BUNDLE = "a bundle does not show whether the log was cut off since"


def commits_of(
    groups: Iterable[GroupFacts], seen_at: int, because: str = ""
) -> tuple[MapCommit, ...]:
    """Return the offsets that groups have committed, or a transaction holds, without share groups.

    because: why their logs are not proven.
    """
    return tuple(
        MapCommit(
            group=g.group,
            topic=o.topic,
            partition=o.partition,
            offset=o.committed_offset,
            leader_epoch=o.leader_epoch,
            metadata=o.metadata or "",
            pending=o.pending,
            seen_at=seen_at,
            because=because,
        )
        for g in groups
        for o in g.offsets
        if (o.committed_offset is not None or o.pending) and not o.is_share
    )


async def compared_with_log(
    cluster: Cluster, commits: Sequence[MapCommit]
) -> tuple[MapCommit, ...]:
    """Return commits, each with whether the leader's log is the one that the group has read.

    A question for each partition and leader epoch, more only where that does not prove all.
    """
    left: dict[TopicPartition, list[LogPosition]] = {}
    for partition, at in sorted({(c.topic_partition, _place(c)) for c in commits}, key=_order):
        left.setdefault(partition, []).append(at)
    known: dict[tuple[TopicPartition, LogPosition], Standing] = {}
    while left:
        asked = {partition: places[-1] for partition, places in left.items()}
        try:
            standings = await positions.standings(cluster, asked)
        except IncompleteError as error:
            return tuple(_judged(c, known, error.sentence) for c in commits)
        for partition, standing in standings.items():
            at = asked[partition]
            # one leader writes an epoch: what is before a proven place of it is proven, too
            same = [p for p in left[partition] if p == at or _is_shown(p, at, standing)]
            known |= {(partition, p): standing for p in same}
            left[partition] = [p for p in left[partition] if p not in same]
        left = {partition: places for partition, places in left.items() if places}
    return tuple(_judged(c, known, "it was not asked") for c in commits)


def _place(c: MapCommit) -> LogPosition:
    return LogPosition(c.offset or 0, c.leader_epoch, "commit")


def _order(at: tuple[TopicPartition, LogPosition]) -> tuple[TopicPartition, int, int]:
    partition, place = at
    return partition, -1 if place.leader_epoch is None else place.leader_epoch, place.offset


def _is_shown(place: LogPosition, at: LogPosition, standing: Standing) -> bool:
    """Return True if what is proven of the place `at` proves an earlier one of its epoch."""
    epoch = at.leader_epoch
    return bool(standing.held) and epoch is not None and place.leader_epoch == epoch


def _judged(
    c: MapCommit, known: Mapping[tuple[TopicPartition, LogPosition], Standing], why: str
) -> MapCommit:
    standing = known.get((c.topic_partition, _place(c)), Standing(None, why))
    return c.model_copy(update={"held": standing.held, "because": standing.because})


def of_bundle(paths: Sequence[Path], maps: Mapping[str, MirrorMap]) -> tuple[MapCommit, ...] | None:
    """Return what a bundle knows of the groups; None without one.

    Raises UsageError if it is not a later one of the same cluster, RefusedError for other topics.
    """
    if not paths:
        return None
    where = str(paths[0])
    if len(paths) > 1 or not maps:
        text = "only one bundle" if maps else "a bundle has commits and no records"
        raise UsageError(text, where=where, remedy="name it beside the maps of the group's topics")
    bundle, _ = bundle_files.read(paths[0])
    if bundle.cluster_id != next(iter(maps.values())).source_cluster_id:
        raise UsageError(f"a bundle of another cluster: {bundle.cluster_id}", where=where)
    began = bundle.diagnosis.collected_at  # its groups are read after that
    if began < max(m.newest for m in maps.values()):
        raise UsageError("the maps are newer than this bundle", where=where, remedy="leave it out")
    if bundle.groups_missing:
        at = bundle.groups_missing[0]
        raise IncompleteError(f"the bundle lacks groups or commits: {at.detail}", where=where)
    ids = {p.topic: p.topic_id for p in bundle.offsets.facts.partitions}
    for topic, kept in maps.items():
        if topic not in ids:
            raise IncompleteError(f"the bundle does not describe {topic}", where=where)
        if ids[topic] != kept.source_topic_id:
            raise RefusedError(
                f"the bundle is of another topic of this name: id {ids[topic]}",
                where=topic,
                remedy=BY_TIME,
            )
    return commits_of(bundle.groups, began, IN_BUNDLE)
