"""Options that many commands share, each group declared once as a dataclass.

A command takes the dataclass as a parameter; `flattened` gives Typer one option per field.
Connection options may stand before or after the command; after wins over before.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from eoctl.settings.folders import local_path
from recovery.errors import RefusedError, UsageError
from recovery.times import duration

if TYPE_CHECKING:  # loaded when a command runs: `--help` needs none of it
    from eoctl.settings.context import Connect, Context
    from recovery.selectors import Selector

FORMATS = ("table", "wide", "json", "jsonl", "csv", "name")
ADDRESSES = "object storage too"
"""Marks a parameter whose path may be an address of object storage: Annotated[Path, ...]."""


def option(shown: str, text: str | None = None, **more: Any) -> Any:
    """Return an option as a help page shows it: `--count N`, `-w, --watch [S]`; text: its help.

    more: what else Typer takes (min, max, hidden).
    """
    *short, last = shown.split(", ")
    name, _, metavar = last.partition(" ")
    return typer.Option(*short, name, metavar=metavar or None, help=text, **more)


def argument(shown: str, text: str | None = None, **more: Any) -> Any:
    """Return a positional argument as a usage line shows it; text: its help."""
    return typer.Argument(metavar=shown, help=text, **more)


class Ranked:
    """A group of options with a heading of its own in a help page.

    help_rank: its place among the groups; those of a command itself have 1.
    """

    panel: ClassVar[str]
    help_rank: ClassVar[int] = 2


@dataclass(frozen=True, eq=False, repr=False)
class Connection(Ranked):
    """The options that say how to reach the cluster."""

    panel: ClassVar[str] = "Connection"
    help_rank: ClassVar[int] = 4

    context: Annotated[str | None, option("--context NAME", "a cluster of the config file")] = None
    bootstrap_server: Annotated[
        str | None, option("--bootstrap-server HOSTS", "host:port, several with commas")
    ] = None
    command_config: Annotated[
        str | None,
        option("--command-config FILE", "client properties, Java's or librdkafka's"),
    ] = None
    x: Annotated[list[str], option("-X KEY=VALUE", "one more client property")] = field(
        default_factory=list, repr=False
    )
    timeout: Annotated[
        str | None,
        option(
            "--timeout DURATION",
            "limits the command [30s; more where it acts, none for complete logs]",
        ),
    ] = None
    from_: Annotated[str | None, option("--from BUNDLE", "ask a bundle instead of the cluster")] = (
        None
    )

    def over(self, before: "Connection") -> "Connection":
        """Return these options, with gaps filled from `before`."""
        return Connection(
            self.context or before.context,
            self.bootstrap_server or before.bootstrap_server,
            self.command_config or before.command_config,
            [*before.x, *self.x],
            self.timeout or before.timeout,
            self.from_ or before.from_,
        )

    @property
    def connect(self) -> "Connect":
        from eoctl.settings.context import Connect

        return Connect(self.context, self.bootstrap_server, self.command_config, tuple(self.x))

    def seconds(self, default: float | None = 30.0) -> float | None:
        """Return the bound on the whole command."""
        if self.timeout is None:
            return default
        seconds = duration(self.timeout, where="--timeout")
        if seconds <= 0:
            raise UsageError("must be above zero", where="--timeout", remedy="write 30s")
        return seconds

    def one(self) -> "Context":
        """Return the cluster meant. Raises UsageError for several, RefusedError for a bundle."""
        from eoctl.settings.context import resolve

        if self.from_ is not None:
            raise RefusedError(
                "a bundle only answers what was seen when it was made",
                where="--from",
                remedy="run this command on the cluster",
            )
        if self.context and "," in self.context:
            raise UsageError("this command takes one context", where="--context")
        return _warned(resolve(self.connect))

    def bundle(self) -> Path | None:
        """Return the bundle to ask, if one is named. Raises UsageError if a cluster is too."""
        if self.from_ is None:
            return None
        if self.context or self.bootstrap_server or self.command_config or self.x:
            raise UsageError("give a bundle or a cluster, not both", where="--from")
        return local_path(self.from_)

    def several(self, all_contexts: bool) -> list["Context"]:
        """Return the clusters meant: --context a,b or --all-contexts, else the one."""
        from eoctl.settings.context import contexts, load_config, resolve
        from recovery.values import replace

        if all_contexts:
            names = list(contexts(load_config()))
            if not names:
                raise UsageError("no contexts are known", where="--all-contexts")
        elif self.context and "," in self.context:
            names = [name.strip() for name in self.context.split(",") if name.strip()]
            if not names:
                raise UsageError("no context is named", where="--context")
        else:
            return [_warned(resolve(self.connect))]
        if self.bootstrap_server or any(x.strip().startswith("bootstrap.servers") for x in self.x):
            raise UsageError(
                "several contexts have an address each",
                where="--bootstrap-server",
                remedy="name one context",
            )
        return [_warned(resolve(replace(self.connect, context=name))) for name in names]

    def name_in_force(self) -> str | None:
        """Return the context that would be used, or None."""
        from eoctl.settings.context import config_for, context_name

        return context_name(self.connect, config_for(self.connect))


def _warned(context: "Context") -> "Context":
    """Return the context, after its warnings were written to stderr."""
    from eoctl.cli.progress import note

    for sentence in context.warnings:
        note(f"eoctl: warning: {sentence}")
    return context


@dataclass(frozen=True, eq=False, repr=False)
class Format(Ranked):
    """The options for how the answer is written, for commands that run once."""

    panel: ClassVar[str] = "Output"
    help_rank: ClassVar[int] = 3

    output: Annotated[str, option(f"-o, --output {'|'.join(FORMATS)}")] = "table"
    sort_by: Annotated[str | None, option("--sort-by COLUMN", "-COLUMN: descending")] = None
    no_headers: Annotated[bool, option("--no-headers", "without the line of column names")] = False
    columns: Annotated[str | None, option("--columns A,B", "only these columns")] = None
    csv_safe: Annotated[
        bool, option("--csv-safe", "-o csv for a spreadsheet: no cell is run as a formula")
    ] = False

    def __post_init__(self) -> None:
        if self.output not in FORMATS:
            raise UsageError(
                f"no output format {self.output!r}",
                where="-o",
                remedy=f"one of {', '.join(FORMATS)}",
            )

    @property
    def interval(self) -> float | None:
        """Return the seconds between rounds; None: once."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class JsonFormat(Format):
    """The options of `Format` for a command whose answer is read by scripts first."""

    output: Annotated[str, option(f"-o, --output {'|'.join(FORMATS)}")] = "json"


@dataclass(frozen=True, eq=False, repr=False)
class Output(Format):
    """The options for how the answer is written, once or with --watch."""

    watch: Annotated[str | None, option("-w, --watch [S]", "again every S seconds [5]")] = None

    @property
    def interval(self) -> float | None:
        """Return the seconds between rounds; None without --watch."""
        if self.watch is None:
            return None
        text = self.watch if not re.fullmatch(r"[0-9.]+", self.watch) else self.watch + "s"
        seconds = duration(text, where="--watch")
        if seconds < 0.2:
            raise UsageError("must be 0.2 s or more", where="--watch")
        return seconds


AllContexts = Annotated[bool, option("--all-contexts")]


@dataclass(frozen=True, eq=False, repr=False)
class Topics:
    """The option that selects partitions: TOPIC[:P]..., or Kafka's own habits."""

    topics: Annotated[
        list[str] | None, argument("[TOPIC[:P]]...", "orders, orders:3, orders:0,2,5-9, 'orders-*'")
    ] = None
    topic: Annotated[list[str] | None, option("--topic TOPIC", "the same as an option")] = None
    partition: Annotated[str | None, option("--partition P", "for the topics named")] = None
    regex: Annotated[list[str] | None, option("--regex RE", "topics whose full name matches")] = (
        None
    )

    def selectors(self) -> "tuple[Selector, ...]":
        from recovery.selectors import parse_selector, regex_selector

        named = [
            parse_selector(text, partitions=self.partition, where=where)
            for where, texts in ((None, self.topics), ("--topic", self.topic))
            for text in texts or ()
        ]
        if self.partition is not None and not named:
            raise UsageError("no topic is named", where="--partition", remedy="give TOPIC too")
        return (*named, *(regex_selector(text) for text in self.regex or ()))


def flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as Typer can read it: parameters typed with a dataclass become its fields.

    Its `panels` has the heading of each option of a `Ranked` group.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    ranks: dict[str, int] = {}
    panels: dict[str, str] = {}
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        groups[name] = kind
        annotations = get_type_hints(kind, include_extras=True)
        for f in dataclasses.fields(kind):
            default = [] if f.default is dataclasses.MISSING else f.default
            ranks[f.name] = 2
            if issubclass(kind, Ranked):
                ranks[f.name], panels[f.name] = kind.help_rank, kind.panel
            parameters.append(
                inspect.Parameter(
                    f.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=annotations[f.name],
                )
            )
    # arguments first: Typer keeps this order in the usage line, and in the help page
    parameters.sort(key=lambda p: -1 if "Argument" in repr(p.annotation) else ranks.get(p.name, 1))
    addresses = {
        p.name for p in parameters if ADDRESSES in getattr(p.annotation, "__metadata__", ())
    }

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        for name, value in values.items():
            if isinstance(value, Path) and name in addresses:
                from eoctl.stores.storage_address import storage_at

                storage_at(value)
            elif isinstance(value, Path):
                local_path(value)
        for name, kind in groups.items():
            options = kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
            values[name] = options.over(before_command()) if kind is Connection else options
        return function(**values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.panels = panels  # type: ignore[attr-defined]
    del call.__dict__["__wrapped__"]
    return call


_before: list[Connection] = []


def before_command() -> Connection:
    """Return the connection options given before the command's name."""
    return _before[-1] if _before else Connection()


def forget_before() -> None:
    """Called before each run: what one was given is not meant for the next."""
    _before.clear()


def remember_before(connection: Connection) -> None:
    """Called by each group with the options before its command, an outer group's among them."""
    _before.append(connection)
