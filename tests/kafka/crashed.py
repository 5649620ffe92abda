"""A copy job that died, made by hand: what its output holds and what its store says is known."""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, eoctl

START = int(time.time()) * 1000 - 3_600_000
"""Timestamp of the first record of each `write`; the others follow by the millisecond."""

Positions = Mapping[tuple[str, int], int]


def producing(lab: Lab, **more: Any) -> Any:
    """An idempotent producer with an id of its own."""
    from confluent_kafka import Producer

    return Producer(lab.client_properties() | {"enable.idempotence": True, "linger.ms": 0} | more)


@lru_cache(1)
def _producing_inputs(bootstrap_servers: str) -> Any:
    """One for the inputs of all scenes of a lab: each asks half a second for its id."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 0}
    return Producer(settings)


def write(producer: Any, topic: str, values: Sequence[str], partition: int = 0) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=partition, timestamp=START + number)
    assert producer.flush(30) == 0


def commit(lab: Lab, group: str, offsets: Positions, metadata: str = "", epoch: int = -1) -> None:
    """As a consumer that is no member; a coordinator that is only being made is waited for.

    epoch: the leader's, which consumers commit too; -1: none.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(lab.client_properties() | {"group.id": group})
    wanted = [TopicPartition(t, p, o, metadata, epoch) for (t, p), o in offsets.items()]
    end = time.monotonic() + 30
    while True:
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            assert time.monotonic() < end
            time.sleep(0.2)
        else:
            break
    assert [one.error for one in done] == [None] * len(wanted)
    consumer.close()


def committed(lab: Lab, group: str) -> dict[tuple[str, int], int]:
    """What the group holds, by Kafka's own client."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(20).topic_partitions
    return {(t.topic, t.partition): t.offset for t in found if t.offset >= 0}


def groups(lab: Lab) -> set[str]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    return {g.group_id for g in admin.list_consumer_groups().result(20).valid}


@dataclass
class Scene:
    """Input of 20 records; the output has `there` copies of it, by `producer`."""

    lab: Lab
    folder: Path
    input: str
    output: str
    there: int
    group: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:8]}")
    producer: Any = None

    @classmethod
    def make(
        cls,
        lab: Lab,
        topic: Callable[..., str],
        folder: Path,
        *,
        there: int = 12,
        records: int = 20,
        replicas: int = 1,
        config: dict[str, str] | None = None,
    ) -> "Scene":
        scene = cls(
            lab,
            folder,
            topic(lab, 1, replicas, name="in", config=config),
            topic(lab, 1, replicas, name="out", config=config),
            there,
        )
        values = [str(number) for number in range(records)]
        write(_producing_inputs(lab.bootstrap_servers), scene.input, values)
        scene.producer = producing(lab)
        write(scene.producer, scene.output, values[:there])
        return scene

    @property
    def plan_file(self) -> str:
        return str(self.folder / "plan.json")

    def describe(
        self, *, strategy: str = "output-end", store: str | None = None, more: str = ""
    ) -> str:
        """The application file; by default a copy whose positions are in the group."""
        path = self.folder / "app.toml"
        table = store or f'kind = "kafka-group"\ngroup = "{self.group}"'
        path.write_text(
            f'[app]\nname = "copy"\nstrategy = "{strategy}"\ninputs = ["{self.input}"]\n'
            f'outputs = ["{self.output}"]\n[app.store]\n{table}\n{more}\n'
        )
        return str(path)

    def pair(self, offset: int, output: int, **beside: Any) -> str:
        """The store of commit-pair as a file; beside: more keys of the input's offset."""
        stored = {
            "input": {"topic": self.input, "partition": 0, "offset": offset, **beside},
            "output": {"topic": self.output, "partition": 0, "offset": output},
        }
        (self.folder / "offsets.json").write_text(json.dumps({"partitions": [stored]}))
        return self.describe(strategy="commit-pair", store='kind = "file"\npath = "offsets.json"')

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Ran:
        return eoctl("restart", *words, lab=self.lab, env=env)

    def plan(self, *more: str) -> Ran:
        """Of what `describe` or `pair` said last."""
        app = str(self.folder / "app.toml")
        return self("plan", app, "--out", self.plan_file, "--pause", "0.2s", *more)

    def apply(self, *more: str, env: Mapping[str, str] | None = None) -> Ran:
        return self("apply", self.plan_file, "--execute", "--yes", *more, env=env)

    def undo(self, *more: str, env: Mapping[str, str] | None = None) -> Ran:
        return self("undo", self.plan_file, "--execute", "--yes", *more, env=env)

    def verify(self) -> Ran:
        return self("verify", self.plan_file, "--pause", "0.2s", "-o", "json")

    def commits(self, offset: int, metadata: str = "") -> None:
        commit(self.lab, self.group, {(self.input, 0): offset}, metadata)

    @property
    def holds(self) -> int | None:
        return committed(self.lab, self.group).get((self.input, 0))


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)
