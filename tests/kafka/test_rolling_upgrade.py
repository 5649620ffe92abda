"""Three brokers are upgraded one by one under transactional load: each stage is judged rightly.

From Kafka 3.9 over 4.0 to 4.3; then transaction.version is raised, and lowered again.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaException, Producer

from eoctl.lab import brokers, ready
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.handle import start_broker
from eoctl.lab.record import LabSpec
from recovery.values import replace
from tests.conftest import Tried
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import REBALANCE, MakeTopic
from tests.kafka.remedying import read_committed
from tests.kafka.tools import kafka_tool
from tests.share import SHARE

FIRST = "3.9.1"
THEN = ("4.0.1", "4.3.1") if SHARE >= 1 else ("4.3.1",)
FEATURES = "org.apache.kafka.tools.FeatureCommand"
SETTLED_SECONDS = 60.0


@dataclass
class Written:
    """What the clients know of their records: value → committed, aborted, or unsure."""

    fate: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


@contextmanager
def load(lab: Lab, topic: str, ids: int) -> Iterator[Written]:
    """Transactions of some ids for as long as the block: three in four commit."""
    written, ended = Written(), threading.Event()
    threads = [
        threading.Thread(target=_client, args=(lab, topic, f"{topic}-{n}", written, ended))
        for n in range(ids)
    ]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _client(lab: Lab, topic: str, name: str, written: Written, ended: threading.Event) -> None:
    chance, number = random.Random(name), 0
    while not ended.is_set():
        try:
            producer = Producer({**lab.client_properties(), "transactional.id": name})
            producer.init_transactions(60)
            while not ended.is_set():
                number += 1
                _transaction(producer, topic, f"{name} {number}", written, chance)
        except KafkaException as error:  # fatal, or too late: a new producer of the same id
            written.errors[error.args[0].name()] += 1


def _transaction(
    producer: Producer, topic: str, value: str, written: Written, chance: random.Random
) -> None:
    commit = chance.random() < 0.75
    producer.begin_transaction()
    written.fate[value] = "unsure"
    producer.produce(topic, value.encode(), partition=0)
    producer.flush(60)
    time.sleep(chance.random() * 0.3)
    (producer.commit_transaction if commit else producer.abort_transaction)(60)
    written.fate[value] = "committed" if commit else "aborted"


@contextmanager
def open_transaction(lab: Lab, topic: str, written: Written) -> Iterator[None]:
    """A transaction that lives as long as the block: no answer meanwhile may call it an orphan.

    Those of `load` are too short for a second look.
    """
    value = f"{topic}-held-{len(written.fate)}"
    settings = {"transactional.id": value, "transaction.timeout.ms": "600000"}
    producer = Producer({**lab.client_properties(), **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    written.fate[value] = "unsure"
    producer.produce(topic, value.encode(), partition=0)
    producer.flush(60)
    yield
    producer.commit_transaction(60)
    written.fate[value] = "committed"


def upgrade(lab: Lab, broker: int, version: str) -> None:
    """Stop a broker in an orderly way; start it with the jars of another release."""
    lab.terminate(broker)
    start_broker(lab, brokers.find_runtime(version), broker)
    ready.wait(lab.record, lab.folder, only=broker)


def settled(lab: Lab, orphan: GroundTruth) -> Ran:
    """Ask what hangs until nothing is hidden by a leader that moves; what is seen is right."""
    end = time.monotonic() + SETTLED_SECONDS
    while True:
        ran = eoctl("txn", "hanging", *FAST, "-o", "json", lab=lab)
        assert ran.status in (1, 3, 5), (ran.stdout, ran.stderr)
        if ran.stdout:
            wrong = [r for r in ran.rows if r["verdict"] not in ("orphan", "unknown")]
            assert not wrong, wrong
            orphans = {r["topic"] for r in ran.rows if r["verdict"] == "orphan"}
            assert orphans <= {orphan.topic}, ran.rows
            if ran.status == 1 and ran.json["complete"]:
                assert [r["topic"] for r in ran.rows] == [orphan.topic]
                return ran
        assert time.monotonic() < end, (ran.stdout, ran.stderr)
        time.sleep(0.5)


def feature(lab: Lab, *words: str) -> None:
    done = kafka_tool(lab, FEATURES, "--bootstrap-server", lab.bootstrap_servers, *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.trust
@pytest.mark.timeout(1200)
def test_no_stage_is_judged_wrongly(
    start_lab: Callable[[LabSpec], Lab],
    topic: MakeTopic,
    request: pytest.FixtureRequest,
    tried: Tried,
) -> None:
    spec = LabSpec(name="rolling", brokers=3, kafka_version=FIRST, settings=REBALANCE)
    lab = start_lab(spec)
    request.addfinalizer(lab.down)  # a second try is not one of what the first has made of it
    name = topic(lab, 1, 3)
    [orphan] = break_(lab, "orphan")
    stages = 0

    def stage() -> None:
        with open_transaction(lab, name, written):
            settled(lab, orphan)

    with load(lab, name, 3) as written:
        stage()
        for version in THEN:
            for broker in lab.broker_ids:
                upgrade(lab, broker, version)
                stage()
                stages += 1
            newer = replace(lab.record.spec, kafka_version=version)
            lab.record.model_copy(update={"spec": newer}).save(lab.folder)
        feature(lab, "upgrade", "--release-version", THEN[-1].rpartition(".")[0])
        stage()
        feature(lab, "downgrade", "--feature", "transaction.version=1")
        stage()
    seen = [(value or b"").decode() for value in read_committed(lab, name, 0)]
    assert len(seen) == len(set(seen)), "doubled"
    fates = {"committed": set[str](), "aborted": set[str](), "unsure": set[str]()}
    for value, fate in written.fate.items():
        fates[fate].add(value)
    assert fates["committed"] <= set(seen) <= fates["committed"] | fates["unsure"]
    tried("stages", stages + 2)
    tried("transactions", len(written.fate))
    settled(lab, orphan)
