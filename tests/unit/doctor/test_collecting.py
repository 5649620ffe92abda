"""What `doctor` makes of Metadata: brokers that are away are part of the cluster."""

from eoctl.operations.doctor.collecting import with_settings
from recovery.doctor.from_partitions import brokers_away, what_hides_held
from recovery.facts import Facts, Missing, PartitionFacts
from tests.unit.doctor_facts import MADE, OFFSETS, SAFE, STATE, with_topic


def partition(number: int, *replicas: int) -> PartitionFacts:
    return PartitionFacts("orders", number, replicas=replicas)


def test_a_broker_that_only_replica_lists_name_is_away() -> None:
    seen = [partition(0, 1, 3), partition(1, 2, 3), partition(2, 4, 1)]
    away = brokers_away({1, 2}, seen)
    assert [(m.scope, m.error, m.broker) for m in away] == [
        ("broker", "BROKER_NOT_AVAILABLE", 3),
        ("broker", "BROKER_NOT_AVAILABLE", 4),
    ]
    assert brokers_away({1, 2, 3, 4}, seen) == []


def test_partitions_without_offsets_hide_whether_they_are_held() -> None:
    led, lost, silent = (
        PartitionFacts("orders", 0, leader=1, last_stable_offset=3, high_watermark=5),
        PartitionFacts("orders", 1, error="LEADER_NOT_AVAILABLE"),
        PartitionFacts("orders", 2, leader=2, error="TIMED_OUT"),
    )
    hiding = (
        Missing("partition", "LEADER_NOT_AVAILABLE", "no leader", None, "orders", 1),
        Missing("broker", "TIMED_OUT", "no answer", 2),
    )
    others = (
        Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden"),
        Missing("partition", "TOPIC_AUTHORIZATION_FAILED", "its producers", 1, "orders", 0),
        Missing("broker", "TIMED_OUT", "its producers", 1),
    )
    seen = Facts("c", 0, 3, partitions=(led, lost, silent), missing=(*hiding, *others))
    assert tuple(what_hides_held(seen)) == hiding


def test_a_topic_that_was_deleted_meanwhile_is_not_judged() -> None:
    gone = Missing("topic", "UNKNOWN_TOPIC_OR_PARTITION", "gone", topic="orders")
    refused = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic=STATE)
    facts = with_settings(with_topic("orders"), {OFFSETS: SAFE}, [gone, refused])
    assert set(facts.topics) == set(MADE)
    assert facts.topic_settings == {OFFSETS: SAFE}
    assert facts.missing_settings == (refused,)
