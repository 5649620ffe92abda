"""`tui --web`: the dashboard in a browser."""

import os
from collections.abc import Mapping

from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection
from eoctl.cli.progress import note
from eoctl.host.extras import need
from recovery.errors import Exit, UsageError
from recovery.times import duration


def tui_web(
    connection: Connection,
    limits: Limits,
    interval: str,
    theme: str,
    given: Mapping[str, str | None],
) -> int:
    """Serve the dashboard of one cluster, fixed at the start, until a signal ends it.

    given: the options of `listening`. The connection refuses what may change something, and no
    record is shown, whatever the context allows.
    """
    need("web", "tui --web")
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # of browsers, whatever TERM is here
    import asyncio

    from tui.feed.shared import SharedFeed
    from tui.web import server
    from tui.web.door import listening

    refuse_theme(theme)
    where = listening(given)
    context = connection.one().only_looking()
    context.settings()  # a wrong one is said at once
    feed = SharedFeed(
        context,
        interval=interval_seconds(interval),
        seconds=connection.seconds(10.0) or 10.0,
        settings=limits.settings(context),
        sample_interval=limits.interval,
    )

    def opened(address: str) -> None:
        note(f"eoctl: the dashboard, read-only, for all who have this address: {address}")

    asyncio.run(server.run(feed, where, theme, opened))
    return Exit.OK


def interval_seconds(interval: str) -> float:
    """Return the seconds between two looks. Raise UsageError if they are too few or too many."""
    seconds = duration(interval, where="--interval")
    if not 1 <= seconds <= 3600:
        raise UsageError("between 1s and 1h", where="--interval")
    return seconds


def refuse_theme(theme: str) -> None:
    """Raise UsageError for a theme that nobody knows."""
    from tui.widgets.palette import THEMES

    if theme not in THEMES:
        raise UsageError(f"no theme {theme!r}", where="--theme", remedy=", ".join(THEMES))
