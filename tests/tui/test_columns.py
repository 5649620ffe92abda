"""The columns of every list, in every recording: what is shown, cut or left out at which width."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from eoctl.render.width import cells
from tests.tui.driving import RECORDINGS
from tui.feed.frame import Builder
from tui.feed.recording import read
from tui.widgets.table_state import TableState
from tui.widgets.tables import (
    CUT,
    LEAST_NAME,
    NAMES,
    NEVER_CUT,
    TableData,
    by_worth,
    layout,
    title_of,
)

WIDTHS = range(54, 199)  # of a list: in a terminal of 100 cells it has 54 of them, of 60 all but 2
NAMED = [path.stem for path in sorted(RECORDINGS.glob("*.jsonl"))]
NEVER_LEFT_OUT = {
    "overview": {"what", "where", "held", "age"},
    "partitions": {"held", "age", "held_by"},
    "transactions": {"verdict", "state", "age"},
    "groups": {"partition", "lag", "state"},
    "plans": {"state", "age"},
    "jobs": {"state", "age"},
    "doctor": {"subject", "evidence"},
}


@cache
def tables(name: str) -> list[dict[str, TableData]]:
    """The tables of each snapshot of a recording."""
    builder = Builder()
    return [dict(builder.frame(s).tables) for s in read(RECORDINGS / f"{name}.jsonl")]


def last(name: str) -> Iterator[tuple[str, TableData]]:
    """The lists with rows of a recording's last snapshot."""
    yield from ((view, data) for view, data in tables(name)[-1].items() if data.rows)


def test_every_list_has_rows_in_a_recording() -> None:
    found = {view for name in NAMED for view, _ in last(name)}
    assert found >= NEVER_LEFT_OUT.keys()


@pytest.mark.parametrize("name", NAMED)
def test_no_list_cuts_or_leaves_out_what_has_room(name: str) -> None:
    for view, data in last(name):
        for width in WIDTHS:
            check(view, data, width)


def check(view: str, data: TableData, width: int) -> None:
    """Blanks are cells that neither a column's heading nor its longest text needs."""
    shown, blank, reserved = dict(layout(data, width)), 0, 0
    titles = [cells(title_of(data, i)) for i in range(len(data.columns))]
    needs = [
        max(title, *(cells(row.cells[i]) for row in data.rows), 1) for i, title in enumerate(titles)
    ]
    for i, size in shown.items():
        column = data.columns[i]
        assert titles[i] <= size, (view, width, column)
        if column.kind in NAMES:
            assert size >= min(needs[i], LEAST_NAME), (view, width, column)
        if column.kind in NEVER_CUT:
            assert size >= needs[i], (view, width, column)
            reserved += max(0, column.usual - needs[i])  # for what it grows by
        blank += max(0, size - needs[i]) if column.kind not in ("mark", "spark") else 0
    for i in shown:
        if data.columns[i].kind in NAMES and shown[i] < needs[i]:
            assert blank < 2, (view, width, data.columns[i], "is cut beside blanks")
    left_out = [i for i in by_worth(data) if i not in shown]
    keys = {data.columns[i].key for i in left_out}
    assert not keys & NEVER_LEFT_OUT.get(view, set()), (view, width, keys)
    for i in left_out[:1]:
        column = data.columns[i]
        least = max(titles[i], LEAST_NAME) if column.kind in CUT else needs[i]
        least = max(titles[i], column.usual) if column.kind == "spark" else least
        assert blank - reserved < least + 2, (view, width, column, "is left out beside blanks")


@pytest.mark.parametrize("name", NAMED)
def test_a_wider_list_has_the_columns_of_a_narrower_one(name: str) -> None:
    for view, data in last(name):
        sets = [{i for i, _ in layout(data, width)} for width in WIDTHS]
        for width, (narrower, wider) in zip(WIDTHS, pairwise(sets), strict=False):
            assert narrower <= wider, (view, width)


@pytest.mark.parametrize("name", NAMED)
def test_between_refreshes_columns_stay(name: str) -> None:
    """Numbers grow and names come: a set changes once at most, and only if it has no room."""
    frames = tables(name)
    for view, columns in ((view, data.columns) for view, data in frames[0].items()):
        for width in (54, 58, 78, 110, 198):
            state = TableState(TableData(columns))
            sets = []
            for frame in frames:
                state.renew(frame[view])
                state.lay_out(width)
                sets += [[i for i, _ in state.shown]] if state.data.widths else []
            assert sum(a != b for a, b in pairwise(sets)) <= 1, (view, width, sets)
