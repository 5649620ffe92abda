"""The page of each screen, the story beside its list, and what both need from the feed.

Loaded with the first frame, not before the first paint.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.inspect.cluster_rows import OffsetsShowRow
from tui.board.pictures import lag_picture
from tui.equal_commands import equal_commands, started_command
from tui.screens import pages, plan_and_job_pages, recover
from tui.screens.doctor import finding_page
from tui.screens.flink_checkpoint import checkpoint_page
from tui.screens.groups import group_page
from tui.screens.merge import merge_page
from tui.screens.plan_and_job_lists import rate_of
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    DOCTOR,
    FINDING,
    GROUP,
    JOB,
    MERGE,
    RECOVER,
    TIMELINE,
    WHY,
    Location,
    View,
)
from tui.story import Known, gone_lines, log_of, page_of, recorded_why, story_lines
from tui.widgets.charts import picture_lines
from tui.widgets.lines import Line
from tui.widgets.text import command_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from tui.board.pictures import Drawing
    from tui.feed.frame import Frame
    from tui.screens.runs import Run
    from tui.widgets.table_state import TableState
    from tui.widgets.tables import TableData, TableRow

LAG_LINES = 8
Make = Callable[[int], Sequence[Line]]


def page(s: "Snapshot | None", location: Location, jobs: "TableData") -> Make:
    """Return the page of a place. jobs: the table of jobs, which knows how fast a job runs."""
    about = location.about
    if location.view is JOB:
        rate = rate_of(jobs.by_key, about.removeprefix("job "))
        return lambda width: plan_and_job_pages.job_page(s, about, width, rate)
    make = {
        WHY.name: pages.why_page,
        TIMELINE.name: pages.timeline_page,
        CHANGE.name: plan_and_job_pages.change_page,
        MERGE.name: merge_page,
        CHECKPOINT.name: checkpoint_page,
        FINDING.name: finding_page,
        GROUP.name: group_page,
    }[location.view.name]
    return lambda width: make(s, about, width)


NOT_RECORDED = "the recording does not have this page; the cluster may still answer:"
NO_WHY = (
    "the recording has no page of why about this finding at this moment; above is what its "
    "snapshot knows. Such a page is recorded while the cursor rests on the finding, and without a "
    "display for the worst one. The cluster may still answer:"
)


def not_recorded(location: Location, frame: "Frame") -> Make:
    """Return the page that a recording does not have: which command gives it now.

    Of the worst partition it begins with what the snapshot knows.
    """
    asks_worst = location == Location(WHY)
    row = worst(frame) if asks_worst else None
    says = NOT_RECORDED if row is None else NO_WHY
    place = as_named(location, frame)
    [command, *_] = equal_commands(place, None, None, (), frame.snapshot.argv)

    def make(width: int) -> Sequence[Line]:
        return [
            *(_worst_lines(frame, width) if asks_worst else ()),
            *(((part, "unknown"),) for part in wrapped(says, width - 1, " ")),
            *(((part, "key"),) for part in command_lines(command, width)),
        ]

    return make


def as_named(location: Location, frame: "Frame") -> Location:
    """Return a place with the moment's worst finding by name: by now another may be the worst."""
    row = worst(frame) if location == Location(WHY) else None
    return location if row is None or row.judged is None else Location(WHY, row.judged.where)


def recorded_worst(frame: "Frame") -> Location | None:
    """Return which page of a recording is of the worst finding; None if it has none of it.

    The newest page may be of a finding before, also one that was asked for as the worst.
    """
    row, s = worst(frame), frame.snapshot
    if row is None or s.why_about is None or recorded_why(s, row) is None:
        return None
    return Location(WHY, s.why_about)


def worst(frame: "Frame") -> "TableRow | None":
    """Return the overview's row of the worst judged finding; None if there is none."""
    rows = frame.tables["overview"].rows
    return next((row for row in rows if row.mark and row.judged is not None), None)


def _worst_lines(frame: "Frame", width: int) -> Sequence[Line]:
    """Return the story of the worst finding from the snapshot alone; a sentence if all is well."""
    row = worst(frame)
    if row is None or row.judged is None:
        return [line for line in frame.says[:1] if line[0][1] == "good"]
    title: Line = ((f" {visible(row.judged.where)}", "title"),)
    return [title, *story_lines(_known(frame), frame.tables["overview"], row, width), ()]


def story(frame: "Frame | None", view: View, state: "TableState", runs: "Sequence[Run]") -> Make:
    """Return the story beside the list, of the cursor's row. runs: started from Recover."""
    row = state.row(state.cursor) if state.cursor is not None else None
    if view is RECOVER:
        command = started_command(row, runs, frame.snapshot.argv if frame else ())
        words = row.cells[-1] if row and row.key.startswith("form ") else ""
        return lambda width: recover.beside(words, command, width)
    if frame is None or row is None:
        return lambda width: ()
    if row.key in state.gone:
        return lambda width: gone_lines(state.data, row, width)
    known = _known(frame)
    drawing, source = frame.board.drawing, row.source
    return lambda width: [
        *story_lines(known, state.data, row, width),
        *lag_lines(drawing, source, width),
    ]


def _known(frame: "Frame") -> Known:
    tables = frame.tables
    return Known(frame.snapshot, tables["partitions"].by_key, frame.groups, tables["jobs"].by_key)


def lag_lines(drawing: "Drawing", row: object, width: int) -> Sequence[Line]:
    """Return the lag of a row's group over the time that was seen; nothing of other rows."""
    if not isinstance(row, OffsetsShowRow):
        return ()
    picture = lag_picture(drawing, row.group)
    title: Line = ((f" {picture.title}, all partitions", "title"),)
    return [(), title, *picture_lines(picture, width, LAG_LINES)]


def wants(s: "Snapshot | None", location: Location, row: "TableRow | None") -> dict[str, object]:
    """Return the fields of Wants: what a location shows beyond what is always collected.

    row: of a list, on which the cursor has rested, so that its page is asked for.
    """
    view, about = location.view, location.about
    return {
        "producers": view.name == "producers",
        "why": about if view is WHY else page_of(row),
        "history": about or None if view is TIMELINE else None,
        "strip": _partition_of_page(s, about) if view is WHY else log_of(row),
        "detail": about if view in (CHANGE, JOB) else None,
        "merge": about if view is MERGE else None,
        "checkpoint": about if view is CHECKPOINT else None,
        "commits": about if view is GROUP else None,
        "growth": {"counts": "producers-summary", "prefixes": "txn-list-summary"}.get(view.name),
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
