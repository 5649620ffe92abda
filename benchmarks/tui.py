"""The dashboard with 10,000 partitions, through a pseudo-terminal: key to repaint, refresh, start.

Beside Textual's own DataTable with the same rows, also with 100,000. And a recording of 100,000
partitions: key to repaint, and the most memory that it took.

A key's time runs from its byte going in to the last byte of what it changed coming out, while a
new snapshot arrives every second. What of it the dashboard's own thread computed stands beside it:
the rest it waited, for the other threads or for a processor that others had. Start is compared
with an empty Textual app.
"""

import asyncio
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from benchmarks.side_by_side import Measured, Size

PARTITIONS = 10_000
RECORDED = 100_000
KEYS = 300
QUIET = 0.015  # seconds without output that end a repaint
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("1 Overview")
Empty().run()
"""
TABLE = """
from recovery.inspect.cluster_rows import LsoRow
from tests.tui.large import large
from textual.app import App
from textual.widgets import DataTable
class Rows(DataTable):
    BINDINGS = [("j", "cursor_down"), ("k", "cursor_up"), ("g", "scroll_top"),
                ("G", "scroll_bottom")]
class Peer(App):
    def compose(self):
        yield Rows(cursor_type="row")
    def on_mount(self):
        table = self.query_one(Rows)
        for title, width in (("TOPIC:PARTITION", 40), ("LSO", 12), ("HW", 12), ("HELD", 10)):
            table.add_column(title, width=width)
        for r in large(%d).partitions.rows:
            cells = str(r.topic_partition), r.last_stable_offset, r.high_watermark, r.held
            table.add_row(*map(str, cells))
        table.focus()
Peer().run()
"""
"""Textual's own table, as fast as it can be: its columns have fixed widths."""


@dataclass(frozen=True)
class Times:
    """Seconds of one kind, against a limit. own: those in which its thread had a processor."""

    what: str
    seconds: Sequence[float]
    goal: str
    own: Sequence[float] = ()

    def lines(self) -> list[str]:
        def text(seconds: Sequence[float]) -> str:
            ordered = sorted(seconds)
            p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
            middle = statistics.median(ordered)
            return (
                f"median {middle * 1e3:.1f} ms  p99 {p99 * 1e3:.1f} ms  "
                f"max {ordered[-1] * 1e3:.1f} ms"
            )

        own = [f"  of its own: {text(self.own)}"] if self.own else []
        return [self.what, f"  {text(self.seconds)}   goal: {self.goal}", *own]


def _key(number: int) -> bytes:
    return b"jjjkGg"[number % 6 : number % 6 + 1]


def _keys(what: str, screen: "Screen", goal: str) -> Times:
    pressed = [screen.press(_key(n)) for n in range(KEYS)]
    return Times(what, [wall for wall, _ in pressed], goal, [own for _, own in pressed])


class Screen:
    """A program on a pseudo-terminal of 200x60."""

    def __init__(self, code: str) -> None:
        self.begin = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ.pop("NO_COLOR", None)
            # as installed: without byte code Python compiles eoctl, and not Textual, at each start
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            os.environ["TERM"] = "xterm-256color"
            ioctl(0, TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
            os.execv(sys.executable, [sys.executable, "-c", code])

    def until(self, text: bytes, seconds: float = 60) -> float:
        """Seconds since the start when this text had come out."""
        seen = b""
        while text not in seen:
            if not select.select([self._fd], [], [], seconds)[0]:
                raise SystemExit(f"{text!r} did not come: {seen[-500:]!r}")
            seen = seen[-100:] + os.read(self._fd, 65536)
        return time.perf_counter() - self.begin

    def press(self, key: bytes) -> tuple[float, float]:
        """Seconds from the byte in to the last byte out before it is quiet.

        The second number: those of them in which the first thread had a processor.
        """
        while select.select([self._fd], [], [], QUIET)[0]:
            os.read(self._fd, 65536)
        used = self._used()
        begin = last = time.perf_counter()
        os.write(self._fd, key)
        while select.select([self._fd], [], [], QUIET if last > begin else 2.0)[0]:
            os.read(self._fd, 65536)
            last = time.perf_counter()
        return last - begin, self._used() - used

    def _used(self) -> float:
        """Seconds of a processor that the first thread had."""
        text = Path(f"/proc/{self.pid}/schedstat").read_text(encoding="ascii")
        return int(text.split()[0]) / 1e9

    def most_memory(self) -> int:
        """Bytes of the program's memory at its most."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def close(self) -> None:
        os.write(self._fd, b"\x11")  # ctrl+q ends both
        while True:
            try:
                if not os.read(self._fd, 65536):
                    break
            except OSError:
                break
        os.waitpid(self.pid, 0)


def busy(partitions: int = PARTITIONS, *, refreshing: bool = True) -> None:
    """Run the dashboard on a made-up cluster that changes every second (in the child)."""
    from tests.tui.large import LargeFeed
    from tui.app import Dashboard

    feed = LargeFeed(partitions)

    def again() -> None:
        while True:
            time.sleep(1.0)
            feed.again()

    if refreshing:
        threading.Thread(target=again, daemon=True).start()
    Dashboard(feed, view="partitions").run()


def _beside_data_table(partitions: int) -> Iterator[Measured]:
    """Processor time of each key in the first thread of both, in turn: steps apart from jumps."""
    ours = Screen(f"from benchmarks.tui import busy; busy({partitions}, refreshing=False)")
    ours.until(b"topic-%04d" % ((partitions - 1) // 50))  # the worst is first
    peer = Screen(TABLE % partitions)
    peer.until(b"topic-0000:40", 300)
    pressed = [(_key(n), ours.press(_key(n))[1], peer.press(_key(n))[1]) for n in range(KEYS // 2)]
    for screen in (ours, peer):
        screen.close()
    for what, keys, goal in (
        ("a step (j, k; ours draws the row's story too)", b"jk", "1.0x or more"),
        ("a jump (g, G)", b"gG", "1.0x or more"),
        ("all of them", b"jkgG", "1.0x or more"),
    ):
        found = [(one, other) for key, one, other in pressed if key in keys]
        if len(keys) > 2:  # a median of steps and jumps says nothing: sums
            found = [(sum(one for one, _ in found), sum(other for _, other in found))]
        mine, others = zip(*found, strict=True)
        title = f"processor time of {what}, {partitions:,} partitions"
        yield Measured(title, mine, others, "Textual's DataTable", goal)


def _recording() -> Iterator[Times | Size]:
    """Keys on a recording of two snapshots of 100,000 partitions, and the memory for it."""
    from tests.tui.large import large
    from tui.feed.writer import Writer

    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as folder:
        path = Path(folder, "large.jsonl")
        writer = Writer(path)
        for number in range(2):
            writer.add(large(RECORDED, number))
        writer.close()
        screen = Screen(
            "from pathlib import Path; from tui.app import Dashboard;"
            "from tui.feed.replay import ReplayFeed;"
            f"Dashboard(ReplayFeed(Path({str(path)!r})), view='partitions').run()"
        )
        screen.until(b"topic-1999")
        what = f"key to repaint, a recording of {RECORDED:,} partitions"
        yield _keys(what, screen, "p99 < 50 ms")
        most = screen.most_memory()
        screen.close()
    yield Size(f"memory with a recording of {RECORDED:,} partitions", most, 400 << 20)


def _starts(ours: str, peer: str, rounds: int = 9) -> Iterator[Measured]:
    """Time and processor time from each start to its first paint, in turn.

    One start of each before is lost. On a busy machine the time says how long a process waits.
    """
    found: dict[str, list[tuple[float, float]]] = {ours: [], peer: []}
    for number in range(rounds + 1):
        for code, times in found.items():
            screen = Screen(code)
            painted = screen.until(b"1 Overview"), screen._used()
            screen.close()
            if number:
                times.append(painted)
    goal = "0.83x or more"
    for n, what in enumerate(("start to first paint", "processor time of it")):
        mine, others = ([pair[n] for pair in found[code]] for code in (ours, peer))
        yield Measured(what, mine, others, "empty Textual", goal)


def _refreshes() -> list[float]:
    """Seconds of the UI thread per new snapshot of 10,000 partitions, a tenth of them changed."""
    from tests.tui.driving import running, until
    from tests.tui.large import LargeFeed
    from tui.app import Renewed

    found: list[float] = []

    async def main() -> None:
        feed = LargeFeed(PARTITIONS)
        async with running(feed, (200, 60)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None)
            await pilot.press("2")
            for number in range(1, 21):
                frame = feed.frame(number)
                begin = time.thread_time()
                app.on_renewed(Renewed(frame))
                found.append(time.thread_time() - begin)
                await pilot.pause()

    asyncio.run(main())
    return found


def measure() -> Iterator[Measured | Times | Size]:
    # on a machine with other work only the two side by side say what refreshing costs
    for refreshing, goal in ((True, "p99 < 50 ms"), (False, "for comparison")):
        screen = Screen(f"from benchmarks.tui import busy; busy(refreshing={refreshing})")
        screen.until(b"topic-0199")
        what = "refreshing" if refreshing else "standing still"
        yield _keys(f"key to repaint, {PARTITIONS:,} partitions, {what}", screen, goal)
        screen.close()
    for partitions in (PARTITIONS, RECORDED):
        yield from _beside_data_table(partitions)
    yield Times("UI thread per refresh", _refreshes(), "< 30 ms")
    yield from _recording()
    yield from _starts(
        "from pathlib import Path; from tui.app import Dashboard;"
        "from tui.feed.replay import ReplayFeed;"
        "Dashboard(ReplayFeed(Path('tests/tui/recordings/empty.jsonl'))).run()",
        EMPTY,
    )
