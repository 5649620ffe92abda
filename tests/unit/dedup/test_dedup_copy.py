"""What a copy may take, and when its transactions end, without a broker."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from eoctl.engine import dedup_task
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.dedup import copying
from eoctl.operations.dedup.copying import DedupOperation, DedupRun, at_rate, part_of, plan
from eoctl.settings.context import Context
from recovery.change.plan import Plan
from recovery.dedup.dedup_request import DedupJob, DedupPart, DedupRequest
from recovery.dedup.repeats import Deduplicator, Tally, visible
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.formats.columns import OPEN, ColumnBatch
from recovery.shared.record_ids import parse_record_id
from recovery.values import replace
from tests.unit.formats_build import decoded


def batch(keys: list[bytes], timestamp: int = 1, headers: list[Any] | None = None) -> ColumnBatch:
    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for key in keys:
        builder.append(timestamp=timestamp, key=key, value=b"", headers=headers or [])
    builder.close()
    return decoded(builder.buffer(), None)


def test_a_record_of_an_open_transaction_is_not_passed_over() -> None:
    records = batch([b"a"])
    opened = replace(records.batches, outcome=np.full(1, OPEN, np.int8))
    with pytest.raises(RefusedError, match="its transaction is open"):
        visible(replace(records, batches=opened))


def test_what_a_copy_would_change_is_refused() -> None:
    with pytest.raises(RefusedError, match="1970"):
        visible(batch([b"a"], timestamp=0))
    assert len(visible(batch([b"a"], headers=[("café", b"1")]))) == 1


class Noted:
    """Notes what a writer is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.positions: list[Any] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def send(self, *_given: Any, **_named: Any) -> None:
        self.calls.append("send")

    def commit(self, positions: dict[Any, Any]) -> None:
        self.calls += [position.offset for position in positions.values()]
        self.positions += positions.values()


def test_a_transaction_does_not_grow_old_over_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_task, "TRANSACTION_SECONDS", -1.0)
    request = DedupRequest("in", "out", parse_record_id("key"), "job")
    noted, memory = Noted(), Deduplicator("in", 0, request.by)
    part, told = DedupPart(partition=0, begin=0, start=0, end=9), list[str]()
    copy = dedup_task._Copy(noted, DedupJob(request, ""), part, lambda: None, told.append)  # type: ignore[arg-type]
    copy.send(batch([b"a"]), 1, memory)
    assert noted.calls == ["begin", "send", 1]
    monkeypatch.setattr(dedup_task, "TRANSACTION_SECONDS", 1000.0)
    copy.send(batch([b"b", b"a"]), 3, memory)
    copy._until = 0.0
    copy.send(batch([b"a", b"b"]), 5, memory)
    assert noted.calls == ["begin", "send", 1, "begin", "send", 5]


def test_a_commit_says_how_many_records_lie_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_task, "TRANSACTION_RECORDS", 2)
    request = DedupRequest("in", "out", parse_record_id("key"), "job")
    noted, memory = Noted(), Deduplicator("in", 0, request.by)
    job, part = DedupJob(request, ""), DedupPart(partition=0, begin=0, start=0, end=9)
    copy = dedup_task._Copy(noted, job, part, lambda: None, lambda point: None)  # type: ignore[arg-type]
    copy.send(batch([b"a", b"a", b"b", b"c", b"a"]), 5, memory)
    copy.commit(5, memory.tally.records)
    found = [(p.offset, job.beside(p.metadata, "").seen) for p in noted.positions]
    assert found == [(3, 3), (5, 5)]


def test_a_plan_is_approved_with_its_rule() -> None:
    def made(by: str, job: str = "job") -> Plan:
        request = DedupRequest("in", "out", parse_record_id(by), job)
        part = DedupPart(partition=0, begin=0, start=0, end=9)
        found = DedupRun(request, "c", {"in": ["a", 1], "out": ["b", 1]}, (part,))
        return plan(found, [Tally()], Context(None, {}, ()))

    hashes = {made(by, job).sha256 for by in ("key", "value") for job in ("job", "other")}
    assert len(hashes) == 4
    once = made("key")
    assert part_of(once.steps[0]) == DedupPart(partition=0, begin=0, start=0, end=9)
    faster = at_rate(once, DedupRequest("in", "out", parse_record_id("key"), "job", max_rate=1e6))
    assert DedupRequest.of(faster.details["wish"]).max_rate == 1e6
    assert (faster.sha256, faster.same_change(once)) == (once.sha256, True)


REFUSED = RefusedError("it is no copy", where="in:0", remedy="mend it")


@pytest.mark.parametrize(
    ("refused_at", "decided", "error"),
    [
        (None, True, None),
        (None, False, IncompleteError("a transaction is open", where="job-eoctl-dedup")),
        (0, True, REFUSED),
        (1, True, UnverifiedError(REFUSED.what, where=REFUSED.where, remedy=REFUSED.remedy)),
    ],
)
def test_a_copy_is_done_once_its_position_is_decided(
    monkeypatch: pytest.MonkeyPatch, refused_at: int | None, decided: bool, error: Exception | None
) -> None:
    """The coordinator answers a commit before the group's position is visible. And once one is
    committed, no refusal says that nothing changed."""
    calls: list[Any] = []

    class Writer:
        def __init__(self, *given: Any, **named: Any) -> None:
            pass

        def open(self) -> None:
            calls.append("open")

        def close(self) -> None:
            calls.append("close")

    async def left(*given: Any) -> DedupPart:
        calls.append("left")
        return DedupPart(partition=0, begin=0, start=0, end=9)

    async def copy(*given: Any, on_point: Callable[[str], None], **named: Any) -> Tally:
        calls.append("copy")
        if refused_at is not None:
            for point in ("batch", *["committed"] * refused_at):
                on_point(point)
            raise REFUSED
        return Tally(records=9)

    async def committed(cluster: Cluster, group: str, topic_partitions: Any) -> Any:
        calls.append((group, topic_partitions))
        if not decided:
            raise IncompleteError("a transaction is open", where=group)

    monkeypatch.setattr(copying, "Writer", Writer)
    monkeypatch.setattr(copying, "committed", committed)
    monkeypatch.setattr(dedup_task, "left", left)
    monkeypatch.setattr(dedup_task, "copy", copy)
    request = DedupRequest("in", "out", parse_record_id("key"), "job")
    context = Context(None, {"bootstrap.servers": "127.0.0.1:1"}, ())
    part = DedupPart(partition=0, begin=0, start=0, end=9)
    run = DedupRun(request, "c", {"in": ["a", 1], "out": ["b", 1]}, (part,))
    made = plan(run, [Tally()], context)
    cluster = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
    performed = DedupOperation(cluster, context, made, None).perform(made.steps[0], lambda: None)
    if error is None:
        assert asyncio.run(performed) == asdict(Tally(records=9))
    else:
        with pytest.raises(type(error)) as raised:
            asyncio.run(performed)
        assert vars(raised.value) == vars(error)
    asked = [(request.group, [("in", 0)])] if refused_at is None else []
    assert calls == ["open", "left", "copy", *asked, "close"]


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (None, RefusedError, "no such topic"),
        ("UNKNOWN_TOPIC_OR_PARTITION", RefusedError, "no such topic"),
        ("TOPIC_AUTHORIZATION_FAILED", IncompleteError, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_dedup_needs_its_topic(error: str | None, kind: type[EoctlError], why: str) -> None:
    """error: with which the topic is described; None: it is not described at all."""

    class Topics(Cluster):
        async def metadata(self, topics: Any = None) -> ClusterMetadata:
            partition = PartitionMetadata("out", 0, 1, 0, (1,), None)
            found = {"out": TopicMetadata("out", "a", False, (partition,), None)}
            if error is not None:
                found["in"] = TopicMetadata("in", None, False, (), error)
            return ClusterMetadata("c", 1, {}, found)

    cluster = Topics(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
    request = DedupRequest("in", "out", parse_record_id("key"), "job")
    with pytest.raises(kind, match=why) as refused:
        asyncio.run(copying.find(cluster, request))
    assert refused.value.where == "in"
