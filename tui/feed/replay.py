"""A recording as a feed: it can be played back, paused and moved to any snapshot."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recovery.values import replace
from tui.feed.asking import Post, why_it_ended

LEADING = 360  # snapshots before one that the trends of its rows need


class ReplayFeed:
    """Plays a recording back: one snapshot per recorded gap (at most 2 s), or step by step."""

    replay = True
    web = False
    label = ""
    next_look: int | None = None

    def __init__(self, path: Path, *, still: bool = False, ascii_only: bool = False) -> None:
        self.interval = 1.0
        self._path = path
        self._paused = still
        self.ascii_only = ascii_only
        self._step = 0
        self._target: int | None = None  # the number of a snapshot that was asked for
        self._woken = threading.Event()
        self._stopped = False
        self._now = 0
        self._thread: threading.Thread | None = None

    def start(self, post: Post) -> None:
        self._thread = threading.Thread(target=self._run, args=(post,), name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def want(self, **changes: object) -> None:
        """Do nothing: a recording shows what was recorded."""

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._woken.set()

    def wake(self) -> None:
        """Do nothing: a recording asks nobody."""

    def pace(self, interval: float) -> None:
        self.interval = interval

    def seek(self, step: int) -> None:
        """Move so many snapshots forward or back, and stay at that one."""
        self._paused = True
        self._step += step
        self._woken.set()

    def seek_to(self, number: int) -> None:
        """Move to a snapshot, counted from 0, and stay there."""
        self._paused = True
        self._target = number
        self._woken.set()

    def now(self) -> int:
        """Return the time of the snapshot shown: in a recording nothing grows old."""
        return self._now

    def waiting(self) -> str:
        return "reading the recording"

    def _run(self, post: Post) -> None:
        try:
            self._play(post)
        except Exception as error:
            if not self._stopped:
                post(why_it_ended(error))

    def _play(self, post: Post) -> None:
        from tui.feed.frame import Builder
        from tui.feed.recording import Recording

        with uncollected():
            snapshots = Recording(self._path)
        if not snapshots:
            post(f"{self._path}: an empty recording")
            return
        builder = Builder(ascii_only=self.ascii_only)
        samples = [snapshots.sample(number) for number in range(len(snapshots))]
        times = tuple(snapshots.brief(number).taken_at for number in range(len(snapshots)))
        troubled = tuple(bool(sample and sample.oldest) for sample in samples)
        at, shown = 0, -1
        while not self._stopped:
            if at != shown:
                if at != shown + 1:  # rebuild the trend that led to this snapshot
                    builder.forget()
                    for earlier in range(at):
                        builder.recall(
                            samples[earlier],
                            snapshots.brief(earlier) if at - earlier <= LEADING else None,
                        )
                self._now = times[at]
                with uncollected():
                    position = at + 1, len(snapshots)
                    frame = builder.frame(snapshots[at], position, samples[at])
                    frame = replace(frame, troubled=troubled, times=times)
                post(frame)
                shown = at
            last = at == len(snapshots) - 1
            gap = 0.0 if last else (times[at + 1] - self._now) / 1000
            moved = self._woken.wait(None if self._paused or last else min(max(gap, 0.05), 2.0))
            self._woken.clear()
            if moved and (self._step or self._target is not None):
                target, self._target = self._target, None
                step, self._step = self._step, 0
                at = max(0, min((at if target is None else target) + step, len(snapshots) - 1))
            elif not moved:
                at += 1


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from ever examining the rows made within.

    With 100,000 partitions it would stop the process for a quarter of a second. Rows are in no
    reference cycle: they are freed with the last frame that shows them.
    """
    gc.collect()  # takes little time: older objects are frozen
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
