"""`state rebuild` while a broker that leads, or a process that works, is killed: the same state."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from eoctl.engine.resolve_cut import resolve
from eoctl.kafka.read import cut_offsets
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from recovery.errors import IncompleteError
from recovery.shared.offset_bounds import parse_bound
from tests.kafka.command import eoctl, eoctl_running, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill
from tests.share import share
from tests.started import connected

COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.9",
    "min.insync.replicas": "2",
}
ROUNDS = share(10, 2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_leader(lab3: Lab, topic: MakeTopic, tmp_path: Path, number: int) -> None:
    """The run itself goes on, or the same command again does, and gives the digest of a dict."""
    name = topic(lab3, partitions=3, replicas=3, config=COMPACT)
    fill(lab3, name, seed=number, records=9_000, keys=700, partitions=3)
    leader = asyncio.run(_leader(lab3, name, number % 3))
    folder = tmp_path / "state"
    words = ["state", "rebuild", name, "--format", "plain", "--at", "lso", "--engine", "local"]
    words += ["--output", str(folder)]
    # each partition has some 270 KiB: all three are read at once, for 2.5 s at least
    slowly = ("--processes", "3", "--max-rate", "240KiB", "--no-crc")
    (port,) = [node.ports["PLAINTEXT"] for node in lab3.record.nodes if node.id == leader]
    try:
        with eoctl_running(lab3, *words, *slowly) as process:
            until = time.monotonic() + 60
            while not any(connected(pid, port) for pid in _children(process.pid)):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            time.sleep(random.Random(number).uniform(0, 2))
            assert process.poll() is None, "it was done before a broker could be killed"
            lab3.kill(leader)
            _, stderr = process.communicate(timeout=300)
        if process.returncode:
            assert process.returncode in (3, 5), stderr
            assert not (folder / "manifest.json").exists()
            (line,) = said(stderr)
            assert "Traceback" not in stderr
            until = time.monotonic() + 60
            while (ran := eoctl(*words, lab=lab3, timeout=300)).status and time.monotonic() < until:
                assert ran.status == 3, (line, ran.stderr)  # nobody leads it yet
                time.sleep(1)
            assert ran.status == 0, (line, ran.stderr)
    finally:
        lab3.start(leader)
    state = Rebuilt(folder)
    expected, _ = dict_state(lab3, name, state.ends)
    assert state.digest == digest(expected)
    assert state.state() == expected


@pytest.mark.long
def test_logs_are_looked_at_again_while_nobody_leads(
    lab3: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader is waited for. Where there is none, that is no change of the log."""
    name = topic(lab3, partitions=3, replicas=3, config=COMPACT)
    fill(lab3, name, seed=1, records=300, keys=50, partitions=3)
    alone = topic(lab3)
    leader = asyncio.run(_leader(lab3, alone, 0))

    async def look() -> None:
        async with Client.to(lab3.bootstrap_servers) as client:
            lso = parse_bound("lso", 0)
            led, not_led = [await resolve(client.cluster, [n], lso, 10) for n in (name, alone)]
            lab3.kill(leader)
            found = await cut_offsets.facts(client.cluster, led)
            assert [f.log_start_offset for f in found] == [0, 0, 0]
            monkeypatch.setattr(cut_offsets, "LEADER_SECONDS", 1.0)
            with pytest.raises(IncompleteError, match=f"{alone}-0: its log start cannot be read"):
                await cut_offsets.facts(client.cluster, not_led)

    try:
        asyncio.run(look())
    finally:
        lab3.start(leader)


def test_a_killed_worker(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """One sentence, no state; the same command goes on with what the others had done."""
    name = topic(lab1, partitions=3, config=COMPACT | {"min.insync.replicas": "1"})
    fill(lab1, name, seed=3, records=3_000, keys=300, partitions=3)
    folder = tmp_path / "state"
    words = ["state", "rebuild", name, "--format", "plain", "--at", "lso", "--engine", "local"]
    words += ["--output", str(folder), "--processes", "1"]
    with eoctl_running(lab1, *words, "--max-rate", "150KiB") as process:
        until = time.monotonic() + 60
        while not list(folder.glob("tasks/*.json")):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        for pid in _children(process.pid):
            os.kill(pid, signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stderr
    (line,) = said(stderr)
    assert "a worker process ended (SIGKILL); the same command again goes on from there" in line
    assert not (folder / "manifest.json").exists()
    done = {path.name for path in folder.glob("tasks/*.json")}
    assert 1 <= len(done) < 3
    ran = eoctl(*words, lab=lab1, timeout=120)
    assert ran.status == 0, ran.stderr
    state = Rebuilt(folder)
    assert state.digest == digest(dict_state(lab1, name, state.ends)[0])
    listed = {Path(f.path).name for p in state.manifest.partitions for f in p.files}
    assert {path.name for path in folder.glob("data/*/*")} == listed


def _children(pid: int) -> list[int]:
    """The workers, and what multiprocessing has beside them."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


async def _leader(lab: Lab, name: str, partition: int) -> int:
    async with Client.to(lab.bootstrap_servers) as client:
        return await client.leader(name, partition)
