"""One feed for several viewers: the cluster is asked once, and each has pages of its own.

What all screens show is asked in the rounds of AskingFeed; the pages that viewers open are asked
in one more, for all of them at once. However many look, and whatever they press, each of the three
kinds takes at most a thirtieth of the time. What is asked once (doctor, growth, commits) comes on
top: one question at a time, for all who have it, then nothing for as long as it took. Nothing is
asked while nobody looks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from recovery.values import replace
from tui.feed.asking import LEAST_SHARE, LiveFeed, Post, why_it_ended

if TYPE_CHECKING:
    from eoctl.operations.dashboard.collection import Collection, LiveCollection, Parts
    from tui.feed.frame import Builder, Frame

PAGES = ("why", "history", "strip")
"""Fields of Wants that are asked again and again while a viewer has their page open."""
ASKED_ONCE = ("doctor", "growth", "commits")
AT_LEAST = 0.5  # seconds between two rounds of pages, however impatient the viewers are


class SharedFeed(LiveFeed):
    """The feed of all viewers of one context. Make a Seat for each.

    on_end: called in the feed's thread when it ends. error: what ended it, if not `stop`.
    """

    web = True
    least_share = LEAST_SHARE * 3 // 2  # of three kinds of rounds: 10% together, as of two
    error: BaseException | None = None

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.seats: tuple[Seat, ...] = ()
        self._builder: Builder | None = None
        self._newest: Frame | str | None = None
        self._called: list[asyncio.Event] = []
        self.on_end: Callable[[], object] = lambda: None

    def collection(self) -> "Collection":
        from tui.feed.frame import Builder

        self._builder = Builder(ascii_only=self.ascii_only)
        return super().collection()

    def take(self, seat: "Seat") -> None:
        """Begin to serve a viewer; the first one starts the asking."""
        self.seats = (*self.seats, seat)
        if self._thread is None:
            self.start(self._hand_out)
        self.pause(False)
        if self._newest is not None:
            seat.give(self._newest, self._builder)

    def free(self, seat: "Seat") -> None:
        """Serve a viewer no more; without any, nothing is asked."""
        self.seats = tuple(other for other in self.seats if other is not seat)
        if not self.seats:
            self.pause(True)
            self._call(self._forget_woken)

    def _forget_woken(self) -> None:
        """Forget, while nobody looks, who woke the feed during a pause: they have left."""
        for event in self._woken:
            event.clear()

    def wanted(self) -> None:
        """Ask at once for what a viewer wants."""
        producers = any(s.wants.get("producers") for s in self.seats)
        if producers and not self._wanted.get("producers"):
            self._call(self._set_woken)
        self._wanted = {"producers": producers}
        for event in self._called:
            self._call(event.set)

    def _hand_out(self, news: "Frame | str") -> None:
        self._newest = news
        for seat in self.seats:
            seat.give(news, self._builder)

    def hand_to(self, seat: "Seat") -> None:
        """Give a viewer the newest frame again: its pages changed. Any thread may call."""
        if self._newest is not None:
            seat.give(self._newest, self._builder)

    def _rest(self, least: float) -> float:
        """Return the complete pause: no viewer's key makes the others' cluster pay more."""
        return max(AT_LEAST, least)

    async def _collect(self, post: Post) -> None:
        try:
            await super()._collect(post)
        except Exception as error:
            self.error = error
            raise
        finally:
            self.on_end()

    async def _examine(self, collection: "Collection", done: object) -> None:
        """Ask for the viewers' pages, for as long as the feed runs."""
        from eoctl.operations.dashboard.collection import LiveCollection

        assert isinstance(collection, LiveCollection)
        await asyncio.gather(
            self._whenever(lambda: self._ask_pages(collection), self.least_share),
            self._whenever(lambda: self._ask_once(collection), 1),
        )

    async def _whenever(self, ask: Callable[[], Awaitable[float]], share: int) -> None:
        """Ask when a viewer calls and once an interval, then pause for `share` times the cost."""
        called = asyncio.Event()
        self._called.append(called)
        while True:
            called.clear()
            begun = time.monotonic()
            cost = await ask()
            await asyncio.sleep(max(AT_LEAST, cost * share))
            left = max(0.0, begun + self.interval - time.monotonic())
            try:
                async with asyncio.timeout(None if self._paused else left):
                    await called.wait()
            except TimeoutError:
                pass

    async def _ask_pages(self, collection: "LiveCollection") -> float:
        """Ask what the viewers look at, once for those who look at the same; return the cost."""
        from eoctl.operations.dashboard.snapshot import Wants

        wants: dict[Wants, list[Seat]] = {}
        for seat in self.seats:
            if pages := {k: seat.wants[k] for k in PAGES if seat.wants.get(k) is not None}:
                wants.setdefault(Wants(**pages), []).append(seat)  # type: ignore[arg-type]
        if not wants:
            return 0.0
        answers, cost = await collection.pages([*wants])
        for (asked, seats), parts in zip(wants.items(), answers, strict=True):
            for seat in seats:
                if all(seat.wants.get(k) == getattr(asked, k) for k in PAGES):
                    self._add(seat, parts)
        return cost

    async def _ask_once(self, collection: "LiveCollection") -> float:
        """Ask one of the questions that a screen asks when it opens; return how long it took."""
        waiting = [seat for seat in self.seats if seat.due]
        if not waiting:
            return 0.0
        first = min(waiting, key=lambda seat: seat.served)
        name, about = next(iter([*first.due.items()]))
        seats = [s for s in self.seats if s.due.get(name) == about]
        for seat in seats:
            seat.due.pop(name, None)
            seat.served = time.monotonic()
        begun = time.monotonic()
        parts = await _asked(collection, name, about)
        for seat in seats:
            self._add(seat, parts)
        for event in self._called:  # the next question need not wait for an interval
            event.set()
        return time.monotonic() - begun

    def _add(self, seat: "Seat", parts: "Parts") -> None:
        seat.parts = {**seat.parts, "problem": None, "problem_of": None, **parts}
        self.hand_to(seat)


async def _asked(collection: "LiveCollection", name: str, about: object) -> "Parts":
    """Return what was found; an error is this page's problem, and not the feed's end."""
    from eoctl.operations.dashboard.collection import problem_with

    asks: dict[str, Any] = {
        "doctor": collection.examine,
        "growth": collection.count,
        "commits": collection.commits,
    }
    try:
        finished = await asks[name](about)
    except Exception as error:
        return problem_with(error)
    problem = {} if finished.problem is None else {"problem": finished.problem}
    return {**finished.parts, **problem, "problem_of": "judge"}


class Seat:
    """One viewer's feed. wants: fields of Wants; due: those to be asked once; parts: its pages.

    served: when something of `due` was last asked for it, by a clock that only runs (s).
    """

    replay = False
    web = True
    label = ""

    def __init__(self, shared: SharedFeed) -> None:
        self._shared = shared
        self._post: Post = lambda news: None
        self.ascii_only = shared.ascii_only
        self.wants: dict[str, object] = {}
        self.due: dict[str, object] = {}
        self.served = 0.0
        self.parts: Parts = {}

    @property
    def interval(self) -> float:
        return self._shared.interval

    @interval.setter
    def interval(self, _: float) -> None:
        """Do nothing: the pace belongs to all viewers."""

    @property
    def next_look(self) -> int | None:
        return self._shared.next_look

    @next_look.setter
    def next_look(self, _: int | None) -> None:
        """Do nothing: the shared feed knows it."""

    def start(self, post: Post) -> None:
        self._post = post
        self._shared.take(self)

    def stop(self) -> None:
        self._post = lambda news: None
        self._shared.free(self)

    def give(self, news: "Frame | str", builder: "Builder | None") -> None:
        """Pass on the newest frame, with this viewer's pages. Any thread may call."""
        if isinstance(news, str) or builder is None:
            self._post(news)
            return
        parts = dict(self.parts)
        if parts.get("problem") is None or news.snapshot.problem is not None:
            parts.pop("problem", None)
            parts.pop("problem_of", None)
        try:
            own = replace(news.snapshot, **parts)  # type: ignore[arg-type]
            self._post(builder.of_viewer(news, own))
        except Exception as error:  # this viewer's alone
            self._post(why_it_ended(error))

    def want(self, **changes: object) -> None:
        """Ask at once for what only this screen needs: nothing of the host, whatever is wanted."""
        asked = {k: v for k, v in changes.items() if k in ("producers", *PAGES, *ASKED_ONCE)}
        new = {k: v for k, v in asked.items() if self.wants.get(k) != v}
        if new:
            self.wants = {**self.wants, **new}
            if self.parts.get("problem") and new.keys() != {"producers"}:
                self.parts = {**self.parts, "problem": None, "problem_of": None}
                self._shared.hand_to(self)
            self.due |= {k: v for k, v in new.items() if k in ASKED_ONCE and v is not None}
            self._shared.wanted()

    def wake(self) -> None:
        """Ask now, also what is not asked again by itself."""
        self.due |= {k: v for k in ASKED_ONCE if (v := self.wants.get(k)) is not None}
        self._shared.wanted()
        self._shared.wake()

    def pause(self, paused: bool) -> None:
        """Do nothing: the others go on looking."""

    def pace(self, interval: float) -> None:
        """Do nothing, as `pause`."""

    def seek(self, step: int) -> None:
        """Do nothing: only a recording can seek."""

    def seek_to(self, number: int) -> None:
        """Do nothing, as `seek`."""

    def now(self) -> int:
        return self._shared.now()

    def waiting(self) -> str:
        return self._shared.waiting()
