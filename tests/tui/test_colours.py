"""What is written in a theme can be read on its background (WCAG 2.1: contrast of at least 4.5)."""

from itertools import pairwise

import pytest
from rich.color import Color, ColorSystem
from rich.segment import Segment
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tests.tui.driving import recording, run, running, text_of, until
from tui.app import Dashboard
from tui.screens.change import ChangeScreen, Ready
from tui.screens.views import NUMBERED, WHY
from tui.widgets.lines import Page
from tui.widgets.palette import BACKGROUNDS, THEMES, style

LINES = ("series1", "series2", "series3", "series4", "aborted")
MEANT = ("text", "dim", "act", "look", "unknown", "good", "spark", "key", "gone", "acts", "title")
IN_ROWS = (*MEANT, *LINES)
READ = (*IN_ROWS, "head", "slider", "tab", "stale")
PAIRS = [*((role, None) for role in READ), *((role, "cursor") for role in IN_ROWS)]


def luminance(color: Color) -> float:
    """Of sRGB, as WCAG defines it, 0 to 1."""
    assert color.triplet is not None
    red, green, blue = (
        x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4
        for x in (part / 255 for part in color.triplet)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", sorted(BACKGROUNDS))
@pytest.mark.parametrize(("role", "under"), PAIRS)
def test_each_text_can_be_read_on_its_background(theme: str, role: str, under: str | None) -> None:
    drawn = style(theme, role, under)
    fore = drawn.color or style(theme, "text").color
    back = drawn.bgcolor or Color.parse(BACKGROUNDS[theme])
    assert fore is not None
    assert contrast(fore, back) >= 4.5


def contrast(one: Color, other: Color) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


PALETTES = {
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 "
    "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "Linux console": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa "
    "555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "Windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc "
    "767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
    "macOS": "000000 990000 00a600 999900 0000b2 b200b2 00a6b2 bfbfbf "
    "666666 e50000 00d900 e5e500 0000ff e500e5 00e5e5 e5e5e5",
}
"""The 16 colours of usual terminals."""
NO_TEXT = set("╭╮╰╯│─ ")  # edges


def meta_of(segment: Segment) -> dict[str, object]:
    """Return what Textual knows of a segment: a bar that scrolls can be grabbed."""
    return segment.style.meta if segment.style is not None else {}


OWN = {"ansi-light": ("#000000", "#ffffff"), "ansi-dark": ("#e5e5e5", "#000000")}
"""The text and the background of a terminal for which one takes these themes."""


def in_16(segment: Segment, palette: str, theme: str) -> tuple[Color, Color]:
    """Return the colours in which a terminal of 16 colours shows a text."""
    made = segment.style
    assert made is not None
    pair = []
    for colour, own in zip(
        (made.color, made.bgcolor), OWN.get(theme, OWN["ansi-dark"]), strict=True
    ):
        few = colour.downgrade(ColorSystem.STANDARD) if colour is not None else None
        number = few.number if few is not None else None
        pair.append(Color.parse(own if number is None else "#" + palette.split()[number]))
    fore, back = pair
    return (back, fore) if made.reverse else (fore, back)


async def every_state(app: Dashboard, pilot: Pilot[str]) -> list[Segment]:
    """Return what is on the screens, on marked rows, in the line for commands and in dialogs."""
    found: list[Segment] = []

    async def look(*parts: type[Widget]) -> None:
        """Take the screen, or these parts of a dialog: what is behind it is dimmed."""
        await pilot.pause(0.05)
        strips = app.screen._compositor.render_strips()
        areas = [part.region for kind in parts for part in app.screen.query(kind)]
        for area in areas or [app.size.region]:
            for y in area.line_range:
                found.extend(strips[y].crop(area.x, area.right))

    for view in (v for v in NUMBERED if v.columns or v is WHY):
        await pilot.press(str(view.number))
        await look()
    await pilot.press("1", "j", "space", "j", "colon", "l")
    await look()
    await pilot.press("escape", "question_mark")
    await look(Page)
    await pilot.press("escape", "ctrl+p", "o", "r")
    await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 0)
    await look(Input, OptionList)
    await pilot.press("escape")
    over = ChangeScreen("Remedy", lambda: Ready(None, ["refused: orders:3"]), "planning")
    app.push_screen(over)
    await until(pilot, lambda: "refused" in over.page.text())
    over.ask("abort-3f9c")
    await look(Page, Input)
    return found


@pytest.mark.parametrize("theme", sorted(BACKGROUNDS))
def test_every_text_on_the_screen_has_its_own_background(theme: str) -> None:
    """A terminal's own may be as dark as the text. An edge is no text."""
    shown: list[Segment] = []

    async def test() -> None:
        async with running(recording("incident"), theme=theme) as (app, pilot):
            shown.extend(await every_state(app, pilot))

    run(test)
    assert len(shown) > 1000
    for segment in shown:
        made = segment.style
        if segment.text.strip() and made is not None and "@mouse.down" not in made.meta:
            assert made.color is not None
            assert made.bgcolor is not None, segment
            least = 3 if set(segment.text) <= NO_TEXT else 4.5
            assert contrast(made.color, made.bgcolor) >= least, segment


@pytest.mark.parametrize("name", ["incident", "denied"])
@pytest.mark.parametrize("theme", THEMES)
def test_every_state_can_be_read_in_16_colours(
    name: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal's palette is its own: 3 is what a contrast can be held to on all of these."""
    monkeypatch.setenv("TERM", "xterm")
    shown: list[Segment] = []

    async def test() -> None:
        nonlocal theme
        async with running(recording(name), theme=theme) as (app, pilot):
            theme = app.theme
            shown.extend(await every_state(app, pilot))

    run(test)
    assert len(shown) > 1000
    styles = {
        s.style: s for s in shown if set(s.text) - NO_TEXT and "@mouse.down" not in meta_of(s)
    }
    assert any(s.style is not None and s.style.color is not None for s in styles.values())
    for segment in styles.values():
        for terminal, palette in PALETTES.items():
            fore, back = in_16(segment, palette, theme)
            assert contrast(fore, back) >= 3, (terminal, theme, segment)


@pytest.mark.parametrize("theme", THEMES)
def test_what_acts_has_a_colour_of_its_own(theme: str) -> None:
    others = {style(theme, role).color for role in READ if role != "acts"}
    assert style(theme, "acts").color not in others


@pytest.mark.parametrize("theme", sorted(BACKGROUNDS))
def test_an_edge_can_be_seen_and_the_focus_told_from_it(theme: str) -> None:
    """WCAG asks 3 of what is no text; without colours the focused edge is bold."""
    edge, focused = style(theme, "edge"), style(theme, "key")
    assert edge.color is not None
    assert contrast(edge.color, Color.parse(BACKGROUNDS[theme])) >= 3
    assert edge.color != focused.color
    assert focused.bold
    assert not edge.bold


@pytest.mark.parametrize("key", ["1", "2", "5"])
def test_another_theme_is_on_every_line_at_once(key: str) -> None:
    """Widgets keep their lines until one changes: a theme changes all, as if it were the first."""

    async def drawn(first: str, *, then: str = "") -> list[Strip]:
        async with running(recording("incident"), theme=first) as (app, pilot):
            await pilot.press(key)
            await pilot.pause(0.2)
            if then:
                await pilot.press("colon", *f"theme {then}", "enter")
                await pilot.pause(0.2)
            return [Strip(line).simplify() for line in app.screen._compositor.render_strips()]

    async def test() -> None:
        for first, then in pairwise(("dark", "light", "contrast", "dark")):
            assert await drawn(first, then=then) == await drawn(then), (first, then)

    run(test)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [80, 120])
def test_a_theme_that_is_shown_as_another_says_so(
    theme: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")

    async def test() -> None:
        async with running(recording("incident"), (width, 24)) as (app, pilot):
            await pilot.press("colon", *f"theme {theme}", "enter")
            text = text_of(app)
            says = f"shown as {app.theme}: TERM says 16 colours; if more, set COLORTERM=truecolor"
            assert (says in text) == (app.theme != theme)

    run(test)
