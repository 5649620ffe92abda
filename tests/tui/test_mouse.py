"""Everything by mouse: headings sort, tabs and keys are pressed, a recording is scrubbed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from eoctl.render.tables import CellKind, Column
from eoctl.render.width import cells
from recovery.errors import UsageError
from recovery.times import rfc3339
from tests.share import only_here
from tests.tui.driving import RECORDINGS, lines_of, recording, run, running, text_of, until
from tui.app import Dashboard
from tui.commands import number_at
from tui.feed.replay import ReplayFeed
from tui.screens.views import GROUPS, NUMBERED, OVERVIEW, PARTITIONS
from tui.widgets.lines import SLIDER
from tui.widgets.table import Table
from tui.widgets.table_state import TableState
from tui.widgets.tables import GUTTER, TableData


async def click(app: Dashboard, pilot: Pilot[str], text: str, line: int) -> None:
    """Click on the first place of a line of the screen where a text is."""
    assert text in lines_of(app)[line], lines_of(app)[line]
    await pilot.click(offset=(lines_of(app)[line].index(text) + len(text) // 2, line))


def heads(app: Dashboard) -> str:
    """The columns' titles."""
    return lines_of(app)[app.table.region.y + 1]


def test_a_heading_sorts_and_again_the_other_way_round() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("2")
            y = app.table.region.y + 1
            at = [c.key for c in app.table.state.data.columns].index("high_watermark")

            def sorts() -> list[object]:
                rows = [app.table.state.row(key) for key in app.table.state.order]
                return [row.sort[at] for row in rows if row is not None]

            assert not set("↑↓") & set(heads(app))
            await click(app, pilot, "HW", y)
            assert "↓HW" in heads(app)
            assert sorts() == sorted(sorts(), reverse=True)  # type: ignore[type-var]
            await click(app, pilot, "HW", y)
            assert "↑HW" in heads(app)
            assert sorts() == sorted(sorts())  # type: ignore[type-var]
            before = app.table.state.order
            await pilot.click(offset=(app.table.region.x + 3, y))  # the marks: the worst first
            assert app.table.state.sort is None
            assert app.table.state.order != before

    run(test)


def test_an_arrow_has_room_beside_a_title_that_fills_its_column() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            await click(app, pilot, "ENDS IN", app.table.region.y + 1)
            assert "AGE ↓ENDS IN" in heads(app)

    run(test)


def test_tabs_keys_and_rows_are_pressed() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await click(app, pilot, "5 Groups", 1)
            await until(pilot, lambda: app.location.view is GROUPS)
            await click(app, pilot, "2 Partitions", 1)
            await until(pilot, lambda: app.location.view is PARTITIONS)
            await pilot.click(app.table, offset=(5, 4))
            assert app.table.cursor_index == 2
            await click(app, pilot, "filter", -1 + len(lines_of(app)))
            await until(pilot, lambda: bool(app.prompt.display))
            await pilot.press("escape")
            await click(app, pilot, "1 Overview", 1)
            await until(pilot, lambda: app.location.view is OVERVIEW)

    run(test)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "HW", "STATE", "TRANSACTIONAL ID", "漢字漢字"]),
            st.sampled_from(["name", "number", "word"]),
            st.integers(2, 12),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_one_arrow_is_beside_its_title_however_narrow(
    columns: list[tuple[str, CellKind, int]], sort: int
) -> None:
    table = Table(name="table")
    made = tuple(Column(str(n), title, kind) for n, (title, kind, _) in enumerate(columns))
    table.state = TableState(TableData(made))
    table.state.shown = [(n, size) for n, (_, _, size) in enumerate(columns)]
    width = GUTTER + sum(size + 2 for _, _, size in columns) - 2
    before = table._heads("dark", width).text
    table.state.sort, table.state.descending = sort % len(columns), True
    after = table._heads("dark", width).text
    assert (before.count("↓"), after.count("↓")) == (0, 1)
    assert cells(before) == cells(after) == width
    title, kind, _ = columns[table.state.sort]
    neighbour = after.partition("↓")[2 if kind == "number" else 0]
    assert not title or neighbour.strip(" ")[:: 1 if kind == "number" else -1][:1] in {
        title[0],
        title[-1],
        "…",
    }


def test_what_is_no_tab_and_no_left_button_presses_nothing() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("5")
            for part, (_, role) in enumerate(app.head.lines[0]):
                app.head_touched(0, part, "stale", 0.5)
                app.head_touched(0, part, role if role != SLIDER else "head", 0.5)
            app.head_touched(1, len(NUMBERED), "tab", 0.5)
            await pilot.pause(0.1)
            assert app.location.view is GROUPS
            x = lines_of(app)[1].index("2 Partitions")
            for button in (2, 3):
                await pilot.mouse_down(offset=(x, 1), button=button)
            await pilot.pause(0.1)
            assert app.location.view is GROUPS

    run(test)


@pytest.mark.long
def test_a_click_beside_a_line_that_is_typed_types_nothing_there() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("2", "slash", *"orders")
            await until(pilot, lambda: app.prompt.value == "/orders")
            await pilot.click(offset=(3, lines_of(app).index(app.prompt.value)))
            assert app.prompt.display, "a click within the line is for its cursor"
            await pilot.click(app.table, offset=(5, 3))
            await until(pilot, lambda: not app.prompt.display)
            assert app.table.state.filter is not None, "what was typed so far still filters"
            assert app.table.cursor_index == 1
            await pilot.press("colon", *"lso")
            await until(pilot, lambda: app.prompt.value == ":lso")
            await click(app, pilot, "5 Groups", 1)
            await until(pilot, lambda: app.location.view is GROUPS)
            assert (app.prompt.display, app.prompt.value) == (False, ":lso")

    run(test)


@pytest.mark.parametrize("size", only_here([((60, 16),), ((20, 5),)], ((60, 16),)))
def test_a_small_terminal_is_clicked_everywhere(size: tuple[int, int]) -> None:
    async def test() -> None:
        async with running(recording("incident"), size) as (app, pilot):
            lines = [*range(0, size[1], 2), size[1] - 1]
            places = [(x, y) for y in lines for x in (1, size[0] // 2)]
            for place in places:
                await pilot.mouse_down(offset=place)
                await pilot.click(offset=place)
                while len(app.screen_stack) > 1:
                    app.pop_screen()
            await pilot.press("escape", "5")
            await until(pilot, lambda: app.location.view is GROUPS)

    run(test)


def test_a_recording_is_scrubbed_on_its_time_axis() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            head = lines_of(app)[0]
            assert app.frame is not None
            assert app.frame.position is not None
            of = app.frame.position[1]
            left, right = head.index("─"), head.index("●")
            assert "!" in head[left:right], "where there was a finding"
            await pilot.mouse_down(offset=(left, 0))
            await until(pilot, lambda: app.frame is not None and app.frame.position == (1, of))
            assert lines_of(app)[0][left] == "●"
            await pilot.hover(offset=((left + right) // 2, 0))
            middle = round(((left + right) // 2 - left) / (right - left) * (of - 1)) + 1
            await until(pilot, lambda: app.frame is not None and app.frame.position == (middle, of))
            await pilot.hover(offset=(119, 5))  # the mouse may leave the line
            await until(pilot, lambda: app.frame is not None and app.frame.position == (of, of))
            await pilot.mouse_up(offset=(119, 5))
            await pilot.hover(offset=(left, 0))
            await pilot.pause(0.1)
            assert app.frame.position == (of, of), "nothing is dragged any more"

    run(test)


@pytest.mark.long
def test_the_axis_in_ascii() -> None:
    async def test() -> None:
        feed = ReplayFeed(RECORDINGS / Path("incident.jsonl"), still=True, ascii_only=True)
        async with running(recording("calm")) as (app, _):
            assert "!" not in lines_of(app)[0], "nothing was ever found"
        async with Dashboard(feed).run_test(size=(120, 40)) as pilot:
            app = pilot.app  # type: ignore[assignment]
            await until(pilot, lambda: "REPLAY" in text_of(app))
            assert "O" in lines_of(app)[0].partition("REPLAY")[2]

    run(test)


def test_at_a_time_of_the_recording() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            assert app.frame is not None
            times = app.frame.times
            middle = len(times) // 2
            wanted = rfc3339(times[middle]) or ""
            for typed in (wanted[11:19], wanted[11:19] + "Z", wanted):
                app.feed.seek_to(0)
                await until(pilot, lambda: app.frame is not None and app.frame.position[0] == 1)  # type: ignore[index]
                await pilot.press("colon")
                app.prompt.value = f":at {typed}"
                await pilot.press("enter")
                # of the snapshots of one second the last
                last = max(n for n, at in enumerate(times) if at // 1000 <= times[middle] // 1000)
                want = last if typed is not wanted else middle
                await until(
                    pilot,
                    lambda want=want: app.frame is not None and app.frame.position[0] >= want,  # type: ignore[index, misc]
                )
            for wrong in ("at soon", "at 99:99"):
                await pilot.press("colon")
                app.prompt.value = f":{wrong}"
                await pilot.press("enter")
                assert app.message[1] == "look", wrong

    run(test)


def test_a_time_between_two_snapshots_and_outside() -> None:
    times = (1_764_230_400_000, 1_764_230_410_000, 1_764_230_420_000)
    assert [number_at(t, times) for t in ("07:00", "08:00", "08:00:09Z", "08:00:10", "23:59")] == [
        0,
        0,
        0,
        1,
        2,
    ]
    with pytest.raises(UsageError, match="only a recording"):
        number_at("08:00", ())
