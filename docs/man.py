"""`make man`: the man page eoctl(1), from the commands themselves: `python -m docs.man FILE`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eoctl import __version__
from eoctl.cli.main import build
from eoctl.cli.topics import STATUSES
from eoctl.cli.tree import TREE, Branch


def escaped(text: str) -> str:
    """Text as troff prints it unchanged, on one line."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def page() -> str:
    """The whole page."""
    lines = [
        f'.TH EOCTL 1 "" "eoctl {__version__}"',
        ".SH NAME",
        "eoctl \\- find and mend what holds exactly\\-once back in Kafka",
        ".SH SYNOPSIS",
        ".B eoctl",
        "[connection options] COMMAND [options]",
        ".SH DESCRIPTION",
        escaped(TREE.help),
        "Nothing is changed without",
        ".BR \\-\\-execute .",
        ".SH COMMANDS",
        *commands(TREE, ("eoctl",)),
        ".SH EXIT STATUS",
    ]
    for status, means in STATUSES.items():
        lines += [".TP", str(int(status)), escaped(means)]
    return "\n".join(lines) + "\n"


def commands(branch: Branch, path: tuple[str, ...]) -> Iterator[str]:
    """A part for each command: usage, what it does, its arguments and options, an example."""
    for name, node in branch.commands.items():
        words = (*path, name)
        if isinstance(node, Branch):
            yield from commands(node, words)
            continue
        command: Any = build(name, node)
        context = command.make_context(name, ["--help"], resilient_parsing=True)
        yield f'.SS "{escaped(" ".join(words))}"'
        yield escaped(command.help or node.help)
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                yield from (".TP", f".B {escaped(record[0])}", escaped(record[1]) or "\\&")
        yield from (".PP", "Example:", f".B {escaped(node.example)}")


def main() -> None:
    """Write the page to the file that is named."""
    [name] = sys.argv[1:]
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
