"""The only list of keys: bindings, footer, help and the `:` palette are made from it.

A key whose action could change the cluster has `changes`: it does not exist in a read-only context
or in a recording (App.check_action). One that acts on this host has `on_host`: it does not exist in
a browser. C, K, ctrl+d, ctrl+k and delete stay unbound, because
elsewhere they destroy.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from textual.binding import Binding

from recovery.values import Value
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    COUNTS,
    DOCTOR,
    FINDING,
    GROUPS,
    JOB,
    JOBS,
    LETTERS,
    NUMBERED,
    OVERVIEW,
    PARTITIONS,
    PLANS,
    PREFIXES,
    PRODUCERS,
    RECOVER,
    TRANSACTIONS,
    VIEWS,
    WHY,
    View,
)

Where = Literal[
    "all",
    "table",
    "page",
    "replay",
    "remedies",
    "changes",
    "jobs",
    "held",
    "copied",
    "counted",
    "traced",
]


class Key(Value):
    """keys: as Textual names them. shown: as people write them. where: on which kind of screen.

    footer: short word for the footer, or "" if only the help names it. priority: also works while
    something is typed. subject: on a page the key acts on what the page shows, so it does not exist
    until the page has answered.
    """

    keys: tuple[str, ...]
    shown: str
    action: str
    help: str
    where: Where = "all"
    footer: str = ""
    priority: bool = False
    changes: bool = False
    subject: bool = False
    on_host: bool = False


KEYS: tuple[Key, ...] = (
    Key(("enter",), "enter", "open", "open what the cursor is on", "table", "open"),
    Key(("d",), "d", "open", "the same", "table"),
    Key(
        ("x",),
        "x",
        "remedy",
        "the remedy's plan, or this one; sends nothing yet",
        "remedies",
        "remedy",
        changes=True,
        subject=True,
    ),
    Key(
        ("u",),
        "u",
        "undo",
        "the plan that puts it back",
        "changes",
        "undo",
        changes=True,
        subject=True,
    ),
    Key(
        ("v",),
        "v",
        "verify",
        "check whether it is as planned",
        "changes",
        "verify",
        subject=True,
        on_host=True,
    ),
    Key(
        ("v",),
        "v",
        "records",
        "the records at stake, read now: keys and values",
        "held",
        "records",
        subject=True,
        on_host=True,
    ),
    Key(
        ("t",),
        "t",
        "trace",
        "the timeline of its transaction; of a group, its commits",
        "traced",
        "timeline",
        subject=True,
    ),
    Key(
        ("z",),
        "z",
        "cancel",
        "stop the job, after a question",
        "jobs",
        "cancel",
        subject=True,
        on_host=True,
    ),
    Key(("left_square_bracket",), "[", "seek(-1)", "the snapshot before", "replay", "before"),
    Key(("right_square_bracket",), "]", "seek(1)", "the next snapshot", "replay", "next"),
    Key(("less_than_sign",), "<", "seek(-20)", "20 snapshots back", "replay"),
    Key(("greater_than_sign",), ">", "seek(20)", "20 snapshots on", "replay"),
    Key(("m",), "m", "moment", "keep this moment; again, at another one: what differs"),
    Key(("slash",), "/", "filter", "filter by a regular expression, ! inverts", "table", "filter"),
    Key(("colon",), ":", "command", "a command: a screen, ctx, interval, theme, q", "all", "cmd"),
    Key(("s",), "s", "sort_menu", "sort by a column (shift+its letter)", "table", "sort"),
    Key(("escape",), "esc", "leave", "clear the filter, then go back", "all", "back"),
    Key(("q",), "q", "retreat", "go back; at the root quit", "all", "quit"),
    Key(("z",), "z", "summary", "what grows, counted; z again: back", "counted", "count"),
    Key(("space",), "space", "select", "mark the row", "table", "mark"),
    Key(("y",), "y", "json", "the row (or page) as JSON", "all", "json", subject=True),
    Key(("e",), "e", "equal", "the command that prints the same", "all", "command", subject=True),
    Key(("c",), "c", "copy", "copy the underlined cell, or a finding's command", "copied", "copy"),
    Key(("ctrl+s",), "ctrl+s", "write", "write what is shown to a file", "all", "write"),
    Key(("p",), "p", "pause", "pause: nothing moves", "all", "pause"),
    Key(("r",), "r", "refresh", "ask the cluster now", "all", "refresh"),
    Key(("plus", "equals_sign"), "+", "interval(1)", "ask less often", on_host=True),
    Key(("minus",), "-", "interval(-1)", "ask more often", on_host=True),
    Key(("j", "down"), "j", "move(1)", "down"),
    Key(("k", "up"), "k", "move(-1)", "up"),
    Key(("pagedown", "ctrl+f"), "pgdn", "page(1)", "a page down"),
    Key(("pageup", "ctrl+b"), "pgup", "page(-1)", "a page up"),
    Key(("g", "home"), "g", "first", "to the first line"),
    Key(("G", "end"), "G", "last", "to the last line"),
    Key(("h", "left"), "h", "turn(-1)", "the cell to the left", "table"),
    Key(("l", "right"), "l", "turn(1)", "the cell to the right", "table"),
    Key(("ctrl+p",), "ctrl+p", "find", "find a command, topic, id or group", "all", "find"),
    Key(("tab",), "tab", "focus_next", "to the next panel, which then scrolls", "all", "panel"),
    Key(("shift+tab",), "shift+tab", "focus_previous", "to the panel before"),
    Key(("question_mark",), "?", "help", "all keys and commands", "all", "help"),
    Key(("ctrl+c",), "ctrl+c", "stop", "quit at once", priority=True),
    Key(("ctrl+q",), "ctrl+q", "stop", "quit at once", priority=True),
    Key(
        ("ctrl+z",),
        "ctrl+z",
        "suspend_process",
        "suspend; fg brings it back",
        priority=True,
        on_host=True,
    ),
)


class Command(Value):
    """A word after `:`."""

    words: tuple[str, ...]
    takes: str
    help: str
    on_host: bool = False


SUMMARY_OF = {TRANSACTIONS: PREFIXES, PRODUCERS: COUNTS}
CHANGED, JOBBED = (PLANS, CHANGE), (JOBS, JOB)
HELD = (OVERVIEW, PARTITIONS, TRANSACTIONS, WHY)
TRACED = (*HELD, GROUPS)
NO_REMEDY = (JOBS, JOB, RECOVER, CHECKPOINT, DOCTOR, FINDING, COUNTS, PREFIXES)
UNSORTED = "U"  # with shift: the worst first again

TAKES = {
    "why": "[TOPIC:P | id ID]",
    "timeline": "ID",
    "group": "GROUP",
    "change": "ENTRY | plan FILE",
    "job": "ID",
    "merge": "APP.toml",
    "checkpoint": "PATH",
    "doctor": "[NAME...]",
    "finding": "RULE SUBJECT",
}

COMMANDS: tuple[Command, ...] = (
    *(
        Command(view.names, TAKES.get(view.name, "[FILTER]"), view.says, view.on_host)
        for view in VIEWS
    ),
    Command(("ctx", "context"), "NAME", "another cluster", True),
    Command(("interval",), "SECONDS", "how often the cluster is asked", True),
    Command(("at",), "TIME", "in a recording: what was seen then, 14:02:11 or with its date"),
    Command(("theme",), "NAME", "dark, light, contrast, ansi-dark, ansi-light"),
    Command(("explain",), "WORD", "what a verdict, rule, error or term means"),
    Command(("help",), "", "all keys and commands"),
    Command(("q", "quit"), "", "quit"),
)


def bindings() -> list[Binding]:
    """Return App.BINDINGS: the list above, a digit per screen, a shifted letter per column.

    A key with an action of its own on some screens is bound once, to all its actions.
    """
    by_keys: dict[tuple[str, ...], list[Key]] = {}
    for k in KEYS:
        by_keys.setdefault(k.keys, []).append(k)
    made = []
    for keys, several in by_keys.items():
        k = several[0]
        action = k.action
        if len(several) > 1:
            action = f"first_of('{' '.join(one.action for one in several)}')"
        made.append(Binding(",".join(keys), action, k.help, show=False, priority=k.priority))
    made += [Binding(str(v.number), f"view('{v.name}')", v.title, show=False) for v in NUMBERED]
    made += [Binding(x, f"sort('{x}')", "sort", show=False) for x in LETTERS + UNSORTED]
    return made


def exists(
    key: Key,
    view: View,
    *,
    replay: bool,
    may_change: bool,
    answered: bool = True,
    web: bool = False,
) -> bool:
    """Return True if the key exists on this screen. answered: the page shows its subject."""
    if (key.changes and not may_change) or (key.on_host and web):
        return False
    if key.subject and view.kind == "page" and not answered:
        return False
    if key.where == "table":
        return view.kind != "page"
    if key.where == "remedies":
        return view not in NO_REMEDY
    if key.where in ("changes", "jobs"):
        return not replay and view in (CHANGED if key.where == "changes" else JOBBED)
    if key.where == "held":
        return view in HELD and not replay
    if key.where == "traced":
        return view in TRACED
    if key.where == "counted":
        return view in (*SUMMARY_OF, *SUMMARY_OF.values())
    if key.where == "copied":
        return view.kind != "page" or view is FINDING
    if key.where == "page":
        return view.kind == "page"
    return key.where == "all" or replay


def footer(
    view: View, *, replay: bool, may_change: bool, answered: bool = True, web: bool = False
) -> Iterator[Key]:
    """Yield the keys that the footer shows."""
    for key in KEYS:
        if key.footer and exists(
            key, view, replay=replay, may_change=may_change, answered=answered, web=web
        ):
            yield key


def commands_of(*, web: bool) -> list[Command]:
    """Return the commands that exist: in a browser none that is about this host."""
    return [command for command in COMMANDS if not (web and command.on_host)]


def completions(typed: str, *, web: bool = False) -> Sequence[str]:
    """Return the command words that begin with what was typed, else those that have its letters."""
    words = [w for c in commands_of(web=web) for w in c.words]
    letters = re.compile(".*".join(map(re.escape, typed.lower())))
    return [w for w in words if w.startswith(typed.lower())] or list(filter(letters.search, words))
