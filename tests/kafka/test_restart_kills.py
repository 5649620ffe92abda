"""Applications killed at random points, restarted by plans: as if never interrupted.

Real brokers, real processes, every strategy: record for record, in order.
"""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.conftest import MakeTopic
from tests.kafka.restarting import (
    OTHER_STORES,
    PARTITIONS,
    STRATEGIES,
    Input,
    begin,
    expected,
    fill,
    outcome,
)
from tests.postgres import postgres
from tests.share import kills, only_here, share
from tests.zookeeper import serving

RECORDS = 25
RUNS = only_here(range(share(100, least=len(STRATEGIES))), 0, 3, 6, beyond="trust")


@pytest.fixture(scope="module")
def inputs(lab1: Lab) -> dict[str, list[Input]]:
    """What every run reads: one topic, and two with one partition each to be merged."""
    name = uuid.uuid4().hex[:8]
    made = _made(lab1, {f"in-{name}": PARTITIONS, f"{name}-l": 1, f"{name}-r": 1})
    one, left, right = (fill(lab1, t, n, RECORDS, seed) for seed, (t, n) in enumerate(made.items()))
    return {"one": [one], "two": [left, right]}


def _made(lab: Lab, wanted: dict[str, int], replicas: int = 1) -> dict[str, int]:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab.client_properties())
    new = [NewTopic(name, partitions, replicas) for name, partitions in wanted.items()]
    for made in admin.create_topics(new, operation_timeout=10).values():
        made.result(20)
    return wanted


@pytest.mark.parametrize("run", RUNS)
def test_killed_anywhere_and_restarted_by_the_plan(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, inputs: dict[str, list[Input]], run: int
) -> None:
    chance = random.Random(run)
    strategy, store = STRATEGIES[run % len(STRATEGIES)]
    mine = inputs["two" if strategy == "merge-log" else "one"]
    order = [chance.randint(0, 1) for _ in range(2 * RECORDS)]
    life = begin(
        lab1, topic, tmp_path, strategy, store, mine, every=chance.randint(2, 9), order=order
    )
    kills = [chance.randint(1, 40) for _ in range(chance.randint(1, 2))]
    life.live(kills)
    assert outcome(life) == expected(life, mine), (strategy, store, kills)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The stores outside of Kafka: store → where it is."""
    with serving(tmp_path_factory.mktemp("zookeeper")) as zookeeper, postgres() as database:
        yield {"postgres": database.url(), "zookeeper": zookeeper.address}


@pytest.mark.parametrize("run", range(kills(12)))
def test_killed_anywhere_with_its_pair_in_another_store(
    lab1: Lab,
    topic: MakeTopic,
    tmp_path: Path,
    inputs: dict[str, list[Input]],
    servers: dict[str, str],
    run: int,
) -> None:
    chance = random.Random(run)
    store = OTHER_STORES[run % len(OTHER_STORES)]
    life = begin(
        lab1,
        topic,
        tmp_path,
        "commit-pair",
        store,
        inputs["one"],
        every=chance.randint(2, 9),
        server=servers.get(store, ""),
    )
    kills = [chance.randint(5, 40)]
    life.live(kills)
    assert outcome(life) == expected(life, inputs["one"]), (store, kills)
