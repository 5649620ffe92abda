"""Keep secret values out of every text by their type, and read them from where they are stored."""

import os
from pathlib import Path
from typing import Any

from recovery.errors import UsageError
from recovery.values import Value


class Confidential(Value):
    """A frozen value that may hold secrets: repr, str and Rich show its type alone."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Secret(Confidential):
    """A password, key or token. Only `reveal()` returns it."""

    _value: str

    def reveal(self) -> str:
        return self._value

    def hidden_in(self, text: str) -> str:
        """Return `text` without the secret: its author may have quoted the secret."""
        return text.replace(self._value, "***") if self._value else text


def resolve(value: str, where: str) -> str:
    """Return the value of `env:NAME`, `file:PATH` (one trailing newline cut), or `value` itself.

    where: the property's name, for the error. Raises UsageError if nothing can be read.
    """
    kind, colon, name = value.partition(":")
    if not colon or not name:
        return value
    if kind == "env":
        if name not in os.environ:
            raise UsageError(f"environment variable {name} is not set", where=where)
        return os.environ[name]
    if kind == "file":
        text = read_file(name, where)
        return text.removesuffix("\n").removesuffix("\r")
    return value


def resolved_if_there(value: str) -> str:
    """Return the value as `resolve` does; "" if the variable or the file is missing here."""
    try:
        return resolve(value, "").strip()
    except UsageError:
        return ""


def read_file(path: str, where: str) -> str:
    """Return the text of a file that a property names. Raises UsageError that names both."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{path} cannot be read: {reason}", where=where) from None
