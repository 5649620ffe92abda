"""Restarts where brokers die too, and recovery as a script of cron that is killed itself."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.cluster import Lab
from tests.conftest import Tried
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene, producing, until, write
from tests.kafka.restarting import STRATEGIES, Input, Life, begin, expected, fill, no_home, outcome
from tests.share import fewer, share
from tests.started import started

BROKER_RUNS = [pytest.param(run, marks=pytest.mark.long if run else ()) for run in range(share(12))]
COPIED = 8
SCRIPT_RUNS = share(5)


def _first(lab: Lab, topic: str) -> Any:
    """Partition 0 as Kafka's own client sees it; a broker may hear of it late."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    found: Any = None

    def known() -> bool:
        nonlocal found
        found = admin.list_topics(topic, timeout=20).topics[topic].partitions.get(0)
        return found is not None

    until(known)
    return found


def _leader(lab: Lab, topic: str) -> int:
    leader: int = _first(lab, topic).leader
    return leader


def _in_sync(lab: Lab, topic: str) -> list[int]:
    in_sync: list[int] = _first(lab, topic).isrs
    return in_sync


def _placed(lab: Lab, name: str, brokers: list[int], config: dict[str, str] | None = None) -> str:
    """A topic with one partition on exactly these brokers, led by the first."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab.client_properties())
    new = NewTopic(name, 1, replica_assignment=[brokers], config=config or {})
    admin.create_topics([new], operation_timeout=10)[name].result(20)
    until(lambda: _leader(lab, name) == brokers[0])
    return name


def _in_the_end(ask: Callable[[], Ran], seconds: float = 90) -> Ran:
    """Refused while brokers are away or followers lag; the same again gets through."""
    end = time.monotonic() + seconds
    while (ran := ask()).status != 0:
        assert ran.status in (3, 4, 5), ran
        assert time.monotonic() < end, ran.stderr
        time.sleep(0.5)
    return ran


GIVE_UPS = 4


class Stubborn(Life):
    """Plans again while brokers come back; a plan that came too early is refused by apply.

    An application that gives up when a broker dies, or refuses numbers that a new leader made
    stale, is dead like one that was killed: it is planned again, a few times.
    """

    give_ups = GIVE_UPS

    def live(self, kills: Sequence[int]) -> int:
        gave_up: list[str] = []
        ahead: list[int | None] = [*kills, None]
        restarts = 0
        while ahead:
            ended = self.ended(ahead[0])
            if ended.returncode == 0:
                return restarts
            if ended.returncode == -9:
                ahead.pop(0)
            else:
                gave_up.append(ended.stderr[-2000:])
                assert len(gave_up) <= self.give_ups, "\n".join(gave_up)
            self.between()
            self.restart()
            restarts += 1
        raise AssertionError("killed without being told to")

    def restart(self) -> None:
        planned: list[Ran] = []

        def both() -> Ran:
            planned[:] = [_in_the_end(lambda: self.plan("--env", *self.fencing))]
            return self.apply()

        _in_the_end(both)
        self.env = dict(line.split("=", 1) for line in planned[0].stdout.splitlines())


@pytest.fixture(scope="module")
def source(lab3: Lab, topic: MakeTopic) -> Input:
    return fill(lab3, topic(lab3, 2, 3), 2, 25)


@pytest.mark.trust
@pytest.mark.parametrize("run", BROKER_RUNS)
def test_brokers_killed_in_between(
    lab3: Lab, topic: MakeTopic, tmp_path: Path, source: Input, run: int
) -> None:
    """The application and a broker are killed, the broker comes back while it is planned."""
    chance = random.Random(run)
    usual = [s for s in STRATEGIES if s[0] in ("commit-pair", "output-end", "transactional")]
    strategy, store = usual[run % len(usual)]
    made = begin(lab3, topic, tmp_path, strategy, store, [source], replicas=3)
    life = Stubborn(made.lab, made.config, made.app_file, made.plan_file)
    broker = chance.choice(lab3.broker_ids)
    back: list[threading.Thread] = []

    def kill_a_broker() -> None:
        if not back:
            lab3.kill(broker)
            back.append(threading.Timer(chance.uniform(0, 3), lab3.start, [broker]))
            back[0].start()

    life.between = kill_a_broker
    try:
        life.live([chance.randint(5, 40), chance.randint(1, 20)])
        assert outcome(life) == expected(life, [source])
    finally:
        for thread in back:
            thread.join()


@contextmanager
def dying(lab: Lab, chance: random.Random) -> Iterator[list[int]]:
    """While the block runs a broker is killed, comes back, then another; yields who was killed."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(chance.uniform(0.5, 3)):
            killed.append(chance.choice(lab.broker_ids))
            lab.kill(killed[-1])
            ended.wait(chance.uniform(0, 3))
            lab.start(killed[-1])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()


@pytest.mark.trust
@pytest.mark.timeout(3600)
def test_a_long_copy_while_one_broker_after_the_other_dies(
    lab3: Lab, topic: MakeTopic, tmp_path: Path, tried: Tried
) -> None:
    """Killed too, fenced and restarted by plans; what hangs is asked for in between."""
    chance, records, lives = random.Random(3), fewer(50_000, 60), fewer(20, 1)
    source = fill(lab3, topic(lab3, 2, 3), 2, records)
    made = begin(
        *(lab3, topic, tmp_path, "transactional", "kafka-group", [source]), replicas=3, every=20
    )
    life = Stubborn(made.lab, made.config, made.app_file, made.plan_file)
    life.give_ups = GIVE_UPS * lives
    looks: list[Ran] = []
    life.between = lambda: looks.append(eoctl("txn", "hanging", *FAST, lab=lab3))
    with dying(lab3, chance) as killed:
        life.live([chance.randint(records // 4, records) for _ in range(lives)])
    assert outcome(life) == expected(life, [source])
    assert {look.status for look in looks} <= {0, 1, 3, 5}, looks
    tried("records", 2 * records)
    tried("applications killed", len(looks))
    tried("brokers killed", len(killed))


def test_a_record_that_is_not_replicated_yet(lab3: Lab, tmp_path: Path) -> None:
    """In the leader's log, above the high watermark: it appears later, so n is not known yet."""
    for _ in range(3):  # the controller gives a frozen broker up after 9 s: a plan may be too late
        scene, refused = _planned_beside_a_frozen_follower(lab3, tmp_path)
        assert refused.status == 4, refused.stderr
        if "PID -1" not in refused.stderr:
            break
    assert "the leader's log ends at 13, it is replicated up to 12" in refused.stderr
    again = _in_the_end_refused(scene)
    assert "PID -1" in again.stderr


def _planned_beside_a_frozen_follower(lab: Lab, folder: Path) -> tuple[Scene, Ran]:
    """A record reaches the output's leader, and not its follower; what a plan says then."""
    leader, other, frozen = lab.broker_ids
    source = _placed(lab, "in", [leader, other])
    output = _placed(lab, "out", [leader, frozen], {"min.insync.replicas": "1"})
    until(lambda: frozen in _in_sync(lab, output))
    scene = Scene(lab, folder, source, output, 12)
    values = [str(number) for number in range(20)]
    write(producing(lab), source, values)
    scene.producer = producing(lab)
    write(scene.producer, output, values[:12])
    scene.pair(7, 7)
    assert scene.plan().status == 0
    unacknowledged = producing(lab, **{"enable.idempotence": False, "acks": 1})
    # connected to the leader, and knows the output: it asks nobody that may be frozen
    write(unacknowledged, _placed(lab, "connected", [leader]), ["first"])
    unacknowledged.list_topics(output, timeout=20)
    lab.freeze(frozen)
    try:
        write(unacknowledged, output, ["late"])
        return scene, scene.plan()
    finally:
        lab.thaw(frozen)


def _in_the_end_refused(scene: Scene) -> Ran:
    """Once the follower has it, it is counted, and found to be nobody's."""
    end = time.monotonic() + 60
    while "PID -1" not in (ran := scene.plan()).stderr:
        assert time.monotonic() < end, ran.stderr
        time.sleep(0.5)
    return ran


@pytest.mark.long
def test_the_log_went_another_way(lab3: Lab, tmp_path: Path) -> None:
    """Stored in the first leader epoch, behind where that epoch ended."""
    first, second, _ = lab3.broker_ids
    source = _placed(lab3, "in", [first, second])
    output = _placed(lab3, "out", [second, first])
    values = [str(number) for number in range(20)]
    producer = producing(lab3)
    write(producer, source, values[:10])
    copies = producing(lab3)
    write(copies, output, values[:9])
    scene = Scene(lab3, tmp_path, source, output, 9)
    lab3.kill(first)
    try:
        until(lambda: _leader(lab3, source) == second)
        write(producer, source, values[10:])
    finally:
        lab3.start(first)
    scene.pair(10, 9, leader_epoch=0)
    _in_the_end(scene.plan)
    scene.pair(15, 9, leader_epoch=0)
    end = time.monotonic() + 60
    while (refused := scene.plan()).status != 4 or "the logs diverged" not in refused.stderr:
        assert time.monotonic() < end, refused
        time.sleep(0.5)
    assert "leader epoch 0 ends at 10, the stored offset is 15" in refused.stderr


def test_a_plan_for_another_cluster(lab1: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """The same group and topics may be there too: its cluster id tells."""
    scene = Scene.make(lab1, topic, tmp_path)
    scene.commits(5)
    scene.describe()
    assert scene.plan().status == 0
    scene.lab = lab3
    for refused in (scene.apply(), scene("apply", scene.plan_file), scene.verify()):
        assert refused.status == 4, refused
        assert "the plan is for cluster " in refused.stderr
    scene.lab = lab1
    assert scene.holds == 5
    assert scene.apply().status == 0


# -- cron ----------------------------------------------------------------------------------------

SCRIPT = """
set -e
e="{python} -m eoctl --bootstrap-server {servers}"
$e txn fence {owner} --owner-is-gone --sample-interval 0.2s --execute --yes || test $? = 4
$e restart plan {app} --out {plan} --pause 0.2s
$e restart apply {plan} --execute --yes
$e restart verify {plan} --pause 0.2s
"""


def _script(text: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return started(
        ["sh", "-c", text],
        env=no_home(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("run", range(SCRIPT_RUNS))
def test_recovery_from_cron_killed_anywhere(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, run: int
) -> None:
    """fence, plan, apply, verify without HOME and terminal: killed and run again, the same end."""
    chance = random.Random(run)
    scene = Scene.make(lab1, topic, tmp_path, there=0)
    owner = producing(lab1, **{"transactional.id": f"{scene.group}-id"})
    owner.init_transactions(30)
    owner.begin_transaction()
    write(owner, scene.output, [str(number) for number in range(COPIED)])
    owner.commit_transaction(30)
    owner.begin_transaction()
    write(owner, scene.output, ["8", "9"])  # left open: the process is as good as dead
    scene.commits(3)
    mirror = f"{scene.group}-mirror"
    scene.describe(more=f'[app.mirror]\nkind = "kafka-group"\ngroup = "{mirror}"')
    text = SCRIPT.format(
        python=sys.executable,
        servers=lab1.bootstrap_servers,
        owner=f"{scene.group}-id",
        app=tmp_path / "app.toml",
        plan=scene.plan_file,
    )
    for _ in range(2):
        with _script(text) as running:
            time.sleep(chance.uniform(0.5, 9))
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
        assert scene.holds in (3, COPIED)
    for _ in range(2):
        with _script(text) as ended:
            said, _ = ended.communicate(timeout=120)
        assert ended.returncode == 0, said
        assert scene.holds == COPIED
