"""A changelog written for tests, and its state as confluent-kafka and a dict see it."""

import hashlib
import random
import struct
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.engine.rebuild_request import RebuildRequest, begin
from eoctl.engine.rebuild_task import Making
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.stores.state import folder as state_folder

Entry = tuple[int, bytes]  # timestamp, value
State = dict[tuple[int, bytes], tuple[int | None, bytes]]  # (partition, key) -> (timestamp, value)

MODULUS = 2**256


def begin_small(lab: Lab, topic: str, output: str, range_offsets: int, memory_bytes: int) -> None:
    """Begin a plain rebuild up to the LSO, with so little memory that there are several buckets.

    The command `state rebuild` for the same carries it on.
    """
    how = Making("plain", {}, output, range_offsets=range_offsets, memory_bytes=memory_bytes)
    access = Access(lab.client_properties())
    begin(RebuildRequest((topic,), "lso", how), lambda use: access.ask(use, read_only=True))


def producer(lab: Lab, codec: str = "none") -> Producer:
    made = lab.client_properties() | {
        "linger.ms": 5,
        "compression.type": codec,
        "transactional.id": f"state-{uuid.uuid4().hex[:8]}",
    }
    found = Producer(made)
    found.init_transactions(30)
    return found


def fill(
    lab: Lab,
    topic: str,
    *,
    seed: int,
    records: int,
    keys: int,
    partitions: int,
    codec: str = "none",
    null_keys: bool = False,
) -> None:
    """Transactions of random length, some aborted; tombstones, empty and long values."""
    chance = random.Random(seed)
    writer = producer(lab, codec)
    left = records
    while left:
        writer.begin_transaction()
        for _ in range(min(left, chance.randrange(1, 400))):
            left -= 1
            number = chance.randrange(keys)
            key = None if null_keys and number % 50 == 0 else b"key-%d" % number
            value = chance.choice(
                (None, b"", b"%d" % left, b"v" * chance.randrange(300), bytes(9000))[
                    : 4 if chance.random() < 0.98 else 5
                ]
            )
            writer.produce(
                topic,
                value,
                key,
                partition=number % partitions,
                timestamp=1_700_000_000_000 + chance.randrange(10**6),
                headers=[("h", b"x")] if number % 7 == 0 else None,
            )
            writer.poll(0)
        if chance.random() < 0.3:
            writer.flush(30)  # or they are never sent, and there is nothing to abort
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)


def fill_plainly(lab: Lab, topic: str, records: int = 300) -> None:
    """A transaction of the present time, without headers: 100 keys, in the topic's partitions."""
    writer = producer(lab)
    writer.begin_transaction()
    for number in range(records):
        writer.produce(topic, b"%d" % number, b"key-%d" % (number % 100))
    writer.commit_transaction(30)


def dict_state(lab: Lab, topic: str, ends: dict[int, int]) -> tuple[State, dict[str, int]]:
    """Last value per key below `ends`, as a read_committed consumer gets the records."""
    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    state: State = {}
    counts = {"data": 0, "tombstones": 0, "invalid": 0}
    left, bound = set(ends), time.monotonic() + 60
    while left:
        assert time.monotonic() < bound
        for m in consumer.consume(10_000, 0.2):
            if m.error():
                left.discard(m.partition())
                continue
            if m.offset() >= ends[m.partition()]:
                continue
            counts["data"] += 1
            entry = (m.partition(), m.key())
            if m.key() is None:
                counts["invalid"] += 1
                continue
            if m.value() is None:
                counts["tombstones"] += 1
                state.pop(entry, None)
            else:
                kind, at = m.timestamp()
                state[entry] = (at if kind else None, m.value())
    consumer.close()
    return state, counts


def digest(state: State) -> tuple[int, str]:
    """Of docs/state.md, by hand."""
    total = 0
    for (partition, key), (timestamp, value) in state.items():
        row = struct.pack(">ii", partition, len(key)) + key
        row += struct.pack(">qi", -1 if timestamp is None else timestamp, len(value)) + value
        total += int.from_bytes(hashlib.sha256(row).digest(), "big")
    return len(state), f"{total % MODULUS:064x}"


@dataclass(frozen=True)
class Rebuilt:
    """A finished state: its manifest, and its rows as any Parquet reader gets them."""

    folder: Path

    @property
    def manifest(self) -> Any:
        return state_folder.read(self.folder)

    @property
    def ends(self) -> dict[int, int]:
        (topic,) = self.manifest.cut.topics
        return {p.partition: p.end for p in topic.partitions}

    @property
    def digest(self) -> tuple[int, str]:
        found = self.manifest.digest
        return found.rows, found.sha256_sum

    def rows(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        found: list[dict[str, Any]] = []
        for part in self.manifest.partitions:
            for file in part.files:
                found += pq.ParquetFile(self.folder / file.path).read().to_pylist()
        return found

    def state(self) -> State:
        rows = self.rows()
        found: State = {(r["partition"], r["key"]): (r["timestamp"], r["value"]) for r in rows}
        assert len(found) == len(rows)  # no key twice
        return found
