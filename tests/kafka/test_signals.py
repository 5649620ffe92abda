"""A signal at a random moment of a long command: it ends at once and leaves no process.

A change that was interrupted goes on from its journal.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.conftest import Tried
from tests.kafka.command import EOCTL, FAST, environment, eoctl, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene, committed, until
from tests.kafka.merging import World
from tests.kafka.remedying import abort, end
from tests.share import fewer, only_here
from tests.started import left_of, started

YES = ("--execute", "--yes")
SLOW = ("--max-rate", "2KiB")
PATIENT = ("--sample-interval", "30s", "--timeout", "60s")
"""With the usual 30 s in all, such a second look is refused at once."""
WAITING = ("why", "check")
"""Commands that wait for a second look at the orphan: none can have ended by itself."""
SECONDS, MOST = 2.0, 10.0
MOMENTS = fewer(30, 1)

Words = Callable[[World, GroundTruth, Path], tuple[str, ...]]
COMMANDS: Mapping[str, Words] = {
    "why": lambda w, t, f: ("why", f"{t.topic}:{t.partition}", *PATIENT),
    "check": lambda w, t, f: ("check", *PATIENT),
    "watch": lambda w, t, f: ("status", "--watch", "1", "--sample-interval", "0.2s"),
    "bundle": lambda w, t, f: ("bundle", "create", str(f / "one.eoctl"), *PATIENT),
    "exporter": lambda w, t, f: ("exporter", "--listen", "127.0.0.1:0", "--interval", "1s"),
    "count": lambda w, t, f: ("offsets", "count", f"{w.left}:0", "earliest", "lso", *SLOW),
    "audit": lambda w, t, f: ("audit", "sequences", w.left, *SLOW),
    "rebuild": lambda w, t, f: (
        *("state", "rebuild", w.left, "--format", "plain", "--at", "lso"),
        *("--output", str(f / "state"), *SLOW),
    ),
    "dedup": lambda w, t, f: (
        *("dedup", w.left, w.output, "--by", "value", "--execute", "--yes", *SLOW),
    ),
    "replay": lambda w, t, f: (
        *("merge", "replay", *w.words, "--execute", "--yes", "--follow", *SLOW),
    ),
}


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    [truth] = break_(lab1, "orphan")
    return truth


@pytest.fixture(scope="module")
def world(lab1: Lab, topic: MakeTopic) -> World:
    made = World(lab1, topic, count=60)
    made.write_logs()
    return made


def allowance() -> float:
    """Seconds in which a signalled process must be gone: more where others wait for the cores."""
    return min(MOST, SECONDS + max(0.0, os.getloadavg()[0] - (os.cpu_count() or 1)))


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for this signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> number - 1 & 1)


def signalled(
    argv: list[str],
    env: dict[str, str],
    number: int,
    wait: Callable[["subprocess.Popen[str]"], object],
) -> tuple[bool, int, str]:
    """Start, wait, signal: whether it was over by then, its status, what it said. It must be gone
    in time, with all that it has started.

    The wait begins once eoctl runs: before that the signal would meet Python, as it starts.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with started(argv, env=env, start_new_session=True, text=True, **pipes) as process:
        until(lambda: handles(process.pid, signal.SIGTERM) or process.poll() is not None)
        wait(process)
        over, begun = process.poll() is not None, time.monotonic()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        left = allowance() - (time.monotonic() - begun)
        assert left > 0, (argv, number)
        until(lambda: left_of(process.pid) == [], left)  # a worker watches whether eoctl is there
    assert "Traceback" not in stderr, stderr
    return over, process.returncode, stderr


@pytest.mark.parametrize("name", only_here(COMMANDS, "check", "replay", beyond="trust"))
def test_it_is_gone_and_leaves_nothing(
    lab1: Lab,
    topic: MakeTopic,
    world: World,
    orphan: GroundTruth,
    tmp_path: Path,
    tried: Tried,
    name: str,
) -> None:
    """Each time with an output of its own: one that is written already would leave no work."""
    chance = random.Random(name)
    for moment in range(MOMENTS):
        folder = tmp_path / str(moment)
        folder.mkdir()
        world.output = topic(lab1)
        number = chance.choice([signal.SIGTERM, signal.SIGINT])
        words = COMMANDS[name](world, orphan, folder)
        argv = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words]
        over, status, stderr = signalled(
            argv, environment(), number, lambda process: time.sleep(chance.uniform(0.3, 2.5))
        )
        allowed = (130,) if name in WAITING else (0, 1, 3, 130)
        assert over or status in allowed, (status, stderr)
        assert not (over and name in WAITING), stderr
        assert said(stderr).count("eoctl: interrupted") <= 1, stderr
        tried("signals", not over)
    journal = eoctl("journal", "list", "-o", "json", lab=lab1)
    assert journal.status == 0, journal.stderr
    assert not [row for row in journal.rows if row["state"] == "running"]


def test_what_was_interrupted_goes_on_to_its_end(lab1: Lab, topic: MakeTopic, tried: Tried) -> None:
    """A replay that is interrupted again and again sends every record once."""
    world = World(lab1, topic, count=40)
    world.write_logs()
    chance = random.Random(1)
    words = ("merge", "replay", *world.words, "--execute", "--yes")
    for _ in range(fewer(20, 2)):
        argv = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words, *SLOW]
        with started(argv, env=environment(), stderr=subprocess.DEVNULL) as process:
            time.sleep(chance.uniform(0.5, 3))
            over = process.poll() is not None
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        tried("signals", not over)
    assert eoctl(*words, lab=lab1, timeout=150).status == 0
    assert world.got == world.expected


class Change(NamedTuple):
    """An acting command, how many changes it makes, and how many of them Kafka's client sees."""

    words: tuple[str, ...]
    total: int
    seen: Callable[[], int]


def aborts(lab: Lab, words: tuple[str, ...], truths: Sequence[GroundTruth]) -> Change:
    """Only one marker each counts."""
    before = [end(lab, truth) for truth in truths]

    def seen() -> int:
        now = [end(lab, truth) for truth in truths]
        return sum(n == b + 1 for n, b in zip(now, before, strict=True))

    return Change(words, len(truths), seen)


def txn_abort(lab: Lab, topic: MakeTopic, folder: Path) -> Change:
    [truth] = break_(lab, "orphan")
    return aborts(lab, abort(truth), [truth])


def txn_apply(lab: Lab, topic: MakeTopic, folder: Path) -> Change:
    truths, plan = break_(lab, "orphan", count=3), str(folder / "plan.json")
    where = [f"{truth.topic}:{truth.partition}" for truth in truths]
    assert eoctl("txn", "hanging", *where, *FAST, "--plan", plan, lab=lab).status == 1
    return aborts(lab, ("txn", "apply", plan), truths)


def restart_apply(lab: Lab, topic: MakeTopic, folder: Path) -> Change:
    """Two stores, so two steps."""
    scene = Scene.make(lab, topic, folder)
    scene.commits(3)
    mirror = f"{scene.group}-mirror"
    scene.describe(more=f'[app.mirror]\nkind = "kafka-group"\ngroup = "{mirror}"')
    assert scene.plan().status == 0
    groups, at = (scene.group, mirror), (scene.input, 0)

    def seen() -> int:
        return sum(committed(lab, group).get(at) == scene.there for group in groups)

    return Change(("restart", "apply", scene.plan_file), 2, seen)


CHANGES = {"txn abort": txn_abort, "txn apply": txn_apply, "restart apply": restart_apply}
PHASES = ("step-started", "step-done", "begun", None)
"""Events of the journal that the signal waits for; None: a moment of any kind.

The changes begin with the first three, in their order: where there is one moment only, that of
`txn apply` comes when one of its steps is done and others are not.
"""


def wait_for(phase: str | None, journal: Path, chance: random.Random) -> Callable[[Any], None]:
    """Wait for the event, or for its process to be over."""

    def wait(process: "subprocess.Popen[str]") -> None:
        if phase is None:
            time.sleep(chance.uniform(0.3, 2.5))
        while phase and process.poll() is None:
            if journal.exists() and f'"{phase}"' in journal.read_text():
                break
            time.sleep(0.002)

    return wait


@pytest.mark.parametrize("name", only_here(CHANGES, "txn apply", beyond="trust"))
def test_a_change_that_was_interrupted_goes_on(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, tried: Tried, name: str
) -> None:
    """Status 130 only if nothing was changed. After the journal's entry was resumed, or if there is
    none the command run again, each change was made once."""
    chance = random.Random(name)
    for moment in range(fewer(40, 1)):
        folder = tmp_path / str(moment)
        folder.mkdir()
        change = CHANGES[name](lab1, topic, folder)
        env = environment(EOCTL_STATE_DIR=str(folder / "state"))
        argv = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *change.words, *YES]
        phase = PHASES[(moment + list(CHANGES).index(name)) % len(PHASES)]
        over, status, stderr = signalled(
            argv,
            env,
            chance.choice([signal.SIGTERM, signal.SIGINT]),
            wait_for(phase, folder / "state" / "journal" / "journal.jsonl", chance),
        )
        tried("signals", not over)
        case = (phase, status, stderr)
        assert status in (0, 6, 130), case
        assert status != 130 or change.seen() == 0, case
        assert status != 0 or change.seen() == change.total, case
        entries = eoctl("journal", "list", "-o", "json", lab=lab1, env=env).rows
        assert {row["state"] for row in entries} <= {"unfinished", "done", "abandoned"}, case
        left = [row["id"] for row in entries if row["state"] == "unfinished"]
        again = ("journal", "resume", *left) if left else change.words
        ended = eoctl(*again, *YES, lab=lab1, env=env)
        assert ended.status == 0, (case, ended.stderr)
        assert change.seen() == change.total, case
