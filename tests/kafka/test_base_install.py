"""The base install: without numpy and pyarrow the same answers, or a sentence that names `data`."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, environment, eoctl, said
from tests.kafka.conftest import MakeTopic

MOVES = {
    "collected_at",
    "samples",
    "apart_ms",
    "left_ms",
    "observed",
    "created",
    "expires",
    "sha256",
}
"""What differs from one look to the next, whoever looks."""


def without_data(
    commands: Sequence[Sequence[str]], lab: Lab | None = None, cache: Path | None = None
) -> list[tuple[int, str, str]]:
    """Run commands in a process that cannot import what the extra `data` brings."""
    server = ["--bootstrap-server", lab.bootstrap_servers] if lab else []
    asked = [[*words] if words[0] == "tui" else [*server, *words] for words in commands]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kafka.base_only", json.dumps(asked)],
        capture_output=True,
        text=True,
        env=environment(**({"EOCTL_CACHE_DIR": str(cache)} if cache else {})),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(status, out, err) for status, out, err in json.loads(done.stdout.splitlines()[-1])]


def still(value: Any) -> list[str]:
    """The value as text, a field a line, without what moves: times, and ages within sentences."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {k: v for k, v in value.items() if k not in MOVES and not k.endswith("seconds")}
            return {k: without(v) for k, v in kept.items()}
        return [without(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(without(value), indent=1, ensure_ascii=False)
    return re.sub(r"\b\d+(\.\d+)?( ?(ms|s|m|h|min)\b)", "#", text).splitlines()


def kept(cache: Path) -> dict[str, bytes]:
    """What a cache holds of the log of transactions, by the partition's file."""
    return {p.name: p.read_bytes() for p in cache.glob("transaction-state/*/*.log")}


@pytest.mark.long
def test_the_base_commands_answer_as_with_numpy(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, tmp_path: Path
) -> None:
    lab = start_lab(LabSpec(name="base"))  # where nothing ends between two answers
    name, calm = topic(lab, 2), topic(lab)
    [orphan] = break_(lab, "orphan", topic=name, partition=0, hold=False)
    [live] = break_(lab, "open", topic=name, partition=1, hold=False, timeout_ms=600_000)
    break_(lab, "zombie", topic=calm)
    of_orphan = ("--pid", str(orphan.producer_id), "--start-offset", str(orphan.start_offset))
    assert orphan.transactional_id is not None
    assert live.transactional_id is not None
    commands = [
        ["lso", name, calm],
        ["lso"],
        ["status", *FAST],
        ["why", f"{name}:0", *FAST],
        ["why", f"{name}:1", *FAST],
        ["txn", "list", "--pattern", f".*{name}.*"],
        ["txn", "describe", live.transactional_id],
        ["txn", "hanging", *FAST],
        ["txn", "history", orphan.transactional_id],
        ["txn", "history", "--pid", str(live.producer_id)],
        ["txn", "abort", f"{name}:0", *of_orphan, *FAST],
        ["txn", "fence", live.transactional_id, *FAST],
        ["producers", name, "--resolve"],
        ["offsets", "show"],
        ["check", *FAST],
    ]
    as_json = [[*words, "-o", "json"] for words in commands]
    caches = [tmp_path / "with", tmp_path / "without"]

    env = environment(EOCTL_CACHE_DIR=str(caches[0]))
    expected = [eoctl(*words, lab=lab, env=env) for words in as_json]
    cold = without_data(as_json, lab, caches[1])
    # and with what numpy kept: the first of them that reads the log of transactions
    warm = without_data(as_json[3:4], lab, caches[0])
    for i, (words, ran) in enumerate(zip(as_json, expected, strict=True)):
        for status, out, err in [cold[i], *(warm if i == 3 else ())]:
            assert status == ran.status, (words, err, ran.stderr)
            assert status not in (2, 5, 70), (words, err)
            if not ran.stdout:  # refused, in a sentence
                assert (out, said(err)) == ("", said(ran.stderr)), words
                continue
            changed = list(unified_diff(still(ran.json), still(json.loads(out)), n=0))
            assert not changed, words
    assert any(r["verdict"] == "orphan" for r in expected[7].rows)
    assert expected[8].rows, "a history"
    assert kept(caches[0]) == kept(caches[1]) != {}

    bundle = str(tmp_path / "incident.eob")
    server = ["--bootstrap-server", lab.bootstrap_servers]
    act = ["txn", "abort", f"{name}:0", *of_orphan, *FAST, "--execute", "--yes"]
    made, opened, why, shown, acted = without_data(
        [
            [*server, "bundle", "create", bundle, *FAST],
            ["bundle", "open", bundle],
            ["why", f"{name}:0", "--from", bundle, "-o", "json"],
            ["tui", lab.bootstrap_servers],
            [*server, *act],
        ],
        cache=caches[1],
    )
    assert (made[0], opened[0]) == (0, 0), (made, opened)
    assert still(json.loads(why[1])["rows"]) == still(
        eoctl("why", f"{name}:0", "--from", bundle, "-o", "json").rows
    )
    assert f"{name}:0" in shown[1]
    assert acted[0] == 0, acted
    [row] = eoctl("lso", f"{name}:0", "-o", "json", lab=lab).rows
    assert row["held"] == 0


def needs_data(branch: Branch, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The commands that the tree says need the extra `data`."""
    found: list[tuple[str, ...]] = []
    for name, node in branch.commands.items():
        if isinstance(node, Leaf):
            found += [(*path, name)] * (node.extra == "data")
        else:
            found += needs_data(node, (*path, name))
    return found


def test_a_command_that_needs_data_says_so_before_it_begins() -> None:
    asked = needs_data(TREE)
    assert len(asked) >= 16
    lines = [[*path, *required(path)] for path in asked]
    sentence = "eoctl: this command needs the extra 'data', which is not installed"
    for line, (status, out, err) in zip(lines, without_data(lines), strict=True):
        assert (status, out) == (2, ""), (line, err)
        assert err.startswith(sentence), (line, err)
        assert "pip install 'eoctl[data]'" in err
    [(status, out, _)] = without_data([["restart", "plan", "--help"]])
    assert status == 0
    assert out.startswith("Usage: ")


def required(path: Sequence[str]) -> list[str]:
    """Words for all that the parser requires of this command."""
    from eoctl.cli.parser import build

    command: Any = build("eoctl", TREE)
    for name in path:
        command = command.commands[name]
    words: list[str] = []
    for p in command.params:
        if p.required:
            words += [p.opts[0], "x"] if p.param_type_name == "option" else [__file__]
    return words
