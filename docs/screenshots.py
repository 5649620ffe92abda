"""`python -m docs.screenshots`: pictures of the dashboard for README and docs, as SVG.

They show recordings of real labs (tests/tui/recordings), so that nothing in them is made up.
"""

import asyncio
import re
from pathlib import Path

from tui.app import Dashboard
from tui.feed.replay import ReplayFeed
from tui.screens.views import BY_NAME, Location

RECORDINGS = Path(__file__).parents[1] / "tests" / "tui" / "recordings"
FOLDER = Path(__file__).parent / "screenshots"
OVERVIEWS = ((80, 24), (120, 40), (200, 60))
SHOTS = (
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


async def shoot(known: str, name: str, about: str, theme: str, size: tuple[int, int]) -> str:
    """One screen of a recording as SVG."""
    feed = ReplayFeed(RECORDINGS / f"{known}.jsonl", still=True)
    feed.seek(1_000_000)
    app = Dashboard(feed, theme=theme)
    async with app.run_test(size=size) as pilot:
        while app.frame is None or app.frame.position is None or len(set(app.frame.position)) > 1:
            await pilot.pause(0.02)
        app.go(Location(BY_NAME[name], about))
        await pilot.pause()
        picture = app.export_screenshot(title=f"eoctl tui: {name}")
    feed.stop()
    return picture


def write(path: Path, picture: str) -> None:
    path.write_text(FONT_FROM_ELSEWHERE.sub("", picture), encoding="utf-8")
    print(path.relative_to(Path.cwd()))


def main() -> None:
    """Write every picture anew. The overview: of an incident, at three sizes."""
    FOLDER.mkdir(exist_ok=True)
    for width, height in OVERVIEWS:
        picture = asyncio.run(shoot("incident", "overview", "", "dark", (width, height)))
        write(FOLDER / f"tui-overview-{width}x{height}.svg", picture)
    for name, about, theme in SHOTS:
        known = "jobs" if name == "jobs" else "orders"
        write(FOLDER / f"tui-{name}.svg", asyncio.run(shoot(known, name, about, theme, (120, 32))))


if __name__ == "__main__":
    main()
