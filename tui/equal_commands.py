"""The commands that print what a screen shows. None of them changes anything."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoctl.render.shell import command as shell_command
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    DOCTOR,
    FINDING,
    GROUP,
    GROUPS,
    JOBS,
    PLANS,
    RECOVER,
    WHY,
    Location,
)

if TYPE_CHECKING:
    from recovery.answers import Answer
    from tui.screens.runs import Run
    from tui.widgets.tables import TableRow


def equal_commands(
    location: Location,
    answer: "Answer | None",
    row: "TableRow | None",
    runs: "Sequence[Run]",
    connection: Sequence[str],
) -> list[str]:
    """Return the commands of this screen and, for the cursor's row, of its page and remedy.

    answer: what a page shows. row: of a table. connection: the options after `eoctl`.
    """
    start = ["eoctl", *connection]
    view, about = location.view, location.about
    argv = [*start, *view.argv]
    if view is CHANGE and about.startswith("plan "):
        plan = answer.extra.get("plan") if answer else None
        argv = _change_argv(about, plan.get("kind") if isinstance(plan, dict) else None)
    elif about and view is WHY:
        argv = [*start, *_why_argv(about)]
    elif view is CHECKPOINT:
        argv.append(f"--checkpoint={about}")
    elif about and view.kind == "page":
        argv += _arguments([about.removeprefix("job ")])
    if view in (DOCTOR, FINDING):
        source = row.source if row else answer.rows[0] if answer else None
        named = shlex.split(about) if view is DOCTOR else []
        return _doctor_commands([*start, "doctor"], named, source)
    if view is RECOVER:
        return [started_command(row, runs, connection)]
    if view in (PLANS, JOBS):  # these belong to the host, whatever the cluster
        argv = ["eoctl", *view.argv]
    commands = [shell_command(argv)]
    if row is not None:
        if view is GROUPS and (group := row.key.partition("\0")[0]):
            commands.append(shell_command([*start, *GROUP.argv, *_arguments([group])]))
        if row.opens is not None and row.opens[0] == "why":
            commands.append(shell_command([*start, *_why_argv(row.opens[1])]))
        elif row.opens is not None and row.opens[0] == "job":
            commands.append(shell_command(["eoctl", "jobs", "show", row.key]))
        elif row.opens is not None and row.opens[0] == "change":
            kind = getattr(row.source, "kind", None)
            commands.append(shell_command(_change_argv(row.opens[1], kind)))
        elif row.opens is not None and view is not GROUPS:
            commands.append(shell_command([*start, "txn", "history", "--", row.opens[1]]))
        commands.append(row.command)
    elif view is WHY and answer is not None:
        for held_row in answer.rows:
            held = getattr(held_row, "held_by", None)
            commands.append(held.remedy.command if held else None)
    return [c for c in commands if c is not None]


def _doctor_commands(start: Sequence[str], named: Sequence[str], source: object) -> list[str]:
    """Return the commands of the Doctor screen and of one finding. named: the screen's names."""
    from tui.screens.doctor import named_by

    commands = [shell_command([*start, *_arguments(names)]) for names in (named, named_by(source))]
    return list(dict.fromkeys(c for c in commands if c is not None))


def started_command(
    row: "TableRow | None", runs: "Sequence[Run]", connection: Sequence[str]
) -> str:
    """Return what the form of a row starts, with gaps for its fields, or the started command."""
    from tui.screens.forms import BY_NAME as FORMS
    from tui.screens.forms import command_of

    argv: Sequence[str] = ["eoctl", *connection, "--help"]
    if row is not None and row.opens is not None:
        kind, name = row.opens
        argv = runs[int(name)].argv if kind == "run" else command_of(FORMS[name], {}, connection)
    return shell_command(argv) or ""


def _why_argv(about: str) -> list[str]:
    """Return the words after `eoctl` for a page of why: of a partition, or of `id NAME`."""
    if about.startswith("id "):
        return ["why", f"--transactional-id={about[3:]}"]
    return ["why", *_arguments([about])]


def _arguments(names: Sequence[str]) -> list[str]:
    """Return names as arguments that are not taken for options."""
    return [*(["--"] if any(name.startswith("-") for name in names) else []), *names]


def _change_argv(about: str, kind: object) -> list[str]:
    """Return the command that shows a plan file of this kind, or an entry."""
    word, _, name = about.partition(" ")
    if word == "plan":
        return ["eoctl", "restart" if kind == "restart" else "txn", "apply", name]
    return ["eoctl", "journal", "show", about]
