"""docs/interface.md is the contract: what it names exists, and what exists is named there.

docs/commands.md and docs/schemas/README.md, which it leads to, hold every option and every field.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from docs.commands import PAGE, Command, commands, page
from docs.generate_schemas import FOLDER, index
from eoctl.cli.options import FORMATS
from eoctl.cli.topics import TOPICS
from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.host.extras import PACKAGES
from recovery.errors import Exit
from tests.docs.pages import PAGES, ROOT

TEXT = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
COMMANDS = {command.name: command for command in commands()}
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


def test_the_commands_are_those_that_exist() -> None:
    said = {name for row in rows("Commands") for name, _ in named(row[0])}
    assert said == {*COMMANDS, ANSWERED_BEFORE_THE_PARSER}


def positionals(command: Command, said: str) -> list[str]:
    """The words that are neither options nor their values."""
    values = {o: " " in p for p in command.parameters for o in re.findall(r"--?[\w-]+", p)}
    left: list[str] = []
    words = iter(re.sub(r"[\[\]]|\.\.\.", "", said).split())
    for word in words:
        if not word.startswith("-"):
            left.append(word)
        elif values[word]:
            next(words)
    return left


def test_what_a_command_takes_is_what_is_said() -> None:
    for row in rows("Commands"):
        for name, said in named(row[0]):
            if name == ANSWERED_BEFORE_THE_PARSER:
                continue
            command = COMMANDS[name]
            unknown = set(re.findall(r"--[\w-]+", said)) - command.names
            assert unknown == set(), name
            taken = " ".join(p for p in command.parameters if not p.startswith("-"))
            if not said.startswith("-"):
                assert len(positionals(command, said)) == len(taken.split()), (name, said, taken)


def test_every_option_and_every_field_of_a_row_is_on_its_page() -> None:
    """Else: `make schemas`."""
    whole = page()
    assert PAGE.read_text(encoding="utf-8") == whole
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index()
    for command in COMMANDS.values():
        part = whole.partition(f"\n## eoctl {command.name}\n")[2].partition("\n## ")[0]
        groups = set(re.findall(r"\(#(\w+)-options\)", part))
        shared = [
            whole.partition(f"\n## {g.capitalize()} options\n")[2].partition("\n## ")[0]
            for g in groups
        ]
        told = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", "\n".join([part, *shared])))
        assert command.names - {"-h", "--help"} <= told, command.name


def judging() -> set[str]:
    """The commands whose answers are made with `judging=True`, by their schemas."""
    calls = (
        node
        for path in (ROOT / "eoctl").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Answer"
    )
    found = set()
    for call in calls:
        values = {k.arg: k.value for k in call.keywords}
        if ast.unparse(values.get("judging", ast.Constant(False))) == "True":
            schema = values.get("schema") or call.args[0]
            assert isinstance(schema, ast.Constant), ast.unparse(call)
            found.add(str(schema.value).replace("-", " ", 1))
    return found


def test_exit_statuses() -> None:
    assert {int(row[0]) for row in rows("Exit status")} == {int(e) for e in Exit}


@pytest.mark.parametrize("begin", ["Judging commands", "What changes a cluster or a store"])
def test_lists_of_commands_in_sentences(begin: str) -> None:
    sentence = TEXT.partition(f"\n{begin} (")[2].partition(")")[0]
    acting = {name for name, command in COMMANDS.items() if "--execute" in command.names}
    expected = judging() if begin.startswith("Judging") else acting
    assert {name for name, _ in named(sentence)} == expected


def test_topics_formats_and_extras() -> None:
    [row] = [row for row in rows("Commands") if row[0].startswith("`help")]
    assert row[1].partition("topics: ")[2].split(", ") == list(TOPICS)
    assert [spans(row[0])[0] for row in rows("Output")] == list(FORMATS)
    assert {spans(row[0])[0] for row in rows("What must be installed")} == {*PACKAGES, "all"}


@pytest.mark.parametrize("where", PAGES, ids=lambda where: where.stem)
def test_no_page_names_a_command_that_does_not_exist(where) -> None:  # type: ignore[no-untyped-def]
    for span in re.findall(r"`(eoctl [^`]+)`", where.read_text(encoding="utf-8")):
        node: Branch | Leaf = TREE
        for word in span.split()[1:]:
            if not isinstance(node, Branch) or not re.fullmatch(r"[a-z]+", word):
                break
            assert word in {*node.commands, ANSWERED_BEFORE_THE_PARSER}, f"{where}: {span}"
            node = node.commands.get(word, Branch(""))
            if word == ANSWERED_BEFORE_THE_PARSER:
                break
