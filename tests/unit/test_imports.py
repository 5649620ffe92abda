"""What the quick commands load: `--help` must answer at once, on a jump host as well.

Each case runs in an interpreter of its own, which says what it has loaded at its end.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from eoctl.cli.tree import TREE, Branch, Leaf

HEAVY = (
    "confluent_kafka",
    "kafka",
    "pyspark",
    "textual",
    "sqlalchemy",
    "pyarrow",
    "numpy",
    "pandas",
    "rich",
    "kazoo",
    "cryptography",
)

PROBE = """
import json, sys
sys.argv = ["eoctl", *sys.argv[1:]]
from eoctl.cli.main import run
status = run()
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(*words: str) -> tuple[int, set[str]]:
    """Exit status of `eoctl WORDS`, and the top-level packages in memory after it."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True
    )
    status, names = json.loads(done.stdout.splitlines()[-1])
    return status, set(names)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["txn", "--help"], ["lab", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    status, names = loaded(*words)
    assert status == 0
    assert "typer" in names or words == ["--version"]
    assert names.isdisjoint(HEAVY)


def test_no_words_at_all_is_wrong_usage_and_shows_help() -> None:
    status, names = loaded()
    assert status == 2
    assert names.isdisjoint(HEAVY)


def leaves(branch: Branch, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, node in branch.commands.items():
        if isinstance(node, Leaf):
            yield (*path, name)
        else:
            yield from leaves(node, (*path, name))


@pytest.mark.parametrize("words", list(leaves(TREE)), ids=" ".join)
def test_help_of_a_command_loads_no_client(words: tuple[str, ...]) -> None:
    """Its own modules may be loaded; kafka-python's classes are, once something is asked."""
    status, names = loaded(*words, "--help")
    assert status == 0
    assert names.isdisjoint(set(HEAVY) - {"kafka"})
