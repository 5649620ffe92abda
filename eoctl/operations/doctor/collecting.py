"""Read what the rules of `doctor` judge: only Metadata, List and Describe requests."""

import asyncio
from collections.abc import Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs, coordinators, groups
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.operations.inspect.lists import Scope, hidden_topics
from recovery.doctor.findings import DoctorFacts, Replicas
from recovery.doctor.setting_names import BROKER_SETTINGS, INTERNAL, TOPIC_SETTINGS
from recovery.errors import topic_problem
from recovery.facts import Missing, Transactions
from recovery.values import replace

CHUNK = 500  # topics in one DescribeConfigs


async def collect(cluster: Cluster, named: Sequence[str] = ()) -> DoctorFacts:
    """Return the facts of the cluster. named: topics to examine besides those that ids write."""
    metadata = await cluster.metadata(None)
    (brokers, missing_brokers), transactions, (listed, missing_groups) = await asyncio.gather(
        configs.broker_configs(cluster, BROKER_SETTINGS),
        _transactions(cluster),
        groups.list_groups(cluster),
    )
    described = {name: t for name, t in metadata.topics.items() if t.error is None}
    examined = _examined(described, transactions, named)
    topic_settings, missing_topics = await _topic_settings(cluster, examined)
    return DoctorFacts(
        now=now_ms(),
        brokers=tuple(sorted(metadata.brokers)),
        broker_settings={int(broker): values for broker, values in brokers.items()},
        topics={name: _replicas(t) for name, t in described.items() if t.partitions},
        topic_settings=topic_settings,
        transactions=transactions,
        groups=tuple(listed),
        named=tuple(named),
        missing_brokers=tuple(missing_brokers),
        missing_topics=(
            *(
                Missing("topic", t.error, topic_problem(t.error), topic=t.name)
                for t in metadata.topics.values()
                if t.error is not None
            ),
            *await hidden_topics(cluster, Scope()),
            *missing_topics,
        ),
        missing_groups=tuple(missing_groups),
    )


async def _transactions(cluster: Cluster) -> Transactions:
    """Return every transactional id described; none on a cluster that never had one."""
    listed = await coordinators.transactions(cluster)
    described, missing = await coordinators.described(cluster, listed.rows)
    return replace(listed, rows=tuple(described), missing=(*listed.missing, *missing))


def _examined(
    described: Mapping[str, TopicMetadata], transactions: Transactions, named: Sequence[str]
) -> list[str]:
    """Return the topics whose settings matter: Kafka's two, those written, changelogs, named."""
    written = {p.topic for t in transactions.rows for p in t.partitions or ()}
    wanted = {*INTERNAL, *written, *named}
    return sorted(name for name in described if name in wanted or name.endswith("-changelog"))


async def _topic_settings(
    cluster: Cluster, topics: Sequence[str]
) -> tuple[dict[str, dict[str, str | None]], list[Missing]]:
    values: dict[str, dict[str, str | None]] = {}
    missing: list[Missing] = []
    for start in range(0, len(topics), CHUNK):
        chunk = topics[start : start + CHUNK]
        mine, more = await configs.topic_configs(cluster, chunk, TOPIC_SETTINGS)
        values |= mine
        missing += more
    return values, missing


def _replicas(topic: TopicMetadata) -> Replicas:
    return Replicas(len(topic.partitions), min(len(p.replicas) for p in topic.partitions))
