"""`python -m docs.screenshots`: pictures of the dashboard for README and docs, as SVG.

They show recordings of real labs (tests/tui/recordings), so that nothing in them is made up.
"""

import asyncio
import re
from pathlib import Path

from tui.app import Dashboard
from tui.feed.replay import ReplayFeed
from tui.screens.views import BY_NAME
from tui.shell import Place

RECORDINGS = Path(__file__).parents[1] / "tests" / "tui" / "recordings"
FOLDER = Path(__file__).parent / "screenshots"
SHOTS = (
    ("overview", "", "dark"),
    ("partitions", "", "dark"),
    ("transactions", "", "dark"),
    ("groups", "", "light"),
    ("why", "orders:3", "dark"),
    ("timeline", "orders-enricher-0_3", "contrast"),
    ("plans", "", "dark"),
    ("jobs", "", "dark"),
    ("recover", "", "light"),
)
FONT_FROM_ELSEWHERE = re.compile(r',\s*url\("https:[^;]*(?=;)')
"""Where Rich says that the font may be fetched; a page of ours fetches nothing."""


async def shoot(name: str, about: str, theme: str) -> str:
    """One screen at 120x32 as SVG."""
    known = "jobs" if name == "jobs" else "orders"
    feed = ReplayFeed(RECORDINGS / f"{known}.jsonl", still=True)
    feed.seek(1_000_000)
    app = Dashboard(feed, theme=theme)
    async with app.run_test(size=(120, 32)) as pilot:
        while app.frame is None or app.frame.position is None or len(set(app.frame.position)) > 1:
            await pilot.pause(0.02)
        app.go(Place(BY_NAME[name], about))
        await pilot.pause()
        picture = app.export_screenshot(title=f"eoctl tui: {name}")
    feed.stop()
    return picture


def main() -> None:
    """Write every picture anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, about, theme in SHOTS:
        path = FOLDER / f"tui-{name}.svg"
        picture = asyncio.run(shoot(name, about, theme))
        path.write_text(FONT_FROM_ELSEWHERE.sub("", picture), encoding="utf-8")
        print(path.relative_to(Path.cwd()))


if __name__ == "__main__":
    main()
