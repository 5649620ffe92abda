"""The practice job: killed midway it is finished by a plan, and by nothing else."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import Ran
from tests.kafka.command import eoctl as command


@pytest.fixture
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """A new one for each attempt: the job's topics have fixed names. Retention looks at once, as
    elsewhere within minutes: the sales are old."""
    settings = {"log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "500"}
    lab = start_lab(LabSpec(name="practice", settings=settings))
    yield lab
    lab.down()


def eoctl(*words: str, lab: Lab | None = None) -> Ran:
    """With time for thousands of records on a busy machine."""
    return command(*words, lab=lab, timeout=180)


def outputs(lab: Lab, partition: int) -> list[str]:
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition("sales-priced", partition, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


@pytest.mark.long
def test_killed_and_finished_by_the_plan(lab: Lab, tmp_path: Path) -> None:
    words = ("lab", "job", "--name", lab.name)
    app = lab.folder / "sales-pricer" / "sales-pricer.toml"
    assert eoctl(*words, "--die-after", "1742").status == -9
    assert len(outputs(lab, 0)) == 1742

    alone = eoctl(*words)
    assert (alone.status, "restart plan" in alone.stderr) == (4, True), alone.stderr

    planned = eoctl("restart", "plan", str(app), "--env", lab=lab)
    assert planned.status == 0, planned.stderr
    (env := tmp_path / "env").write_text(planned.stdout)
    finished = eoctl(*words, "--env-file", str(env), "-o", "json")
    assert finished.status == 0, finished.stderr
    [row] = json.loads(finished.stdout)["rows"]
    assert (row["equal"], row["dropped"], row["written"]) == (True, 42, 6000 - 1742)
    for partition in range(2):
        wanted = [f"{partition}-{n} costs {(n % 13 + 1) * 25}" for n in range(3000)]
        assert outputs(lab, partition) == wanted

    stale = eoctl(*words, "--env-file", str(env))
    assert (stale.status, "moved" in stale.stderr) == (4, True), stale.stderr
