"""The parts of the app: which ones the current screen shows, drawn from the newest frame."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from time import monotonic
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen

from recovery.errors import Exit
from tui import fixed_lines
from tui.feed.asking import Feed
from tui.needs import PICTURE_BELOW, needs_of
from tui.prompt import Prompt
from tui.screens.keys import completions, footer
from tui.screens.views import (
    BY_NAME,
    GROUP,
    JOBS,
    OVERVIEW,
    PARTITIONS,
    RECOVER,
    VIEWS,
    WHY,
    Location,
    View,
)
from tui.widgets.edges import Titles
from tui.widgets.grid import Needs, Panels, regions
from tui.widgets.heat import HeatMap
from tui.widgets.lines import Bar, Line, flowed
from tui.widgets.panel import Panel, PicturePanel
from tui.widgets.table import Table
from tui.widgets.table_state import Filter, TableState
from tui.widgets.tables import TableData
from tui.widgets.themes import begin_in

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer
    from recovery.diagnose.diagnosis_rows import TxnHangingRow
    from tui.feed.frame import Frame
    from tui.feed.writer import Writer
    from tui.screens.runs import Run
    from tui.widgets.tables import TableRow

SAYS_LINES = 3  # of the overview, if the screen is TALL: else the worst problem alone
TALL = 30  # from this height on
RESTED = 0.5  # seconds on a row after which its page is asked for


class Ground(Screen[object]):
    """The screen below all panels: without lines of its own, that Textual would go through."""

    BLANK = True


class Layout(App[str]):
    """feed: where frames come from. The app returns the text copied last."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #says { display: none; }
    CommandPalette > .command-palette--help-text { color: $foreground; text-style: not bold; }
    CommandList { border-bottom: none; }
    CommandList > .option-list--option-highlighted {
        color: $foreground; background: $background; text-style: bold reverse;
    }
    Input > .input--placeholder { color: $foreground; text-style: italic; }
    """

    def __init__(
        self,
        feed: Feed,
        *,
        theme: str = "dark",
        connect: Callable[[str], Feed] | None = None,
        view: str = "overview",
    ) -> None:
        super().__init__()
        begin_in(theme, self)
        self.feed = feed
        self.connect = connect
        self.frame: Frame | None = None
        self.paused = False
        self.began = False
        self.runs: list[Run] = []  # commands started from Recover
        self._recover_looks: object = None
        self.failed = ""  # why the feed ended
        self._ended: Writer | None = None  # whose end was said
        self.message: tuple[str, str] = ("", "text")
        self.copied: str | None = None
        self.location = Location(BY_NAME[view])
        self.trail: list[Location] = []
        self.forget()
        self.head = Bar(2, name="head")
        self.says = Bar(SAYS_LINES, name="says")
        self.table = Table(name="table")
        self.side = Panel(name="side", title="Story")
        self.page = Panel(name="page")
        self.held = PicturePanel(name="held", title="Records held, by topic")
        self.rate = PicturePanel(name="rate", title="Transactions a minute")
        self.age = PicturePanel(name="age", title="Oldest finding")
        self.ends = Panel(name="ends", title="Ends by itself")
        self.changes = Panel(name="changes", title="Last changes")
        self.heat = HeatMap(name="heat")
        self.pictures = (self.held, self.rate, self.age)
        self.panels = (
            self.table,
            self.side,
            self.heat,
            *self.pictures,
            self.ends,
            self.changes,
            self.page,
        )
        self._places: dict[str, Region] = {}
        self._rests = False  # a timer waits for the cursor to rest
        self._pointed_at = 0.0
        self._pointed: str | None = None  # the row whose story is shown
        self.rested: str | None = None  # the last row on which the cursor rested
        self._story_lines = 0  # the most lines of a story since this screen was opened
        self._list_rows = 0  # and rows of its list, with the same filter
        self._listed: tuple[TableState | None, Filter | None] = (None, None)
        self.status = Bar(1, name="status")
        self.prompt = Prompt(self.refocus, partial(completions, web=feed.web))
        self.foot = Bar(1, name="foot")
        self.middle = Panels(self.table, name="middle", needs=self.needs)
        for panel in self.panels:
            panel.ascii_only = feed.ascii_only
            if isinstance(panel, Panel):
                panel.on_length = self.arrange

    def get_default_screen(self) -> Screen[object]:
        return Ground(id="_default")

    def compose(self) -> ComposeResult:
        """Yield what the overview shows before the first answer; `complete` mounts the rest."""
        yield self.head
        yield self.says
        yield self.middle
        yield self.status
        yield self.foot

    def complete(self) -> None:
        """Mount, once and before they are needed, the parts that the first paint does not show."""
        if self.prompt.parent is None and self.middle.is_attached:
            self.middle.mount(*self.panels[1:])
            self.show_panels()
            self.screen_stack[0].mount(self.prompt, before=self.foot)

    def forget(self) -> None:
        """Empty the tables of all screens."""
        self.states = {v.name: TableState(TableData(v.own)) for v in VIEWS if v.kind != "page"}
        self.states[OVERVIEW.name].live = True

    def tick(self) -> None:
        """Update ages, staleness and places, once a second and after each frame."""
        self.renew_recover()
        self.tell_wants()
        width, view = self.size.width, self.location.view
        head = fixed_lines.head_lines(self.frame, self.feed, view, width, paused=self.paused)
        self.head.show(head)
        self.show_says()
        self.show_status()
        self.show_foot()
        self.arrange()
        for part in (self.table, self.side, self.page):
            if part.display:
                part.retitle()

    def show_says(self) -> None:
        """Show the overview's sentences."""
        lines = SAYS_LINES if self.size.height >= TALL else 1
        self.says.show(fixed_lines.says(self.frame, self.feed, self.size.width, lines))

    def renew_recover(self) -> None:
        """Update the list of forms and of the commands started from them."""
        looks = (self.may_change, tuple(run.state for run in self.runs))
        if self.began and looks != self._recover_looks:
            from tui.screens.recover import recover_table

            self._recover_looks = looks
            data = recover_table(self.runs, may_change=self.may_change)
            if self.location.view is RECOVER:
                self.table.renew(data)
            else:
                self.states[RECOVER.name].renew(data)

    @property
    def snapshot(self) -> "Snapshot | None":
        """Return the snapshot that is shown; None before the first frame."""
        return self.frame.snapshot if self.frame else None

    @property
    def may_change(self) -> bool:
        """Return True if this dashboard may change anything: not read-only, and not a recording."""
        s = self.snapshot
        return not (self.feed.replay or s is None or s.read_only)

    @property
    def row(self) -> "TableRow | None":
        """Return the cursor's row; None on a page."""
        return self.table.current if self.location.view.kind != "page" else None

    @property
    def answer(self) -> "Answer | None":
        """Return what the page shows; None on a table, and until the page has its answer."""
        if self.location.view.kind != "page":
            return None
        place = self._recorded_place
        return None if place is None else fixed_lines.page_answer(self.snapshot, place)

    @property
    def place(self) -> Location:
        """Return what is shown: for `6` in a recording its page of the worst finding."""
        return self._recorded_place or self.location

    @property
    def _recorded_place(self) -> Location | None:
        """Return the location as `place`; None if the recording has no page of the worst one."""
        if self.feed.replay and self.frame is not None and self.location == Location(WHY):
            from tui import panes

            return panes.recorded_worst(self.frame)
        return self.location

    @property
    def answered(self) -> bool:
        """Return True if the screen shows its subject. A table does: its keys act on its rows."""
        return self.location.view.kind != "page" or self.answer is not None

    @property
    def holders(self) -> "list[TxnHangingRow]":
        """Return the judged transactions that the page of why is about."""
        rows = self.answer.rows if self.location.view is WHY and self.answer is not None else ()
        found = [getattr(row, "held_by", None) for row in rows]
        return [row for row in found if row is not None]

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the status line until the next key."""
        self.message = (text, role)
        self.show_status()

    def show_status(self) -> None:
        """Show the message, else why the feed ended, else what is wrong with asking."""
        message = self.message if self.message[0] or not self.failed else (self.failed, "act")
        lines = fixed_lines.status_lines(
            self.snapshot, self.feed, message, self.size.width, paused=self.paused
        )
        self.status.show(lines)

    def say_recording_ended(self) -> None:
        """Say once why the recording ended.

        Line 1 then shows that it did, and the command says why again at its end.
        """
        writer: Writer | None = getattr(self.feed, "writer", None)
        if writer is not None and writer.ended and writer is not self._ended:
            self._ended = writer
            self.say(writer.ended.what, "act")

    def show_foot(self) -> None:
        """Show the keys of this screen."""
        view = self.location.view
        keys = footer(
            view,
            replay=self.feed.replay,
            may_change=self.may_change,
            answered=self.answered,
            web=self.feed.web,
        )
        line = fixed_lines.foot_line(
            view, list(keys), self.size.width, paused=self.paused, returns=bool(self.trail)
        )
        self.foot.show((line,))

    def leave(self, status: Exit = Exit.OK) -> None:
        """End the app with the status as its return code."""
        self.feed.stop()
        for run in self.runs:
            run.stop()
        self.exit(self.copied, return_code=status)

    def go(self, location: Location, *, remember: bool = False) -> None:
        """Show a screen; in a browser none that is about this host."""
        if self.feed.web and location.view.on_host:
            self.say(f"{location.view.title} is of the host: eoctl tui there shows it", "look")
            return
        if remember and location != self.location:
            self.trail.append(self.location)
        self.location = location
        view = location.view
        if view is not OVERVIEW:
            self.complete()
        paged = view.kind == "page"
        self.says.display = view is OVERVIEW
        self._pointed = self.rested = None
        self.show_panels()
        if paged:
            self.page.to(0)
            self.show_page()
        else:
            state = self.states[view.name]
            if not state.data.columns:
                state.renew(TableData(view.columns))
            state.settle()
            self.side.to(0)
            self.table.show(state)
            self.show_pictures()
        self._story_lines = self._list_rows = 0  # only now has the side this screen's story
        self.refocus()
        self.tell_wants()
        self.tick()

    def refocus(self) -> None:
        """Send keys to the table or the page."""
        self.screen_stack[0].set_focus(self.main)

    @property
    def main(self) -> Table | Panel:
        """Return the screen's first panel: its page or its list."""
        return self.page if self.location.view.kind == "page" else self.table

    def show_panels(self) -> None:
        """Show the panels of this screen, and hide the others."""
        shown = self.needs()
        for panel in self.panels:
            panel.display = panel.id in shown

    def needs(self) -> "Needs":
        """Return the panels of this screen, and what each has to show."""
        # a story may be shorter than the one before: the panels below it stay where they are
        self._story_lines = max(self._story_lines, self.side.length)
        mapped = self.frame is not None and bool(self.frame.mapped)
        state, others = self.table.state, (self.ends, self.changes)
        view, width = self.location.view, self.size.width
        rows, story = self._rows_of(view, state), self._story_lines
        return needs_of(view, width, state, rows, story, mapped, self.pictures, others)

    def _rows_of(self, view: View, state: TableState) -> int:
        """Return the rows that have a place: above a picture the most so far, so that it rests."""
        rows = len(state.order)
        if view not in PICTURE_BELOW:
            return rows
        if self._listed[0] is not state or self._listed[1] != state.filter:
            self._listed, self._list_rows = (state, state.filter), 0
        self._list_rows = max(self._list_rows, rows)
        return self._list_rows

    def arrange(self) -> None:
        """Give the panels other places if what they have to show needs it."""
        places = regions(self.middle.size, self.needs())
        if places != self._places:
            self._places = places
            self.show_panels()
            self.table.refresh(layout=True)  # of a child: Textual keeps a container's own places

    def tell_wants(self) -> None:
        """Ask the feed for what only this screen shows; not before the first paint."""
        if self.began:
            from tui import panes

            row = self.row
            rested = row if row is not None and row.key == self.rested else None
            if rested is not None or self.rested is None:
                self.feed.want(**panes.wants(self.snapshot, self.location, rested))

    def show_page(self) -> None:
        """Show the page of this screen, from the newest frame."""
        from tui import panes

        make = panes.page(self.snapshot, self.place, self.states[JOBS.name].data)
        if self.feed.replay and self.frame is not None and not self.answered:
            make = panes.not_recorded(self.location, self.frame)
        # a group's commits are many, and read once: not made again for every frame
        once = self.answer if self.location.view is GROUP else None
        self.page.fill(make, self.page_title, once)

    def show_pictures(self) -> None:
        """Show the screen's pictures, and what else the overview has besides its list and story."""
        frame, view = self.frame, self.location.view
        if frame is None or not (view is OVERVIEW or view in PICTURE_BELOW):
            return
        board = frame.board
        for panel, picture in zip_longest(self.pictures, board.pictures):
            if view is OVERVIEW or panel.id == PICTURE_BELOW[view]:
                panel.draw(picture, board.rate if panel is self.rate else ())
        if view is OVERVIEW:
            self.ends.fill(partial(_flowed, board.ends))
            self.changes.fill(partial(_flowed, board.changes))
        self.show_panels()

    def show_story(self) -> None:
        """Show the story of the cursor's row, and ask for its page once the cursor rests."""
        if self.location.view.kind == "page" or not self.began:
            return  # what stories are made of is loaded after the first paint
        from tui import panes

        row = self.table.current
        key = row.key if row is not None else None
        if self.frame is not None and self.location.view is PARTITIONS:
            self.heat.show(self.frame.mapped, by_age=self.table.state.sorted_by("age"))
        if key != self._pointed:
            self._pointed, self._pointed_at = key, monotonic()
            self.side.to(0)
            if not self._rests:
                self._rests = True
                self.set_timer(RESTED, self.rest)
        make = panes.story(self.frame, self.location.view, self.table.state, self.runs)
        self.side.fill(make, self.story_title)

    def rest(self) -> None:
        """Ask for the page of the row on which the cursor rests."""
        left = self._pointed_at + RESTED - monotonic()
        self._rests = left > 0
        if self._rests:  # it moved on: one timer for many keys
            self.set_timer(left, self.rest)
            return
        self.rested = self._pointed
        self.heat.point()
        self.tell_wants()

    # titles are drawn again each second, since they show an age

    def page_title(self) -> Titles:
        return fixed_lines.page_title(self.snapshot, self.feed, self.answer, self.place, self.trail)

    def story_title(self) -> Titles:
        data = self.table.state.data
        return fixed_lines.story_title(self.snapshot, self.feed, data, self.table.current)

    def table_title(self) -> Titles:
        return fixed_lines.table_title(self.snapshot, self.feed, self.location.view, self.table)

    @property
    def scrolled(self) -> Table | Panel | HeatMap:
        """Return the part that receives the keys: the panel with the focus."""
        focused = self.screen_stack[0].focused
        return focused if isinstance(focused, Table | Panel | HeatMap) else self.main


def _flowed(lines: Sequence[Line], width: int) -> list[Line]:
    return [part for line in lines for part in flowed(line, width)]
