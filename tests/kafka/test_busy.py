"""A healthy busy cluster is silent, also where answers are late; what is broken in it is found.

The load (`tests/kafka/busy_load.py`): Java and librdkafka clients that begin and end transactions,
a Kafka Streams application of each group protocol, whose repartition topics are purged.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.conftest import Tried
from tests.kafka.busy_load import Load, busy
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.conftest import REBALANCE, MakeTopic
from tests.kafka.relay import relayed
from tests.share import SHARE, fewer, only_here

pytestmark = pytest.mark.timeout(7200)

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status", *FAST),
    ("check", *FAST),
    ("txn", "hanging", *FAST),
    ("why", *FAST),
)
LATE_SECONDS = 0.5 if SHARE >= 1 else 0.1
WITH = ("--context", "relayed", "--timeout", "170s")
IDS = fewer(200, 12)  # the brokers alone take half a core for 40
RUNS = fewer(300, 4)
ORPHANS = max(3, fewer(50, 3))
IN_ALL_STATES = max(12, fewer(250, 12))
AT_ONCE = fewer(6, 2)
PATIENT = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
"""Kafka's own: with the 3 s of a lab, a crowded machine has brokers fenced and leaders moved."""


Look = Callable[..., Ran]


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """A lab of its own: what other tests leave in theirs would be found."""
    return start_lab(LabSpec(name="busy", brokers=3, settings=REBALANCE | PATIENT))


@pytest.fixture(scope="module")
def field(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Load, Look]]:
    """The load, and eoctl behind a relay that delays each answer by up to LATE_SECONDS."""
    folder = tmp_path_factory.mktemp("busy")
    rng = random.Random(28)
    with relayed(lab) as relay, busy(lab, folder, ids=IDS) as load:
        relay.delay = lambda key: rng.uniform(0, LATE_SECONDS)
        config = relay.config(folder)

        def look(*words: str) -> Ran:
            words = (*WITH, *words, "-o", "json")
            host = folder / f"state-{threading.get_ident()}"  # two `check` of one host wait
            env = environment(EOCTL_CONFIG=config, EOCTL_STATE_DIR=str(host))
            return eoctl(*words, env=env, timeout=180)

        yield load, look


@pytest.mark.parametrize("seconds", [0] if SHARE >= 1 else only_here([0, 100], 0, beyond="trust"))
def test_health_is_silence(field: tuple[Load, Look], tried: Tried, seconds: int) -> None:
    """RUNS commands, and again until the time is over: all of them take a quarter of an hour."""
    load, look = field
    end = time.monotonic() + seconds
    while True:
        before = load.ended
        with ThreadPoolExecutor(AT_ONCE) as operators:
            runs = operators.map(
                lambda number: look(*COMMANDS[number % len(COMMANDS)]), range(RUNS)
            )
            loud = [(n, r.status, r.stdout, r.stderr) for n, r in enumerate(runs) if r.status != 0]
        tried("commands", RUNS)
        tried("transactions meanwhile", load.ended - before)
        assert load.ended > before + RUNS, "the load did not run"
        assert loud == []
        if time.monotonic() >= end:
            break


async def begin_and_end(client: Client, topic: str, count: int) -> None:
    """Leave ids that have written nothing, have committed, have aborted and are open."""
    for number in range(count):
        owner = await Producer.init(client, f"{topic}-{number}", 300_000)
        state = number % 4
        if state:
            await owner.send(topic, 0, [NewRecord(b"1")])
        if state in (1, 2):
            await (owner.commit() if state == 1 else owner.abort())


@pytest.fixture
def at_rest(lab: Lab, topic: MakeTopic) -> Iterator[int]:
    """IN_ALL_STATES ids that do nothing meanwhile; those that are open are aborted in the end."""
    name = topic(lab, 1, 3)

    async def scenario(count: int) -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await begin_and_end(client, name, count)

    async def close() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            for number in range(3, IN_ALL_STATES, 4):
                await Producer.init(client, f"{name}-{number}")

    asyncio.run(scenario(IN_ALL_STATES))
    yield IN_ALL_STATES
    asyncio.run(close())


@pytest.mark.parametrize(
    ("kind", "number"),
    # a lost marker needs a broker that ends: a minute more
    only_here([("marker-lost", 0), *(("orphan", number) for number in range(10))], ("orphan", 0)),
)
def test_what_is_broken_is_found_and_nothing_else(
    field: tuple[Load, Look], lab: Lab, at_rest: int, tried: Tried, kind: str, number: int
) -> None:
    """On partitions of its own, and of all that moves or rests meanwhile nothing."""
    _, look = field
    remove_planted(lab)  # by the test before, or by a first try
    truths = break_(lab, kind, count=ORPHANS if kind == "orphan" else 1)
    tried("planted", len(truths))
    tried("other ids", at_rest + IDS)
    planted = sorted((t.topic, t.partition, kind) for t in truths)
    ran = look("txn", "hanging", *FAST)
    assert ran.status == 1, (ran.stdout, ran.stderr)
    assert sorted((r["topic"], r["partition"], r["verdict"]) for r in ran.rows) == planted
    for command in ("status", "check"):
        ran = look(command, *FAST)
        assert ran.status == 1, (command, ran.stdout, ran.stderr)
    [row] = look("why", *FAST).rows
    assert (row["topic"], row["partition"], row["held_by"]["verdict"]) in planted


def remove_planted(lab: Lab) -> None:
    """Delete the topics that `break_` has made."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    planted = [t for t in admin.list_topics(timeout=30).topics if t.startswith("lab-")]
    if planted:
        for deleted in admin.delete_topics(planted, operation_timeout=30).values():
            deleted.result(60)
