"""Facts as `doctor` judges them, put together by hand; what a test expects follows from these."""

from typing import Any

from recovery.doctor.findings import DoctorFacts, Replicas
from recovery.facts import Missing, TopicPartition, TransactionFacts, Transactions
from recovery.values import replace

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_700_000_000_000
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
REFUSED = Missing("broker", "CLUSTER_AUTHORIZATION_FAILED", "its settings are hidden", broker=2)
SILENT = Missing("broker", "CONNECTION_REFUSED", "nobody listens", broker=2)
HIDDEN_TOPICS = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE is not granted")
HIDDEN_IDS = Missing("coordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "not granted")

DEFAULTS = {  # of Kafka 4.3.1, as kafka-configs.sh --describe --all prints them
    "transaction.partition.verification.enable": "true",
    "transaction.max.timeout.ms": "900000",
    "transaction.two.phase.commit.enable": "false",
    "transactional.id.expiration.ms": "604800000",
    "producer.id.expiration.ms": "86400000",
    "offsets.retention.minutes": "10080",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "compact",
    "delete.retention.ms": str(DAY),
}
MADE = {STATE: Replicas(50, 3), OFFSETS: Replicas(50, 3)}


def healthy(**changed: Any) -> DoctorFacts:
    """A cluster of three with Kafka's defaults, and min.insync.replicas 2 on its topics."""
    facts = DoctorFacts(
        now=NOW,
        brokers=(1, 2, 3),
        broker_settings=dict.fromkeys((1, 2, 3), DEFAULTS),
        topics=MADE,
        topic_settings=dict.fromkeys(MADE, SAFE),
    )
    return replace(facts, **changed)


def with_topic(name: str, factor: int = 3, **settings: str) -> DoctorFacts:
    """The healthy cluster with one topic more, or with other settings of one."""
    mine = SAFE | {key.replace("_", "."): value for key, value in settings.items()}
    facts = healthy()
    return replace(
        facts,
        topics={**facts.topics, name: Replicas(4, factor)},
        topic_settings={**facts.topic_settings, name: mine},
    )


def with_setting(key: str, value: str, brokers: tuple[int, ...] = (1, 2, 3)) -> DoctorFacts:
    """The healthy cluster with one broker setting changed on these brokers."""
    return healthy(
        broker_settings={b: DEFAULTS | ({key: value} if b in brokers else {}) for b in (1, 2, 3)}
    )


def txn(
    name: str, timeout: int | None = 60_000, topic: str | None = None, **more: Any
) -> TransactionFacts:
    """A described id; topic: it has an open transaction that writes there."""
    values = {"state": "Ongoing" if topic else "CompleteCommit", "start_timestamp": NOW - HOUR}
    partitions = (TopicPartition(topic, 0),) if topic else ()
    return TransactionFacts(
        name, 1, 7, timeout_ms=timeout, partitions=partitions, **{**values, **more}
    )


def with_ids(*rows: TransactionFacts, facts: DoctorFacts | None = None) -> DoctorFacts:
    return replace(facts or healthy(), transactions=Transactions(rows))
