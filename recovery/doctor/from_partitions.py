"""What doctor knows from the partitions alone: copies, brokers that are away, what is held."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from recovery.doctor.findings import DoctorFacts, Replicas
from recovery.doctor.setting_names import CHANGELOG, INTERNAL
from recovery.facts import Facts, Missing, PartitionFacts, grouped


def from_partitions(seen: Facts, listed: Collection[int], now: int) -> DoctorFacts:
    """Return what the partitions show. listed: ids of brokers in Metadata. now: epoch ms."""
    away = brokers_away(listed, seen.partitions)
    return DoctorFacts(
        now=now,
        brokers=tuple(sorted({*listed, *(m.broker for m in away if m.broker is not None)})),
        topics=_replicas(seen.partitions),
        held=tuple(sorted({p.topic for p in seen.partitions if p.held})),
        missing_held=tuple(what_hides_held(seen)),
        missing_brokers=tuple(away),
        missing_topics=tuple(m for m in seen.missing if m.scope == "topic"),
    )


def examined_topics(facts: DoctorFacts) -> list[str]:
    """Return the topics whose settings matter: Kafka's two, those written, changelogs, named."""
    wanted = {*INTERNAL, *facts.written, *facts.held, *facts.named}
    return sorted(name for name in facts.topics if name in wanted or name.endswith(CHANGELOG))


def what_hides_held(seen: Facts) -> Iterator[Missing]:
    """Yield why partitions have no offsets, by which alone a topic is known to be held."""
    blind = [p for p in seen.partitions if p.held is None]
    partitions = {p.topic_partition for p in blind}
    leaders = {p.leader for p in blind} - {None}
    for m in seen.missing:
        if m.scope == "partition" and m.topic_partition in partitions:
            yield m
        if m.scope == "broker" and m.broker in leaders:
            yield m


def brokers_away(listed: Collection[int], partitions: Iterable[PartitionFacts]) -> list[Missing]:
    """Return the brokers that have copies but are not listed in Metadata, which omits fenced ones.

    Neither their settings nor their versions can be seen.
    """
    text = "it has copies of partitions, but it is away: its settings and version are not seen"
    copying = {broker for p in partitions for broker in p.replicas}
    away = sorted(copying - set(listed))
    return [Missing("broker", "BROKER_NOT_AVAILABLE", text, broker=broker) for broker in away]


def _replicas(partitions: Iterable[PartitionFacts]) -> Mapping[str, Replicas]:
    by_topic = grouped((p.topic, len(p.replicas)) for p in partitions)
    return {name: Replicas(len(counts), min(counts)) for name, counts in by_topic.items()}
