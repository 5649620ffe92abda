"""`x`: a remedy from its plan to its verified result, through the same doors as the command line.

Planning looks at the cluster anew, so nothing is decided on what the screen showed. Nothing is sent
before the word of the plan was typed; what became of each step is read back from the cluster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from recovery.rows_diagnosis import TxnHangingRow
from recovery.times import rfc3339
from tui.lines import Line, Page
from tui.pages import wrapped

if TYPE_CHECKING:
    from eoctl.operations.acting import Outcome
    from eoctl.operations.remedy import Planned, Wish
    from recovery.plan import Plan
    from tui.feed import LiveFeed

ACTIONS = ("abort", "fence", "resolve")
ROLES = {"done": "good", "already-done": "good", "refused": "look", "unverified": "act"}


def wish_of(row: TxnHangingRow) -> "Wish":
    """What its remedy asks for; the same as the command that the row names."""
    from eoctl.operations.remedy import Wish

    action = row.remedy.action
    assert action in ("abort", "fence", "resolve")
    if action == "fence":
        argv = row.remedy.argv or []
        return Wish(
            "fence",
            transactional_id=argv[-1],
            producer_id=int(argv[argv.index("--pid") + 1]),
            producer_epoch=int(argv[argv.index("--epoch") + 1]),
        )
    return Wish(
        action,
        partition=f"{row.topic}:{row.partition}",
        producer_id=row.producer_id,
        start_offset=row.start_offset,
        outcome=row.proven_outcome if action == "resolve" else None,
    )


def make_plan(feed: "LiveFeed", rows: Sequence[TxnHangingRow], cluster_id: str | None) -> "Planned":
    """One remedy's plan, or one of many for marked rows. Raises EoctlError. Takes seconds."""
    from eoctl.operations import remedy, remedy_many
    from eoctl.operations.diagnose import diagnose
    from eoctl.operations.inspect import Scope
    from eoctl.operations.session import with_cluster
    from recovery.errors import RefusedError
    from recovery.selectors import parse_selector

    async def use(cluster: Any) -> "Planned":
        if cluster.cluster_id != cluster_id:
            raise RefusedError(f"cluster {cluster.cluster_id} answers, not {cluster_id}")
        if len(rows) == 1:
            return await remedy.plan(
                cluster,
                feed.context,
                wish_of(rows[0]),
                feed.settings,
                sample_interval=feed.sample_interval,
            )
        names = sorted({f"{r.topic}:{r.partition}" for r in rows})
        found = await diagnose(
            cluster,
            Scope(tuple(parse_selector(name) for name in names)),
            feed.settings,
            sample_interval=feed.sample_interval,
        )
        many = await remedy_many.plan_many(
            cluster,
            feed.context,
            found,
            {r.verdict for r in rows},
            sample_interval=feed.sample_interval,
        )
        return remedy.Planned(many, None if many else "none of these may be carried out now")

    return with_cluster(feed.context, 30.0, use)


def carry_out(feed: "LiveFeed", plan: "Plan", typed: str) -> "Outcome":
    """Carry the plan out if `typed` is its word. Raises EoctlError. Takes seconds."""
    from eoctl.operations.acting import Door, execute, permit

    door = Door(
        feed.context,
        lambda question, word: typed.strip() == word,
        execute=True,
        argv=("eoctl", *feed.context.argv, "tui"),
    )
    permit(plan, door)
    return execute(plan, door, 60.0)


class Remedy(ModalScreen[bool]):
    """Plan, typed word, result. Its result: was anything sent?"""

    DEFAULT_CSS = """
    Remedy { align: center middle; background: $background 60%; }
    Remedy Vertical { width: 90%; max-width: 110; height: 80%; padding: 1 2;
                      background: $surface; border: round $primary; }
    Remedy Page { height: 1fr; }
    Remedy Input { height: 1; border: none; padding: 0; background: $panel; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("pagedown", "step(5)", show=False),
        Binding("pageup", "step(-5)", show=False),
    ]

    def __init__(
        self, feed: "LiveFeed", rows: Sequence[TxnHangingRow], cluster_id: str | None
    ) -> None:
        super().__init__()
        self._feed = feed
        self._rows = rows
        self._cluster_id = cluster_id
        self._plan: Plan | None = None
        self.sent = False
        self.acting = False
        self.said = "planning: two looks at the cluster, some seconds apart"
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
        if self._plan is not None and not self.acting and not self.sent:
            self.acting = True
            self.word.display = False
            self._show([*self._plan_lines(self._plan), (), ((" sending", "look"),)])
            self.run_worker(partial(self._acting, event.value), thread=True)

    # -- in a thread -------------------------------------------------------------------------

    def _planning(self) -> None:
        found: Planned | EoctlError
        try:
            found = make_plan(self._feed, self._rows, self._cluster_id)
        except EoctlError as error:
            found = error
        self.app.call_from_thread(self._planned, found)

    def _acting(self, typed: str) -> None:
        found: Outcome | EoctlError
        try:
            assert self._plan is not None
            found = carry_out(self._feed, self._plan, typed)
        except EoctlError as error:
            found = error
        self.app.call_from_thread(self._acted, found)

    # -- in the app --------------------------------------------------------------------------

    def _planned(self, found: "Planned | EoctlError") -> None:
        if isinstance(found, EoctlError):
            self._end(found.sentence, "act")
        elif found.plan is None:
            self._end(found.done or "there is nothing to do", "good")
        else:
            self._plan = found.plan
            self._show(self._plan_lines(found.plan))
            self.said = f"type {found.plan.word} to carry it out, esc to leave it"
            self.word.placeholder = self.said
            self.word.display = True
            self.word.focus()

    def _plan_lines(self, plan: "Plan") -> list[Line]:
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
        return [*lines, (), ((" nothing was sent yet", "good"),)]

    def _acted(self, found: "Outcome | EoctlError") -> None:
        self.acting = False
        self.sent = True
        if isinstance(found, EoctlError):
            self._end(found.sentence, "act")
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

    def _end(self, text: str, role: str) -> None:
        self.said = text
        lines: list[Line] = [((part, role),) for part in wrapped(visible(text), 90, " ")]
        self._show([*lines, (), ((" esc closes", "dim"),)])
        self.page.focus()

    def _show(self, lines: Sequence[Line]) -> None:
        made: Callable[[int], Sequence[Line]] = lambda width: lines  # noqa: E731
        self.page.show(made, lambda width: ((" Remedy", "title"),))
