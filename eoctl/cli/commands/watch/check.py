"""`check`: for cron, Prometheus's textfile collector and Nagios."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import emit, error_line
from eoctl.cli.limits import Limits
from eoctl.cli.options import AllContexts, Connection, Format, option
from eoctl.cli.runner import of_bundle, run_each
from eoctl.host.clock import now_ms
from eoctl.operations.diagnose.live import Live
from eoctl.operations.doctor.doctor_check import Doctor
from eoctl.operations.inspect.source import Source
from eoctl.operations.session.session import with_cluster
from eoctl.operations.watch import check_answer
from eoctl.operations.watch.check_answer import Checked
from eoctl.render.columns.watch import CHECK, amount
from eoctl.render.watch_words import exposition
from eoctl.settings.context import Context, config_for, state_dir
from eoctl.stores.locks.running import only_one
from eoctl.stores.textfile import write_whole
from recovery.answers import Answer, worst
from recovery.doctor.versions import by_hand
from recovery.errors import BusyError, EoctlError, Exit, UnreachableError, UsageError
from recovery.plurals import counted
from recovery.row import ErrorRow
from recovery.watch.check_rows import FALLING, CheckRow
from recovery.watch.metrics import unseen_samples

NAGIOS = {Exit.OK: (0, "OK"), Exit.FINDING: (2, "CRITICAL")}
Result = Checked | EoctlError


def check(
    connection: Connection,
    output: Format,
    limits: Limits,
    textfile: Annotated[
        Path | None, option("--textfile FILE", "write Prometheus metrics there")
    ] = None,
    nagios: Annotated[
        bool, option("--nagios", "one line with perfdata; exit status 0, 2 or 3")
    ] = False,
    doctor: Annotated[bool, option("--doctor", "the rules of `eoctl doctor` too")] = False,
    broker_version: Annotated[
        str | None, option("--broker-version VERSION", "with --doctor: what the brokers run")
    ] = None,
    all_contexts: AllContexts = False,
) -> int:
    """Check the rules of the config file's [check], for cron.

    Exit status 1: a finding; 3: incomplete, and no finding; 75: another check of this cluster runs.
    """
    try:
        named, results = _run(connection, limits, all_contexts, _doctor(doctor, broker_version))
        if textfile is not None:
            _write_metrics(textfile, named, results)
    except EoctlError as error:
        if not nagios:
            raise
        print(f"EOCTL UNKNOWN - {_plain(error.sentence)}")
        return 3
    status = _worst(results)
    if nagios:
        number, word = NAGIOS.get(status, (3, "UNKNOWN"))
        print(f"EOCTL {word} - {_nagios(named, results)}")
        return number
    for context, result in zip(named, results, strict=True):
        _show(context, result, output, several=len(named) > 1 or all_contexts)
    return status


def _doctor(wanted: bool, broker_version: str | None) -> Doctor | None:
    """Return what `--doctor` asks for; None without it. Raises UsageError."""
    if broker_version is None:
        return Doctor() if wanted else None
    if not wanted:
        raise UsageError("counts only for doctor", where="--broker-version", remedy="add --doctor")
    return Doctor(by_hand(broker_version))


def _run(
    connection: Connection, limits: Limits, all_contexts: bool, doctor: Doctor | None
) -> tuple[Sequence[Context], Sequence[Result]]:
    thresholds = check_answer.thresholds(config_for(connection.connect).check)

    async def looked(source: Source, context: Context) -> Checked:
        settings, interval = limits.settings(context), limits.interval
        return await check_answer.check(
            source, context, thresholds, settings, pause=interval, doctor=doctor
        )

    if (path := connection.bundle()) is not None:
        checked, context = of_bundle(path, looked)
        return [context], [checked]
    state_dir()  # locks are kept there: said before anything is asked
    named = connection.several(all_contexts)

    def run(context: Context) -> Checked:
        # before connecting, so that a second run ends at once beside one that hangs
        servers = context.properties.get("bootstrap.servers", "")
        with only_one("check", ",".join(sorted(s.strip() for s in servers.split(",")))):
            return with_cluster(
                context,
                connection.seconds(),
                lambda cluster: check_answer.alone(cluster, looked(Live(cluster), context)),
            )

    results = run_each(named, run)
    for result in results:
        if isinstance(result, BusyError | UsageError):
            raise result  # whoever runs already writes the metrics
    return named, results


def _worst(results: Sequence[Result]) -> Exit:
    """Return the exit status of the worst result: a finding beats an incomplete answer here."""
    statuses = [
        r.exit_status if isinstance(r, EoctlError) else r.answer.exit_status for r in results
    ]
    status = worst(statuses)
    return Exit.FINDING if status is Exit.INCOMPLETE and Exit.FINDING in statuses else status


def _write_metrics(path: Path, named: Sequence[Context], results: Sequence[Result]) -> None:
    samples = [
        sample
        for context, result in zip(named, results, strict=True)
        for sample in (
            result.samples
            if isinstance(result, Checked)
            else unseen_samples(
                context.title, now_ms(), up=not isinstance(result, UnreachableError)
            )
        )
    ]
    write_whole(path, exposition(samples).encode())


def _show(context: Context, result: Result, output: Format, *, several: bool) -> None:
    where = f"{context.title}: " if several else ""
    if isinstance(result, EoctlError):
        print(f"eoctl: {where}{result.sentence}", file=sys.stderr)
        return
    if several and output.output in ("table", "wide"):
        print(f"CONTEXT {context.title}")
    emit(result.answer, CHECK, output, prefix={"context": context.title} if several else None)
    if output.output in ("table", "wide"):
        for note in _notes(result.answer):
            print(f"note: {error_line(note)}", file=sys.stderr)


def _notes(answer: Answer) -> list[ErrorRow]:
    notes = answer.extra["notes"]
    return [ErrorRow(**note) for note in notes]


def _nagios(named: Sequence[Context], results: Sequence[Result]) -> str:
    """Return the text after the state, then `|` and the perfdata of all rules."""
    words: list[str] = []
    data: list[str] = []
    rules = 0
    for context, result in zip(named, results, strict=True):
        where = f"{context.title} " if len(named) > 1 else ""
        if isinstance(result, EoctlError):
            words.append(where + result.sentence)
            continue
        for row in result.answer.rows:
            assert isinstance(row, CheckRow)
            rules += 1
            if row.ok is False:
                words.append(f"{where}{row.rule} {amount(row.observed)}: {row.detail}")
            if row.observed is not None:
                data.append(_perfdata(where, row))
        if result.answer.errors:
            gaps = counted(len(result.answer.errors), "thing")
            words.append(f"{where}{gaps} could not be seen")
    text = "; ".join(words) or f"{counted(rules, 'rule')}, no finding"
    return _plain(text) + (" | " + " ".join(data) if data else "")


def _perfdata(where: str, row: CheckRow) -> str:
    """'label'=value[s];warning;critical, where a range names what is no alarm."""
    label = _plain(where + row.rule).replace("=", "_").replace("'", "''")
    falling = row.rule in FALLING
    limit = row.threshold
    if row.unit != "seconds":  # an alarm is below or above the limit, a finding begins at it
        limit += 1 if falling else -1
    unit = "s" if row.unit == "seconds" else ""
    return f"'{label}'={row.observed:.10g}{unit};;{limit:.10g}{':' if falling else ''}"


def _plain(text: str) -> str:
    """Return one line without the bar that begins perfdata."""
    from eoctl.render.sanitise import visible

    return visible(text, spaces=False).replace("|", "/")
