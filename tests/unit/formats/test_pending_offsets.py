"""Offsets in open transactions on `__consumer_offsets`: which of them a marker would make count.

The batches are built here, by Kafka's OffsetCommitKey.json and OffsetCommitValue.json.
"""

import struct

import pytest

from recovery.formats.consumer_offsets import OffsetKey, pending_offsets
from recovery.formats.reader import CorruptError
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

HOSTILE = "g\x1b[31m [/x] é"
VALUE = b"?"
"""A value that cannot be decoded."""


def text(words: str) -> bytes:
    encoded = words.encode()
    return struct.pack(">h", len(encoded)) + encoded


def key(group: str, partition: int = 0) -> bytes:
    return b"\0\1" + text(group) + text("in") + struct.pack(">i", partition)


def value(offset: int, epoch: int = -1, metadata: str = "") -> bytes:
    return struct.pack(">hqi", 3, offset, epoch) + text(metadata) + struct.pack(">q", 1)


def commits(at: int, *items: tuple[str, int, bytes | None], pid: int = 7, epoch: int = 2) -> bytes:
    """A batch of commits, each of a group on a partition of `in`; pid -1: outside transactions."""
    rows = [Item(n, key=key(g, p), value=v) for n, (g, p, v) in enumerate(items)]
    producer = (pid, epoch, 0) if pid >= 0 else (-1, -1, -1)
    return batch(at, rows, producer=producer, transactional=pid >= 0)


def found(*buffers: bytes) -> list[tuple[str, int, int | None, int, bool]]:
    """Group, partition, offset, producer id and whether it is overtaken, of each."""
    return [
        (p.key.group, p.key.partition, p.offset, p.producer_id, p.overtaken)
        for p in pending_offsets(buffers)
    ]


def test_the_newest_value_of_each_key_and_producer_counts() -> None:
    read = [
        commits(0, ("a", 0, value(5)), ("b", 0, value(6)), ("a", 1, value(7))),
        commits(3, ("a", 0, value(9)), (HOSTILE, 0, value(1)))
        + commits(5, ("a", 0, value(8)), pid=8),
    ]
    assert found(*read) == [
        ("b", 0, 6, 7, False),
        ("a", 1, 7, 7, False),
        ("a", 0, 9, 7, False),
        (HOSTILE, 0, 1, 7, False),
        ("a", 0, 8, 8, False),
    ]


def test_all_that_a_commit_says() -> None:
    [p] = pending_offsets([commits(4, ("a", 3, value(50, 6, "me")), epoch=9)])
    assert (p.key, p.at) == (OffsetKey("a", "in", 3), 4)
    assert (p.offset, p.leader_epoch, p.metadata) == (50, 6, "me")
    assert (p.producer_id, p.producer_epoch, p.deleted) == (7, 9, False)
    [bare] = pending_offsets([commits(4, ("a", 3, value(50)))])
    assert (bare.leader_epoch, bare.metadata) == (None, None)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_what_a_marker_has_ended_is_not_pending(kind: bytes) -> None:
    ended = commits(0, ("a", 0, value(5))) + marker(1, 7, kind)
    assert found(ended) == []
    assert found(ended, commits(2, ("a", 0, value(6)))) == [("a", 0, 6, 7, False)]


def test_a_later_commit_that_counts_overtakes_it() -> None:
    """Kafka keeps the commit that is higher in the log, whichever ends last."""
    pending, plain = commits(1, ("a", 0, value(5))), ("a", 0, value(3))
    assert found(commits(0, plain, pid=-1), pending) == [("a", 0, 5, 7, False)]
    assert found(pending, commits(2, plain, pid=-1)) == [("a", 0, 5, 7, True)]
    other = commits(2, plain, pid=8)
    assert found(pending, other) == [("a", 0, 5, 7, False), ("a", 0, 3, 8, False)]
    assert found(pending, other, marker(3, 8, COMMIT)) == [("a", 0, 5, 7, True)]
    assert found(pending, other, marker(3, 8, ABORT)) == [("a", 0, 5, 7, False)]
    before = commits(0, plain, pid=8)
    assert found(before, pending, marker(2, 8, COMMIT)) == [("a", 0, 5, 7, False)]
    elsewhere = commits(2, ("a", 1, value(3)), ("b", 0, value(3)), pid=-1)
    assert found(pending, elsewhere) == [("a", 0, 5, 7, False)]


def test_an_older_commit_of_another_producer_does_not_hide_a_newer_plain_one() -> None:
    log = [
        commits(0, ("a", 0, value(1)), pid=8),
        commits(1, ("a", 0, value(5))),
        commits(2, ("a", 0, value(3)), pid=-1),
        marker(3, 8, COMMIT),
    ]
    assert found(*log) == [("a", 0, 5, 7, True)]


def test_deleted_is_not_unknown() -> None:
    gone, unread = pending_offsets([commits(0, ("a", 0, None), ("b", 0, VALUE))])
    assert (gone.offset, gone.deleted) == (None, True)
    assert (unread.offset, unread.deleted) == (None, False)
    [newer] = pending_offsets([commits(0, ("a", 0, b"\0\5rest"))])
    assert (newer.offset, newer.deleted) == (None, False)


def test_other_records_hold_no_offset() -> None:
    group = [Item(0, key=b"\0\2" + text("a")), Item(1, key=None), Item(2, key=b"\0\3" + text("a"))]
    assert found(batch(0, group, producer=(7, 2, 0), transactional=True)) == []
    assert found() == []


def test_a_damaged_key_is_no_answer() -> None:
    cut = batch(0, [Item(0, key=key("a")[:-1])], producer=(7, 2, 0), transactional=True)
    with pytest.raises(CorruptError):
        pending_offsets([cut])
