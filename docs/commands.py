"""The commands as they are, for pages: `make schemas` writes docs/commands.md, `make man` eoctl(1).

What people type is declared where it runs; these pages only read it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from docs.generate_schemas import ENVELOPES
from eoctl.cli.command_tree import Command as Command
from eoctl.cli.command_tree import commands as commands
from eoctl.cli.dialog.acting import Execute
from eoctl.cli.options import Connection, Format, flattened

PAGE = Path(__file__).with_name("commands.md")
SHARED = {
    "Acting": Execute,
    "Output": Format,
    "Connection": Connection,
}
"""Options that many commands have, each group declared once."""
HEAD = """\
# Every command and option

Made by `make schemas` from the commands themselves: what `eoctl COMMAND --help` shows. How they go
together is in [interface.md](interface.md), and the fields of every row in
[schemas](schemas/README.md).
"""


def shared() -> Mapping[str, Mapping[str, str]]:
    """Return the options of each group of SHARED with their help, by the group's name."""

    def options(kind: type[Any]) -> Mapping[str, str]:
        def command(options: Any) -> None: ...

        command.__annotations__ = {"options": kind}
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(flattened(command))
        made: Any = typer.main.get_command(app)
        context = made.make_context("eoctl", ["--help"], resilient_parsing=True)
        return dict(p.get_help_record(context) for p in made.params)

    return {name: options(kind) for name, kind in SHARED.items()}


def page() -> str:
    """Return docs/commands.md."""
    groups = shared()
    lines = [HEAD]
    for name, options in groups.items():
        lines += [f"## {name} options", "", *_table(options), ""]
    for command in commands():
        lines += [f"## eoctl {command.name}", "", command.help, "", f"`{command.usage}`", ""]
        rest = {k: v for k, v in command.parameters.items() if not k.startswith("-h,")}
        have = [name for name, options in groups.items() if options.items() <= rest.items()]
        for name in have:
            rest = {k: v for k, v in rest.items() if groups[name].get(k) != v}
        lines += [*_table(rest), ""] if rest else []
        links = ", ".join(f"[{name.lower()}](#{name.lower()}-options)" for name in have)
        lines += [f"With the options of {links}.", ""] if links else []
        if (schema := "-".join(command.words)) in ENVELOPES:
            lines += [f"Rows: [eoctl.{schema}/v1](schemas/{schema}.v1.json).", ""]
        lines += [f"Example: `{command.leaf.example}`", ""]
    return "\n".join(lines)


def _table(parameters: Mapping[str, str]) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    for name, text in parameters.items():
        yield f"| `{_cell(name)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
