"""A page over the screen with a line for typing a word, about a change or a run."""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from recovery.change.plan import TRIES
from tui.widgets.lines import Line, Page, fit

Result = TypeVar("Result")


class Asking(ModalScreen[Result]):
    """page: the text. word: hidden until `ask`; entering it sends an Input.Submitted.

    wrong: how many wrong words were typed.
    """

    DEFAULT_CSS = """
    Asking { align: center middle; background: $background 60%; }
    Asking Vertical { background: $surface; border: round $primary; }
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
        self.box = Vertical()
        self.word = Input(id="word", select_on_focus=False, compact=True)
        self.wrong = 0

    def compose(self) -> ComposeResult:
        with self.box:
            yield self.page
            yield self.word

    def show(self, make: Callable[[int], Sequence[Line]], title: Callable[[int], Line]) -> None:
        """Show a page in a box as large as its text (see Page.show)."""
        self.page.show(make, title)
        self.on_resize()

    def on_resize(self) -> None:
        asked = self.word.display
        widest = len(self.word.placeholder) + 1 if asked else 0
        fit(self.box, self.page, rows=int(asked), widest=widest)

    def ask(self, word: str) -> str:
        """Ask for a plan's word; return the sentence that asks."""
        instruction = f"type {word} to carry it out, esc to leave it"
        self.word.placeholder = instruction
        self.word.display = True
        self.word.focus()
        self.on_resize()
        return instruction

    def ask_again(self, word: str) -> str | None:
        """Keep the question after a wrong word; return what it says, None: no more may be typed."""
        self.wrong += 1
        left = TRIES - self.wrong
        if left <= 0:
            return None
        more = "1 more try" if left == 1 else f"{left} more tries"
        instruction = f"not confirmed, nothing was sent: type {word} ({more})"
        self.word.value = ""
        self.word.placeholder = instruction
        self.on_resize()
        return instruction

    def action_step(self, step: int) -> None:
        """Scroll."""
        self.page.move(step)
