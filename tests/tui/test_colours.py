"""What is written in a theme can be read on its background (WCAG 2.1: contrast of at least 4.5)."""

import pytest
from rich.color import Color

from tests.tui.driving import recording, run, running
from tui.screens.views import NUMBERED, WHY
from tui.widgets.palette import BACKGROUNDS, style

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


@pytest.mark.parametrize("theme", sorted(BACKGROUNDS))
def test_every_text_on_the_screen_has_its_own_background(theme: str) -> None:
    """A terminal's own may be as dark as the text. An edge is no text."""
    shown: list[tuple[str, Color | None, Color | None]] = []

    async def test() -> None:
        async with running(recording("incident"), theme=theme) as (app, pilot):
            for view in (v for v in NUMBERED if v.columns or v is WHY):
                await pilot.press(str(view.number))
                await pilot.pause(0.05)
                for strip in app.screen._compositor.render_strips():
                    for segment in strip:
                        made = segment.style
                        assert made is not None
                        shown.append((segment.text, made.color, made.bgcolor))

    run(test)
    assert len(shown) > 1000
    for text, fore, back in shown:
        if text.strip():
            assert fore is not None
            assert back is not None, text
            least = 3 if set(text) <= set("╭╮╰╯│─ ") else 4.5
            assert contrast(fore, back) >= least, (text, fore, back)


@pytest.mark.parametrize("theme", sorted(BACKGROUNDS))
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
