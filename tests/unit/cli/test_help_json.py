"""`eoctl --help-json`: the tree of commands for programs is the tree that people type."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from docs.commands import commands
from docs.generate_schemas import ENVELOPES
from eoctl.cli.main import run

Node = Mapping[str, Any]


def leaves(node: Node) -> Iterator[Node]:
    for child in node["commands"]:
        yield from leaves(child) if "commands" in child else [child]


def test_it_has_every_command_with_its_options_and_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help-json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    found = {leaf["command"]: leaf for leaf in leaves(tree)}
    assert list(found) == [f"eoctl {command.name}" for command in commands()]
    schemas = {leaf["schema"] for leaf in found.values()} - {None}
    assert schemas == {
        f"eoctl.{'-'.join(c.words)}/v1" for c in commands() if "-".join(c.words) in ENVELOPES
    }
    for command in commands():
        given = found[f"eoctl {command.name}"]["parameters"]
        assert {n for p in given for n in p["names"]} >= command.names
    [abort] = [p for p in found["eoctl txn abort"]["parameters"] if "--pid" in p["names"]]
    assert (abort["takes"], abort["repeated"]) == ("N", False)
    [everything] = [p for p in found["eoctl lso"]["parameters"] if p["names"] == ["--all"]]
    assert everything["takes"] is None


def test_it_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help-json", "status"]) == 2
    assert capsys.readouterr().err.startswith("eoctl: --help-json: is given alone")
