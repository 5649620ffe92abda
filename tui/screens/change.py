"""A change from its plan to its verified result, through the command line's own functions.

The plan is made again from the cluster and shown completely, and nothing is sent until its word is
typed; what became of each step is read back from the cluster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from eoctl.host.clock import now_ms
from eoctl.render.plans import plan_facts
from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from recovery.values import Value
from tui.widgets.asking_page import Asking
from tui.widgets.lines import Line
from tui.widgets.text import wrapped

if TYPE_CHECKING:
    from eoctl.operations.change.acting import Outcome
    from eoctl.settings.context import Context
    from recovery.change.plan import Plan

ROLES = {
    "done": "good",
    "already-done": "good",
    "refused": "look",
    "unverified": "act",
    "beyond-plan": "act",
}


class Ready(Value):
    """A plan and where it is carried out, or (plan None) sentences instead of a plan.

    undoes: the journal entry that the plan puts back. finding: the sentences report a finding.
    """

    plan: "Plan | None"
    told: Sequence[str] = ()
    context: "Context | None" = None
    undoes: str | None = None
    finding: bool = False


def execute(ready: Ready, typed: str) -> "Outcome":
    """Carry the plan out if `typed` is its word. Raises EoctlError. Takes seconds."""
    from eoctl.operations import kinds  # noqa: F401 - the plan may be of any kind
    from eoctl.operations.change import acting
    from eoctl.operations.change.acting import Door, permit

    assert ready.plan is not None
    assert ready.context is not None
    door = Door(
        ready.context,
        lambda question, word: typed.strip() == word or None,
        execute=True,
        argv=("eoctl", *ready.context.argv, "tui"),
    )
    permit(ready.plan, door, ready.undoes)
    return acting.execute(ready.plan, door, 60.0, ready.undoes)


class ChangeScreen(Asking[bool]):
    """Plan, typed word, outcome. Returns True if anything was sent. make: runs in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
    ]

    def __init__(self, title: str, make: Callable[[], Ready], saying: str) -> None:
        super().__init__("plan")
        self._name = title
        self._make = make
        self._ready: Ready | None = None
        self.sent = False
        self.acting = False
        self.said = saying

    def on_mount(self) -> None:
        self._show(lambda width: [((f" {self.said}", "dim"),)])
        self.page.focus()
        self.run_worker(self._planning, thread=True)

    def action_leave(self) -> None:
        """Close, unless something is being sent: its result must be seen."""
        if not self.acting:
            self.dismiss(self.sent)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        plan = self._ready.plan if self._ready else None
        if plan is not None and not self.acting and not self.sent:
            if event.value.strip() not in ("", plan.word) and now_ms() < plan.expires_at:
                again = self.ask_again(plan.word)
                if again is not None:
                    self.said = again
                    return
            self.acting = True
            self.word.display = False
            self._show(lambda width: [*plan_lines(plan, width), (), ((" sending", "look"),)])
            self.run_worker(partial(self._acting, event.value), thread=True)

    # -- in a thread -------------------------------------------------------------------------

    def _planning(self) -> None:
        result: Ready | EoctlError
        try:
            result = self._make()
        except EoctlError as error:
            result = error
        self.app.call_from_thread(self._planned, result)

    def _acting(self, typed: str) -> None:
        result: Outcome | EoctlError
        try:
            assert self._ready is not None
            result = execute(self._ready, typed)
        except EoctlError as error:
            result = error
        self.app.call_from_thread(self._acted, result)

    # -- in the app --------------------------------------------------------------------------

    def _planned(self, result: Ready | EoctlError) -> None:
        if isinstance(result, EoctlError):
            self._end([result.sentence], "act")
        elif result.plan is None:
            self._end(result.told, "look" if result.finding else "good")
        else:
            self._ready = result
            self._show(partial(_planned_lines, result, result.plan))
            self.said = self.ask(result.plan.word)

    def _acted(self, result: "Outcome | EoctlError") -> None:
        self.acting = False
        self.sent = True
        if isinstance(result, EoctlError):
            self._end([result.sentence], "act")
            return
        self.said = ", ".join(one.status for one in result.steps)
        self._show(partial(_outcome_lines, result))
        self.page.focus()

    def _end(self, texts: Sequence[str], role: str) -> None:
        self.said = " ".join(texts)

        def make(width: int) -> list[Line]:
            lines: list[Line] = [
                ((part, role),) for text in texts for part in wrapped(visible(text), width - 1, " ")
            ]
            return [*lines, (), ((" esc closes", "dim"),)]

        self._show(make)
        self.page.focus()

    def _show(self, make: Callable[[int], Sequence[Line]]) -> None:
        self.show(make, lambda width: ((f" {self._name}", "title"),))


def _planned_lines(ready: Ready, plan: "Plan", width: int) -> list[Line]:
    head: list[Line] = [
        ((part, "text"),) for text in ready.told for part in wrapped(visible(text), width - 1, " ")
    ]
    return [*head, *plan_lines(plan, width), (), ((" nothing was sent yet", "good"),)]


def _outcome_lines(outcome: "Outcome", width: int) -> list[Line]:
    lines: list[Line] = []
    for one in outcome.steps:
        role = ROLES.get(one.status, "look")
        lines.append(((f" step {one.number} {one.status}", role),))
        details = wrapped(visible(one.detail or ""), width - 1, "  ")
        lines += [((part, "text"),) for part in details]
    return [*lines, (), ((f" journal entry {outcome.entry}; esc closes", "dim"),)]


def plan_lines(plan: "Plan", width: int) -> list[Line]:
    """Return what a plan does, where, under which lock, until when; nothing is cut."""
    lines: list[Line] = [
        ((f" {plan.action.upper()} on {visible(plan.context)}", "act"),
         (f"  cluster {visible(plan.cluster_id)}", "dim")),
        (),
    ]  # fmt: skip
    for label, text in plan_facts(plan):
        for number, part in enumerate(wrapped(visible(text), width - 11)):
            lines.append(((f" {'' if number else label:<9}", "dim"), (part, "text")))
    return lines
