"""Large clusters: how long each command that looks takes, and how much memory."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import NamedTuple

import pytest

from benchmarks import state_log, status
from benchmarks.side_by_side import make_topics
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.facts import TopicPartition
from tests.conftest import Tried
from tests.kafka.command import EOCTL, environment
from tests.share import SHARE, fewer

PARTITIONS, OPEN, GROUPS = fewer(10_000, 300), fewer(2_000, 40), fewer(2_000, 40)
SECONDS, MEGABYTES = 3.0, 150
"""The goals; the pause between two looks apart, so it is none here."""
NO_PAUSE = ("--sample-interval", "0s")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("lso", "--all"),
    ("txn", "list"),
    ("txn", "hanging", *NO_PAUSE),
    ("check", *NO_PAUSE),
    ("doctor", "--broker-version", KAFKA),  # else a bug of topics with one copy is unknown
    ("offsets", "show"),
)


class Took(NamedTuple):
    """One process. seconds: on the clock; megabytes: its largest resident set."""

    status: int
    seconds: float
    megabytes: int
    stderr: str


MEASURE = """
import resource, subprocess, sys, time
begun = time.monotonic()
ended = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(ended, time.monotonic() - begun, kilobytes >> 10)
"""
"""In a small process: what is forked off a large one has had its memory, too."""


def took(lab: Lab, words: tuple[str, ...]) -> Took:
    argv = [*EOCTL, "--bootstrap-server", lab.bootstrap_servers, *words]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *argv],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    ended, seconds, megabytes = done.stdout.split()
    return Took(int(ended), float(seconds), int(megabytes), done.stderr)


async def commit(lab: Lab, topic: str) -> None:
    """GROUPS groups, each with an offset; the lab's client waits for their coordinators."""
    async with Client.to(lab.bootstrap_servers) as client:
        owner = await Producer.init(client, f"{topic}-id")
        for number in range(GROUPS):
            await owner.send(topic, 0, [NewRecord(b"1")])
            await owner.send_offsets(f"group-{number:04d}", {TopicPartition(topic, 0): 1})
            await owner.commit()


@pytest.mark.trust
@pytest.mark.timeout(3600)
def test_each_command_looks_at_a_large_cluster_in_time_and_memory(
    start_lab: Callable[[LabSpec], Lab],
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
) -> None:
    lab = start_lab(LabSpec(name="large", brokers=3))
    name = uuid.uuid4().hex[:6]
    topics = [f"wide-{name}-{number}" for number in range(status.TOPICS)]
    make_topics(lab, topics, PARTITIONS // status.TOPICS)
    monkeypatch.setattr(status, "OPEN", OPEN)
    asyncio.run(status.open_ids(lab.bootstrap_servers, topics))
    asyncio.run(commit(lab, topics[-1]))
    for what, count in (("partitions", PARTITIONS), ("open ids", OPEN), ("groups", GROUPS)):
        tried(what, count)
    for words in COMMANDS:
        best = min((took(lab, words) for _ in range(fewer(3, 1))), key=_wall)
        name = " ".join(word for word in words[:2] if not word.startswith("-"))
        tried(f"ms of {name}", round(best.seconds * 1000))
        tried(f"MiB of {name}", best.megabytes)
        assert best.status in (0, 1), best
        assert best.megabytes <= MEGABYTES, (words, best)
        assert SHARE < 1 or best.seconds <= SECONDS, (words, best)  # two quiet cores


def _wall(one: Took) -> float:
    return one.seconds


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_check_reads_a_transaction_log_of_a_gigabyte(tried: Tried) -> None:
    tried("MB of a transaction log", state_log.MEGABYTES)
    for checked in state_log.measure():
        before = "" if checked.what.endswith("never read before") else ", read before"
        tried(f"ms of check{before}", round(min(run.wall for run in checked.runs) * 1000))
        assert max(run.peak for run in checked.runs) <= state_log.MOST_BYTES, checked.lines()
