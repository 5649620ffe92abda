"""`python -m docs.screenshots`: pictures of the dashboard for README and docs, as SVG.

They show recordings of real labs (tests/tui/recordings), so that nothing in them is made up.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from textual.pilot import Pilot

from docs.moving import Run, Shot, moving
from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from tui.app import Dashboard
from tui.board.headline import QUIET
from tui.feed.recording import read
from tui.feed.replay import ReplayFeed
from tui.screens.views import BY_NAME, Location
from tui.widgets.palette import BACKGROUNDS

RECORDINGS = Path(__file__).parents[1] / "tests" / "tui" / "recordings"
FOLDER = Path(__file__).parent / "screenshots"
OVERVIEWS = ((80, 24), (120, 40), (200, 60))
SHOTS = (
    ("partitions", "", "dark"),
    ("transactions", "", "dark"),
    ("groups", "", "light"),
    ("group", "reporting", "light"),
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


# -- the moving picture --------------------------------------------------------------------

FOUND = "payments:1"  # the partition whose orphan is found and mended in the recording
MOVING = (100, 30)


def findings(s: Snapshot) -> list[str]:
    """Where something is found."""
    rows = s.hanging.rows if s.hanging is not None else ()
    return [r.where for r in rows if isinstance(r, TxnHangingRow) and r.verdict not in QUIET]


def orphaned(s: Snapshot) -> bool:
    return FOUND in findings(s)


def moments(snapshots: list[Snapshot]) -> dict[str, int]:
    """Which snapshots of the incident show what."""

    def first(true: Callable[[Snapshot], bool], after: int = 0) -> int:
        return next(n for n, s in enumerate(snapshots) if n >= after and true(s))

    found = first(orphaned)
    story = first(lambda s: s.why is not None and s.why_about == FOUND, found)
    mended = first(lambda s: s.detail is not None and not findings(s), story)
    after = first(lambda s: bool(findings(s)), mended) - 2  # before the next one begins
    return {"calm": found - 1, "found": found, "story": story, "mended": after}


async def film() -> list[Shot]:
    """The overview, an orphan, its story, its page, its plan as it was carried out, and after."""
    path = RECORDINGS / "incident.jsonl"
    snapshots = list(read(path))
    at = moments(snapshots)
    entry = snapshots[at["mended"]].detail_about
    assert entry is not None
    script = (
        (2.0, at["calm"], "overview", ""),
        (2.5, at["found"], "overview", ""),
        (4.0, at["story"], "overview", ""),
        (4.0, at["story"], "why", FOUND),
        (4.5, at["mended"], "change", entry),
        (3.0, at["mended"], "overview", ""),
    )
    feed = ReplayFeed(path, still=True)
    app = Dashboard(feed)
    shots = []
    async with app.run_test(size=MOVING) as pilot:
        for seconds, number, name, about in script:
            await at_snapshot(app, pilot, number)
            app.go(Location(BY_NAME[name], about))
            app.table.drop_gone()
            await pilot.pause(0.1)
            shots.append(Shot(seconds, [tuple(runs_of(app, y)) for y in range(MOVING[1])]))
    feed.stop()
    return shots


async def at_snapshot(app: Dashboard, pilot: Pilot[str], number: int) -> None:
    app.feed.seek_to(number)
    while app.frame is None or app.frame.position is None or app.frame.position[0] != number + 1:
        await pilot.pause(0.02)


def runs_of(app: Dashboard, y: int) -> Iterator[Run]:
    """A line of the screen in parts of one look."""
    ground = BACKGROUNDS["dark"]
    for segment in app.screen._compositor.render_strips()[y].simplify():
        made = segment.style
        colour, back = ("", "")
        if made is not None and made.color is not None and made.color.triplet is not None:
            colour = made.color.triplet.hex
        if made is not None and made.bgcolor is not None and made.bgcolor.triplet is not None:
            back = made.bgcolor.triplet.hex
        bold = bool(made is not None and made.bold)
        back = "" if back == ground else back
        yield Run(segment.text, segment.cell_length, colour or "#d8dee9", back, bold)


def write(path: Path, picture: str) -> None:
    path.write_text(FONT_FROM_ELSEWHERE.sub("", picture), encoding="utf-8")
    print(path.relative_to(Path.cwd()))


def main() -> None:
    """Write every picture anew. The overview: of an incident, at three sizes."""
    os.environ["COLORTERM"] = "truecolor"  # whatever terminal this runs in
    FOLDER.mkdir(exist_ok=True)
    for width, height in OVERVIEWS:
        picture = asyncio.run(shoot("incident", "overview", "", "dark", (width, height)))
        write(FOLDER / f"tui-overview-{width}x{height}.svg", picture)
    for name, about, theme in SHOTS:
        known = {"jobs": "jobs", "group": "incident"}.get(name, "orders")
        write(FOLDER / f"tui-{name}.svg", asyncio.run(shoot(known, name, about, theme, (120, 32))))
    says = f"eoctl tui: an orphan on {FOUND} is found, looked at, aborted and verified"
    write(FOLDER / "tui-incident.svg", moving(asyncio.run(film()), BACKGROUNDS["dark"], says))


if __name__ == "__main__":
    main()
