"""A change from its plan to its verified result, through the same doors as the command line.

The plan is made anew from the cluster, shown whole, and nothing is sent before its word was typed;
what became of each step is read back from the cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from recovery.times import rfc3339
from tui.lines import Line, Page
from tui.text import wrapped

if TYPE_CHECKING:
    from eoctl.config import Context
    from eoctl.operations.acting import Outcome
    from recovery.plan import Plan

ROLES = {"done": "good", "already-done": "good", "refused": "look", "unverified": "act"}


@dataclass(frozen=True)
class Ready:
    """A plan and where it is carried out, or (plan None) sentences instead of one.

    undoes: the journal entry that the plan puts back.
    """

    plan: "Plan | None"
    told: Sequence[str] = ()
    context: "Context | None" = None
    undoes: str | None = None


def carry_out(ready: Ready, typed: str) -> "Outcome":
    """Carry the plan out if `typed` is its word. Raises EoctlError. Takes seconds."""
    from eoctl.operations.acting import Door, execute, permit

    assert ready.plan is not None
    assert ready.context is not None
    door = Door(
        ready.context,
        lambda question, word: typed.strip() == word,
        execute=True,
        argv=("eoctl", *ready.context.argv, "tui"),
    )
    permit(ready.plan, door, ready.undoes)
    return execute(ready.plan, door, 60.0, ready.undoes)


class Change(ModalScreen[bool]):
    """Plan, typed word, result. Its result: was anything sent? make: runs in a thread."""

    DEFAULT_CSS = """
    Change { align: center middle; background: $background 60%; }
    Change Vertical { width: 90%; max-width: 110; height: 80%; padding: 1 2;
                      background: $surface; border: round $primary; }
    Change Page { height: 1fr; }
    Change Input { height: 1; border: none; padding: 0; background: $panel; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("pagedown", "step(5)", show=False),
        Binding("pageup", "step(-5)", show=False),
    ]

    def __init__(self, title: str, make: Callable[[], Ready], saying: str) -> None:
        super().__init__()
        self._name = title
        self._make = make
        self._ready: Ready | None = None
        self.sent = False
        self.acting = False
        self.said = saying
        self.page = Page(name="plan")
        self.word = Input(id="word", select_on_focus=False, compact=True)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self.page
            yield self.word

    def on_mount(self) -> None:
        self._show([((f" {self.said}", "dim"),)])
        self.page.focus()
        self.run_worker(self._planning, thread=True)

    def action_step(self, step: int) -> None:
        self.page.move(step)

    def action_leave(self) -> None:
        """Close; not while something is being sent: its result must be seen."""
        if not self.acting:
            self.dismiss(self.sent)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        plan = self._ready.plan if self._ready else None
        if plan is not None and not self.acting and not self.sent:
            self.acting = True
            self.word.display = False
            self._show([*plan_lines(plan), (), ((" sending", "look"),)])
            self.run_worker(partial(self._acting, event.value), thread=True)

    # -- in a thread -------------------------------------------------------------------------

    def _planning(self) -> None:
        found: Ready | EoctlError
        try:
            found = self._make()
        except EoctlError as error:
            found = error
        self.app.call_from_thread(self._planned, found)

    def _acting(self, typed: str) -> None:
        found: Outcome | EoctlError
        try:
            assert self._ready is not None
            found = carry_out(self._ready, typed)
        except EoctlError as error:
            found = error
        self.app.call_from_thread(self._acted, found)

    # -- in the app --------------------------------------------------------------------------

    def _planned(self, found: Ready | EoctlError) -> None:
        if isinstance(found, EoctlError):
            self._end([found.sentence], "act")
        elif found.plan is None:
            self._end(found.told, "good")
        else:
            self._ready = found
            told = [((visible(f" {text}"), "text"),) for text in found.told]
            self._show([*told, *plan_lines(found.plan), (), ((" nothing was sent yet", "good"),)])
            self.said = f"type {found.plan.word} to carry it out, esc to leave it"
            self.word.placeholder = self.said
            self.word.display = True
            self.word.focus()

    def _acted(self, found: "Outcome | EoctlError") -> None:
        self.acting = False
        self.sent = True
        if isinstance(found, EoctlError):
            self._end([found.sentence], "act")
            return
        lines: list[Line] = []
        for one in found.steps:
            role = ROLES.get(one.status, "look")
            lines.append(((f" step {one.number} {one.status}", role),))
            lines += [((part, "text"),) for part in wrapped(visible(one.detail or ""), 90, "  ")]
        lines += [(), ((f" journal entry {found.entry}; esc closes", "dim"),)]
        self.said = ", ".join(one.status for one in found.steps)
        self._show(lines)
        self.page.focus()

    def _end(self, texts: Sequence[str], role: str) -> None:
        self.said = " ".join(texts)
        lines: list[Line] = [
            ((part, role),) for text in texts for part in wrapped(visible(text), 90, " ")
        ]
        self._show([*lines, (), ((" esc closes", "dim"),)])
        self.page.focus()

    def _show(self, lines: Sequence[Line]) -> None:
        made: Callable[[int], Sequence[Line]] = lambda width: lines  # noqa: E731
        self.page.show(made, lambda width: ((f" {self._name}", "title"),))


def plan_lines(plan: "Plan") -> list[Line]:
    """What it does, where, under which lock, until when."""
    lines: list[Line] = [
        ((f" {plan.action.upper()} on {visible(plan.context)}", "act"),
         (f"  cluster {visible(plan.cluster_id)}", "dim")),
        (),
    ]  # fmt: skip
    pairs = [("what", plan.summary)]
    pairs += [(f"step {n}", step.does) for n, step in enumerate(plan.steps, 1)]
    pairs += [("lock", plan.lock), ("expires", rfc3339(plan.expires_at) or "-")]
    pairs += [("sha256", plan.sha256)]
    for label, text in pairs:
        for number, part in enumerate(wrapped(visible(text), 84)):
            lines.append(((f" {'' if number else label:<9}", "dim"), (part, "text")))
    return lines
