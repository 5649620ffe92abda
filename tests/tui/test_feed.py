"""A feed's end: whatever ends it is said on the screen, and nothing of it outlives the app."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.cli.commands.watch.tui import tui
from eoctl.cli.main import run as main
from eoctl.host.clock import now_ms
from eoctl.operations.dashboard.collection import Collection
from eoctl.operations.dashboard.snapshot import Snapshot
from eoctl.render.width import cells
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import EoctlError, Exit, IncompleteError, UnreachableError
from recovery.values import replace
from tests.kafka.command import environment
from tests.share import only_here
from tests.tui.driving import lines_of, recording, run, running, text_of, until
from tests.tui.test_doctor import CountingFeed, rounds
from tui.app import Dashboard
from tui.feed.asking import AskingFeed, Feed, LiveFeed
from tui.feed.frame import Builder
from tui.feed.replay import ReplayFeed
from tui.feed.writer import Writer
from tui.fixed_lines import head_lines
from tui.screens.views import OVERVIEW
from tui.unattended import follow_worst, recorded
from tui.widgets.lines import plain


class Broken(AskingFeed):
    """Fails when it begins to ask."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(1.0, ascii_only=False)
        self._error = error

    def collection(self) -> Collection:
        raise self._error


def record(feed: AskingFeed, path: Path) -> None:
    """Record without a display."""
    feed.writer = Writer(path)
    recorded(feed, feed.writer, print)


def feeds() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "feed"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            KeyError("offset\n\x1b[2J"),
            "an internal error of eoctl, this screen is no longer refreshed",
        ),
        (UnreachableError("no broker answers"), "no broker answers"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left"),
    ],
)
def test_what_ends_a_feed_is_on_the_screen(error: Exception, said: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(Broken(error)) as (app, pilot):
            await until(pilot, lambda: bool(app.failed))
            assert said in app.failed
            assert app.failed.isprintable()
            assert app.failed[:30] in text_of(app)

    run(test)
    with pytest.raises(IncompleteError, match="nothing was recorded") as raised:
        record(Broken(error), tmp_path / "kept")
    assert said in raised.value.sentence, "as one that records without a display"
    assert not feeds()


def test_a_feed_that_is_cancelled_by_something_else_says_that_it_ended(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match=r"internal error of eoctl.*nothing was recorded"):
        record(Broken(asyncio.CancelledError()), tmp_path / "kept")


def test_the_first_line_says_that_it_records_and_how_large_the_file_is(tmp_path: Path) -> None:
    """Not while nothing is recorded: before the first snapshot, and paused."""
    feed = AskingFeed(1.0, ascii_only=False)

    def first_line(*, paused: bool = False) -> str:
        return plain(head_lines(None, feed, OVERVIEW, 100, paused=paused)[0])

    assert "RECORDING" not in first_line()
    feed.writer = Writer(tmp_path / "kept.jsonl")
    assert "RECORDING" not in first_line()
    feed.writer.add(Snapshot(title="x" * 3 * 2**20, taken_at=1))
    assert "RECORDING 3.0 MiB " in first_line()
    assert feed.writer.size == (tmp_path / "kept.jsonl").stat().st_size
    assert "RECORDING" not in first_line(paused=True)
    (tmp_path / "kept.jsonl").unlink()
    with pytest.raises(IncompleteError):
        feed.writer.add(Snapshot(title="x", taken_at=2))
    assert "RECORDING ENDED" in first_line()
    feed.writer.close()


def test_a_recording_ends_if_its_file_is_replaced_or_its_disk_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, empty = tmp_path / "kept", Snapshot(title="", taken_at=1)
    writer = Writer(kept)
    kept.rename(tmp_path / "away")
    kept.touch()
    with pytest.raises(IncompleteError, match=r"deleted, moved or replaced.*into a new file"):
        writer.add(empty)
    assert not kept.read_bytes()
    (tmp_path / "away").replace(kept)
    writer.add(empty)
    with monkeypatch.context() as failing:
        failing.setattr(writer, "_file", Path("/dev/full").open("w"))  # noqa: SIM115 - closed below
        failing.setattr(writer, "_check", lambda _: None)
        with pytest.raises(IncompleteError, match="ended: No space left on device"):
            writer.add(empty)
        with suppress(OSError):
            writer._file.close()
    for blocks, ends in ((2**16, False), (2**16 - 1, True)):  # of 4096 bytes: 256 MiB
        free = SimpleNamespace(f_bavail=blocks, f_frsize=4096)
        monkeypatch.setattr(os, "fstatvfs", lambda _, free=free: free)
        with pytest.raises(IncompleteError, match=r"256.*free") if ends else nullcontext():
            writer.add(empty)
    writer.close()
    assert len(kept.read_bytes().splitlines()) == 3, "the header and two snapshots"


class Ended(AskingFeed):
    """Records one answer, then ends by itself once `before` was called."""

    def __init__(self, before: Callable[[], object]) -> None:
        super().__init__(1.0, ascii_only=False)
        self._before = before

    def collection(self) -> Collection:
        assert self.writer is not None
        self.writer.add(Snapshot(title="", taken_at=1, partitions=Answer("lso", None, 1, ())))
        self._before()
        raise UnreachableError("it has ended")


def test_a_recording_is_called_replayable_only_where_its_file_still_is(tmp_path: Path) -> None:
    def ended(name: str, before: Callable[[], object]) -> str:
        with pytest.raises(IncompleteError) as raised:
            record(Ended(before), tmp_path / name)
        return raised.value.sentence

    other = tmp_path / "other"
    other.touch()
    assert "can be replayed" in ended("kept", lambda: None)
    assert "can be replayed" not in ended("replaced", lambda: other.replace(tmp_path / "replaced"))
    assert "can be replayed" not in ended("gone", (tmp_path / "gone").unlink)


def test_a_recording_is_called_kept_only_where_its_file_still_is(tmp_path: Path) -> None:
    """Also once it is closed; what is at its path now is another's."""
    kept = tmp_path / "kept"
    writer = Writer(kept)
    writer.add(Snapshot(title="", taken_at=1))
    assert writer.kept == f"{kept}: 1 snapshot, 0 with an answer of the cluster"
    (tmp_path / "other").touch()
    (tmp_path / "other").replace(kept)
    gone = f"{kept}: 1 snapshot was written; the file at this path is another, or none"
    assert writer.kept == gone
    writer.close()
    assert writer.kept == gone


def test_another_cluster_ends_a_recording_and_that_is_said(tmp_path: Path) -> None:
    feed = CountingFeed()
    feed.writer = Writer(tmp_path / "kept.jsonl")

    async def test() -> None:
        async with running(feed) as (app, pilot):
            app.connect = lambda _: CountingFeed()
            await until(pilot, lambda: "RECORDING " in text_of(app))
            app.type_command("ctx other")
            await until(pilot, lambda: "RECORDING " not in text_of(app))
            assert "the recording kept.jsonl ended: it is of one cluster" in text_of(app)
            app.type_command("ctx third")
            await until(pilot, lambda: "the recording" not in text_of(app))

    run(test)
    assert not feeds()


def test_with_a_display_only_the_recording_ends_and_that_is_said_once(tmp_path: Path) -> None:
    feed = CountingFeed()
    feed.writer = Writer(tmp_path / "kept")

    async def test() -> None:
        async with running(feed) as (app, pilot):
            await until(pilot, lambda: "RECORDING " in text_of(app))
            (tmp_path / "kept").unlink()
            says = "the recording ended: its file was deleted, moved or replaced"
            await until(pilot, lambda: says in text_of(app))
            assert "RECORDING ENDED" in lines_of(app)[0]
            await rounds(pilot, feed, 3)
            assert not app.failed
            await pilot.press("2")
            await rounds(pilot, feed, 3)
            assert "the recording ended" not in text_of(app)
            assert "RECORDING ENDED" in lines_of(app)[0]

    run(test)
    assert not feeds()


def test_the_page_of_the_worst_finding_is_recorded_though_another_row_is_first() -> None:
    """A broker that is down, or an id that two owners contest, is above it."""

    async def test() -> None:
        async with running(recording("incident")) as (app, _):
            frame = app.frame
            assert frame is not None
            table = frame.tables["overview"]
            first = replace(table.rows[0], key="broker 2", judged=None, opens=None)
            table = replace(table, rows=(first, *table.rows))
            asked: dict[str, object] = {}
            feed = SimpleNamespace(want=lambda **changes: asked.update(changes))
            follow_worst(feed, replace(frame, tables={"overview": table}))
            assert asked == {"why": "orders:2", "strip": "orders:2"}

    run(test)


@pytest.mark.long
@pytest.mark.parametrize("ends", only_here([signal.SIGTERM, signal.SIGHUP], signal.SIGTERM))
def test_a_recorder_whose_cluster_never_answers_says_so_at_once_and_at_its_end(
    ends: signal.Signals, tmp_path: Path
) -> None:
    where = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "2s"]
    words = [*where, "tui", "--headless", "--interval", "1s", "--record", str(tmp_path / "kept")]
    eoctl = [sys.executable, "-m", "eoctl", *words]
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # other tests' changes are not spoken of
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(eoctl, stdin=null, stderr=pipe, env=env) as process:
        assert process.stderr is not None
        assert b"recording into" in process.stderr.readline()
        assert b"127.0.0.1:1" in process.stderr.readline()
        process.send_signal(ends)
        said = process.stderr.read().decode()
    assert process.returncode == Exit.INCOMPLETE, said
    assert "0 with an answer of the cluster" in said
    assert "nothing was recorded: the cluster never answered: " in said
    assert "can be replayed" not in said


def test_what_records_without_a_display_needs_a_new_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.jsonl"
    there.touch()
    cluster = ["--bootstrap-server", "127.0.0.1:1"]
    for words, said in (
        ([], "--headless: needs --record FILE"),
        (["--replay", str(there)], "--headless: needs --record FILE"),
        (["--record", str(there)], f"{there}: exists already; name a new file"),
        (["--record", str(there / "in")], f"{there / 'in'}: cannot be written: Not a directory"),
        (["--record", str(there), "--replay", str(there)], "give only one of them"),
    ):
        assert main([*cluster, "tui", "--headless", *words]) == Exit.USAGE
        assert said in capsys.readouterr().err


def test_a_recording_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A folder where the file should be."""

    async def test() -> None:
        app = Dashboard(ReplayFeed(tmp_path))
        async with app.run_test() as pilot:
            await until(pilot, lambda: bool(app.failed))

    run(test)


def test_no_feed_outlives_its_app() -> None:
    """Also where the app ends by an exception, and `stop` is not called."""
    kept: list[Dashboard] = []

    async def test() -> None:
        app = Dashboard(recording("orders"))
        kept.append(app)
        async with app.run_test() as pilot:
            await until(pilot, lambda: app.frame is not None)
            raise LookupError

    with pytest.raises(LookupError):
        run(test)
    assert not feeds()
    (app,) = kept
    assert app.frame is not None
    app.post(app.frame)  # from a thread that was amid its work


@pytest.mark.parametrize("wait", [0.0, 0.05])
def test_a_feed_that_is_stopped_at_once_asks_nothing(wait: float) -> None:
    """Also before its thread has a task that could be cancelled."""
    asked: list[str] = []
    broken: Feed = Broken(KeyError("asked"))
    broken.stop()
    broken.start(lambda news: asked.append(str(news)))
    threading.Event().wait(wait)
    broken.stop()
    broken.wake()
    assert not feeds()
    assert not asked


def test_one_kind_of_rounds_takes_a_twentieth_of_the_time_at_most() -> None:
    """Two run side by side: a tenth together, however short the interval is."""
    periods: list[float] = []

    async def ask() -> SimpleNamespace:
        return SimpleNamespace(cost=0.04)

    async def test() -> None:
        rounds = AskingFeed(0.01, ascii_only=True)._rounds(
            ask,
            lambda _, period: periods.append(period),
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(rounds, 1.2)

    asyncio.run(test())
    assert 1 <= len(periods) <= 2
    assert periods[0] >= 0.8


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("seconds", [42, 86_340])
def test_the_words_of_line_1_are_never_cut(
    width: int, paused: bool, seconds: int, tmp_path: Path
) -> None:
    """The cluster's id gives way first, then the context's name; an age may have two units."""
    feed = LiveFeed(cast("Any", None))
    feed.writer = Writer(tmp_path / "kept")
    (tmp_path / "kept").unlink()
    with pytest.raises(IncompleteError):
        feed.writer.add(Snapshot(title="", taken_at=1))
    feed.writer.close()
    partitions = Answer("lso", None, now_ms() - seconds * 1000, [])
    s = Snapshot(
        title="production-of-the-north",
        taken_at=1,
        cluster_id="u6uBlLZFRDaD4TXVOTeGnQ",
        protected=True,
        read_only=True,
        partitions=partitions,
    )
    frame = replace(Builder().frame(s), snapshot=s)
    line = plain(head_lines(frame, feed, OVERVIEW, width, paused=paused)[0])
    words = ["PROTECTED", "READ-ONLY", "RECORDING ENDED", "STALE", *(["PAUSED"] if paused else ())]
    assert all(f" {word} " in line for word in words), line
    assert line.rstrip().endswith("s" if seconds == 42 else "23h 59m")
    assert cells(line) == width
    assert line.startswith(" p") is not (width == 60 and paused and seconds > 42)


class Shown:
    """A dashboard whose recording's file is deleted before its first snapshot."""

    return_code = 0

    def __init__(self, feed: Any, **_: object) -> None:
        self._writer: Writer = feed.writer

    def run(self, **_: object) -> None:
        self._writer.path.unlink()
        with suppress(IncompleteError):
            self._writer.add(Snapshot(title="", taken_at=1))
        self._writer.close()


def test_the_command_says_at_its_end_that_the_recording_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its path and what to do, on lines that the display has not taken; status 3."""
    monkeypatch.setattr("tui.app.Dashboard", Shown)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    kept = str(tmp_path / "kept")
    given: Any = SimpleNamespace(
        bundle=lambda: None, one=lambda: Context(None, {}, ()), seconds=lambda usual: usual
    )
    limits: Any = SimpleNamespace(settings=lambda context: None, interval=1.0)
    assert tui(given, limits, record=Path(kept)) == Exit.INCOMPLETE
    said = capsys.readouterr().err
    assert f"eoctl: {kept}: 0 snapshots" in said
    assert f"{kept}: the recording ended: its file was deleted" in said
    assert "into a new file" in said


@pytest.mark.parametrize("full", ["at once", "soon"])
def test_a_recording_that_cannot_begin_leaves_no_file(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start with the same words would say that it exists already."""
    if full == "at once":
        monkeypatch.setattr(Writer, "_write", no_space)
    else:
        free = SimpleNamespace(f_bavail=1, f_frsize=4096)
        monkeypatch.setattr(os, "fstatvfs", lambda number: free)
    with pytest.raises(
        EoctlError, match=r"No space left on device|cannot record: less than 256 MiB"
    ):
        Writer(tmp_path / "kept")
    assert not list(tmp_path.iterdir())


def test_a_recording_that_cannot_begin_leaves_anothers_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, other = tmp_path / "kept", tmp_path / "other"
    other.write_text("another's")

    def replaced(writer: Writer, value: object) -> None:
        other.replace(kept)
        no_space(writer, value)

    monkeypatch.setattr(Writer, "_write", replaced)
    with pytest.raises(EoctlError, match="No space left on device"):
        Writer(kept)
    assert kept.read_text() == "another's"


def no_space(writer: Writer, value: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
