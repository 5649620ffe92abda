"""The requests that change a transaction: each field, and what an answer gives."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write.markers import (
    Answered,
    end_transaction,
    initialise_producer,
    write_marker,
)
from recovery.remedy.repairs import EndRequest, InitRequest, MarkerRequest


class Broker:
    """Answers once. asked: the request, its broker and its versions."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[Any] = []

    async def ask(self, broker: int, question: Any, **versions: int) -> Any:
        self.asked = [broker, question, versions]
        return self._answer


def of(broker: Broker) -> Cluster:
    return cast("Cluster", broker)


def marked(*partitions: tuple[str, int, int]) -> Any:
    """WriteTxnMarkers' answer: topic, partition, error code."""
    topics = [
        SimpleNamespace(
            name=topic, partitions=[SimpleNamespace(partition_index=number, error_code=code)]
        )
        for topic, number, code in partitions
    ]
    return SimpleNamespace(markers=[SimpleNamespace(topics=topics)])


@pytest.mark.parametrize("outcome", ["abort", "commit"])
@pytest.mark.parametrize(("version", "versions"), [(0, {"most": 1}), (2, {"least": 2})])
def test_a_marker_names_one_partition_and_its_outcome(
    outcome: str, version: int, versions: dict[str, int]
) -> None:
    broker = Broker(marked(("t", 4, 47), ("u", 3, 47), ("t", 3, 0)))
    sent = MarkerRequest("t", 3, 7, 5, outcome, 11, version)
    assert asyncio.run(write_marker(of(broker), 2, sent)) == "NONE"
    assert (broker.asked[0], broker.asked[2]) == (2, versions)
    [marker] = broker.asked[1].markers
    [topic] = marker.topics
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 5, 11)
    assert marker.transaction_result is (outcome == "commit")
    assert (topic.name, list(topic.partition_indexes)) == ("t", [3])
    assert marker.transaction_version == version


def test_an_answer_for_other_partitions_is_none() -> None:
    sent = MarkerRequest("t", 3, 7, 5, "abort", 11, 0)
    assert asyncio.run(write_marker(of(Broker(marked(("t", 3, 47)))), 2, sent)) == (
        "INVALID_PRODUCER_EPOCH"
    )
    with pytest.raises(WireError, match="did not answer for this partition"):
        asyncio.run(write_marker(of(Broker(marked(("t", 4, 0)))), 2, sent))


def answer(code: int, producer_id: int = 7, epoch: int = 6) -> Any:
    return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)


@pytest.mark.parametrize(
    ("version", "given", "found"),
    [
        (5, answer(0), Answered("NONE", 7, 6)),
        (5, answer(0, 0, 0), Answered("NONE", 0, 0)),
        (5, answer(0, -1, -1), Answered("NONE")),
        (5, answer(90), Answered("PRODUCER_FENCED")),
        (4, answer(0), Answered("NONE")),
        (6, answer(0), Answered("NONE", 7, 6)),
    ],
)
@pytest.mark.parametrize("commit", [False, True])
def test_the_end_of_a_transaction(
    version: int, given: Any, found: Answered, *, commit: bool
) -> None:
    broker = Broker(given)
    sent = EndRequest(version, "x", 7, 5, commit)
    assert asyncio.run(end_transaction(of(broker), 2, sent)) == found
    at, question, versions = broker.asked
    assert (at, versions) == (2, {"least": version, "most": version})
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("x", 7, 5)
    assert question.committed is commit


@pytest.mark.parametrize(
    ("given", "found"),
    [(answer(0), Answered("NONE", 7, 6)), (answer(90), Answered("PRODUCER_FENCED"))],
)
def test_an_id_is_initialised_by_its_epoch(given: Any, found: Answered) -> None:
    broker = Broker(given)
    sent = InitRequest("x", 7, 5, 60_000)
    assert asyncio.run(initialise_producer(of(broker), 2, sent)) == found
    at, question, versions = broker.asked
    assert (at, versions) == (2, {"least": 3, "most": 4})  # 3: names an epoch (KIP-360)
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("x", 7, 5)
    assert question.transaction_timeout_ms == 60_000
