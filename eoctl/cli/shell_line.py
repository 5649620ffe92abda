"""The unfinished bash command line under the cursor: its words, and how to put one into it.

Readline replaces only part of a word: what follows the last unquoted break character
(COMP_WORDBREAKS: `:` and `=` are among them), or an opening quote. What is inserted is
quoted here: a transactional id is somebody's text, and bash inserts it as it is given.
"""

import re
from dataclasses import dataclass

from eoctl.render import shell
from eoctl.render.sanitise import hidden

DEFAULT_BREAKS = " \t\n\"'@><=;|&(:"
_ANSI_C = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "e": "\x1b", "a": "\a", "b": "\b"}


@dataclass(frozen=True, slots=True)
class Line:
    """words: the finished ones, unquoted. current: the one under the cursor, unquoted.

    kept: the beginning of `current` that stays as it was typed. quote: that which is open
    at the cursor (`'`, `"` or `$'`), or "", or "?" where readline and bash disagree on that.
    """

    words: tuple[str, ...]
    current: str
    kept: str
    quote: str


def parse(text: str, breaks: str = DEFAULT_BREAKS) -> Line:
    """Return the line up to the cursor, split as bash would; nothing in it is expanded."""
    words: list[str] = []
    word: str | None = None
    kept = opened = 0  # characters of `word`: before what is replaced, before the open quote
    quote, position = "", 0
    disagreed = False  # readline takes the \\' within $'...' for its end
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        position += 1
        if not quote and character in " \t\n":
            words += [] if word is None else [word]
            word, kept, disagreed = None, 0, False
            continue
        word = word or ""
        if not quote and (character in "'\"" or character + following == "$'"):
            quote = "$'" if character == "$" else character
            position += character == "$"
            opened = len(word)
        elif quote and character == quote[-1]:
            quote = ""
        elif quote == "$'" and (match := _ANSI_C.match(text, position - 1)):
            word += _unescaped(match.group(1))
            disagreed = disagreed or match.group(1) == "'"
            position = match.end()
        elif character == "\\" and (not quote or (quote == '"' and following in '"\\$`')):
            word += following
            position += 1
        else:
            word += character
            if not quote and character in breaks:
                kept = len(word)
    current = word or ""
    stays = current[: opened if quote else kept]
    quote = "?" if disagreed else quote
    return Line(tuple(map(_text, words)), _text(current), _text(stays), quote)


def _text(word: str) -> str:
    """Join the bytes that escapes gave one by one."""
    return word.encode(errors="surrogateescape").decode(errors="surrogateescape")


def _unescaped(escape: str) -> str:
    digits, base = (escape[1:], 16) if escape[0] == "x" else (escape, 8)
    try:
        return bytes([int(digits, base) & 0xFF]).decode(errors="surrogateescape")
    except ValueError:
        return _LETTERS.get(escape, escape)


def inserted(line: Line, value: str) -> str | None:
    """Return the text that bash must insert at the cursor to make the word `value`.

    None where that is impossible: `value` does not begin with what stays, or holds what cannot
    stand in the quote that is open. An open quote is closed by readline itself.
    """
    if line.quote == "?" or not value.startswith(line.kept):
        return None
    rest = value[len(line.kept) :]
    if line.quote == "":
        return shell.command([rest]) if rest else ""
    if line.quote == "$'":
        return _octal(rest)
    forbidden = "'" if line.quote == "'" else '"\\$`!'
    if any(hidden(rest)) or any(character in forbidden for character in rest):
        return None
    return rest


def _octal(text: str) -> str | None:
    try:
        return "".join(
            "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
            if flag or character in "'\\"
            else character
            for character, flag in zip(text, hidden(text), strict=True)
        )
    except UnicodeEncodeError:
        return None
