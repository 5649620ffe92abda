"""The mouse on the fixed lines: it presses the key that is shown there, or moves in a recording."""

from textual import events

from tui.layout import Layout
from tui.screens.keys import KEYS
from tui.screens.views import numbered
from tui.widgets.lines import SLIDER

TABS = 1  # their line of the head


class Pointing(Layout):
    """The app with tabs, keys and a recording's time axis for the mouse."""

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Close the line that is typed if the mouse is pressed on a panel."""
        if not self.prompt.region.contains(event.screen_x, event.screen_y):
            self.prompt.leave()

    def head_touched(self, line: int, part: int, role: str, share: float) -> None:
        """Open the tab, or show the moment of a recording, that is at this part of the head."""
        if role == SLIDER:
            self.scrub(share)
        elif line == TABS and part < len(views := numbered(web=self.feed.web)):
            self._press(str(views[part].number))

    def foot_touched(self, line: int, part: int, role: str, share: float) -> None:
        """Press the key whose name, or whose word, is at this part of the last line."""
        shown = self.foot.lines[0][part - part % 2][0].strip()
        key = next((k for k in KEYS if k.shown == shown), None)
        if key is not None:
            self._press(key.keys[0])

    def _press(self, key: str) -> None:
        self.prompt.leave()  # before the key, which it would take for a letter
        self.post_message(events.Key(key, None))

    def show_at(self, text: str) -> None:
        """Show what a recording has of a time (`:at`). Raises UsageError."""
        from tui.commands import number_at

        number = number_at(text, self.frame.times if self.frame is not None else ())
        self.paused = True
        self.feed.seek_to(number)

    def scrub(self, share: float) -> None:
        """Show the snapshot that is this far along a recording."""
        if self.frame is not None and self.frame.position is not None:
            self.paused = True
            self.feed.seek_to(round(share * (self.frame.position[1] - 1)))
