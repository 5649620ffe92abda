"""Parse commands typed after `:` into values. Each function raises UsageError."""

import shlex

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


def theme_of(rest: str) -> str:
    """Return a theme's name."""
    if rest not in THEMES:
        raise UsageError(f"themes: {', '.join(THEMES)}")
    return rest
