"""Record a cluster without a display: what the overview asks, its cursor on the worst finding."""

from queue import SimpleQueue
from typing import TYPE_CHECKING

from tui.panes import wants
from tui.screens.views import OVERVIEW, Location

if TYPE_CHECKING:
    from tui.feed.asking import Feed
    from tui.feed.frame import Frame


def follow_worst(feed: "Feed", frame: "Frame") -> None:
    """Ask for the page and the log of the worst finding, which a replay shows as its story."""
    rows = frame.tables["overview"].rows
    asked = wants(frame.snapshot, Location(OVERVIEW), rows[0] if rows else None)
    feed.want(why=asked["why"], strip=asked["strip"])


def recorded(feed: "Feed") -> str:
    """Run a feed that keeps its snapshots until it fails, and return why it did.

    A signal that raises KeyboardInterrupt here ends it, and its file is complete.
    """
    ended: SimpleQueue[str] = SimpleQueue()

    def post(news: "Frame | str") -> None:
        if isinstance(news, str):
            ended.put(news)
        else:
            follow_worst(feed, news)

    feed.start(post)
    try:
        return ended.get()
    finally:
        feed.stop()
