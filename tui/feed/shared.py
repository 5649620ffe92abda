"""One feed for several viewers: the cluster is asked once, and each has pages of its own.

What all screens show is asked in the rounds of AskingFeed; the pages that viewers open are asked
in one more, for all of them at once. However many look, and whatever they press, each of the three
kinds takes at most a thirtieth of the time, and nothing is asked while nobody looks.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from recovery.values import replace
from tui.feed.asking import LEAST_SHARE, LiveFeed, Post

if TYPE_CHECKING:
    from eoctl.operations.dashboard.collection import Collection, LiveCollection, Parts
    from eoctl.operations.dashboard.snapshot import Round
    from tui.feed.frame import Builder, Frame

PAGES = ("why", "history", "strip")
"""Fields of Wants that are asked again and again while a viewer has their page open."""
ASKED_ONCE = ("doctor", "growth", "commits")
AT_LEAST = 0.5  # seconds between two rounds of pages, however impatient the viewers are


class SharedFeed(LiveFeed):
    """The feed of all viewers of one context. Make a Seat for each."""

    web = True
    least_share = LEAST_SHARE * 3 // 2  # of three kinds of rounds: 10% together, as of two

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.seats: tuple[Seat, ...] = ()
        self._builder: Builder | None = None
        self._newest: Frame | str | None = None
        self._called: list[asyncio.Event] = []

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
        self.pause(not self.seats)

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

    async def _examine(self, collection: "Collection", done: object) -> None:
        """Ask for the viewers' pages, for as long as the feed runs."""
        from eoctl.operations.dashboard.collection import LiveCollection

        assert isinstance(collection, LiveCollection)
        called = asyncio.Event()
        self._called.append(called)
        while True:
            called.clear()
            begun = time.monotonic()
            cost = await self._ask_once(collection) + await self._ask_pages(collection)
            least = max(AT_LEAST, cost * self.least_share)
            await asyncio.sleep(least)
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
        for seats, parts in zip(wants.values(), answers, strict=True):
            for seat in seats:
                self._add(seat, parts)
        return cost

    async def _ask_once(self, collection: "LiveCollection") -> float:
        """Ask what is asked only when a screen opens; return the cost."""
        cost = 0.0
        for seat in self.seats:
            for name in ASKED_ONCE:
                about = seat.due.pop(name, None)
                if about is not None:
                    finished = await _asked(collection, name, about)
                    cost += finished.cost
                    self._add(seat, finished.parts)
        return cost

    def _add(self, seat: "Seat", parts: "Parts") -> None:
        seat.parts = {**seat.parts, "problem": None, "problem_of": None, **parts}
        if self._newest is not None:
            seat.give(self._newest, self._builder)


async def _asked(collection: "LiveCollection", name: str, about: object) -> "Round":
    if name == "doctor":
        return await collection.examine(str(about))
    if name == "commits":
        return await collection.commits(str(about))
    return await collection.count(about)  # type: ignore[arg-type]


class Seat:
    """One viewer's feed. wants: fields of Wants; due: those to be asked once; parts: its pages."""

    replay = False
    web = True
    label = ""

    def __init__(self, shared: SharedFeed) -> None:
        self._shared = shared
        self._post: Post = lambda news: None
        self.ascii_only = shared.ascii_only
        self.wants: dict[str, object] = {}
        self.due: dict[str, object] = {}
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
        own = replace(news.snapshot, **parts)  # type: ignore[arg-type]
        self._post(builder.of_viewer(news, own))

    def want(self, **changes: object) -> None:
        """Ask at once for what only this screen needs: nothing of the host, whatever is wanted."""
        asked = {k: v for k, v in changes.items() if k in ("producers", *PAGES, *ASKED_ONCE)}
        new = {k: v for k, v in asked.items() if self.wants.get(k) != v}
        if new:
            self.wants = {**self.wants, **new}
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
