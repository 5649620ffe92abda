"""What each panel of a screen has to show: by that the panels get their places."""

from collections.abc import Sequence

from tui.screens.views import (
    JOBS,
    OVERVIEW,
    PARTITIONS,
    PLANS,
    PRODUCERS,
    RECOVER,
    TRANSACTIONS,
    View,
)
from tui.widgets.edges import EDGE
from tui.widgets.grid import BESIDE, WIDE, Need, Needs
from tui.widgets.panel import Panel, PicturePanel
from tui.widgets.table import FRAME_LINES
from tui.widgets.table_state import TableState

FEW = 8  # rows of the overview's list that always have room
STORY, LEAST_STORY = 10, 4  # lines of a story, with its edge: there is room, or its list is cut
LEAST_HEAT = 6  # lines of a map of partitions, with its edge
LEAST_PICTURE = 7  # and of a picture
AGE = "age"  # the picture that only wide screens have
PICTURE_BELOW = {PARTITIONS: "held", TRANSACTIONS: "rate"}
"""The picture below a list that leaves room for it."""
SHARES = {JOBS: 67, PLANS: 62, PRODUCERS: 67, RECOVER: 67}
"""Of lists whose story is short, in percent of the width."""


def needs_of(
    view: View,
    width: int,
    state: TableState,
    rows: int,
    story: int,
    mapped: bool,
    pictures: Sequence[PicturePanel],
    others: Sequence[Panel],
) -> Needs:
    """Return the panels of a screen, and what each has to show.

    rows: of the list. story: lines of the story beside the list. mapped: there is a map of held
    partitions. pictures, others: what the overview has besides, each with what it shows now.
    """
    if view.kind == "page":
        return {"page": Need(0, 1)}
    every = rows
    if view is OVERVIEW:  # of what is within limits a few: pictures say more
        rows = max(state.data.marked, min(rows, FEW if width < WIDE else 4 * FEW))
    told = story + 2 * EDGE
    share, most = SHARES.get(view, 0), every + FRAME_LINES
    needs = {
        "table": Need(max(1, rows) + FRAME_LINES, 6, most=most, share=share),
        "side": Need(max(told, STORY), min(max(told, LEAST_STORY), STORY)),
    }
    if width < BESIDE:
        return needs
    if view is PARTITIONS and mapped:
        needs["heat"] = Need(0, LEAST_HEAT, fills=True)
    for picture in pictures:
        name = str(picture.id)
        if view is OVERVIEW and (name != AGE or (picture.fills and width >= WIDE)):
            said = Need(picture.length + 2 * EDGE, 3)
            needs[name] = Need(0, LEAST_PICTURE, fills=True) if picture.fills else said
        elif name == PICTURE_BELOW.get(view) and picture.fills:
            needs[name] = Need(0, LEAST_PICTURE, fills=True, spare=True)
    if view is OVERVIEW:
        needs |= {str(panel.id): Need(panel.length + 2 * EDGE, 4) for panel in others}
    return needs
