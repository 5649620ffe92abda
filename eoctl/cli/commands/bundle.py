"""`bundle create`, `bundle open`, `report`: an incident in one file."""

import sys
from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.cli.progress import ChangingLine
from eoctl.operations.dashboard import bundling, rehearsing
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.watch import BUNDLE
from eoctl.render.sanitise import visible
from recovery.errors import Exit, UsageError

CREATE_SECONDS = 600.0  # 10,000 partitions took 91 s
File = Annotated[Path, argument("FILE")]


def create(
    connection: Connection,
    output: Format,
    limits: Limits,
    file: File,
    history: Annotated[
        bool, option("--history", "the history of every transactional id, not only held ones")
    ] = False,
    with_records: Annotated[
        int,
        option(
            "--with-records N", "also N records of each held partition, with keys and values", min=0
        ),
    ] = 0,
    plan: Annotated[
        Path | None, option("--for PLAN", "also what a restart's PLAN stands on, to rehearse it")
    ] = None,
) -> int:
    """Write all that the read commands see into FILE, without secrets.

    `--with-records` takes the records at stake and those that wait along, from the first open
    transaction on, for `lab twin`: whoever has the file can read them. `--for` takes the batches
    that a plan of `restart plan` counts, without keys and values, and its group's metadata.
    Every read command takes `--from FILE` and then needs no cluster. Exit status 3: the file is
    written, but something could not be seen; or --timeout (10m) ended before everything was seen,
    and no file is written.
    """
    if file.exists():
        raise UsageError("exists already", where=str(file), remedy="choose another name")
    context = connection.one()
    rehearsed = None if plan is None else rehearsing.read_plan(plan)
    with ChangingLine() as line:
        collection = with_cluster(
            context,
            connection.seconds(CREATE_SECONDS),
            lambda cluster: bundling.collect(
                cluster,
                context,
                limits.settings(context),
                pause=limits.interval,
                history=history,
                with_records=with_records,
                plan=rehearsed,
                on_part=line.write_over if line.on_terminal else None,
            ),
        )
    answer = bundling.create(collection, file)
    emit(answer, BUNDLE, output)
    return answer.exit_status


def open_(output: Format, file: File) -> int:
    """Verify the checksum of FILE and say what is in it."""
    answer = bundling.opened(file)
    emit(answer, BUNDLE, output)
    return answer.exit_status


def report(
    what: Annotated[str, argument("WHAT", "a bundle, a journal entry's id, a state folder")],
    output: Annotated[Path | None, option("--output FILE", "a file that is not there yet")] = None,
) -> int:
    """Write an incident as one HTML page: timeline, logs, evidence, plans, before and after.

    The page fetches nothing and runs nothing; it holds the names that the bundle and the journal
    hold. No cluster is asked. Without --output it goes to stdout. Exit status 3: the page is
    written, but something could not be seen; it says what.
    """
    from eoctl.operations.dashboard.report import report as report_of
    from eoctl.render.report.page import page
    from eoctl.stores.textfile import write_whole

    if output is not None and output.exists():
        raise UsageError("exists already", where=str(output), remedy="choose another name")
    if output is None and sys.stdout.isatty():
        raise UsageError(
            "an HTML page cannot be shown on a terminal", where="report", remedy="add --output"
        )
    made = report_of(what)
    text = page(made)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text.encode(), mode=0o600)
        print(f"eoctl: {visible(str(output))} is written", file=sys.stderr)
    return Exit.INCOMPLETE if made.errors else Exit.OK
