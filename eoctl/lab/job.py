"""A small job for practising recovery: it prices sales, keeps totals, and dies when asked to.

It reads `sales`, writes `sales-priced`, and keeps each customer's total in a state store (SQLite)
with the changelog `sales-totals-changelog`. Every 100 records it commits input offset and output
offset as a pair, in the metadata of its group. On its own this does not survive a crash: outputs
after the pair exist and will be written again. `restart plan sales-pricer.toml --env` says where to
start and how many outputs to drop; `recovery.restart.drop_first` does it.
"""

import base64
import json
import os
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eoctl.lab.handle import Lab, labs_folder
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.restart.drop_first import DropFirst, OutputNow, restart_offset
from recovery.values import Value

INPUT, OUTPUT, CHANGELOG, GROUP = "sales", "sales-priced", "sales-totals-changelog", "sales-pricer"
PARTITIONS = 2
SALES = 3000  # in each partition
EVERY = 100
SECONDS = 20.0
FIRST_SALE_MS = 1_763_700_000_000
_NOT_YET = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")

APP_FILE = f"""\
[app]
name = "{GROUP}"
strategy = "commit-pair"
inputs = ["{INPUT}"]
outputs = ["{OUTPUT}"]
exclusive = true

[app.base]
{{base}}
[app.store]
kind = "kafka-group"
group = "{GROUP}"
"""


_TABLES = """
CREATE TABLE IF NOT EXISTS totals
    (p INT, customer TEXT, total INT, at INT, PRIMARY KEY (p, customer));
CREATE TABLE IF NOT EXISTS position (p INT PRIMARY KEY, next INT);
"""


class Outcome(Value):
    """A run's result. total: existing outputs; equal: exactly those of an uninterrupted run, in
    their order."""

    written: int
    dropped: int
    total: int
    expected: int
    equal: bool
    app_file: Path
    store: Path


class _Record(Value):
    offset: int
    timestamp: int
    key: str
    value: str


def job_folder(lab: str) -> Path:
    """Return the folder of a lab's job, with its application file and its state store."""
    return labs_folder() / lab / GROUP


def customer(partition: int, number: int) -> str:
    return f"customer-{(number * 7 + partition) % 97}"


def sale(partition: int, number: int) -> str:
    """Return the input's value: deterministic, so that the correct output is known."""
    return f"{partition}-{number}:{number % 13 + 1}"


def priced(value: str) -> str:
    """Return the job's output for a value."""
    name, _, count = value.partition(":")
    return f"{name} costs {int(count) * 25}"


def expected_outputs() -> list[list[str]]:
    """Return an uninterrupted run's outputs, by partition."""
    return [[priced(sale(p, n)) for n in range(SALES)] for p in range(PARTITIONS)]


def expected_totals() -> list[dict[str, int]]:
    """Return each customer's total after all sales, by partition."""
    totals: list[dict[str, int]] = [{} for _ in range(PARTITIONS)]
    for p, held in enumerate(totals):
        for n in range(SALES):
            name = customer(p, n)
            held[name] = held.get(name, 0) + int(sale(p, n).partition(":")[2])
    return totals


class LabJob:
    """One run on a lab. environment: where `restart plan --env` put its numbers."""

    def __init__(self, lab: Lab, environment: Mapping[str, str]) -> None:
        self._lab, self._environment = lab, environment
        self._folder = job_folder(lab.name)
        self._written = self._dropped = 0
        self._die_after: int | None = None

    @property
    def app_file(self) -> Path:
        return self._folder / f"{GROUP}.toml"

    @property
    def dump(self) -> Path:
        return self._folder / "totals.jsonl"

    @property
    def store(self) -> Path:
        return self._folder / "totals.sqlite"

    def prepare(self) -> None:
        """Create missing topics, sales and files."""
        from confluent_kafka.admin import AdminClient, NewTopic

        self._folder.mkdir(exist_ok=True)
        base = "".join(f'"{t}:{p}" = 0\n' for t in (INPUT, OUTPUT) for p in range(PARTITIONS))
        self.app_file.write_text(APP_FILE.format(base=base), encoding="utf-8")
        admin = AdminClient(self._lab.client_properties())
        if INPUT in admin.list_topics(timeout=SECONDS).topics:
            return
        for_ever = {"retention.ms": "-1"}  # the sales are old
        new = [NewTopic(name, PARTITIONS, 1, config=for_ever) for name in (OUTPUT, INPUT)]
        new.append(NewTopic(CHANGELOG, PARTITIONS, 1, config={"cleanup.policy": "compact"}))
        for creation in admin.create_topics(new, operation_timeout=SECONDS).values():
            creation.result(SECONDS)
        producer = self._producer()
        for p in range(PARTITIONS):
            for number in range(SALES):
                producer.produce(
                    INPUT,
                    sale(p, number),
                    customer(p, number),
                    partition=p,
                    timestamp=FIRST_SALE_MS + number * 1000,
                )
        _flush(producer)

    def run(self, die_after: int | None = None) -> Outcome:
        """Process the existing input. die_after: SIGKILL after this many outputs of this run."""
        self.prepare()
        self._die_after = die_after
        with sqlite3.connect(self.store) as store:
            store.executescript(_TABLES)
            for p in range(PARTITIONS):
                self._partition(p, store)
        store.close()
        return self.look()

    def lose_store(self) -> Path:
        """Delete the state store; keep its content as JSON lines, to compare with a rebuild."""
        if not self.store.exists():
            raise UsageError("there is no state store", where=str(self.store), remedy="run the job")
        with sqlite3.connect(self.store) as store:
            rows = store.execute("SELECT p, customer, total, at FROM totals").fetchall()
        store.close()
        lines = [
            json.dumps(
                {
                    "partition": p,
                    "key": _base64(name),
                    "value": _base64(str(total)),
                    "timestamp": at,
                }
            )
            for p, name, total, at in rows
        ]
        self.dump.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.store.unlink()
        return self.dump

    def outputs(self) -> list[list[str]]:
        """Return the existing outputs, by partition."""
        return [[r.value for r in records(self._lab, OUTPUT, p)] for p in range(PARTITIONS)]

    def look(self) -> Outcome:
        """Compare the outputs with an uninterrupted run's."""
        actual, expected = self.outputs(), expected_outputs()
        return Outcome(
            self._written,
            self._dropped,
            sum(map(len, actual)),
            PARTITIONS * SALES,
            actual == expected,
            self.app_file,
            self.store,
        )

    def _partition(self, p: int, store: sqlite3.Connection) -> None:
        start, drop = self._start(p)
        rows = store.execute("SELECT customer, total FROM totals WHERE p = ?", (p,))
        totals: dict[str, int] = dict(rows.fetchall())
        row = store.execute("SELECT next FROM position WHERE p = ?", (p,)).fetchone()
        counted = row[0] if row else 0  # the store may be ahead of the restart: never count twice
        producer, changed = self._producer(), dict[str, tuple[int, int]]()
        position = start
        for r in records(self._lab, INPUT, p, start):
            if drop is None or drop.sends():
                producer.produce(OUTPUT, priced(r.value), r.key, partition=p)
                self._written += 1
            else:
                self._dropped += 1
            position = r.offset + 1
            if r.offset >= counted:
                totals[r.key] = totals.get(r.key, 0) + int(r.value.partition(":")[2])
                changed[r.key] = totals[r.key], r.timestamp
                total = str(totals[r.key])
                producer.produce(CHANGELOG, total, r.key, partition=p, timestamp=r.timestamp)
            if self._die_after is not None and self._written >= self._die_after:
                _flush(producer)
                os.kill(os.getpid(), signal.SIGKILL)
            if position % EVERY == 0:
                self._commit(p, position, producer, store, changed)
                changed.clear()
        self._commit(p, position, producer, store, changed)

    def _start(self, p: int) -> tuple[int, DropFirst | None]:
        """Start from the plan's variables, else at the beginning if nothing was written yet."""
        if any(name.startswith("EOCTL_RESTART_") for name in self._environment):
            drop = DropFirst.from_env(self._environment, OUTPUT, p, self._output_now)
            return restart_offset(self._environment, INPUT, p), drop
        if self._output_now(OUTPUT, p, 0).end_offset:
            raise RefusedError(
                "it holds outputs of an earlier run: where to start is not known",
                where=f"{OUTPUT}:{p}",
                remedy=f"eoctl --context {self._lab.context_name} restart plan {self.app_file} "
                "--env",
            )
        return 0, None

    def _output_now(self, topic: str, p: int, start: int) -> OutputNow:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        partition = TopicPartition(topic, p)
        admin = AdminClient(self._lab.client_properties())
        end = admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(SECONDS)
        return OutputNow(
            end.offset, sum(1 for _ in records(self._lab, topic, p, start)), end.leader_epoch
        )

    def _commit(
        self,
        p: int,
        position: int,
        producer: Any,
        store: sqlite3.Connection,
        changed: dict[str, tuple[int, int]],
    ) -> None:
        """Commit output, then state, then the pair: a committed pair implies the other two."""
        from confluent_kafka import Consumer, TopicPartition

        _flush(producer)
        store.executemany(
            "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?)",
            [(p, name, total, at) for name, (total, at) in changed.items()],
        )
        store.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (p, position))
        store.commit()
        end = self._seen_end(p)
        pair = {"output": {"topic": OUTPUT, "partition": p, "offset": end}}
        consumer = Consumer({**self._lab.client_properties(), "group.id": GROUP})
        try:
            _commit_offsets(consumer, [TopicPartition(INPUT, p, position, json.dumps(pair))])
        finally:
            consumer.close()

    def _seen_end(self, p: int) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._lab.client_properties(), "group.id": "look"})
        try:
            return int(
                consumer.get_watermark_offsets(TopicPartition(OUTPUT, p), timeout=SECONDS)[1]
            )
        finally:
            consumer.close()

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        return Producer({**self._lab.client_properties(), "enable.idempotence": True})


def records(lab: Lab, topic: str, p: int, start: int = 0) -> Iterator[_Record]:
    """Yield what a read_committed reader gets from `start` to the end of a partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": f"{GROUP}-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, start)])
        while (message := consumer.poll(SECONDS)) is not None:
            error = message.error()
            if error is None:
                yield _Record(
                    message.offset(),
                    message.timestamp()[1],
                    (message.key() or b"").decode(),
                    (message.value() or b"").decode(),
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise IncompleteError(error.str(), where=f"{topic}:{p}")
        raise IncompleteError("nothing came", where=f"{topic}:{p}")
    finally:
        consumer.close()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _commit_offsets(consumer: Any, offsets: Any) -> None:
    """Commit, and retry: in a new lab the coordinators are only being created."""
    from confluent_kafka import KafkaException

    end = time.monotonic() + SECONDS
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if error.args[0].name() not in _NOT_YET or time.monotonic() > end:
                raise IncompleteError(error.args[0].str(), where=f"group {GROUP}") from None
        time.sleep(0.1)


def _flush(producer: Any) -> None:
    if producer.flush(SECONDS):
        raise IncompleteError("not everything was taken", where=OUTPUT)
