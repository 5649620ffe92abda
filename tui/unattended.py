"""Record a cluster without a display: what the overview asks, its cursor on the worst finding."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from recovery.errors import IncompleteError
from tui.panes import wants, worst
from tui.screens.views import OVERVIEW, Location

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from tui.feed.asking import AskingFeed, Feed
    from tui.feed.frame import Frame
    from tui.feed.writer import Writer

CLOSES = 30.0  # seconds that the last snapshot has to be written

Say = Callable[[str], None]


def follow_worst(feed: "Feed", frame: "Frame") -> None:
    """Ask for the page and the log of the worst finding, which a replay shows as its story."""
    row = worst(frame) or next(iter(frame.tables["overview"].rows), None)
    asked = wants(frame.snapshot, Location(OVERVIEW), row)
    feed.want(why=asked["why"], strip=asked["strip"])


def recorded(feed: "AskingFeed", writer: "Writer", say: Say) -> NoReturn:
    """Run a feed that records until KeyboardInterrupt, which a signal raises here, ends it.

    say: takes a sentence when the cluster does not answer, when it does again, and at the end.
    Raises IncompleteError if the feed ends by itself, or if the cluster never answered.
    """
    ended: SimpleQueue[str] = SimpleQueue()
    problems = _Problems(say)

    def post(news: "Frame | str") -> None:
        if isinstance(news, str):
            ended.put(news)
        else:
            problems.tell(news.snapshot)
            follow_worst(feed, news)

    feed.only_records = True
    try:
        feed.start(post)
        reason = ended.get()
    except KeyboardInterrupt:
        _close(feed, writer, say)
        if not writer.answered:
            raise _unanswered(writer, problems.now) from None
        raise
    _close(feed, writer, say)
    remedy: str | None = "what is there can be replayed" if writer.is_there else None
    if not writer.answered:
        remedy = "nothing was recorded"
    raise IncompleteError(reason, where=str(writer.path), remedy=remedy)


def _close(feed: "AskingFeed", writer: "Writer", say: Say) -> None:
    feed.stop(CLOSES)
    say(f"eoctl: {writer.kept}")


def _unanswered(writer: "Writer", problem: str | None) -> IncompleteError:
    return IncompleteError(
        "nothing was recorded: the cluster never answered" + (f": {problem}" if problem else ""),
        where=str(writer.path),
        remedy="eoctl status with the same options says more",
    )


class _Problems:
    """Says when what keeps the cluster from answering changes."""

    def __init__(self, say: Say) -> None:
        self.now: str | None = None
        self._say = say

    def tell(self, s: "Snapshot") -> None:
        """Say a snapshot's problem if it is another than before, or that no look fails any more."""
        if s.problem != self.now:
            self._say(f"eoctl: {s.problem or 'answers arrive again'}")
        self.now = s.problem
