"""Where each panel is: in columns, by the room that there is and what each panel has to show."""

from collections.abc import Callable, Mapping, Sequence

from textual.geometry import NULL_OFFSET, NULL_REGION, Region, Size, Spacing
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from recovery.values import Value
from tui.widgets.edges import Edged

BESIDE = 100  # from this width on the story is beside the list, else below it
WIDE = 180  # from this width on pictures have a column of their own

Column = tuple[int, tuple[str, ...]]
"""Its share of the width, in percent, and its panels from top to bottom."""


class Need(Value):
    """What a panel has to show, in lines with its edge.

    least: without so many lines it is left out. fills: it takes what the others leave. spare: it is
    left out unless the others have all their lines. most: what it could show, if nothing fills.
    share: of the width, in percent, that its column has; 0: what is usual.
    """

    lines: int
    least: int
    fills: bool = False
    spare: bool = False
    most: int = 0
    share: int = 0


Needs = Mapping[str, Need]


def columns(width: int, names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a screen that has these panels."""
    if len(names) == 1:
        return ((100, tuple(names)),)
    if width < BESIDE:
        return ((100, ("table", "side")),)
    if "ends" not in names:
        return ((56, ("table", "held", "rate")), (44, ("side", "heat")))
    if width < WIDE:
        return ((56, ("table", "held", "ends")), (44, ("side", "rate", "changes")))
    return ((38, ("table", "age", "ends", "changes")), (34, ("side",)), (28, ("held", "rate")))


def regions(size: Size, needs: Needs) -> dict[str, Region]:
    """Return the place of each panel that has room."""
    found: dict[str, Region] = {}
    x = 0
    parts = columns(size.width, tuple(needs))
    for number, (share, names) in enumerate(parts):
        last = number == len(parts) - 1
        share = needs[names[0]].share or share
        width = size.width - x if last else size.width * share // 100
        y = 0
        for name, high in stacked({n: needs[n] for n in names if n in needs}, size.height).items():
            found[name] = Region(x, y, width, high)
            y += high
        x += width
    return found


def stacked(needs: Needs, height: int) -> dict[str, int]:
    """Return the lines of each panel of a column; what fills, then the last, is left out first.

    If not all have room, the list has it first, then those that need little.
    """
    shown = {n: need for n, need in needs.items() if not need.spare or _fits(needs, height)}
    while len(shown) > 1 and sum(n.least for n in shown.values()) > height:
        filling = [name for name, need in shown.items() if need.fills]
        del shown[filling[-1] if filling else list(shown)[-1]]
    lines = {name: need.least for name, need in shown.items()}
    for name in sorted(shown, key=lambda n: (n != "table", shown[n].lines)):
        more = shown[name].lines - lines[name]
        lines[name] += max(0, min(more, height - sum(lines.values())))
    filling = [name for name, need in shown.items() if need.fills]
    rest = height - sum(lines.values())
    if not filling:
        for name, need in shown.items():
            more = max(0, min(need.most - lines[name], rest))
            lines[name] += more
            rest -= more
        filling = list(shown)[-1:]
    for number, name in enumerate(filling):
        lines[name] += rest // len(filling) + (number < rest % len(filling))
    return lines


def _fits(needs: Needs, height: int) -> bool:
    """Return True if every panel has all its lines, and what is spare its least."""
    return sum(need.least if need.spare else need.lines for need in needs.values()) <= height


class Panels(Widget):
    """The container of the panels. needs: called whenever they are placed."""

    DEFAULT_CSS = "Panels { width: 1fr; height: 1fr; }"
    BLANK = True  # the panels cover it

    def __init__(self, *panels: Widget, name: str, needs: Callable[[], Needs]) -> None:
        super().__init__(*panels, id=name)
        self._panel_layout = PanelLayout(needs)

    @property
    def layout(self) -> Layout:
        return self._panel_layout


class PanelLayout(Layout):
    """Textual's way to place the children of a container."""

    name = "panels"

    def __init__(self, needs: Callable[[], Needs]) -> None:
        self._needs = needs

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        parent.pre_layout(self)
        places = regions(size, self._needs())
        made = []
        for child in children:
            place = places.get(str(child.id), NULL_REGION)
            if isinstance(child, Edged):
                child.placed = bool(place.area)
            made.append(WidgetPlacement(place, NULL_OFFSET, Spacing(), child))
        return made
