"""docs/interface.md is the contract: what it names exists, and what exists is named there.

docs/commands.md and docs/schemas/README.md, which it leads to, hold every option and every field.
"""

import ast
import re

import pytest

from docs.commands import PAGE, Command, commands, page
from docs.generate_schemas import FOLDER, index
from eoctl.cli.options import FORMATS
from eoctl.cli.topics import TOPICS
from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.host.extras import PACKAGES
from recovery.errors import Exit
from tests.docs.contract import (
    ANSWERED_BEFORE_THE_PARSER,
    TEXT,
    command_of,
    named,
    rows,
    spans,
    statuses,
)
from tests.docs.pages import PAGES, ROOT

COMMANDS = {command.name: command for command in commands()}


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


def test_how_each_command_may_end() -> None:
    """What the runs of all tests are held against (`check_status`) follows from what each does."""
    assert statuses().keys() == {*COMMANDS, ANSWERED_BEFORE_THE_PARSER}
    judges = judging() | {"runbook", "lab job", "lab drill"}
    for name, command in COMMANDS.items():
        ends = statuses()[name]
        here = name.startswith("lab ")
        asks = "--bootstrap-server" in command.names and not re.match("context (list|show)", name)
        acts = "--execute" in command.names or name == "jobs cancel"
        assert (Exit.FINDING in ends) == (name in judges), name
        if not here:
            # it asks no cluster, but reads what may be in object storage
            assert (Exit.UNREACHABLE in ends) == (asks or name == "state show"), name
            assert (Exit.UNVERIFIED in ends) == acts, name
            assert (Exit.BUSY in ends) == (name == "check"), name
        assert Exit.REFUSED in ends or not acts, name


def test_the_command_of_a_line() -> None:
    assert command_of(["--bootstrap-server", "b:1", "--timeout=9s", "txn", "list", "-o"]) == (
        "txn list"
    )
    assert command_of(["lso", "orders"]) == "lso"
    assert command_of(["txn", "--help"]) is None
    assert command_of(["nothing"]) is None


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
            node = node.commands.get(word, Branch("", {}))
            if word == ANSWERED_BEFORE_THE_PARSER:
                break
