"""`completion SHELL`: the script for a shell, and what may follow at the cursor.

The scripts ask this same command on every Tab. Its answer: `words`, `nospace` or `files`, then
one word a line, quoted for the shell. It takes a second at most and says nothing else.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated, Any

from eoctl.cli.options import FORMATS, Connection, argument, option
from eoctl.cli.shell_line import DEFAULT_BREAKS, Line, inserted, parse
from recovery.errors import EoctlError, UsageError
from recovery.quoting import quoted

SECONDS = 0.65  # with Python's own start a second; or $EOCTL_COMPLETION_SECONDS
CLUSTER_SHARE = 0.75  # of them, for a cluster that is asked
MOST_WORDS = 1000
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9._:@%+,/-][A-Za-z0-9._:@%+,/=-]*")

SCRIPT = """\
# Completion of eoctl for bash. In ~/.bashrc:  eval "$(eoctl completion bash)"
_eoctl() {
    local word how=
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ -z $how ]]; then how=$word; else COMPREPLY+=("$word"); fi
    done < <("$1" completion bash --line "${COMP_LINE:0:COMP_POINT}" \\
        --breaks "$COMP_WORDBREAKS" </dev/null 2>/dev/null)
    case $how in
        files) compopt -o default 2>/dev/null ;;
        nospace) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _eoctl eoctl
"""
ZSH = """\
#compdef eoctl
# Completion of eoctl for zsh. In ~/.zshrc, after compinit:  eval "$(eoctl completion zsh)"
_eoctl() {
    local how
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh \\
        --line "${(j: :)words[1,CURRENT-1]} ${PREFIX}" </dev/null 2>/dev/null)}")
    how=$found[1]
    shift found
    case $how in
        files) _files ;;
        nospace) compadd -Q -S '' -- $found ;;
        words) compadd -Q -- $found ;;
    esac
}
compdef _eoctl eoctl
"""
FISH = """\
# Completion of eoctl for fish. In ~/.config/fish/config.fish:  eoctl completion fish | source
function __eoctl
    set -l found (command eoctl completion fish --line (commandline -cp) </dev/null 2>/dev/null)
    if test "$found[1]" = files
        __fish_complete_path (commandline -ct)
    else if test (count $found) -gt 1
        printf '%s\\n' $found[2..-1]
    end
end
complete -c eoctl -f -a '(__eoctl)'
"""
SCRIPTS = {"bash": SCRIPT, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, argument("bash|zsh|fish")],
    line: Annotated[str | None, option("--line", hidden=True)] = None,
    breaks: Annotated[str, option("--breaks", hidden=True)] = DEFAULT_BREAKS,
) -> int:
    """Print the completion script: eval "$(eoctl completion bash)"."""
    if shell not in SCRIPTS:
        known = ", ".join(SCRIPTS)
        raise UsageError(f"eoctl has no completion for {quoted(shell)}", remedy=f"one of {known}")
    if line is None:
        sys.stdout.write(SCRIPTS[shell])
        return 0
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _seconds())
    typed = parse(line, breaks if shell == "bash" else "")  # only bash splits words at `:` and `=`
    try:
        offered = offers(typed)
    except EoctlError:
        return 0
    if offered.how == "files":
        print("files")
        return 0
    words = (
        inserted(typed, word) if shell == "bash" else _plain(word)
        for word in offered.words
        if word.startswith(typed.current)
    )
    offered_words = [word for word in words if word is not None][:MOST_WORDS]
    print("\n".join([offered.how, *offered_words]))
    return 0


def _plain(word: str) -> str | None:
    """Return a word that needs no quotes in any shell; None: it would, and is not offered."""
    return word if _NEEDS_NO_QUOTES.fullmatch(word) else None


def _seconds() -> float:
    try:
        return max(0.1, float(os.environ["EOCTL_COMPLETION_SECONDS"]))
    except (KeyError, ValueError):
        return SECONDS


def _give_up(number: int, frame: FrameType | None) -> None:
    os._exit(0)


@dataclass(frozen=True, slots=True)
class Offers:
    """The words possible at the cursor. how: `words`, `nospace` (one may go on) or `files`."""

    words: Iterable[str] = ()
    how: str = "words"


@dataclass(slots=True)
class Typed:
    """The line as far as it was typed: the command, its options with values, what comes next."""

    command: Any
    values: dict[str, list[str]] = field(default_factory=dict)
    arguments: int = 0
    expects: Any = None
    only_arguments: bool = False

    def option(self, word: str) -> Any:
        """Return the click option of this spelling, or None."""
        for parameter in self.command.params:
            if word in getattr(parameter, "opts", ()) and word.startswith("-"):
                return parameter
        return None

    def take(self, word: str) -> None:
        """Take one finished word."""
        if self.expects is not None:
            self.values.setdefault(self.expects.name, []).append(word)
            self.expects = None
        elif word.startswith("-") and word != "-" and not self.only_arguments:
            name, equals, value = word.partition("=")
            option = self.option(name)
            self.only_arguments = word == "--"
            if option is not None and not option.is_flag:
                if equals:
                    self.values.setdefault(option.name, []).append(value)
                else:
                    self.expects = option
        elif word in getattr(self.command, "commands", ()):
            self.command = self.command.commands[word]
        else:
            self.arguments += 1

    @property
    def argument(self) -> Any:
        """Return the click argument that a further word is for, or None."""
        arguments = [p for p in self.command.params if p.param_type_name == "argument"]
        for position, parameter in enumerate(arguments):
            if position == self.arguments or parameter.nargs == -1:
                return parameter
        return None


def offers(line: Line) -> Offers:
    """Return what fits at the cursor. Raises EoctlError where nothing can be known."""
    from eoctl.cli.main import watch_words
    from eoctl.cli.parser import build
    from eoctl.cli.tree import TREE

    typed = Typed(build("eoctl", TREE))
    for word in watch_words(list(line.words[1:])):
        typed.take(word)
    if typed.expects is not None:
        return _values(typed, typed.expects, line.current)
    if line.current.startswith("-") and not typed.only_arguments:
        name, equals, value = line.current.partition("=")
        option = typed.option(name) if equals else None
        if option is None:
            return Offers(_options(typed.command))
        after = _values(typed, option, value)
        return Offers((f"{name}={word}" for word in after.words), after.how)
    if hasattr(typed.command, "commands"):
        return Offers(sorted(typed.command.commands))
    argument = typed.argument
    return Offers() if argument is None else _values(typed, argument, line.current)


def _options(command: Any) -> list[str]:
    """Every long spelling, and the short ones that have none."""
    options = []
    for parameter in command.params:
        spellings = [word for word in parameter.opts if word.startswith("-")]
        long = [word for word in spellings if word.startswith("--")]
        if not getattr(parameter, "hidden", False):
            options += long or spellings
    return sorted(options)


def _values(typed: Typed, parameter: Any, current: str) -> Offers:
    values = VALUES.get(f"{parameter.param_type_name} {parameter.name}")
    return Offers() if values is None else values(typed, current)


def _after_comma(current: str, words: Iterable[str]) -> Iterable[str]:
    done = current[: current.rfind(",") + 1]
    return [done + word for word in words]


def _contexts(typed: Typed, current: str) -> Offers:
    from eoctl.settings.context import contexts, load_config

    return Offers(_after_comma(current, sorted(contexts(load_config()))))


def _states(typed: Typed, current: str) -> Offers:
    from eoctl.operations.inspect.lists import STATES

    # states may be typed in any case
    return Offers(s.lower() if current and current.islower() else s for s in STATES)


def _verdicts(typed: Typed, current: str) -> Offers:
    from recovery.diagnose.diagnosis import ORDER

    return Offers(sorted(ORDER))


def _runbooks(typed: Typed, current: str) -> Offers:
    from eoctl.render.runbook_pages import names

    return Offers(names())


def _labs(typed: Typed, current: str) -> Offers:
    from eoctl.lab.cluster import lab_names

    return Offers(lab_names())


def _kinds(typed: Typed, current: str) -> Offers:
    from eoctl.lab.breaks import KINDS

    return Offers(sorted(KINDS))


def _names(typed: Typed) -> Any:
    from eoctl.operations.inspect.completion import names

    def last(name: str) -> str | None:
        return typed.values.get(name, [None])[-1]

    connection = Connection(
        last("context"),
        last("bootstrap_server"),
        last("command_config"),
        typed.values.get("x", []),
    )
    return names(connection.one(), CLUSTER_SHARE * _seconds())


def _topics(typed: Typed, current: str) -> Offers:
    topics = _names(typed).topics
    topic, colon, _ = current.partition(":")
    if not colon:
        return Offers(
            name for name in sorted(topics) if current.startswith("_") or name[:2] != "__"
        )
    numbers = map(str, range(topics.get(topic, 0)))
    return Offers(_after_comma(current, numbers) if "," in current else _pairs(topic, numbers))


def _pairs(topic: str, numbers: Iterable[str]) -> Iterable[str]:
    return (f"{topic}:{number}" for number in numbers)


def _topic_names(typed: Typed, current: str) -> Offers:
    return Offers(sorted(_names(typed).topics))


def _transactional_ids(typed: Typed, current: str) -> Offers:
    return Offers(_names(typed).transactional_ids)


def _files(typed: Typed, current: str) -> Offers:
    return Offers(how="files")


# "option" or "argument" and the name of the function's parameter
VALUES: Mapping[str, Callable[[Typed, str], Offers]] = {
    "option context": _contexts,
    "option output": lambda typed, current: Offers(FORMATS),
    "option state": _states,
    "option topic": _topic_names,
    "option verdict": _verdicts,
    "option outcome": lambda typed, current: Offers(("commit", "abort")),
    "option command_config": _files,
    "option plan": _files,
    "option textfile": _files,
    "option ivy_settings": _files,
    "option name": _labs,
    "option transactional_id": _transactional_ids,
    "argument topics": _topics,
    "argument where": _topics,
    "argument words": _topics,
    "argument ids": _transactional_ids,
    "argument transactional_id": _transactional_ids,
    "argument file": _files,
    "argument name": _contexts,
    "argument page": _runbooks,
    "argument kind": _kinds,
    "argument shell": lambda typed, current: Offers(SCRIPTS),
}
