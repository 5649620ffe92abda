"""What eoctl uses of its libraries beyond their public names: a version that changes it fails here.

Typer: how a parameter's value is coerced (`_runtime_param`), which makes a short command a tenth
quicker. kafka-python: a bare package `kafka` in which its message classes work, so that its client
is not loaded.
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eoctl.cli.parser import build
from eoctl.cli.tree import TREE

ROOT = Path(__file__).parents[3]


def test_typer_asks_our_reader_of_flags_and_texts() -> None:
    """Else commands still run, a tenth slower: nothing but this would notice."""
    command: Any = build("lso", TREE.commands["lso"])
    context = command.make_context("lso", ["orders", "--all"], resilient_parsing=True)
    readers = {type(p.get_runtime_param()).__name__ for p in command.get_params(context)}
    assert "_AsTyped" in readers
    assert context.params["topics"] == ["orders"]


def test_the_planted_package_makes_messages_without_the_client() -> None:
    """In a process of its own: one request and its answer are made, and no client is loaded."""
    code = (
        "import sys; from eoctl.kafka.connection import messages as m; "
        "r = m.MetadataRequest(topics=[]); r.API_VERSION = 12; "
        "r.with_header(correlation_id=1, client_id='x'); assert len(r.encode(header=True)) > 10; "
        "assert m.response_class(r).__name__.startswith('MetadataResponse'); "
        "print(*(n for n in sys.modules if n.startswith('kafka.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert loaded == {"errors", "protocol", "util"}


def test_kafka_python_is_pinned() -> None:
    """The planted package fits one version: another is tried by hand first."""
    pinned = f'"kafka-python=={version("kafka-python")}"'
    assert pinned in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
