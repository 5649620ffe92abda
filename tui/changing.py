"""The keys for changes: remedies, plans, jobs, forms; each leads to a screen that asks."""

from functools import partial
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.words import remedy_said
from recovery.errors import EoctlError
from recovery.plurals import counted
from recovery.times import rfc3339
from tui.feed.asking import LiveFeed
from tui.fixed_lines import LOOK, is_stale, looked_at
from tui.layout import Layout
from tui.screens.views import CHANGE, PLANS
from tui.widgets.lines import Line
from tui.widgets.overlays import Overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.diagnose.diagnosis_rows import TxnHangingRow
    from tui.screens.change import Ready


class Changing(Layout):
    """The app with the keys that lead to a change."""

    def action_remedy(self) -> None:
        """Plan the remedy of the cursor's row, of the marked rows, or of the page."""
        from tui.screens import plans

        if self.location.view in (PLANS, CHANGE):
            self._plan("Carry out", plans.begun_or_planned, "reading the plan")
            return
        if self.snapshot is None or not isinstance(self.feed, LiveFeed):
            return
        if self._refused_as_silent():
            return
        if self.paused or is_stale(self.snapshot, self.feed, looked_at(self.snapshot), LOOK):
            self.say("this data is old: refresh first (r asks now, p resumes)", "look")
            return
        self._plan_remedies(self.feed, self._judged(), self.snapshot.cluster_id)

    def _plan_remedies(
        self, feed: LiveFeed, judged: "Sequence[TxnHangingRow]", cluster_id: str | None
    ) -> None:
        """Plan what frees these transactions; say so if nothing may be carried out."""
        from tui.screens.change import ChangeScreen
        from tui.screens.remedy import ACTIONS, ready

        if not any(r.remedy.action in ACTIONS and r.remedy.argv is not None for r in judged):
            remedy = judged[0].remedy if judged else None
            why = remedy_said(remedy.action, remedy.does) if remedy else "no verdict on it"
            none = remedy is not None and remedy.action == "none"
            self.say(why if none else f"no remedy that eoctl could carry out: {why}", "look")
            return
        # also marked rows without a remedy: the plan says why they are left out
        make = partial(ready, feed.context, feed.settings, feed.sample_interval, judged, cluster_id)
        saying = "planning: two looks at the cluster, some seconds apart"
        self.push_screen(ChangeScreen("Remedy", make, saying), self._changed)

    def action_undo(self) -> None:
        from tui.screens import plans

        self._plan("Undo", plans.undo, "reading what it changed")

    def action_verify(self) -> None:
        from tui.screens import plans

        self._plan("Verify", plans.verify, "looking at the cluster")

    def _plan(self, title: str, make: "Callable[[str], Ready]", saying: str) -> None:
        """Show what `make` returns, in a thread, for the selected plan or entry."""
        from tui.screens.change import ChangeScreen

        about = self._meant("change")
        if about is None:
            self.say("there is no plan here")
            return
        if self._is_of_this_cluster() and self._refused_as_silent():
            return
        self.push_screen(ChangeScreen(title, partial(make, about), saying), self._changed)

    def _changed(self, sent: bool | None) -> None:
        if sent:
            self.table.state.selected.clear()
            self.feed.wake()

    def _refused_as_silent(self) -> bool:
        """Return True, and say so, if the cluster does not answer: old data decides nothing."""
        if self.snapshot is None or not self.snapshot.silent:
            return False
        at = (rfc3339(looked_at(self.snapshot)) or "")[11:19]
        known = f"this data is as of {at}Z" if at else "nothing is known of it"
        self.say(f"not done: the cluster does not answer, {known}; r asks it now", "look")
        return True

    def _meant(self, page: str) -> str | None:
        """Return the page's subject, or what the cursor's row opens."""
        if self.location.view.name == page:
            return self.location.about if self.answered else None
        row = self.table.current
        return row.opens[1] if row is not None and row.opens is not None else None

    def _is_of_this_cluster(self) -> bool:
        """Return True if the selected plan or entry belongs to the cluster on the screen."""
        if self.location.view is CHANGE:
            about = self.answer.cluster_id if self.answer is not None else None
        else:
            row = self.table.current
            about = getattr(row.source, "cluster_id", None) if row is not None else None
        return self.snapshot is not None and about is not None and about == self.snapshot.cluster_id

    def _judged(self) -> "list[TxnHangingRow]":
        """Return the selected judged transactions, bound to the rows' keys as of the key press."""
        if self.location.view.kind == "page":
            return self.holders[:1]
        state = self.table.state
        keys = [k for k in state.order if k in state.selected] or [state.cursor or ""]
        judged = [state.data.by_key[k].judged for k in keys if k in state.data.by_key]
        return [row for row in judged if row is not None]

    # -- jobs and forms ----------------------------------------------------------------------

    def action_cancel(self) -> None:
        """Stop the selected job, after asking."""
        about = self._meant("job")
        if about is None:
            self.say("there is no job here")
            return
        name = about.removeprefix("job ")

        def stop() -> None:
            self.say(f"stopping {visible(name)}; it may take 20 s", "look")
            self.run_worker(partial(self._stop_job, name), thread=True)

        question = f"Stop job {visible(name)} and all that belongs to it?"
        self._if_yes("Stop?", question, "y stops it, esc leaves it", stop)

    def _stop_job(self, name: str) -> None:
        """Stop a job. Runs in a thread, and takes up to 20 s."""
        from eoctl.operations.jobs.job_records import cancel

        try:
            text, role = f"{visible(name)} is {cancel(name).state}", "good"
        except EoctlError as error:
            text, role = error.sentence, "act"
        self.call_from_thread(self.say, text, role)
        self.feed.wake()

    def fill_in(self, name: str, ask_command: "Callable[[str], None]") -> None:
        """Fill in a form and start its command.

        ask_command: called with the start of a command, if the form makes no more than that.
        """
        from tui.screens.forms import BY_NAME as FORMS
        from tui.screens.recover import FormScreen

        if self.snapshot is None or not isinstance(self.feed, LiveFeed):
            self.say("a form needs a cluster", "look")
            return
        form = FORMS[name]
        if form.page:
            ask_command(f"{form.page} ")
            return
        if self._refused_as_silent():
            return

        def filled(argv: list[str] | None) -> None:
            if argv is not None:
                self._start_run(form.title, argv, asks=form.plans)

        self.push_screen(FormScreen(form, self.snapshot.argv), filled)

    def _start_run(self, title: str, argv: "Sequence[str]", *, asks: bool = False) -> None:
        """Start a command and show what it prints. asks: it prints a plan, to be confirmed."""
        from tui.screens.recover import RunScreen
        from tui.screens.runs import Run

        def confirmed(argv: list[str] | None) -> None:
            if argv is not None:
                self._start_run(title, argv)

        run = Run(title, argv, ("-o", "json") if asks else ())
        self.runs.append(run)
        self.renew_recover()
        self.push_screen(RunScreen(run, asks=asks), confirmed)

    def show_run(self, number: int) -> None:
        """Show a command that was started from a form."""
        from tui.screens.recover import RunScreen

        self.push_screen(RunScreen(self.runs[number], asks=False))

    def leaving_needs_an_answer(self) -> bool:
        """Return True, after asking whether to leave, if a change is being made."""
        from tui.screens.change import ChangeScreen

        acting = any(isinstance(s, ChangeScreen) and s.acting for s in self.screen_stack)
        runs = [run for run in self.runs if run.exit_status is None]
        if not acting and not runs:
            return False
        what = "A change is being made. The journal finishes it later if you leave now."
        if not acting:
            what = f"{counted(len(runs), 'command')} started from here will be stopped."
        self._if_yes("Leave?", what, "y leaves, esc stays", self.leave)
        return True

    def _if_yes(self, title: str, question: str, keys: str, do: "Callable[[], None]") -> None:
        """Ask, and call `do` if `y` is pressed."""

        def answered(letter: str | None) -> None:
            if letter == "Y":
                do()

        lines: list[Line] = [((f" {question}", "acts"),), ((f" {keys}", "text"),)]
        self.push_screen(Overlay(title, lambda width: lines, keys="Y"), answered)
