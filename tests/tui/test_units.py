"""The parts beneath the screens: trends, layout, recordings, tables, and memory over a day."""

import gc
import tracemalloc
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.operations.change.steps import Outcome, StepOutcome
from eoctl.operations.dashboard.snapshot import PARTS, Snapshot
from eoctl.render.diagnose_words import contests_of
from eoctl.render.tables import Column
from eoctl.render.width import cells
from recovery.answers import Answer
from recovery.change.plan import Step
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.errors import UsageError
from recovery.values import replace
from tests.share import share
from tests.tui.driving import RECORDINGS
from tests.tui.large import AT, large
from tui.board.samples import MOST as MOST_SAMPLES
from tui.feed.frame import Builder
from tui.feed.recording import Recording, check, read
from tui.feed.replay import uncollected
from tui.feed.writer import Writer
from tui.screens.change import _outcome_lines
from tui.screens.views import VIEWS
from tui.widgets.table_state import Filter, TableState
from tui.widgets.tables import TableData, TableRow, fitted, layout, narrowed, table_data
from tui.widgets.trend import BUCKETS, MOST, STEPS_MS, Trend


def shifted(s: Snapshot, by_ms: int) -> Snapshot:
    """Return the snapshot as if taken at another time."""
    parts = {
        part: replace(answer, collected_at=answer.collected_at + by_ms)
        for part in PARTS
        if (answer := getattr(s, part)) is not None
    }
    return replace(s, taken_at=s.taken_at + by_ms, **parts)


COLUMN = Column("name", "NAME", "name", usual=8, letter="N", grow=1)


def rows_of(*names: str) -> TableData:
    rows = [TableRow(n, (n,), (n,)) for n in names]
    return table_data((COLUMN,), rows, collected_at=1, empty="")


def test_a_sparkline_has_floor_0_a_shared_ceiling_and_gaps() -> None:
    trend = Trend()
    trend.add(0, {"a:0": 100})
    trend.add(10 * STEPS_MS[-1], {"a:0": 50, "b:0": 1})
    trend.add((BUCKETS - 1) * STEPS_MS[-1], {"b:0": 0})
    assert trend.ceiling == 100
    line = trend.line("a:0", BUCKETS, 100)
    assert len(line) == BUCKETS
    assert line[0] == "█"
    assert line[1:10] == " " * 9, "no sample was taken: nothing is drawn"
    assert "▁" < line[10] < "█"
    assert line[-1] == "▁", "0 is the floor"
    assert trend.line("b:0", BUCKETS, 100)[10] == "▂", "above 0 is above the floor"
    assert trend.line("nobody", 10, 100) == ""
    assert set(trend.line("a:0", 30, 100, ascii_only=True)) <= set(" _.-:=+*#")
    trend.add(BUCKETS * STEPS_MS[-1], {})
    assert trend.ceiling == 50, "half an hour later it is forgotten"


def test_a_narrower_sparkline_keeps_the_peaks() -> None:
    assert narrowed("▁█▁ ▂▁", 3) == "█▁▂"


@pytest.mark.parametrize("view", [v for v in VIEWS if v.kind != "page"], ids=lambda v: v.name)
@given(width=st.integers(40, 300), digits=st.integers(1, 19))
def test_a_line_never_overflows_and_numbers_are_never_cut(
    view: object, width: int, digits: int
) -> None:
    columns = view.columns  # type: ignore[attr-defined]
    number = "9" * digits
    texts = tuple(number if c.right else "n\u0301😀x" * 60 + ":3" for c in columns)
    data = table_data(columns, [TableRow("k", texts, ())], collected_at=1, empty="")
    shown = layout(data, width)
    assert len(shown) >= 2
    total = 2 + sum(size for _, size in shown) + 2 * len(shown) - 3
    assert total <= width or len(shown) == 2
    for i, size in shown:
        text = fitted(texts[i], columns[i], size)
        assert cells(text) == size
        if columns[i].right:
            assert text.strip() == number


@pytest.mark.parametrize("view", [v for v in VIEWS if v.kind != "page"], ids=lambda v: v.name)
@given(width=st.integers(40, 300))
def test_no_name_is_cut_while_a_number_has_blanks(view: object, width: int) -> None:
    """One row in ten may have a name of any length: it takes no room from the others."""
    columns = view.columns  # type: ignore[attr-defined]
    texts = tuple("7" if c.right else f"{'n' * 28}:3" for c in columns)
    odd = tuple("7" if c.right else "n" * 249 for c in columns)
    rows = [TableRow(f"{n}", texts, ()) for n in range(10)] + [TableRow("odd", odd, ())]
    shown = layout(table_data(columns, rows, collected_at=1, empty=""), width)
    names = [size for i, size in shown if columns[i].kind in ("name", "partition")]
    numbers = {i: size for i, size in shown if columns[i].right}
    if any(size < 30 for size in names):
        assert numbers == {i: max(1, len(columns[i].title)) for i in numbers}
        # what is left is shared: no name has more than it needs beside one that is cut
        assert max(names) <= 30 or len(names) == 1


@pytest.mark.parametrize("names", [1, 2, 4, 9])
def test_of_a_few_names_none_is_cut_beside_blanks(names: int) -> None:
    columns = (
        Column("name", "NAME", "name", usual=5),
        Column("held", "HELD", "number", usual=20),
    )
    long = "n" * 29
    rows = [TableRow(f"{n}", ("a" if n else long, "7"), ()) for n in range(names)]
    data = table_data(columns, rows, collected_at=1, empty="")
    assert layout(data, 50) == [(0, 29), (1, 17)]  # two before them, two between


def test_columns_stay_as_wide_as_they_were() -> None:
    columns = (
        Column("name", "NAME", "name", usual=10),
        Column("held", "HELD", "number", usual=5),
    )

    def data(name: str, held: str) -> TableData:
        rows = [TableRow(name, (name, held), (name, held))]
        return table_data(columns, rows, collected_at=1, empty="")

    state = TableState(data("x" * 30, "1234567"))
    assert layout(state.data, 80) == [(0, 30), (1, 7)]
    state.renew(data("x", "7"))
    assert layout(state.data, 80) == [(0, 30), (1, 7)]


def test_rows_stay_where_they_are_until_a_key() -> None:
    state = TableState(rows_of("a", "b", "c"))
    state.settle()
    state.cursor, state.moved = "b", True
    state.renew(rows_of("d", "c", "b"))
    assert state.order == ["a", "b", "c", "d"]
    assert set(state.gone) == {"a"}
    assert state.cursor == "b"
    state.renew(rows_of("a", "b"))
    assert set(state.gone) == {"c", "d"}, "a is back"
    state.sort, state.descending = 0, True
    state.settle()
    assert state.order[:2] == ["b", "a"]
    assert state.cursor == "b"


def test_a_filter_is_a_regular_expression_that_can_be_inverted() -> None:
    row = TableRow("k", ("Orders:3", "x"), ())
    assert Filter.parse("^orders").keeps(row)
    assert not Filter.parse("!^orders").keeps(row)
    assert Filter.parse(r"3\s+x").keeps(row), "across cells"


@pytest.mark.parametrize(
    "name", ["orders", "empty", "dead", "denied", "jobs", "doctor", "calm", "incident"]
)
def test_a_recording_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    path = RECORDINGS / f"{name}.jsonl"
    writer = Writer(tmp_path / "again")
    for snapshot in read(path):
        writer.add(snapshot)
    writer.close()
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_recording_that_is_none(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    lines = (RECORDINGS / "empty.jsonl").read_text(encoding="ascii").splitlines(keepends=True)
    for text, said in (
        ("", "not a recording"),
        ("[1]\n", "not a recording"),
        ("\ufffd\n", "not a recording"),
        (lines[0] + '{"title": 3}\n', "line 2 is not a snapshot"),
        (lines[0] + "null\n", "line 2 is not a snapshot"),
    ):
        bad.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=said):
            list(read(bad))
        with pytest.raises(UsageError) if said == "not a recording" else nullcontext():
            check(bad)  # before the dashboard begins
    with pytest.raises(UsageError, match="No such file"):
        list(read(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(bad)
    whole = len(list(read(RECORDINGS / "empty.jsonl")))
    bad.write_text("".join(lines)[:-5], encoding="ascii")
    assert len(list(read(bad))) == whole - 1, "a line that was cut off ends it"


def test_a_contest_of_a_later_version_is_refused_when_a_recording_is_opened(
    tmp_path: Path,
) -> None:
    """Not when it is drawn."""
    found = ContestRow(
        transactional_id="sales",
        initialisations=4,
        aborted=4,
        since=1,
        until=2,
        interval_seconds=1.0,
        timeouts_ms=[1],
        causes=["two-owners"],
        producer_id=1,
        producer_epoch=1,
        state="Ongoing",
    )
    hanging = Answer("txn-hanging", None, 3, [], extra={"contests": [found]})
    path = tmp_path / "kept.jsonl"
    writer = Writer(path)
    writer.add(Snapshot("prod", 3, hanging=hanging))
    writer.close()
    assert contests_of(Recording(path)[0].hanging) == [found]
    later = path.read_text().replace('"transactional_id":', '"by_whom":"x","transactional_id":')
    path.write_text(later)
    with pytest.raises(UsageError, match="line 2 is not a snapshot that this version") as refused:
        Recording(path)
    assert refused.value.remedy == "open it with the version that recorded it"


@pytest.mark.parametrize("name", ["orders", "dead", "jobs"])
def test_a_recording_is_sought_in_any_order(name: str) -> None:
    path = RECORDINGS / f"{name}.jsonl"
    one_after_the_other = list(read(path))
    recording = Recording(path)
    assert len(recording) == len(one_after_the_other)
    indexes = [*range(len(recording))]
    for at in [*indexes, *indexes[::-1], *indexes[::3], *indexes[::-2]]:
        assert recording[at] == one_after_the_other[at]
        brief = recording.brief(at)
        assert brief.taken_at == one_after_the_other[at].taken_at
        assert brief.jobs == one_after_the_other[at].jobs
    with pytest.raises(IndexError):
        recording[len(recording)]


def test_a_recording_is_not_kept_in_memory(tmp_path: Path) -> None:
    """Twelve snapshots in which every row differs take no more than two would."""
    path = tmp_path / "long.jsonl"
    writer = Writer(path)
    for number in range(12):
        snapshot = large(500, number)
        assert snapshot.partitions is not None
        plain: list[Any] = list(snapshot.partitions.rows)
        rows = [replace(r, leader_epoch=number) for r in plain]
        writer.add(replace(snapshot, partitions=replace(snapshot.partitions, rows=rows)))
    writer.close()
    sizes = []
    tracemalloc.start()
    try:
        for make in (lambda: next(read(path)), lambda: Recording(path)):
            before = tracemalloc.get_traced_memory()[0]
            kept = make()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0] - before)
            del kept
    finally:
        tracemalloc.stop()
    assert sizes[1] < 2 * sizes[0]


def test_a_recording_that_changes_while_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes((RECORDINGS / "orders.jsonl").read_bytes())
    recording = Recording(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UsageError, match="changed while it was shown"):
        recording[len(recording) - 1]


def test_rows_made_uncollected_still_go_with_their_frame() -> None:
    class Rows(list[Any]):
        """A list that can be referred to weakly."""

    seen = large(50)
    assert seen.partitions is not None
    rows = Rows(seen.partitions.rows)
    gone = weakref.ref(rows)
    with uncollected():
        assert not gc.isenabled()
        frame = Builder().frame(replace(seen, partitions=replace(seen.partitions, rows=rows)))
    assert gc.isenabled()
    del frame, rows
    assert gone() is None, "no circle keeps it"
    gc.unfreeze()


def test_the_cursor_is_found_where_it_is() -> None:
    keys = [f"k{n}" for n in range(6)]
    state = TableState(TableData(()), order=[*keys], cursor="k4")
    assert state.cursor_index == 4
    state.order.reverse()
    assert state.cursor_index == 1
    state.point(5)
    assert (state.cursor, state.cursor_index) == ("k0", 5)
    state.order = ["k1", "k0"]
    assert state.cursor_index == 1
    state.cursor = "gone"
    assert state.cursor_index == 0
    state.order = []
    assert state.cursor_index == 0


@pytest.mark.long
def test_memory_stays_bounded_over_eight_hours() -> None:
    """2,880 snapshots (a share of them, further apart): every ring turns over many times."""
    number = share(8 * 3600 // 10)
    step = 8 * 3600 * 1000 // number
    snapshots = list(read(RECORDINGS / "orders.jsonl"))[-3:]
    builder, state = Builder(), TableState(TableData(()))
    sizes: list[int] = []
    kept: list[int] = []
    tracemalloc.start()
    try:
        for n in range(number):
            frame = builder.frame(shifted(snapshots[n % 3], n * step))
            state.renew(frame.tables["partitions"])
            if n in (number // 4, number - 1):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
                kept.append(len(builder.history.samples.samples))
    finally:
        tracemalloc.stop()
    assert kept[1] <= MOST_SAMPLES
    pictures = 1_000 * (kept[1] - kept[0])
    assert sizes[1] < sizes[0] * 1.1 + 50_000 + pictures, (sizes, kept)


def test_trends_are_bounded_whatever_is_held() -> None:
    trend = Trend()
    for n in range(60):
        trend.add(AT + n * STEPS_MS[-1], {f"t:{n * 500 + k}": k + 1 for k in range(500)})
    assert len(trend) <= MOST


def test_a_row_that_did_not_change_is_the_same_object() -> None:
    builder = Builder()
    first = builder.frame(large(500, 0)).tables["partitions"].by_key
    second = builder.frame(large(500, 1)).tables["partitions"].by_key
    same = sum(first[key] is second[key] for key in first)
    assert 0.8 * len(first) < same < len(first)


def test_an_id_that_holds_no_partition_has_a_row_and_a_page_of_its_own() -> None:
    """It stands above the quiet ones, names no partition, and enter asks for the id."""
    known = large(100)
    assert known.hanging is not None
    first: Any = known.hanging.rows[0]
    idle = replace(
        first,
        topic=None,
        partition=None,
        leader=None,
        start_offset=None,
        transactional_id="idle.overdue",
        verdict="overdue",
        rule="past-timeout",
    )
    hanging = replace(known.hanging, rows=[*known.hanging.rows, idle])
    frame = Builder().frame(replace(known, hanging=hanging))
    first, *others = frame.tables["overview"].rows
    assert (first.cells[1], first.cells[2], first.cells[3]) == ("overdue", "id idle.overdue", "-")
    assert first.cells[0] == "!!"
    assert first.opens == ("why", "id idle.overdue")
    assert {row.cells[1] for row in others} == {"open"}
    said = "".join(text for line in frame.says for text, _ in line)
    assert "1 overdue" in said


def test_what_a_broker_says_of_a_step_cannot_write_on_the_screen() -> None:
    """An outcome's detail may quote an answer: no escape, no line of its own, no markup."""
    step = Step(action="abort", target="t:0", parameters={}, does="aborts", stands_on=("t:0",))
    said = "refused: \x1b[2J\x1b]0;owned\x07 [/x] \u202etxen\n step 2 done"
    outcome = Outcome("entry-1", [StepOutcome(1, step, "refused", said)])
    for width in (20, 80):
        lines = ["".join(text for text, _ in line) for line in _outcome_lines(outcome, width)]
        assert all(line.isprintable() for line in lines)
        assert "\u202e" not in "".join(lines)
        assert not any(line.startswith(" step 2") for line in lines)
