"""One feed for several viewers: who gets which pages, and how often the cluster is asked."""

import asyncio
import time
from collections.abc import Callable, Sequence

from eoctl.host.clock import now_ms
from eoctl.operations.dashboard.collection import LiveCollection, Parts, problem_with
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
    """Answers from a recording. asked: the kinds of rounds, in order. cost: of each, seconds."""

    __slots__ = ("asked", "cost", "snapshot")
    asked: list[object]
    cost: float
    snapshot: Snapshot

    async def look(self, wants: Wants) -> Round:
        self.asked.append("look")
        s = self.snapshot
        return Round({"partitions": s.partitions, "transactions": s.transactions}, self.cost)

    async def judge(self, wants: Wants) -> Round:
        self.asked.append("judge")
        assert wants.why is None, "no viewer's page is asked with the verdicts of all"
        return Round({"hanging": self.snapshot.hanging}, self.cost)

    async def keep(self, wants: Wants) -> Round:
        self.asked.append("keep")
        return Round({"journal": Answer("journal-list", None, now_ms(), [])})

    async def pages(self, several: Sequence[Wants]) -> tuple[list[Parts], float]:
        self.asked.append(tuple(w.why for w in several))
        answer = Answer("why", None, now_ms(), [])
        pages: list[Parts] = [
            problem_with(ValueError()) if w.why == "bad:0" else {"why": answer, "why_about": w.why}
            for w in several
        ]
        return pages, self.cost

    async def examine(self, about: str) -> Round:
        self.asked.append(f"doctor {about}")
        if about == "'":
            raise ValueError("No closing quotation")
        if about == "slow":
            await asyncio.sleep(3)
        answer = Answer("doctor", None, now_ms(), [], extra={"rules": 0, "named": [about]})
        return Round({"doctor": answer})


class Shared(SharedFeed):
    def __init__(self, interval: float = 1.0, cost: float = 0.001) -> None:
        super().__init__(CONTEXT, interval=interval)
        self.asked: list[object] = []
        self.cost = cost

    def collection(self) -> LiveCollection:
        super().collection()
        found = Asked(CONTEXT)
        recorded = Recording(RECORDINGS / "incident.jsonl")
        found.asked, found.cost = self.asked, self.cost
        found.snapshot = recorded[len(recorded) - 1]
        return found


class Viewer:
    """A viewer without a screen."""

    def __init__(self, feed: SharedFeed, **wants: object) -> None:
        self.seat = Seat(feed)
        self.newest: Frame | None = None
        self.failed = ""
        self.seat.start(self.post)
        self.seat.want(**wants)

    def post(self, news: Frame | str) -> None:
        if isinstance(news, str):
            self.failed = news
        else:
            self.newest = news

    @property
    def snapshot(self) -> Snapshot | None:
        return self.newest.snapshot if self.newest is not None else None

    @property
    def problem(self) -> str | None:
        return self.snapshot.problem if self.snapshot is not None else None

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


def test_impatient_keys_and_new_viewers_end_no_pause_that_the_cost_asks_for() -> None:
    feed = Shared(interval=0.2, cost=0.05)  # 30 times as much: 1.5 s
    viewers = [Viewer(feed, why="orders:1")]
    end = time.monotonic() + 5
    while time.monotonic() < end:
        viewers[0].seat.wake()
        viewers.append(Viewer(feed, why="orders:1"))
        viewers[-1].seat.stop()
        time.sleep(0.05)
    feed.stop()
    for kind in ("look", "judge", ("orders:1",)):
        assert 2 <= feed.asked.count(kind) <= 4, kind


def test_who_joined_and_left_during_a_pause_leaves_nothing_to_ask() -> None:
    feed = Shared(interval=0.2, cost=0.1)  # 30 times as much: 3 s
    first = Viewer(feed)
    until(lambda: {"look", "judge"} <= {*feed.asked})
    second = Viewer(feed, producers=True)
    time.sleep(0.2)
    for viewer in (first, second):
        viewer.seat.stop()
    time.sleep(0.2)
    asked = [*feed.asked]
    time.sleep(4)
    assert feed.asked == asked
    feed.stop()


def test_what_is_asked_once_is_asked_one_at_a_time_and_delays_no_page() -> None:
    feed = Shared(interval=60.0)
    viewers = [Viewer(feed, doctor=about) for about in ("slow", "slow", "", "")]
    late = Viewer(feed)
    time.sleep(0.7)
    late.seat.want(why="orders:3")
    until(lambda: late.about == "orders:3")
    assert [a for a in feed.asked if str(a).startswith("doctor")] == ["doctor slow"]
    assert viewers[2].snapshot is not None
    assert viewers[2].snapshot.doctor is None
    begun = time.monotonic()
    until(lambda: all(v.snapshot is not None and v.snapshot.doctor for v in viewers))
    assert time.monotonic() - begun > 3, "what took 3 s is followed by a pause of 3 s"
    assert [a for a in feed.asked if str(a).startswith("doctor")] == ["doctor slow", "doctor "]
    feed.stop()


def test_a_viewers_error_is_no_others_and_goes_with_its_page() -> None:
    feed = Shared()
    one, other = Viewer(feed, why="bad:0", doctor="'"), Viewer(feed, why="orders:1")
    until(lambda: "ValueError" in (one.problem or ""))
    until(lambda: other.about == "orders:1" and other.problem is None)
    time.sleep(1)
    one.seat.want(why="orders:2")
    until(lambda: one.about == "orders:2" and one.problem is None)
    one.seat.want(why="bad:0")
    until(lambda: "ValueError" in (one.problem or ""))
    one.seat.want(why=None)
    until(lambda: one.problem is None)
    one.seat.parts = {"no such part": 1}
    until(lambda: "TypeError" in one.failed)
    begun, newest = len(feed.asked), other.newest
    until(lambda: len(feed.asked) > begun + 4 and other.newest is not newest)
    feed.stop()


def test_the_end_of_the_feed_is_known_with_its_error() -> None:
    class Broken(Shared):
        def collection(self) -> LiveCollection:
            raise ValueError("broken")

    feed = Broken()
    ended: list[bool] = []
    feed.on_end = lambda: ended.append(True)
    said: list[Frame | str] = []
    Seat(feed).start(said.append)
    until(lambda: bool(ended and said))
    assert isinstance(feed.error, ValueError)
    stopped = Shared()
    viewer = Viewer(stopped)
    until(lambda: viewer.newest is not None)
    stopped.stop()
    assert stopped.error is None


def test_jobs_and_journal_of_the_host_are_not_read() -> None:
    feed = Shared()
    viewer = Viewer(feed)
    until(lambda: viewer.snapshot is not None and viewer.snapshot.hanging is not None)
    assert "keep" not in feed.asked
    assert viewer.newest is not None
    assert (viewer.newest.snapshot.journal, viewer.newest.snapshot.jobs) == (None, None)
    assert "not shown here" in str(viewer.newest.board.changes)
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
