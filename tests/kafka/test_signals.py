"""A signal at a random moment of a long command: it ends at once and leaves no process."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.conftest import Tried
from tests.kafka.command import EOCTL, environment, eoctl, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import World
from tests.share import fewer, only_here
from tests.started import started

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


def left_of(session: int) -> list[str]:
    """The processes of a session that are still there, and no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(stat.parent.name)
    return found


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
        with started(
            argv,
            env=environment(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            time.sleep(chance.uniform(0.3, 2.5))
            over, begun = process.poll() is not None, time.monotonic()
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
            seconds = time.monotonic() - begun
        assert seconds < allowance(), (name, number)
        assert left_of(process.pid) == []
        allowed = (130,) if name in WAITING else (0, 1, 3, 130)
        assert over or process.returncode in allowed, (process.returncode, stderr)
        assert not (over and name in WAITING), stderr
        assert "Traceback" not in stderr
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
