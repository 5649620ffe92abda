"""`status`, `txn hanging`, `txn history`: the judging commands over a whole cluster."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import beside, emit, table
from eoctl.cli.first_look import FirstLook
from eoctl.cli.limits import Limits
from eoctl.cli.options import AllContexts, Connection, Format, Output, Topics, argument, option
from eoctl.cli.runner import ask, show, show_all
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose import status_answer
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.verdict_rows import hanging_answer
from eoctl.operations.inspect import history_answer
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.render.columns.diagnose import HANGING, HISTORY, STATUS, WHY
from eoctl.render.sanitise import visible
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.diagnose.diagnosis import ORDER, Diagnosis
from recovery.errors import UsageError
from recovery.times import instant


def txn_hanging(
    connection: Connection,
    output: Output,
    topics: Topics,
    limits: Limits,
    all_: Annotated[bool, option("--all", "open and prepare too")] = False,
    plan: Annotated[
        Path | None, option("--plan FILE", "write one plan of all remedies that may be")
    ] = None,
    verdict: Annotated[list[str] | None, option("--verdict V", "only these")] = None,
    all_contexts: AllContexts = False,
) -> int:
    """Judge every open transaction of the cluster, and name its one safe remedy.

    Exit status 1: a finding; 3: something could not be judged.
    """
    scope = Scope(topics.selectors())
    verdicts = _verdicts(verdict)
    if plan is not None:
        connection.one()  # a plan is made on the cluster: refuses a bundle
    if plan is not None and (all_contexts or output.interval is not None):
        raise UsageError("a plan is made from one look at one cluster", where="--plan")

    async def judged(source: Source, context: Context) -> Answer:
        diagnosis = await source.diagnose(scope, limits.settings(context), pause=limits.interval)
        if plan is not None and isinstance(source, Live):
            await _write_plan(source.cluster, context, diagnosis, verdicts, limits.interval, plan)
        return hanging_answer(
            diagnosis, context.argv, show_all=all_ or bool(scope.selectors), verdicts=verdicts
        )

    return show_all(connection, output, HANGING, judged, all_contexts=all_contexts)


def _verdicts(names: list[str] | None) -> tuple[str, ...]:
    for name in names or ():
        if name not in ORDER:
            raise UsageError(
                f"no verdict {name!r}", where="--verdict", remedy=f"one of {', '.join(ORDER)}"
            )
    return tuple(names or ())


async def _write_plan(
    cluster: Cluster,
    context: Context,
    diagnosis: Diagnosis,
    verdicts: tuple[str, ...],
    interval: float,
    file: Path,
) -> None:
    from eoctl.operations.remedy import many_remedies
    from eoctl.render.plans import subject
    from eoctl.stores import plan_files

    many = await many_remedies.plan_many(
        cluster, context, diagnosis, verdicts or many_remedies.MANY_VERDICTS, pause=interval
    )
    for row in many.left_out:
        line = visible(f"left out: {subject(row)}: {row['reason']}", spaces=False)
        print(f"eoctl: {line}", file=sys.stderr)
    plan = many.plan
    if plan is None:
        print("eoctl: no plan is written: no remedy may be carried out", file=sys.stderr)
        return
    plan_files.write(plan, file)
    print(f"eoctl: {plan.summary}; to see it: eoctl txn apply {file}", file=sys.stderr)


def status(
    connection: Connection,
    output: Output,
    limits: Limits,
    all_contexts: AllContexts = False,
) -> int:
    """One screen: cluster, brokers, partitions held back, open transactions by verdict.

    Exit status 1: a finding; 3: something could not be judged.
    """

    several = all_contexts or "," in (connection.context or "")
    first = FirstLook(output, limits.interval, one_cluster=not several)

    async def judged(source: Source, context: Context) -> Answer:
        answer = await status_answer.status(
            source,
            context,
            limits.settings(context),
            pause=limits.interval,
            on_first_look=lambda seen: first.show(
                table(seen, STATUS, output) if first.active else ()
            ),
        )
        first.erase()
        return answer

    return show_all(connection, output, STATUS, judged, all_contexts=all_contexts)


def txn_history(
    connection: Connection,
    output: Output,
    ids: Annotated[list[str] | None, argument("[ID]...")] = None,
    pid: Annotated[list[int] | None, option("--pid, --producer-id N")] = None,
    transactional_id: Annotated[list[str] | None, option("--transactional-id ID")] = None,
    since: Annotated[str | None, option("--since TIME")] = None,
    until: Annotated[str | None, option("--until TIME")] = None,
    newest: Annotated[
        int | None,
        option("--newest N", "records of each id [1000; with --since or --until: all]", min=1),
    ] = None,
) -> int:
    """Show what `__transaction_state` recorded about a transactional id or a producer id.

    This includes producer ids long gone, as far as compaction left their records.
    """
    named = [*(ids or ()), *(transactional_id or ())]
    if not named and not pid:
        raise UsageError(
            "nothing is named", remedy="eoctl txn history ID, or eoctl txn history --pid N"
        )
    from eoctl.host.clock import now_ms

    now = now_ms()
    window = (
        None if since is None else instant(since, now, where="--since"),
        None if until is None else instant(until, now, where="--until"),
    )
    if newest is None and window == (None, None):
        newest = history_answer.NEWEST
    return show(
        connection,
        output,
        HISTORY,
        lambda c: history_answer.history(c, named, pid or (), window, newest),
    )


def runbook(
    connection: Connection,
    output: Format,
    limits: Limits,
    page: Annotated[
        str | None, argument("NAME", "a page of the documentation, such as readers-stuck")
    ] = None,
) -> int:
    """This cluster, now, as one checklist in Markdown: what is safe, whom to ask, what to leave.

    With a name it shows that page of the documentation, without a cluster. It changes nothing.
    Exit status as of `status`: 1 a finding; 3 something could not be judged.
    """
    if page is not None:
        return _runbook_page(page, output)
    from eoctl.operations.change.changes import journal_row
    from eoctl.operations.diagnose import runbook_answer
    from eoctl.render.runbook import runbook_lines
    from eoctl.stores.journal_files import Journal

    async def told(source: Source, context: Context) -> Answer:
        return await runbook_answer.runbook(
            source,
            context,
            limits.settings(context),
            pause=limits.interval,
            seconds=connection.seconds(),
        )

    answer, context = ask(connection, told)
    if output.output not in ("table", "wide"):
        emit(answer, WHY, output)
        return answer.exit_status
    content = Journal().find()
    since = answer.collected_at - 86_400_000
    entries = [e for e in content.entries if e.begun.at >= since]
    rows = [journal_row(entry, content) for entry in entries]
    mine = [row for row in rows if row.cluster_id == answer.cluster_id]
    for line in runbook_lines(answer, context.argv, mine):
        print(line)
    beside(answer, errors=False)
    return answer.exit_status


def _runbook_page(name: str, output: Format) -> int:
    """Show a page of the documentation; through a pager if a terminal is too small for it."""
    import pydoc

    from eoctl.render.runbook_pages import page, page_lines

    if output.output not in ("table", "wide"):
        raise UsageError("a page has no rows", where="-o", remedy="leave -o out")
    on_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size()
    lines = list(page_lines(page(name), size.columns if on_terminal else None))
    text = "\n".join(lines) + "\n"
    if on_terminal and len(lines) >= size.lines:
        pydoc.pager(text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
