"""The parser: the tree of commands as Typer's and Click's, each command loaded when it runs."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from eoctl.cli.options import Connection, flattened, remember_before
from eoctl.cli.tree import TREE, Branch, Commands, Leaf
from eoctl.host.extras import need
from recovery.errors import UsageError


class _AsTyped:
    """Takes flags, texts and paths as the parser has them; the rest is Typer's."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; of an option that may be repeated a list."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        declared = param.type_descriptor
        if declared.annotation in (bool, str, list[str]):
            return list(value) if several else value
        if declared.annotation is Path and not several:
            from typer._param_types import coerce_cli_path

            # only a text would be made a path by pydantic; what is there must be readable
            info = declared.parameter_info
            return coerce_cli_path(Path(value), info, path_type=Path, param=param, ctx=ctx)
        param._runtime_param = None  # Typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class _Plain:
    """Reads flags, texts and paths without pydantic, which takes a tenth of a short command.

    With a version of Typer that knows no such attributes this has no effect.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, the one for help among them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if hasattr(param, "get_runtime_param") and hasattr(param, "type_descriptor"):
                param._runtime_param = _AsTyped()
        return params


class PlainCommand(_Plain, TyperCommand):
    """A command. panels: the heading of each option that has one of its own."""

    panels: Mapping[str, str] = {}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options under their headings, a command's own first."""
        sections: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            argument = param.param_type_name == "argument"
            heading = "Arguments" if argument else self.panels.get(param.name, "Options")
            if (row := param.get_help_record(ctx)) is not None:
                sections.setdefault(heading, []).append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class LazyGroup(_Plain, TyperGroup):
    """A group whose help comes from the table; its commands are loaded when they run."""

    branch: Branch

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their one line of help."""
        rows = [(name, c.help) for name, c in self.branch.commands.items()]
        if self.branch is TREE:
            rows.append(("help", "the page of a command, or of a topic: exit-status, acting, ..."))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def build(name: str, node: Leaf | Branch) -> Any:
    """Return the click command of a leaf (its module is loaded) or of a branch (nothing is)."""
    settings: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, **settings)
    if isinstance(node, Leaf):
        module, _, function = node.target.partition(":")
        target = getattr(import_module(f"eoctl.cli.commands.{module}"), function)
        epilog = f"Example: {node.example}" if node.example else None
        flat = flattened(target)
        app.command(name, cls=PlainCommand, epilog=epilog)(flat)
        command: Any = typer.main.get_command(app)
        command.panels = flat.panels  # type: ignore[attr-defined]
        if node.extra is not None:
            command.callback = _with_extra(node.extra, command.callback)
        return command
    is_root = node is TREE
    app = typer.Typer(
        name=name,
        cls=LazyGroup,
        help=node.help,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )
    app.callback()(flattened(_root if is_root else _group))
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    group.branch = node
    group.commands = Commands(node, build)
    return group


def _with_extra(extra: str, callback: Any) -> Any:
    """Return the callback of a command, which refuses if an extra that it needs is missing."""

    def call(**values: Any) -> Any:
        need(extra, "this command")
        return callback(**values)

    return call


def _root(
    connection: Connection,
    version: bool = typer.Option(False, "--version"),
    help_json: bool = typer.Option(False, "--help-json", help="all commands, for programs"),
) -> None:
    if help_json:  # both are answered before the parser runs, where they stand alone
        raise UsageError("is given alone", where="--help-json", remedy="eoctl --help-json")
    del version
    remember_before(connection)


def _group(connection: Connection) -> None:
    remember_before(connection)
