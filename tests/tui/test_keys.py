"""Every key on every screen, on a recording of a real lab."""

import csv
import inspect
import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from textual import events
from textual.pilot import Pilot

from eoctl.render.explain import means
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.values import replace
from tests.share import only_here
from tests.tui.driving import (
    RECORDINGS,
    Hands,
    lines_of,
    recording,
    run,
    running,
    text_of,
    until,
)
from tui import fixed_lines
from tui.app import Dashboard, Renewed
from tui.feed.recording import read
from tui.panes import NO_WHY, NOT_RECORDED
from tui.screens.keys import COMMANDS, KEYS, bindings, exists
from tui.screens.views import CHANGE, DOCTOR, JOB, LETTERS, NUMBERED, VIEWS, WHY, Location, View
from tui.widgets.overlays import Overlay

STARTS = ("eoctl --context ", "eoctl --command-config ", "eoctl jobs", "eoctl journal")
TABLES = [v for v in NUMBERED if v.columns]
NAMED = (
    "timeline",
    "group",
    "change",
    "job",
    "merge",
    "checkpoint",
    "finding",
)  # `:` takes their subject


def current(app: Dashboard) -> str:
    assert app.table.current is not None
    return app.table.current.key


def test_no_key_is_bound_twice_and_the_dangerous_ones_are_not_bound() -> None:
    keys = [key for b in bindings() for key in b.key.split(",")]
    assert sorted(keys) == sorted(set(keys))
    assert not {"C", "K", "ctrl+d", "ctrl+k", "delete"} & set(keys)
    assert {b.key for b in bindings() if b.priority} == {"ctrl+c", "ctrl+q", "ctrl+z"}


def test_letters_of_columns_are_unique_on_their_screen_and_free() -> None:
    taken = {key for k in KEYS for key in k.keys}
    for view in VIEWS:
        letters = [c.letter for c in view.columns if c.letter]
        assert len(letters) == len(set(letters)), view.name
        assert not taken & set(letters), view.name
        assert "U" not in letters
    assert {c.letter for v in VIEWS for c in v.columns if c.letter} == set(LETTERS)


def test_every_action_of_the_list_is_there() -> None:
    for key in KEYS:
        name = key.action.split("(")[0]
        assert inspect.getattr_static(Dashboard, f"action_{name}", None), name


def test_digits_show_their_screens() -> None:
    def shown(app: Dashboard, view: View) -> bool:
        line = 5 if view.number == 1 else 2
        title = view.title if view.kind == "page" else view.list_title
        return f" {title} " in lines_of(app)[line][:20] + " "

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for view in NUMBERED:
                await pilot.press(str(view.number))
                assert app.location.view is view
                await until(pilot, partial(shown, app, view))

    run(test)


@pytest.mark.parametrize("view", only_here(TABLES, *TABLES[:4]), ids=lambda v: v.name)
def test_keys_of_a_table(view: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(folder: Path) -> None:
        known = "doctor" if view is DOCTOR else "orders"
        async with running(recording(known)) as (app, pilot):
            await pilot.press(str(view.number))  # type: ignore[attr-defined]
            await moves(app, pilot)
            await marks(app, pilot)
            await sorts(app, pilot)
            await filters(app, pilot)
            await copies(app, pilot)
            await writes(app, pilot, folder)
            await overlays(app, pilot)

    # pytest's own folders have paths too long for the line that names the file
    with TemporaryDirectory() as folder, monkeypatch.context() as here:
        here.chdir(folder)
        run(partial(test, Path(folder).resolve()))


async def moves(app: Dashboard, pilot: Pilot[str]) -> None:
    order = app.table.state.order
    for key, index in (
        ("G", len(order) - 1),
        ("g", 0),
        ("j", min(1, len(order) - 1)),
        ("k", 0),
        ("down", min(1, len(order) - 1)),
        ("up", 0),
        ("end", len(order) - 1),
        ("home", 0),
        ("pagedown", len(order) - 1),
        ("pageup", 0),
    ):
        await pilot.press(key)
        assert current(app) == order[index], key


async def marks(app: Dashboard, pilot: Pilot[str]) -> None:
    first = current(app)
    await pilot.press("space")
    assert app.table.state.selected == {first}
    assert "1 marked" in text_of(app)
    await pilot.press("g", "space")
    assert not app.table.state.selected
    await pilot.press("g")


async def sorts(app: Dashboard, pilot: Pilot[str]) -> None:
    state = app.table.state
    before = list(state.order)
    for number, column in enumerate(state.data.columns):
        if not column.letter:
            continue
        await pilot.press(column.letter)
        assert state.sort == number
        values = [state.data.by_key[k].sort[number] for k in state.order]
        known = [v for v in values if v is not None]
        expected = sorted(known, reverse=state.descending)  # type: ignore[type-var]
        assert known == expected, column.title
        assert values[: len(known)] == known  # what is not known comes last
        descending = state.descending
        await pilot.press(column.letter)
        assert state.descending is not descending
    await pilot.press("s")
    assert isinstance(app.screen, Overlay)
    await pilot.press("u")
    assert (state.sort, state.order) == (None, before)


async def filters(app: Dashboard, pilot: Pilot[str]) -> None:
    state = app.table.state
    everything = list(state.order)
    for typed in ("o", "!o"):
        await pilot.press("slash", *["exclamation_mark" if c == "!" else c for c in typed])
        has = ["o" in "  ".join(state.data.by_key[k].cells).lower() for k in everything]
        want = [k for k, h in zip(everything, has, strict=True) if h != typed.startswith("!")]
        assert state.order == want
        await pilot.press("enter")
        assert state.order == want
        assert app.focused is app.table
        await pilot.press("escape")
        assert state.order == everything
    await pilot.press("slash", "left_square_bracket")
    assert "not a regular expression" in text_of(app)
    await pilot.press("escape")
    assert state.order == everything


async def copies(app: Dashboard, pilot: Pilot[str]) -> None:
    await pilot.press("g", *["h"] * 9)
    row, seen = app.table.current, set()
    assert row is not None
    for _ in app.table.state.data.columns:
        await pilot.press("c")
        column = app.table.state.column
        value = row.sort[column]
        want = value if isinstance(value, str) else row.cells[column].strip()
        assert app.copied == want
        seen.add(column)
        await pilot.press("l")
    assert len(seen) > 3
    await pilot.press("left", "right")


async def writes(app: Dashboard, pilot: Pilot[str], folder: Path) -> None:
    await pilot.press("ctrl+s")
    path = written(folder, f"eoctl-{app.location.view.name}-*.csv")
    assert str(path) in text_of(app)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    state = app.table.state
    assert len(rows) == len(state.order)
    assert list(rows[0]) == [c.key for c in state.data.columns if c.kind != "spark"]
    assert "\x1b" not in path.read_text(encoding="utf-8")
    await pilot.press("ctrl+s")
    assert "cannot be written" in text_of(app)  # never over a file that is there


def written(folder: Path, pattern: str) -> Path:
    [path] = folder.glob(pattern)
    return path


async def overlays(app: Dashboard, pilot: Pilot[str]) -> None:
    await pilot.press("g")
    row = app.table.current
    assert row is not None
    for key, close in (("y", "escape"), ("e", "q"), ("question_mark", "enter")):
        if key == "y" and row.source is None:
            await pilot.press(key)  # a form is no row of any answer
            assert "there is no row" in text_of(app)
            continue
        await pilot.press(key)
        over = app.screen
        assert isinstance(over, Overlay), key
        if key == "y":
            shown = json.loads(over.page.text().replace("\n", ""))
            assert shown == row.source.json_values()  # type: ignore[attr-defined]
        elif key == "e":
            told = over.page.text()
            assert told.startswith(STARTS)
        else:
            for k in KEYS:
                here = exists(k, app.location.view, replay=True, may_change=False)
                assert (k.help in over.page.text()) == here, k
            for c in COMMANDS:
                assert c.help in over.page.text()
        await pilot.press("G", "g", "j", "k", "pagedown", "pageup", "c", close)
        assert len(app.screen_stack) == 1


def test_help_explains_the_verdict_under_the_cursor_and_on_the_page() -> None:
    """With the words of `eoctl explain`; a row without a verdict has none."""

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            row = app.table.current
            assert row is not None
            assert isinstance(row.source, TxnHangingRow)
            name = row.source.verdict
            for keys in ((), ("enter",)):
                await pilot.press(*keys)
                await pilot.press("question_mark")
                assert isinstance(app.screen, Overlay)
                assert f" {name}  verdict" in app.screen.page.text()
                await pilot.press("escape")

    run(test)


@pytest.mark.long
def test_enter_opens_and_esc_and_q_go_back() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for number, name in (("1", "why"), ("2", "why"), ("3", "timeline"), ("5", "why")):
                for way in ("escape", "q"):
                    await pilot.press(number, "g")
                    if number == "3":  # strays have no timeline
                        app.table.to(next(
                            n for n, k in enumerate(app.table.state.order) if k.startswith("id")
                        ))  # fmt: skip
                    row = app.table.current
                    assert row is not None
                    assert row.opens is not None
                    assert row.opens[0] == name
                    await pilot.press("enter" if way == "q" else "d")
                    assert (app.location.view.name, app.location.about) == row.opens
                    await pilot.press("j", "k", "G", "g", "pagedown", "pageup")
                    await pilot.press(way)
                    assert app.location.view.number == int(number)
                    assert current(app) == row.key

    run(test)


def test_q_at_the_root_quits_and_gives_back_what_was_copied() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("2", "c", "q")
            await pilot.pause()
            assert app.return_value == app.copied is not None

    run(test)


@pytest.mark.parametrize("key", ["ctrl+c", "ctrl+q"])
def test_priority_keys_work_while_something_is_typed_and_over_an_overlay(key: str) -> None:
    async def test() -> None:
        for before in (["slash", "x"], ["colon", "w"], ["question_mark"], []):
            async with running(recording("orders")) as (app, pilot):
                await pilot.press(*before, key)
                await pilot.pause()
                assert not app.is_running or app._exit

    run(test)


def test_what_is_typed_ahead_goes_where_it_belongs() -> None:
    """All of it is in the queue before the first key is handled; the last is for another screen."""
    keys = ["2", "slash", *"resedy", "enter", "3"]

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for key in keys:
                name = {"slash": "/", "enter": "\r"}.get(key, key)
                app.post_message(events.Key(key, name))
            await until(pilot, lambda: app.location.view.name == "transactions")
            assert not app.prompt.display
            assert len(app.screen_stack) == 1
            typed = app.states["partitions"].filter
            assert typed is not None
            assert typed.text == "resedy"
            assert app.table.state.filter is None

    run(test)


def test_text_typed_ahead_of_two_filters_is_never_a_command() -> None:
    """Of the second one `x` would be a remedy and `q` the end; a backspace has its place."""
    first = ["2", "/", *"axs", "backspace", "enter", "3", "j", "/", *"xqs2", "enter"]
    keys = [*first, ":", *"whz", "backspace", *"y x", "enter", "4", "/", "backspace", "5"]
    named = {"/": "slash", ":": "colon", " ": "space"}

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            assert app.frame is not None
            seen: list[str] = []
            for name in ("retreat", "remedy"):
                setattr(app, f"action_{name}", lambda name=name: seen.append(name))
            for key in keys:
                name = {"enter": "\r", "backspace": "\x7f"}.get(key, key)
                app.post_message(events.Key(named.get(key, key), name))
                if key == "enter":  # a message in between, as of a frame
                    app.post_message(Renewed(app.frame))
            await until(pilot, lambda: app.location.view.name == "groups")
            filters = [app.states[n].filter for n in ("partitions", "transactions", "producers")]
            assert [f.text if f else None for f in filters] == ["ax", "xqs2", None]
            assert app.table.state.filter is None
            assert not seen
            assert not app.prompt.display
            assert len(app.screen_stack) == 1

    run(test)


@pytest.mark.parametrize("key", ["/", ":", "2", "6", "9", "question_mark"])
def test_a_key_before_the_first_paint_finds_its_part(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first paint does not show is mounted behind it, or as soon as a key is typed."""
    monkeypatch.setattr(Dashboard, "begin", lambda self: None)
    app = Dashboard(recording("orders"))

    async def test() -> None:
        async with app.run_test(size=(120, 40)):
            pilot = Hands(app)
            assert not app.query("#prompt, #page, #side, #held")
            await pilot.press(key, "x")
            assert len(app.screen_stack[0].query("#prompt, #page, #side, #held")) == 4
            assert (app.focused is app.prompt) == (key in "/:")
            if key in "/:":
                assert app.prompt.value == f"{key}x"
            if key == "6":
                assert app.location.view is WHY
                assert app.focused is app.page
                await until(pilot, lambda: app.page.size.height > 20)

    run(test)


@pytest.mark.parametrize(
    ("theme", "background"),
    [("dark", "#14161C"), ("contrast", "#000000"), ("light", "#F7F8FB"), ("ansi-dark", None)],
)
def test_a_theme_is_the_same_from_the_start_as_when_chosen(
    theme: str, background: str | None
) -> None:
    """Also of parts that are mounted behind the first paint, and of overlays."""

    def colours(app: Dashboard) -> list[object]:
        parts = [app.screen_stack[0], *app.screen_stack[0].walk_children()]
        return [(part.id, part.background_colors, part.styles.border_left) for part in parts]

    async def test() -> None:
        async with running(recording("orders"), theme=theme) as (app, pilot):
            await pilot.press("3")
            began = colours(app), dict(app.theme_variables), app.native_ansi_color
            if background is not None:
                assert app.screen.styles.background.hex == background
            app.theme = "ansi-light"
            await pilot.pause()
            app.theme = theme
            await pilot.pause()
            assert (colours(app), dict(app.theme_variables), app.native_ansi_color) == began

    run(test)


def test_commands() -> None:
    async def typed(pilot: Pilot[str], text: str) -> None:
        """Put into the prompt as if pasted."""
        app = pilot.app
        assert isinstance(app, Dashboard)
        await pilot.press("colon")
        app.prompt.value = f":{text}"
        await pilot.press("enter")

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            for view in VIEWS:
                for name in view.names:
                    await typed(pilot, f"{name} x" if view.name in NAMED else name)
                    assert app.location.view is view
            await typed(pilot, "lso orders")
            assert app.table.state.filter is not None
            assert {k.split(":")[0] for k in app.table.state.order} == {"orders"}
            await pilot.press("escape")
            await typed(pilot, "why orders:3")
            assert app.location.about == "orders:3"
            await typed(pilot, "why orders:x-")
            for wrong in ("nonsense", "ctx other", "interval 0", "interval soon", "theme pink"):
                await typed(pilot, wrong)
                assert app.message[1] in ("look", "act"), wrong
            for theme in ("light", "contrast", "ansi-dark", "ansi-light", "dark"):
                await typed(pilot, f"theme {theme}")
                assert app.theme == theme
                assert "orders" in text_of(app)
            await pilot.press("colon", "p", "a", "tab", "enter")
            assert app.location.view.name == "partitions"
            await pilot.press("colon", "backspace")
            assert app.focused is app.table
            await typed(pilot, "help")
            assert isinstance(app.screen, Overlay)
            await pilot.press("escape")
            await typed(pilot, "explain drop first")
            assert isinstance(app.screen, Overlay)
            assert means("drop-first", "term")[:60] in app.screen.page.text()
            await pilot.press("escape")
            await typed(pilot, "explain orfan")
            assert "did you mean orphan" in app.message[0]
            await typed(pilot, "q")
            assert app._exit

    run(test)


def test_pages_have_json_a_command_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("2")
            app.table.to(app.table.state.order.index("orders:3"))
            await pilot.press("enter", "y")
            assert "STUCK  orphan" in app.screen.page.text()  # type: ignore[attr-defined]
            await pilot.press("escape", "e")
            told = app.screen.page.text()  # type: ignore[attr-defined]
            assert "why orders:3" in told
            assert "txn abort orders:3 --pid" in told.replace("\n", "")
            assert "--execute" not in told
            await pilot.press("escape", "ctrl+s")
            path = written(tmp_path, "eoctl-why-*.txt")
            assert "orders:3  STUCK  orphan" in path.read_text(encoding="utf-8")

    run(test)


@pytest.mark.parametrize(
    ("view", "shown", "other"),
    [
        (WHY, "orders:0", "other:0"),
        (CHANGE, "plan a", "plan b"),
        (JOB, "job a", "job b"),
    ],
    ids=lambda v: v.name if isinstance(v, View) else "",
)
def test_keys_on_a_subject_do_not_exist_before_its_page_has_answered(
    view: View, shown: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot still holds the answer of another page, which x, e, y would act on."""
    monkeypatch.setattr(Dashboard, "may_change", True)

    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            assert app.frame is not None
            answer = Answer("why", None, 0, [])
            seen = replace(app.frame.snapshot, why=answer, why_about=shown)
            seen = replace(seen, detail=answer, detail_about=shown)
            app.frame = replace(app.frame, snapshot=seen)
            mine = [k for k in KEYS if k.subject]
            assert {"x", "e", "y", "u", "v", "z", "t"} == {k.shown for k in mine}
            for key in mine:
                app.go(Location(view, shown))
                there = exists(key, view, replay=True, may_change=True)
                assert app.check_action(key.action, ()) is there, key.shown
                app.go(Location(view, other))
                assert app.check_action(key.action, ()) is False, key.shown
                await pilot.press(*key.keys)
                assert len(app.screen_stack) == 1, key.shown

    run(test)


def test_a_recording_is_paused_and_sought() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            assert app.frame is not None
            assert app.frame.position is not None
            last = app.frame.position[1]
            for key, want in (
                ("left_square_bracket", last - 1),
                ("right_square_bracket", last),
                ("less_than_sign", max(1, last - 20)),
                ("greater_than_sign", min(last, max(1, last - 20) + 20)),
            ):
                await pilot.press(key)
                await until(pilot, lambda want=want: app.frame.position[0] == want)  # type: ignore[misc]
                assert f"REPLAY {want:>{len(str(last))}}/{last}" in lines_of(app)[0]
            await pilot.press("p", "p", "r", "plus", "minus")
            # what changes a cluster does not exist here
            await pilot.press("x")
            assert len(app.screen_stack) == 1
            assert app.check_action("remedy", ()) is False

    run(test)


def test_why_in_a_recording_is_of_the_worst_finding_of_its_moment() -> None:
    """The page that was recorded, if it is of that transaction; never one of a finding before."""
    snapshots = list(read(RECORDINGS / "incident.jsonl"))
    found = {s.why_about: n for n, s in enumerate(snapshots) if s.why is not None}
    last = len(snapshots) - 1
    mended, next_one = found["payments:1"] - 4, found["payments:1"]

    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):

            async def page_at(number: int) -> str:
                app.feed.seek_to(number)
                await until(pilot, lambda: app.frame.position[0] == number + 1)  # type: ignore
                await pilot.pause(0.05)
                return " ".join(app.page.text().split())

            await pilot.press("6")
            page = await page_at(last)
            assert page.startswith("orders:2 STUCK orphan")
            assert "because" in page
            assert "Why orders:2 " in lines_of(app)[2]
            await pilot.press("e")
            told = app.screen.page.text()  # type: ignore[attr-defined]
            assert "why orders:2" in told
            await pilot.press("escape")
            frame = app.frame
            assert frame is not None
            shown = frame.snapshot
            assert shown.why_about == "orders:2"
            for why, has_it in ((snapshots[next_one].why, False), (shown.why, True)):
                app.frame = replace(frame, snapshot=replace(shown, why=why, why_about=""))
                app.show_page()
                page = " ".join(app.page.text().split())
                assert app.answered == has_it
                assert page.startswith("orders:2 STUCK orphan")
                assert ("payments:1" in page, NO_WHY in page) == (False, not has_it)
                if has_it:
                    await pilot.press("e")
                    told = app.screen.page.text()  # type: ignore[attr-defined]
                    assert " why orders:2" in " ".join(told.split()), "now another may be the worst"
                    await pilot.press("escape")
                title = fixed_lines.page_title(shown, app.feed, app.answer, app.place, ())
                assert ("no answer" in title[1][0][0]) != has_it
            for number, begins, ends in (
                (mended, "", NOT_RECORDED),
                (next_one, "orders:2 STUCK orphan", NO_WHY),
            ):
                page = await page_at(number)
                assert snapshots[number].why_about == "payments:1", "a page of before"
                assert page.startswith(begins)
                where = " orders:2" if begins else ""
                assert f"{ends} eoctl --context lab-record-incident why{where}" in page
                assert "payments:1" not in page

    run(test)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tables"), only_here([("denied", True), ("jobs", False)], ("jobs", False))
)
def test_every_key_on_every_screen_also_without_rows(
    name: str, tables: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None fails, each overlay closes, and what does not exist on a screen does nothing."""
    monkeypatch.chdir(tmp_path)
    leaving = {"stop", "suspend_process", "retreat", "summary"}

    async def test() -> None:
        async with running(recording(name), (80, 24)) as (app, pilot):
            for view in (v for v in VIEWS if bool(v.columns) == tables):
                about = "" if view.columns or view.name == "why" else f"{view.name} x"
                for key in KEYS:
                    if key.action.split("(")[0] in leaving:
                        continue
                    here = exists(key, view, replay=True, may_change=False)
                    app.go(Location(view, about))
                    app.say("")
                    await pilot.press(key.keys[0])
                    assert app.is_running
                    assert app._exception is None, (view.name, key.shown)
                    if not here:
                        assert app.check_action(key.action.split("(")[0], ()) is False
                    if not any(
                        exists(k, view, replay=True, may_change=False)
                        for k in KEYS
                        if k.keys == key.keys
                    ):
                        assert app.location == Location(view, about), key.shown
                        assert (len(app.screen_stack), app.message[0]) == (1, ""), key.shown
                    if app.prompt.display or len(app.screen_stack) > 1:
                        await pilot.press("escape")
                    assert len(app.screen_stack) == 1, (view.name, key.shown)
                    assert not app.prompt.display

    run(test)
