"""The dashboard: shows the newest frame, hands key presses to the table or page, sends requests.

The app computes nothing that a frame can hold. All data of the cluster goes through `visible`, and
is drawn as segments, never as markup.
"""

import asyncio
import gc
import re
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from eoctl.render.sanitise import visible
from eoctl.render.words import age as age_words
from recovery.errors import EoctlError, Exit, UsageError
from tui.changing import Changing
from tui.feed.asking import INTERVALS
from tui.reading import Reading
from tui.screens.keys import KEYS, Key, bindings, completions, exists
from tui.screens.views import BY_NAME, OVERVIEW, Location
from tui.widgets.table_state import Filter

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


class Dashboard(Reading, Changing):
    """The app: its lifetime, its keys and its commands."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    ACTIONS: ClassVar[dict[str, Key]] = {k.action.split("(")[0]: k for k in KEYS}

    # -- life --------------------------------------------------------------------------------

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # outside the main thread (tests) signals cannot be handled
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.leave, Exit.INTERRUPTED)
        self.table.title = self.table_title
        self.table.on_cursor = self.show_evidence
        self.table.on_open = self.action_open
        self.go(self.location)
        self.app_resume_signal.subscribe(self, self.resumed)
        self.set_interval(1.0, self.tick)
        self.call_after_refresh(self.begin)

    def resumed(self, _: object) -> None:
        """Draw everything again after ctrl+z and fg, which leave the terminal empty.

        Textual draws too, but on a busy machine before the terminal is ready.
        """
        for seconds in (0.1, 1.0):
            self.set_timer(seconds, lambda: self.refresh(layout=True))

    def begin(self) -> None:
        """Start asking, once the first paint is done.

        The feed's thread makes many rows; a key must wait neither for that thread nor for the
        garbage collector to examine everything that was loaded at the start.
        """
        sys.setswitchinterval(0.0002)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self.complete()
        self.feed.start(self.post)
        self.began = True
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
            self.show_evidence()
        self.tick()

    def on_failed(self, message: Failed) -> None:
        self.failed = message.sentence
        self.tick()

    def on_resize(self, event: events.Resize) -> None:
        self.arrange()
        self.call_after_refresh(self.tick)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded and self.is_running:
            self.message = ("", "text")
            self.complete()
            if len(self.screen_stack) == 1:
                self.table.drop_gone()
                if not self.prompt.display:
                    # here and not in the table's own queue: what is typed ahead after `/` must
                    # find the prompt open, or else a name would be taken for commands
                    await self.key_pressed(event.key)
                    return
        await super().on_event(event)

    async def key_pressed(self, key: str) -> None:
        """Do what the list of keys says."""
        if not await self._check_bindings(key, priority=True):
            await self._check_bindings(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide keys that do not belong to this screen."""
        key = self.ACTIONS.get(action)
        if key is None:
            return self.location.view.kind != "page" if action == "sort" else True
        return exists(
            key,
            self.location.view,
            replay=self.feed.replay,
            may_change=self.may_change,
            answered=self.answered,
        )

    # -- keys --------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Leave at once; ask first if a change is being made."""
        if not self.leaving_needs_an_answer():
            self.leave()

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
            self.fill_in(about, self._ask_command)
        elif name == "run":
            self.show_run(int(about))
        else:
            self.go(Location(BY_NAME[name], about), remember=True)

    def action_leave(self) -> None:
        """Clear the filter if there is one, else go back (esc)."""
        if self.location.view.kind != "page" and self.table.state.filter is not None:
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

    def pace(self, seconds: float) -> None:
        """Set the seconds between two rounds."""
        self.feed.pace(seconds)
        self.say(f"every {age_words(seconds)}, or less often where that would cost too much")

    # -- what is typed -----------------------------------------------------------------------

    def action_filter(self) -> None:
        self.prompt.ask("/", self._filter_typed, self._filter_done)

    def _filter_typed(self, text: str) -> None:
        """Filter the table by the typed text, as soon as that is a regular expression."""
        try:
            self.table.state.filter = Filter.parse(text) if text.removeprefix("!") else None
        except re.error as error:
            self.say(f"not a regular expression yet: {error}", "look")
            return
        self.message = ("", "text")
        self.table.settle()
        self.tick()

    def _filter_done(self, text: str | None) -> None:
        """Apply the finished text; esc (None) removes the filter."""
        self._filter_typed(text or "")
        self.tick()

    def action_command(self) -> None:
        self._ask_command()

    def _ask_command(self, begin: str = "") -> None:
        self.prompt.ask(":", self._command_typed, self._command_done, begin)

    def _command_typed(self, text: str) -> None:
        """Show in the status line which words the command may begin with."""
        names = completions(text.split(" ")[0])
        self.say("  ".join(names) if names else "no such command", "dim" if names else "look")

    def _command_done(self, text: str | None) -> None:
        """Run the finished command."""
        self.message = ("", "text")
        word, _, rest = (text or "").strip().partition(" ")
        try:
            self._command(word.lower(), rest.strip())
        except EoctlError as error:
            self.say(error.sentence, "look")
        self.tick()

    def _command(self, word: str, rest: str) -> None:
        """Run a command. Raise UsageError if it is unknown, or its words are wrong."""
        from tui import commands

        if word in BY_NAME:
            self.go(commands.location_of(word, rest), remember=True)
            if rest and not self.location.about:
                self._filter_typed(rest)
        elif word in ("ctx", "context"):
            self.other_cluster(rest)
        elif word == "interval":
            self.pace(commands.interval_of(rest))
        elif word == "theme":
            self.theme = commands.theme_of(rest)
        elif word == "help":
            self.action_help()
        elif word == "explain":
            self.explain(rest)
        elif word in ("q", "quit"):
            self.action_stop()
        elif word:
            raise UsageError(f"no command {visible(word)!r}; ? lists them")

    def other_cluster(self, name: str) -> None:
        """Show another cluster on the same screens (`:ctx`)."""
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
        self.moment = None
        self.forget()
        self.trail.clear()
        self.go(Location(OVERVIEW))
        self.begin()
