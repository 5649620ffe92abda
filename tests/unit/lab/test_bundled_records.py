"""What `bundle create --with-records` takes along, and when it takes nothing."""

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

import pytest

from eoctl.kafka.read.fetch import Chunk, Ended, Range
from eoctl.operations.dashboard import bundling
from eoctl.operations.dashboard.bundling import records_of
from eoctl.settings.context import Context
from recovery.errors import RefusedError
from recovery.facts import Missing, PartitionFacts
from recovery.formats.batches import batch_headers
from recovery.inspect.observation import Settings
from tests.unit.formats_build import COMMIT, Item, batch, marker

HELD = PartitionFacts("orders", 0, last_stable_offset=5, high_watermark=12)
LOG = [
    batch(3, [Item(0), Item(1)]),
    batch(5, [Item(0), Item(1)]),
    marker(7, 4, COMMIT),
    batch(8, [Item(0), Item(1)]),
    batch(10, [Item(0), Item(1), Item(2)]),  # its end was written after the offsets were read
]


def chunk(data: bytes) -> Chunk:
    return Chunk("orders", 0, 5, 13, data, None, 13, 5, 0)


def taken(
    monkeypatch: pytest.MonkeyPatch, most: int, chunks: Sequence[Chunk], error: str | None = None
) -> tuple[list[tuple[int, int, int, list[int]]], list[Missing]]:
    async def fetched(cluster: object, ranges: Sequence[Range], **options: Any) -> Any:
        [wanted] = ranges
        assert (wanted.start, wanted.end) == (5, 12)
        for each in chunks:
            yield each
        yield Ended("orders", 0, 13, error, "no" if error else "")

    monkeypatch.setattr(bundling, "read", fetched)
    return went([IDLE, HELD], most)


IDLE = PartitionFacts("idle", 0, last_stable_offset=9, high_watermark=9)


def went(
    partitions: list[PartitionFacts], most: int
) -> tuple[list[tuple[int, int, int, list[int]]], list[Missing]]:
    """Return the bundle's rows, each with the base offsets of its batches, and what is missing."""
    rows, missing = asyncio.run(records_of(None, partitions, most))  # type: ignore[arg-type]
    return [
        (
            r.first_offset,
            r.end_offset,
            r.records,
            [h.base_offset for h in batch_headers(b64decode(r.data))],
        )
        for r in rows
    ], list(missing)


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (0, []),
        (1, [(5, 7, 2, [5])]),
        (3, [(5, 10, 4, [5, 7, 8])]),
        (99, [(5, 13, 7, [5, 7, 8, 10])]),
    ],
)
def test_complete_batches_from_the_lso_on(
    monkeypatch: pytest.MonkeyPatch, most: int, wanted: list[object]
) -> None:
    overlapping = [chunk(b"".join(LOG[:3])), chunk(b"".join(LOG[1:]))]
    assert taken(monkeypatch, most, overlapping) == (wanted, [])


def test_what_cannot_be_read_or_does_not_fit_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, [refused] = taken(monkeypatch, 9, [], "TOPIC_AUTHORIZATION_FAILED")
    assert refused.error == "TOPIC_AUTHORIZATION_FAILED"
    monkeypatch.setattr(bundling, "MOST_BYTES", 10)
    rows, [large] = taken(monkeypatch, 9, [chunk(b"".join(LOG))])
    assert (rows, large.error, large.topic) == ([], "TOO_LARGE", "orders")


def endless(read: list[int], *data: bytes) -> Any:
    """Return a reader of a partition without end, which notes its chunks."""

    async def reading(cluster: object, ranges: Sequence[Range], **options: Any) -> Any:
        for each in data:
            read.append(len(each))
            yield chunk(each)
        pytest.fail("it reads on")

    return reading


def test_it_reads_no_more_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(bundling, "read", endless(read, LOG[1], b"".join(LOG[2:4]), LOG[4]))
    assert went([HELD], 3) == ([(5, 10, 4, [5, 7, 8])], [])
    assert len(read) == 2


def test_what_a_bundle_has_no_room_for_is_said_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As bytes of the log: base64 takes a third more."""
    read: list[int] = []
    monkeypatch.setattr(bundling, "read", endless(read, LOG[1], LOG[2], LOG[3]))
    monkeypatch.setattr(bundling, "MOST_BYTES", len(LOG[1]) + len(LOG[2]))
    other = PartitionFacts("payments", 1, last_stable_offset=5, high_watermark=12)
    rows, [short, none] = went([HELD, other], 99)
    assert rows == [(5, 8, 2, [5, 7])]
    assert (short.error, short.topic, none.error, none.topic) == (
        "TOO_LARGE",
        "orders",
        "TOO_LARGE",
        "payments",
    )
    assert "up to offset 8" in (short.detail or "")
    assert len(read) == 3


def test_a_context_that_shows_no_records_gives_none_away() -> None:
    context = Context(None, {"bootstrap.servers": "here:1"}, (), show_records=False)
    collection = bundling.collect(
        None,  # type: ignore[arg-type]
        context,
        Settings(),
        pause=0.1,
        history=False,
        with_records=1,
    )
    with pytest.raises(RefusedError, match="show_records = false"):
        asyncio.run(collection)
