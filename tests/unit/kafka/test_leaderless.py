"""Partitions that nobody leads: each of them is told, not only the first."""

import asyncio
from typing import Any

from eoctl.kafka.ask import collect
from eoctl.kafka.ask.log_ends import log_end_offsets
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, by_leader
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings

GONE = [PartitionMetadata("t", n, None, 3, (1, 2), "LEADER_NOT_AVAILABLE") for n in range(3)]
LED = [PartitionMetadata("t", n, leader, 3, (1, 2), None) for n, leader in ((3, 1), (4, 2), (5, 1))]
PARTITIONS = [("t", 0), ("t", 1), ("t", 2)]


def nobody() -> Cluster:
    """No broker is asked where no partition has a leader."""
    return Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))


def told(missing: Any) -> list[Any]:
    return [(m.topic, m.partition) for m in missing if m.error == "LEADER_NOT_AVAILABLE"]


def test_grouped_by_leader() -> None:
    led, leaderless = by_leader([GONE[0], LED[0], GONE[1], *LED[1:], GONE[2]])
    assert leaderless == GONE
    assert led == {1: [LED[0], LED[2]], 2: [LED[1]]}


def test_offsets() -> None:
    facts, missing = asyncio.run(collect.partition_offsets(nobody(), (), GONE))
    assert [f.error for f in facts] == ["LEADER_NOT_AVAILABLE"] * 3
    assert told(missing) == PARTITIONS


def test_log_ends() -> None:
    found, missing = asyncio.run(log_end_offsets(nobody(), GONE))
    assert (found, told(missing)) == ({}, PARTITIONS)


def test_producers() -> None:
    found, missing = asyncio.run(collect.producers(nobody(), GONE))
    assert (found, told(missing)) == ({}, PARTITIONS)
