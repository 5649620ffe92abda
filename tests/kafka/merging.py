"""What the tests of merge logs share: inputs of all kinds of records, logs over them, oracles."""

import json
import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic

Partition = tuple[str, int]
Copied = tuple[bytes | None, bytes | None, Any, int]
"""Key, value, headers and timestamp."""


def producer(lab: Lab, **config: Any) -> Producer:
    return Producer(lab.client_properties() | {"linger.ms": 5} | config)


def transactional(lab: Lab, name: str) -> Producer:
    one = producer(lab, **{"transactional.id": name})
    one.init_transactions(30)
    return one


def fill(one: Producer, topic_partition: Partition, count: int, seed: int = 0) -> None:
    """`count` visible records of all shapes, aborted ones and control records among them."""
    draw = random.Random(f"{seed} {topic_partition[1]}")
    left = count
    while left:
        some = min(left, draw.randint(1, max(1, count // 4)))
        kept = draw.random() < 0.7
        one.begin_transaction()
        for n in range(some):
            text = f"{topic_partition} {seed} {left} {n} {kept}".encode()
            one.produce(
                topic_partition[0],
                partition=topic_partition[1],
                key=draw.choice([None, b"", b"\xff\x00", text]),
                value=draw.choice([None, b"", text, text * 10]),
                timestamp=draw.choice([1, 1_700_000_000_000 + n]),
                headers=draw.choice([None, [("h", b"1"), ("h", None), ("ü", b"")]]),
            )
        if kept:
            one.commit_transaction(30)
            left -= some
        else:
            one.flush(30)
            one.abort_transaction(30)


def consumed(
    lab: Lab, partitions: Sequence[Partition]
) -> dict[Partition, list[tuple[int, Copied]]]:
    """Offset and content of each record that a plain read_committed consumer sees."""
    config = {
        "group.id": "oracle",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 20,
    }
    one = Consumer(lab.client_properties() | config)
    low = {
        partition: one.get_watermark_offsets(TopicPartition(*partition), 10)[0]
        for partition in partitions
    }
    one.assign([TopicPartition(*partition, offset) for partition, offset in low.items()])
    found: dict[Partition, list[tuple[int, Copied]]] = {partition: [] for partition in partitions}
    ended: set[Partition] = set()
    while len(ended) < len(partitions):
        for m in one.consume(1000, 0.1):
            partition = m.topic(), m.partition()
            if m.error():
                assert m.error().name() == "_PARTITION_EOF", m.error()
                ended.add(partition)
            else:
                copied = (m.key(), m.value(), m.headers(), m.timestamp()[1])
                found[partition].append((m.offset(), copied))
    one.close()
    return found


def ends(lab: Lab, topic: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark, as plain consumers see them."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        config = {"group.id": "oracle", "isolation.level": isolation}
        one = Consumer(lab.client_properties() | config)
        found.append(one.get_watermark_offsets(TopicPartition(topic, partition), 20)[1])
        one.close()
    return found[0], found[1]


def contents(lab: Lab, topic: str, partitions: int = 1) -> dict[int, list[Copied]]:
    """The content of each record of the first partitions of a topic."""
    found = consumed(lab, [(topic, p) for p in range(partitions)])
    return {p: [copied for _, copied in rows] for (_, p), rows in found.items()}


Named = tuple[str, int, int]


def merged(draw: random.Random, inputs: dict[Partition, list[tuple[int, Copied]]]) -> list[Named]:
    """Some order in which all records of the inputs can have been read."""
    queues = [[(*partition, offset) for offset, _ in found] for partition, found in inputs.items()]
    order = []
    while queues := [q for q in queues if q]:
        order.append(draw.choice(queues).pop(0))
    return order


def encoded(form: str, entry: Named) -> bytes:
    """An entry as others write it: independent of the product's formats."""
    topic, partition, offset = entry
    if form == "json":
        return json.dumps({"topic": topic, "partition": partition, "offset": offset}).encode()
    name = topic.encode()
    return struct.pack(">H", len(name)) + name + struct.pack(">iq", partition, offset)


def write_log(one: Producer, topic_partition: Partition, form: str, order: Iterable[Named]) -> None:
    """The merge log, as an application wrote it: some of it aborted, in several transactions."""
    draw, order = random.Random(topic_partition[1]), list(order)
    while order:
        some = order[: draw.randint(1, max(2, len(order)))]
        kept = draw.random() < 0.7
        one.begin_transaction()
        for entry in some:
            key = b"" if form == "coast" else None
            one.produce(topic_partition[0], encoded(form, entry), key, partition=topic_partition[1])
        if kept:
            one.commit_transaction(30)
            order = order[len(some) :]
        else:
            one.flush(30)
            one.abort_transaction(30)


def write_plain(lab: Lab, topic_partition: Partition, values: Sequence[bytes]) -> None:
    """Records of an idempotent producer."""
    one = producer(lab, **{"enable.idempotence": True})
    for value in values:
        one.produce(topic_partition[0], value, partition=topic_partition[1])
    assert one.flush(30) == 0


def write_copies(lab: Lab, topic_partition: Partition, copies: Sequence[Copied]) -> None:
    """What an application wrote to its output before it died."""
    one = producer(lab, **{"enable.idempotence": True})
    for key, value, headers, timestamp in copies:
        one.produce(
            topic_partition[0],
            value,
            key,
            partition=topic_partition[1],
            timestamp=timestamp,
            headers=headers or [],
        )
    assert one.flush(30) == 0


def entries(lab: Lab, topic: str) -> list[Named]:
    """Partition 0 of a JSON merge log, as a plain consumer reads it."""
    found = [json.loads(value or b"") for _, value, _, _ in contents(lab, topic)[0]]
    return [(e["topic"], e["partition"], e["offset"]) for e in found]


class World:
    """Two inputs, a merge log over all of their records, an output; the log not written yet."""

    def __init__(
        self,
        lab: Lab,
        topic: MakeTopic,
        form: str = "json",
        partitions: int = 1,
        count: int = 60,
        name: str = "t",
    ) -> None:
        self.lab, self.form, self.partitions = lab, form, partitions
        kept = {"retention.ms": "-1"}  # some timestamps are old
        names = [topic(lab, partitions, 1, kept, name) for _ in range(4)]
        self.left, self.right, self.log, self.output = names
        self.producer = transactional(lab, f"filling-{self.log}")
        self.orders: dict[int, list[Named]] = {}
        for p in range(partitions):
            self.more(p, count)
        found = self.inputs()
        for p in range(partitions):
            mine = {
                topic_partition: rows
                for topic_partition, rows in found.items()
                if topic_partition[1] == p
            }
            self.orders[p] = merged(random.Random(p), mine)
        self.records = {
            (*topic_partition, offset): copied
            for topic_partition, rows in found.items()
            for offset, copied in rows
        }

    def inputs(self) -> dict[Partition, list[tuple[int, Copied]]]:
        partitions = [(t, p) for t in (self.left, self.right) for p in range(self.partitions)]
        return consumed(self.lab, partitions)

    def more(self, partition: int, count: int, seed: int = 0) -> None:
        for name in (self.left, self.right):
            fill(self.producer, (name, partition), count, seed)

    def write_logs(self) -> None:
        for p, order in self.orders.items():
            write_log(self.producer, (self.log, p), self.form, order)

    @property
    def log_offsets(self) -> list[int]:
        """Of each entry of partition 0."""
        partition = (self.log, 0)
        return [offset for offset, _ in consumed(self.lab, [partition])[partition]]

    @property
    def expected(self) -> dict[int, list[Copied]]:
        """What an uninterrupted run gives."""
        return {p: [self.records[e] for e in order] for p, order in self.orders.items()}

    @property
    def got(self) -> dict[int, list[Copied]]:
        return contents(self.lab, self.output, self.partitions)

    def stored(self, merge_offset: int, entries: int) -> str:
        """What an application commits after so many entries of partition 0, each one output."""
        next_offset = dict.fromkeys((self.left, self.right), 0)
        next_offset |= {name: offset + 1 for name, _, offset in self.orders[0][:entries]}
        output = {"topic": self.output, "partition": 0, "offset": entries}
        partitions = [
            {
                "input": {"topic": name, "partition": 0, "offset": offset},
                "output": output,
                "merge": merge_offset,
            }
            for name, offset in next_offset.items()
        ]
        return json.dumps({"partitions": partitions})

    def app_file(self, folder: Path) -> Path:
        """Its application file; the store is position.json beside it."""
        path = folder / "merger.toml"
        path.write_text(f"""[app]
name = "merger"
strategy = "merge-log"
inputs = ["{self.left}", "{self.right}"]
outputs = ["{self.output}"]
[app.merge]
topic = "{self.log}"
format = "json"
[app.store]
kind = "file"
path = "{folder / "position.json"}"
""")
        return path

    def delete_below(self, name: str, offset: int) -> None:
        admin = AdminClient(self.lab.client_properties())
        [done] = admin.delete_records([TopicPartition(name, 0, offset)]).values()
        done.result(20)

    @property
    def words(self) -> list[str]:
        """The options that name all of it."""
        inputs = [f"--input={self.left}", f"--input={self.right}"]
        return [f"--merge-log={self.log}", "--format", self.form, *inputs, f"--to={self.output}"]

    def run(self, command: str, *words: str) -> Ran:
        # one that was killed left a transaction open: the next waits until it has timed out
        return eoctl("merge", command, *self.words, *words, lab=self.lab, timeout=150)

    def replay(self, *words: str) -> Ran:
        return self.run("replay", "--execute", "--yes", *words)
