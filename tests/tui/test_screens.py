"""Every screen as plain text, at three sizes, from snapshots that real labs gave.

EOCTL_UPDATE_GOLDEN=1 writes the files anew: look at the difference before committing it.
"""

import difflib
import os
from pathlib import Path

import pytest

from tests.tui.driving import lines_of, recording, run, running, runs
from tests.tui.large import LargeFeed
from tui.app import Dashboard
from tui.feed import Feed
from tui.shell import Place
from tui.views import TIMELINE, VIEWS, WHY, View

GOLDEN = Path(__file__).parent / "golden"
SIZES = ((80, 24), (120, 40), (200, 60))


def feed_of(name: str) -> Feed:
    return LargeFeed(10_000) if name == "large" else recording(name)


def about(app: Dashboard, view: View) -> str:
    """What a screen that is reached through another one is about."""
    if view is TIMELINE:
        return "orders-enricher-0_3"
    assert app.frame is not None
    return app.frame.snapshot.detail_about or f"{view.name} x"


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", ["orders", "empty", "dead", "denied", "large"])
def test_golden_screens(name: str, size: tuple[int, int]) -> None:
    if name != "orders" and size == (200, 60):
        size = (100, 30)  # another width instead of the same sight again
    shown: dict[str, str] = {}

    async def look() -> None:
        async with running(feed_of(name), size) as (app, pilot):
            for view in VIEWS:
                if view is WHY:
                    app.go(Place(view, "orders:3"))
                elif view.number:
                    await pilot.press(str(view.number))
                else:
                    app.go(Place(view, about(app, view)))
                await pilot.pause()
                lines = lines_of(app)
                assert len(lines) == size[1]
                told = list(runs(app))
                shown[view.name] = "\n".join([*lines, "---", *told]) + "\n"

    run(look)
    for view, text in shown.items():
        path = GOLDEN / f"{name}-{view}-{size[0]}x{size[1]}.txt"
        if os.environ.get("EOCTL_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        want = path.read_text(encoding="utf-8")
        diff = difflib.unified_diff(want.splitlines(), text.splitlines(), "golden", "now", "", "")
        assert text == want, "\n".join(diff)
