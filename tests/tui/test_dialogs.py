"""Dialogs are as large as their words: nothing is cut, nothing scrolls where there is room."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.geometry import Region, Size
from textual.pilot import Pilot
from textual.widget import Widget

from eoctl.host.clock import now_ms
from eoctl.settings.context import Context
from tests.share import only_here
from tests.tui.driving import recording, run, running, until
from tests.unit.change.test_plan import make
from tui.app import Dashboard
from tui.screens.change import ChangeScreen, Ready
from tui.screens.forms import FORMS
from tui.screens.recover import FormScreen
from tui.widgets.lines import FRAME_HEIGHT, FRAME_WIDTH, Page, line_width
from tui.widgets.overlays import Overlay

SIZES = ((80, 24), (120, 40), (200, 60))
PLAIN_FORMS = [f for f in FORMS if not f.page]
LONG = "w" * 150  # a topic's name


def as_large_as_its_words(app: Dashboard, box: Widget, page: Page, rows: int = 0) -> None:
    """rows: of other things in the box."""
    lines, title = page.words(page.size.width)
    widest = max(map(line_width, (*lines, title)))
    assert widest <= page.size.width, "a line is cut"
    room = app.size
    assert Region(0, 0, *room).contains_region(box.region)
    if len(lines) + 1 + rows + FRAME_HEIGHT - 2 <= room.height:
        assert page.length <= page.room, "it scrolls, and there is room"
        assert box.size.height <= len(lines) + 1 + rows, "lines that nobody needs"
    else:
        assert box.region.height == room.height


async def each_size(app: Dashboard, pilot: Pilot[str], box: Widget, page: Page, rows: int) -> None:
    for size in SIZES:
        await pilot.resize_terminal(*size)
        await until(pilot, lambda size=size: app.screen.size == Size(*size))  # type: ignore[misc]
        await pilot.pause()
        as_large_as_its_words(app, box, page, rows)


@pytest.mark.parametrize(
    "view",
    only_here(["overview", "transactions", "partitions", "plans"], "overview", "transactions"),
)
@pytest.mark.parametrize("key", ["s", "y", "e", "question_mark"])
def test_overlays(view: str, key: str) -> None:
    async def test() -> None:
        async with running(recording("orders"), (80, 24)) as (app, pilot):
            app.action_view(view)
            await pilot.press(key)
            over = app.screen
            assert isinstance(over, Overlay)
            await each_size(app, pilot, over.page, over.page, 0)
            lines, title = over.page.words(over.page.size.width)
            widest = max(map(line_width, (*lines, title)))
            assert over.page.size.width <= widest + 1, "wider than its words"

    run(test)


@pytest.mark.parametrize(
    "texts",
    only_here([["done"], ["a sentence. " * 40], [f"{LONG}:3 refused"] * 30], ["a sentence. " * 40]),
)
def test_a_change(texts: Sequence[str]) -> None:
    async def test() -> None:
        async with running(recording("orders"), (80, 24)) as (app, pilot):
            over = ChangeScreen("Remedy", lambda: Ready(None, texts), "planning")
            app.push_screen(over)
            await until(pilot, lambda: texts[0][:4] in over.page.text())
            await each_size(app, pilot, over.box, over.page, 0)
            over.ask("abort-3f9c")
            await each_size(app, pilot, over.box, over.page, 1)
            placeholder = over.word.placeholder
            assert len(placeholder) <= over.word.size.width, "what is to be typed is cut"

    run(test)


@pytest.mark.parametrize("expired", [False, True])
def test_a_wrong_word_keeps_the_dialog_and_is_counted(
    expired: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    plan = make(expires_at=now_ms() + (-1 if expired else 60_000), hits="orders:3")
    ready = Ready(plan, (), Context("prod-eu", {}, ()))

    async def test() -> None:
        async with running(recording("orders"), (80, 24)) as (app, pilot):
            over = ChangeScreen("Remedy", lambda: ready, "planning")
            app.push_screen(over)
            await until(pilot, lambda: over.said.startswith("type abort-orders:3"))
            for left in ("2 more tries", "1 more try"):
                over.word.value = "abort-orders"
                await pilot.press("enter")
                if expired:
                    break
                assert left in over.said
                assert over.said == over.word.placeholder
                assert over.word.value == ""
                assert "nothing was sent yet" in over.page.text()
                await each_size(app, pilot, over.box, over.page, 1)
            if not expired:
                over.word.value = "abort-orders"
                await pilot.press("enter")
            ended = "the plan expired" if expired else "not confirmed: nothing was sent"
            await until(pilot, lambda: ended in over.said)
            assert not over.word.display

    run(test)


@pytest.mark.parametrize("form", only_here(PLAIN_FORMS, *PLAIN_FORMS[::3]), ids=lambda f: f.name)
def test_a_form(form: object) -> None:
    async def test() -> None:
        async with running(recording("orders"), (80, 24)) as (app, pilot):
            over = FormScreen(form, ("--context", "prod"))  # type: ignore[arg-type]
            app.push_screen(over)
            await until(pilot, lambda: bool(over.page.text()))
            rows = len(over.inputs) + 1
            await each_size(app, pilot, box_of(over), over.page, rows)
            for made in over.inputs:
                assert len(made.placeholder) <= made.size.width, made.placeholder

    run(test)


def box_of(over: FormScreen) -> Widget:
    return over.query_one("#form")


def test_the_frame_is_what_is_reckoned_with() -> None:
    assert (FRAME_WIDTH, FRAME_HEIGHT) == (2 + 2 * 2, 2 + 2 * 1), "border, and padding 1 2"
