"""The rules of `doctor`, in the order in which their findings are shown."""

from recovery.doctor import (
    changelog_rules,
    commit_rules,
    durability_rules,
    expiry_rules,
    id_rules,
    outages,
    version_rules,
    writer_rules,
)
from recovery.doctor.findings import DoctorRule
from recovery.doctor.setting_names import (
    CLEANUP,
    DELETE_RETENTION,
    ID_EXPIRATION,
    MAX_TIMEOUT,
    MIN_IN_SYNC,
    OFFSETS_REPLICATION,
    OFFSETS_RETENTION,
    PRODUCER_EXPIRATION,
    STATE_MIN_IN_SYNC,
    STATE_REPLICATION,
    TWO_PHASE,
    UNCLEAN,
    VERIFICATION,
)
from recovery.inspect.rights import (
    CLUSTER_CONFIGS,
    GROUPS_DESCRIBE,
    IDS_DESCRIBE,
    OFFSETS_READ,
    STATE_READ,
    TOPICS_CONFIGS,
    TOPICS_DESCRIBE,
    TOPICS_READ,
)

_OF_TOPICS = (TOPICS_DESCRIBE, TOPICS_CONFIGS, CLUSTER_CONFIGS)

RULES: tuple[DoctorRule, ...] = (
    DoctorRule(
        "few-copies",
        (TOPICS_DESCRIBE, CLUSTER_CONFIGS),
        (STATE_REPLICATION, OFFSETS_REPLICATION),
        durability_rules.few_copies,
    ),
    DoctorRule(
        "one-copy-suffices",
        _OF_TOPICS,
        (MIN_IN_SYNC, STATE_MIN_IN_SYNC),
        durability_rules.one_copy_suffices,
    ),
    DoctorRule(
        "every-copy-needed",
        _OF_TOPICS,
        (MIN_IN_SYNC, STATE_MIN_IN_SYNC),
        durability_rules.every_copy_needed,
    ),
    DoctorRule(
        "unclean-election",
        _OF_TOPICS,
        (UNCLEAN, "KIP-106"),
        durability_rules.unclean_election,
    ),
    DoctorRule(
        "verification-off",
        (CLUSTER_CONFIGS,),
        (VERIFICATION, "KIP-890"),
        durability_rules.verification_off,
    ),
    DoctorRule(
        "timeout-above-max",
        (IDS_DESCRIBE, CLUSTER_CONFIGS),
        (MAX_TIMEOUT, "KIP-98"),
        id_rules.timeout_above_max,
    ),
    DoctorRule(
        "two-phase-off",
        (IDS_DESCRIBE, CLUSTER_CONFIGS),
        (TWO_PHASE, "KIP-939"),
        id_rules.two_phase_off,
    ),
    DoctorRule(
        "timeout-long",
        (IDS_DESCRIBE,),
        ("transaction.timeout.ms", "KIP-98"),
        id_rules.timeout_long,
    ),
    DoctorRule(
        "timeout-too-short",
        (IDS_DESCRIBE, STATE_READ),
        ("transaction.timeout.ms", MAX_TIMEOUT, "KIP-98"),
        outages.timeout_too_short,
    ),
    DoctorRule(
        "ids-expire-early",
        (CLUSTER_CONFIGS,),
        (ID_EXPIRATION,),
        expiry_rules.ids_expire_early,
    ),
    DoctorRule(
        "idle-id-in-use",
        (IDS_DESCRIBE, CLUSTER_CONFIGS, GROUPS_DESCRIBE),
        (ID_EXPIRATION,),
        expiry_rules.idle_id_in_use,
    ),
    DoctorRule(
        "producers-expire-early",
        (CLUSTER_CONFIGS,),
        (PRODUCER_EXPIRATION, "delivery.timeout.ms"),
        expiry_rules.producers_expire_early,
    ),
    DoctorRule(
        "offsets-expire-early",
        (CLUSTER_CONFIGS,),
        (OFFSETS_RETENTION, "KIP-211"),
        expiry_rules.offsets_expire_early,
    ),
    DoctorRule(
        "mixed-commits",
        (OFFSETS_READ,),
        ("KafkaProducer.sendOffsetsToTransaction", "enable.auto.commit", "KIP-447", "KIP-98"),
        commit_rules.mixed_commits,
    ),
    DoctorRule(
        "two-writers",
        (TOPICS_READ, IDS_DESCRIBE),
        ("exclusive of the application file",),
        writer_rules.two_writers,
        needs_app=True,
    ),
    DoctorRule(
        "changelog-deletes",
        (TOPICS_DESCRIBE, TOPICS_CONFIGS),
        (CLEANUP,),
        changelog_rules.changelog_deletes,
    ),
    DoctorRule(
        "changelog-forgets-deletes",
        (TOPICS_DESCRIBE, TOPICS_CONFIGS),
        (DELETE_RETENTION,),
        changelog_rules.changelog_forgets_deletes,
    ),
    DoctorRule(
        "known-bug",
        (),
        ("Apache Kafka's issues",),
        version_rules.known_bug,
    ),
    DoctorRule(
        "transaction-version-low",
        (),
        ("transaction.version", "KIP-890", "KIP-1022"),
        version_rules.transaction_version_low,
    ),
    DoctorRule(
        "speaks-v1",
        (STATE_READ,),
        ("KIP-890",),
        version_rules.speaks_v1,
    ),
    DoctorRule(
        "mixed-versions",
        (),
        ("KIP-35", "KIP-584"),
        version_rules.mixed_versions,
    ),
    DoctorRule(
        "newer-protocol",
        (),
        ("KIP-35",),
        version_rules.newer_protocol,
    ),
)
WITHOUT_APP = tuple(rule for rule in RULES if not rule.needs_app)
"""The rules that judge a cluster alone."""
