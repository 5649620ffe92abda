"""The commands as they are declared where they run: for pages, and for programs (`--help-json`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eoctl import __version__
from eoctl.cli.parser import build
from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.host.program import shipped


@dataclass(frozen=True)
class Command:
    """A command as its help page shows it. parameters: arguments and options with their help."""

    words: tuple[str, ...]
    leaf: Leaf
    usage: str
    help: str
    parameters: Mapping[str, str]
    declared: tuple[Any, ...]  # the parser's own parameters

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of its options: --output, -o."""
        shown = (p for p in self.declared if not getattr(p, "hidden", False))
        return frozenset(o for p in shown for o in p.opts if o[0] == "-")


def commands(branch: Branch = TREE, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield every command in the order of the tree."""
    for name, node in branch.commands.items():
        words = (*path, name)
        if isinstance(node, Branch):
            yield from commands(node, words)
        else:
            yield command_of(words, node)


def command_of(words: tuple[str, ...], leaf: Leaf) -> Command:
    """Return the command of a leaf; its module is loaded."""
    command: Any = build(words[-1], leaf)
    context = command.make_context(" ".join(("eoctl", *words)), ["-h"], resilient_parsing=True)
    parameters = command.get_params(context)
    records = [p.get_help_record(context) for p in parameters]
    return Command(
        words,
        leaf,
        " ".join(command.get_usage(context).removeprefix("Usage: ").split()),
        command.help or leaf.help,
        {r[0].partition(" <")[0]: r[1] for r in records if r is not None},
        tuple(parameters),
    )


def as_json() -> Mapping[str, object]:
    """Return the tree for programs: groups with their commands, these with their parameters."""
    return {"version": __version__, **_branch("eoctl", TREE, ())}


def _branch(name: str, branch: Branch, path: tuple[str, ...]) -> Mapping[str, object]:
    made = [
        _branch(child, node, (*path, child))
        if isinstance(node, Branch)
        else _leaf(command_of((*path, child), node))
        for child, node in branch.commands.items()
    ]
    return {"name": name, "help": branch.help, "commands": made}


def _leaf(command: Command) -> Mapping[str, object]:
    schema = "-".join(command.words)
    has_rows = (shipped("schemas") / f"{schema}.v1.json").is_file()
    return {
        "name": command.words[-1],
        "command": f"eoctl {command.name}",
        "help": command.help,
        "usage": command.usage,
        "example": command.leaf.example,
        "extra": command.leaf.extra,
        "schema": f"eoctl.{schema}/v1" if has_rows else None,
        "parameters": [_parameter(p) for p in command.declared if not getattr(p, "hidden", False)],
    }


def _parameter(parameter: Any) -> Mapping[str, object]:
    """Return one argument or option. takes: null for a flag."""
    argument = parameter.param_type_name == "argument"
    takes_nothing = not argument and (parameter.is_flag or parameter.count)
    return {
        "names": [] if argument else [*parameter.opts, *parameter.secondary_opts],
        "takes": None if takes_nothing else parameter.metavar,
        "required": parameter.required,
        "repeated": parameter.multiple or parameter.nargs == -1,
        "help": getattr(parameter, "help", None),
    }
