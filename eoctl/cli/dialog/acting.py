"""Commands that change something share these options, the showing of a plan, and the outcome."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from eoctl.cli.dialog.confirm import ask
from eoctl.cli.emit import emit
from eoctl.cli.options import Format, Ranked, option
from eoctl.host.clock import now_ms
from eoctl.operations import kinds  # noqa: F401 - plans of every kind are carried out here
from eoctl.operations.change import acting
from eoctl.operations.change.acting import Door, Opened, Outcome, permit
from eoctl.render.columns.change import PLAN, STEPS
from eoctl.render.plans import plan_facts
from eoctl.render.sanitise import visible
from eoctl.render.shell import command
from eoctl.render.tables import render_table
from eoctl.render.words import hanging
from eoctl.settings.context import Context
from eoctl.stores.journal_files import redacted
from recovery.answers import Answer
from recovery.change.journal_rows import PlanRow, PlanStepRow
from recovery.change.plan import Plan
from recovery.errors import Exit, UsageError
from recovery.plurals import counted

PLAN_WIDTH = 80


@dataclass(frozen=True)
class Execute(Ranked):
    """Without --execute the plan is only shown. --dry-run says so for those who are used to it."""

    panel: ClassVar[str] = "Acting"
    help_rank: ClassVar[int] = 0
    execute: Annotated[bool, option("--execute", "carry the plan out")] = False
    yes: Annotated[bool, option("--yes", "without a question")] = False
    plan_sha256: Annotated[str | None, option("--plan-sha256 HEX", "only this plan")] = None
    although_it_writes: Annotated[
        bool,
        option(
            "--although-it-writes",
            "with --yes: also where an owner wrote between two looks",
        ),
    ] = False
    dry_run: Annotated[bool, option("--dry-run", "only show, as without --execute")] = field(
        default=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.dry_run and self.execute:
            raise UsageError("give only one of them", where="--dry-run, --execute")

    def door(self, context: Context) -> Door:
        return Door(context, ask, self.execute, self.yes, self.plan_sha256, self.although_it_writes)


@dataclass(frozen=True)
class CommandChange:
    """A plan on its way through one command. schema: the command's words joined by `-`.

    undoes: the journal entry that the plan puts back. words: of the command that carries it out,
    where that is not this one with --execute. opened, replaces: as of `acting.execute`.
    """

    schema: str
    plan: Plan
    context: Context
    undoes: str | None = None
    words: Sequence[str] = ()
    opened: Opened | None = None
    replaces: str | None = None

    def run(self, execution: Execute, output: Format, timeout: float | None) -> int:
        """Show the plan; with --execute ask, carry it out, show what became of each step."""
        return self.show(self.execute(execution, timeout), output)

    def execute(self, execution: Execute, timeout: float | None) -> Outcome | None:
        """Ask and carry it out, the plan on stderr; None without --execute: nothing is done."""
        if not execution.execute:
            return None
        door = execution.door(self.context)
        for line in plan_lines(self.plan):
            print(line, file=sys.stderr)
        permit(self.plan, door, self.undoes or self.replaces)
        return acting.execute(self.plan, door, timeout, self.undoes, self.opened, self.replaces)

    def row(self, outcome: Outcome | None) -> PlanRow:
        """Return the plan as scripts read it, and what became of it."""
        return plan_row(self.plan, outcome, self.words)

    def show(self, outcome: Outcome | None, output: Format) -> int:
        """Write the plan, or what became of it; the exit status."""
        self._write(outcome, output)
        return Exit.OK if outcome is None else outcome.exit_status

    def _write(self, outcome: Outcome | None, output: Format) -> None:
        row = self.row(outcome)
        if output.output not in ("table", "wide"):
            emit(Answer(self.schema, self.plan.cluster_id, now_ms(), [row]), PLAN, output)
            return
        if outcome is None:
            lines = [*plan_lines(self.plan), " to carry it out (nothing was sent yet):"]
            lines.append(f"   {row.command or 'the same command with --execute'}")
        else:
            cells = [STEPS.cells(step) for step in row.steps]
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            lines = render_table(
                cells,
                STEPS.columns,
                width=width,
                wide=output.output == "wide",
                headers=not output.no_headers,
            )
        for line in lines:
            print(line)
        if outcome is not None:
            print(_summary(outcome), file=sys.stderr)


def _summary(outcome: Outcome) -> str:
    done = sum(one.status in ("done", "already-done", "beyond-plan") for one in outcome.steps)
    word = "were done already" if outcome.already_done else "done"
    return f"{done} of {counted(len(outcome.steps), 'step')} {word}; journal entry {outcome.entry}"


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan for people, one fact after the other, in lines of 80 columns."""
    lines = [visible(f"{plan.action.upper()} on {plan.context} (cluster {plan.cluster_id})")]
    for label, text in plan_facts(plan):
        lines += hanging(f" {label:<8} ", visible(text, spaces=False), PLAN_WIDTH)
    return lines


def executing(words: Sequence[str]) -> list[str]:
    """Return this command with --execute before `--`, after which all words are arguments."""
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--execute", *words[at:]]


def plan_row(plan: Plan, outcome: Outcome | None, words: Sequence[str] = ()) -> PlanRow:
    """Return the plan as scripts read it, and what became of it. words: the command line."""
    became = {one.number: one for one in outcome.steps} if outcome else {}
    steps = [
        PlanStepRow.of(
            step,
            step=number,
            status=became[number].status if number in became else None,
            detail=became[number].detail if number in became else None,
            harms=list(step.harms),
        )
        for number, step in enumerate(plan.steps, 1)
    ]
    again = ["eoctl", *executing(redacted(words or sys.argv[1:]))]
    return PlanRow.of(
        plan,
        created=plan.created_at,
        expires=plan.expires_at,
        steps=steps,
        journal=outcome.entry if outcome else None,
        command=None if outcome else command(again),
    )
