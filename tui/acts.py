"""The ways to a change: remedies, plans, jobs, forms; each through a screen that asks."""

from functools import partial
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from recovery.plurals import counted
from recovery.times import rfc3339
from tui import commands, head
from tui.feed.asking import LiveFeed
from tui.screens.views import CHANGE, PLANS, WHY
from tui.widgets.lines import Line
from tui.widgets.overlays import Overlay

if TYPE_CHECKING:
    from recovery.rows.diagnosis import TxnHangingRow
    from tui.app import Dashboard


def remedy(app: "Dashboard") -> None:
    """Plan the remedy of the cursor's row, of the marked rows, or of the page."""
    from tui.screens.change import ChangeScreen
    from tui.screens.remedy import ACTIONS, ready

    snapshot = app.frame.snapshot if app.frame else None
    if app.place.view in (PLANS, CHANGE):
        change(app, "Carry out", "carry_out", "reading the plan")
        return
    if snapshot is None or not isinstance(app.feed, LiveFeed):
        return
    if _silent(app):
        return
    if app.paused or head.is_stale(app, head.looked_at(snapshot), head.LOOK):
        app.say("this data is old: refresh first (r asks now, p resumes)", "look")
        return
    hanging = _judged(app)
    rows = [r for r in hanging if r.remedy.action in ACTIONS and r.remedy.argv is not None]
    if not rows:
        why = (
            f"{hanging[0].remedy.action}: {hanging[0].remedy.does}"
            if hanging
            else "no verdict on it"
        )
        app.say(f"no remedy that eoctl could carry out: {why}", "look")
        return

    # of marked rows also those without a remedy: the plan says why they are left out
    make = partial(ready, app.feed, hanging, snapshot.cluster_id)
    saying = "planning: two looks at the cluster, some seconds apart"
    app.push_screen(ChangeScreen("Remedy", make, saying), partial(_closed, app))


def _silent(app: "Dashboard") -> bool:
    """Return True, and say so, where the cluster does not answer: nothing is done on old data."""
    if not head.silent(app):
        return False
    snapshot = app.frame.snapshot if app.frame else None
    at = (rfc3339(head.looked_at(snapshot)) or "")[11:19]
    known = f"this data is as of {at}Z" if at else "nothing is known of it"
    app.say(f"not done: the cluster does not answer, {known}; r asks it now", "look")
    return True


def _closed(app: "Dashboard", sent: bool | None) -> None:
    if sent:
        app.table.state.selected.clear()
        app.feed.wake()


def change(app: "Dashboard", title: str, what: str, saying: str) -> None:
    """Carry out, undo or verify the plan or entry that is meant (see tui.screens.plans)."""
    from tui.screens import plans
    from tui.screens.change import ChangeScreen

    about = _meant(app, "change")
    if about is None:
        app.say("there is no plan here")
        return
    if _is_of_this_cluster(app) and _silent(app):
        return
    make = partial(getattr(plans, what), about)
    app.push_screen(ChangeScreen(title, make, saying), partial(_closed, app))


def _meant(app: "Dashboard", page: str) -> str | None:
    """Return the page's subject, or what the cursor's row opens."""
    if app.place.view.name == page:
        return app.place.about if head.has_answered(app) else None
    row = app.table.current
    return row.opens[1] if row is not None and row.opens is not None else None


def _is_of_this_cluster(app: "Dashboard") -> bool:
    """Return True if the plan or entry that is meant is about the cluster on the screen."""
    snapshot = app.frame.snapshot if app.frame else None
    if app.place.view is CHANGE:
        detail = head.page_answer(app)
        about = detail.cluster_id if detail is not None else None
    else:
        row = app.table.current
        about = getattr(row.source, "cluster_id", None) if row is not None else None
    return snapshot is not None and about is not None and about == snapshot.cluster_id


def recover(app: "Dashboard", kind: str, name: str) -> None:
    """Fill in a form and start what it makes, or look at a command that was started."""
    from tui.screens.forms import BY_NAME as FORMS
    from tui.screens.recover import FormScreen, RunScreen

    snapshot = app.frame.snapshot if app.frame else None
    if kind == "run":
        app.push_screen(RunScreen(app.runs[int(name)], asks=False))
        return
    if snapshot is None or not isinstance(app.feed, LiveFeed):
        app.say("a form needs a cluster", "look")
        return
    form = FORMS[name]
    if form.page:
        app.prompt.ask(":", commands.command_as_typed, commands.command_done, f"{form.page} ")
        return

    if _silent(app):
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
        from eoctl.operations.jobs.records import cancel as cancel_job

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
    app.push_screen(Overlay("Stop?", lambda width: lines, keys="Y"), answered)


def _judged(app: "Dashboard") -> "list[TxnHangingRow]":
    """The judged transactions meant: bound to the rows' keys as they are at the key press."""
    if app.place.view.kind == "page":
        page = head.page_answer(app) if app.place.view is WHY else None
        rows = [getattr(row, "held_by", None) for row in (page.rows if page else ())]
        return [row for row in rows if row is not None][:1]
    state = app.table.state
    keys = [k for k in state.order if k in state.selected] or [state.cursor or ""]
    judged = [state.data.by_key[k].judged for k in keys if k in state.data.by_key]
    return [row for row in judged if row is not None]


def leaving_needs_an_answer(app: "Dashboard") -> bool:
    """Return True after asking whether to leave, if a change is being made."""
    from tui.screens.change import ChangeScreen

    acts = any(isinstance(screen, ChangeScreen) and screen.acting for screen in app.screen_stack)
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
    app.push_screen(Overlay("Leave?", lambda width: lines, keys="Y"), answered)
    return True
