"""The prompt's language: a filter after `/`, a command after `:`."""

import re
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from tui.actions import explain
from tui.screens.keys import TAKES, completions
from tui.screens.views import BY_NAME, JOB, WHY
from tui.widgets.palette import THEMES
from tui.widgets.table_state import Filter

if TYPE_CHECKING:
    from tui.app import Dashboard


def filter_as_typed(app: "Dashboard", text: str) -> None:
    """The table follows what is typed, as soon as it is a regular expression."""
    try:
        app.table.state.filter = Filter.parse(text) if text.removeprefix("!") else None
    except re.error as error:
        app.say(f"not a regular expression yet: {error}", "look")
        return
    app.message = ("", "text")
    app.table.settle()
    app.tick()


def filter_done(app: "Dashboard", text: str | None) -> None:
    """The whole of what was typed; esc takes the filter away."""
    filter_as_typed(app, text or "")
    app.tick()


def command_as_typed(app: "Dashboard", text: str) -> None:
    """Run a typed command; its suggestions stand in the status line."""
    names = completions(text.split(" ")[0])
    app.say("  ".join(names) if names else "no such command", "dim" if names else "look")


def command_done(app: "Dashboard", text: str | None) -> None:
    """Do what was typed."""
    app.message = ("", "text")
    word, _, rest = (text or "").strip().partition(" ")
    rest = rest.strip()
    word = word.lower()
    if word in BY_NAME:
        _open(app, word, rest)
    elif word in ("ctx", "context"):
        app.other_cluster(rest)
    elif word == "interval":
        _interval(app, rest)
    elif word == "theme":
        if rest in THEMES:
            app.theme = rest
        else:
            app.say(f"themes: {', '.join(THEMES)}", "look")
    elif word == "help":
        app.action_help()
    elif word == "explain":
        explain(app, rest)
    elif word in ("q", "quit"):
        app.action_stop()
    elif word:
        app.say(f"no command {visible(word)!r}; ? lists them", "look")
    app.tick()


def _open(app: "Dashboard", word: str, rest: str) -> None:
    from recovery.selectors import parse_selector
    from tui.shell import Place

    view = BY_NAME[word]
    if view is WHY and rest and not rest.startswith("id "):
        try:
            parse_selector(rest, where=":why")
        except EoctlError as error:
            app.say(error.sentence, "look")
            return
    if view.name in TAKES and view is not WHY and not rest:
        app.say(f"which one? :{word} {TAKES[view.name]}", "look")
        return
    about = f"job {rest}" if view is JOB else rest
    app.go(Place(view, about if view.kind == "page" else ""), remember=True)
    if view.kind != "page" and rest:
        filter_as_typed(app, rest)


def _interval(app: "Dashboard", rest: str) -> None:
    from recovery.times import duration

    try:
        seconds = duration(rest if not rest.isdigit() else f"{rest}s", where=":interval")
    except EoctlError as error:
        app.say(error.sentence, "look")
        return
    if not 1 <= seconds <= 3600:
        app.say("between 1s and 1h", "look")
        return
    app.pace(seconds)
