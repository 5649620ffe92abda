"""docs/interface.md as data: its tables, the commands that a text names, how each may end."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from eoctl.cli.tree import TREE, Branch
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
ANSWERED_BEFORE_THE_PARSER = "help"


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head, as cells."""
    below = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", below, re.M)
    assert table, heading
    lines = table[0].splitlines()[2:]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def spans(text: str) -> list[str]:
    """What stands between backticks, as it is read."""
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", text)]


def named(text: str) -> Iterator[tuple[str, str]]:
    """Commands that a text names and what it says after their words.

    A span without a group is of the group before it: `restart plan`, `apply`.
    """
    group: list[str] = []
    name = ""
    for span in spans(text):
        words = span.split()
        if words[0].startswith("-"):
            yield name, span
            continue
        before = TREE.commands.get(group[0]) if group else None
        if isinstance(before, Branch) and words[0] in before.commands:
            words = [*group, *words]
        node = TREE.commands.get(words[0])
        group = words[:1] if isinstance(node, Branch) else []
        depth = len(group) + 1
        name = " ".join(words[:depth])
        yield name, " ".join(words[depth:])


@cache
def statuses() -> Mapping[str, frozenset[int]]:
    """The exit statuses of each command."""
    always, of_each = re.search(
        r"^Every command may end with ((?:.+\n)+?)\n((?:\|.*\n)+)", TEXT, re.M
    ).groups()  # type: ignore[union-attr]
    of_all = {int(number) for number in re.findall(r"\d+", always)}
    found: dict[str, frozenset[int]] = {}
    for line in of_each.splitlines()[2:]:
        named_ones, said = line.strip("|").split("|")
        beyond = {int(number) for number in re.findall(r"\d+", said.partition(";")[0])}
        for name, _ in named(named_ones):
            assert name not in found, name
            found[name] = frozenset(of_all | beyond)
    return found


def command_of(words: Sequence[str]) -> str | None:
    """Return the command that is meant by `eoctl WORDS`; None: a help page, or none at all."""
    node, name = TREE, []
    left = iter(words)
    for word in left:
        if word in ("-h", "--help", "--version"):
            return None
        if word.startswith("-"):  # before the command all others take a value
            if "=" not in word:
                next(left, None)
            continue
        if word not in node.commands:
            return None
        name.append(word)
        below = node.commands[word]
        if not isinstance(below, Branch):
            return " ".join(name)
        node = below
    return None


def check_status(words: Sequence[str], status: int) -> None:
    """Fail if `eoctl WORDS` may not end so. A process that a signal killed is no command's end."""
    name = command_of(words)
    if name is not None and status >= 0:
        assert status in statuses()[name], f"docs/interface.md: {name} never ends with {status}"
