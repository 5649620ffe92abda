"""Running the dashboard on a recording without a terminal, and reading its screen."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from tui.app import Dashboard
from tui.feed.asking import Feed
from tui.feed.replay import ReplayFeed
from tui.widgets.palette import style

RECORDINGS = Path(__file__).parent / "recordings"
MEANING = ("act", "look", "unknown", "stale", "gone", "acts", "tab")


def recording(name: str) -> ReplayFeed:
    """A recording that stands still at its last snapshot."""
    feed = ReplayFeed(RECORDINGS / f"{name}.jsonl", still=True)
    feed.seek(1_000_000)
    return feed


class Hands(Pilot[str]):
    """Presses keys as fast as the app handles them; Textual's own waits 40 ms behind each."""

    async def press(self, *keys: str) -> None:
        for key in keys:
            name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
            told = NAMED_CHARACTERS.get(name, key if len(key) == 1 else None)
            pressed = events.Key(name, told)
            pressed.set_sender(self.app)
            assert self.app._driver is not None
            self.app._driver.send_message(pressed)
            # to the app, on to what has the focus, and what that posts
            for _ in range(5):
                await self._wait_for_screen()


NAMED_CHARACTERS = {
    "slash": "/",
    "colon": ":",
    "exclamation_mark": "!",
    "left_square_bracket": "[",
    "space": " ",
}


@asynccontextmanager
async def running(
    feed: Feed, size: tuple[int, int] = (120, 40), theme: str = "dark"
) -> AsyncIterator[tuple[Dashboard, Pilot[str]]]:
    """The dashboard on a feed, after its first (of a recording: its last) frame."""
    app = Dashboard(feed, theme=theme)
    async with app.run_test(size=size) as pilot:
        if isinstance(feed, ReplayFeed):

            def at_end() -> bool:
                at = app.frame.position if app.frame else None
                return at is not None and at[0] == at[1]

            await until(pilot, at_end)
        yield app, Hands(app)


async def until(pilot: Pilot[str], true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something the app does by itself. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("\n".join(lines_of(pilot.app)))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
    await pilot.pause()


def lines_of(app: Dashboard) -> list[str]:
    """The screen as text."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def text_of(app: Dashboard) -> str:
    return "\n".join(lines_of(app))


def runs(app: Dashboard) -> Iterator[str]:
    """Where colours carry meaning: `line: role "text"`, so that a golden file holds it."""
    wanted = {}
    for role in MEANING:
        known = style("dark", role)
        wanted[str(known.color), bool(known.bold), bool(known.strike)] = role
    cursor = str(style("dark", "cursor").bgcolor)
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        found: list[tuple[str, str]] = []
        for segment in strip:
            made = segment.style
            if made is None or not segment.text.strip():
                continue
            role = wanted.get((str(made.color), bool(made.bold), bool(made.strike)), "")
            if str(made.bgcolor) == cursor:
                role = f"cursor {role}".strip()
            if found and found[-1][0] == role:
                found[-1] = (role, found[-1][1] + segment.text)
            else:
                found.append((role, segment.text))
        for role, text in found:
            if role:
                yield f"{y}: {role} {' '.join(text.split())!r}"


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine to its end."""

    async def main() -> None:
        await test()

    asyncio.run(main())
