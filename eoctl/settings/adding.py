"""Writing a context to the config file: `context add`. Secrets are elsewhere unless requested."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from eoctl.settings.context import ConfigFile, contexts
from eoctl.settings.folders import config_path
from recovery.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def new_name(name: str, config: ConfigFile) -> str:
    """Return the name, if it is free and can be typed everywhere. Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a context",
            remedy="use letters, digits, `.`, `_` and `-`",
        )
    if name in contexts(config):
        raise UsageError(
            f"there is a context {name!r} already",
            where=str(config_path() or "config file"),
            remedy="choose another name, or change that one in the file",
        )
    return name


def keep_secret(name: str, secret: str) -> str:
    """Write a secret to a file that only its user can read, and return `file:PATH`.

    Raises UsageError if it cannot be written, and if the file exists.
    """
    path = _file().parent / f"{name}.password"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secret + "\n")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    return f"file:{path}"


def table(name: str, properties: Mapping[str, str], flags: Mapping[str, object]) -> str:
    """Return the context as a table of TOML; flags: keys that are no client properties."""
    lines = [f"[contexts.{_word(name)}]"]
    lines += [f"{key} = {_value(value)}" for key, value in flags.items() if value]
    if properties:
        lines += ["", f"[contexts.{_word(name)}.properties]"]
        lines += [f"{_value(key)} = {_value(value)}" for key, value in properties.items()]
    return "\n".join(lines) + "\n"


def append(text: str) -> Path:
    """Add a table to the end of the config file, which keeps all its content.

    A new file can be read by its user only. Raises UsageError.
    """
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(gap + text)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot be written: {reason}", where=str(path)) from None
    return path


def _file() -> Path:
    path = config_path()
    if path is None:
        raise UsageError(
            "there is no place for a config file",
            remedy="set HOME, XDG_CONFIG_HOME or EOCTL_CONFIG",
        )
    return path


def _word(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    """Return a text or a boolean in TOML, whose strings are JSON's but for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
