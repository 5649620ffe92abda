"""The page of each screen, the pane beside its list, and what both need from the feed.

Loaded with the first frame, not before the first paint.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recovery.inspect.cluster_rows import OffsetsShowRow
from tui.board.pictures import lag_picture
from tui.equal_commands import started_command
from tui.screens import pages, plan_and_job_pages, recover
from tui.screens.doctor import finding_page
from tui.screens.flink_checkpoint import checkpoint_page
from tui.screens.merge import merge_page
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    DOCTOR,
    FINDING,
    GROUPS,
    JOB,
    JOBS,
    MERGE,
    PARTITIONS,
    PLANS,
    RECOVER,
    TIMELINE,
    WHY,
    Location,
    View,
)
from tui.widgets.charts import picture_lines
from tui.widgets.lines import Line
from tui.widgets.strip import strip_page

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from tui.board.pictures import Drawing
    from tui.feed.frame import Frame
    from tui.screens.runs import Run
    from tui.widgets.tables import TableData, TableRow

RATE = next(i for i, c in enumerate(JOBS.columns) if c.key == "rate")
LAG_LINES = 8
Make = Callable[[int], Sequence[Line]]


def page(s: "Snapshot | None", location: Location, jobs: "TableData") -> Make:
    """Return the page of a place. jobs: the table of jobs, which knows how fast a job runs."""
    about = location.about
    if location.view is JOB:
        row = jobs.by_key.get(about.removeprefix("job "))
        rate = row.cells[RATE] if row and row.sort[RATE] is not None else None
        return lambda width: plan_and_job_pages.job_page(s, about, width, rate)
    make = {
        WHY.name: pages.why_page,
        TIMELINE.name: pages.timeline_page,
        CHANGE.name: plan_and_job_pages.change_page,
        MERGE.name: merge_page,
        CHECKPOINT.name: checkpoint_page,
        FINDING.name: finding_page,
    }[location.view.name]
    return lambda width: make(s, about, width)


def beside(
    frame: "Frame | None", view: View, row: "TableRow | None", runs: "Sequence[Run]"
) -> Make:
    """Return the pane beside the list, about the cursor's row. runs: started from Recover."""
    s = frame.snapshot if frame else None
    source = row.source if row else None
    if view is GROUPS:
        drawing = frame.board.drawing if frame else None
        return lambda width: lag_lines(drawing, source, width)
    if view in (PLANS, JOBS):
        return lambda width: plan_and_job_pages.beside(source, width)
    if view is RECOVER:
        command = started_command(row, runs, s.argv if s else ())
        words = row.cells[-1] if row and row.key.startswith("form ") else ""
        return lambda width: recover.beside(words, command, width)
    if view is PARTITIONS:
        about = row.key if row else None
        return lambda width: strip_page(s, about, width)
    return lambda width: pages.evidence_page(source, width)


def lag_lines(drawing: "Drawing | None", row: object, width: int) -> Sequence[Line]:
    """Return the lag of a row's group over the time that was seen."""
    if drawing is None or not isinstance(row, OffsetsShowRow):
        return [((" no row", "dim"),)]
    return picture_lines(lag_picture(drawing, row.group), width, LAG_LINES)


def wants(s: "Snapshot | None", location: Location, drawn: str | None) -> dict[str, object]:
    """Return the fields of Wants: what a location shows beyond what is always collected.

    drawn: the partition beside the list, whose log is drawn.
    """
    view, about = location.view, location.about
    return {
        "producers": view.name == "producers",
        "why": about if view is WHY else None,
        "history": about or None if view is TIMELINE else None,
        "strip": _partition_of_page(s, about) if view is WHY else drawn,
        "detail": about if view in (CHANGE, JOB) else None,
        "merge": about if view is MERGE else None,
        "checkpoint": about if view is CHECKPOINT else None,
        "doctor": about if view is DOCTOR else _doctor_about(s) if view is FINDING else None,
    }


def _doctor_about(s: "Snapshot | None") -> str:
    """Return what doctor was asked about: its finding's page asks nothing more."""
    return shlex.join(s.doctor.extra["named"]) if s is not None and s.doctor else ""


def _partition_of_page(s: "Snapshot | None", about: str) -> str | None:
    """Return the partition of a page of why, once it is known: its log is drawn."""
    if about.startswith("id "):
        return None  # an id has no log
    if about or s is None or s.why is None or s.why_about != "":
        return about or None
    partitions = [r.where for r in s.why.rows if r.topic is not None]  # type: ignore[attr-defined]
    return partitions[0] if partitions else None
