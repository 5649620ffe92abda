"""The source of frames: its own thread, which asks the cluster or reads a recording.

The app says what the screen needs, and pauses or wakes the feed, which calls `post` with each
Frame. Requests never take more than a tenth of the time: two rounds run side by side, and each
waits at least twenty times as long as its requests took.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from eoctl.host.clock import now_ms
from recovery.errors import IncompleteError
from recovery.values import replace

if TYPE_CHECKING:
    from eoctl.operations.dashboard.collection import Collection
    from eoctl.operations.dashboard.snapshot import Round, Snapshot
    from eoctl.settings.context import Context
    from recovery.inspect.observation import Settings
    from tui.feed.frame import Builder, Frame
    from tui.feed.writer import Writer

INTERVALS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LEAST_SHARE = 20  # each of two rounds waits so many times its cost: 10% together

Post = Callable[["Frame | str"], None]
"""Takes a frame, or the sentence of an error that ends the feed."""


def why_it_ended(error: BaseException) -> str:
    """Return the sentence that the screen shows for the end of a feed: the data is frozen."""
    from eoctl.render.sanitise import visible
    from eoctl.settings.folders import full_disk
    from recovery.errors import EoctlError

    known = error if isinstance(error, EoctlError) else full_disk(error)
    if known is not None:
        return known.sentence
    sentence = visible(f"{type(error).__name__}: {error}", spaces=False)
    return (
        f"an internal error of eoctl, this screen is no longer refreshed; please report: {sentence}"
    )


class Feed(Protocol):
    """The app's source of frames.

    label: in words, if the source is not a live cluster. ascii_only: the terminal shows no other
    characters. waiting: says what is awaited before the first answer. next_look: when the cluster
    is asked next, epoch ms; None during a round, and for a source that asks nothing on its own.
    web: shown in a browser, where nothing of this host is: no file, no job, no other cluster.
    """

    replay: bool
    web: bool
    label: str
    ascii_only: bool
    interval: float
    next_look: int | None

    def start(self, post: Post) -> None: ...
    def stop(self) -> None: ...
    def want(self, **changes: object) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def wake(self) -> None: ...
    def pace(self, interval: float) -> None: ...
    def seek(self, step: int) -> None: ...
    def seek_to(self, number: int) -> None: ...
    def now(self) -> int: ...
    def waiting(self) -> str: ...


ONCE = ("doctor", "growth", "commits")
"""Fields of Wants that are asked when their screen opens, and not in rounds."""


class AskingFeed:
    """Asks a collection in a thread. writer: set before the start, keeps every snapshot.

    only_records: it ends with its recording; else it goes on without.
    """

    replay = False
    web = False
    label = ""
    least_share = LEAST_SHARE

    def __init__(self, interval: float, *, ascii_only: bool) -> None:
        self.interval = interval
        self.next_look: int | None = None
        self.writer: Writer | None = None
        self.only_records = False
        self.ascii_only = ascii_only
        self._wanted: dict[str, object] = {}
        self._paused = False
        self._collection: Collection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken: list[asyncio.Event] = []
        self._opened = asyncio.Event()  # a screen that is asked only when it opens, or by a key
        self._opened.set()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def collection(self) -> "Collection":
        """Make the collection to ask, in the feed's thread."""
        raise NotImplementedError

    def start(self, post: Post) -> None:
        """Begin; `post` is called with each frame, from another thread."""
        self._thread = threading.Thread(target=self._run, args=(post,), name="feed", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 1.0) -> None:
        """End and close the connections. Waits a moment (seconds), never for a broker."""
        self._stopped = True
        if self._task is not None:
            self._call(self._task.cancel)
        if self._thread is not None:
            self._thread.join(seconds)

    def want(self, **changes: object) -> None:
        """Ask at once for what only this screen needs (fields of Wants)."""
        if any(self._wanted.get(name) != value for name, value in changes.items()):
            opened = any(changes.get(name) not in (None, self._wanted.get(name)) for name in ONCE)
            self._wanted = {**self._wanted, **changes}
            self._call(self._set_woken)
            if opened:
                self._call(self._opened.set)

    def pause(self, paused: bool) -> None:
        """Ask nothing until woken."""
        self._paused = paused
        if not paused:
            self._call(self._set_woken)

    def wake(self) -> None:
        """Ask now, also what is not asked again by itself."""
        self._call(self._set_woken)
        self._call(self._opened.set)

    def _call(self, what: Callable[[], object]) -> None:
        """Call in the feed's thread, if that still runs."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread's loop is closed: it has ended
                self._loop.call_soon_threadsafe(what)

    def _set_woken(self) -> None:
        for event in self._woken:
            event.set()

    def pace(self, interval: float) -> None:
        """Set the seconds between two rounds; they grow if the requests cost too much."""
        self.interval = interval
        self._call(self._set_woken)

    def seek(self, step: int) -> None:
        """Do nothing: only a recording can seek."""

    def seek_to(self, number: int) -> None:
        """Do nothing, as `seek`."""

    def now(self) -> int:
        return now_ms()

    def waiting(self) -> str:
        """Return what is awaited before the first answer."""
        progress = self._collection.progress if self._collection is not None else None
        if progress is None or not progress[1]:
            return "connecting"
        answered, brokers = progress
        return f"asking broker {min(answered + 1, brokers)} of {brokers}"

    def _run(self, post: Post) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            if not self._stopped:  # before there was a task to cancel
                await self._collect(post)

        try:
            asyncio.run(main())
        except (Exception, asyncio.CancelledError) as error:
            if not self._stopped:
                post(why_it_ended(error))
        finally:
            if self.writer is not None:
                self.writer.close()

    async def _collect(self, post: Post) -> None:
        from eoctl.operations.dashboard.snapshot import Wants
        from tui.feed.frame import Builder

        collection = self._collection = self.collection()
        state = _State(collection.empty(), Builder(ascii_only=self.ascii_only))

        def done(kind: str, finished: "Round", period: float | None) -> None:
            snapshot = state.take(kind, finished, period)
            self._record(snapshot)
            post(state.builder.frame(snapshot))

        def wants() -> Wants:
            return Wants(**self._wanted)  # type: ignore[arg-type]

        async def look() -> "Round":
            self.next_look, begin = None, now_ms()
            finished = await collection.look(wants())
            pause = max(self.interval, finished.cost * self.least_share)
            self.next_look = begin + int(pause * 1000)
            return finished

        try:
            rounds = [
                self._rounds(look, lambda *r: done("look", *r)),
                self._rounds(lambda: collection.judge(wants()), lambda *r: done("judge", *r)),
                self._examine(collection, lambda finished: done("examine", finished, None)),
            ]
            if not self.web:  # plans, journal and jobs are of this host
                keep = lambda: collection.keep(wants())  # noqa: E731
                rounds.append(self._rounds(keep, lambda *r: done("keep", *r)))
            await asyncio.gather(*rounds)
        finally:
            collection.close()

    def _record(self, snapshot: "Snapshot") -> None:
        """Keep a snapshot. Raises IncompleteError if it cannot be kept and nothing else is done."""
        if self.writer is not None and not self.writer.ended:
            with nullcontext() if self.only_records else suppress(IncompleteError):
                self.writer.add(snapshot)

    async def _examine(self, collection: "Collection", done: Callable[["Round"], None]) -> None:
        """Ask doctor, count, or read commits when a screen opens, and when a key asks there."""
        while True:
            await self._opened.wait()
            self._opened.clear()
            about = self._wanted.get("doctor")
            if isinstance(about, str):
                done(await collection.examine(about))
                await asyncio.sleep(0.3)  # after an impatient key
            if (what := self._wanted.get("growth")) is not None:
                done(await collection.count(what))  # type: ignore[arg-type]
                await asyncio.sleep(0.3)
            if isinstance(group := self._wanted.get("commits"), str):
                done(await collection.commits(group))
                await asyncio.sleep(0.3)

    def _rest(self, least: float) -> float:
        """Return for how long (s) no key ends a pause. least: what the round's cost asks for."""
        return 0.3

    async def _rounds(
        self,
        ask: Callable[[], "asyncio.Future[Round] | object"],
        done: Callable[["Round", float], None],
    ) -> None:
        woken = asyncio.Event()
        self._woken.append(woken)
        while True:
            woken.clear()
            begin = time.monotonic()
            finished: Round = await ask()  # type: ignore[misc]
            least = finished.cost * self.least_share
            pause = max(self.interval, least)
            took = time.monotonic() - begin
            done(finished, max(took, pause))
            # an impatient key may end the pause early, but never this part of it
            await asyncio.sleep(min(self._rest(least), pause))
            while True:
                left = None if self._paused else max(0.0, begin + pause - time.monotonic())
                try:
                    async with asyncio.timeout(left):
                        await woken.wait()
                    woken.clear()
                except TimeoutError:
                    pass
                if not self._paused or left is None:
                    break


class LiveFeed(AskingFeed):
    """Asks the cluster of a context."""

    def __init__(
        self,
        context: "Context",
        *,
        interval: float = 5.0,
        seconds: float = 10.0,
        settings: "Settings | None" = None,
        sample_interval: float = 5.0,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(interval, ascii_only=ascii_only)
        self.context = context
        self.sample_interval = sample_interval
        self._seconds = seconds
        self._limits = settings

    @property
    def settings(self) -> "Settings":
        """Return the limits of judging."""
        from recovery.inspect.observation import Settings

        return self._limits or Settings(two_phase_patterns=self.context.two_phase_patterns)

    def collection(self) -> "Collection":
        from eoctl.operations.dashboard.collection import LiveCollection

        return LiveCollection(self.context, self._seconds, self.sample_interval, self.settings)


class BundleFeed(AskingFeed):
    """Asks a bundle, which does not change: once, and again when the screen needs more."""

    label = "BUNDLE"

    def __init__(
        self, path: Path, *, settings: "Settings | None" = None, ascii_only: bool = False
    ) -> None:
        super().__init__(1.0, ascii_only=ascii_only)
        self._paused = True
        self._path = path
        self._limits = settings
        self._now = 0

    def collection(self) -> "Collection":
        from eoctl.operations.dashboard.collection import BundleCollection
        from recovery.inspect.observation import Settings

        collection = BundleCollection(self._path, self._limits or Settings())
        self._now = collection.source.now()
        return collection

    def waiting(self) -> str:
        return "reading the bundle"

    def pause(self, paused: bool) -> None:
        """Do nothing: a bundle and a recording do not move anyway."""

    def now(self) -> int:
        """Return when the bundle was made: nothing in a bundle grows old."""
        return self._now


class _State:
    """Holds the newest round of each kind."""

    def __init__(self, snapshot: "Snapshot", builder: "Builder") -> None:
        self.snapshot = snapshot
        self.builder = builder
        self._rounds: dict[str, tuple[Round, float]] = {}

    def take(self, kind: str, finished: "Round", period: float | None) -> "Snapshot":
        """Return the snapshot that includes this round. period: None if it is not repeated."""
        from eoctl.operations.dashboard.snapshot import renewed

        if period is not None:
            self._rounds[kind] = (finished, period)
        share = sum(r.cost / max(p, 0.001) for r, p in self._rounds.values())
        self.snapshot = renewed(
            self.snapshot, finished, {k: r for k, (r, _) in self._rounds.items()}
        )
        self.snapshot = replace(
            self.snapshot, share=share, intervals={k: p for k, (_, p) in self._rounds.items()}
        )
        return self.snapshot
