"""Parse commands typed after `:` into values. Each function raises UsageError."""

import re
import shlex
from bisect import bisect_right
from collections.abc import Sequence

from recovery.errors import UsageError
from tui.screens.keys import TAKES
from tui.screens.views import BY_NAME, DOCTOR, JOB, WHY, Location
from tui.widgets.palette import THEMES


def location_of(word: str, rest: str) -> Location:
    """Return the place that a screen's name leads to. rest: the subject, or a filter."""
    from recovery.selectors import parse_selector

    view = BY_NAME[word]
    if view is WHY and rest and not rest.startswith("id "):
        parse_selector(rest, where=":why")
    if view is DOCTOR:
        return Location(view, _names(rest))
    if not rest and not TAKES.get(view.name, "[").startswith("["):
        raise UsageError(f"which one? :{word} {TAKES[view.name]}")
    about = f"job {rest}" if view is JOB else rest
    return Location(view, about if view.kind == "page" else "")


def _names(rest: str) -> str:
    """Return what `:doctor` is about: names as a shell takes them, in one spelling."""
    try:
        return shlex.join(shlex.split(rest))
    except ValueError as error:
        raise UsageError(f"names as for a shell: {error}", where=":doctor") from None


def interval_of(rest: str) -> float:
    """Return seconds. A number without unit means seconds."""
    from recovery.times import duration

    seconds = duration(rest if not rest.isdigit() else f"{rest}s", where=":interval")
    if not 1 <= seconds <= 3600:
        raise UsageError("between 1s and 1h")
    return seconds


def number_at(text: str, times: Sequence[int]) -> int:
    """Return which of a recording's snapshots was the newest at a time; the first before all.

    text: an instant, or a time of the day of the last snapshot, in UTC. times: epoch ms.
    """
    from recovery.times import instant, rfc3339

    if not times:
        raise UsageError("only a recording can go to a time", where=":at")
    if re.fullmatch(r"\d\d:\d\d(:\d\d)?Z?", text):
        text = f"{(rfc3339(times[-1]) or '')[:11]}{text.removesuffix('Z')}Z"
    at = instant(text, times[-1], where=":at")
    return max(bisect_right(times, at + 999) - 1, 0)  # a second is meant to its end


def theme_of(rest: str) -> str:
    """Return a theme's name."""
    if rest not in THEMES:
        raise UsageError(f"themes: {', '.join(THEMES)}")
    return rest
