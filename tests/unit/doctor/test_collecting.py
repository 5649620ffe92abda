"""What `doctor` makes of Metadata: brokers that are away are part of the cluster."""

from eoctl.operations.doctor.collecting import brokers_away
from recovery.facts import PartitionFacts


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
