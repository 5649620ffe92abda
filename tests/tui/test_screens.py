"""Every screen as plain text, at two sizes, from snapshots that real labs gave.

EOCTL_UPDATE_GOLDEN=1 writes the files anew: look at the difference before committing it.
"""

import difflib
import os
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.driving import lines_of, recording, run, running, runs, until
from tests.tui.large import LargeFeed
from tui.app import Dashboard
from tui.feed.asking import Feed
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    DOCTOR,
    FINDING,
    GROUP,
    GROUPS,
    JOB,
    JOBS,
    MERGE,
    OVERVIEW,
    PARTITIONS,
    PLANS,
    RECOVER,
    TIMELINE,
    TRANSACTIONS,
    VIEWS,
    WHY,
    Location,
    View,
)

UPDATE = bool(os.environ.get("EOCTL_UPDATE_GOLDEN"))
GOLDEN = Path(__file__).parent / "golden"
SIZES = ((80, 24), (120, 40))
ELSEWHERE = (CHANGE, JOB, MERGE, CHECKPOINT, DOCTOR, FINDING, GROUP)
CLUSTER = [v for v in VIEWS if v not in ELSEWHERE]
SHOWN = {
    "orders": [*CLUSTER, CHANGE],
    "empty": [*CLUSTER, DOCTOR],
    "dead": CLUSTER,
    "denied": CLUSTER,
    "jobs": [OVERVIEW, PLANS, JOBS, JOB, MERGE, RECOVER],
    "checkpoint": [CHECKPOINT],
    "doctor": [DOCTOR, FINDING],
    "calm": [OVERVIEW],
    "incident": [OVERVIEW, TRANSACTIONS, WHY, CHANGE, GROUP],
    "large": [OVERVIEW, PARTITIONS, TRANSACTIONS, GROUPS],
}


def feed_of(name: str) -> Feed:
    return LargeFeed(10_000) if name == "large" else recording(name)


def about(app: Dashboard, view: View) -> str:
    """What a screen that is reached through another one is about."""
    assert app.frame is not None
    s = app.frame.snapshot
    known = {TIMELINE: "orders-enricher-0_3", MERGE: s.merge_about, GROUP: s.commits_about}
    known[WHY] = s.why_about
    known[CHECKPOINT] = s.checkpoint_about
    known[FINDING] = "verification-off broker 1"
    found = known.get(view, s.detail_about)
    assert found is not None
    return found


def golden(title: str) -> str:
    """What is wanted, so far as it is known."""
    path = GOLDEN / f"{title}.txt"
    return path.read_text(encoding="utf-8") if path.exists() and not UPDATE else ""


async def painted(app: Dashboard, pilot: Pilot[str], want: str) -> str:
    """The screen once it is as it should be, or after a second: drawing takes its time."""
    end = time.monotonic() + 1
    while True:
        await pilot.pause(0.01)
        text = "\n".join([*lines_of(app), "---", *runs(app)]) + "\n"
        if text == want or time.monotonic() > end:
            return text


@pytest.mark.parametrize("name", SHOWN)
def test_golden_screens(name: str) -> None:
    shown: dict[str, str] = {}

    async def look() -> None:
        async with running(feed_of(name), SIZES[0]) as (app, pilot):
            for size in SIZES:
                await pilot.resize_terminal(*size)
                await until(pilot, lambda size=size: app.page.app.size == size)  # type: ignore[misc]
                for view in SHOWN[name]:
                    app.go(Location(view, "" if view.columns else about(app, view)))
                    title = f"{name}-{view.name}-{size[0]}x{size[1]}"
                    shown[title] = await painted(app, pilot, golden(title))
                    lines = shown[title].split("\n---\n")[0].splitlines()
                    assert (len(lines), max(map(len, lines)) <= size[0]) == (size[1], True)

    run(look)
    if UPDATE:
        for path in GOLDEN.glob(f"{name}-*.txt"):
            path.unlink()
    for title, text in shown.items():
        path = GOLDEN / f"{title}.txt"
        if UPDATE:
            path.write_text(text, encoding="utf-8")
        want = path.read_text(encoding="utf-8")
        diff = difflib.unified_diff(want.splitlines(), text.splitlines(), title, "now", "", "")
        assert text == want, "\n".join(diff)
    assert {path.stem for path in GOLDEN.glob(f"{name}-*.txt")} == set(shown)
