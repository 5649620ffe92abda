"""Completion as bash does it: the script is sourced in a real bash and driven by words and Tabs."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.kafka.command import environment
from tests.kafka.conftest import MakeTopic

HOSTILE = ("hostile;$(touch pwned)", "hostile\x1b[31m\nid", "hostile:a b", "hostile'quote")

# COMP_WORDS as bash would set them (split at `:`), then the function, then its answer
DRIVER = """
source "$3"
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($2) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_eoctl eoctl
for word in "${COMPREPLY[@]}"; do printf '%s\\0' "$word"; done
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH with `eoctl`, a cache, the script that a person's bash has read once."""
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "bin" / "eoctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m eoctl "$@"\n')
    program.chmod(0o755)
    words = [str(program), "completion", "bash"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    (folder / "completion.bash").write_text(done.stdout)
    return folder


def environ(home: Path, **more: str) -> dict[str, str]:
    """With time enough on a busy machine; what the usual time is has a test of its own."""
    patient = {"EOCTL_COMPLETION_SECONDS": "20", "EOCTL_CACHE_DIR": str(home / "cache")}
    found = environment(**(patient | more))
    return found | {"PATH": f"{home / 'bin'}:{found['PATH']}"}


def complete(home: Path, line: str, **more: str) -> list[str]:
    script = home / "completion.bash"
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVER, "driver", line, line.replace(":", " : "), script],
        capture_output=True,
        text=True,
        env=environ(home, **more),
        timeout=30,
        check=True,
    )
    assert done.stderr == ""  # silent
    return done.stdout.split("\0")[:-1]


@pytest.fixture(scope="module")
def words(lab1: Lab, home: Path) -> str:
    """`eoctl --bootstrap-server ...` of a lab with known names, cached as a first Tab leaves it."""
    for name in HOSTILE:
        break_(lab1, "open", transactional_id=name, topic="completes", partition=0)
    break_(lab1, "open", topic="other.topic-1", partition=11)
    line = f"eoctl --bootstrap-server {lab1.bootstrap_servers}"
    end = time.monotonic() + 30
    while "completes" not in complete(home, f"{line} lso comp"):
        assert time.monotonic() < end
        time.sleep(1)
    return line


def test_topics_and_partitions(home: Path, words: str) -> None:
    assert complete(home, f"{words} lso compl") == ["completes"]
    assert complete(home, f"{words} lso other") == ["other.topic-1"]
    # what bash replaces begins after the colon
    numbers = [str(n) for n in range(12)]
    assert complete(home, f"{words} lso other.topic-1:") == numbers
    assert complete(home, f"{words} producers other.topic-1:1") == ["1", "10", "11"]
    assert complete(home, f"{words} lso --topic comp") == ["completes"]
    assert "completes" in complete(home, f"{words} lso ")
    assert not [name for name in complete(home, f"{words} lso ") if name.startswith("__")]
    assert "__transaction_state" in complete(home, f"{words} lso __")


def test_hostile_transactional_ids_come_back_exact(home: Path, words: str, tmp_path: Path) -> None:
    offered = complete(home, f"{words} txn describe hostile")
    assert len(offered) == len(HOSTILE)
    assert all(word.isprintable() for word in offered)
    # pasted into a shell they are words, not commands
    script = "printf '%s\\0' " + " ".join(offered)
    done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=tmp_path, check=True)
    assert sorted(done.stdout.decode().split("\0")[:-1]) == sorted(HOSTILE)
    assert not list(tmp_path.iterdir())
    assert complete(home, f"{words} txn describe hostile:") == ["'a b'"]
    assert complete(home, f"{words} txn describe 'hostile;") == ["hostile;$(touch pwned)"]


@pytest.mark.long
def test_words_that_need_no_cluster(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('contexts.prod-eu.bootstrap_servers = "127.0.0.1:9"\ncontexts.prod-us = {}\n')
    more = {"EOCTL_CONFIG": str(config), "EOCTL_STATE_DIR": str(tmp_path)}

    def found(line: str) -> list[str]:
        return complete(home, line, **more)

    assert {"lso", "txn", "producers", "context", "lab"} <= set(found("eoctl "))
    assert found("eoctl lab br") == ["break"]
    assert found("eoctl lso --bootst") == ["--bootstrap-server"]
    assert found("eoctl lso -o ") == ["table", "wide", "json", "jsonl", "csv", "name"]
    assert found("eoctl lso --output=js") == ["json", "jsonl"]
    assert found("eoctl --context ") == ["prod-eu", "prod-us"]
    assert found("eoctl lso --context=prod-u") == ["prod-us"]
    assert found("eoctl lso --context prod-eu,") == ["prod-eu,prod-eu", "prod-eu,prod-us"]
    assert found("eoctl context use prod-e") == ["prod-eu"]
    assert found("eoctl txn list --state Prep") == [
        "PrepareCommit",
        "PrepareAbort",
        "PrepareEpochFence",
    ]
    assert found("eoctl txn list --state ong") == ["ongoing"]
    assert "orphan" in found("eoctl lab break ")
    assert found("eoctl no-such-command ") == found("eoctl ")
    assert found("eoctl txn list --pid ") == []


@pytest.mark.long
def test_nothing_is_said_and_little_time_taken(home: Path, tmp_path: Path) -> None:
    """An unknown context, a broken config, a cluster that is not there: no word, in a second."""
    broken = tmp_path / "broken.toml"
    broken.write_text("contexts = 3 [")
    assert complete(home, "eoctl --context nobody lso x") == []
    assert complete(home, "eoctl --context x lso ", EOCTL_CONFIG=str(broken)) == []

    def seconds(line: str) -> float:
        begin = time.monotonic()
        assert complete(home, line, EOCTL_COMPLETION_SECONDS="") in ([], ["--version"])
        return time.monotonic() - begin

    plain = min(seconds("eoctl --vers") for _ in range(3))
    for server in ("127.0.0.1:9", "192.0.2.1:9092"):  # refused; TEST-NET-1, never answers
        line = f"eoctl --bootstrap-server {server} lso "
        # 0.65 s once it runs, far from the 5 s of who asks on behind it; the rest is a busy machine
        assert min(seconds(line) for _ in range(3)) < plain + 2


def test_cache_is_private_and_asked_again_after_a_minute(
    lab1: Lab, home: Path, words: str, topic: MakeTopic
) -> None:
    folder = home / "cache" / "completion"
    assert folder.stat().st_mode & 0o777 == 0o700
    files = list(folder.glob("*.json"))
    assert files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    complete(home, f"{words} lso ")  # whoever was still asking has done so
    fresh = topic(lab1, name="appears")
    begun = f"{words} lso {fresh[:-1]}"  # not another attempt's
    for path in files:
        os.utime(path)
    assert complete(home, begun) == []  # within the minute
    for path in files:
        os.utime(path, (time.time() - 61,) * 2)
    end = time.monotonic() + 60
    while complete(home, begun) != [fresh]:
        assert time.monotonic() < end


def test_tab_in_a_real_bash(home: Path, words: str) -> None:
    """Readline itself: what stands on the line after a Tab is run by bash."""
    child = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "-i"],
        env=environ(home, PS1="ready> ", TERM="dumb"),
        encoding="utf-8",
        timeout=20,
        dimensions=(24, 400),
    )
    child.expect_exact("ready> ")
    child.sendline("bind 'set enable-bracketed-paste off'; eval \"$(eoctl completion bash)\"")
    child.expect_exact("ready> ")
    for typed, last in (
        ("lso compl\t", "completes"),
        ("lso other.topic-1:11\t", "other.topic-1:11"),
        ("lso oth\t", "other.topic-1"),
        ("txn describe hostile:\t", "hostile:a b"),
        ("txn describe 'hostile;\t", "hostile;$(touch pwned)"),
        ("txn describe $'hostile\\047q\t", "hostile'quote"),
    ):
        child.send(f"{words} {typed}")
        time.sleep(0.5)  # bash reads on only when the Tab is done
        child.sendline("")  # runs it; what was run is in the history
        child.expect_exact("ready> ")
        child.sendline('eval "set -- $(HISTTIMEFORMAT= history 2 | head -1)"; echo "[${@: -1}]"')
        child.expect(r"\r\n\[(.*)\]\r\n")
        assert isinstance(child.match, re.Match)
        assert child.match.group(1) == last, typed
        child.expect_exact("ready> ")
    child.close(force=True)
