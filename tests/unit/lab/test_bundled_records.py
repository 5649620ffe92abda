"""What `bundle create --with-records` and `--for` take along, and when they take nothing."""

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.read.fetch import Chunk, Ended, Range
from eoctl.operations.dashboard import bundled_records, bundling
from eoctl.operations.dashboard.bundled_records import planned_of, records_of
from eoctl.settings.context import Context
from recovery.errors import RefusedError
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, PartitionFacts
from recovery.formats.batches import batch_headers
from recovery.formats.records import records
from recovery.inspect.observation import Settings
from recovery.restart.decision import InputDecision, OutputDecision, RestartPlan
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

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

    monkeypatch.setattr(bundled_records, "read", fetched)
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
    monkeypatch.setattr(bundled_records, "MOST_BYTES", 10)
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
    monkeypatch.setattr(bundled_records, "read", endless(read, LOG[1], b"".join(LOG[2:4]), LOG[4]))
    assert went([HELD], 3) == ([(5, 10, 4, [5, 7, 8])], [])
    assert len(read) == 2


def test_what_a_bundle_has_no_room_for_is_said_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As bytes of the log: base64 takes a third more."""
    read: list[int] = []
    monkeypatch.setattr(bundled_records, "read", endless(read, LOG[1], LOG[2], LOG[3]))
    monkeypatch.setattr(bundled_records, "MOST_BYTES", len(LOG[1]) + len(LOG[2]))
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


PAYLOAD = [Item(n, key=b"a key", value=b"a value") for n in range(3)]
PLANNED = [
    batch(3, PAYLOAD, producer=(7, 2, 40), transactional=True),
    marker(6, 7, COMMIT),
]


def planned(
    monkeypatch: pytest.MonkeyPatch,
    log: Sequence[bytes] = PLANNED,
    log_end: int | None = None,
    unseen: Sequence[str] = (),
    **decided: Any,
) -> tuple[list[Range], list[bytes]]:
    """Return what is read for a restart plan of a log that starts at 4, and what is taken."""
    wanted: list[Range] = []

    async def fetched(cluster: object, ranges: Sequence[Range], **options: Any) -> Any:
        wanted.extend(ranges)
        [asked] = ranges
        for data in log:
            [h] = batch_headers(data)
            if h.last_offset >= asked.start and h.base_offset < asked.end:
                yield chunk(data)
        yield Ended("orders", 0, asked.end, None, "")

    parts = {"inputs": (), "outputs": (), "state": (), "checks": (), "store": ()} | decided
    decision = RestartPlan("app", "as-of", guarantee="at-least-once", because="", **parts)
    monkeypatch.setattr(bundled_records, "read", fetched)
    monkeypatch.setattr(bundled_records, "decision_of", lambda plan: decision)
    facts = [PartitionFacts("orders", 0, log_start_offset=4, high_watermark=log_end)]
    plan = SimpleNamespace(kind="restart")
    rows, missing = asyncio.run(planned_of(None, plan, facts))  # type: ignore[arg-type]
    assert [m.topic for m in missing] == [*unseen]
    return wanted, [b64decode(row.data) for row in rows]


def went_to(current: int | None, restart: int) -> InputDecision:
    return InputDecision("orders", 0, current, restart, "none", None)


@pytest.mark.parametrize(
    ("move", "start"),
    [
        (went_to(9, 6), 5),  # back: the record before, whose leader epoch is checked
        (went_to(5, 7), 4),  # ahead: what is left out too
        (went_to(None, 6), 5),
        (went_to(2, 6), 4),  # no more than there is
        (went_to(2, 9_000_000), 8_998_999),  # its end says that records are left out
    ],
)
def test_a_move_takes_what_it_stands_on(
    monkeypatch: pytest.MonkeyPatch, move: InputDecision, start: int
) -> None:
    [wanted], _ = planned(monkeypatch, inputs=(move,))
    assert (wanted.start, wanted.end) == (start, move.restart_offset)


def test_nothing_is_taken_of_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    other = InputDecision("gone", 0, 3, 2, "rewind", None)
    moves = (went_to(5, 3), went_to(None, 4), other)
    assert planned(monkeypatch, unseen=["gone"], inputs=moves) == ([], [])
    remedy = SimpleNamespace(kind="txn-abort")
    assert asyncio.run(planned_of(None, remedy, [HELD])) == ((), ())  # type: ignore[arg-type]


def offsets_of(data: bytes) -> list[int]:
    return [r.offset for h in batch_headers(data) for r in records(data, h)]


def test_compacted_batches_keep_their_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [Item(2, value=b"a value"), Item(9, value=b"a value")]
    log = [batch(4, left, codec=1, last_offset=15)]
    _, [data] = planned(monkeypatch, log, inputs=(went_to(None, 12),))
    assert offsets_of(data) == [6, 13]
    assert [h.last_offset for h in batch_headers(data)] == [15]


def test_markers_after_the_range_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an aborted output would count on the twin."""
    log = [
        batch(4, [Item(0)], producer=(7, 2, 0), transactional=True),
        batch(5, [Item(0)], producer=(8, 0, 0), transactional=True),
        marker(6, 8, ABORT),
        batch(7, PAYLOAD),
        marker(10, 7, ABORT, epoch=2),
        marker(11, 8, COMMIT),
        batch(12, PAYLOAD),
    ]
    counted = OutputDecision("orders", 0, 5, 7, 1, 1, ())
    first, after = (4, 7), (7, 15)
    wanted, [data] = planned(monkeypatch, log, 15, outputs=(counted,))
    assert [(w.start, w.end) for w in wanted] == [first, after]
    assert [(h.base_offset, h.is_control) for h in batch_headers(data)] == [
        (4, False),
        (5, False),
        (6, True),
        (10, True),
    ]


def test_a_damaged_batch_is_missing_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch(4, PAYLOAD, codec=1)
    log = [whole[:70] + b"xxxx" + whole[74:]]

    async def fetched(cluster: object, ranges: Sequence[Range], **options: Any) -> Any:
        yield chunk(log[0])

    decision = SimpleNamespace(inputs=(went_to(None, 6),), outputs=())
    monkeypatch.setattr(bundled_records, "read", fetched)
    monkeypatch.setattr(bundled_records, "decision_of", lambda plan: decision)
    facts = [PartitionFacts("orders", 0, log_start_offset=4)]
    plan = SimpleNamespace(kind="restart")
    rows, [missing] = asyncio.run(planned_of(None, plan, facts))  # type: ignore[arg-type]
    assert (rows, missing.error) == ((), "CORRUPT")


def test_only_the_commits_that_a_restart_moves_keep_their_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decision = SimpleNamespace(inputs=(went_to(None, 6),))
    monkeypatch.setattr(bundled_records, "decision_of", lambda plan: decision)
    group = GroupFacts(
        "g",
        "Empty",
        offsets=tuple(
            GroupOffsetFacts("g", topic, 0, 5, metadata="secret") for topic in ("orders", "other")
        ),
    )

    def kept(kind: str, scope: str) -> list[str | None]:
        plan = SimpleNamespace(kind=kind, scope=scope)
        found = bundling._without_metadata(group, bundled_records.moved_by(plan))  # type: ignore[arg-type]
        return [o.metadata for o in found.offsets]

    assert kept("restart", "group g") == ["secret", None]
    for other in (("restart", "group x"), ("txn-abort", "group g"), ("restart", "g")):
        assert kept(*other) == [None, None]


def test_counted_outputs_come_without_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = OutputDecision("orders", 0, 5, 7, 1, 1, ())
    [wanted], [data] = planned(monkeypatch, outputs=(counted,))
    assert (wanted.start, wanted.end) == (4, 7)
    before, end = batch_headers(data)  # its first record is below the range, the batch is whole
    fields = (before.base_offset, before.last_offset, before.records_count, before.base_sequence)
    assert fields == (3, 5, 3, 40)
    assert (before.producer_id, before.producer_epoch, before.is_transactional) == (7, 2, True)
    assert [(r.key, r.value) for r in records(data, before)] == [(None, None)] * 3
    assert end.is_control
    assert b"a key" not in data
