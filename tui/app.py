"""The dashboard: shows the newest frame, hands key presses to the table or page, sends requests.

The app computes nothing that a frame can hold. All data of the cluster goes through `visible`, and
is drawn as segments, never as markup.
"""

import asyncio
import gc
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from recovery.errors import Exit
from tui.commanding import Commanding
from tui.feed.asking import INTERVALS
from tui.screens.keys import KEYS, UNSORTED, Key, bindings, exists
from tui.screens.views import BY_NAME, Location

if TYPE_CHECKING:
    from tui.feed.frame import Frame


class Renewed(Message):
    """Says that a newer frame exists."""

    def __init__(self, frame: "Frame") -> None:
        super().__init__()
        self.frame = frame


class Failed(Message):
    """Says that the feed ended, and why."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class Dashboard(Commanding):
    """The app: its lifetime and its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    ACTIONS: ClassVar[dict[str, Key]] = {k.action.split("(")[0]: k for k in KEYS}

    # -- life --------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.own_process()
        self.table.title = self.table_title
        self.table.on_cursor = self.show_story
        self.table.on_open = self.action_open
        self.heat.on_pick, self.heat.on_open = self.table.pick, self.action_open
        self.heat.picked = lambda: self.table.state.cursor
        self.table.on_heading = lambda letter: self.action_sort(letter or UNSORTED)
        self.head.on_touch, self.foot.on_touch = self.head_touched, self.foot_touched
        self.go(self.location)
        self.app_resume_signal.subscribe(self, self.resumed)
        self.set_interval(1.0, self.tick)
        self.call_after_refresh(self.begin)

    def own_process(self) -> None:
        """Take what belongs to the process: its signals, and when it looks for garbage.

        A key must wait neither for the feed's thread, which makes many rows, nor for the garbage
        collector to examine everything that was loaded at the start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # outside the main thread (tests) signals cannot be handled
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.leave, Exit.INTERRUPTED)
        gc.set_threshold(50_000, 20, 50)

    def resumed(self, _: object) -> None:
        """Draw everything again after ctrl+z and fg, which leave the terminal empty.

        Textual draws too, but on a busy machine before the terminal is ready.
        """
        for seconds in (0.1, 1.0):
            self.set_timer(seconds, lambda: self.refresh(layout=True))

    def await_first(self) -> None:
        """Show how far the first questions came, until they are answered."""
        if self.snapshot is not None and self.snapshot.partitions is not None:
            self.awaiting.stop()
        else:
            self.show_says()
            self.show_status()

    def begin(self) -> None:
        """Start asking, once the first paint is done."""
        sys.setswitchinterval(0.0002)
        if not self.feed.web:  # of one of several viewers it would keep forever what it leaves
            gc.freeze()
        self.complete()
        self.feed.start(self.post)
        self.began = True
        self.awaiting = self.set_interval(0.1, self.await_first)
        self.tell_wants()

    def post(self, news: "Frame | str") -> None:
        """Pass on what the feed, in its thread, has to say; drop it once the app has ended."""
        with suppress(RuntimeError):  # the app's event loop is closed
            self.post_message(Failed(news) if isinstance(news, str) else Renewed(news))

    def on_unmount(self) -> None:
        """End the feed, however the app ends."""
        self.feed.stop()

    def on_renewed(self, message: Renewed) -> None:
        if self.paused and not self.feed.replay:
            return
        self.frame = message.frame
        shown = self.location.view.name
        for name, data in message.frame.tables.items():
            if name == shown:
                self.table.renew(data)
            else:
                self.states[name].renew(data)
        if self.location.view.kind == "page":
            self.show_page()
        else:
            self.show_story()
            self.show_pictures()
        self.say_recording_ended()
        self.tick()

    def on_failed(self, message: Failed) -> None:
        self.failed = message.sentence
        self.tick()

    def on_resize(self, event: events.Resize) -> None:
        self.show_panels()
        self.call_after_refresh(self.tick)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded and self.is_running:
            self.message = ("", "text")
            self.complete()
            if len(self.screen_stack) == 1:
                self.table.drop_gone()
                # here and not in the table's or the prompt's own queue: what is typed ahead after
                # `/` or Enter must find the prompt open or closed, or a name would be a command
                await self.key_pressed(event)
                return
        await super().on_event(event)

    async def key_pressed(self, event: events.Key) -> None:
        """Type in the line that is open, else do what the list of keys says."""
        if await self._check_bindings(event.key, priority=True):
            return
        if not (self.prompt.display and await self.prompt.take(event)):
            await self._check_bindings(event.key)
            self.prompt.check()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide keys that do not belong to this screen."""
        if action == "view" and self.feed.web and BY_NAME[str(parameters[0])].on_host:
            return False
        key = self.ACTIONS.get(action)
        if key is None:
            return self.location.view.kind != "page" if action == "sort" else True
        return exists(
            key,
            self.location.view,
            replay=self.feed.replay,
            may_change=self.may_change,
            answered=self.answered,
            web=self.feed.web,
        )

    # -- keys --------------------------------------------------------------------------------

    def action_first_of(self, names: str) -> None:
        """Do what a key with several actions does on this screen."""
        for name in names.split():
            if self.check_action(name, ()):
                getattr(self, f"action_{name}")()
                return

    def action_view(self, name: str) -> None:
        self.trail.clear()
        self.go(
            Location(BY_NAME[name], self.location.about if name == self.location.view.name else "")
        )

    def action_open(self) -> None:
        row = self.table.current
        if row is None or row.opens is None:
            self.say("this row has no page")
            return
        name, about = row.opens
        if name == "form":
            self.fill_in(about, self.ask_command)
        elif name == "run":
            self.show_run(int(about))
        else:
            self.go(Location(BY_NAME[name], about), remember=True)

    def action_leave(self) -> None:
        """Go back: from another panel to the list, from a filter to all rows, from a screen."""
        if self.scrolled is not self.main:
            self.refocus()
        elif self.location.view.kind != "page" and self.table.state.filter is not None:
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

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.feed.pause(self.paused)
        self.tick()

    def action_refresh(self) -> None:
        if self.location.view.kind != "page":
            self.table.settle()
        self.feed.wake()
        self.say("asking")

    def action_seek(self, step: int) -> None:
        self.paused = True
        self.feed.seek(step)

    def action_interval(self, step: int) -> None:
        now = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.feed.interval))
        self.pace(INTERVALS[max(0, min(now + step, len(INTERVALS) - 1))])

    def action_find(self) -> None:
        """Find a command, a topic, an id or a group by some of its letters."""
        from textual.command import CommandPalette

        from tui.search import Everything

        placeholder = "a command, topic, transactional id or group"
        self.push_screen(CommandPalette({Everything}, placeholder=placeholder))
