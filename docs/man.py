"""`make man`: the man page eoctl(1), from the commands themselves: `python -m docs.man FILE`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.commands import Command, commands
from eoctl import __version__
from eoctl.cli.topics import STATUSES
from eoctl.cli.tree import TREE


def escaped(text: str) -> str:
    """Text as troff prints it unchanged, on one line."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def page() -> str:
    """The whole page."""
    lines = [
        f'.TH EOCTL 1 "" "eoctl {__version__}"',
        ".SH NAME",
        "eoctl \\- find and fix what holds exactly\\-once back in Kafka",
        ".SH SYNOPSIS",
        ".B eoctl",
        "[connection options] COMMAND [options]",
        ".SH DESCRIPTION",
        escaped(TREE.help),
        "Nothing is changed without",
        ".BR \\-\\-execute .",
        ".SH COMMANDS",
        *(line for command in commands() for line in part(command)),
        ".SH EXIT STATUS",
    ]
    for status, means in STATUSES.items():
        lines += [".TP", str(int(status)), escaped(means)]
    return "\n".join(lines) + "\n"


def part(command: Command) -> Iterator[str]:
    """A part for a command: what it does, its arguments and options, an example."""
    yield f'.SS "{escaped(" ".join(("eoctl", *command.words)))}"'
    yield escaped(command.help)
    for name, text in command.parameters.items():
        yield from (".TP", f".B {escaped(name)}", escaped(text) or "\\&")
    yield from (".PP", "Example:", f".B {escaped(command.leaf.example)}")


def main() -> None:
    """Write the page to the file that is named."""
    [name] = sys.argv[1:]
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
