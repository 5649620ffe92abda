"""`why` and `status` on a terminal show what one look saw, until the second gave a verdict."""

import json
import re
import signal
from collections.abc import Iterator

import pexpect
import pytest

from eoctl.cli.first_look import AT_LEAST
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, environment, eoctl

PAUSE = ("--sample-interval", f"{AT_LEAST:g}s")
MARK = f"first look; a verdict needs a second in {AT_LEAST:g}s"
FIRST = "first look; a verdict"  # as much of it as stands on a narrow terminal


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    [truth] = break_(lab1, "orphan", topic="first-look")
    return truth


def on_terminal(
    lab: Lab, *words: str, columns: int = 100, lines: int = 50, **changes: str
) -> "pexpect.spawn[str]":
    """Start eoctl on a pseudo-terminal of its own."""
    return pexpect.spawn(
        EOCTL[0],
        [*EOCTL[1:], "--bootstrap-server", lab.bootstrap_servers, *words, *PAUSE],
        env=environment(**({"TERM": "xterm"} | changes), COLUMNS=None, LINES=None),
        encoding="utf-8",
        dimensions=(lines, columns),
        timeout=60,
    )


def ended(child: "pexpect.spawn[str]") -> tuple[int | None, str]:
    """Return the exit status, and all that was written after what was expected last."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, child.before or ""


def until(child: "pexpect.spawn[str]", text: str) -> str:
    """Wait for the text; return what was written up to its end."""
    child.expect_exact(text)
    return f"{child.before}{text}"


def screen(written: str, columns: int) -> list[str]:
    """Return the lines that a terminal shows: it wraps, moves up, and erases to its end."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:\d*)[A-Za-z;0-9]*[A-Za-z]|[^\x1b]", written):
        if (up := re.fullmatch(r"\x1b\[(\d+)A", part)) is not None:
            row = max(row - int(up[1]), 0)
        elif part == "\x1b[J":
            lines = [*lines[:row], lines[row][:column]]
        elif part == "\r":
            column = 0
        elif part == "\n":
            row, lines = row + 1, lines + [""] * (row + 1 == len(lines))
        elif not part.startswith("\x1b"):
            if column == columns:
                row, column, lines = row + 1, 0, lines + [""] * (row + 1 == len(lines))
            lines[row] = f"{lines[row][:column]}{part}{lines[row][column + 1 :]}"
            column += 1
    return lines


@pytest.mark.parametrize("columns", [100, 34])
def test_the_first_look_stands_until_the_verdict(
    lab1: Lab, orphan: GroundTruth, columns: int
) -> None:
    name = f"{orphan.topic}:{orphan.partition}"
    child = on_terminal(lab1, "why", name, columns=columns)
    first = until(child, FIRST)
    assert "FIRST LOOK" in first
    assert f"LSO {orphan.last_stable_offset}" in first
    assert f"pid {orphan.producer_id}" in first
    assert not {"remedy", "STUCK", "orphan (", " watch it:"} & set(re.split(r"  |\n", first))
    assert max(map(len, screen(first, 1000))) <= columns  # nothing wraps
    status, rest = ended(child)
    assert status == 1
    shown = screen(first + rest, columns)
    text = "\n".join(shown)
    assert FIRST not in text
    assert "FIRST LOOK" not in text
    assert "STUCK  orphan" in text
    assert text.count("readers see") == 1


def test_status_shows_its_table_at_once(lab1: Lab, orphan: GroundTruth) -> None:
    child = on_terminal(lab1, "status", columns=150)
    first = until(child, MARK)
    assert "VERDICT" in first
    assert "unknown" in first
    assert "\x1b" not in first
    status, rest = ended(child)
    assert status in (1, 3)  # the lab is shared
    shown = screen(first + rest, 150)
    assert not any(FIRST in line for line in shown)
    heads = [line for line in shown if line.split()[:2] == ["VERDICT", "TXNS"]]
    assert len(heads) == 1  # UNKNOWN_VERDICT may stand below, on stderr


def test_a_low_terminal_keeps_what_stood_there(lab1: Lab, orphan: GroundTruth) -> None:
    child = on_terminal(lab1, "why", f"{orphan.topic}:{orphan.partition}", lines=5)
    assert until(child, MARK).count("\n") == 3
    assert "\x1b[4A" in ended(child)[1]


def test_interrupted_it_leaves_the_first_look(lab1: Lab, orphan: GroundTruth) -> None:
    child = on_terminal(lab1, "why", f"{orphan.topic}:{orphan.partition}")
    until(child, f"{MARK}\r\n")
    child.sendintr()
    status, rest = ended(child)
    assert status == 130
    assert rest.replace("^C", "").strip() == "eoctl: interrupted"


@pytest.mark.parametrize("how", ["resized", "resumed"])
def test_what_may_stand_elsewhere_is_not_erased(lab1: Lab, orphan: GroundTruth, how: str) -> None:
    child = on_terminal(lab1, "why", f"{orphan.topic}:{orphan.partition}")
    until(child, MARK)
    if how == "resized":
        child.setwinsize(50, 60)
    else:
        child.kill(signal.SIGCONT)
    status, rest = ended(child)
    assert status == 1
    assert "\x1b" not in rest
    assert "STUCK  orphan" in rest


def quiet(lab: Lab, name: str) -> Iterator[str]:
    """What scripts and plain terminals get."""
    child = on_terminal(lab, "why", name, "-o", "json")
    yield ended(child)[1]
    child = on_terminal(lab, "why", name, TERM="dumb")
    yield ended(child)[1]
    yield eoctl("--bootstrap-server", lab.bootstrap_servers, "why", name, *PAUSE).stdout


def test_others_get_the_answer_alone(lab1: Lab, orphan: GroundTruth) -> None:
    as_json, dumb, piped = quiet(lab1, f"{orphan.topic}:{orphan.partition}")
    assert json.loads(as_json)["rows"][0]["held_by"]["verdict"] == "orphan"
    for text in (dumb, piped):
        assert "first look" not in text.lower()
        assert "\x1b" not in text
        assert "STUCK  orphan" in text
