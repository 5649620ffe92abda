"""Applications that die, one process each, killed after so many things done.

What they do is exactly once only if they are restarted by a plan: they take offsets and numbers
from the environment (`restart plan --env`) and drop what they are told with
`recovery.restart.drop_first`. `main` takes one word, a `Config` as JSON. Status 0: all is done.
"""

import base64
import json
import os
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from recovery.restart.drop_first import DropFirst, OutputNow, restart_offset


@dataclass
class Config:
    """kill_after: die at the so-manieth thing done; None: run to the end. every: records between
    commits. folder: where files are. address: of the server that has the store, if one has it.
    first: this run begins at the beginning."""

    servers: str
    strategy: str
    inputs: list[str]
    output: str
    partitions: int
    every: int
    folder: str
    group: str
    store: str = "kafka-group"
    address: str = ""
    kill_after: int | None = None
    first: bool = False
    order: list[int] = field(default_factory=list)


def process(value: str) -> list[str]:
    """0, 1 or 2 outputs, the same each time."""
    return [f"{value}.{n}" for n in range(int(value) % 3)]


class App:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._left = config.kill_after
        self._producer: Producer | None = None
        self._admin: Any = None
        self.ends: dict[tuple[str, int], int] = {}

    def did(self) -> None:
        """One more thing is done: die here, if this is where to die."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    # -- Kafka ------------------------------------------------------------------------------------

    def properties(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.config.servers}

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            more: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 0}
            if self.config.strategy == "transactional":
                more["transactional.id"] = f"{self.config.group}-id"
                more["transaction.timeout.ms"] = 600_000
            self._producer = Producer(self.properties() | more)
            if self.config.strategy == "transactional":
                self._producer.init_transactions(30)
        return self._producer

    def produce(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            self.ends[topic, partition] = message.offset() + 1

        self.producer.produce(topic, value, key, partition=partition, on_delivery=delivered)
        self.producer.poll(0)

    def flush(self) -> None:
        if self.producer.flush(60):
            raise RuntimeError("not delivered")

    def consumer(self) -> Consumer:
        return Consumer(
            self.properties()
            | {
                "group.id": f"{self.config.group}-reads",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "auto.offset.reset": "error",
            }
        )

    def records(
        self, topic: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, bytes, bytes | None]]:
        """(offset, value, key) of the visible records from `start` to the end."""
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            while True:
                message = consumer.poll(60)
                if message is None:
                    raise RuntimeError(f"nothing came of {topic}:{partition}")
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    raise RuntimeError(str(error))
                if end is not None and message.offset() >= end:
                    return
                yield message.offset(), message.value(), message.key()
        finally:
            consumer.close()

    def look(self, topic: str, partition: int, start: int) -> OutputNow:
        """The output as it is now."""
        from confluent_kafka.admin import AdminClient, OffsetSpec

        topic_partition = TopicPartition(topic, partition)
        if self._admin is None:
            self._admin = AdminClient(self.properties())
        told = self._admin.list_offsets({topic_partition: OffsetSpec.latest()})[
            topic_partition
        ].result(20)
        return OutputNow(
            told.offset, sum(1 for _ in self.records(topic, partition, start)), told.leader_epoch
        )

    def start(self, topic: str, partition: int) -> int:
        return 0 if self.config.first else restart_offset(os.environ, topic, partition)

    def sends(self, topic: str, partition: int) -> Callable[[], bool]:
        if self.config.first:
            self.ends[topic, partition] = 0
            return lambda: True
        drop = DropFirst.from_env(os.environ, topic, partition, self.look)
        name = f"EOCTL_DROP_{topic.upper().replace('-', '_')}_{partition}"
        here, end = int(os.environ[f"{name}_FROM"]), int(os.environ[f"{name}_END"])
        dropped = [offset for offset, _, _ in self.records(topic, partition, here, end)]
        self.ends[topic, partition] = here

        def sends() -> bool:
            if drop.sends():
                return True
            # what is dropped is there: the pair of a commit names its offset
            self.ends[topic, partition] = dropped.pop(0) + 1
            return False

        return sends

    # -- stores -----------------------------------------------------------------------------------

    def commit(self, entries: list[dict[str, Any]]) -> None:
        """Entries of the JSON object; those of the same input are replaced, all at once."""
        kind = self.config.store
        if kind == "kafka-group":
            consumer = Consumer(self.properties() | {"group.id": self.config.group})
            offsets = [
                TopicPartition(
                    e["input"]["topic"],
                    e["input"]["partition"],
                    e["input"]["offset"],
                    json.dumps({"output": e["output"]}),
                )
                for e in entries
            ]
            while True:
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                except KafkaException as error:  # its coordinator is being made, or moved
                    if not error.args[0].retriable():
                        raise
                    time.sleep(0.2)
                else:
                    break
            consumer.close()
        elif kind in ("sql", "postgres"):
            self._commit_rows(entries)
        else:
            held = {(e["input"]["topic"], e["input"]["partition"]): e for e in self.stored()}
            for e in entries:
                held[e["input"]["topic"], e["input"]["partition"]] = e
            self._keep(json.dumps({"partitions": list(held.values())}))

    def _commit_rows(self, entries: list[dict[str, Any]]) -> None:
        table, mark = "positions", "?"
        if self.config.store == "postgres":
            import psycopg

            table, mark = f'"{self.config.group}"', "%s"
            db: Any = psycopg.connect(self.config.address)
        else:
            db = sqlite3.connect(f"{self.config.folder}/store.db")
        with db:
            for e in entries:
                partition = e["input"]["topic"], e["input"]["partition"]
                db.cursor().execute(
                    f"INSERT INTO {table} VALUES ({mark}, {mark}, {mark}, {mark}) "
                    "ON CONFLICT (topic, partition) DO UPDATE "
                    'SET "offset" = excluded."offset", output = excluded.output',
                    (*partition, e["input"]["offset"], json.dumps(e["output"])),
                )

    def _keep(self, text: str) -> None:
        """The JSON object in its store: a file, a topic's record, a node of ZooKeeper."""
        if self.config.store == "topic":
            self.produce(f"{self.config.group}-store", 0, text.encode(), b"offsets")
            self.flush()
        elif self.config.store == "zookeeper":
            node = f"/{self.config.group}"
            if self.zookeeper.exists(node):
                self.zookeeper.set(node, text.encode())
            else:
                self.zookeeper.create(node, text.encode())
        else:
            path = Path(self.config.folder) / "offsets.json"
            new = path.with_suffix(".new")
            new.write_text(text)
            new.rename(path)

    def stored(self) -> list[dict[str, Any]]:
        """The entries of the JSON object, wherever it is."""
        text: bytes | None = None
        if self.config.store == "topic":
            for _, value, key in self.records(f"{self.config.group}-store", 0, 0):
                text = value if key == b"offsets" else text
        elif self.config.store == "zookeeper":
            node = f"/{self.config.group}"
            text = self.zookeeper.get(node)[0] if self.zookeeper.exists(node) else None
        elif (path := Path(self.config.folder) / "offsets.json").exists():
            text = path.read_bytes()
        found: list[dict[str, Any]] = [] if text is None else json.loads(text)["partitions"]
        return found

    @cached_property
    def zookeeper(self) -> Any:
        from kazoo.client import KazooClient

        client = KazooClient(self.config.address, timeout=10)
        client.start(timeout=20)
        return client

    def entry(self, topic: str, partition: int, offset: int, **more: Any) -> dict[str, Any]:
        out = self.config.output
        end = self.ends[out, partition]
        return {
            "input": {"topic": topic, "partition": partition, "offset": offset},
            "output": {"topic": out, "partition": partition, "offset": end},
            **more,
        }


# -- one function a strategy ----------------------------------------------------------------------


def commit_pair(app: App) -> None:
    out, [topic] = app.config.output, app.config.inputs
    for p in range(app.config.partitions):
        sends = app.sends(out, p)
        for number, (offset, value, _) in enumerate(app.records(topic, p, app.start(topic, p)), 1):
            for made in process(value.decode()):
                if sends():
                    app.produce(out, p, made.encode())
                    app.did()
            if number % app.config.every == 0:
                app.flush()
                app.did()
                app.commit([app.entry(topic, p, offset + 1)])
                app.did()
        app.flush()


def output_end(app: App) -> None:
    out, [topic] = app.config.output, app.config.inputs
    for p in range(app.config.partitions):
        sends = app.sends(out, p)
        for _, value, _ in app.records(topic, p, app.start(topic, p)):
            if sends():
                app.produce(out, p, value)
                app.did()
        app.flush()


def checkpoint(app: App) -> None:
    out, [topic] = app.config.output, app.config.inputs
    for p in range(app.config.partitions):
        sends = app.sends(out, p)
        held = next((e for e in app.stored() if e["input"]["partition"] == p), None)
        state = int(base64.b64decode(held["state"])) if held else 0
        for number, (offset, value, _) in enumerate(app.records(topic, p, app.start(topic, p)), 1):
            state += int(value)
            for made in process(value.decode()):
                if sends():
                    app.produce(out, p, f"{made}#{state}".encode())
                    app.did()
            if number % app.config.every == 0:
                app.flush()
                app.did()
                kept = base64.b64encode(str(state).encode()).decode()
                app.commit([app.entry(topic, p, offset + 1, state=kept)])
                app.did()
        app.flush()


def changelog(app: App) -> None:
    out, [topic] = app.config.output, app.config.inputs
    log = f"{app.config.group}-changelog"
    for p in range(app.config.partitions):
        sends, state = app.sends(out, p), 0
        for _, value, _ in app.records(log, p, 0):
            state = int(value[20:])
        for offset, value, _ in app.records(topic, p, app.start(topic, p)):
            state += int(value)
            for made in process(value.decode()):
                if sends():
                    app.produce(out, p, f"{made}#{state}".encode())
                    app.did()
            app.flush()
            kept = str(state).encode()
            attached = struct.pack(">qqi", offset + 1, app.ends[out, p], len(kept)) + kept
            app.produce(log, p, attached, struct.pack(">i", 1) + b"s")
            app.flush()
            app.did()


def merge_log(app: App) -> None:
    out, log = app.config.output, f"{app.config.group}-merge"
    inputs, order = app.config.inputs, list(app.config.order)
    sends = app.sends(out, 0)
    at = app.start(log, 0)
    held = app.stored()
    state = int(base64.b64decode(held[0]["state"])) if held else 0
    recorded = [json.loads(v) for _, v, _ in app.records(log, 0, at)]
    position = {t: app.start(t, 0) for t in inputs}
    read = {t: list(app.records(t, 0, position[t])) for t in inputs}
    while any(read.values()):
        if recorded:
            entry = recorded.pop(0)
            topic = entry["topic"]
            assert read[topic][0][0] == entry["offset"], "the log's order is not the input's"
        else:
            topic = inputs[order.pop() % len(inputs)] if order else inputs[0]
            if not read[topic]:
                topic = next(t for t in inputs if read[t])
            entry = {"topic": topic, "partition": 0, "offset": read[topic][0][0]}
            app.produce(log, 0, json.dumps(entry).encode())
            app.flush()
            app.did()
        offset, value, _ = read[topic].pop(0)
        position[topic], at, state = offset + 1, at + 1, state + 1
        for made in process(value.decode()):
            if sends():
                app.produce(out, 0, f"{topic[-1]}{made}#{state}".encode())
                app.did()
        if state % app.config.every == 0:
            app.flush()
            app.did()
            kept = base64.b64encode(str(state).encode()).decode()
            app.commit([app.entry(t, 0, position[t], state=kept, merge=at) for t in inputs])
            app.did()
    app.flush()


def transactional(app: App) -> None:
    out, [topic] = app.config.output, app.config.inputs
    assert app.producer
    reader = Consumer(app.properties() | {"group.id": app.config.group})
    for p in range(app.config.partitions):
        batch: list[tuple[int, bytes]] = []

        def end(batch: list[tuple[int, bytes]], p: int = p) -> None:
            app.producer.begin_transaction()
            for _, value in batch:
                for made in process(value.decode()):
                    app.produce(out, p, made.encode())
                    app.did()
            offsets = [TopicPartition(topic, p, batch[-1][0] + 1)]
            app.producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
            app.did()
            app.producer.flush(30)
            app.did()
            app.producer.commit_transaction(30)
            app.did()

        for offset, value, _ in app.records(topic, p, app.start(topic, p)):
            batch.append((offset, value))
            if len(batch) == app.config.every:
                end(batch)
                batch = []
        if batch:
            end(batch)
    reader.close()


def sql(app: App) -> None:
    [topic] = app.config.inputs
    db = sqlite3.connect(f"{app.config.folder}/store.db", isolation_level=None)
    for p in range(app.config.partitions):
        for offset, value, _ in app.records(topic, p, app.start(topic, p)):
            db.execute("BEGIN IMMEDIATE")
            for made in process(value.decode()):
                db.execute("INSERT INTO results VALUES (?, ?)", (p, made))
                app.did()
            db.execute(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, NULL)", (topic, p, offset + 1)
            )
            app.did()
            db.execute("COMMIT")
            app.did()


def spark_checkpoint(app: App) -> None:
    """The files that Spark's micro-batches write, and a sink that knows batch ids."""
    [topic] = app.config.inputs
    root, sink = Path(app.config.folder) / "checkpoint", Path(app.config.folder) / "sink"
    for name in ("offsets", "commits", "sources/0"):
        (root / name).mkdir(parents=True, exist_ok=True)
    sink.mkdir(exist_ok=True)
    (root / "metadata").write_text('{"id":"4e0e5f3c-2f8c-4f0a-9a39-1f2b7a0d6e11"}')

    def write(path: Path, text: str) -> None:
        new = path.with_name(f".{path.name}.tmp")
        new.write_text(text)
        new.rename(path)
        app.did()

    def planned(batch: int) -> dict[str, int]:
        text = (root / f"offsets/{batch}").read_text().splitlines()[2]
        found: dict[str, int] = json.loads(text)[topic]
        return found

    done = [int(f.name) for f in (root / "commits").glob("[0-9]*")]
    batch = max(done, default=-1) + 1
    ends = {
        str(p): max(offset for offset, _, _ in app.records(topic, p, 0)) + 1
        for p in range(app.config.partitions)
    }
    if not (root / "sources/0/0").exists():
        zero = dict.fromkeys(ends, 0)
        write(root / "sources/0/0", "\0v1\n" + json.dumps({topic: zero}))
    while True:
        begin = planned(batch - 1) if batch else dict.fromkeys(ends, 0)
        if not (root / f"offsets/{batch}").exists():
            end = {p: min(begin[p] + app.config.every, ends[p]) for p in ends}
            if end == begin:
                return
            write(root / f"offsets/{batch}", "v1\n{}\n" + json.dumps({topic: end}))
        end = planned(batch)
        if not app.config.first and app.config.order == [batch]:
            started = {p: app.start(topic, int(p)) for p in ends}
            assert started == begin, "the plan names another start than Spark's own"
        rows = [
            value.decode()
            for p in sorted(ends)
            for _, value, _ in app.records(topic, int(p), begin[p], end[p])
        ]
        if not (sink / str(batch)).exists():
            write(sink / str(batch), json.dumps(rows))
        write(root / f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
        batch += 1


def main() -> None:
    """Run the application that the only word describes."""
    config = Config(**json.loads(sys.argv[1]))
    {
        "commit-pair": commit_pair,
        "output-end": output_end,
        "checkpoint": checkpoint,
        "changelog": changelog,
        "merge-log": merge_log,
        "transactional": transactional,
        "sql": sql,
        "spark-checkpoint": spark_checkpoint,
    }[config.strategy](App(config))
