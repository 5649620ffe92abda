"""`restart plan|show|apply|verify|undo`: where an application starts again, and a way back."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

from eoctl.cli.commands.journal import context_of
from eoctl.cli.commands.restart_target import AdHocTarget
from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.undo import undo_plan
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart import applying
from eoctl.operations.restart.restart_plan import KIND, decision_of
from eoctl.operations.restart.restart_request import read_app_file
from eoctl.operations.restart.restart_verify import verify as look_again
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.restart import PLAN, VERIFY, lines
from eoctl.render.shell import command
from eoctl.stores import plan_files
from recovery.answers import Answer
from recovery.change.journal import JournalEntry
from recovery.change.plan import Plan
from recovery.errors import EoctlError, Exit, RefusedError, UnverifiedError, UsageError
from recovery.restart.decision import PendingError
from recovery.restart.plan_output import env_json, env_lines, export_csv, restart_plan_row
from recovery.sizes import byte_rate
from recovery.times import duration, rfc3339

PLANNING_SECONDS = 300.0
STABLE_SECONDS = 30.0  # until the markers of a fence are everywhere
ACTING_SECONDS = 300.0

PlanFile = Annotated[Path, argument("PLAN", "of `restart plan --out PLAN`")]
Env = Annotated[bool, option("--env", "only variables for a wrapper script, NAME=NUMBER a line")]
EnvJson = Annotated[bool, option("--env-json", "the same as one line of JSON")]
Export = Annotated[
    bool, option("--export", "only topic,partition,offset, as kafka-consumer-groups")
]
Pause = Annotated[
    str | None,
    option("--pause D", "between two looks at ends, store and group [plan: 1s, verify: 5s]"),
]


def plan(
    connection: Connection,
    output: Format,
    execute: Execute,
    target: AdHocTarget,
    file: Annotated[Path | None, argument("[APP.toml]", "see docs/restart.md")] = None,
    out: Annotated[Path | None, option("--out PLAN", "write the plan to this file")] = None,
    env: Env = False,
    env_as_json: EnvJson = False,
    export: Export = False,
    fence: Annotated[
        bool, option("--fence", "first fence ids that hold commits of the group, with --execute")
    ] = False,
    pause: Pause = None,
    max_rate: Annotated[
        str | None, option("--max-rate BYTES/S", "read no faster from each broker")
    ] = None,
    no_crc: Annotated[bool, option("--no-crc", "do not check checksums")] = False,
) -> int:
    """Show where an application may start again, exactly once; changes nothing without --fence.

    From an application file, or without one a group's move: --group G and one target.
    """
    _one_form(env, env_as_json, export)
    if (file is None) == (target.group is None):
        raise UsageError(
            "name an application file, or a group and a target", remedy="eoctl restart plan --help"
        )
    if file is not None:
        target.refuse_any()
    if execute.execute and not fence:
        raise UsageError(
            "a plan changes nothing; --execute is for --fence",
            where="--execute",
            remedy="eoctl restart apply PLAN --execute",
        )
    context, seconds = connection.one(), connection.seconds(PLANNING_SECONDS)
    reading = Reading(
        not no_crc, None if max_rate is None else byte_rate(max_rate, where="--max-rate"), None
    )

    async def planned(cluster: Cluster) -> Plan:
        request = read_app_file(file) if file is not None else await target.moves(cluster, reading)
        return await applying.plan(
            cluster, context, request, pause=_seconds(pause, 1.0), reading=reading
        )

    try:
        restart_plan = with_cluster(context, seconds, planned)
    except PendingError as pending:
        if not fence or not pending.owners:
            raise
        fenced = _fence(connection, output, execute, pending)
        restart_plan = _once_stable(lambda: with_cluster(context, seconds, planned), fenced)
    if out is not None:
        plan_files.write(restart_plan, out)
    if not _short(restart_plan, env, env_as_json, export):
        _show("restart-plan", restart_plan, output, out)
    return Exit.OK


def _fence(
    connection: Connection, output: Format, execute: Execute, pending: PendingError
) -> EoctlError | None:
    """Fence each id that is proven to hold commits of the group; why one was refused.

    As `txn fence` does, with the producer id and epoch that were judged, and also within the
    limits: the group has no members, so its application is stopped.
    What that shows goes to stderr: stdout is the plan's. Raises PendingError without --execute.
    """
    from eoctl.cli.commands.remedy import fence_stopped
    from eoctl.cli.limits import Limits

    refused: EoctlError | None = None
    with redirect_stdout(sys.stderr):
        for owner in pending.owners:
            name = owner.transactional_id
            try:
                status = fence_stopped(connection, output, execute, Limits(), owner)
            except RefusedError as error:
                refused = error  # it may have ended by itself: the group tells
            else:
                if status != Exit.OK:
                    refused = UnverifiedError("the fence could not be verified", where=name)
    if not execute.execute:
        raise pending
    return refused


def _once_stable(make: Callable[[], Plan], refused: EoctlError | None) -> Plan:
    """Return the plan, as soon as no commit of the group is pending any more."""
    end = time.monotonic() + STABLE_SECONDS
    while True:
        try:
            return make()
        except PendingError:
            if refused is not None:
                raise refused from None
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


def show(
    output: Format,
    file: PlanFile,
    env: Env = False,
    env_as_json: EnvJson = False,
    export: Export = False,
) -> int:
    """Show a plan as made, and whether it was applied or undone from here; asks no broker."""
    _one_form(env, env_as_json, export)
    restart_plan = _read(file)
    if not _short(restart_plan, env, env_as_json, export):
        _show("restart-show", restart_plan, output, file, applying.became(restart_plan))
    return Exit.OK


def apply(connection: Connection, output: Format, execute: Execute, file: PlanFile) -> int:
    """Write the planned positions; everything is checked again. Without --execute only looks."""
    restart_plan = _read(file)
    context, seconds = context_of(connection, restart_plan), connection.seconds(ACTING_SECONDS)
    if not execute.execute:
        applying.check(restart_plan, context, seconds)
    elif (begun := applying.going_on_with(restart_plan)) is not None:
        print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
        try:
            return CommandChange("restart-apply", begun.plan, context).run(execute, output, seconds)
        except RefusedError:
            if not applying.is_abandoned(begun):
                raise
    return CommandChange("restart-apply", restart_plan, context).run(execute, output, seconds)


def undo(connection: Connection, output: Format, execute: Execute, file: PlanFile) -> int:
    """Put back what `apply` wrote: offset, metadata, leader epoch, absence. --execute acts."""
    restart_plan = _read(file)
    context, seconds = context_of(connection, restart_plan), connection.seconds(ACTING_SECONDS)
    entry = applying.applied(restart_plan)
    begun = applying.begun_undo(entry)
    back = begun.plan if begun is not None else undo_plan(entry, context, seconds)
    change = CommandChange("restart-undo", back, context, undoes=entry.id)
    return change.run(execute, output, seconds)


def verify(connection: Connection, output: Format, file: PlanFile, pause: Pause = None) -> int:
    """Check again after a pause for a zombie's commit over the plan, or a write after its end."""
    restart_plan = _read(file)
    wait = _seconds(pause, 5.0)
    seconds = connection.seconds(ACTING_SECONDS)
    context = context_of(connection, restart_plan)
    answer = with_cluster(context, seconds, lambda c: look_again(c, restart_plan, pause=wait))
    emit(answer, VERIFY, output)
    return answer.exit_status


def _read(file: Path) -> Plan:
    restart_plan = plan_files.read(file)
    if restart_plan.kind != KIND:
        raise UsageError(
            f"this is a plan of kind {restart_plan.kind}",
            where=str(file),
            remedy="give one of `restart plan --out`",
        )
    return restart_plan


def _seconds(text: str | None, default: float) -> float:
    if text is None:
        return default
    seconds = duration(text, where="--pause")
    if seconds <= 0:
        raise UsageError("must be above zero", where="--pause", remedy="write 1s")
    return seconds


def _one_form(*forms: bool) -> None:
    if sum(forms) > 1:
        raise UsageError("give one of --env, --env-json, --export")


def _short(restart_plan: Plan, env: bool, env_as_json: bool, export: bool) -> bool:
    """Print what a script asked for; False if it asked for nothing."""
    decision = decision_of(restart_plan)
    if decision.sources and (env or env_as_json or export):
        raise UsageError(
            "a source connector's offsets are not offsets of topics: its plan has no such form",
            where="--env, --env-json, --export",
            remedy="read `sources` in -o json",
        )
    if env:
        for line in env_lines(decision):
            print(line)
    elif env_as_json:
        print(env_json(decision))
    elif export:
        rows = [(i.topic_partition, i.restart_offset) for i in decision.inputs]
        print(export_csv(rows), end="")
    return env or env_as_json or export


def _show(
    schema: str,
    restart_plan: Plan,
    output: Format,
    file: Path | None,
    became: applying.Became | None = None,
) -> None:
    """Print a plan. became: of a plan that is not just made, what the journal says of it."""
    row = restart_plan_row(decision_of(restart_plan))
    extra: dict[str, object] = {
        "plan_sha256": restart_plan.sha256,
        "expires": rfc3339(restart_plan.expires_at),
        "file": None if file is None else str(file),
    }
    if became is not None:
        extra |= {"applied": _entry(became.applied), "undone": _entry(became.undone)}
    answer = Answer(schema, restart_plan.cluster_id, now_ms(), [row], extra=extra)
    if output.output not in ("table", "wide"):
        emit(answer, PLAN, output)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    wide, headers = output.output == "wide", not output.no_headers
    for line in (
        *lines(row, width=width, wide=wide, headers=headers),
        *_closing(restart_plan, file, became),
    ):
        print(line)


def _entry(entry: JournalEntry | None) -> dict[str, object] | None:
    """Return a journal entry for scripts. ended_at: null while it is unfinished."""
    if entry is None:
        return None
    return {
        "entry": entry.id,
        "state": entry.state,
        "begun_at": rfc3339(entry.begun.at),
        "ended_at": rfc3339(entry.ended_at),
    }


_ENDED = {
    "failed": "refused by the cluster, nothing was changed",
    "abandoned": "given up",
}


def _fate(word: str, entry: JournalEntry) -> str:
    """`applied      by journal entry ID, ended 2026-...`: what became of an entry, and when."""
    if entry.state == "unfinished":
        way = command(["eoctl", "journal", "resume", entry.id])
        return f" {word:<12} begun by journal entry {entry.id} and not finished: {way}"
    how = _ENDED.get(entry.state)
    if how is not None:
        word, how = f"not {word}", f": {how}"
    return f" {word:<12} by journal entry {entry.id}, {rfc3339(entry.ended_at)}{how or ''}"


def _closing(
    restart_plan: Plan, file: Path | None, became: applying.Became | None
) -> Iterator[str]:
    for step in restart_plan.steps:
        yield f" step         {step.does}"
    yield f" lock         {restart_plan.lock}"
    yield f" expires      {rfc3339(restart_plan.expires_at)}"
    yield f" sha256       {restart_plan.sha256}"
    if became is not None and became.applied is not None:
        yield _fate("applied", became.applied)
        if became.undone is not None:
            yield _fate("undone", became.undone)
    elif file is None:
        yield " nothing is kept: write the plan to a file with --out PLAN to apply it"
    else:
        yield " to carry it out (nothing was sent yet):"
        yield "   " + (command(["eoctl", "restart", "apply", str(file), "--execute"]) or "")
