"""Whose batch stands at a transaction's start: read from logs of bytes that kafka-python wrote.

Only the broker is left out: chunks of `size` batches are given, as many as are asked for.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import start_batches as reading
from eoctl.kafka.read.chunks import ENOUGH, Chunk, Ended, Range
from eoctl.kafka.read.start_batches import StartBatches, one_per_partition
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.batches import batch_headers
from recovery.inspect.observation import OpenTransaction, StartBatch
from tests.unit.formats_build import COMMIT, END_TRANSACTION, Item, batch, seal

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))


def data(offset: int, pid: int = 7, epoch: int = 2, count: int = 1, time: int = 50) -> bytes:
    items = [Item(n, timestamp=time + n) for n in range(count)]
    return batch(offset, items, producer=(pid, epoch, 0), transactional=True)


def ending(offset: int, time: int, pid: int = 9) -> bytes:
    """A marker that was written at that time."""
    item = Item(0, timestamp=time, key=COMMIT, value=END_TRANSACTION)
    out = bytearray(batch(offset, [item], producer=(pid, 0, 0), transactional=True))
    out[22] |= 0x20
    return seal(out)


class Logs:
    """By partition: (first offset, last offset, bytes) of each batch. asked: each range read."""

    def __init__(self, logs: Mapping[TopicPartition, Sequence[bytes]], size: int = 1) -> None:
        self.logs, self.size = logs, size
        self.asked: list[tuple[TopicPartition, int, int]] = []
        self.error: str | None = None

    async def read_all(
        self, cluster: object, ranges: Sequence[Range], *, most_chunks: int, **options: Any
    ) -> Any:
        chunks: dict[TopicPartition, list[Chunk]] = {r.topic_partition: [] for r in ranges}
        assert len(chunks) == len(ranges), "one range of each partition at a time"
        ended: dict[TopicPartition, Ended] = {}
        for r in ranges:
            here = r.topic_partition
            self.asked.append((here, r.start, r.end))
            assert r.start < r.end
            mine = [
                (next(iter(batch_headers(b))), b)
                for b in self.logs.get(here, ())
                if next(iter(batch_headers(b))).last_offset >= r.start
                and next(iter(batch_headers(b))).base_offset < r.end
            ]
            at, position = 0, r.start
            while at < len(mine) and len(chunks[here]) < most_chunks and self.error is None:
                some = mine[at : at + self.size]
                behind = some[-1][0].last_offset + 1
                bytes_of = b"".join(b for _, b in some)
                chunks[here].append(Chunk(*here, position, behind, bytes_of, None, 99, 99, 0))
                at, position = at + self.size, behind
            if self.error is not None:
                ended[here] = Ended(*here, r.start, self.error, "it is silent")
            elif at < len(mine):
                ended[here] = Ended(*here, position, ENOUGH)
            else:
                ended[here] = Ended(*here, r.end)
        return chunks, ended


def read(
    logs: Logs,
    *starts: tuple[TopicPartition, int, int],
    begins: int = 0,
    high: int = 5_000,
    epochs: Mapping[OpenTransaction, int] | None = None,
) -> StartBatches:
    """starts: (partition, producer id, start offset)."""
    about = [OpenTransaction(*at, pid, start) for at, pid, start in starts]
    facts = {
        at: PartitionFacts(
            *at, "t", 1, 0, (1,), log_start_offset=begins, last_stable_offset=0, high_watermark=high
        )
        for at in (AT, OTHER)
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reading, "read_all", logs.read_all)
        return asyncio.run(reading.start_batches(NOBODY, about, facts, epochs or {}))


LOG = [
    data(0, 8),
    ending(1, 20),
    ending(2, 30),
    data(3, 8),
    data(4, 7, 5, 2, time=44),
    data(6, 7, 6),
    ending(7, 60),
    ending(8, 70),
]


@pytest.mark.parametrize("size", [1, 2, 99])
@pytest.mark.parametrize("start", [4, 5])
def test_a_start_batch_and_the_markers_around_it(
    monkeypatch: pytest.MonkeyPatch, size: int, start: int
) -> None:
    """The nearest on either side, of any producer; the epoch is of that batch, not of the last."""
    monkeypatch.setattr(reading, "PEEK_CHUNKS", 99)
    logs = Logs({AT: LOG}, size)
    found = read(logs, (AT, 7, start))
    assert found.unread == {}
    assert list(found.read.values()) == [StartBatch(7, 5, 44, marker_before=30, marker_after=60)]
    assert sorted(logs.asked) == [(AT, 0, start), (AT, start, start + 1000)]


def test_a_start_at_the_beginning_of_the_log() -> None:
    logs = Logs({AT: [data(0, 7, 1), ending(1, 20)]})
    found = read(logs, (AT, 7, 0), high=2)
    assert list(found.read.values()) == [StartBatch(7, 1, 50, marker_after=20)]
    assert logs.asked == [(AT, 0, 2)]


def test_times_of_a_topic_by_the_brokers_clock() -> None:
    items = [Item(0, timestamp=5), Item(1, timestamp=6)]
    stamped = batch(
        0, items, producer=(7, 1, 0), transactional=True, attributes=0x08, max_timestamp=99
    )
    [one] = read(Logs({AT: [stamped]}), (AT, 7, 0), high=2).read.values()
    assert one == StartBatch(7, 1, 99, append_time=True)


def test_starts_near_each_other_are_read_together() -> None:
    near, far = [0, 1000, 2000], [4001]
    log = [data(offset, 7, n) for n, offset in enumerate((*near, *far))]
    logs = Logs({AT: log, OTHER: [data(1000, 7, 9)]}, 99)
    found = read(logs, *((AT, 7, at) for at in (4001, 0, 2000, 1000)), (OTHER, 7, 1000))
    epochs = {(w.partition, w.start_offset): b.producer_epoch for w, b in found.read.items()}
    assert epochs == {(0, 0): 0, (0, 1000): 1, (0, 2000): 2, (0, 4001): 3, (1, 1000): 9}
    assert sorted(logs.asked) == [
        (AT, 0, 3000),
        (AT, 3001, 4001),
        (AT, 4001, 5000),
        (OTHER, 0, 1000),
        (OTHER, 1000, 2000),
    ]


def test_a_start_that_the_first_look_did_not_reach_is_read_alone() -> None:
    log = [data(offset, 7, offset) for offset in range(6)]
    logs = Logs({AT: log})
    found = read(logs, (AT, 7, 0), (AT, 7, 5))
    assert {w.start_offset: b.producer_epoch for w, b in found.read.items()} == {0: 0, 5: 5}
    assert found.unread == {}
    assert (AT, 5, 1005) in logs.asked


def test_a_log_without_a_batch_at_the_start() -> None:
    """Compaction took it, or the log ends below it; no answer is another thing."""
    for log in ([data(0, 8), data(9, 7)], [data(0, 8)], []):
        found = read(Logs({AT: log}), (AT, 7, 4))
        [missing] = found.unread.values()
        assert (missing.error, found.read) == ("NO_SUCH_BATCH", {})
        assert "from offset 4: the log has no batch with that offset" in missing.detail
    silent = Logs({AT: LOG})
    silent.error = "SILENT"
    [missing] = read(silent, (AT, 7, 4)).unread.values()
    assert (missing.error, missing.broker) == ("SILENT", 1)
    assert missing.topic_partition == AT
    assert missing.detail.endswith("it is silent")


def test_a_start_that_was_deleted_has_its_first_batch_that_is_left() -> None:
    """Of that producer, with records, in a transaction; the marker after it, not before."""
    log = [
        ending(10, 20, pid=7),
        data(11, 8),
        batch(12, [Item(0)], producer=(7, 3, 0)),  # plain
        data(13, 7, 4, 2, time=33),
        data(15, 7, 5),
        ending(16, 60),
    ]
    logs = Logs({AT: log}, 2)
    found = read(logs, (AT, 7, 4), (AT, 8, 2), begins=10, high=17)
    by_producer = {w.producer_id: b for w, b in found.read.items()}
    assert by_producer == {
        7: StartBatch(7, 4, 33, marker_after=60, survivor=13),
        8: StartBatch(8, 2, 50, marker_after=60, survivor=11),
    }
    assert logs.asked == [(AT, 10, 17)] * 2


def test_what_is_left_begins_at_the_log_start_at_the_earliest() -> None:
    """A batch that reaches over it: DeleteRecords moves the start within one."""
    found = read(Logs({AT: [data(8, 7, 4, 5)]}), (AT, 7, 9), begins=10, high=13)
    [one] = found.read.values()
    assert one.survivor == 10


@pytest.mark.parametrize("known", [True, False])
def test_a_transaction_of_which_no_batch_is_left(*, known: bool) -> None:
    """Then only its leader's word gives an epoch, if the rest of the log was read to its end."""
    about = OpenTransaction(*AT, 7, 4)
    epochs = {about: 6} if known else {}
    found = read(Logs({AT: [data(10, 8)]}), (AT, 7, 4), begins=10, high=11, epochs=epochs)
    if known:
        assert found.read == {about: StartBatch(7, 6, deleted=True)}
    else:
        assert found.unread[about].detail.endswith("the log begins at 10")
    nothing_left = read(Logs({}), (AT, 7, 4), begins=11, high=11, epochs=epochs)
    assert (about in nothing_left.read) is known


def test_a_log_that_was_not_read_to_its_end_shows_no_deletion() -> None:
    about = OpenTransaction(*AT, 7, 4)
    logs = Logs({AT: [data(10 + n, 8) for n in range(30)]})
    found = read(logs, (AT, 7, 4), begins=10, high=40, epochs={about: 6})
    assert found.read == {}
    assert found.unread[about].error == "NO_SUCH_BATCH"
    logs.error = "SILENT"
    assert read(logs, (AT, 7, 4), begins=10, high=40, epochs={about: 6}).read == {}


def test_rounds_have_each_partition_once() -> None:
    a, b = OpenTransaction(*AT, 1, 1), OpenTransaction(*AT, 2, 2)
    c, d = OpenTransaction(*OTHER, 3, 3), OpenTransaction(*AT, 4, 4)
    assert one_per_partition([a, b, c, d]) == [[a, c], [b], [d]]
    assert one_per_partition([]) == []
