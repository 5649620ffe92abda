"""`lab drill`: an incident to practise on: its story, its owners' answers, its grade, its end."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from eoctl.cli.commands.lab.kafka import Name
from eoctl.cli.emit import emit
from eoctl.cli.options import Format, argument, option
from eoctl.cli.progress import Progress, note
from eoctl.host.clock import now_ms
from eoctl.lab import cluster
from eoctl.lab import lab_tables as columns
from eoctl.lab.drills import judge, running
from eoctl.lab.drills.catalogue import DRILLS, OWN
from eoctl.lab.drills.drill_state import DrillState
from eoctl.lab.lab_tables import DrillRow
from eoctl.operations.dashboard import twins
from eoctl.render.sanitise import visible
from eoctl.stores import bundle_files
from recovery.answers import Answer
from recovery.errors import UsageError

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

STORY_WIDTH = 80


def drill(
    output: Format,
    drill: Annotated[
        str | None, argument("[NAME|BUNDLE]", "of a drill, or your own incident [none: list them]")
    ] = None,
    name: Name = "default",
    seed: Annotated[int | None, option("--seed N", "of its names and numbers")] = None,
    ask: Annotated[str | None, option("--ask ID", "the owner of a transactional id")] = None,
    grade: Annotated[
        bool, option("--grade", "how you did; it reveals the answer: do it last")
    ] = False,
    end: Annotated[bool, option("--end", "clean up what it planted")] = False,
) -> int:
    """Plant an incident in a running lab, describe its symptoms, and grade what you made of it.

    With the BUNDLE of `bundle create` the drill is that incident, on a twin of its cluster, which
    is a lab of its own; what the bundle's verdicts say is the truth. Without a name it lists the
    drills. Exit status of --grade: 0 all right, 1 not, 3 something could not be read.
    """
    ways = sum((drill is not None, ask is not None, grade, end))
    if ways > 1:
        raise UsageError("give only one of NAME, --ask, --grade and --end")
    if seed is not None and drill is None:
        raise UsageError("--seed is of a drill that starts", remedy="eoctl lab drill mix --seed 7")
    if not ways:
        return _list(output, name)
    if drill is not None and bundle_files.is_bundle(Path(drill)):
        return _start_own(output, Path(drill), name, seed)
    if drill is not None:
        running.drill_named(drill)  # before a lab is looked for, which need not run
    lab = cluster.load(name)
    if drill is not None:
        return _start(output, lab, drill, seed)
    if ask is not None:
        row = running.ask(lab, ask)
        answer = Answer("lab-drill-ask", lab.record.cluster_id, now_ms(), [row])
        emit(answer, columns.ANSWER, output)
        return 0
    if end:
        cluster_id = lab.record.cluster_id  # a bundle's drill takes its lab down
        state = running.end(lab)
        rows = [_row(state.drill, None)]
        emit(Answer("lab-drill", cluster_id, now_ms(), rows), columns.DRILLS, output)
        return 0
    return _grade(output, lab)


def _row(name: str, state: DrillState | None) -> DrillRow:
    one = OWN if name == OWN.name else DRILLS[name]
    return DrillRow(
        drill=name,
        title=one.title,
        page=one.page,
        needs=one.needs,
        started_at=state.started_at if state else None,
        story=state.story if state else None,
    )


def _list(output: Format, lab_name: str) -> int:
    """List the drills; a lab need not run for that."""
    state = None
    cluster_id = None
    if lab_name in cluster.lab_names():
        lab = cluster.load(lab_name)
        state, cluster_id = DrillState.load(lab.folder), lab.record.cluster_id
    names = [*DRILLS, OWN.name]
    rows = [_row(each, state if state and state.drill == each else None) for each in names]
    emit(Answer("lab-drill", cluster_id, now_ms(), rows), columns.DRILLS, output)
    return 0


def _start(output: Format, lab: "Lab", name: str, seed: int | None) -> int:
    return _begun(output, lab, running.start(lab, name, seed))


def _start_own(output: Format, bundle: Path, name: str, seed: int | None) -> int:
    if seed is not None:
        raise UsageError("--seed is of a drill that is planted, not of a bundle's")
    with Progress() as progress:
        twin, state = twins.drill(bundle, name, progress)
    for sentence in twin.lacks:
        note(visible(sentence))
    return _begun(output, twin.lab, state)


def _begun(output: Format, lab: "Lab", state: DrillState) -> int:
    if output.output not in ("table", "wide"):
        rows = [_row(state.drill, state)]
        emit(Answer("lab-drill", lab.record.cluster_id, now_ms(), rows), columns.DRILLS, output)
        return 0
    print(textwrap.fill(state.story, STORY_WIDTH, break_on_hyphens=False), flush=True)
    where = "" if lab.name == "default" else f" --name {lab.name}"
    note(
        f"the clock runs. Ask an owner: `eoctl lab drill{where} --ask ID`; when you are done: "
        f"`eoctl lab drill{where} --grade`, then `--end`"
    )
    return 0


def _grade(output: Format, lab: "Lab") -> int:
    state, rows, errors = running.grade(lab)
    now = now_ms()
    asked = any(case.transactional_id in state.questions for case in state.cases)
    answer = Answer(
        "lab-drill-grade",
        lab.record.cluster_id,
        now,
        rows,
        errors,
        {
            "drill": state.drill,
            "seed": state.seed,
            "seconds": (now - state.started_at) / 1000,
            "points": sum(row.points for row in rows),
            "most": judge.MOST * len(state.cases),
            "well_done": judge.well_done(rows, asked=asked),
        },
    )
    emit(answer, columns.GRADE, output)
    if output.output in ("table", "wide"):
        for text in answer.extra["well_done"]:
            note(f"well done: {text}")
    solved = all(row.result == "right" for row in rows)
    return answer.exit_status or int(not solved)
