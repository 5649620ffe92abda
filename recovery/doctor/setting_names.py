"""The settings that `doctor` reads, by Kafka's names, and the topics that it knows."""

from collections.abc import Mapping

from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.watch.check_rules import TRANSACTION_STATE

HOUR = 3_600_000
DAY = 24 * HOUR

INTERNAL = (TRANSACTION_STATE, CONSUMER_OFFSETS)
CHANGELOG = "-changelog"
"""How Kafka Streams ends the name of a store's changelog."""

REPLICATION = "replication.factor"
MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
CLEANUP = "cleanup.policy"
DELETE_RETENTION = "delete.retention.ms"
TOPIC_SETTINGS = (MIN_IN_SYNC, UNCLEAN, CLEANUP, DELETE_RETENTION)

VERIFICATION = "transaction.partition.verification.enable"
MAX_TIMEOUT = "transaction.max.timeout.ms"
TWO_PHASE = "transaction.two.phase.commit.enable"
ID_EXPIRATION = "transactional.id.expiration.ms"
PRODUCER_EXPIRATION = "producer.id.expiration.ms"
OFFSETS_RETENTION = "offsets.retention.minutes"
STATE_REPLICATION = "transaction.state.log.replication.factor"
STATE_MIN_IN_SYNC = "transaction.state.log.min.isr"
OFFSETS_REPLICATION = "offsets.topic.replication.factor"
BROKER_SETTINGS = (
    VERIFICATION,
    MAX_TIMEOUT,
    TWO_PHASE,
    ID_EXPIRATION,
    PRODUCER_EXPIRATION,
    OFFSETS_RETENTION,
    STATE_REPLICATION,
    STATE_MIN_IN_SYNC,
    OFFSETS_REPLICATION,
    MIN_IN_SYNC,
    UNCLEAN,
)

DEFAULTS: Mapping[str, tuple[str, str]] = {
    TRANSACTION_STATE: (STATE_REPLICATION, STATE_MIN_IN_SYNC),
    CONSUMER_OFFSETS: (OFFSETS_REPLICATION, MIN_IN_SYNC),
}
"""Kafka's own topic → the broker settings with whose values it is made: copies, least in sync."""
