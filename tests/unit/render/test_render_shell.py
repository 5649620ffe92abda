"""Pasted commands: real shells split them back, or at least run nothing of them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eoctl.render.shell import command

BASH = shutil.which("bash") or "bash"
ARGUMENT = st.text(
    st.sampled_from(
        "ab0 '\"\\$`!#&;|<>(){}[]*?~=-\n\r\t\x01\x1b\x7f\x9b\u202e\u2028\ufeff\u0301é漢😀"
    )
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=40,
)
NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    "\x1b'; touch pwned #",
    "\x1b\\'; touch pwned #",
    "a\nb; touch pwned",
    "\x1b$(touch pwned)",
    "$'\\x1b'",
    "\x0112",
    "-n",
    "",
    "!!",
    "~",
    "=ls",
    "\udcff",
]


def split_by(shell: str, line: str, folder: Path | None = None) -> list[str]:
    """What a program started by this shell would get; surrogates carry undecodable bytes."""
    run = subprocess.run(
        [shell, "-c", f"printf '%s\\0' {line}"],
        capture_output=True,
        check=False,
        timeout=20,
        cwd=folder,
    )
    return run.stdout.decode(errors="surrogateescape").split("\0")[:-1]


@settings(max_examples=150, deadline=None)
@given(st.lists(ARGUMENT, min_size=1, max_size=8))
@example(NASTY)
def test_bash_gets_exactly_the_arguments(argv: list[str]) -> None:
    line = command(argv)
    assert line is not None
    assert line.isprintable()
    assert split_by(BASH, line) == argv


@pytest.mark.parametrize("shell", ["bash", "dash", "sh", "zsh", "ksh"])
def test_no_shell_runs_anything_of_it(shell: str, tmp_path: Path) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    for text in NASTY:
        line = command([text])
        assert line is not None
        assert len(split_by(found, line, tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ARGUMENT, min_size=1, max_size=8))
def test_a_shell_without_ansi_quotes_still_sees_one_word_each(argv: list[str]) -> None:
    dash = shutil.which("dash")
    if dash is None:
        pytest.skip("no dash here")
    line = command(argv)
    assert line is not None
    assert len(split_by(dash, line)) == len(argv)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["eoctl", "txn", "abort", "orders:3", "--pid", "4001"],
            "eoctl txn abort orders:3 --pid 4001",
        ),
        (["a b"], "'a b'"),
        (["it's"], "'it'\"'\"'s'"),
        ([""], "''"),
        (["=x"], "'=x'"),
        (["-X", "a=b"], "-X a=b"),
        (["漢字"], "'漢字'"),
        (["\x1b[2J"], r"$'\033[2J'"),
        (["a\nb'\\"], r"$'a\012b\047\134'"),
        (["\u202e"], r"$'\342\200\256'"),
        (["\udcff"], r"$'\377'"),
    ],
)
def test_command(argv: list[str], line: str) -> None:
    assert command(argv) == line


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800", "x\x1b\udbff"])
def test_what_no_program_can_be_given(text: str) -> None:
    assert command(["eoctl", "txn", "fence", text]) is None
