"""The question before a change: on stderr, answered on a terminal, default no."""

import sys

from eoctl.render.sanitise import visible
from recovery.errors import RefusedError


def ask(question: str, word: str) -> bool | None:
    """Return True if exactly `word` was typed, False for another one, None for none (end of input).

    Raises RefusedError where nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise RefusedError(
            "not confirmed: stdin is not a terminal", remedy="add --yes to act without a question"
        )
    sys.stderr.write(visible(question, spaces=False) + " ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    return typed == word if typed else None
