"""What the quick commands load: `--help` must answer at once, on a jump host as well.

Cases run in processes of their own, which say what they have loaded.
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

# one after the other: what one of them would load alone is loaded then, or was before
EACH = """
import contextlib, io, json, sys
from eoctl.cli.main import run
answers, before = [], set()
for words in json.load(sys.stdin):
    sys.argv = ["eoctl", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        status = run()
    names = {name.partition(".")[0] for name in sys.modules}
    answers.append([status, sorted(names - before)])
    before = names
print(json.dumps(answers))
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
    assert names.isdisjoint({*HEAVY, "msgspec", "asyncio"})


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


@pytest.fixture(scope="module")
def helped() -> dict[tuple[str, ...], tuple[int, set[str]]]:
    """Exit status of `--help` of every command, and the packages that it was the first to load."""
    asked = list(leaves(TREE))
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        input=json.dumps([[*words, "--help"] for words in asked]),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout)
    return {w: (status, set(names)) for w, (status, names) in zip(asked, answers, strict=True)}


@pytest.mark.parametrize("words", list(leaves(TREE)), ids=" ".join)
def test_help_of_a_command_loads_no_client(
    helped: dict[tuple[str, ...], tuple[int, set[str]]], words: tuple[str, ...]
) -> None:
    """Its own modules may be loaded; kafka-python's classes are, once something is asked."""
    status, names = helped[words]
    assert status == 0
    assert names.isdisjoint(set(HEAVY) - {"kafka"})


def test_the_dashboard_paints_first_and_loads_models_then() -> None:
    """Models are a third of its start; rows come with the feed, in a thread of its own."""
    code = "import sys, tui.app, tui.feed.replay; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_line_is_read_without_validators_of_pydantic() -> None:
    """Each option that is a text would have one; they are a tenth of a short command.

    A path, as in `tui --replay FILE`, would load pydantic itself: a quarter of that start.
    """
    code = (
        "import sys; from eoctl.cli.parser import build; from eoctl.cli.tree import TREE\n"
        "c = build('eoctl', TREE).commands['lso'].make_context('lso', ['-X', 'a=b', 't', 'u:1'])\n"
        "print([c.params[n] for n in ('x', 'topics', 'regex', 'output', 'all_')])\n"
        "c = build('eoctl', TREE).commands['tui'].make_context('tui', ['--replay', 'a/./b'])\n"
        "print([c.params[n] for n in ('replay', 'record')])\n"
        "print('typer._adapters' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "[['a=b'], ['t', 'u:1'], (), 'table', False]\n[PosixPath('a/b'), None]\nFalse\n"
    )
