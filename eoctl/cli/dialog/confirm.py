"""The question before a change: on stderr, answered on a terminal, default no."""

import sys

from eoctl.render.sanitise import visible
from recovery.errors import RefusedError


def ask(question: str, word: str) -> bool:
    """Return True if exactly `word` was typed. Raises RefusedError where nobody can be asked."""
    if not sys.stdin.isatty():
        raise RefusedError(
            "not confirmed: stdin is not a terminal", remedy="add --yes to act without a question"
        )
    sys.stderr.write(visible(question, spaces=False) + " ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == word
