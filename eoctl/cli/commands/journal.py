"""`journal list|show|resume|undo`: who changed what, and how an unfinished change is ended."""

import sys
from contextlib import suppress
from typing import Annotated

from eoctl.cli.dialog.acting import CommandChange, Execute, plan_lines
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.host.clock import now_ms
from eoctl.operations.change.changes import damage, entry_answer, journal_row, named_context
from eoctl.operations.change.undo import undo_plan
from eoctl.render.columns.change import EVENTS, JOURNAL
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from recovery.answers import Answer
from recovery.change.journal import JournalEntry
from recovery.change.plan import Plan
from recovery.errors import RefusedError, UsageError
from recovery.times import instant, rfc3339

EntryId = Annotated[str, argument("ID", "as `journal list` shows it")]


def list_(
    output: Format,
    since: Annotated[str | None, option("--since WHEN", "2h ago, or RFC 3339")] = None,
    until: Annotated[str | None, option("--until WHEN")] = None,
    unfinished: Annotated[bool, option("--unfinished", "only changes that have not ended")] = False,
) -> int:
    """List who changed what, when: the oldest first."""
    now = now_ms()
    first = instant(since, now, where="--since") if since else 0
    last = instant(until, now, where="--until") if until else now
    for word, read in (("since", since and first), ("until", until and last)):
        if read:
            print(f"{word} {rfc3339(int(read))}", file=sys.stderr)
    content = Journal().find()
    rows = [
        journal_row(entry, content) for entry in content.entries if first <= entry.begun.at <= last
    ]
    open_ = [row for row in rows if row.state in ("running", "unfinished")]
    answer = Answer(
        "journal-list",
        None,
        now,
        open_ if unfinished else rows,
        damage(content),
        extra={"unfinished": len(open_)},
    )
    emit(answer, JOURNAL, output)
    return answer.exit_status


def show(output: Format, entry: EntryId) -> int:
    """Show one change: its plan with the evidence, then event by event what was done and seen."""
    answer = entry_answer(entry)
    if output.output in ("table", "wide"):
        with suppress(UsageError):  # another version's plan: its events tell
            for line in plan_lines(Journal().get(entry).plan):
                print(line)
    emit(answer, EVENTS, output)
    return answer.exit_status


def context_of(connection: Connection, plan: Plan) -> Context:
    """Return the cluster named now, or else as the plan names it."""
    from eoctl.settings.context import Connect

    if connection.connect != Connect():
        return connection.one()
    return named_context(plan)


def resume(
    connection: Connection,
    acting_: Execute,
    output: Format,
    entry: EntryId,
    abandon: Annotated[
        bool, option("--abandon", "close the entry, send nothing, leave all as it is")
    ] = False,
) -> int:
    """Finish an unfinished change, or prove that nothing happened. --execute acts."""
    one = Journal().get(entry)
    if one.state != "unfinished":
        raise RefusedError(f"it is {one.state}: there is nothing to resume", where=entry)
    if abandon:
        return _abandon(one, acting_)
    change = CommandChange("journal-resume", one.plan, context_of(connection, one.plan), one.undoes)
    return change.run(acting_, output, connection.seconds())


def _abandon(entry: JournalEntry, execute: Execute) -> int:
    if not execute.execute:
        raise UsageError("--abandon closes the entry for good", remedy="add --execute")
    Journal().abandon(entry.id, "closed by hand; what was done stays as it is")
    print(f"{entry.id} is closed; nothing was sent", file=sys.stderr)
    return 0


def undo(connection: Connection, acting_: Execute, output: Format, entry: EntryId) -> int:
    """Put back what a change did, if everything is still as it left it. --execute acts."""
    one = Journal().get(entry)
    context = context_of(connection, one.plan)
    plan = undo_plan(one, context, connection.seconds())
    change = CommandChange("journal-undo", plan, context, undoes=one.id)
    return change.run(acting_, output, connection.seconds())
