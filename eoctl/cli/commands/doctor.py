"""`doctor`: what will hurt exactly-once on this cluster."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import beside, emit, utf8
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.cli.runner import ask
from eoctl.operations.doctor.doctor_answer import doctor as examined
from eoctl.operations.doctor.doctor_answer import refuse_patterns
from eoctl.render.columns.doctor import DOCTOR
from eoctl.render.doctor_words import doctor_lines, login_notes, names_notes
from recovery.doctor.versions import by_hand
from recovery.errors import UsageError
from recovery.values import replace


def doctor(
    connection: Connection,
    output: Format,
    names: Annotated[
        list[str] | None,
        argument("[TOPIC|GROUP|ID]...", "only what is about these; without names everything"),
    ] = None,
    broker_version: Annotated[
        str | None, option("--broker-version VERSION", "what the brokers run, such as 4.0.1")
    ] = None,
    app: Annotated[
        Path | None, option("--app FILE", "an application file: does it alone write its outputs?")
    ] = None,
) -> int:
    """Show what will hurt exactly-once here: settings, versions, habits. It changes nothing.

    Each finding has its evidence, harm, remedy and source. Exit status 1: a finding; 3: something
    could not be seen, and which right would show it.
    """
    version = None if broker_version is None else by_hand(broker_version)
    refuse_patterns(names or ())
    outputs = () if app is None else _exclusive(app)
    answer, context = ask(
        connection, lambda source, context: examined(source, context, names or (), version, outputs)
    )
    login = login_notes(answer.rows, context.properties)
    answer = replace(answer, notes=[*answer.notes, *names_notes(names or ()), *login])
    if output.output != "table" or output.columns is not None or output.sort_by is not None:
        emit(answer, DOCTOR, output)
        return answer.exit_status
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in doctor_lines(answer, width, ascii_only=not utf8()):
        print(line)
    sys.stdout.flush()
    beside(answer)
    print(DOCTOR.summary(answer), file=sys.stderr)
    return answer.exit_status


def _exclusive(path: Path) -> Sequence[str]:
    """Return the outputs that an application alone writes. Raises UsageError if there are none."""
    from eoctl.operations.restart.restart_request import read_app_file

    app = read_app_file(path).app
    if not app.exclusive or not app.outputs:
        text = "says exclusive = false" if app.outputs else "names no outputs"
        raise UsageError(text, where=str(path), remedy="leave out --app: any may write there")
    return app.outputs
