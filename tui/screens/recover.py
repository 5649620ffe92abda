"""The Recover screen: forms and the runs started from them, each shown as its command.

A filled-in form starts its command as a process (tui.screens.runs); a command that changes
something runs twice: for its plan, and, once the plan's word was typed, with that plan's hash.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from eoctl.render.sanitise import visible
from eoctl.render.shell import command as shell_command
from tui.screens.forms import FORMS, Form, command_of
from tui.screens.runs import Run
from tui.screens.views import RECOVER
from tui.widgets.asking_page import Asking
from tui.widgets.lines import Line, Page, fit
from tui.widgets.shared_rows import Cell, table_row
from tui.widgets.tables import TableData, TableRow, table_data
from tui.widgets.text import wrapped

MARKS = {"running": "", "done": ""}
FORM_WIDTH = 104  # a command grows while it is typed, but the box must not move


def recover_table(runs: Sequence[Run], *, may_change: bool) -> TableData:
    """Return the table: the runs started here, newest first, then the forms."""
    rows = [_run_row(number, run) for number, run in enumerate(runs)]
    rows.reverse()
    for form in FORMS:
        if not form.plans or may_change:
            cells: list[Cell] = [(form.title, form.title), ("", None), (form.says, form.says)]
            rows.append(table_row(f"form {form.name}", "", cells, opens=("form", form.name)))
    return table_data(RECOVER.columns, rows, collected_at=None, empty="")


def beside(says: str, command: str, width: int) -> list[Line]:
    """Return what the form at the cursor does, uncut, and the command that it starts."""
    lines: list[Line] = []
    if says:
        lines = [((part, "text"),) for part in wrapped(says, width - 1, " ")]
    return [*lines, *(((part, "key"),) for part in wrapped(visible(command), width - 1, " "))]


def _run_row(number: int, run: Run) -> TableRow:
    says = visible(shell_command(run.argv) or " ".join(run.argv))
    cells: list[Cell] = [(word, word) for word in (run.title, run.state, says)]
    return table_row(f"run {number}", MARKS.get(run.state, "!"), cells, opens=("run", str(number)))


class FormScreen(ModalScreen[list[str] | None]):
    """The fields of a form and the command they make. Its result: the command, or None."""

    DEFAULT_CSS = """
    FormScreen { align: center middle; background: $background 60%; }
    FormScreen #form { background: $surface; border: round $primary; }
    FormScreen Horizontal { height: 1; }
    FormScreen Label { width: 14; }
    FormScreen Input { height: 1; border: none; padding: 0; background: $panel; width: 1fr; }
    FormScreen Page { height: 1fr; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False, priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, form: Form, connection: Sequence[str]) -> None:
        super().__init__()
        self.form = form
        self._connection = tuple(connection)
        self.inputs = [
            Input(field.value(), placeholder=field.says, select_on_focus=False, compact=True)
            for field in form.fields
        ]
        self.page = Page(name="command")

    def compose(self) -> ComposeResult:
        with Vertical(id="form"):
            for field, made in zip(self.form.fields, self.inputs, strict=True):
                with Horizontal():
                    yield Label(f"{'*' if field.required else ' '} {field.label}", markup=False)
                    yield made
            yield self.page

    def on_mount(self) -> None:
        self.inputs[0].focus()
        self.show_command()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.show_command()

    @property
    def argv(self) -> list[str]:
        """Return the command as it is now."""
        values = {
            field.label: made.value
            for field, made in zip(self.form.fields, self.inputs, strict=True)
        }
        return command_of(self.form, values, self._connection)

    @property
    def missing(self) -> list[str]:
        """Return the labels of required fields that are empty."""
        pairs = zip(self.form.fields, self.inputs, strict=True)
        return [f.label for f, made in pairs if f.required and not made.value.strip()]

    def show_command(self) -> None:
        """Show the equal command, and what enter does."""
        text = shell_command(self.argv)
        hint = "enter goes to the next field, on the last one it starts; esc leaves"
        if text is None:
            hint = "a field holds what no command line can say"
        elif self.missing:
            hint = f"still needed: {', '.join(self.missing)}"

        def make(width: int) -> Sequence[Line]:
            lines: list[Line] = [
                ((part, "key"),) for part in wrapped(visible(text or ""), width - 1)
            ]
            if self.form.plans:
                lines.append((("its plan is shown first; nothing is changed before", "dim"),))
            role = "look" if self.missing else "dim"
            return [*lines, (), *(((part, role),) for part in wrapped(hint, width - 1))]

        self.page.show(make, lambda width: ((self.form.title, "title"), (" starts", "dim")))
        self.on_resize()

    def on_resize(self) -> None:
        rows = len(self.inputs) + 1
        fit(self.query_one("#form"), self.page, rows=rows, widest=FORM_WIDTH)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        at = self.inputs.index(event.input)
        if at + 1 < len(self.inputs):
            self.inputs[at + 1].focus()
        elif not self.missing and shell_command(self.argv) is not None:
            self.dismiss(self.argv)


class RunScreen(Asking[list[str] | None]):
    """A command's output as it arrives; if it has a plan, the question too. esc only closes.

    Its result: the command that carries out the confirmed plan, or None.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False, priority=True),
        Binding("ctrl+x", "stop", show=False),
    ]

    def __init__(self, run: Run, *, asks: bool) -> None:
        super().__init__("run")
        self.watched = run
        self._asks = asks
        self._seen = -1
        self._plan: dict[str, Any] | None = None
        self._follows = True

    def on_mount(self) -> None:
        self.page.focus()
        self.look()
        self.set_interval(0.2, self.look)

    def look(self) -> None:
        """Draw the output that arrived since the last call."""
        run = self.watched
        if run.renewed == self._seen:
            return
        self._seen = run.renewed
        if self._asks and run.exit_status == 0 and self._plan is None:
            self._plan = plan_in("\n".join(run.out))
            if self._plan is not None:
                self.ask(self.word_wanted)
        plan = self._plan
        lines_of_run = plan_told(plan) if plan is not None else list(run.lines)

        def make(width: int) -> Sequence[Line]:
            command = visible(shell_command(run.argv) or "")
            lines: list[Line] = [((part, "key"),) for part in wrapped(command, width - 1)]
            lines.append(())
            for text in lines_of_run:
                lines += [((part, "text"),) for part in wrapped(visible(text), width - 1)]
            if run.exit_status is not None:
                role = "good" if run.exit_status == 0 else "look"
                lines += [(), ((f"{run.state}; esc closes", role),)]
            return lines

        self.show(
            make,
            lambda width: (
                (f" {run.title}", "title"),
                (f"  {run.state}; esc leaves it, ctrl+x stops it", "dim")
                if run.exit_status is None
                else (f"  {run.state}", "dim"),
            ),
        )
        if self._follows and plan is None:
            self.page.to(self.page.length)

    @property
    def word_wanted(self) -> str:
        """Return the word that the operator types (see Plan.word)."""
        assert self._plan is not None
        return f"{self._plan['action']}-{self._plan['sha256'][:4]}"

    def action_step(self, step: int) -> None:
        self._follows = False
        super().action_step(step)

    def action_stop(self) -> None:
        self.watched.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._plan is None:
            return
        if event.value.strip() != self.word_wanted:
            if self.ask_again(self.word_wanted) is None:
                self.dismiss(None)
            return
        self.dismiss(executing(self.watched.argv, self._plan["sha256"]))


def executing(argv: Sequence[str], sha256: str) -> list[str]:
    """Return the command that carries out exactly this plan; after `--` all words are arguments."""
    at = argv.index("--") if "--" in argv else len(argv)
    return [*argv[:at], "--execute", "--yes", "--plan-sha256", sha256, *argv[at:]]


def plan_in(text: str) -> dict[str, Any] | None:
    """Return the plan's row in a command's JSON; None if there was nothing to do."""
    try:
        rows = json.loads(text)["rows"]
    except (ValueError, KeyError, TypeError):
        return None
    return rows[0] if rows and isinstance(rows[0], dict) and rows[0].get("sha256") else None


def plan_told(plan: dict[str, Any]) -> list[str]:
    """Return the lines that show a plan's row."""
    steps = [f"step {step['step']}   {step['does']}" for step in plan["steps"]]
    return [
        f"{plan['action'].upper()} on {plan['context']} (cluster {plan['cluster_id']})",
        f"what     {plan['summary']}",
        *steps,
        f"lock     {plan['lock']}",
        f"expires  {plan['expires']}",
        f"sha256   {plan['sha256']}",
        "nothing was sent yet",
    ]
