"""`tui`: the dashboard."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from eoctl.cli.commands.watch.tui_web import interval_seconds, refuse_theme, tui_web
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, option
from eoctl.cli.progress import note
from recovery.errors import Exit, UsageError

if TYPE_CHECKING:
    from eoctl.settings.context import Context
    from tui.feed.asking import AskingFeed, Feed
    from tui.feed.writer import Writer


def tui(
    connection: Connection,
    limits: Limits,
    interval: Annotated[
        str, option("--interval D", "between two looks, if the cost allows")
    ] = "5s",
    theme: Annotated[str, option("--theme dark|light|contrast|ansi-dark|ansi-light")] = "dark",
    record: Annotated[Path | None, option("--record FILE", "keep every snapshot")] = None,
    replay: Annotated[
        Path | None, option("--replay FILE", "play a recording back; a bundle is opened, too")
    ] = None,
    headless: Annotated[
        bool, option("--headless", "with --record: without a display, until it is stopped")
    ] = False,
    no_mouse: Annotated[bool, option("--no-mouse", "leave the mouse to the terminal")] = False,
    web: Annotated[bool, option("--web", "in a browser, for several people: nothing acts")] = False,
    listen: Annotated[
        str | None, option("--listen HOST:PORT", "for --web [127.0.0.1:8080]; port 0: a free one")
    ] = None,
    certificate: Annotated[
        Path | None, option("--certificate FILE", "for --web over TLS: PEM, with its chain")
    ] = None,
    key: Annotated[Path | None, option("--key FILE", "of the certificate")] = None,
    proxy: Annotated[
        str | None, option("--proxy ADDRESS", "for --web: only this proxy, with TLS, may connect")
    ] = None,
    url: Annotated[
        str | None, option("--url URL", "for --web: how browsers reach it, if not by --listen")
    ] = None,
) -> int:
    """The dashboard: what is held, by what, since when, and the way out; all day on one screen.

    Looks, at most a tenth of the time; changes only what you plan there and then confirm by a word.
    """
    given = {"listen": listen, "proxy": proxy, "url": url}
    given |= {"certificate": _text(certificate), "key": _text(key)}
    if web:
        if record or replay or headless:
            raise UsageError("shows a live cluster", where="--web", remedy="leave out the rest")
        return tui_web(connection, limits, interval, theme, given)
    if any(given.values()):
        raise UsageError("only with --web", where="--listen, --certificate, --key, --proxy, --url")
    if headless and record is None:
        raise UsageError("needs --record FILE", where="--headless")
    if not (headless or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            "needs a terminal",
            remedy="--record FILE --headless records without one; eoctl status --watch prints",
        )
    for size in ("COLUMNS", "LINES"):
        os.environ.pop(size, None)  # Textual would believe them, and hear of no resize
    bundle = connection.bundle()
    if sum(given is not None for given in (record, replay, bundle)) > 1:
        raise UsageError("give only one of them", where="--record, --replay, --from")
    seconds = interval_seconds(interval)
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"

    from eoctl.stores.bundle_files import is_bundle
    from tui.app import Dashboard
    from tui.feed.asking import BundleFeed, LiveFeed
    from tui.feed.recording import check
    from tui.feed.replay import ReplayFeed
    from tui.feed.writer import Writer

    refuse_theme(theme)

    def live(context: "Context") -> LiveFeed:
        return LiveFeed(
            context,
            interval=seconds,
            seconds=connection.seconds(10.0) or 10.0,
            settings=limits.settings(context),
            sample_interval=limits.interval,
            ascii_only=ascii_only,
        )

    def connect(name: str) -> "Feed":
        from eoctl.settings.context import Connect, resolve

        if not name:
            raise UsageError("which context?", remedy=":ctx NAME")
        return live(resolve(Connect(context=name)))

    writer: Writer | None = None
    if replay is not None and not replay.is_file():
        raise UsageError("no such recording", where=str(replay))
    if replay is not None and is_bundle(replay):
        replay, bundle = None, replay
    if replay is not None:
        check(replay)
        app = Dashboard(ReplayFeed(replay, ascii_only=ascii_only), theme=theme)
    elif bundle is not None:
        from eoctl.settings.context import Context

        if not bundle.is_file():
            raise UsageError("no such bundle", where=str(bundle))
        settings = limits.settings(
            Context(None, {}, ())
        )  # with the bundle's own two-phase patterns
        app = Dashboard(BundleFeed(bundle, settings=settings, ascii_only=ascii_only), theme=theme)
    else:
        if record is not None and record.exists():
            raise UsageError("exists already", where=str(record), remedy="name a new file")
        feed = live(connection.one())
        if record is not None:
            # before anything is asked, and after the context
            feed.writer = writer = Writer(record)
            if headless:
                _record(feed, writer, interval)
        app = Dashboard(feed, theme=theme, connect=connect)
    copied = app.run(mouse=not no_mouse)
    if copied:
        from eoctl.render.sanitise import visible

        print("\n".join(visible(line) for line in copied.split("\n")))
    sys.stdout.flush()
    ended = writer.ended if writer is not None else None
    if writer is not None and ended is not None:
        note(f"eoctl: {writer.kept}")
        note(f"eoctl: {ended.sentence}")
    if app.return_code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    return app.return_code or (ended.exit_status if ended is not None else Exit.OK)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _record(feed: "AskingFeed", writer: "Writer", interval: str) -> NoReturn:
    """Record until a signal ends it. Raises KeyboardInterrupt or IncompleteError."""
    from tui.unattended import recorded

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))  # as the dashboard
    says = f"recording into {writer.path}, a look every {interval}; SIGTERM or ctrl+c ends it"
    note(f"eoctl: {says}")
    recorded(feed, writer, note)
