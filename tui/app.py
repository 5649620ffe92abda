"""The dashboard: shows the newest frame, hands key presses to the table or page, sends requests.

It never computes what a frame can hold. Everything it draws from the cluster went through
`visible`, and is drawn as segments, never as markup.
"""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message

from eoctl.render.words import age as age_words
from recovery.errors import EoctlError
from tui import actions, head
from tui.feed import INTERVALS, Feed
from tui.keys import KEYS, Key, bindings, exists
from tui.lines import Bar, Page
from tui.overlays import Overlay
from tui.prompt import Prompt
from tui.table import Table, TableState
from tui.tables import TableData
from tui.themes import register
from tui.views import BY_NAME, JOBS, OVERVIEW, PARTITIONS, PLANS, RECOVER, VIEWS, View

if TYPE_CHECKING:
    from tui.frame import Frame
    from tui.runs import Run

SIDE_BESIDE = 120  # from this width on the evidence stands beside the list, else below it
STRIP_BELOW = 30  # from this height on the strip of a partition stands under the list
SAYS_LINES = 4


class Renewed(Message):
    """A newer frame."""

    def __init__(self, frame: "Frame") -> None:
        super().__init__()
        self.frame = frame


class Failed(Message):
    """The feed ended; the sentence says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Place:
    """Where one is: a screen, and what it is about (a partition, a transactional id)."""

    view: View
    about: str = ""


class Dashboard(App[str]):
    """feed: where frames come from. connect: the feed of another context, for `:ctx`.

    The app's result is the last text that was copied, for stdout.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    CSS = """
    Screen { layout: vertical; }
    #says { display: none; }
    #middle { height: 1fr; layout: vertical; }
    #middle.beside { layout: horizontal; }
    #side { display: none; }
    #page { display: none; }
    Dashboard.evidence #side { display: block; height: 9; }
    Dashboard.evidence .beside #side { height: 1fr; width: 48; }
    Dashboard.evidence .beside.wide #side { width: 70; }
    """
    ACTIONS: ClassVar[dict[str, Key]] = {k.action.split("(")[0]: k for k in KEYS}

    def __init__(
        self,
        feed: Feed,
        *,
        theme: str = "dark",
        connect: Callable[[str], Feed] | None = None,
        view: str = "overview",
    ) -> None:
        super().__init__()
        register(self)
        self.theme = theme
        self.feed = feed
        self.connect = connect
        self.frame: Frame | None = None
        self.paused = False
        self.began = False
        self.runs: list[Run] = []  # what was started from Recover
        self._recover_looks: object = None
        self.failed = ""  # why the feed ended
        self.message: tuple[str, str] = ("", "text")
        self.copied: str | None = None
        self.place = Place(BY_NAME[view])
        self.trail: list[Place] = []
        self.states = {v.name: TableState(TableData(v.columns)) for v in VIEWS if v.columns}
        self.states[OVERVIEW.name].live = True
        self.head = Bar(2, name="head")
        self.says = Bar(SAYS_LINES, name="says")
        self.table = Table(name="table")
        self.side = Page(name="side")
        self.page = Page(name="page")
        self.status = Bar(1, name="status")
        self.prompt = Prompt()
        self.foot = Bar(1, name="foot")
        self.middle = Container(self.table, self.side, self.page, id="middle")

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.says
        yield self.middle
        yield self.status
        yield self.prompt
        yield self.foot

    # -- life --------------------------------------------------------------------------------

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # outside the main thread (tests) there are no signals
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.leave)
        self.table.title = lambda width: head.table_title(self, width)
        self.table.on_cursor = self.show_evidence
        self.table.on_open = self.action_open
        self.go(self.place)
        self.set_interval(1.0, self.tick)
        self.call_after_refresh(self.begin)

    def begin(self) -> None:
        """The first paint is done: start asking.

        The feed's thread makes many rows; a key must not wait for it, nor for the collector of
        garbage to look at all that was loaded at the start.
        """
        sys.setswitchinterval(0.0002)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self.feed.start(self.post)
        self.began = True
        self.tell_wants()

    def post(self, news: "Frame | str") -> None:
        """Called by the feed, in its thread."""
        self.post_message(Failed(news) if isinstance(news, str) else Renewed(news))

    def on_renewed(self, message: Renewed) -> None:
        if self.paused and not self.feed.replay:
            return
        self.frame = message.frame
        shown = self.place.view.name
        for name, data in message.frame.tables.items():
            if name == shown:
                self.table.renew(data)
            else:
                self.states[name].renew(data)
        if self.place.view.kind == "page":
            self.show_page()
        else:
            self.show_evidence()
        self.tick()

    def on_failed(self, message: Failed) -> None:
        self.failed = message.sentence
        self.tick()

    def tick(self) -> None:
        """Once a second, and after each frame: ages and staleness."""
        self.renew_recover()
        self.tell_wants()
        self.head.show(head.head_lines(self, self.size.width))
        self.says.show(head.says(self))
        self.status.show((head.status_line(self, self.size.width),))
        self.foot.show((head.foot_line(self, self.size.width),))
        for part in (self.table, self.side, self.page):
            if part.display:
                part.retitle()

    def renew_recover(self) -> None:
        """The list of forms, and of what was started from them."""
        looks = (self.may_change, tuple(run.state for run in self.runs))
        if self.began and looks != self._recover_looks:
            from tui.recover import recover_table

            self._recover_looks = looks
            data = recover_table(self.runs, may_change=self.may_change)
            if self.place.view is RECOVER:
                self.table.renew(data)
            else:
                self.states[RECOVER.name].renew(data)

    def start_run(self, title: str, argv: Sequence[str], *, asks: bool = False) -> None:
        """Start a command and show what it says. asks: it prints a plan, to be confirmed."""
        from tui.recover import RunScreen
        from tui.runs import Run

        run = Run(title, argv, ("-o", "json") if asks else ())
        self.runs.append(run)
        self.renew_recover()
        self.push_screen(RunScreen(run, asks=asks))

    def on_resize(self, event: events.Resize) -> None:
        self.arrange()
        self.call_after_refresh(self.tick)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded and self.is_running:
            self.message = ("", "text")
            if len(self.screen_stack) == 1:
                self.table.drop_gone()
                if not self.prompt.display:
                    # here and not in the table's own queue: what is typed ahead behind `/` must
                    # find the prompt open, or a name would be taken for commands
                    await self.key_pressed(event.key)
                    return
        await super().on_event(event)

    async def key_pressed(self, key: str) -> None:
        """Do what the list of keys says."""
        if not await self._check_bindings(key, priority=True):
            await self._check_bindings(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do not belong to this screen do not exist."""
        key = self.ACTIONS.get(action)
        if key is None:
            return self.place.view.kind != "page" if action == "sort" else True
        return exists(key, self.place.view, replay=self.feed.replay, may_change=self.may_change)

    @property
    def may_change(self) -> bool:
        """May anything be changed from here? Not read-only, not from a recording."""
        s = self.frame.snapshot if self.frame else None
        return not (self.feed.replay or s is None or s.read_only)

    def say(self, text: str, role: str = "text") -> None:
        """One sentence in the status line, until the next key."""
        self.message = (text, role)
        self.status.show((head.status_line(self, self.size.width),))

    # -- where one is ------------------------------------------------------------------------

    def go(self, place: Place, *, remember: bool = False) -> None:
        """Show a screen."""
        if remember and place != self.place:
            self.trail.append(self.place)
        self.place = place
        view = place.view
        paged = view.kind == "page"
        self.page.display = paged
        self.table.display = not paged
        self.says.display = view is OVERVIEW
        self.arrange()
        if paged:
            self.page.to(0)
            self.show_page()
        else:
            self.states[view.name].settle()
            self.table.show(self.states[view.name])
        self.refocus()
        self.tell_wants()
        self.tick()

    def refocus(self) -> None:
        """Keys go to the table or the page."""
        self.screen_stack[0].set_focus(self._scrolled)

    def arrange(self) -> None:
        """Evidence beside the list where there is room, else below it."""
        width, view = self.size.width, self.place.view
        # a strip is wide and low: under the list, where there are lines to spare
        under = view is PARTITIONS or (view in (PLANS, JOBS) and width < 180)
        low = view is PARTITIONS and self.size.height < STRIP_BELOW
        sided = view.kind == "evidence" and not low
        self.set_class(sided, "evidence")
        self.middle.set_class(width >= SIDE_BESIDE and not under, "beside")
        self.middle.set_class(width >= 180, "wide")

    def tell_wants(self) -> None:
        """Ask the feed for what this screen shows beyond the rest; not before the first paint."""
        if self.began:
            from tui import shown

            self.feed.want(**shown.wants(self))

    def show_page(self) -> None:
        """The page of this screen, from the newest frame."""
        from tui import shown

        self.page.show(shown.page(self), lambda width: head.page_title(self, width))

    def show_evidence(self) -> None:
        """Beside a list: what the cursor's row stands on."""
        if self.place.view.kind == "evidence":
            from tui import shown

            self.side.show(shown.beside(self), lambda width: head.side_title(self, width))

    # -- keys --------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Leave at once; while a change is being made only after a question."""
        if not actions.leaving_needs_an_answer(self):
            self.leave()

    def leave(self) -> None:
        """End the app."""
        self.feed.stop()
        for run in self.runs:
            run.stop()
        self.exit(self.copied)

    def action_view(self, name: str) -> None:
        self.trail.clear()
        self.go(Place(BY_NAME[name], self.place.about if name == self.place.view.name else ""))

    def action_open(self) -> None:
        row = self.table.current
        if row is None or row.opens is None:
            self.say("there is nothing behind this row")
            return
        name, about = row.opens
        if name in ("form", "run"):
            actions.recover(self, name, about)
            return
        self.go(Place(BY_NAME[name], about), remember=True)

    def action_leave(self) -> None:
        """esc: the filter first, then back."""
        if self.place.view.columns and self.table.state.filter is not None:
            self.table.state.filter = None
            self.table.settle()
            self.tick()
        elif self.trail:
            self.go(self.trail.pop())

    def action_retreat(self) -> None:
        if self.trail:
            self.go(self.trail.pop())
        else:
            self.action_stop()

    def action_move(self, step: int) -> None:
        self._scrolled.move(step)

    def action_page(self, step: int) -> None:
        self._scrolled.move(step * self._scrolled.room)

    def action_first(self) -> None:
        self._scrolled.to(0)

    def action_last(self) -> None:
        part = self._scrolled
        part.to(part.length if isinstance(part, Page) else len(part.state.order))

    def action_turn(self, step: int) -> None:
        self.table.turn(step)

    def action_select(self) -> None:
        self.table.select()
        self.tick()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.feed.pause(self.paused)
        self.tick()

    def action_refresh(self) -> None:
        if self.place.view.columns:
            self.table.settle()
        self.feed.wake()
        self.say("asking")

    def action_seek(self, step: int) -> None:
        self.paused = True
        self.feed.seek(step)

    def action_interval(self, step: int) -> None:
        now = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.feed.interval))
        self.pace(INTERVALS[max(0, min(now + step, len(INTERVALS) - 1))])

    def pace(self, seconds: float) -> None:
        """Ask every so many seconds."""
        self.feed.pace(seconds)
        self.say(f"every {age_words(seconds)}, or less often where that would cost too much")

    def action_remedy(self) -> None:
        actions.remedy(self)

    def action_undo(self) -> None:
        actions.change(self, "Undo", "undo", "reading what it changed")

    def action_verify(self) -> None:
        actions.change(self, "Verify", "verify", "looking at the cluster")

    def action_cancel(self) -> None:
        actions.cancel(self)

    def action_sort(self, letter: str) -> None:
        actions.sort(self, letter)

    def action_sort_menu(self) -> None:
        actions.sort_menu(self)

    def action_json(self) -> None:
        actions.show_json(self)

    def action_equal(self) -> None:
        actions.show_equal(self)

    def action_copy(self) -> None:
        actions.copy(self)

    def action_write(self) -> None:
        actions.write(self)

    def action_filter(self) -> None:
        self.prompt.ask("/", actions.filter_as_typed, actions.filter_done)

    def action_command(self) -> None:
        self.prompt.ask(":", actions.command_as_typed, actions.command_done)

    def action_help(self) -> None:
        from tui import pages

        view, replay, may = self.place.view, self.feed.replay, self.may_change
        self.push_screen(
            Overlay(
                "Help",
                lambda width: pages.help_page(view, replay=replay, may_change=may, width=width),
            )
        )

    def other_cluster(self, name: str) -> None:
        """`:ctx`: the same screens of another cluster."""
        if self.connect is None:
            self.say("a recording has one cluster", "look")
            return
        try:
            feed = self.connect(name)
        except EoctlError as error:
            self.say(error.sentence, "act")
            return
        self.feed.stop()
        self.feed, self.frame, self.paused, self.failed = feed, None, False, ""
        self.states = {v.name: TableState(TableData(v.columns)) for v in VIEWS if v.columns}
        self.trail.clear()
        self.go(Place(OVERVIEW))
        self.begin()

    @property
    def _scrolled(self) -> Table | Page:
        return self.page if self.place.view.kind == "page" else self.table
