"""Replays killed at every moment, fenced by others, on brokers that die: each record once."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.lab.cluster import Lab
from eoctl.operations.merge.replay_change import AT_ONCE
from tests.kafka.command import environment, eoctl, eoctl_running
from tests.kafka.conftest import MakeTopic, known_everywhere
from tests.kafka.merging import World, consumed, contents, entries, write_copies, write_plain
from tests.share import kills
from tests.started import started

MOMENTS = 70  # of a replay of 120 records in transactions of 25, roughly


class Runs:
    """Runs of `merge replay` that may be killed at a moment; see merge_killed.py."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process = self._begin()

    def _begin(self) -> "subprocess.Popen[str]":
        return self._stack.enter_context(
            started(
                [sys.executable, "-m", "tests.kafka.merge_killed"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
                start_new_session=True,
            )
        )

    def __call__(self, words: list[str], kill_at: int | None) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"words": words, "kill_at": kill_at}) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())
        except BaseException:  # as a test's timeout: the next call would get this one's answer
            self._stack.close()
            self._process = self._begin()
            raise

    def close(self) -> None:
        with self._stack:
            self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def runs(lab_state: Any) -> Iterator[Runs]:
    made = Runs()
    yield made
    made.close()


@pytest.fixture(scope="module")
def world(lab1: Lab) -> World:
    """One log for all seeds; each has an output of its own."""
    from tests.kafka.conftest import topic

    make: Any = topic.__wrapped__  # type: ignore[attr-defined]
    made = World(lab1, make())
    made.write_logs()
    return made


@pytest.mark.timeout(600)  # a run waits up to 30 s for the transaction of the one before
@pytest.mark.parametrize("seed", range(kills(50, 1)))
def test_killed_anywhere(runs: Runs, world: World, topic: MakeTopic, seed: int) -> None:
    """An application committed, wrote some outputs more and died; then replays die as well."""
    draw = random.Random(seed)
    lab, order = world.lab, world.expected[0]
    world.output = topic(lab, 1, 1, {"retention.ms": "-1"})
    committed = draw.choice([0, draw.randrange(len(order))])
    written = draw.randint(0, min(40, len(order) - committed))
    write_copies(lab, (world.output, 0), order[: committed + written])
    at = world.log_offsets[committed] if committed else 0
    words = ["merge", "replay", "--bootstrap-server", lab.bootstrap_servers, *world.words]
    words += ["--from-merge-offset", f"0:{at}", "--output-offset", f"0:{committed}"]
    words += ["--execute", "--yes"]
    for _ in range(draw.randint(1, 3)):
        assert runs(words, draw.randint(1, MOMENTS)) in (-signal.SIGKILL, 0)
        got = contents(lab, world.output)[0]
        assert got == order[: len(got)]
    assert runs(words, None) == 0
    assert contents(lab, world.output)[0] == order


def ended(world: World) -> list[str]:
    """How the journal's entries of this log ended, the oldest first."""
    rows = eoctl("journal", "list", "-o", "json").rows
    return [r["state"] for r in rows if r["scope"] == f"merge log {world.log}"]


@pytest.mark.trust
def test_another_plan_takes_the_place_of_a_dead_replay(
    runs: Runs, lab1: Lab, topic: MakeTopic
) -> None:
    """What the dead one sent is committed with its position: nobody has to end it by hand."""
    world = World(lab1, topic)
    world.write_logs()
    order = world.expected[0]
    words = ["merge", "replay", "--bootstrap-server", lab1.bootstrap_servers, *world.words]
    assert runs([*words, "--execute", "--yes"], 30) == -signal.SIGKILL
    assert 0 < len(world.got[0]) < len(order)
    assert ended(world) == ["unfinished"]
    at = str(world.log_offsets[10])
    done = world.replay("--partition=0", "--from-merge-offset", at, "--output-offset=10")
    assert done.status == 0, done.stderr
    assert world.got[0] == order
    assert ended(world) == ["abandoned", "done"]


def test_a_replay_that_had_sent_nothing_is_closed(lab1: Lab, topic: MakeTopic) -> None:
    """Killed before its first transaction; then its output is made anew: nothing happened."""
    world = World(lab1, topic, count=5)
    world.write_logs()
    words = ["replay", *world.words, "--execute", "--yes"]
    here = environment(EOCTL_TEST_KILL_AT="step-1-started")
    assert eoctl("merge", *words, lab=lab1, env=here).status == -9
    [entry] = [
        r["id"]
        for r in eoctl("journal", "list", "--unfinished", "-o", "json").rows
        if r["scope"] == f"merge log {world.log}"
    ]
    anew(lab1, world.output)
    resumed = eoctl("journal", "resume", entry, "--execute", "--yes", lab=lab1)
    assert resumed.status == 4
    assert "nothing of" in resumed.stderr
    assert ended(world) == ["abandoned"]
    assert world.replay().status == 0
    assert world.got[0] == world.expected[0]


def anew(lab: Lab, name: str) -> None:
    """The topic is deleted and made again."""
    admin = AdminClient(lab.client_properties())
    admin.delete_topics([name], operation_timeout=20)[name].result(30)
    end = time.monotonic() + 30
    while name in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < end
        time.sleep(0.1)
    new = NewTopic(name, 1, 1, config={"retention.ms": "-1"})
    admin.create_topics([new], operation_timeout=10)[name].result(20)
    asyncio.run(known_everywhere(lab, name, 1))


@pytest.mark.parametrize("seed", range(kills(10)))
def test_follow_killed_anywhere(lab1: Lab, topic: MakeTopic, runs: Runs, seed: int) -> None:
    """The log names a part of the inputs; what follows it is logged first, then emitted."""
    draw = random.Random(seed)
    world = World(lab1, topic, count=25)
    known = draw.randint(0, len(world.orders[0]))
    world.orders[0] = world.orders[0][:known]
    world.write_logs()
    words = ["merge", "replay", "--bootstrap-server", lab1.bootstrap_servers, *world.words]
    words += ["--follow", "--execute", "--yes"]
    for _ in range(2):
        assert runs(words, draw.randint(1, 50)) in (-signal.SIGKILL, 0)
    world.more(0, 10, seed=1)
    now = {
        (*partition, offset): copied
        for partition, rows in world.inputs().items()
        for offset, copied in rows
    }
    with replaying(world, "--follow") as last:
        wait_for(last, world, len(now), 100)
        time.sleep(1)  # for one too many
        last.send_signal(signal.SIGTERM)
        _, said = last.communicate(timeout=30)
    assert last.returncode == 0, said
    order = entries(lab1, world.log)
    assert order[:known] == world.orders[0]
    assert sorted(order) == sorted(now)  # each record once
    for name in (world.left, world.right):
        mine = [offset for topic_, _, offset in order if topic_ == name]
        assert mine == sorted(mine)
    assert world.got[0] == [now[entry] for entry in order]
    assert world.run("verify", "-o", "json").status == 0


def replaying(world: World, *words: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return eoctl_running(world.lab, "merge", "replay", *world.words, "--execute", "--yes", *words)


def wait_for(
    running: "subprocess.Popen[str]", world: World, count: int, seconds: float = 40
) -> None:
    """Wait until a replay has sent so many records; it must not have ended before."""
    end = time.monotonic() + seconds
    while len(world.got[0]) < count:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.trust
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_cleanly(lab1: Lab, topic: MakeTopic, number: int) -> None:
    world = World(lab1, topic, count=10)
    with replaying(world, "--follow") as running:
        wait_for(running, world, 20)
        running.send_signal(number)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0, said
    order = entries(lab1, world.log)
    assert world.got[0] == [world.records[entry] for entry in order]
    assert len(order) == 20


@pytest.mark.trust
def test_follow_ends_where_somebody_else_extends_the_log(lab1: Lab, topic: MakeTopic) -> None:
    """Even by an entry that is true: two orders of one log would be sent as one."""
    world = World(lab1, topic, count=3)
    with replaying(world, "--follow") as running:
        wait_for(running, world, 6)
        entry = {"topic": world.left, "partition": 0, "offset": world.orders[0][-1][2] + 50}
        write_plain(lab1, (world.log, 0), [json.dumps(entry).encode()])
        _, said = running.communicate(timeout=40)
    assert running.returncode == 6, said
    assert "that somebody else wrote" in " ".join(said.split())
    order = entries(lab1, world.log)[:-1]
    assert world.got[0] == [world.records[entry] for entry in order]


@pytest.mark.trust
def test_where_following_goes_on_is_known_or_refused(lab1: Lab, topic: MakeTopic) -> None:
    """Of inputs that the rest of the log does not name. A record that was never merged and that
    retention took is no reason to go on without it."""
    world = World(lab1, topic, count=5)
    left, right = (
        [e for e in world.orders[0] if e[0] == name] for name in (world.left, world.right)
    )
    world.orders[0] = [left[0], right[0], *left[1:3]]
    world.write_logs()
    write_copies(lab1, (world.output, 0), world.expected[0])
    log = world.log_offsets
    there = (f"--from-merge-offset=0:{log[-1] + 1}", "--output-offset=0:4")

    def refusal(*more: str) -> str:
        with replaying(world, "--follow", *there, *more) as running:
            _, said = running.communicate(timeout=30)  # one that follows would not end
        assert running.returncode == 4, said
        return " ".join(said.split())

    third = topic(lab1)
    write_plain(lab1, (third, 0), [b"gone", b"there"])
    world.delete_below(third, 1)
    begins = "no entry of the merge log names it, the log starts at "
    assert f"{third}:0: {begins}0 and it at 1" in refusal(f"--input={third}")
    world.delete_below(world.log, log[2])
    assert f"{world.right}:0: {begins}{log[2]} and it at 0" in refusal()
    world.delete_below(world.left, left[3][2] + 1)
    gone = f"[{left[2][2] + 1}, {left[3][2] + 1}) is gone and was never merged"
    assert f"{world.left}:0: {gone}" in refusal()
    assert world.got == world.expected


@pytest.mark.trust
def test_follow_takes_all_partitions_at_once(lab1: Lab, topic: MakeTopic) -> None:
    """None of them ends, so none may wait until another has: one more than a replay takes."""
    count = AT_ONCE + 1
    world = World(lab1, topic, partitions=count, count=3)
    with replaying(world, "--follow") as running:
        end = time.monotonic() + 40
        while sum(len(rows) for rows in world.got.values()) < 6 * count:
            assert time.monotonic() < end, world.got
            time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0, said
    rows = eoctl("journal", "list", "-o", "json").rows
    assert [r["action"] for r in rows if r["scope"] == f"merge log {world.log}"] == ["follow"]
    logs = contents(lab1, world.log, count)
    for p, got in world.got.items():
        order = [json.loads(value or b"") for _, value, _, _ in logs[p]]
        named = [(e["topic"], e["partition"], e["offset"]) for e in order]
        assert sorted(named) == sorted(world.orders[p])
        assert got == [world.records[entry] for entry in named]


def test_a_zombie_is_fenced(lab1: Lab, topic: MakeTopic) -> None:
    """One that stood still while another took over, under locks that know nothing of each other."""
    world = World(lab1, topic, count=10)
    with replaying(world, "--follow") as old:
        wait_for(old, world, 20)
        os.kill(old.pid, signal.SIGSTOP)
        state = os.environ["EOCTL_STATE_DIR"]
        os.environ["EOCTL_STATE_DIR"] = state + "/other-host"
        try:
            assert world.replay().status == 0
        finally:
            os.environ["EOCTL_STATE_DIR"] = state
        world.more(0, 10, seed=1)
        os.kill(old.pid, signal.SIGCONT)
        _, said = old.communicate(timeout=60)
    assert old.returncode == 6, said
    assert "another process has taken it over" in " ".join(said.split())
    order = entries(lab1, world.log)
    assert world.got[0] == [world.records[entry] for entry in order]


@pytest.mark.trust
@pytest.mark.timeout(600)
def test_brokers_die_in_the_middle(lab3: Lab, topic: MakeTopic) -> None:
    """It survives, or it ends with a sentence and the next one goes on."""

    def replicated(lab: Lab, partitions: int, replicas: int, config: Any, name: str) -> str:
        del replicas
        return topic(lab, partitions, 3, config | {"min.insync.replicas": "2"}, name)

    world = World(lab3, replicated, count=150)
    world.write_logs()
    with replaying(world, "--max-rate", "8KiB") as running:  # so that it lasts
        wait_for(running, world, 1)
        victim = random.Random(3).choice(lab3.broker_ids)
        lab3.kill(victim)
        try:
            _, said = running.communicate(timeout=150)
        finally:
            lab3.start(victim)
    if running.returncode != 0:
        assert running.returncode in (3, 6), said
        assert "Traceback" not in said
        end = time.monotonic() + 90
        while (ran := world.replay()).status != 0:  # while a new leader's watermark lags
            assert ran.status in (3, 4, 5, 6), ran.stderr
            assert time.monotonic() < end, ran.stderr
            time.sleep(0.5)
    topic_partition = (world.output, 0)
    assert [
        copied for _, copied in consumed(lab3, [topic_partition])[topic_partition]
    ] == world.expected[0]
