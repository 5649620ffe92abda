"""Where a leader's log is, and up to where an epoch of it reaches: its answers, one by one."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import log_checks
from recovery.facts import TopicPartition
from tests.unit.doctor.test_versions import ANSWERS

AT = TopicPartition("t", 1)


class Leader(Cluster):
    """Broker 3, which answers once."""

    def __init__(self, answer: object, release: tuple[int, int] = (3, 5)) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
        self._answer, self._release = answer, release
        self.brokers = {3: ("127.0.0.1", 1)}  # type: ignore[dict-item]

    async def connection(self, broker: int, **_: Any) -> Any:
        """What a broker of that release answered to ApiVersions."""
        return SimpleNamespace(versions=ANSWERS[self._release], supported={}, features={})

    async def ask(self, broker: int, question: Any, *, least: int = 0, **_: Any) -> Any:
        assert broker == 3
        assert question.replica_id == -1, "a client, no follower"
        if hasattr(question.topics[0].partitions[0], "timestamp"):
            [partition] = question.topics[0].partitions
            assert (partition.timestamp, least) == (-4, 8), "KIP-405: the earliest on its own disk"
        if isinstance(self._answer, WireError):
            raise self._answer
        return self._answer


def starts(offset: int, partition: int = 1, error: int = 0) -> object:
    """An answer to ListOffsets."""
    row = SimpleNamespace(partition_index=partition, offset=offset, error_code=error)
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[row])])


@pytest.mark.parametrize(
    ("answer", "local", "remote"),
    [
        (starts(9), True, False),
        (starts(10), True, False),
        (starts(11), False, True),
        (starts(9, error=6), False, False),
        (starts(9, partition=2), False, False),
        (SimpleNamespace(topics=[]), False, False),
        (WireError("UNSUPPORTED_VERSION", "too old for another storage"), True, False),
        (WireError("TIMED_OUT", "no answer"), False, False),
    ],
)
def test_whether_offset_10_is_on_the_leaders_own_disk(
    answer: object, *, local: bool, remote: bool
) -> None:
    """Neither where nothing is known."""
    assert asyncio.run(log_checks.is_local(Leader(answer), 3, AT, 10)) is local
    assert asyncio.run(log_checks.is_remote(Leader(answer), 3, AT, 10)) is remote


def test_a_log_older_than_other_storage_is_on_disk_from_its_first_offset_on() -> None:
    old = WireError("UNSUPPORTED_VERSION", "too old")
    assert asyncio.run(log_checks.is_local(Leader(old), 3, AT, 0))
    assert not asyncio.run(log_checks.is_remote(Leader(old), 3, AT, 0))


def test_a_service_that_leaves_that_version_out_may_have_it_elsewhere() -> None:
    newer = Leader(WireError("UNSUPPORTED_VERSION", "left out"), (3, 9))
    assert not asyncio.run(log_checks.is_local(newer, 3, AT, 0))
    assert not asyncio.run(log_checks.is_remote(newer, 3, AT, 0))


@pytest.mark.parametrize(
    ("latest", "end"),
    [
        ((5, 20), 20),
        ((4, 12), None),  # it has no record of epoch 5
        ((0, 12), None),
        ((-1, 20), 20),  # it does not say which epoch it is of
        (None, None),
    ],
)
def test_where_the_epoch_of_a_record_ends(latest: tuple[int, int] | None, end: int | None) -> None:
    found = -1 if latest is None else latest[1]
    row = SimpleNamespace(
        partition=1,
        error_code=0,
        end_offset=found,
        leader_epoch=-1 if latest is None else latest[0],
    )
    answer = SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[row])])
    told = asyncio.run(log_checks.record_epoch_ends(Leader(answer), {AT: (3, 9, 5)}))
    assert told == {AT: end}
