"""What is typed: a filter after `/`, a command after `:`."""

import re
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.words import age as age_words
from recovery.errors import EoctlError, UsageError
from tui.changing import Changing
from tui.pointing import Pointing
from tui.reading import Reading
from tui.screens.keys import commands_of, completions
from tui.screens.views import BY_NAME, OVERVIEW, Location
from tui.widgets.table_state import Filter
from tui.widgets.themes import instead_of, shown_as

if TYPE_CHECKING:
    from tui.feed.writer import Writer


class Commanding(Reading, Changing, Pointing):
    """The app with its line for filters and commands."""

    def action_stop(self) -> None:
        """Leave at once; ask first if a change is being made."""
        if not self.leaving_needs_an_answer():
            self.leave()

    def pace(self, seconds: float) -> None:
        """Set the seconds between two rounds."""
        self.feed.pace(seconds)
        self.say(f"every {age_words(seconds)}, or less often where that would cost too much")

    def action_filter(self) -> None:
        self.prompt.ask("/", self.filter_by, self._filter_done)

    def filter_by(self, text: str) -> None:
        """Filter the list by this text, as soon as that is a regular expression."""
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
        self.filter_by(text or "")
        self.tick()

    def begin(self) -> None:
        """Start asking (see Dashboard)."""
        raise NotImplementedError

    def action_command(self) -> None:
        self.ask_command()

    def ask_command(self, begin: str = "") -> None:
        self.prompt.ask(":", self._command_typed, self._command_done, begin)

    def _command_typed(self, text: str) -> None:
        """Show in the status line which words the command may begin with."""
        names = completions(text.split(" ")[0], web=self.feed.web)
        self.say("  ".join(names) if names else "no such command", "dim" if names else "look")

    def type_command(self, text: str) -> None:
        """Run a command, or ask for the rest of one that ends with a blank."""
        if text.endswith(" "):
            self.ask_command(text)
        else:
            self._command_done(text)

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

        if word and not any(word in c.words for c in commands_of(web=self.feed.web)):
            raise UsageError(f"no command {visible(word)!r}; ? lists them")
        if word in BY_NAME:
            self.go(commands.location_of(word, rest), remember=True)
            if rest and not self.location.about:
                self.filter_by(rest)
        elif word in ("ctx", "context"):
            self.other_cluster(rest)
        elif word == "interval":
            self.pace(commands.interval_of(rest))
        elif word == "at":
            self.show_at(rest)
        elif word == "theme":
            asked = commands.theme_of(rest)
            self.theme = shown_as(asked, self)
            if self.theme != asked:
                self.say(instead_of(self.theme), "look")
        elif word == "help":
            self.action_help()
        elif word == "explain":
            self.explain(rest)
        elif word in ("q", "quit"):
            self.action_stop()

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
        writer: Writer | None = getattr(self.feed, "writer", None)
        ends = writer.path.name if writer is not None and writer.ended is None else None
        self.feed.stop()
        self.feed, self.frame, self.paused, self.failed = feed, None, False, ""
        self.moment = None
        self.forget()
        self.trail.clear()
        self.go(Location(OVERVIEW))
        self.begin()
        if ends is not None:
            self.say(f"the recording {visible(ends)} ended: it is of one cluster", "look")
