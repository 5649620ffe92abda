"""The commands as they are, for pages: `make schemas` writes docs/commands.md, `make man` eoctl(1).

What people type is declared where it runs; these pages only read it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from docs.generate_schemas import ENVELOPES
from eoctl.cli.dialog.acting import Execute
from eoctl.cli.main import build
from eoctl.cli.options import Connection, Format, flattened
from eoctl.cli.tree import TREE, Branch, Leaf

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


@dataclass(frozen=True)
class Command:
    """A command as its help page tells it. parameters: arguments and options with their help."""

    words: tuple[str, ...]
    leaf: Leaf
    usage: str
    help: str
    parameters: Mapping[str, str]
    names: frozenset[str]  # of its options: --output, -o

    @property
    def name(self) -> str:
        return " ".join(self.words)


def commands(branch: Branch = TREE, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield every command in the order of the tree."""
    for name, node in branch.commands.items():
        words = (*path, name)
        if isinstance(node, Branch):
            yield from commands(node, words)
            continue
        command: Any = build(name, node)
        context = command.make_context(" ".join(("eoctl", *words)), ["-h"], resilient_parsing=True)
        parameters = command.get_params(context)
        records = [p.get_help_record(context) for p in parameters]
        yield Command(
            words,
            node,
            " ".join(command.get_usage(context).removeprefix("Usage: ").split()),
            command.help or node.help,
            {r[0].partition(" <")[0]: r[1] for r in records if r is not None},
            frozenset(
                o
                for p in parameters
                if not getattr(p, "hidden", False)
                for o in p.opts
                if o[0] == "-"
            ),
        )


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
