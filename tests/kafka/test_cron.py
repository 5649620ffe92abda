"""What cron, systemd and containers give a command: little, odd, full, or a clock that is wrong.

Each surrounding is put around a real process; it says what it says in a calm one.
"""

import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from release.parts import ROOT
from release.supply import FOLDER, NotInstalledError, tool
from tests.conftest import Tried
from tests.docs.contract import check_status
from tests.kafka.command import EOCTL, FAST, Ran, environment, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import producing, write
from tests.kafka.remedying import abort, end
from tests.share import SHARE, only_here

KEYS = ("topic", "partition", "producer_id", "verdict", "rule", "ok", "last_stable_offset")


@dataclass(frozen=True)
class Around:
    """Variables (None: not there), words of the shell before the command, and its streams.

    inside: the words that start this shell.
    """

    variables: Mapping[str, str | None] = field(default_factory=dict)
    before: str = ""
    streams: str = "</dev/null"
    inside: tuple[str, ...] = ()


ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FULL = "/mnt"
FULL_DISK = Around(
    {"TMPDIR": FULL, "EOCTL_STATE_DIR": f"{FULL}/state", "EOCTL_CACHE_DIR": f"{FULL}/cache"},
    before=f"mount -t tmpfs -o size=64k tmpfs {FULL} || exit 99; "
    f"cat /dev/zero >{FULL}/all 2>/dev/null && exit 99;",
    inside=("unshare", "--map-root-user", "--mount"),
)
"""A disk of its own for state, cache and temporary files, which is gone with the process."""
SURROUNDINGS = {
    "cron": Around({"HOME": None, "TERM": None, "LANG": None, "PATH": "/usr/bin:/bin"}),
    "no-terminal": Around({"TERM": "no-such-terminal", "COLUMNS": "0"}),
    "far-zone": Around({"TZ": "Pacific/Kiritimati"}),
    "no-such-zone": Around({"TZ": ":no/such/zone"}),
    "ascii": Around(ASCII),
    "no-stdin": Around(streams="<&-"),
    "no-stderr": Around(streams="</dev/null 2>&-"),
    "no-temporary-folder": Around({"TMPDIR": "/no/such/folder"}),
    "no-cache": Around({"EOCTL_CACHE_DIR": "/proc/no-such"}),
    "no-byte-written": Around(before="ulimit -f 0;"),
    "folder-gone": Around(before='gone=$(mktemp -d); cd "$gone"; rmdir "$gone";'),
    "few-files": Around(before="ulimit -n 64;"),
    "full-disk": FULL_DISK,
}


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    [truth] = break_(lab1, "orphan")
    return truth


def commands(orphan: GroundTruth) -> tuple[tuple[str, ...], ...]:
    where = f"{orphan.topic}:{orphan.partition}"
    chosen = (("check", *FAST), ("why", where, *FAST), ("txn", "hanging", *FAST), ("lso", where))
    return chosen if SHARE >= 1 else chosen[:2]


def skip_without(around: Around) -> None:
    """A container may not let its users have namespaces."""
    if around.inside and subprocess.run([*around.inside, "true"], capture_output=True).returncode:
        pytest.skip(f"NOT RUN: `{shlex.join(around.inside)}` is not allowed here")


def run(lab: Lab, words: tuple[str, ...], around: Around) -> Ran:
    """Run eoctl in a process of its own, with this around it."""
    env = environment(PYTHONPATH=str(ROOT), **around.variables)
    asked = shlex.join([*EOCTL, "--bootstrap-server", lab.bootstrap_servers, *words, "-o", "json"])
    begun = time.monotonic()
    done = subprocess.run(
        [*around.inside, "/bin/bash", "-c", f"{around.before} exec {asked} {around.streams}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    check_status(words, done.returncode)
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)


@cache
def calmly(lab: Lab, words: tuple[str, ...]) -> Ran:
    return run(lab, words, Around())


def told(ran: Ran) -> list[dict[str, object]]:
    """What an answer says of each thing, without ages and times."""
    return [{key: row.get(key) for key in KEYS} for row in ran.rows]


@pytest.mark.parametrize("name", only_here(SURROUNDINGS, "cron", "no-byte-written", beyond="trust"))
def test_the_answer_is_that_of_a_calm_surrounding(
    lab1: Lab, orphan: GroundTruth, tried: Tried, name: str
) -> None:
    skip_without(SURROUNDINGS[name])
    for words in commands(orphan):
        calm, ran = calmly(lab1, words), run(lab1, words, SURROUNDINGS[name])
        tried("commands", 1)
        assert ran.status == calm.status, (words, ran.stderr)
        assert (told(ran), ran.json["complete"]) == (told(calm), calm.json["complete"]), words
        assert "Traceback" not in ran.stderr


def test_without_a_state_folder_a_look_answers_and_a_lock_is_refused(
    lab1: Lab, orphan: GroundTruth, tried: Tried
) -> None:
    around = Around({"EOCTL_STATE_DIR": "/proc/no-such"})
    locked, looking = commands(orphan)[:2]
    ran = run(lab1, looking, around)
    assert (ran.status, told(ran)) == (1, told(calmly(lab1, looking)))
    refused = run(lab1, locked, around)
    assert refused.status in (2, 3), refused.stderr
    assert "/proc/no-such" in refused.stderr
    assert refused.stderr.count("\n") == 1
    tried("commands", 2)


@pytest.mark.trust
def test_on_a_full_disk_nothing_is_changed_that_no_journal_has(
    lab1: Lab, orphan: GroundTruth, tried: Tried
) -> None:
    skip_without(FULL_DISK)
    before = end(lab1, orphan)
    refused = run(lab1, (*abort(orphan), "--execute", "--yes"), FULL_DISK)
    assert (refused.status, refused.stdout) == (4, ""), refused.stderr
    assert f"{FULL}/state/" in refused.stderr
    assert len(said(refused.stderr)) == 1, refused.stderr
    assert end(lab1, orphan) == before
    tried("commands", 1)


def verdicts(ran: Ran) -> list[dict[str, object]]:
    """What an answer says, without the rules of `check` that compare ages."""
    return [row for row in told(ran) if row["topic"] or "verdicts." in str(row["rule"])]


@pytest.fixture(scope="module")
def faketime() -> Path:
    """The library that gives a process another clock, of a package that `make install` lacks."""
    try:
        tool("python")
    except NotInstalledError as error:
        pytest.skip(f"NOT RUN: {error}")
    [library] = FOLDER.glob("lib/python*/site-packages/libfaketime/**/libfaketime.so.1")
    return library


STEPS = {
    "ahead": ("+400d",),
    "behind": ("-3d",),
    "steps-ahead": ("+0", "+2d"),
    "steps-back": ("+0", "-2h", "+1d", "-30d"),
}


def seconds_off(around: Around) -> float:
    """By how much the clock of a process in this surrounding is wrong."""
    words = [sys.executable, "-c", "import time; print(time.time())"]
    env = environment(**around.variables)
    return abs(
        float(subprocess.run(words, env=env, capture_output=True, check=True).stdout) - time.time()
    )


@pytest.fixture(scope="module")
def living(lab1: Lab, topic: MakeTopic) -> Iterator[str]:
    """An open transaction within its limits: its topic. By a wrong clock it would be overdue."""
    name = topic(lab1)
    owner = producing(
        lab1, **{"transactional.id": f"{name}-id", "transaction.timeout.ms": "600000"}
    )
    owner.init_transactions(30)
    owner.begin_transaction()
    write(owner, name, ["1"])
    yield name
    owner.abort_transaction(30)


@pytest.mark.parametrize("name", only_here(STEPS, beyond="trust"))
def test_a_clock_that_is_wrong_or_steps_changes_no_verdict(
    lab1: Lab,
    orphan: GroundTruth,
    living: str,
    faketime: Path,
    tmp_path: Path,
    tried: Tried,
    name: str,
) -> None:
    """The clock of eoctl's host: brokers keep the true time. Ages are wrong with it."""
    all_open = ("txn", "hanging", "--all", *FAST)
    found = {row["topic"]: row["verdict"] for row in calmly(lab1, all_open).rows}
    assert found[living] == "open"
    file = tmp_path / "clock"
    around = Around(
        {
            "LD_PRELOAD": str(faketime),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    for offset in reversed(STEPS[name]):
        file.write_text(offset)
        assert (seconds_off(around) > 3600) == (offset != "+0"), "its clock is wrong"
    ended = threading.Event()

    def step() -> None:
        while len(STEPS[name]) > 1 and not ended.is_set():
            for offset in STEPS[name]:
                file.write_text(offset)
                ended.wait(0.15)

    stepping = threading.Thread(target=step)
    stepping.start()
    try:
        for words in (all_open, ("why", *FAST), ("check", *FAST)):
            calm, ran = calmly(lab1, words), run(lab1, words, around)
            tried("commands", 1)
            assert ran.status == calm.status == 1, (words, ran.stderr)
            assert verdicts(ran) == verdicts(calm), words
    finally:
        ended.set()
        stepping.join()
