"""A feed's end: whatever ends it is said on the screen, and nothing of it outlives the app."""

import asyncio
import errno
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from eoctl.cli.main import run as main
from eoctl.operations.dashboard.collection import Collection
from recovery.errors import Exit, UnreachableError
from tests.tui.driving import recording, run, running, text_of, until
from tui.app import Dashboard
from tui.feed.asking import AskingFeed, Feed
from tui.feed.replay import ReplayFeed
from tui.fixed_lines import head_lines
from tui.screens.views import OVERVIEW
from tui.unattended import recorded
from tui.widgets.lines import plain


class Broken(AskingFeed):
    """Fails when it begins to ask."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1.0, None, ascii_only=False)
        self._error = error

    def collection(self) -> Collection:
        raise self._error


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
def test_what_ends_a_feed_is_on_the_screen(error: Exception, said: str) -> None:
    async def test() -> None:
        async with running(Broken(error)) as (app, pilot):
            await until(pilot, lambda: bool(app.failed))
            assert said in app.failed
            assert app.failed.isprintable()
            assert app.failed[:30] in text_of(app)

    run(test)
    assert said in recorded(Broken(error)), "as one that records without a display"
    assert not feeds()


def test_the_first_line_says_that_it_records_and_how_large_the_file_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"

    def first_line(record: Path | None) -> str:
        feed = AskingFeed(1.0, record, ascii_only=False)
        return plain(head_lines(None, feed, OVERVIEW, 100, paused=False)[0])

    assert "RECORDING " in first_line(kept)
    kept.write_bytes(b"x" * 3_000_000)
    assert "RECORDING 2.9 MiB " in first_line(kept)
    assert "RECORDING" not in first_line(None)


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
        rounds = AskingFeed(0.01, None, ascii_only=True)._rounds(
            ask,
            lambda _, period: periods.append(period),
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(rounds, 1.2)

    asyncio.run(test())
    assert 1 <= len(periods) <= 2
    assert periods[0] >= 0.8
