"""The keys of a table beyond moving: sort, filter, commands, JSON, copy, write."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.shell import command as shell_command
from recovery.errors import EoctlError
from tui import head
from tui.screens.keys import UNSORTED
from tui.screens.views import CHANGE, CHECKPOINT, JOBS, PLANS, RECOVER, WHY
from tui.widgets import overlays
from tui.widgets.lines import Line
from tui.widgets.overlays import Overlay

if TYPE_CHECKING:
    from tui.app import Dashboard
    from tui.shell import Shell
    from tui.widgets.tables import TableRow


def sort(app: "Dashboard", letter: str) -> None:
    """Sort by the column of this letter: highest first; pressed again, lowest first."""
    state = app.table.state
    if letter == UNSORTED:
        state.sort, state.descending = None, False
    else:
        columns = [i for i, c in enumerate(state.data.columns) if c.letter == letter]
        if not columns:
            app.say(f"no column here has the letter {letter}; s shows them")
            return
        numeric = state.data.columns[columns[0]].right
        same = state.sort == columns[0]
        state.descending = not state.descending if same else numeric
        state.sort = columns[0]
    app.table.settle()
    app.tick()


def sort_menu(app: "Dashboard") -> None:
    """The columns and their letters."""

    def chosen(letter: str | None) -> None:
        if letter is not None:
            sort(app, letter)

    app.push_screen(overlays.sort_menu(app.table.state.data.columns), chosen)


def _whole(texts: Sequence[str], width: int, role: str) -> list[Line]:
    """Return lines in which nothing is cut: what is longer goes on in the next."""
    return [
        ((text[n : n + width], role),) for text in texts for n in range(0, len(text) or 1, width)
    ]


def show_json(app: "Dashboard") -> None:
    """The cursor's row, or the page's answer."""
    from tui.screens import pages

    if app.place.view.kind == "page":
        answer = head.page_answer(app)
        texts = [line for row in (answer.rows if answer else ()) for line in pages.json_lines(row)]
    else:
        row = app.table.current
        texts = pages.json_lines(row.source) if row and row.source is not None else []
    if not texts:
        app.say("there is no row")
        return
    _remember(app, "\n".join(texts), copy=False)
    app.push_screen(
        Overlay("JSON", lambda width: _whole(texts, width, "text"), copies="\n".join(texts))
    )


def equal_commands(app: "Shell") -> list[str]:
    """The command of this screen, and of the cursor's row the page and the remedy."""
    snapshot = app.frame.snapshot if app.frame else None
    start = ["eoctl", *(snapshot.argv if snapshot else ())]
    view, about = app.place.view, app.place.about
    argv = [*start, *view.argv]
    if view is CHANGE and about.startswith("plan "):
        detail = head.page_answer(app)
        plan = detail.extra.get("plan") if detail else None
        argv = _change_argv(about, plan.get("kind") if isinstance(plan, dict) else None)
    elif about and view is WHY:
        argv = [*start, *why_argv(about)]
    elif view is CHECKPOINT:
        argv.append(f"--checkpoint={about}")
    elif about and view.kind == "page":
        name = about.removeprefix("job ")
        argv += ["--", name] if name.startswith("-") else [name]
    row = app.table.current if view.kind != "page" else None
    if view is RECOVER:
        return [shell_command(_recover_argv(app, row, start[1:])) or ""]
    if view in (PLANS, JOBS):  # of this host, whatever the cluster
        argv = ["eoctl", *view.argv]
    commands = [shell_command(argv)]
    if row is not None:
        if row.opens is not None and row.opens[0] == "why":
            commands.append(shell_command([*start, *why_argv(row.opens[1])]))
        elif row.opens is not None and row.opens[0] == "job":
            commands.append(shell_command(["eoctl", "jobs", "show", row.key]))
        elif row.opens is not None and row.opens[0] == "change":
            kind = getattr(row.source, "kind", None)
            commands.append(shell_command(_change_argv(row.opens[1], kind)))
        elif row.opens is not None:
            commands.append(shell_command([*start, "txn", "history", "--", row.opens[1]]))
        commands.append(row.command)
    elif view is WHY and (answer := head.page_answer(app)) is not None:
        for held_row in answer.rows:
            held = getattr(held_row, "held_by", None)
            commands.append(held.remedy.command if held else None)
    return [c for c in commands if c is not None]


def verdicts_here(app: "Shell") -> list[str]:
    """The verdicts that the page, or the cursor's row, is about: what `?` explains."""
    if app.place.view is WHY:
        answer = head.page_answer(app)
        found = [getattr(row, "held_by", None) for row in (answer.rows if answer else ())]
    else:
        row = app.table.current if app.place.view.kind != "page" else None
        found = [row.source] if row else []
    from recovery.rows.diagnosis import TxnHangingRow  # pydantic, which the first paint has not

    rows = [row for row in found if isinstance(row, TxnHangingRow)]
    return list(dict.fromkeys("mixed" if row.mixed else row.verdict for row in rows))


def explain(app: "Dashboard", word: str) -> None:
    """Tell what a word means, as `eoctl explain` does."""
    from tui.screens import pages

    try:
        pages.explain_page(word, 80)
    except EoctlError as error:
        app.say(visible(error.sentence), "look")
        return
    app.push_screen(Overlay("Explain", lambda width: pages.explain_page(word, width)))


def why_argv(about: str) -> list[str]:
    """The words after `eoctl` for a page of why: of a partition, or of `id NAME`."""
    if about.startswith("id "):
        return ["why", f"--transactional-id={about[3:]}"]
    return ["why", *(["--"] if about.startswith("-") else []), about]


def _recover_argv(app: "Shell", row: "TableRow | None", connection: list[str]) -> list[str]:
    """Return what the cursor's form starts, with gaps where it asks, or what was started."""
    from tui.screens.forms import BY_NAME as FORMS
    from tui.screens.forms import command_of

    if row is None or row.opens is None:
        return ["eoctl", *connection, "--help"]
    kind, name = row.opens
    return [*app.runs[int(name)].argv] if kind == "run" else command_of(FORMS[name], {}, connection)


def _change_argv(about: str, kind: object) -> list[str]:
    """The command that shows a plan file of this kind, or an entry."""
    word, _, name = about.partition(" ")
    if word == "plan":
        return ["eoctl", "restart" if kind == "restart" else "txn", "apply", name]
    return ["eoctl", "journal", "show", about]


def show_equal(app: "Dashboard") -> None:
    """Commands to paste; none of them changes anything."""
    commands = equal_commands(app)
    _remember(app, commands[-1], copy=False)

    def make(width: int) -> Sequence[Line]:
        lines: list[Line] = []
        for text in commands:
            lines += [*_whole([text], width, "key"), ()]
        return lines

    app.push_screen(Overlay("Equal commands; none changes anything", make, copies=commands[-1]))


def copy(app: "Dashboard") -> None:
    """The underlined cell, exactly as the cluster has it where it is a name."""
    row = app.table.current
    if row is None:
        app.say("there is no row")
        return
    column = app.table.state.column
    value = row.sort[column]
    text = value if isinstance(value, str) else row.cells[column].strip()
    _remember(app, text, copy=True)
    app.say(f"copied (also printed at the end): {visible(text)}", "key")


def _remember(app: "Dashboard", text: str, *, copy: bool) -> None:
    if copy:
        app.copied = text
        app.copy_to_clipboard(text)


def write(app: "Dashboard") -> None:
    """The rows shown as CSV, or the page as text, into a new file in the working directory."""
    from eoctl.render.envelope import csv_lines

    now = datetime.datetime.fromtimestamp(app.feed.now() / 1000, datetime.UTC)
    stem = f"eoctl-{app.place.view.name}-{now:%Y%m%dT%H%M%SZ}"
    if app.place.view.kind == "page":
        path, text = Path(f"{stem}.txt"), app.page.text() + "\n"
    else:
        state = app.table.state
        columns = [(i, c) for i, c in enumerate(state.data.columns) if c.kind != "spark"]
        rows = [row for key in state.order if (row := state.row(key)) is not None]
        lines = csv_lines(
            [{c.key: row.cells[i] or None for i, c in columns} for row in rows],
            [c.key for _, c in columns],
        )
        path, text = Path(f"{stem}.csv"), "".join(f"{line}\n" for line in lines)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        app.say(f"cannot be written ({error.strerror}): {path.absolute()}", "act")
        return
    app.say(f"written: {path.absolute()}", "good")
