"""One partition of the state log read time and again, with a real cache: what is read, and known.

The log is bytes as coordinators write them; what a leader would give of it is scripted.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import state_logs as reading
from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.state_logs import noted_state_logs, state_logs
from eoctl.stores.history_cache import StateCache
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.inspect.history import StateLog
from tests.unit.formats.test_state_log import key, value
from tests.unit.formats_build import Item, batch

HOME = TopicPartition("__transaction_state", 4)
LEADER = PartitionMetadata(*HOME, 1, 5, (1,), None)


@pytest.fixture(autouse=True)
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))
    return tmp_path


def one(offset: int, name: str = "a", *, epoch: int = 3, attributes: int = 0) -> bytes:
    """A batch of one record of an id, of producer 7."""
    item = Item(0, 0, key(name), value(7, offset, 1))
    return batch(offset, [item], leader_epoch=epoch, attributes=attributes)


class Log(Cluster):
    """The log of a partition, by offset. read: from where it was read, each time."""

    def __init__(self, *offsets: int) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
        self.cluster_id = "cluster"
        self.batches = {offset: one(offset) for offset in offsets}
        self.start, self.end = 0, 0
        self.high: int | None = None
        self.error: str | None = None
        self.fails: str | None = None
        self.epoch_ends: dict[TopicPartition, int | None] = {}
        self.asked_epochs: list[Any] = []
        self.reads: list[int] = []

    async def metadata(self, topics: Any = None) -> ClusterMetadata:
        topic = TopicMetadata(HOME.topic, "id", True, (LEADER,), None)
        return ClusterMetadata("cluster", 1, {}, {HOME.topic: topic})

    def read(
        self,
        ids: Sequence[str] | None = ("a",),
        *,
        cache: bool = True,
        noted: bool = False,
        newest: int | None = None,
    ) -> StateLog:
        self.high = max(self.batches, default=-1) + 1
        given = StateCache("cluster", "id") if cache else None
        ask = noted_state_logs if noted else state_logs
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(reading, "read", self._read)
            monkeypatch.setattr(reading, "record_epoch_ends", self._epoch_ends)
            monkeypatch.setattr(collect, "partition_offsets", self._offsets)
            [found] = asyncio.run(ask(self, [LEADER], (), ids, given, newest))
        return found

    async def _offsets(self, *given: Any) -> tuple[list[PartitionFacts], list[Missing]]:
        facts = PartitionFacts(*HOME, "id", 1, 5, (1,), self.start, self.high, self.high)
        if self.error is not None:
            facts = PartitionFacts(*HOME, error=self.error)
        return [facts], []

    async def _epoch_ends(self, cluster: Any, epochs: Any) -> dict[TopicPartition, int | None]:
        self.asked_epochs.append(epochs)
        return self.epoch_ends

    async def _read(self, cluster: Any, ranges: Sequence[Range]) -> AsyncIterator[Chunk | Ended]:
        for r in ranges:
            assert r.start < r.end
            self.reads.append(r.start)
            at = r.start
            for offset, data in sorted(self.batches.items()):
                if r.start <= offset < r.end:
                    yield Chunk(*HOME, at, offset + 1, data, None, r.end, r.end, 0)
                    at = offset + 1
            yield Ended(*HOME, at if self.fails else r.end, self.fails)


def offsets(log: StateLog) -> list[int]:
    return [record.offset for record in log.records]


@pytest.mark.parametrize("cache", [False, True])
def test_a_first_read_is_from_the_log_start(*, cache: bool) -> None:
    log = Log(2, 3, 5)
    log.start = 2
    found = log.read(cache=cache)
    assert (offsets(found), found.end, found.cached_until) == ([2, 3, 5], 6, 0)
    assert (found.leader_epoch, found.error, found.former) == (5, None, ())
    assert log.reads == [2]


def test_a_second_read_begins_at_the_last_batch_that_is_known() -> None:
    log = Log(0, 1, 2)
    log.read()
    log.batches |= {3: one(3), 4: one(4, "b")}
    found = log.read()
    assert (offsets(found), found.end, found.cached_until) == ([0, 1, 2, 3], 5, 3)
    assert log.reads == [0, 2]
    assert log.asked_epochs == []
    again = log.read()  # nothing came
    assert (offsets(again), again.cached_until) == ([0, 1, 2, 3], 5)
    assert log.reads == [0, 2, 4]


def test_another_batch_in_its_place_is_another_log() -> None:
    """What the cache knew of the former one is kept beside it."""
    log = Log(0, 1, 2)
    log.read()
    log.batches = {0: one(0), 2: one(2, "b"), 3: one(3)}
    found = log.read(["a", "b"])
    assert (offsets(found), found.cached_until) == ([0, 2, 3], 0)
    [former] = found.former
    assert offsets(former) == [0, 1, 2]
    assert log.reads == [0, 2, 0]


@pytest.mark.parametrize(
    ("end", "continues"), [(9, True), (3, True), (2, False), (1, False), (None, False)]
)
@pytest.mark.parametrize("how", ["compacted", "with a horizon", "deleted", "cut"])
def test_where_the_last_batch_is_gone_its_leader_epoch_tells(
    how: str, end: int | None, *, continues: bool
) -> None:
    """end: where the leader says that the epoch of the batch at 2 ends."""
    log = Log(0, 1, 2)
    log.read()
    log.epoch_ends = {HOME: end}
    del log.batches[2]
    log.batches[5] = one(5)
    if how == "with a horizon":  # compaction rewrote it
        log.batches[2] = one(2, attributes=0x40)
    if how == "deleted":
        log.batches, log.start = {5: one(5)}, 4
    if how == "cut":
        log.batches = {0: one(0)}
    found = log.read()
    there = sorted(log.batches)
    if continues and how != "cut":
        assert set(offsets(found)) >= {0, 1, 2, 5}
        assert found.former == ()
        assert found.cached_until == 3
    if not continues:
        assert offsets(found) == there
        assert [offsets(f) for f in found.former] == [[0, 1, 2]]
        assert found.cached_until == 0
    [asked] = log.asked_epochs
    assert asked == {HOME: (1, 5, 3)}


def test_a_leader_that_does_not_tell_leaves_the_log_unread() -> None:
    """What is cached is kept for the next look."""
    log = Log(0, 1, 2)
    log.read()
    del log.batches[2]
    log.batches[3] = one(3)
    found = log.read()
    assert (found.error, offsets(found)) == ("NOT_SEEN", [])
    log.epoch_ends = {HOME: 9}
    assert set(offsets(log.read())) >= {0, 1, 2, 3}


def test_what_cannot_be_read_is_an_error_not_an_empty_log() -> None:
    log = Log(0, 1)
    log.error = "LEADER_NOT_AVAILABLE"
    assert log.read().error == "LEADER_NOT_AVAILABLE"
    log.error, log.fails = None, "SILENT"
    assert log.read().error == "SILENT"
    log.fails = None
    log.batches[1] = log.batches[1][:-1] + b"\xff"
    damaged = log.read()
    assert "CRC" in str(damaged.error)
    assert offsets(damaged) == []


def test_a_damaged_cache_is_read_again_from_the_log(cached: Path) -> None:
    log = Log(0, 1, 2)
    log.read()
    log.read()
    files = [path for path in cached.rglob("4.*") if path.is_file()]
    kept = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(kept.read_bytes())
    content[70] ^= 0xFF
    kept.write_bytes(content)
    found = log.read()
    assert (offsets(found), found.error) == ([0, 1, 2], None)


def test_an_empty_log_is_read_without_a_question() -> None:
    log = Log()
    found = log.read()
    assert (offsets(found), found.end, found.error) == ([], 0, None)
    assert log.reads == []


@pytest.mark.parametrize(("ids", "newest", "expected"), [(None, None, [0, 1, 2]), (["a"], 1, [2])])
def test_what_is_asked_for(ids: list[str] | None, newest: int | None, expected: list[int]) -> None:
    log = Log(0, 1, 2)
    log.batches[1] = one(1, "b")
    assert offsets(log.read(ids, newest=newest)) == expected
    assert asyncio.run(state_logs(log, [], (), None)) == []


def test_the_topics_are_noted_with_the_ends_that_were_read() -> None:
    log = Log(0, 1, 2)
    log.read(noted=True)
    assert StateCache("cluster", "id").noted_ends() == {4: 3}
    log.read()
    assert StateCache("cluster", "id").noted_ends() == {4: 3}
