"""The one place that runs a command, prints its errors and knows the exit status.

Nothing below prints an error or ends the process. No traceback reaches the terminal.
"""

import io
import os
import re
import select
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from eoctl import __version__
from eoctl.cli.options import Connection, flattened, forget_before, remember_before
from eoctl.cli.tree import TREE, Branch, Commands, Leaf
from eoctl.host.extras import extra_of, missing, need
from eoctl.settings.folders import full_disk
from eoctl.stores.unfinished import unfinished_notice
from recovery.errors import EoctlError, Exit


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


def _root(connection: Connection, version: bool = typer.Option(False, "--version")) -> None:
    del version  # answered before the parser runs
    remember_before(connection)


def _group(connection: Connection) -> None:
    remember_before(connection)


def run(argv: list[str] | None = None) -> int:
    """Run `eoctl ARGV`; the exit status."""
    forget_before()
    if sys.stdout is None:  # closed from the start (`>&-`)
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(getattr(sys.stdout, "buffer", None), io.FileIO):  # PYTHONUNBUFFERED
        # what it cannot write is lost then, and with it that this was the matter
        encoding, errors, number = sys.stdout.encoding, sys.stdout.errors, sys.stdout.fileno()
        buffered = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffered, encoding, errors)
    try:
        status = _run(watch_words(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except OSError as error:
        # or what is still unwritten fails once more when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return Exit.OK  # the reader (`| head`) has seen enough
        _say(f"stdout cannot be written: {error.strerror}")
        return Exit.INCOMPLETE
    return status


def _run(words: list[str]) -> int:
    try:
        if words == ["--version"]:
            from eoctl.host.versions import report

            print(report())
            return Exit.OK
        if words[:1] == ["help"]:
            if len(words) == 2 and words[1] not in TREE.commands:
                from eoctl.cli.topics import topic

                print(topic(words[1]))
                return Exit.OK
            words = [*words[1:], "--help"]
        if words[:1] not in (["journal"], ["completion"]) and (notice := unfinished_notice()):
            _say(notice)
        result = build("eoctl", TREE).main(words, prog_name="eoctl", standalone_mode=False)
        if result == Exit.INTERRUPTED:  # the parser's own answer to Ctrl-C
            raise KeyboardInterrupt
        return result if isinstance(result, int) else Exit.OK
    except EoctlError as error:
        _say(error.sentence)
        return error.exit_status
    except typer.TyperException as error:
        # the parser's own: unknown option, missing argument, no arguments at all
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return Exit.USAGE
        context = getattr(error, "ctx", None)
        hint = f" (see `{context.command_path} --help`)" if context else ""
        sentence = error.format_message().rstrip(".")
        if "Did you mean" not in sentence and (known := _elsewhere(words, sentence)) is not None:
            sentence = f"{sentence.partition(' Did you')[0]}; {known}"
        _say(sentence + hint)
        return Exit.USAGE
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted")
        return Exit.INTERRUPTED
    except (Exception, SystemExit) as error:  # the latter: the parser's answer to a closed pipe
        if (failure := _stdout_failure()) is not None:
            raise failure from None
        if (full := full_disk(error)) is not None:
            _say(full.sentence)
            return full.exit_status
        if (extra := extra_of(error)) is not None:
            _say(missing(extra, "this").sentence)
            return Exit.USAGE
        _say(f"an internal error of eoctl; please report it with {_report(words)}")
        return Exit.INTERNAL


def _elsewhere(words: list[str], sentence: str) -> str | None:
    """Return what another tool's word is called here, if the parser did not know that word."""
    from eoctl.cli.foreign import COMMANDS, OPTIONS

    for word in words:
        option = word.partition("=")[0]
        if sentence.endswith(f": {option}") and option in OPTIONS:
            return OPTIONS[option]
        if f"'{word}'" in sentence and word in COMMANDS:
            return f"here it is `eoctl {COMMANDS[word]}`"
    return None


def _say(sentence: str) -> None:
    from eoctl.render.sanitise import visible

    print(f"eoctl: {visible(sentence, spaces=False)}", file=sys.stderr)


def _stdout_failure() -> OSError | None:
    """Return why stdout takes no more, or None: a broken pipe may also be one to a broker."""
    try:
        sys.stdout.flush()
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except io.UnsupportedOperation:  # no file at all
        return None
    except OSError as error:
        return error
    gone = any(events & select.POLLERR for _, events in poll.poll(0))
    return BrokenPipeError() if gone else None


def _report(words: list[str]) -> str:
    """Write what happened to a file; its path, or the last line where none can be written."""
    from eoctl.kafka.connection.property_names import SECRET_KEY
    from eoctl.settings.folders import state_dir
    from eoctl.stores.journal_files import redacted

    happened = traceback.format_exc()
    for key, _, value in (word.partition("=") for word in words):
        if value and SECRET_KEY.search(key):
            happened = happened.replace(value, "(hidden)")
    text = f"eoctl {__version__}\nPython {sys.version}\n{redacted(words)}\n\n{happened}"
    try:
        folder = state_dir() / "reports"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{os.getpid()}-{os.urandom(4).hex()}.txt"
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            Path(path).chmod(0o600)
            file.write(text)
    except (OSError, EoctlError):
        return happened.strip().splitlines()[-1]
    return str(path)


def watch_words(words: list[str]) -> list[str]:
    """Add the number that `--watch` and `-w` may lack: the parser wants one."""
    result: list[str] = []
    for position, word in enumerate(words):
        if word == "--":
            return result + words[position:]
        result.append(word)
        following = words[position + 1] if position + 1 < len(words) else ""
        if word in ("-w", "--watch") and not re.fullmatch(r"[0-9][0-9.a-z]*", following):
            result.append("5")
    return result
