"""The panels: where they are, which one has the focus, and the story beside each list."""

import asyncio
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.command import CommandPalette
from textual.geometry import Region, Size
from textual.widgets import Input, OptionList

from eoctl.render.words import age
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.values import replace
from tests.share import only_here
from tests.tui.driving import RECORDINGS, lines_of, recording, run, running, text_of, until
from tui.app import Dashboard
from tui.feed.replay import ReplayFeed
from tui.needs import LEAST_PICTURE
from tui.screens.views import (
    DOCTOR,
    JOBS,
    NUMBERED,
    OVERVIEW,
    VIEWS,
    Location,
    View,
)
from tui.widgets.grid import BESIDE, WIDE, Need, regions, stacked
from tui.widgets.panel import Panel
from tui.widgets.table import FRAME_LINES

PANELS = ("table", "side", "held", "rate", "age", "ends", "changes")
LINES = st.integers(2, 200)


@given(st.integers(20, 320), st.integers(3, 100), st.lists(LINES, min_size=7, max_size=7), LINES)
def test_panels_fill_the_screen_and_none_covers_another(
    width: int, height: int, lines: list[int], most: int
) -> None:
    names = PANELS if width >= BESIDE else PANELS[:2]
    needs = {
        name: Need(n, 6 if name == "table" else 4, fills=name == "held", most=most)
        for name, n in zip(names, lines, strict=False)
        if name != "age" or width >= WIDE
    }
    places = regions(Size(width, height), needs)
    assert "table" in places
    assert sum(place.area for place in places.values()) == width * height
    whole = Region(0, 0, width, height)
    for name, place in places.items():
        assert whole.contains_region(place), name
        assert place.height >= min(height, needs[name].least), name
        assert not any(place.overlaps(other) for n, other in places.items() if n != name)


@pytest.mark.parametrize(
    "size",
    only_here([((60, 16),), ((80, 24),), ((100, 30),), ((300, 80),)], ((60, 16),), ((300, 80),)),
)
def test_every_screen_stays_complete_at_every_size(size: tuple[int, int]) -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: app.size == size)
            for view in VIEWS:
                app.go(Location(view, "" if view.columns or view.name == "why" else "x"))
                await pilot.pause(0.05)
                lines = lines_of(app)
                assert len(lines) == size[1]
                shown = [p for p in app.panels if p.display and p.size.height]
                for panel in shown:
                    area = panel.region
                    first, last = lines[area.y], lines[area.bottom - 1]
                    assert (first[area.x], last[area.x]) == ("╭", "╰"), (view.name, panel.id)
                assert app.main in shown

    run(test)


def test_tab_goes_round_the_panels_and_esc_back_to_the_list() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            order: list[object] = [panel for panel in app.panels if panel.display]
            assert app.focused is app.table
            seen: list[object] = []
            for _ in order:
                seen.append(app.focused)
                await pilot.press("tab")
            assert app.focused is app.table
            assert set(seen) == set(order)
            before = app.table.state.cursor
            await pilot.press("tab")
            assert app.scrolled is app.side
            assert app.side.length > app.side.room
            await pilot.press("j")
            assert (app.side.top, app.table.state.cursor) == (1, before)
            await pilot.press("escape")
            assert app.focused is app.table
            assert app.location.view is OVERVIEW
            await pilot.press("shift+tab")
            assert app.focused is not app.table

    run(test)


def test_ascii_edges_where_the_terminal_has_no_others() -> None:
    async def test() -> None:
        feed = ReplayFeed(RECORDINGS / "incident.jsonl", still=True, ascii_only=True)
        feed.seek(1_000_000)
        async with running(feed) as (app, _):
            text = text_of(app)
            assert not set(text) & set("╭╮╰╯│─")
            assert "+- Findings 5  12 within limits" in text

    run(test)


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
def test_the_worst_finding_needs_no_key(size: tuple[int, int]) -> None:
    """Verdict, place, age, end and next step are there."""

    async def test() -> None:
        async with running(recording("incident"), size) as (app, pilot):
            await pilot.pause(0.1)
            assert app.frame is not None
            answer = app.frame.snapshot.hanging
            assert answer is not None
            worst = answer.rows[0]
            assert isinstance(worst, TxnHangingRow)
            text = text_of(app)
            row = next(line for line in lines_of(app) if "> !!" in line)
            for cell in (worst.verdict, worst.where, f"~{age(worst.age_seconds or 0)}", "never"):
                assert cell in row
            assert "never ends by itself" in " ".join(text.split())
            assert f"remedy       {worst.remedy.action}: " in text
            assert "…" not in "".join(line for line in lines_of(app)[5:] if "orders:2" in line)

    run(test)


SIZES = ((60, 16), (80, 24), (100, 30), (120, 40), (200, 60))


def test_no_panel_has_blank_lines_while_another_cuts() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            lists = [v for v in NUMBERED if v.columns and v not in (DOCTOR, JOBS)]
            for size, view in product(SIZES, lists):
                await pilot.resize_terminal(*size)
                await until(pilot, lambda size=size: app.size == size)  # type: ignore[misc]
                app.go(Location(view))
                await pilot.pause(0.05)
                check_lines(app, view)

    run(test)


def check_lines(app: Dashboard, view: View) -> None:
    shown = [p for p in app.panels if isinstance(p, Panel) and p.display and p.size.area]
    rows = len(app.table.state.order)
    cut = [p.length > p.room for p in shown] + [rows > app.table.room]
    blank = [p.room - p.length > 3 for p in shown] + [app.table.room - rows > 3]
    assert not any(cut) or not any(blank), (view.name, app.size, cut, blank)


@pytest.mark.parametrize(
    ("width", "key", "headings"),
    [
        (120, "1", "WHAT WHERE HELD AGE ENDS"),
        (120, "2", "TOPIC:PARTITION LSO HW HELD AGE BY"),
        (80, "5", "GROUP TOPIC:PARTITION COMMITTED LAG LAG-HW STATE"),
        (120, "5", "GROUP TOPIC:PARTITION COMMITTED LAG LAG-HW STATE"),
        (200, "5", "GROUP TOPIC:PARTITION COMMITTED LAG LAG-HW PENDING STATE"),
    ],
)
def test_the_columns_that_a_list_never_lacks(width: int, key: str, headings: str) -> None:
    async def test() -> None:
        async with running(recording("incident"), (width, 40)) as (app, pilot):
            await pilot.press(key)
            await pilot.pause(0.1)
            heads = [set(line.replace("│", " ").split()) for line in lines_of(app)]
            assert any(set(headings.split()) <= head for head in heads), lines_of(app)[:9]

    run(test)


def test_a_picture_is_below_a_list_that_leaves_it_room() -> None:
    """And gone where a story or the list's rows need the lines; never beside a half-empty list."""

    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            for key, panel in (("2", app.held), ("3", app.rate)):
                await pilot.press(key)
                await until(pilot, lambda panel=panel: panel.size.height >= LEAST_PICTURE)  # type: ignore[misc]
                before = app.table.size.height
                assert before == len(app.table.state.order) + FRAME_LINES
                await pilot.resize_terminal(120, 20)
                await until(pilot, lambda panel=panel: not panel.size.area)  # type: ignore[misc]
                assert not panel.allow_focus()
                await pilot.resize_terminal(120, 40)
                await until(pilot, lambda before=before: app.table.size.height == before)  # type: ignore[misc]
                order = app.table.state.order
                gone = order.pop()  # a row less: the picture stays where it is
                app.arrange()
                await pilot.pause(0.1)
                assert app.table.size.height == before
                order.append(gone)
                await pilot.press("slash", *"orders", "enter")  # a filter leaves it more room
                await until(pilot, lambda before=before: 6 <= app.table.size.height < before)  # type: ignore[misc]
                await pilot.press("escape")
            await pilot.press("5")
            assert not app.held.display
            assert not app.rate.display

    run(test)


def test_without_a_picture_the_list_has_its_lines() -> None:
    needs = {"table": Need(11, 6, most=203), "held": Need(3, 3), "ends": Need(3, 4)}
    assert stacked(needs, 40) == {"table": 33, "held": 3, "ends": 4}
    few = needs | {"table": Need(11, 6, most=20)}
    assert stacked(few, 40) == {"table": 20, "held": 3, "ends": 17}


class Asked(ReplayFeed):
    """A recording that remembers what was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(RECORDINGS / f"{name}.jsonl", still=True)
        self.asked: list[object] = []
        self.seek(1_000_000)

    def want(self, **changes: object) -> None:
        if not self.asked or self.asked[-1] != changes["why"]:
            self.asked.append(changes["why"])


def test_a_page_is_asked_for_once_the_cursor_rests_and_never_in_passing() -> None:
    async def test() -> None:
        feed = Asked("orders")
        async with running(feed) as (app, pilot):
            await pilot.press("2")
            first = app.table.state.order[0]
            await until(pilot, lambda: feed.asked[-1] == first)
            feed.asked.clear()
            shown = []
            for _ in range(3):
                await pilot.press("j")
                shown.append(lines_of(app)[2])
            rows = [app.table.state.row(key) for key in app.table.state.order[1:4]]
            for line, row in zip(shown, rows, strict=True):
                assert row is not None
                assert f" {row.cells[1]} " in line, "the story follows at once"
            await until(pilot, lambda: bool(feed.asked) and feed.asked[-1] == rows[-1].key)  # type: ignore[union-attr]
            assert not {row.key for row in rows[:-1] if row} & set(feed.asked)
            await pilot.press("G")  # nothing holds it: the snapshot says all
            await until(pilot, lambda: feed.asked[-1] is None)

    run(test)


def test_the_story_shows_its_page_only_of_the_same_transaction() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            assert app.frame is not None
            s = app.frame.snapshot
            assert s.why is not None
            assert s.why_about == "orders:3"
            await pilot.press("2")
            assert "txn abort" in app.side.text()
            assert "at stake" in app.side.text()
            page = s.why.rows[0]
            assert isinstance(page, WhyRow)
            assert page.held_by is not None
            other = replace(page.held_by, producer_id=77)
            why = replace(s.why, rows=[replace(page, held_by=other)])
            app.frame = replace(app.frame, snapshot=replace(s, why=why))
            app.show_story()
            assert "txn abort" not in app.side.text()
            assert "at stake" not in app.side.text()
            assert "STUCK  orphan" in app.side.text()

    run(test)


def test_a_page_shows_the_way_back_and_esc_returns_to_the_row() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("3", "j", "j")
            row = app.table.state.cursor
            await pilot.press("enter")
            await until(pilot, lambda: " Transactions > Timeline " in lines_of(app)[2])
            await pilot.press("escape")
            assert (app.location.view.name, app.table.state.cursor) == ("transactions", row)

    run(test)


def test_ctrl_p_finds_commands_topics_ids_and_groups() -> None:
    """By some of their letters; a name that looks like markup is shown as it is."""

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for typed, view, about in (
                ("pymnts", "partitions", ""),
                ("enricher03", "timeline", "orders-enricher-0_3"),
                ("clicks-sink", "groups", ""),
                (":partit", "partitions", ""),
                ("[/x]", "timeline", "[/x] \x1b[31m\u202egnp 😀"),
            ):
                await pilot.press("1", "ctrl+p")
                await until(pilot, lambda: isinstance(app.screen, CommandPalette))
                palette = app.screen
                palette.query_one(Input).value = typed
                found = palette.query_one(OptionList)
                await until(pilot, lambda found=found: found.option_count > 0)  # type: ignore[misc]
                await pilot.press("enter")
                await until(pilot, lambda: len(app.screen_stack) == 1)
                if typed.startswith(":"):  # the rest of the command may be typed
                    await until(pilot, lambda: app.prompt.display)
                    await pilot.press("enter")
                await until(pilot, lambda view=view: app.location.view.name == view)  # type: ignore[misc]
                assert app.location.about == about, typed
                if view == "partitions" and not typed.startswith(":"):
                    assert {k.split(":")[0] for k in app.table.state.order} == {"payments"}

    run(test)


def test_help_explains_the_underlined_word() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("3", "G", *["h"] * 9)
            row = app.table.current
            assert row is not None
            while app.table.state.data.columns[app.table.state.column].key != "state":
                await pilot.press("l")
            await pilot.press("question_mark")
            assert row.cells[app.table.state.column] == "CompleteAbort"
            said = app.screen.page.text()  # type: ignore[attr-defined]
            assert "CompleteAbort (ended)" in " ".join(said.split())

    run(test)


def test_titles_carry_the_number_of_rows() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for view in (v for v in NUMBERED if v.columns):
                await pilot.press(str(view.number))
                await asyncio.sleep(0)
                rows = app.table.state.data.rows
                number = sum(bool(r.mark) for r in rows) if view is OVERVIEW else len(rows)
                wanted = f"─ {view.list_title} {number} "
                assert edge_of(app).startswith(wanted), view.name

    run(test)


def edge_of(app: Dashboard) -> str:
    """The upper edge of the list, after its corner."""
    return "".join(segment.text for segment in app.table.render_line(0))[1:]
