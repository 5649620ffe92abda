"""`committed`: what a group holds counts once no transaction holds something newer."""

import asyncio
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write import exactly_once
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import committed
from recovery.errors import IncompleteError
from recovery.facts import TopicPartition

PARTITION = TopicPartition("t", 0)
OLD, NEW = CommittedPosition(5, ""), CommittedPosition(9, "")


def positions(monkeypatch: pytest.MonkeyPatch, *looks: tuple[CommittedPosition, bool]) -> Any:
    """What `committed` gives where one look after the other sees this; the last one goes on."""
    left = list(looks)

    async def last_committed(*given: Any) -> Any:
        position, pending = left.pop(0) if len(left) > 1 else left[0]
        return {PARTITION: position}, pending

    monkeypatch.setattr(exactly_once, "last_committed", last_committed)
    monkeypatch.setattr(exactly_once, "_STABLE_SECONDS", 0)
    monkeypatch.setattr(exactly_once, "DECIDED_SECONDS", 0.05)
    cluster = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    return asyncio.run(committed(cluster, "g", [PARTITION]))


def test_a_pending_commit_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To go on from the older one would send again what the open transaction may still commit."""
    assert positions(monkeypatch, (OLD, True), (OLD, True), (NEW, False)) == {PARTITION: NEW}
    assert positions(monkeypatch, (OLD, False), (NEW, False)) == {PARTITION: OLD}


def test_one_that_is_never_decided_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IncompleteError, match="a transaction that holds them is open"):
        positions(monkeypatch, (OLD, True))
