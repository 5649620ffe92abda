"""`lab twin`, `lab rehearse`: an incident's bundle as a local cluster, and a plan tried there."""

from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.options import Format, argument, option
from eoctl.cli.progress import Progress, note
from eoctl.lab.twin.rows import REHEARSAL, TWIN
from eoctl.operations import kinds  # noqa: F401 - the twin carries out what it is given
from eoctl.operations.dashboard import rehearsing, twins
from eoctl.render.sanitise import visible

File = Annotated[Path, argument("BUNDLE", "of `bundle create`")]


def twin(
    output: Format,
    bundle: File,
    name: Annotated[str, option("--name NAME", "of the lab")] = "twin",
) -> int:
    """Start a local Kafka that is the incident in BUNDLE, and judge it there as the bundle was.

    Topics, offsets, producer ids, epochs, the coordinators' records and the groups' commits are
    those of the bundle; times are moved to now, and nothing expires or is aborted by time. What
    the bundle does not hold is said on stderr. Exit status 1: a verdict on the twin differs.
    """
    with Progress() as progress:
        started = twins.start(bundle, name, progress)
    answer = twins.compared(started)
    emit(answer, TWIN, output)
    for sentence in answer.extra["twin_lacks"]:
        note(visible(sentence))
    servers = started.lab.bootstrap_servers
    end = f"eoctl lab down --name {name}"
    note(f"next: `eoctl status --bootstrap-server {servers}`; end it with `{end}`")
    return answer.exit_status


def rehearse(
    output: Format,
    plan: Annotated[Path, argument("PLAN", "of a remedy or a restart")],
    bundle: File,
    name: Annotated[str, option("--name NAME", "of the lab")] = "rehearsal",
) -> int:
    """Carry PLAN out on the twin of BUNDLE, and show verdicts or offsets before and after.

    PLAN is of `txn hanging --plan`, or of `restart plan` where it moves a group; the bundle of a
    restart's plan is made with `--for PLAN`. The cluster of the incident is not asked. The twin is
    a lab, which is taken down at the end. A context with `require_rehearsal = true` wants this of
    each plan that can be rehearsed. Exit status 1: it does not count as a rehearsal, since the
    twin differs or a step was not done.
    """
    chosen = rehearsing.read(plan, bundle)
    with Progress() as progress, rehearsing.twin_for(bundle, name, progress) as twin:
        rehearsed = rehearsing.rehearse(chosen, twin)
    emit(rehearsed.answer, REHEARSAL, output)
    for sentence in rehearsed.answer.extra["twin_lacks"]:
        note(visible(sentence))
    for step in rehearsed.outcome.steps:
        note(visible(f"{step.step.target}: {step.status}, {step.detail}"))
    return rehearsed.exit_status
