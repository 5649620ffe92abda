"""A healthy busy cluster is silent, also where answers are late; what is broken in it is found.

The load (`tests/kafka/busy_load.py`): Java and librdkafka clients that begin and end transactions,
a Kafka Streams application of each group protocol, whose repartition topics are purged.
"""

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.kafka.busy_load import Load, busy
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.relay import relayed
from tests.share import fewer

pytestmark = [pytest.mark.timeout(7200), pytest.mark.usefixtures("lab3")]

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status", *FAST),
    ("check", *FAST),
    ("txn", "hanging", *FAST),
    ("why", *FAST),
)
LATE_SECONDS = 0.5
IDS = fewer(200, 40)
RUNS = fewer(300, 4)


Look = Callable[..., Ran]


@pytest.fixture(scope="module")
def field(lab3: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Load, Look]]:
    """The load, and eoctl behind a relay that delays each answer by up to LATE_SECONDS."""
    folder = tmp_path_factory.mktemp("busy")
    rng = random.Random(28)
    with relayed(lab3) as relay, busy(lab3, folder, ids=IDS) as load:
        relay.delay = lambda: rng.uniform(0, LATE_SECONDS)
        env = environment(EOCTL_CONFIG=relay.config(folder))

        def look(*words: str) -> Ran:
            return eoctl("--context", "relayed", "--timeout", "120s", *words, "-o", "json", env=env)

        yield load, look


def test_health_is_silence(field: tuple[Load, Look]) -> None:
    load, look = field
    before = load.ended
    loud = []
    for number in range(RUNS):
        ran = look(*COMMANDS[number % len(COMMANDS)])
        if ran.status != 0:
            loud.append((number, ran.status, ran.json.get("errors"), ran.stderr))
    assert load.ended > before + RUNS, "the load did not run"
    assert loud == []


@pytest.mark.parametrize(
    ("kind", "verdict"), [("orphan", "orphan"), ("marker-lost", "marker-lost")]
)
def test_what_is_broken_is_found_and_nothing_else(
    field: tuple[Load, Look], lab3: Lab, kind: str, verdict: str
) -> None:
    """On a partition of its own, and of all that moves meanwhile nothing."""
    _, look = field
    [truth] = break_(lab3, kind)
    place = (truth.topic, truth.partition)
    try:
        ran = look("txn", "hanging", *FAST)
        assert ran.status == 1, (ran.stdout, ran.stderr)
        assert [(r["topic"], r["partition"], r["verdict"]) for r in ran.rows] == [(*place, verdict)]
        assert look("status", *FAST).status == look("check", *FAST).status == 1
        [row] = look("why", *FAST).rows
        assert (row["topic"], row["partition"], row["held_by"]["verdict"]) == (*place, verdict)
    finally:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(lab3.client_properties())  # its futures end with it
        admin.delete_topics([truth.topic])[truth.topic].result(30)
        asyncio.run(asyncio.sleep(1))
