"""Screens shown over another for a moment: help, JSON, a command to copy, the sort menu."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from eoctl.render.tables import Column
from tui.widgets.lines import Line, Page, fit


class Overlay(ModalScreen[str | None]):
    """A page over the screen. keys: those that close it; the one pressed is its result."""

    DEFAULT_CSS = """
    Overlay { align: center middle; background: $background 60%; }
    Overlay #over { background: $surface; border: round $primary; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss(None)", "close", show=False),
        Binding("j,down", "step(1)", show=False),
        Binding("k,up", "step(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("g,home", "end(0)", show=False),
        Binding("G,end", "end(1)", show=False),
        Binding("c", "copy", show=False),
    ]

    def __init__(
        self,
        title: str,
        make: Callable[[int], Sequence[Line]],
        *,
        keys: str = "",
        copies: str | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._make = make
        self._keys = keys
        self._copies = copies
        self.page = Page(name="over")

    def compose(self) -> ComposeResult:
        yield self.page

    def on_mount(self) -> None:
        hint = "c copies, esc closes" if self._copies else "esc closes"
        self.page.show(self._make, lambda width: ((self._title, "title"), (f"   {hint}", "dim")))
        self.on_resize()
        self.page.focus()

    def on_resize(self) -> None:
        fit(self.page, self.page)

    def on_key(self, event: events.Key) -> None:
        if event.character and event.character.upper() in self._keys:
            event.stop()
            event.prevent_default()
            self.dismiss(event.character.upper())

    def action_step(self, step: int) -> None:
        self.page.move(step)

    def action_page(self, step: int) -> None:
        self.page.move(step * self.page.room)

    def action_end(self, last: int) -> None:
        self.page.to(self.page.length if last else 0)

    def action_copy(self) -> None:
        if self._copies is not None:
            self.app.copy_to_clipboard(self._copies)
            self.page.show(
                self._make,
                lambda width: (
                    (self._title, "title"),
                    ("   sent to the terminal's clipboard; else select it here", "dim"),
                ),
            )


def sort_menu(columns: Sequence[Column]) -> Overlay:
    """Return the menu in which a column's letter is pressed."""
    shown = [c for c in columns if c.letter]
    lines: list[Line] = [
        ((f"  {c.letter}  ", "key"), (c.title or c.key.upper(), "text")) for c in shown
    ]
    lines.append((("  U  ", "key"), ("as it was: the worst first", "text")))
    letters = "".join(c.letter for c in shown) + "U"
    return Overlay("Sort by", lambda width: lines, keys=letters)
