"""The line for typing a filter or a command. tab completes, esc leaves, enter submits.

The app hands it its keys one by one and not through the line's own queue: of keys that are typed
ahead, those after an Enter must not arrive before the line is closed, nor the text of the next
line be taken for commands.
"""

from collections.abc import Callable, Sequence

from textual import events
from textual.widgets import Input

Typed = Callable[[str], None]
OnAnswer = Callable[[str | None], None]


class Prompt(Input):
    """Hidden until `ask`. typed: called with each change; done: with the text, or None for esc.

    on_close: called before `done`, to restore the focus. completions: of the first word of a
    command.
    """

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0; background: $surface; }
    Prompt:focus { border: none; }
    """

    def __init__(
        self, on_close: Callable[[], None], completions: Callable[[str], Sequence[str]]
    ) -> None:
        super().__init__(id="prompt", select_on_focus=False, compact=True)
        self._sign = ""
        self._on_close = on_close
        self._completions = completions
        self._typed: Typed = lambda text: None
        self._done: OnAnswer = lambda text: None

    def ask(self, sign: str, typed: Typed, done: OnAnswer, value: str = "") -> None:
        """Show the line. sign: its first character, `/` or `:`."""
        self._sign, self._typed, self._done = sign, typed, done
        self.value = sign + value
        self.display = True
        self.cursor_position = len(self.value)
        # at once: the next key is already on its way
        self.screen.set_focus(self)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.check()
        if self.display:
            self._typed(self.value[1:])

    async def take(self, event: events.Key) -> bool:
        """Take a key, and return True if the line knows it."""
        if event.key == "escape":
            self._close(None)
        elif event.key == "enter":
            self._close(self.value[1:])
        elif event.key == "tab":
            self._complete()
        elif event.is_printable:
            await self._on_key(event)
        else:
            return False
        return True

    def _complete(self) -> None:
        word = self.value[1:]
        names = self._completions(word) if self._sign == ":" and " " not in word else ()
        if names:
            self.value = f":{names[0]} "
            self.cursor_position = len(self.value)

    def check(self) -> None:
        """Close the line if its sign was deleted."""
        if self.display and not self.value.startswith(self._sign):
            self._close(None)

    def leave(self) -> None:
        """Close the line: what is filtered by stays, a command is not run."""
        self._close(self.value[1:] if self._sign == "/" else None)

    def _close(self, text: str | None) -> None:
        if not self.display:
            return
        self.display = False
        self._on_close()
        self._done(text)
