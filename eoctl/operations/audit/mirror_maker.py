"""What MirrorMaker 2's own topics say of a mirror: offset syncs and checkpoints."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.operations.audit.ranges import seen_by_readers
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.formats.mirror_maker import Checkpoint, OffsetSync, decode_checkpoint, decode_sync

NOTHING = "none"
MirrorEntry = TypeVar("MirrorEntry", OffsetSync, Checkpoint)


async def offset_syncs(
    clusters: Sequence[Cluster], source: str, named: str | None
) -> tuple[str | None, list[OffsetSync]]:
    """Return their topic, and all syncs of `source`, oldest first. clusters: source, mirror.

    named: the topic that holds them; None: the only `mm2-offset-syncs...internal` that mentions
    this topic. Raises UsageError if there are several, IncompleteError for an unreadable one.
    """
    by_topic: list[tuple[str, list[OffsetSync]]] = []
    for cluster in _each(clusters):
        for topic in await _named(cluster, named, "mm2-offset-syncs", ".internal"):
            syncs = [
                sync
                async for key, value in _records(cluster, topic)
                if value is not None and (sync := decode_sync(key, value)).topic == source
            ]
            if syncs or named:
                by_topic.append((topic, syncs))
    return _one(by_topic, named, "--offset-syncs")


async def checkpoints(
    mirror: Cluster, topic: str, named: str | None
) -> tuple[str | None, list[Checkpoint]]:
    """Return the latest checkpoint of each group and partition of the mirror's topic. Otherwise as
    `offset_syncs`."""
    by_topic: list[tuple[str, list[Checkpoint]]] = []
    for name in await _named(mirror, named, "", ".checkpoints.internal"):
        latest: dict[tuple[str, int], Checkpoint] = {}
        async for key, value in _records(mirror, name):
            if value is None:
                continue
            one = decode_checkpoint(key, value)
            if one.topic == topic:
                latest[one.group, one.partition] = one
        if latest or named:
            by_topic.append((name, [latest[partition] for partition in sorted(latest)]))
    return _one(by_topic, named, "--checkpoints")


def _each(clusters: Sequence[Cluster]) -> list[Cluster]:
    source, mirror = clusters
    if source.cluster_id is not None and source.cluster_id == mirror.cluster_id:
        return [mirror]
    return [source, mirror]


async def _named(cluster: Cluster, named: str | None, begin: str, end: str) -> list[str]:
    if named == NOTHING:
        return []
    metadata = await cluster.metadata(None if named is None else [named])
    return sorted(
        name
        for name, topic in metadata.topics.items()
        if topic.error is None
        and (named is not None or (name.startswith(begin) and name.endswith(end)))
    )


def _one(
    by_topic: list[tuple[str, list[MirrorEntry]]], named: str | None, option: str
) -> tuple[str | None, list[MirrorEntry]]:
    if len(by_topic) > 1:
        names = ", ".join(sorted({topic for topic, _ in by_topic}))
        raise UsageError(
            f"several topics hold offsets of this one: {names}",
            where=option,
            remedy="name the one of this mirror's MirrorMaker",
        )
    if not by_topic and named not in (None, NOTHING):
        raise UsageError(f"there is no topic {named} that you may see", where=option)
    return by_topic[0] if by_topic else (None, [])


async def _records(cluster: Cluster, topic: str) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Return keys and values of all visible records with a key, by partition and offset."""
    metadata = await cluster.metadata([topic])
    partitions = list(metadata.topics[topic].partitions)
    facts, missing = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    for fact in facts:
        if fact.log_start_offset is None or fact.last_stable_offset is None or fact.error:
            text = missing[0].detail if missing else "its offsets could not be read"
            raise IncompleteError(text, where=str(fact.topic_partition))
        parts = read_columns(
            cluster,
            Range(topic, fact.partition, fact.log_start_offset, fact.last_stable_offset),
            last_stable_offset=fact.last_stable_offset,
        )
        try:
            async with aclosing(parts):
                async for part in parts:
                    shown = part.select(seen_by_readers(part))
                    for i in range(len(shown)):
                        if (key := shown.key[i]) is not None:
                            yield key, shown.value[i]
        except EoctlError as error:
            raise IncompleteError(error.sentence, where=str(fact.topic_partition)) from error
