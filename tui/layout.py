"""The parts of the app: which ones the current screen shows, drawn from the newest frame."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.containers import Container

from recovery.errors import Exit
from tui import fixed_lines
from tui.feed.asking import Feed
from tui.prompt import Prompt
from tui.screens.keys import footer
from tui.screens.views import (
    BY_NAME,
    JOBS,
    OVERVIEW,
    PARTITIONS,
    PLANS,
    RECOVER,
    VIEWS,
    WHY,
    Location,
)
from tui.widgets.lines import Bar, Line, Page
from tui.widgets.table import HEAD_LINES, Table
from tui.widgets.table_state import TableState
from tui.widgets.tables import TableData
from tui.widgets.themes import begin_in

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer
    from recovery.diagnose.diagnosis_rows import TxnHangingRow
    from tui.feed.frame import Frame
    from tui.screens.runs import Run
    from tui.widgets.tables import TableRow

SIDE_BESIDE = 120  # from this width on the evidence is beside the list, else below it
STRIP_BELOW = 30  # from this height on a partition's strip is below the list
SAYS_LINES = 3
FIXED_LINES = (
    3 + SAYS_LINES
)  # of the overview: head, says and foot; the status is as high as its text


class Layout(App[str]):
    """feed: where frames come from. The app returns the text copied last."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #says { display: none; }
    #middle { height: 1fr; layout: vertical; }
    #middle.beside { layout: horizontal; }
    #side { display: none; }
    #page { display: none; }
    #board { display: none; }
    Layout.evidence #side { display: block; height: 9; }
    Layout.evidence .low #side { height: 6; }
    Layout.evidence .beside #side { height: 1fr; width: 49; border-left: solid $panel-lighten-2; }
    Layout.evidence .beside.wide #side { width: 70; }
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
        self.message: tuple[str, str] = ("", "text")
        self.copied: str | None = None
        self.location = Location(BY_NAME[view])
        self.trail: list[Location] = []
        self.forget()
        self.head = Bar(2, name="head")
        self.says = Bar(SAYS_LINES, name="says")
        self.table = Table(name="table")
        self.side = Page(name="side")
        self.page = Page(name="page")
        self.board = Page(name="board", titled=False)
        self._board: tuple[object, int, int] = (None, 0, 0)  # drawn for: frame, width, lines
        self.status = Bar(1, name="status")
        self.prompt = Prompt(self.refocus)
        self.foot = Bar(1, name="foot")
        self.middle = Container(self.table, id="middle")

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
            self.middle.mount(self.side, self.board, self.page)
            self.screen_stack[0].mount(self.prompt, before=self.foot)

    def forget(self) -> None:
        """Empty the tables of all screens."""
        self.states = {v.name: TableState(TableData(v.own)) for v in VIEWS if v.kind != "page"}
        self.states[OVERVIEW.name].live = True

    def tick(self) -> None:
        """Update ages and staleness, once a second and after each frame."""
        self.renew_recover()
        self.tell_wants()
        width, view = self.size.width, self.location.view
        head = fixed_lines.head_lines(self.frame, self.feed, view, width, paused=self.paused)
        self.head.show(head)
        self.says.show(fixed_lines.says(self.frame, width))
        self.show_status()
        self.show_foot()
        self.show_board()
        for part in (self.table, self.side, self.page):
            if part.display:
                part.retitle()

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
        return fixed_lines.page_answer(self.snapshot, self.location)

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

    def show_foot(self) -> None:
        """Show the keys of this screen."""
        view = self.location.view
        keys = footer(
            view, replay=self.feed.replay, may_change=self.may_change, answered=self.answered
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
        """Show a screen."""
        if remember and location != self.location:
            self.trail.append(self.location)
        self.location = location
        view = location.view
        if view.kind != "table":
            self.complete()
        paged = view.kind == "page"
        self.page.display = paged
        self.table.display = not paged
        self.says.display = view is OVERVIEW
        self.arrange()
        if paged:
            self.page.to(0)
            self.show_page()
        else:
            state = self.states[view.name]
            if not state.data.columns:
                state.renew(TableData(view.columns))
            state.settle()
            self.table.show(state)
        self.refocus()
        self.tell_wants()
        self.tick()

    def refocus(self) -> None:
        """Send keys to the table or the page."""
        self.screen_stack[0].set_focus(self.scrolled)

    def arrange(self) -> None:
        """Place the evidence beside the list if it fits, else below it."""
        width, view = self.size.width, self.location.view
        # a strip is wide and low: below the list, if lines are to spare
        under = view in (OVERVIEW, PARTITIONS) or (view in (PLANS, JOBS, RECOVER) and width < 180)
        low = view is PARTITIONS and self.size.height < STRIP_BELOW
        sided = view.kind == "evidence" and not low
        self.set_class(sided, "evidence")
        self.middle.set_class(width >= SIDE_BESIDE and not under, "beside")
        self.middle.set_class(width >= 180, "wide")
        self.middle.set_class(view is RECOVER, "low")

    def tell_wants(self) -> None:
        """Ask the feed for what only this screen shows; not before the first paint."""
        if self.began:
            from tui import panes

            drawn = self.location.view is PARTITIONS and self.side.display
            cursor = self.table.state.cursor if drawn else None
            self.feed.want(**panes.wants(self.snapshot, self.location, cursor))

    def show_page(self) -> None:
        """Show the page of this screen, from the newest frame."""
        from tui import panes

        make = panes.page(self.snapshot, self.location, self.states[JOBS.name].data)
        self.page.show(make, self.page_title)

    def show_board(self) -> None:
        """Show the board below the overview's list: in the lines that this leaves, or in a few."""
        frame, width, lines = self.frame, self.size.width, 0
        if self.location.view is OVERVIEW and frame is not None:
            from tui.board.drawing import board_lines, height_of

            room = self.size.height - FIXED_LINES - len(self.status.lines)
            rows = max(1, len(self.table.state.order)) + HEAD_LINES
            lines = height_of(frame.board, width, room, rows)
        if (frame, width, lines) == self._board:
            return
        self._board = (frame, width, lines)
        self.board.display = lines > 0
        self.board.styles.height = lines
        if lines and frame is not None:
            board = frame.board
            self.board.show(lambda width: board_lines(board, width, lines), lambda width: ())

    def show_evidence(self) -> None:
        """Show, beside a list, the evidence for the cursor's row."""
        if self.location.view.kind == "evidence":
            from tui import panes

            view, row = self.location.view, self.table.current
            self.side.show(panes.beside(self.frame, view, row, self.runs), self.side_title)

    # titles are drawn again each second, since they show an age

    def page_title(self, width: int) -> Line:
        return fixed_lines.page_title(self.snapshot, self.feed, self.location, width)

    def side_title(self, width: int) -> Line:
        return fixed_lines.side_title(self.snapshot, self.feed, self.location.view, width)

    def table_title(self, width: int) -> Line:
        view = self.location.view
        return fixed_lines.table_title(self.snapshot, self.feed, view, self.table, width)

    @property
    def scrolled(self) -> Table | Page:
        """Return the part that receives the keys: the page or the table."""
        return self.page if self.location.view.kind == "page" else self.table
