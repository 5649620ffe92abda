"""Write commands to paste: an argument list as one printable line for a POSIX shell.

Others choose transactional ids, and people paste them at 03:00. Plain words stay bare, others get
single quotes, and text with hidden characters in `$'...'` (bash, zsh, ksh, busybox, POSIX 2024).
"""

import re
from collections.abc import Sequence

from eoctl.render.sanitise import hidden

# zsh would expand a leading =.
_BARE = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")


def command(argv: Sequence[str]) -> str | None:
    """Return the line that a shell splits into exactly argv; nothing in it is ever expanded or run.

    None if no line can: a program accepts neither NUL nor half of a surrogate pair (but surrogates
    with which Python represents undecodable bytes stand for those bytes).
    """
    words = [_word(argument) for argument in argv]
    return None if None in words else " ".join(word for word in words if word is not None)


def _word(argument: str) -> str | None:
    if _BARE.fullmatch(argument):
        return argument
    if "\0" in argument:
        return None
    flags = hidden(argument)
    if not any(flags):
        return "'" + argument.replace("'", "'\"'\"'") + "'"
    try:
        argument.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return None
    # Quotes and backslashes are octal too: a shell that does not know $'...' must see one plain
    # quoted word, not the end of a quotation. Three digits, or a digit that follows would count.
    return (
        "$'"
        + "".join(
            _octal(character) if flag or character in "'\\" else character
            for character, flag in zip(argument, flags, strict=True)
        )
        + "'"
    )


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
