"""The lines of each screen beyond its table, and what it therefore asks of the feed.

Loaded with the first frame, not before the first paint.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui import actions
from tui.screens import kept_pages, pages, recover
from tui.screens.checkpoint import checkpoint_page
from tui.screens.merge import merge_page
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    JOB,
    JOBS,
    MERGE,
    PARTITIONS,
    PLANS,
    RECOVER,
    TIMELINE,
    WHY,
)
from tui.widgets.lines import Line
from tui.widgets.strip import strip_page

if TYPE_CHECKING:
    from tui.shell import Shell

RATE = next(i for i, c in enumerate(JOBS.columns) if c.key == "rate")
Make = Callable[[int], Sequence[Line]]


def page(app: "Shell") -> Make:
    """The page of this screen, from the newest frame."""
    snapshot = app.frame.snapshot if app.frame else None
    about = app.place.about
    if app.place.view is JOB:
        row = app.states[JOBS.name].data.by_key.get(about.removeprefix("job "))
        rate = row.cells[RATE] if row and row.sort[RATE] is not None else None
        return lambda width: kept_pages.job_page(snapshot, about, width, rate)
    make = {
        WHY.name: pages.why_page,
        TIMELINE.name: pages.timeline_page,
        CHANGE.name: kept_pages.change_page,
        MERGE.name: merge_page,
        CHECKPOINT.name: checkpoint_page,
    }[app.place.view.name]
    return lambda width: make(snapshot, about, width)


def beside(app: "Shell") -> Make:
    """Return the pane beside the list, about the cursor's row."""
    row = app.table.current
    source = row.source if row else None
    if app.place.view in (PLANS, JOBS):
        return lambda width: kept_pages.beside(source, width)
    if app.place.view is RECOVER:
        command = actions.equal_commands(app)[0]
        words = row.cells[-1] if row and row.key.startswith("form ") else ""
        return lambda width: recover.beside(words, command, width)
    if app.place.view is PARTITIONS:
        snapshot, about = app.frame.snapshot if app.frame else None, row.key if row else None
        return lambda width: strip_page(snapshot, about, width)
    return lambda width: pages.evidence_page(source, width)


def wants(app: "Shell") -> dict[str, object]:
    """Fields of Wants: what this screen shows beyond what is always collected."""
    view, about = app.place.view, app.place.about
    return {
        "producers": view.name == "producers",
        "why": about if view is WHY else None,
        "history": about or None if view is TIMELINE else None,
        "strip": _strip(app),
        "detail": about if view in (CHANGE, JOB) else None,
        "merge": about if view is MERGE else None,
        "checkpoint": about if view is CHECKPOINT else None,
    }


def _strip(app: "Shell") -> str | None:
    """The partition whose log is drawn: of the page of why, or where the cursor rests."""
    view, about = app.place.view, app.place.about
    snapshot = app.frame.snapshot if app.frame else None
    if view is WHY:
        if about.startswith("id "):
            return None  # an id has no log
        if about or snapshot is None or snapshot.why is None or snapshot.why_about != "":
            return about or None
        places = [r.where for r in snapshot.why.rows if r.topic is not None]  # type: ignore[attr-defined]
        return places[0] if places else None
    if view is PARTITIONS and app.side.display:
        return app.table.state.cursor
    return None
