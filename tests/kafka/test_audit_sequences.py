"""`audit sequences` on real logs: faults planted among good records are found, and nothing else."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.audit_faults import plant_sequences
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import FORGETFUL, as_published, same
from tests.share import share

LONG = (pytest.mark.long, pytest.mark.timeout(1800))
FIELDS = ("partition", "finding", "producer_id", "offset", "records")


@pytest.fixture(scope="module")
def forgetful(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec(name="forgetful", settings=FORGETFUL))


@pytest.mark.parametrize("records", [share(1_000_000), pytest.param(5_000_000, marks=LONG)])
def test_planted_faults_are_found_and_nothing_else(
    forgetful: Lab, topic: MakeTopic, records: int
) -> None:
    name = topic(forgetful, partitions=2)
    planted = asyncio.run(plant_sequences(forgetful, name, records))
    assert len(planted) == 26
    ran = eoctl("audit", "sequences", name, "-o", "json", lab=forgetful, timeout=600)
    assert as_published(ran, "audit-sequences").status == 1, ran.stderr
    assert same(ran.rows, FIELDS) == planted
    assert ran.json["findings"] == 26
    assert sum(p["records"] for p in ran.json["examined"]) >= records
    assert sum(p["explained"] for p in ran.json["examined"]) == 0


def test_honest_producers_are_no_finding(lab1: Lab, topic: MakeTopic) -> None:
    """Idempotent, transactional (a new epoch each time) and plain ones, all mixed."""
    name = topic(lab1, partitions=2)
    count = share(20_000)
    settings = lab1.client_properties()
    idempotent = Producer({**settings, "enable.idempotence": True})
    plain = Producer({**settings, "acks": 1, "enable.idempotence": False})
    transactional = Producer({**settings, "transactional.id": name})
    transactional.init_transactions(20)
    for number in range(10):
        transactional.begin_transaction()
        for i in range(count // 10):
            transactional.produce(name, b"t", partition=i % 2)
            idempotent.produce(name, b"i", partition=i % 2)
            plain.produce(name, b"p", partition=i % 2)
            for producer in (transactional, idempotent, plain):
                producer.poll(0)
        assert transactional.flush(20) == 0  # an abort would throw away what was not sent
        if number % 3:
            transactional.commit_transaction(20)
        else:
            transactional.abort_transaction(20)
    assert idempotent.flush(20) == plain.flush(20) == 0
    ran = eoctl("audit", "sequences", name, "-o", "json", lab=lab1)
    assert (ran.status, ran.rows) == (0, []), ran.stderr
    examined = ran.json["examined"]
    assert sum(p["records"] for p in examined) == 3 * count
    assert sum(p["unnumbered"] for p in examined) == count
    assert sum(p["producers"] for p in examined) == 4


def test_a_range_that_is_not_there_is_exit_3(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    ran = eoctl("audit", "sequences", name, "--end", "10", "-o", "json", lab=lab1)
    assert ran.status == 3
    assert [e["error"] for e in ran.json["errors"]] == ["OFFSET_OUT_OF_RANGE"]
    assert eoctl("audit", "sequences", lab=lab1).status == 2
