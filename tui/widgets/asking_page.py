"""A page over the screen with a line in which a word is typed: of a change, of what was started."""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.widgets.lines import Page

Result = TypeVar("Result")


class Asking(ModalScreen[Result]):
    """page: the text. word: hidden until `ask`; what is entered in it is an Input.Submitted."""

    DEFAULT_CSS = """
    Asking { align: center middle; background: $background 60%; }
    Asking Vertical { width: 94%; height: 90%; padding: 1 2; background: $surface;
                      border: round $primary; }
    Asking Page { height: 1fr; }
    Asking Input { height: 1; border: none; padding: 0; background: $panel; display: none; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "step(1)", show=False),
        Binding("up", "step(-1)", show=False),
        Binding("pagedown", "step(10)", show=False),
        Binding("pageup", "step(-10)", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self.page = Page(name=name)
        self.word = Input(id="word", select_on_focus=False, compact=True)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self.page
            yield self.word

    def ask(self, word: str) -> str:
        """Ask for a plan's word; gives the sentence that asks."""
        instruction = f"type {word} to carry it out, esc to leave it"
        self.word.placeholder = instruction
        self.word.display = True
        self.word.focus()
        return instruction

    def action_step(self, step: int) -> None:
        """Scroll."""
        self.page.move(step)
