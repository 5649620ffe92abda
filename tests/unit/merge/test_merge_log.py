"""Merge logs: formats, what verify finds in broken ones, and replays killed at any point."""

import json
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.merge.log import JsonFormat, MergeEntry, MergePlan, Tail, merge_format, merge_plan
from recovery.merge.log_findings import Identity, MergeVerifier, OutputComparison, output_ahead
from recovery.merge.replay import Base, Replay, ReplayPosition, merge_plan_row
from tests.share import share
from tests.unit.restart_model import ABORTED, DATA, ModelLog, World

MERGE, LEFT, RIGHT = TopicPartition("m", 0), TopicPartition("left", 0), TopicPartition("right", 0)

ENTRIES = st.builds(
    MergeEntry,
    st.text(min_size=1, max_size=9),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)


@given(st.sampled_from(["coast", "json"]), ENTRIES)
@settings(deadline=None)
def test_entries_come_back(name: str, entry: MergeEntry) -> None:
    form = merge_format(name)
    assert form.decode(*form.encode(entry)) == entry


ODD = st.sampled_from(
    [
        (None, None),
        (None, b""),
        (b"k", b"\0\1t\0\0\0\0\0\0\0\0\0\0\0\1"),
        (None, b'{"topic":"t","partition":0,"offset":1}\n{"topic":"t","partition":0,"offset":2}'),
        (None, b'{"topic": "t", "partition": 1, "offset": 2}'),
        (None, b'{"topic":"t","partition":01,"offset":2}'),
        (b"", b"\0\1t\0\0\0\0\xff\0\0\0\0\0\0\1"),
        (b"", b"\0\1t\0\0\0\0\0\0\1"),
    ]
)


@given(st.sampled_from(["coast", "json"]), st.lists(ENTRIES | ODD, max_size=6), st.booleans())
@settings(deadline=None)
def test_many_entries_at_once_are_the_same_as_one_by_one(
    name: str, given_: list[Any], twice: bool
) -> None:
    form = merge_format(name)
    rows = [form.encode(each) if isinstance(each, MergeEntry) else each for each in given_]
    alone: list[MergeEntry] | None = []
    for key, value in rows:
        try:
            entry = form.decode(key, value)
        except CorruptError:
            alone = None
            break
        if alone is not None:
            alone.append(entry)
    columns = form.decode_usual([key for key, _ in rows], [value for _, value in rows])
    if columns is not None:
        assert alone is not None
        assert [
            MergeEntry(*partition, offset) for partition, offset in zip(*columns, strict=True)
        ] == alone
        tail, each = Tail(), Tail()
        for _ in range(1 + twice):
            tail.add_all(columns)
            for entry in alone:
                each.add(entry)
        assert (tail.sources, tail.entries) == (each.sources, each.entries)
    elif alone and all(isinstance(each, MergeEntry) for each in given_):
        plain = all(e.topic.isascii() and e.topic.isalnum() for e in alone)
        assert not plain or name == "json"
        assert not plain or any(e.partition >= 10**9 or e.offset >= 10**18 for e in alone)


def test_json_entries_as_others_write_them() -> None:
    value = b'{"offset": 5, "partition": 0, "topic": "left", "at": 1.5}'
    assert JsonFormat().decode(b"any key", value) == MergeEntry("left", 0, 5)
    assert json.loads(JsonFormat().encode(MergeEntry("left", 0, 5))[1]) == {
        "topic": "left",
        "partition": 0,
        "offset": 5,
    }


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("json", None, None),
        ("json", None, b""),
        ("json", None, b"[]"),
        ("json", None, b"3"),
        ("json", None, b'{"topic":"t","partition":0}'),
        ("json", None, b'{"topic":"","partition":0,"offset":1}'),
        ("json", None, b'{"topic":"t","partition":0,"offset":1.0}'),
        ("json", None, b'{"topic":"t","partition":true,"offset":1}'),
        ("json", None, b'{"topic":"t","partition":0,"offset":-1}'),
        ("json", None, b"[" * 100_000),
        ("json", None, b"\xff"),
        ("coast", b"k", b"\0\1t\0\0\0\0\0\0\0\0\0\0\0\1"),
        ("coast", b"", b"\0\1t"),
        ("coast", b"", None),
    ],
)
def test_what_is_no_entry(name: str, key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptError):
        merge_format(name).decode(key, value)


def test_unknown_formats() -> None:
    with pytest.raises(UsageError, match="write coast or json"):
        merge_format("avro")


# verify


def verify(
    entries: list[MergeEntry],
    inputs: dict[TopicPartition, ModelLog],
    *,
    step: int = 1000,
    begin: dict[TopicPartition, int] | None = None,
) -> tuple[list[tuple[str, int | None, int | None, int | None]], MergeVerifier]:
    """Findings as (what, merge offset, offset, records), reading in steps of any size."""
    bounds = {partition: (log.log_start, log.stable) for partition, log in inputs.items()}
    verifier = MergeVerifier(MERGE, bounds, begin)
    rows = []

    def tell() -> None:
        while needs := verifier.needs():
            for partition, (start, until) in needs.items():
                assert start < until <= bounds[partition][1], "nothing is beyond the end"
                part = min(until, start + step)
                verifier.input(
                    partition, [o for o, _ in inputs[partition].visible(start, part)], part
                )

    for merge_offset, entry in enumerate(entries):
        verifier.entry(merge_offset, entry)
        if merge_offset % step == 0:
            tell()
    tell()
    rows = verifier.findings()
    assert verifier.findings() == []
    assert all((r.topic, r.partition) == MERGE for r in rows)
    return [(r.finding, r.merge_offset, r.offset, r.records) for r in rows], verifier


def source(shape: str) -> ModelLog:
    """d: a data record; a: an aborted one and its marker."""
    log = ModelLog()
    for letter in shape:
        log.write(letter, 5, transactional=letter == "a")
        if letter == "a":
            log.marker(5, ABORTED)
    return log


def offsets(log: ModelLog) -> list[int]:
    return [offset for offset, _ in log.visible()]


@st.composite
def merged(draw: st.DrawFn) -> tuple[list[MergeEntry], dict[TopicPartition, ModelLog]]:
    """Two inputs with markers and aborted records, and a true log of a part of them."""
    inputs = {partition: source(draw(st.text("dda", max_size=12))) for partition in (LEFT, RIGHT)}
    left, right = (
        [MergeEntry(*partition, o) for o in offsets(inputs[partition])][: draw(st.integers(0, 12))]
        for partition in (LEFT, RIGHT)
    )
    entries = []
    while left or right:
        queue = draw(st.sampled_from([q for q in (left, right) if q]))
        entries.append(queue.pop(0))
    return entries, inputs


@given(merged(), st.integers(1, 5))
@settings(max_examples=share(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_true_log_has_no_findings(
    log: tuple[list[MergeEntry], dict[TopicPartition, ModelLog]], step: int
) -> None:
    found, verifier = verify(*log, step=step, begin={LEFT: 0, RIGHT: 0})
    assert found == []
    assert (verifier.entries, verifier.unproven) == (len(log[0]), 0)


BREAKS = ["hole", "repeat", "foreign", "absent", "swap"]


@given(merged(), st.sampled_from(BREAKS), st.integers(1, 5), st.data())
@settings(max_examples=share(1000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_broken_log_has_exactly_that_finding(
    log: tuple[list[MergeEntry], dict[TopicPartition, ModelLog]],
    kind: str,
    step: int,
    data: st.DataObject,
) -> None:
    entries, inputs = log
    at = data.draw(st.integers(0, max(len(entries) - 1, 0)))
    later = [
        n
        for n in range(at + 1, len(entries))
        if entries[n].topic_partition == entries[at].topic_partition
    ]
    expected: list[tuple[str, int | None, int | None, int | None]]
    if kind == "foreign":
        entries.insert(at, MergeEntry("payments", 0, 3))
        expected = [("foreign", at, 3, 1)]
    elif kind == "absent":
        partition = data.draw(st.sampled_from([LEFT, RIGHT]))
        seen = offsets(inputs[partition])
        none = [o for o in range(inputs[partition].end + 3) if o not in seen]
        before = [e.offset for e in entries[:at] if e.topic_partition == partition]
        none = [o for o in none if not before or o > max(before)]
        offset = data.draw(st.sampled_from(none))
        entries.insert(at, MergeEntry(*partition, offset))
        expected = [("absent", at, offset, 1)]
    elif not later:
        return
    elif kind == "hole":
        gone = entries.pop(at)
        expected = [("hole", later[0] - 1, gone.offset, 1)]
    elif kind == "repeat":
        where = data.draw(st.sampled_from(later))
        entries.insert(where, entries[at])
        expected = [("repeat", where, entries[at].offset, 1)]
    else:
        first, second = entries[at], entries[later[0]]
        entries[at], entries[later[0]] = second, first
        expected = [("hole", at, first.offset, 1), ("disorder", later[0], first.offset, 1)]
    found, _ = verify(entries, inputs, step=step, begin={LEFT: 0, RIGHT: 0})
    assert found == expected


def test_holes_are_one_row_each() -> None:
    inputs = {LEFT: source("dddadddd")}
    entries = [MergeEntry(*LEFT, o) for o in (0, 5, 8)]
    found, _ = verify(entries, inputs)
    assert found == [("hole", 1, 1, 2), ("hole", 2, 6, 2)]
    (first, _) = _rows(entries, inputs)
    assert (first.offset, first.last_offset) == (1, 2)
    assert (first.input_topic, first.input_partition) == LEFT


def _rows(entries: list[MergeEntry], inputs: dict[TopicPartition, ModelLog]) -> Any:
    verifier = MergeVerifier(MERGE, {p: (log.log_start, log.end) for p, log in inputs.items()})
    for n, entry in enumerate(entries):
        verifier.entry(n, entry)
    for partition, (start, until) in verifier.needs().items():
        verifier.input(partition, [o for o, _ in inputs[partition].visible(start, until)], until)
    return verifier.findings()


def test_what_retention_took_is_unproven_not_wrong() -> None:
    inputs = {LEFT: source("dddd")}
    inputs[LEFT].log_start = 2
    entries = [MergeEntry(*LEFT, o) for o in range(4)]
    found, verifier = verify(entries, inputs, begin={LEFT: 0})
    assert (found, verifier.unproven) == ([], 2)


def test_where_a_log_begins() -> None:
    inputs = {LEFT: source("dddd")}
    assert verify([MergeEntry(*LEFT, 2)], inputs)[0] == []
    assert verify([MergeEntry(*LEFT, 2)], inputs, begin={LEFT: 0})[0] == [("hole", 0, 0, 2)]


def test_records_that_are_no_entries() -> None:
    verifier = MergeVerifier(MERGE, {})
    verifier.unreadable(7, "no JSON")
    (row,) = verifier.findings()
    assert (row.finding, row.merge_offset, row.detail) == ("unreadable", 7, "no JSON")


def test_outputs_against_the_tip() -> None:
    assert output_ahead(MERGE, 9, 5, TopicPartition("out", 0), 5) is None
    row = output_ahead(MERGE, 9, 5, TopicPartition("out", 0), 7)
    assert row is not None
    assert (row.finding, row.merge_offset, row.records) == ("output-ahead", 9, 2)


# plan


def test_plan_names_what_will_be_read() -> None:
    tail = Tail()
    for entry in (MergeEntry(*LEFT, 4), MergeEntry(*RIGHT, 0), MergeEntry(*LEFT, 7)):
        tail.add(entry)
    assert tail.entries == 3
    plan = merge_plan(
        MERGE,
        10,
        13,
        tail.sources,
        drop_first=2,
        committed={LEFT: 3, TopicPartition("other", 1): 6},
    )
    base, reached = Base(10, TopicPartition("out", 0), 7), ReplayPosition(11, 1)
    made = merge_plan_row(plan, base, 9, reached, "id")
    row = made.json_values()
    assert row == {
        "topic": "m",
        "partition": 0,
        "from": 10,
        "to": 13,
        "entries": 3,
        "drop_first": 2,
        "position": 11,
        "drop_left": 1,
        "transactional_id": "id",
        "output": {"topic": "out", "partition": 0, "from": 7, "to": 9},
        "inputs": [
            {"topic": "left", "partition": 0, "from": 3, "to": 8, "entries": 2},
            {"topic": "other", "partition": 1, "from": 6, "to": 6, "entries": 0},
            {"topic": "right", "partition": 0, "from": 0, "to": 1, "entries": 1},
        ],
    }


@pytest.mark.parametrize(("found", "committed"), [((4, 3), 0), ((4, 4), 0), ((4, 5), 5)])
def test_plans_of_logs_that_go_back(found: tuple[int, int], committed: int) -> None:
    tail = Tail()
    for offset in found:
        tail.add(MergeEntry(*LEFT, offset))
    with pytest.raises(RefusedError, match="names its offsets backwards"):
        merge_plan(MERGE, 0, 2, tail.sources, drop_first=0, committed={LEFT: committed})


# replay


def replayed(world: World, follow: bool, batch: int, planned: MergePlan) -> Generator[None]:
    """What drives a Replay, one atomic step at a time. The position is committed by the marker."""
    out, log, producer = world.log("out"), world.log(*MERGE), world.new_producer()
    for each in (out, log):  # init_transactions fences the one before
        for old in {e.producer_id for e in each.entries if e.kind == "open"}:
            each.marker(old, ABORTED)
    yield
    position = ReplayPosition(planned.start, planned.drop_first)
    if world.results:
        position = ReplayPosition.committed(*world.results[-1])
    replay: Replay[str] = Replay(MERGE, position)
    tail, recorded = Tail(), log.visible(position.merge_offset)
    for offset, entry in recorded:
        tail.add(entry)
        replay.log(offset, entry)
    begin = {i[:2]: i for i in ((i.topic, i.partition, i.start) for i in planned.inputs)}
    reading = {}
    for topic_partition in (LEFT, RIGHT):
        known = tail.sources.get(topic_partition)
        first = begin[topic_partition][2] if known is None else known.first
        if known is None and world.results:
            # Everything that the log named of it was emitted: go on after its last entry.
            named = [e.offset for _, e in log.visible() if e.topic_partition == topic_partition]
            first = max([first, *(o + 1 for o in named)])
        reading[topic_partition] = world.log(*topic_partition).visible(first)
    while True:
        for topic_partition, records in reading.items():
            for offset, value in records[:2]:
                replay.record(topic_partition, offset, f"{topic_partition[0]}{offset}{value}")
            del records[:2]
        if follow and replay.waits_for is None:
            new = replay.extend(3)
            appended = [log.write(entry, producer, transactional=True) for entry in new]
            if new:
                yield
                log.marker(producer, DATA)
                yield
                for offset, entry in zip(appended, new, strict=True):
                    replay.log(offset, entry)
        written = 0
        while record := replay.take(1):
            out.write(record[0], producer, transactional=True)
            written += 1
            yield
            if written == batch:
                out.marker(producer, DATA)
                world.results.append((replay.position.merge_offset, replay.position.metadata))
                written = 0
                yield
        if written:
            out.marker(producer, DATA)
        world.results.append((replay.position.merge_offset, replay.position.metadata))
        yield
        if not any(reading.values()) and (not follow or not replay.extend()):
            return


@given(
    merged(),
    st.integers(0, 12),
    st.integers(0, 12),
    st.booleans(),
    st.integers(1, 4),
    st.lists(st.integers(1, 30), max_size=5),
)
@settings(max_examples=share(1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_replay_killed_anywhere_gives_the_log_once(
    log: tuple[list[MergeEntry], dict[TopicPartition, ModelLog]],
    committed: int,
    written: int,
    follow: bool,
    batch: int,
    kills: list[int],
) -> None:
    """A dead application committed `committed` entries and wrote `written` outputs more."""
    entries, inputs = log
    world = World(logs=dict(inputs))
    merge, out = world.log(*MERGE), world.log("out")
    for entry in entries:
        merge.write(entry)
    committed = min(committed, len(entries))
    written = min(written, len(entries) - committed)

    def text(entry: MergeEntry) -> str:
        value = world.log(*entry.topic_partition).entries[entry.offset].value
        return f"{entry.topic}{entry.offset}{value}"

    for entry in entries[: committed + written]:
        out.write(text(entry), 1)
    tail = Tail()
    for entry in entries[committed:]:
        tail.add(entry)
    position = {
        partition: max(
            (e.offset + 1 for e in entries[:committed] if e.topic_partition == partition), default=0
        )
        for partition in inputs
    }
    planned = merge_plan(
        MERGE, committed, merge.end, tail.sources, drop_first=written, committed=position
    )
    for steps in [*kills, None]:
        running = replayed(world, follow, batch, planned)
        for done, _ in enumerate(running, 1):
            if done == steps:
                break
        running.close()
    final = [entry for _, entry in merge.visible()]
    assert final[: len(entries)] == entries
    assert [value for _, value in out.visible()] == [text(entry) for entry in final]
    named = Counter(e.topic_partition for e in final)
    if follow:
        assert named == Counter({p: len(offsets(i)) for p, i in inputs.items() if offsets(i)})
    else:
        assert len(final) == len(entries)


def test_follow_keeps_the_order_of_arrival() -> None:
    replay: Replay[str] = Replay(MERGE, ReplayPosition(4))
    replay.record(RIGHT, 2, "a")
    replay.record(LEFT, 0, "b")
    replay.record(RIGHT, 3, "c")
    new = replay.extend()
    assert new == (MergeEntry(*RIGHT, 2), MergeEntry(*LEFT, 0), MergeEntry(*RIGHT, 3))
    assert replay.extend(1) == new[:1]
    assert replay.take(9) == []  # not before the log has it
    replay.log(4, new[0])
    assert replay.take(9) == ["a"]
    assert replay.extend() == new[1:]
    assert replay.position == ReplayPosition(5)


def refusing(offset: int) -> Callable[[], Any]:
    replay: Replay[str] = Replay(MERGE, ReplayPosition(0))
    replay.log(0, MergeEntry(*LEFT, 5))
    assert replay.waits_for == MergeEntry(*LEFT, 5)
    replay.record(LEFT, offset, "x")
    return lambda: replay.take(9)


def test_records_that_are_not_those_of_the_log() -> None:
    with pytest.raises(RefusedError, match="names left:0 at 5, but the record at 4 comes before"):
        refusing(4)()
    with pytest.raises(RefusedError, match="names left:0 at 5, where no record is"):
        refusing(6)()


def test_the_log_is_told_in_order() -> None:
    replay: Replay[str] = Replay(MERGE, ReplayPosition(3))
    with pytest.raises(ValueError, match="out of order"):
        replay.log(2, MergeEntry(*LEFT, 0))
    replay.log(3, MergeEntry(*LEFT, 0))
    with pytest.raises(ValueError, match="out of order"):
        replay.log(3, MergeEntry(*LEFT, 1))


def test_positions_come_back() -> None:
    for left, base in ((0, None), (7, Base(3, TopicPartition("o ut", 2), 8))):
        position = ReplayPosition(9, left, base)
        assert ReplayPosition.committed(9, position.metadata) == position
    for text in (
        None,
        "",
        "x",
        "[]",
        '{"drop_first":1,"from":3}',
        '{"drop_first":-1}',
        '{"drop_first":true}',
        "[" * 99_999,
    ):
        with pytest.raises(CorruptError):
            ReplayPosition.committed(9, text)


RECORD, COPY = Identity(1, 5), Identity(1, None)
OTHER, LATER = Identity(2, 5), Identity(1, 6)


@pytest.mark.parametrize(
    ("outputs", "copies", "found"),
    [
        ([RECORD, COPY, RECORD], False, []),
        ([RECORD, OTHER, OTHER], False, [(11, 2)]),
        ([OTHER, RECORD, LATER], False, [(10, 1), (12, 1)]),
        ([OTHER, OTHER, OTHER], False, []),  # an application's, which made something else of them
        ([OTHER, OTHER, OTHER], True, [(10, 3)]),
        ([None, RECORD, OTHER], False, [(12, 1)]),
        ([], True, []),
    ],
)
def test_outputs_are_compared_record_by_record(
    outputs: list[Identity | None], copies: bool, found: list[tuple[int, int]]
) -> None:
    comparison = OutputComparison(TopicPartition("log", 0), TopicPartition("out", 0), copies=copies)
    for n, actual in enumerate(outputs):
        comparison.pair(10 + n, MergeEntry("in", 0, n), RECORD, (n, actual))
    rows = comparison.findings()
    assert [(r.merge_offset, r.records) for r in rows] == found
    assert {r.finding for r in rows} <= {"output-differs"}
    assert comparison.compared == len([o for o in outputs if o is not None])
