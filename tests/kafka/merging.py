"""What the tests of merge logs share: inputs of all kinds of records, logs over them, oracles."""

import json
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab

Place = tuple[str, int]
Copied = tuple[bytes | None, bytes | None, Any, int]
"""Key, value, headers and timestamp."""


def producer(lab: Lab, **config: Any) -> Producer:
    return Producer(lab.client_properties() | {"linger.ms": 5} | config)


def fill(lab: Lab, place: Place, count: int, seed: int = 0, size: int = 10) -> None:
    """`count` visible records of all shapes, aborted ones and control records among them."""
    draw = random.Random(f"{seed} {place}")
    one = producer(lab, **{"transactional.id": f"fill-{place[0]}-{place[1]}"})
    one.init_transactions(30)
    left = count
    while left:
        some = min(left, draw.randint(1, max(1, count // 4)))
        kept = draw.random() < 0.7
        one.begin_transaction()
        for n in range(some):
            text = f"{place} {seed} {left} {n} {kept}".encode()
            one.produce(
                place[0],
                partition=place[1],
                key=draw.choice([None, b"", b"\xff\x00", text]),
                value=draw.choice([None, b"", text, text * size]),
                timestamp=draw.choice([1, 1_700_000_000_000 + n]),
                headers=draw.choice([None, [("h", b"1"), ("h", None), ("ü", b"")]]),
            )
        if kept:
            one.commit_transaction(30)
            left -= some
        else:
            one.abort_transaction(30)


def consumed(lab: Lab, place: Place) -> list[tuple[int, Copied]]:
    """Offset and content of each record that a plain read_committed consumer sees."""
    config = {
        "group.id": "oracle",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    one = Consumer(lab.client_properties() | config)
    low, _ = one.get_watermark_offsets(TopicPartition(*place), 10)
    one.assign([TopicPartition(*place, low)])
    found: list[tuple[int, Copied]] = []
    ended = False
    while not ended:
        for m in one.consume(1000, 0.5):
            if m.error():
                assert m.error().name() == "_PARTITION_EOF", m.error()
                ended = True
            else:
                found.append((m.offset(), (m.key(), m.value(), m.headers(), m.timestamp()[1])))
    one.close()
    return found


def contents(lab: Lab, place: Place) -> list[Copied]:
    return [content for _, content in consumed(lab, place)]


Named = tuple[str, int, int]


def merged(draw: random.Random, inputs: dict[Place, list[tuple[int, Copied]]]) -> list[Named]:
    """Some order in which all records of the inputs can have been read."""
    queues = [[(*place, offset) for offset, _ in found] for place, found in inputs.items()]
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


def write_log(lab: Lab, place: Place, form: str, order: Iterable[Named]) -> None:
    """The merge log, as an application wrote it: some of it aborted, in several transactions."""
    one = producer(lab, **{"transactional.id": f"log-{place[0]}-{place[1]}"})
    one.init_transactions(30)
    draw, order = random.Random(repr(place)), list(order)
    while order:
        some = order[: draw.randint(1, max(2, len(order)))]
        kept = draw.random() < 0.7
        one.begin_transaction()
        for entry in some:
            key = b"" if form == "coast" else None
            one.produce(place[0], encoded(form, entry), key, partition=place[1])
        if kept:
            one.commit_transaction(30)
            order = order[len(some) :]
        else:
            one.abort_transaction(30)


def write_plain(lab: Lab, place: Place, values: Sequence[bytes]) -> None:
    """Records of an idempotent producer."""
    one = producer(lab, **{"enable.idempotence": True})
    for value in values:
        one.produce(place[0], value, partition=place[1])
    assert one.flush(30) == 0


def write_copies(lab: Lab, place: Place, copies: Sequence[Copied]) -> None:
    """What an application wrote to its output before it died."""
    one = producer(lab, **{"enable.idempotence": True})
    for key, value, headers, timestamp in copies:
        one.produce(
            place[0], value, key, partition=place[1], timestamp=timestamp, headers=headers or []
        )
    assert one.flush(30) == 0


def entries(lab: Lab, place: Place) -> list[Named]:
    """A JSON merge log, as a plain consumer reads it."""
    found = [json.loads(value or b"") for _, value, _, _ in contents(lab, place)]
    return [(e["topic"], e["partition"], e["offset"]) for e in found]
