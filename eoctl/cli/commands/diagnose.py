"""`status`, `txn hanging`, `txn history`: the judging commands over a whole cluster."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from eoctl.cli.commands.inspect import age_cell, with_gaps
from eoctl.cli.emit import View
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Output, Topics
from eoctl.cli.runner import show, show_all
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose import status as status_operation
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.verdict_rows import hanging_answer
from eoctl.operations.inspect import history as history_operation
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.render.tables import Column
from eoctl.render.words import count, counted, spoken_age
from eoctl.settings.context import Context
from recovery.diagnose.diagnosis import ORDER, Diagnosis, mark
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.diagnosis import HistoryRow, StatusRow, TxnHangingRow
from recovery.times import instant


def _hanging_cells(row: TxnHangingRow) -> Mapping[str, object]:
    verdict = "marker-lost mixed" if row.mixed else row.verdict
    return {
        "mark": mark(row.verdict),
        "verdict": verdict,
        "partition": None if row.topic is None else f"{row.topic}:{row.partition}",
        "age": age_cell(row.age_seconds, row.age_clock),
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "start_offset": row.start_offset,
        "owner": row.transactional_id or "none",
        "state": row.state,
        "rule": row.rule,
        "remedy": row.remedy.action,
        "command": row.remedy.command,
    }


def _hanging_summary(answer: Answer) -> str:
    verdicts = answer.extra["verdicts"]
    assert isinstance(verdicts, dict)
    quiet = sum(verdicts.get(name, 0) for name in ("open", "prepare"))
    rows = [r for r in answer.rows if isinstance(r, TxnHangingRow)]
    found = ", ".join(f"{count(n)} {name}" for name, n in verdicts.items() if n) or "none open"
    text = f"{counted(sum(verdicts.values()), 'open transaction')} judged: {found}"
    without = sum(r.topic is None for r in rows)
    if without:
        text += f"; {count(without)} of them hold no partition"
    if quiet and not any(r.verdict in ("open", "prepare") for r in rows):
        text += " (open and prepare are hidden: --all)"
    if answer.extra["pause_seconds"] is not None:
        text += f"; looked twice, {answer.extra['pause_seconds']:g} s apart"
    return with_gaps(text, answer)


HANGING = View(
    columns=(
        Column("mark", "", "mark"),
        Column("verdict", "VERDICT", "text", min_width=11),
        Column("partition", "TOPIC:PARTITION", "partition", min_width=16),
        Column("age", "AGE", "age", min_width=4),
        Column("producer_id", "PID", "number", min_width=6),
        Column("producer_epoch", "EPOCH", "number", wide_only=True),
        Column("start_offset", "START OFFSET", "number"),
        Column("owner", "OWNER", "name", min_width=6),
        Column("state", "STATE", "text", wide_only=True),
        Column("rule", "RULE", "text", wide_only=True),
        Column("remedy", "REMEDY", "text"),
        Column("command", "COMMAND", "command", wide_only=True),
    ),
    cells=_hanging_cells,
    name_keys=("topic", "partition", "producer_id"),
    fields=tuple(TxnHangingRow.model_fields),
    summary=_hanging_summary,
)


def txn_hanging(
    connection: Connection,
    output: Output,
    topics: Topics,
    limits: Limits,
    all_: Annotated[bool, typer.Option("--all", help="open and prepare too")] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="write one plan of all remedies that may be"),
    ] = None,
    verdict: Annotated[
        list[str] | None, typer.Option("--verdict", metavar="V", help="only these")
    ] = None,
    all_contexts: Annotated[bool, typer.Option("--all-contexts")] = False,
) -> int:
    """A verdict on every open transaction of the cluster, with its one safe remedy.

    Exit status 1: a finding; 3: something could not be judged.
    """
    scope = Scope(topics.selectors())
    verdicts = _verdicts(verdict)
    if plan is not None:
        connection.one()  # a plan is made on the cluster: refuses a bundle
    if plan is not None and (all_contexts or output.interval is not None):
        raise UsageError("a plan is of one look at one cluster", where="--plan")

    async def judged(source: Source, context: Context) -> Answer:
        found = await source.diagnose(
            scope, limits.settings(context), sample_interval=limits.interval
        )
        if plan is not None and isinstance(source, Live):
            await _write_plan(source.cluster, context, found, verdicts, limits.interval, plan)
        return hanging_answer(
            found, context.argv, show_all=all_ or bool(scope.selectors), verdicts=verdicts
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
    found: Diagnosis,
    verdicts: tuple[str, ...],
    interval: float,
    file: Path,
) -> None:
    from eoctl.operations.remedy import many as remedy_many
    from eoctl.render.plans import subject
    from eoctl.render.sanitise import visible
    from eoctl.stores import plan_files

    many = await remedy_many.plan_many(
        cluster, context, found, verdicts or remedy_many.MANY_VERDICTS, sample_interval=interval
    )
    for row in many.left_out:
        said = visible(f"left out: {subject(row)}: {row['reason']}", spaces=False)
        print(f"eoctl: {said}", file=sys.stderr)
    made = many.plan
    if made is None:
        print("eoctl: no plan is written: no remedy may be carried out", file=sys.stderr)
        return
    plan_files.write(made, file)
    print(f"eoctl: {made.summary}; to see it: eoctl txn apply {file}", file=sys.stderr)


def _status_cells(row: StatusRow) -> Mapping[str, object]:
    return {
        "mark": mark(row.verdict),
        "verdict": row.verdict,
        "transactions": row.transactions,
        "partitions": row.partitions,
        "oldest": age_cell(row.oldest_seconds, row.age_clock),
        "groups": row.groups,
        "worst": row.worst,
        "next": row.next,
    }


def _status_heading(answer: Answer) -> str:
    extra = answer.extra
    words = [
        str(extra["context"]),
        f"brokers {extra['brokers_up']}/{extra['brokers_known']}",
        f"{StatusTime(answer.collected_at)!s}",
    ]
    words += [
        w for w, on in (("READ-ONLY", extra["read_only"]), ("PROTECTED", extra["protected"])) if on
    ]
    return "  ".join(words)


class StatusTime:
    """A moment as the first line shows it: the time of day, UTC."""

    def __init__(self, epoch_ms: int) -> None:
        self.epoch_ms = epoch_ms

    def __str__(self) -> str:
        seconds = self.epoch_ms // 1000 % 86_400
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"


def _status_summary(answer: Answer) -> str:
    extra = answer.extra
    verdicts = extra["verdicts"]
    assert isinstance(verdicts, dict)
    quiet = sum(verdicts.get(name, 0) for name in ("open", "prepare"))
    held, scanned, opened = (
        int(str(extra[key])) for key in ("held_back", "scanned", "open_transactions")
    )
    if not answer.rows:
        text = (
            f"nothing held back; {counted(opened, 'open transaction')}, all within limits"
            if not held
            else f"{counted(held, 'partition')} held by {counted(quiet, 'open transaction')}, "
            "all within limits"
        )
        return with_gaps(text, answer)
    text = f"{count(held)} of {counted(scanned, 'partition')} held back"
    oldest = [
        (r.oldest_seconds, r.age_clock == "producer")
        for r in answer.rows
        if isinstance(r, StatusRow) and r.oldest_seconds is not None
    ]
    if oldest:
        seconds, by_producer = max(oldest)
        text += f"; oldest {spoken_age(seconds, producer_clock=by_producer)}"
    if quiet:
        text += f"; {counted(quiet, 'other transaction')} within limits"
    return with_gaps(text, answer)


STATUS = View(
    columns=(
        Column("mark", "", "mark"),
        Column("verdict", "VERDICT", "text", min_width=11),
        Column("transactions", "TXNS", "number"),
        Column("partitions", "PARTITIONS", "number"),
        Column("oldest", "OLDEST", "age", min_width=6),
        Column("groups", "GROUPS", "number"),
        Column("worst", "WORST", "partition", min_width=14),
        Column("next", "NEXT", "text"),
    ),
    cells=_status_cells,
    name_keys=("verdict",),
    fields=tuple(StatusRow.model_fields),
    summary=_status_summary,
    heading=_status_heading,
)


def status(
    connection: Connection,
    output: Output,
    limits: Limits,
    all_contexts: Annotated[bool, typer.Option("--all-contexts")] = False,
) -> int:
    """One screen: cluster, brokers, partitions held back, open transactions by verdict.

    Exit status 1: a finding; 3: something could not be judged.
    """

    async def judged(source: Source, context: Context) -> Answer:
        return await status_operation.status(
            source, context, limits.settings(context), sample_interval=limits.interval
        )

    return show_all(connection, output, STATUS, judged, all_contexts=all_contexts)


def _history_cells(row: HistoryRow) -> Mapping[str, object]:
    times = row.model_dump(mode="json", include={"timestamp"})
    return {
        "transactional_id": row.transactional_id,
        "timestamp": times["timestamp"],
        "state": "(forgotten)" if row.tombstone else row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "epoch_bump": row.epoch_bump,
        "partitions": ",".join(row.partitions) or None,
        "offset": row.offset,
        "coordinator_partition": row.coordinator_partition,
    }


HISTORY = View(
    columns=(
        Column("timestamp", "TIME", "number"),
        Column("transactional_id", "TRANSACTIONAL ID", "name"),
        Column("state", "STATE", "text"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number"),
        Column("epoch_bump", "BUMP", "text"),
        Column("partitions", "PARTITIONS", "name"),
        Column("coordinator_partition", "LOG", "number", wide_only=True),
        Column("offset", "OFFSET", "number", wide_only=True),
    ),
    cells=_history_cells,
    name_keys=("transactional_id", "offset"),
    fields=tuple(HistoryRow.model_fields),
    summary=lambda answer: with_gaps(
        f"{counted(len(answer.rows), 'record')} of "
        f"{counted(int(str(answer.extra['transactional_ids'])), 'transactional id')}"
        + ("" if answer.extra["whole"] else "; older ones were compacted away"),
        answer,
    ),
)


def txn_history(
    connection: Connection,
    output: Output,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    pid: Annotated[list[int] | None, typer.Option("--pid", "--producer-id", metavar="N")] = None,
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME")] = None,
) -> int:
    """What `__transaction_state` recorded of a transactional id or a producer id.

    Also of producer ids long gone, as far as compaction left them.
    """
    named = [*(ids or ()), *(transactional_id or ())]
    if not named and not pid:
        raise UsageError(
            "nothing is named", remedy="eoctl txn history ID, or eoctl txn history --pid N"
        )
    from eoctl.operations.session.session import now_ms

    now = now_ms()
    window = (
        None if since is None else instant(since, now, where="--since"),
        None if until is None else instant(until, now, where="--until"),
    )
    return show(
        connection,
        output,
        HISTORY,
        lambda c: history_operation.history(c, named, pid or (), window),
    )
