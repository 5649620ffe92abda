"""What the keys of a table do beyond moving: sort, filter, commands, JSON, copy, write."""

import datetime
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.shell import command as shell_command
from eoctl.render.words import counted
from recovery.errors import EoctlError
from tui import head, overlays
from tui.feed import LiveFeed
from tui.keys import TAKES, UNSORTED, completions
from tui.lines import Line
from tui.overlays import Overlay
from tui.palette import THEMES
from tui.table import Filter
from tui.views import BY_NAME, CHANGE, JOB, JOBS, PLANS, RECOVER, WHY

if TYPE_CHECKING:
    from recovery.rows_diagnosis import TxnHangingRow
    from tui.app import Dashboard
    from tui.tables import TableRow


def sort(app: "Dashboard", letter: str) -> None:
    """By the column of this letter: the highest first; again, the lowest first."""
    state = app.table.state
    if letter == UNSORTED:
        state.sort, state.descending = None, False
    else:
        found = [i for i, c in enumerate(state.data.columns) if c.letter == letter]
        if not found:
            app.say(f"no column here has the letter {letter}; s shows them")
            return
        numeric = state.data.columns[found[0]].kind == "number"
        same = state.sort == found[0]
        state.descending = not state.descending if same else numeric
        state.sort = found[0]
    app.table.settle()
    app.tick()


def sort_menu(app: "Dashboard") -> None:
    """The columns and their letters."""

    def chosen(letter: str | None) -> None:
        if letter is not None:
            sort(app, letter)

    app.push_screen(overlays.sort_menu(app.table.state.data.columns), chosen)


def _text_lines(texts: Sequence[str], role: str = "text") -> Sequence[Line]:
    return [((text, role),) for text in texts]


def show_json(app: "Dashboard") -> None:
    """The cursor's row, or the page's answer."""
    from tui import pages

    if app.place.view.kind == "page":
        snapshot = app.frame.snapshot if app.frame else None
        answer, _ = head.page_answer(snapshot, app.place.view)
        texts = [line for row in (answer.rows if answer else ()) for line in pages.json_lines(row)]
    else:
        row = app.table.current
        texts = pages.json_lines(row.source) if row and row.source is not None else []
    if not texts:
        app.say("there is no row")
        return
    _remember(app, "\n".join(texts), copy=False)
    lines = _text_lines(texts)
    app.push_screen(Overlay("JSON", lambda width: lines, copies="\n".join(texts)))


def equal_commands(app: "Dashboard") -> list[str]:
    """The command of this screen, and of the cursor's row the page and the remedy."""
    snapshot = app.frame.snapshot if app.frame else None
    start = ["eoctl", *(snapshot.argv if snapshot else ())]
    view, about = app.place.view, app.place.about
    argv = [*start, *view.argv]
    if view is CHANGE and about.startswith("plan "):
        plan = snapshot.detail.extra.get("plan") if snapshot and snapshot.detail else None
        argv = _change_argv(about, plan.get("kind") if isinstance(plan, dict) else None)
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
            commands.append(shell_command([*start, "why", row.opens[1]]))
        elif row.opens is not None and row.opens[0] == "job":
            commands.append(shell_command(["eoctl", "jobs", "show", row.key]))
        elif row.opens is not None and row.opens[0] == "change":
            kind = getattr(row.source, "kind", None)
            commands.append(shell_command(_change_argv(row.opens[1], kind)))
        elif row.opens is not None:
            commands.append(shell_command([*start, "txn", "history", "--", row.opens[1]]))
        commands.append(row.command)
    elif view is WHY and snapshot is not None and snapshot.why is not None:
        for told in snapshot.why.rows:
            held = getattr(told, "held_by", None)
            commands.append(held.remedy.command if held else None)
    return [c for c in commands if c is not None]


def _recover_argv(app: "Dashboard", row: "TableRow | None", connection: list[str]) -> list[str]:
    """What the cursor's form starts, still without what it asks for, or what was started."""
    from tui.forms import BY_NAME as FORMS
    from tui.forms import command_of

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
            lines += [((text[n : n + width], "key"),) for n in range(0, len(text), width)]
            lines.append(())
        return lines

    app.push_screen(
        Overlay("The equal commands; none of them changes anything", make, copies=commands[-1])
    )


def remedy(app: "Dashboard") -> None:
    """Plan the remedy of the cursor's row, of the marked rows, or of the page."""
    from tui.change import Change
    from tui.remedy import ACTIONS, ready

    snapshot = app.frame.snapshot if app.frame else None
    if app.place.view in (PLANS, CHANGE):
        change(app, "Carry out", "carry_out", "reading the plan")
        return
    if snapshot is None or not isinstance(app.feed, LiveFeed):
        return
    if app.paused or head.is_stale(app, head.looked_at(snapshot), head.LOOK):
        app.say("what is shown is old: look again first (p resumes, r asks)", "look")
        return
    rows = [r for r in _judged(app) if r.remedy.action in ACTIONS and r.remedy.argv is not None]
    if not rows:
        found = _judged(app)
        why = f"{found[0].remedy.action}: {found[0].remedy.does}" if found else "no verdict on it"
        app.say(f"no remedy that eoctl could carry out: {why}", "look")
        return

    make = partial(ready, app.feed, rows, snapshot.cluster_id)
    saying = "planning: two looks at the cluster, some seconds apart"
    app.push_screen(Change("Remedy", make, saying), partial(_closed, app))


def _closed(app: "Dashboard", sent: bool | None) -> None:
    if sent:
        app.table.state.selected.clear()
        app.feed.wake()


def change(app: "Dashboard", title: str, what: str, saying: str) -> None:
    """Carry out, undo or verify the plan or entry that is meant (functions of tui.plans)."""
    from tui import plans
    from tui.change import Change

    about = _meant(app, "change")
    if about is None:
        app.say("there is no plan here")
        return
    make = partial(getattr(plans, what), about)
    app.push_screen(Change(title, make, saying), partial(_closed, app))


def _meant(app: "Dashboard", page: str) -> str | None:
    """What the page is about, or what the cursor's row opens."""
    if app.place.view.name == page:
        return app.place.about
    row = app.table.current
    return row.opens[1] if row is not None and row.opens is not None else None


def recover(app: "Dashboard", kind: str, name: str) -> None:
    """Fill in a form and start what it makes, or look at a command that was started."""
    from tui.forms import BY_NAME as FORMS
    from tui.recover import FormScreen, RunScreen

    snapshot = app.frame.snapshot if app.frame else None
    if kind == "run":
        app.push_screen(RunScreen(app.runs[int(name)], asks=False))
        return
    if snapshot is None or not isinstance(app.feed, LiveFeed):
        app.say("a form needs a cluster", "look")
        return
    form = FORMS[name]
    if form.page:
        app.prompt.ask(":", command_as_typed, command_done, f"{form.page} ")
        return

    def filled(argv: list[str] | None) -> None:
        if argv is not None:
            app.start_run(form.title, argv, asks=form.plans)

    app.push_screen(FormScreen(form, snapshot.argv), filled)


def cancel(app: "Dashboard") -> None:
    """Stop the job that is meant, after a question."""
    about = _meant(app, "job")
    if about is None:
        app.say("there is no job here")
        return
    name = about.removeprefix("job ")

    def answered(letter: str | None) -> None:
        if letter == "Y":
            app.say(f"stopping {visible(name)}; it may take 20 s", "look")
            app.run_worker(partial(stop, name), thread=True)

    def stop(job_id: str) -> None:
        from eoctl.operations.jobs import cancel as cancel_job

        try:
            text, role = f"{visible(name)} is {cancel_job(job_id).state}", "good"
        except EoctlError as error:
            text, role = error.sentence, "act"
        app.call_from_thread(app.say, text, role)
        app.feed.wake()

    lines: list[Line] = [
        ((f" Stop job {visible(name)} and all that belongs to it?", "act"),),
        ((" y stops it, esc leaves it", "text"),),
    ]
    app.push_screen(Overlay("Stop?", lambda width: lines, keys="Y", height=2), answered)


def _judged(app: "Dashboard") -> "list[TxnHangingRow]":
    """The judged transactions meant: bound to the rows' keys as they are at the key press."""
    if app.place.view.kind == "page":
        page = app.frame.snapshot.why if app.frame and app.place.view is WHY else None
        rows = [getattr(row, "held_by", None) for row in (page.rows if page else ())]
        return [row for row in rows if row is not None][:1]
    state = app.table.state
    keys = [k for k in state.order if k in state.selected] or [state.cursor or ""]
    found = [state.data.by_key[k].judged for k in keys if k in state.data.by_key]
    return [row for row in found if row is not None]


def leaving_needs_an_answer(app: "Dashboard") -> bool:
    """Is a change being made? Then ask whether to leave all the same."""
    from tui.change import Change

    acts = any(isinstance(screen, Change) and screen.acting for screen in app.screen_stack)
    runs = [run for run in app.runs if run.exit_status is None]
    if not acts and not runs:
        return False
    what = "A change is being made. The journal finishes it later if you leave now."
    if not acts:
        what = f"{counted(len(runs), 'command')} started from here will be stopped."

    def answered(letter: str | None) -> None:
        if letter == "Y":
            app.leave()

    lines: list[Line] = [
        ((f" {what}", "act"),),
        ((" y leaves, esc stays", "text"),),
    ]
    app.push_screen(Overlay("Leave?", lambda width: lines, keys="Y", height=2), answered)
    return True


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
    """What could be meant stands in the status line."""
    found = completions(text.split(" ")[0])
    app.say("  ".join(found) if found else "no such command", "dim" if found else "look")


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
    elif word in ("q", "quit"):
        app.action_stop()
    elif word:
        app.say(f"no command {visible(word)!r}; ? lists them", "look")
    app.tick()


def _open(app: "Dashboard", word: str, rest: str) -> None:
    from recovery.selectors import parse_selector
    from tui.app import Place

    view = BY_NAME[word]
    if view is WHY and rest:
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
    if view.columns and rest:
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
