"""The keys for reading: moving, sorting, JSON, equal commands, copying, writing, help."""

import datetime
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from tui.layout import Layout
from tui.screens.keys import SUMMARY_OF, UNSORTED
from tui.screens.views import FINDING, GROUP, GROUPS, TIMELINE, Location
from tui.widgets import overlays
from tui.widgets.heat import HeatMap
from tui.widgets.lines import Line
from tui.widgets.overlays import Overlay
from tui.widgets.table import Table

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


class Reading(Layout):
    """The app with the keys that read what is shown. moment: kept to be compared with another."""

    moment: "Snapshot | None" = None
    copied_words = "copied (also printed at the end)"

    def action_move(self, step: int) -> None:
        self.scrolled.move(step)

    def action_page(self, step: int) -> None:
        self.scrolled.move(step * self.scrolled.room)

    def action_first(self) -> None:
        self.scrolled.to(0)

    def action_last(self) -> None:
        part = self.scrolled
        part.to(len(part.state.order) if isinstance(part, Table) else part.length)

    def action_turn(self, step: int) -> None:
        part = self.scrolled
        (part if isinstance(part, HeatMap) else self.table).turn(step)

    def action_select(self) -> None:
        self.table.select()
        self.tick()

    def action_sort(self, letter: str) -> None:
        """Sort by the column of this letter, or in the order the rows arrived."""
        state = self.table.state
        if letter == UNSORTED:
            state.sort, state.descending = None, False
        elif not state.sort_by(letter):
            self.say(f"no column here has the letter {letter}; s shows them")
            return
        self.table.settle()
        self.tick()

    def action_sort_menu(self) -> None:
        """Show the columns and their letters."""

        def chosen(letter: str | None) -> None:
            if letter is not None:
                self.action_sort(letter)

        self.push_screen(overlays.sort_menu(self.table.state.data.columns), chosen)

    def action_summary(self) -> None:
        """Count what this screen lists; on what is counted, go back."""
        view = self.location.view
        if view in SUMMARY_OF:
            self.go(Location(SUMMARY_OF[view]), remember=True)
        else:
            [listed] = [v for v, counted in SUMMARY_OF.items() if counted is view]
            self.go(self.trail.pop() if self.trail else Location(listed))

    def action_json(self) -> None:
        """Show the cursor's row, or the page's answer, as JSON."""
        from tui.screens import pages

        sources: Sequence[object] = self.answer.rows if self.answer else ()
        if self.row is not None and self.row.source is not None:
            sources = [self.row.source]
        texts = [line for source in sources for line in pages.json_lines(source)]
        if not texts:
            self.say("there is no row")
            return
        make = partial(_uncut, texts, "text")
        self.push_screen(Overlay("JSON", make, copies="\n".join(texts)))

    def action_records(self) -> None:
        """Show the records of the cursor's transaction, or the page's, and those that wait."""
        from tui.feed.asking import LiveFeed
        from tui.screens.records import Records, request_of

        if not isinstance(self.feed, LiveFeed):
            self.say("a bundle holds no record's content", "look")
            return
        judged = self.row.judged if self.row is not None else next(iter(self.holders), None)
        request = request_of(judged) if judged is not None else None
        if request is None:
            self.say("no open transaction is known here whose records could be shown", "look")
            return
        self.push_screen(Records(self.feed.context, request))

    def action_trace(self) -> None:
        """Open the timeline of the cursor's transaction, or the page's; of a group its commits."""
        if self.location.view is GROUPS:
            self._open_group()
            return
        judged = self.row.judged if self.row is not None else next(iter(self.holders), None)
        name = judged.transactional_id if judged is not None else None
        if name is None:
            self.say("no transactional id is known here; enter shows the partition's log", "look")
            return
        self.go(Location(TIMELINE, name), remember=True)

    def _open_group(self) -> None:
        from tui.screens.groups import group_of

        if self.row is None:
            self.say("there is no group")
        else:
            self.go(Location(GROUP, group_of(self.row)), remember=True)

    def action_moment(self) -> None:
        """Keep what is shown; at another moment show what differs from what was kept."""
        from tui.board.difference import difference_page

        now, kept = self.snapshot, self.moment
        if now is None:
            self.say("there is no answer yet")
        elif kept is None or kept.taken_at == now.taken_at:
            self.moment = now
            self.say("this moment is kept; m at another one shows the difference", "key")
        else:
            self.moment = None
            self.push_screen(Overlay("Two moments", partial(difference_page, kept, now)))

    def action_equal(self) -> None:
        """Show commands to paste; none of them changes anything."""
        from tui.equal_commands import equal_commands
        from tui.panes import as_named

        connection, place = self.snapshot.argv if self.snapshot else (), self.place
        if self.feed.replay and self.frame is not None:
            place = as_named(place, self.frame)
        commands = equal_commands(place, self.answer, self.row, self.runs, connection)

        def make(width: int) -> Sequence[Line]:
            lines: list[Line] = []
            for text in commands:
                lines += [*_uncut([text], "key", width), ()]
            return lines

        title = "Equal commands; none changes anything"
        self.push_screen(Overlay(title, make, copies=commands[-1]))

    def action_copy(self) -> None:
        """Copy the underlined cell, names as the cluster has them; of a finding its command."""
        on_page = self.location.view is FINDING
        text = self._command_of_finding() if on_page else self._cell()
        if text is None:
            self.say("this finding has no command" if on_page else "there is no row")
            return
        self.copied = text
        self.copy_to_clipboard(self.copied)
        self.say(f"{self.copied_words}: {visible(self.copied)}", "key")

    def _cell(self) -> str | None:
        row = self.table.current
        if row is None:
            return None
        column = self.table.state.column
        value = row.sort[column]
        return value if isinstance(value, str) else row.cells[column].strip()

    def _command_of_finding(self) -> str | None:
        from recovery.doctor.doctor_rows import DoctorRow

        row = self.answer.rows[0] if self.answer is not None else None
        return row.command if isinstance(row, DoctorRow) else None

    def action_write(self) -> None:
        """Keep the rows as CSV, or the page as text, in a file named after the screen and now."""
        now = datetime.datetime.fromtimestamp(self.feed.now() / 1000, datetime.UTC)
        stem = f"eoctl-{self.location.view.name}-{now:%Y%m%dT%H%M%SZ}"
        if self.location.view.kind == "page":
            self.keep(f"{stem}.txt", self.page.text() + "\n")
        else:
            self.keep(f"{stem}.csv", self._csv())

    def keep(self, name: str, text: str) -> None:
        """Write a new file in the working directory."""
        path = Path(name)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.say(f"cannot be written ({error.strerror}): {path.absolute()}", "act")
            return
        self.say(f"written: {path.absolute()}", "good")

    def _csv(self) -> str:
        """Return the rows of the table as shown, without their sparklines."""
        from eoctl.render.envelope import csv_lines

        state = self.table.state
        columns = [(i, c) for i, c in enumerate(state.data.columns) if c.kind != "spark"]
        rows = [row for key in state.order if (row := state.row(key)) is not None]
        lines = csv_lines(
            [{c.key: row.cells[i] or None for i, c in columns} for row in rows],
            [c.key for _, c in columns],
        )
        return "".join(f"{line}\n" for line in lines)

    def action_help(self) -> None:
        """Show every key and command, and what the verdict and the word at the cursor mean."""
        from tui.screens import pages

        judged = [self.row.source] if self.row is not None else self.holders
        make = partial(
            pages.help_page,
            self.location.view,
            replay=self.feed.replay,
            may_change=self.may_change,
            web=self.feed.web,
            explains=pages.words_of(judged, self._words_at_cursor()),
        )
        self.push_screen(Overlay("Help", lambda width: make(width=width)))

    def _words_at_cursor(self) -> Sequence[str]:
        """Return the underlined cell and its column's title."""
        if self.row is None:
            return ()
        state = self.table.state
        return self.row.cells[state.column].strip(), state.data.columns[state.column].title

    def explain(self, word: str) -> None:
        """Show what a word means, as `eoctl explain` does."""
        from tui.screens import pages

        try:
            pages.explain_page(word, 80)
        except EoctlError as error:
            self.say(visible(error.sentence), "look")
            return
        self.push_screen(Overlay("Explain", partial(pages.explain_page, word)))


def _uncut(texts: Sequence[str], role: str, width: int) -> list[Line]:
    """Return lines without cutting any: longer ones continue on the next line."""
    return [
        ((text[n : n + width], role),) for text in texts for n in range(0, len(text) or 1, width)
    ]
