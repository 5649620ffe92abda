"""Help pages: an example that the parser takes, what acts above, how to connect below."""

import shlex
import sys
from typing import Any

import pytest

from eoctl import __main__ as program
from eoctl.cli.foreign import COMMANDS
from eoctl.cli.main import run
from eoctl.cli.parser import build
from eoctl.cli.topics import STATUSES, TOPICS
from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.host.extras import PACKAGES
from recovery.errors import Exit
from recovery.selectors import missing, parse_selector


def leaves(branch: Branch, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Leaf]]:
    found: list[tuple[tuple[str, ...], Leaf]] = []
    for name, node in branch.commands.items():
        if isinstance(node, Leaf):
            found.append(((*path, name), node))
        else:
            found += leaves(node, (*path, name))
    return found


def test_each_help_page_has_an_example_that_its_parser_takes() -> None:
    for path, leaf in leaves(TREE):
        words = shlex.split(leaf.example.removeprefix('eval "$(').removesuffix(')"'))
        assert tuple(words[: len(path) + 1]) == ("eoctl", *path)
        command: Any = build(path[-1], leaf)
        context = command.make_context(path[-1], ["--help"], resilient_parsing=True)
        command.make_parser(context).parse_args(words[len(path) + 1 :])  # raises
        page = command.get_help(context)
        assert f"Example: {leaf.example}" in page, "in one line, to be copied"


def test_what_acts_stands_above_and_how_to_connect_below() -> None:
    for path, leaf in leaves(TREE):
        command: Any = build(path[-1], leaf)
        names = [p.opts[0] for p in command.params if p.param_type_name == "option"]
        if "--execute" in names:
            assert names.index("--execute") == 0, path
            assert "--dry-run" in names
        if "--context" in names:
            assert names.index("--context") > len(names) - 7, path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hanging", "here it is `eoctl txn hanging`"),
        ("txn find-hanging", "Did you mean 'hanging'?"),
        ("group", "here it is `eoctl offsets show --group`"),
        ("lso --producer-epoch 3", "the epoch is read from the partition"),
        ("lso --broker-id=1", "every broker is asked"),
        ("nonsense", "No such command 'nonsense' (see"),
        ("txn abort orders:1 --execute --dry-run", "give only one of them"),
    ],
)
def test_words_of_other_tools(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert not out


def test_what_is_named_for_words_of_other_tools_exists() -> None:
    for words in COMMANDS.values():
        node: Any = TREE
        for word in words.split():
            if word.startswith("-"):
                break
            node = node.commands[word]


def test_a_partition_as_brokers_log_it() -> None:
    """It may be a topic: the hint comes only where there is none of that name."""
    [said] = missing([parse_selector("orders-3")], {})
    assert said == "topic orders-3 does not exist; partition 3 of topic orders is written orders:3"
    assert missing([parse_selector("orders-3")], {"orders-3": 1}) == []
    assert missing([parse_selector("orders-3:1")], {}) == ["topic orders-3 does not exist"]


def test_windows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "eoctl: Windows is not supported; run it in WSL 2 (Linux)\n"


def test_help_of_a_command_and_of_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["txn"], ["txn", "abort"]):
        assert run(["help", *words]) == 0
        asked = capsys.readouterr().out
        assert run([*words, "--help"]) == 0
        assert asked == capsys.readouterr().out
    for name, text in TOPICS.items():
        assert run(["help", name]) == 0
        assert capsys.readouterr().out == f"{text}\n"
    assert run(["help", "nonsense"]) == 2
    assert "topics are exit-status, partitions" in capsys.readouterr().err


def test_the_topics_tell_all_statuses_and_extras() -> None:
    assert set(STATUSES) == set(Exit)
    assert all(f"{extra} " in TOPICS["extras"] for extra in PACKAGES)
    names = {leaf.extra for _, leaf in leaves(TREE)} - {None}
    assert names <= set(PACKAGES)
