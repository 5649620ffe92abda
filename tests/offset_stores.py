"""What every store of offsets must do, once, for the tests of each of them."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from eoctl.stores.offsets.store import Contents, OffsetStore, StoredValues, Write, left
from recovery.errors import EoctlError, RefusedError
from recovery.facts import TopicPartition
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition

Open = Callable[[], AbstractAsyncContextManager[OffsetStore]]


def free() -> None:
    """A lock that is held."""


def position(
    topic_partition: TopicPartition, offset: int, output: int | None = None, **more: Any
) -> StoredPartition:
    outputs = () if output is None else (StoredOutput(topic="out", partition=7, offset=output),)
    start = StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=offset)
    return StoredPartition(input=start, output=outputs, **more)


def read(open_: Open) -> Contents:
    async def look() -> Contents:
        async with open_() as store:
            return await store.read()

    return asyncio.run(look())


def kept(open_: Open, at: StoredPartition) -> StoredValues:
    async def ask() -> StoredValues:
        async with open_() as store:
            return store.kept(at)

    return asyncio.run(ask())


def change(
    open_: Open,
    *changes: tuple[TopicPartition, StoredValues | None, StoredValues | None],
    held: Callable[[], None] = free,
    dissolve: bool = False,
) -> None:
    """write() of (partition, before, after)."""

    async def do() -> None:
        async with open_() as store:
            writes = [Write(*partition, before, after) for partition, before, after in changes]
            await store.write(writes, held, dissolve=dissolve)

    asyncio.run(do())


def there_and_back(
    open_: Open, partitions: tuple[TopicPartition, TopicPartition], **more: Any
) -> None:
    """Absent, written, read back, refused where it differs, put back to absence."""
    a, b = partitions
    output = more.pop("output", 5)
    empty = read(open_)
    assert empty.entries == ()
    first, second = position(a, 10, output, **more), position(b, 0, output, **more)
    at_a, at_b = kept(open_, first), kept(open_, second)
    change(open_, (a, None, at_a), (b, None, at_b))
    found = read(open_)
    assert found.exists
    assert {e.topic_partition: e.position for e in found.entries} == {a: first, b: second}
    assert {e.topic_partition: e.kept for e in found.entries} == {a: at_a, b: at_b}

    moved = position(a, 7, output, **more)
    at_moved = kept(open_, moved)
    with pytest.raises(RefusedError, match="the store holds something else") as refusal:
        change(open_, (a, None, at_moved))
    assert f"{a[0]}:{a[1]}" in refusal.value.sentence
    with pytest.raises(RefusedError, match="the store holds something else"):
        change(open_, (b, at_b, at_b), (a, at_moved, at_a))
    with pytest.raises(RefusedError, match="the store holds something else"):
        change(open_, (TopicPartition(a[0], a[1] + 40), at_a, at_moved))
    assert read(open_).entries == found.entries

    asked = []
    change(open_, (a, at_a, at_moved), held=lambda: asked.append(1))
    assert asked  # no request without the lock
    writes = [Write(*a, at_a, at_moved)]
    assert left(read(open_), writes) == ()
    assert left(found, writes) == tuple(writes)
    with pytest.raises(RefusedError):
        left(read(open_), [Write(*a, at_a, at_b)])

    before = read(open_).entries
    with pytest.raises(RefusedError, match="the lock is gone"):
        change(open_, (a, at_moved, at_a), (b, at_b, at_a), held=_lost)
    assert read(open_).entries == before

    change(open_, (a, at_moved, at_a))
    assert read(open_).entries == found.entries
    change(open_, (a, at_a, None))  # not dissolved: the store itself stays
    assert [e.topic_partition for e in read(open_).entries] == [b]
    change(open_, (b, at_b, None), dissolve=not empty.exists)
    assert read(open_).entries == ()
    assert read(open_).exists == empty.exists


def race(open_: Open, partition: TopicPartition, *, insert: bool) -> int:
    """Three processes change one position at once, to 1, 2 and 3: one wins, the others are refused
    and write nothing. Which one won. open_: can be pickled; insert: there is no entry before, else
    it is 0."""
    if not insert:
        change(open_, (partition, None, kept(open_, position(partition, 0))))
    context = multiprocessing.get_context("forkserver")
    start = time.time() + 2
    racing = [
        context.Process(target=_racer, args=(open_, partition, n, start), kwargs={"insert": insert})
        for n in range(1, 4)
    ]
    for process in racing:
        process.start()
    for process in racing:
        process.join(60)
    statuses = [process.exitcode for process in racing]
    assert sorted(-1 if s is None else s for s in statuses) == [0, 4, 4]
    return statuses.index(0) + 1


def _racer(
    open_: Open, partition: TopicPartition, offset: int, start: float, *, insert: bool
) -> None:
    before = None if insert else kept(open_, position(partition, 0))
    after = kept(open_, position(partition, offset))
    time.sleep(max(0.0, start - time.time()))
    try:
        change(open_, (partition, before, after))
    except RefusedError:
        raise SystemExit(4) from None


def _lost() -> None:
    raise EoctlError("the lock is gone")
