"""A transactional writer: what it asks librdkafka for, and what each of its errors proves.

librdkafka's answers are scripted; its real ones come in tests/kafka/test_exactly_once.py.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write import exactly_once
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import FencedError, Writer, last_committed
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, TopicPartition

AT = TopicPartition("in", 3)


def failure(name: str, *, retriable: bool = False, fatal: bool = False) -> KafkaException:
    code = getattr(KafkaError, name)
    return KafkaException(KafkaError(code, "a reason", fatal=fatal, retriable=retriable))


class Producer:
    """Notes its calls. fails: what a call of that name raises, one after the other."""

    def __init__(self, **fails: Sequence[Exception]) -> None:
        self.fails = {name: list(errors) for name, errors in fails.items()}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> None:
            self.calls.append((name, *given, *([named] if named else [])))
            if self.fails.get(name):
                raise self.fails[name].pop(0)

        return call

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def opened(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> Writer:
    closed: list[str] = []

    def consumer(settings: Any, config: Any) -> Any:
        assert config == {"group.id": "g"}
        return SimpleNamespace(
            consumer_group_metadata=lambda: "member", close=lambda: closed.append("closed")
        )

    def made(settings: Any, config: Any) -> Producer:
        assert config["transactional.id"] == "x"
        assert config["transaction.timeout.ms"] == config["delivery.timeout.ms"] == 60_000
        assert config["partitioner"] == "murmur2_random"
        return producer

    monkeypatch.setattr(confluent, "producer", made)
    monkeypatch.setattr(confluent, "consumer", consumer)
    monkeypatch.setattr(exactly_once, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    settings: Any = None
    writer = Writer(settings, "x", "g", timeout_ms=60_000)
    writer.open()
    assert closed == ["closed"]
    return writer


def test_records_and_their_position_are_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    writer = opened(producer, monkeypatch)
    writer.begin()
    writer.send("out", 2, b"k", b"v", headers=(("h", b"1"),), timestamp=5)
    writer.send("out", None, None, None)
    writer.commit(
        {AT: CommittedPosition(7, "m", 4), TopicPartition("in", 0): CommittedPosition(1, "")}
    )
    fields = {"value": b"v", "key": b"k", "partition": 2, "timestamp": 5, "headers": [("h", b"1")]}
    bare = {"value": None, "key": None, "partition": -1, "timestamp": 0, "headers": None}
    assert producer.calls[:4] == [
        ("init_transactions", 1.0),
        ("begin_transaction",),
        ("produce", "out", fields),
        ("produce", "out", bare),
    ]
    flush, offsets, commit = producer.calls[4:]
    assert (flush, commit) == (("flush", 1.0), ("commit_transaction", 1.0))
    assert offsets[0] == "send_offsets_to_transaction"
    assert [(p.topic, p.partition, p.offset, p.metadata, p.leader_epoch) for p in offsets[1]] == [
        ("in", 3, 7, "m", 4),
        ("in", 0, 1, "", None),
    ]
    assert offsets[2:] == ("member", 1.0)


def test_a_full_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(produce=[BufferError(), BufferError()])
    writer = opened(producer, monkeypatch)
    writer.send("out", 0, None, b"v")
    assert producer.names[1:] == ["produce", "poll", "produce", "poll", "produce"]


@pytest.mark.parametrize(("partition", "where"), [(None, "out"), (0, "out:0")])
def test_a_record_of_the_year_1970_is_refused(
    monkeypatch: pytest.MonkeyPatch, partition: int | None, where: str
) -> None:
    producer = Producer()
    with pytest.raises(RefusedError, match="1970") as refused:
        opened(producer, monkeypatch).send("out", partition, None, b"v", timestamp=0)
    assert refused.value.where == f"a record for {where}"
    assert "produce" not in producer.names


def test_what_may_be_retried_is(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [failure("COORDINATOR_LOAD_IN_PROGRESS", retriable=True)] * 3
    producer = Producer(begin_transaction=errors)
    opened(producer, monkeypatch).begin()
    assert producer.names.count("begin_transaction") == 4


@pytest.mark.parametrize(
    "error",
    [
        failure("COORDINATOR_LOAD_IN_PROGRESS"),
        failure("COORDINATOR_LOAD_IN_PROGRESS", retriable=True, fatal=True),
    ],
)
def test_what_may_not_be_retried_ends_it(
    monkeypatch: pytest.MonkeyPatch, error: KafkaException
) -> None:
    producer = Producer(begin_transaction=[error])
    with pytest.raises(IncompleteError, match="cannot begin: a reason"):
        opened(producer, monkeypatch).begin()
    assert producer.names.count("begin_transaction") == 1


def test_retries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = [failure("COORDINATOR_LOAD_IN_PROGRESS", retriable=True)] * 99
    producer = Producer(begin_transaction=forever)
    writer, clock = opened(producer, monkeypatch), 0.0

    def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    scripted = SimpleNamespace(monotonic=lambda: clock, sleep=sleep)
    monkeypatch.setattr(exactly_once, "time", scripted)
    with pytest.raises(IncompleteError):
        writer.begin()
    assert 1.0 <= clock < 1.2
    assert 10 <= producer.names.count("begin_transaction") <= 12


@pytest.mark.parametrize("call", ["flush", "send_offsets_to_transaction", "commit_transaction"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_TIMED_OUT", IncompleteError),
        ("_FENCED", FencedError),
        ("INVALID_PRODUCER_EPOCH", FencedError),
        ("INVALID_PRODUCER_ID_MAPPING", FencedError),
        ("MSG_SIZE_TOO_LARGE", RefusedError),
        ("TOPIC_AUTHORIZATION_FAILED", RefusedError),
    ],
)
def test_what_an_error_of_a_commit_proves(
    monkeypatch: pytest.MonkeyPatch, call: str, name: str, kind: type[EoctlError]
) -> None:
    """Before the last call nothing is committed; after it, only a refusal is certain."""
    producer = Producer(**{call: [failure(name)]})
    writer = opened(producer, monkeypatch)
    if call == "commit_transaction" and kind is IncompleteError:
        kind = UnverifiedError
    with pytest.raises(kind) as error:
        writer.commit({AT: CommittedPosition(7, "")})
    assert type(error.value) is kind
    assert producer.names[-1] == call
    assert error.value.where == "transactional id x"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "grant WRITE on the output topic"),
        ("GROUP_AUTHORIZATION_FAILED", "grant READ on group g"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant WRITE on transactional id x"),
    ],
)
def test_a_right_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    producer = Producer(produce=[failure(name)])
    with pytest.raises(RefusedError, match=f"cannot write to out: {name}") as refused:
        opened(producer, monkeypatch).send("out", 0, None, b"v")
    assert refused.value.remedy == f"{remedy}, then run it again"


@pytest.mark.parametrize("late", ["_FATAL", "_STATE"])
def test_after_an_error_the_first_one_is_named(monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    producer = Producer(produce=[failure(late)])
    writer = opened(producer, monkeypatch)
    writer.begin()
    producer.fails["begin_transaction"] = [failure("_FENCED")]
    with pytest.raises(FencedError):
        writer.send("out", 0, None, b"v")
    producer = Producer(produce=[ValueError("too many headers")])
    with pytest.raises(ValueError, match="too many headers"):
        opened(producer, monkeypatch).send("out", 0, None, b"v")
    assert "begin_transaction" not in producer.names


def test_an_abort_drops_what_is_queued_first(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    opened(producer, monkeypatch).abort()
    assert producer.calls[1:] == [("purge",), ("abort_transaction", 1.0)]
    producer = Producer(abort_transaction=[failure("_TIMED_OUT")])
    writer = opened(producer, monkeypatch)
    writer.abort()
    assert producer.names[1:] == ["purge", "abort_transaction", "purge"]
    writer.abort()  # it is closed
    writer.close()
    assert len(producer.names) == 4


def test_a_call_that_never_returns_ends_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    writer = opened(producer, monkeypatch)
    monkeypatch.setattr(exactly_once, "CALL_SECONDS", 0.01)
    monkeypatch.setattr(exactly_once, "_LATE_SECONDS", 0.01)
    stuck = threading.Event()
    monkeypatch.setattr(producer, "send_offsets_to_transaction", lambda *given: stuck.wait(1))
    with pytest.raises(IncompleteError, match="_TIMED_OUT"):
        writer.commit({})
    stuck.set()
    writer.close()
    assert "purge" not in producer.names  # it is not used again


def row(
    offset: int | None, *, metadata: str | None = "m\0", pending: bool = False
) -> GroupOffsetFacts:
    return GroupOffsetFacts("g", *AT, offset, metadata=metadata, leader_epoch=4, pending=pending)


def looked(
    monkeypatch: pytest.MonkeyPatch, *answers: tuple[list[GroupOffsetFacts], list[Missing]]
) -> Any:
    """What the group's last commits are where it answers so, the last one for ever."""
    left = list(answers)

    async def with_offsets(cluster: Any, groups: Any, partitions: Any) -> Any:
        assert groups == [GroupFacts("g", None)]
        rows, missing = left.pop(0) if len(left) > 1 else left[0]
        return [SimpleNamespace(offsets=rows)], missing

    monkeypatch.setattr(exactly_once, "with_offsets", with_offsets)
    monkeypatch.setattr(exactly_once, "_STABLE_SECONDS", 0)
    monkeypatch.setattr(exactly_once, "CALL_SECONDS", 0.05)
    cluster = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    return asyncio.run(last_committed(cluster, "g", [AT]))


def test_the_last_commits_and_whether_newer_ones_are_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = CommittedPosition(7, "m", 4)
    assert looked(monkeypatch, ([row(7)], [])) == ({AT: here}, False)
    assert looked(monkeypatch, ([row(7, pending=True)], [])) == ({AT: here}, True)
    assert looked(monkeypatch, ([row(0, metadata=None)], [])) == (
        {AT: CommittedPosition(0, "", 4)},
        False,
    )
    assert looked(monkeypatch, ([row(None)], [])) == ({}, False)


def test_commits_that_cannot_be_read_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Missing("group", "SILENT", "it is silent")
    assert looked(monkeypatch, ([], [silent]), ([row(7)], []))[0][AT].offset == 7
    with pytest.raises(IncompleteError, match="cannot be read: it is silent"):
        looked(monkeypatch, ([], [silent]))
