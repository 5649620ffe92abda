"""What the output can show: its width, colour, and which characters.

One value, made once by the command line from its stdout, and handed to what draws.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

_ASSUMED_WIDTH = 80  # of a terminal that does not tell


@dataclass(frozen=True)
class Screen:
    """width: cells of a line, or None off a terminal. colour: True if ANSI colours may be sent.
    ascii_only: the output's encoding cannot carry every character."""

    width: int | None = None
    colour: bool = False
    ascii_only: bool = False


def screen_of(stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Look at a stream. Colour only on a terminal, with TERM set and not `dumb`, and NO_COLOR unset
    or empty (no-color.org). COLUMNS wins over what the terminal says, as in the shell's own tools.
    """
    ascii_only = (stream.encoding or "ascii").lower().replace("-", "").replace("_", "") != "utf8"
    if not stream.isatty():
        return Screen(ascii_only=ascii_only)
    colour = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") not in ("dumb", "")
    return Screen(_width(stream, environ), colour, ascii_only)


def _width(stream: TextIO, environ: Mapping[str, str]) -> int:
    told = environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told[:6]) > 0:
        return int(told[:6])
    try:
        return os.get_terminal_size(stream.fileno()).columns or _ASSUMED_WIDTH
    except OSError:
        return _ASSUMED_WIDTH
