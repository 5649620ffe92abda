"""The one place that runs a command, prints its errors and knows the exit status.

Nothing below prints an error or ends the process. No traceback reaches the terminal.
"""

import io
import os
import re
import select
import sys
import traceback
from pathlib import Path

import typer

from eoctl import __version__
from eoctl.cli.options import forget_before
from eoctl.cli.parser import build
from eoctl.cli.tree import TREE
from eoctl.host.extras import extra_of, missing
from eoctl.settings.folders import full_disk
from eoctl.stores.unfinished import unfinished_notice
from recovery.errors import EoctlError, Exit


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
        if words == ["--help-json"]:
            from eoctl.cli.command_tree import as_json
            from eoctl.render.envelope import json_line

            print(json_line(as_json()))
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
