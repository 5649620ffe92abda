"""One feed for several viewers: who gets which pages, and how often the cluster is asked."""

import time
from collections.abc import Callable, Sequence

from eoctl.host.clock import now_ms
from eoctl.operations.dashboard.collection import LiveCollection, Parts
from eoctl.operations.dashboard.snapshot import Round, Snapshot, Wants
from eoctl.settings.context import Context
from recovery.answers import Answer
from tests.tui.driving import RECORDINGS
from tui.feed.frame import Frame
from tui.feed.recording import Recording
from tui.feed.shared import Seat, SharedFeed
from tui.screens.keys import COMMANDS, KEYS, commands_of, exists
from tui.screens.views import NUMBERED, VIEWS, numbered

CONTEXT = Context("prod", {"bootstrap.servers": "127.0.0.1:1"}, (), read_only=True)


class Asked(LiveCollection):
    """Answers from a recording. asked: the kinds of rounds, in order."""

    __slots__ = ("asked", "snapshot")
    asked: list[object]
    snapshot: Snapshot

    async def look(self, wants: Wants) -> Round:
        self.asked.append("look")
        s = self.snapshot
        return Round({"partitions": s.partitions, "transactions": s.transactions}, 0.001)

    async def judge(self, wants: Wants) -> Round:
        self.asked.append("judge")
        assert wants.why is None, "no viewer's page is asked with the verdicts of all"
        return Round({"hanging": self.snapshot.hanging}, 0.001)

    async def keep(self, wants: Wants) -> Round:
        return Round()

    async def pages(self, several: Sequence[Wants]) -> tuple[list[Parts], float]:
        self.asked.append(tuple(w.why for w in several))
        answer = Answer("why", None, now_ms(), [])
        pages: list[Parts] = [{"why": answer, "why_about": w.why} for w in several]
        return pages, 0.001

    async def examine(self, about: str) -> Round:
        self.asked.append(f"doctor {about}")
        answer = Answer("doctor", None, now_ms(), [], extra={"rules": 0, "named": [about]})
        return Round({"doctor": answer})


class Shared(SharedFeed):
    def __init__(self) -> None:
        super().__init__(CONTEXT, interval=1.0)
        self.asked: list[object] = []

    def collection(self) -> LiveCollection:
        super().collection()
        found = Asked(CONTEXT)
        recorded = Recording(RECORDINGS / "incident.jsonl")
        found.asked, found.snapshot = self.asked, recorded[len(recorded) - 1]
        return found


class Viewer:
    """A viewer without a screen."""

    def __init__(self, feed: SharedFeed, **wants: object) -> None:
        self.seat = Seat(feed)
        self.newest: Frame | None = None
        self.seat.start(self.post)
        self.seat.want(**wants)

    def post(self, news: Frame | str) -> None:
        assert not isinstance(news, str), news
        self.newest = news

    @property
    def about(self) -> str | None:
        return self.newest.snapshot.why_about if self.newest is not None else None


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_each_viewer_has_pages_of_its_own_and_the_cluster_is_asked_once() -> None:
    feed = Shared()
    viewers = [Viewer(feed, why=about) for about in ("orders:1", "orders:2", "orders:2")]
    until(lambda: [v.about for v in viewers] == ["orders:1", "orders:2", "orders:2"])
    assert ("orders:1", "orders:2") in feed.asked, "once for those who look at the same"
    begun = len(feed.asked)
    time.sleep(2.5)
    looks = [kind for kind in feed.asked[begun:] if kind == "look"]
    assert 1 <= len(looks) <= 4, "as often as for one viewer"
    late = Viewer(feed)
    assert late.newest is not None, "who comes later waits for no round"
    for viewer in (*viewers, late):
        viewer.seat.stop()
    time.sleep(0.5)
    begun = len(feed.asked)
    time.sleep(2.5)
    assert len(feed.asked) == begun, "nothing is asked while nobody looks"
    again = Viewer(feed, why="orders:3")
    until(lambda: again.about == "orders:3")
    feed.stop()


def test_doctor_is_asked_when_its_screen_opens_and_by_a_key() -> None:
    feed = Shared()
    one, other = Viewer(feed, doctor=""), Viewer(feed)
    until(lambda: one.newest is not None and one.newest.snapshot.doctor is not None)
    assert other.newest is not None
    assert other.newest.snapshot.doctor is None
    time.sleep(1.5)
    assert feed.asked.count("doctor ") == 1
    one.seat.wake()
    until(lambda: feed.asked.count("doctor ") == 2)
    feed.stop()


def test_nothing_of_the_host_is_asked_for_whatever_is_wanted() -> None:
    feed = Shared()
    viewer = Viewer(feed, detail="plan /etc/passwd", merge="/etc/passwd", checkpoint="/etc")
    assert viewer.seat.wants == {}
    viewer.seat.pace(1e9)
    viewer.seat.interval = 1e9
    viewer.seat.pause(True)
    assert (feed.interval, feed._paused) == (1.0, False)
    feed.stop()


def test_what_exists_in_a_browser() -> None:
    assert [v.name for v in NUMBERED if v not in numbered(web=True)] == ["plans", "jobs", "recover"]
    words = {w for c in COMMANDS if c not in commands_of(web=True) for w in c.words}
    assert words == {
        *("plans", "journal", "jobs", "recover", "change", "entry", "job", "merge", "checkpoint"),
        *("ctx", "context", "interval"),
    }
    there = {
        key.action
        for view in VIEWS
        for key in KEYS
        if exists(key, view, replay=False, may_change=False, web=True)
    }
    assert {k.action for k in KEYS} - there == {
        *("remedy", "undo", "verify", "records", "cancel", "suspend_process"),
        *("interval(1)", "interval(-1)", "seek(-1)", "seek(1)", "seek(-20)", "seek(20)"),
    }
