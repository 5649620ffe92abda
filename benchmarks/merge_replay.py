"""`merge replay` of two inputs by their log, against a plain confluent-kafka loop that copies them.

Both read the same records and write them in transactions to a new topic each time; the loop reads
no log, keeps no order and cannot resume. Both are whole processes.
"""

import itertools
import os
import random
import sys
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, lab
from benchmarks.side_by_side import command as process
from eoctl.host.clock import now_ms
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec

RECORDS = int(os.environ.get("EOCTL_BENCH_RECORDS", "1000000"))  # of both inputs together
INPUTS = ("left", "right")

COPY = """
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
server, output, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
inputs = sys.argv[4:]
consumer = Consumer({"bootstrap.servers": server, "group.id": "bench", "enable.auto.commit": False,
                     "isolation.level": "read_committed", "fetch.message.max.bytes": 4 << 20,
                     "fetch.wait.max.ms": 50})
consumer.assign([TopicPartition(t, 0, 0) for t in inputs])
producer = Producer({"bootstrap.servers": server, "transactional.id": "bench-copy",
                     "linger.ms": 50, "batch.size": 1 << 20,
                     "queue.buffering.max.messages": 500000})
producer.init_transactions(30)
position = {}
done = sent = 0
while done < records:
    if not sent:
        producer.begin_transaction()
        began = time.monotonic()
    for m in consumer.consume(10000, 0.1):
        assert m.error() is None, m.error()
        while True:
            try:
                producer.produce(output, m.value(), m.key(), 0, None, None, m.timestamp()[1],
                                 m.headers())
                break
            except BufferError:
                producer.poll(0.1)
        position[m.topic()] = m.offset() + 1
        sent += 1
    producer.poll(0)
    if sent >= 100000 or sent and time.monotonic() - began > 1 or done + sent >= records:
        offsets = [TopicPartition(t, 0, o) for t, o in position.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        done += sent
        sent = 0
consumer.close()
"""


def measure() -> Iterator[Measured]:
    with lab(LabSpec("merge")) as one:
        _fill(one)
        outputs = (f"output-{n}" for n in itertools.count())

        def replay() -> None:
            output = _topic(one, next(outputs))
            words = ["merge", "replay", "--merge-log", "log", "--format", "coast"]
            words += [word for name in INPUTS for word in ("--input", name)]
            words += ["--to", output, "--partition", "0", "--from-merge-offset", "0"]
            words += ["--output-offset", "0", "--execute", "--yes"]
            process([*EOCTL, "--bootstrap-server", one.bootstrap_servers, *words])()

        def copy() -> None:
            output = _topic(one, next(outputs))
            words = [one.bootstrap_servers, output, str(RECORDS), *INPUTS]
            process([sys.executable, "-c", COPY, *words])()

        ours, peer = alternate(replay, copy, rounds=3)
        rate = RECORDS / min(ours)
        what = f"merge replay of {RECORDS:,} records: {rate:,.0f} records/s (goal: 100,000)"
        yield Measured(what, ours, peer, "consume, produce", "0.5x or more")


def _topic(one: Lab, name: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(one.client_properties())
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=30)[name].result(60)
    return name


def _fill(one: Lab) -> None:
    """Two inputs, and a log that takes runs of random length from each."""
    from confluent_kafka import Producer

    from recovery.merge.log import CoastFormat, MergeEntry

    producer = Producer(one.client_properties() | {"linger.ms": 50, "enable.idempotence": True})

    def produce(topic: str, value: bytes, key: bytes, timestamp: int) -> None:
        while True:
            try:
                producer.produce(topic, value, key, partition=0, timestamp=timestamp)
                return
            except BufferError:
                producer.poll(0.05)

    for name in (*INPUTS, "log"):
        _topic(one, name)
    noise, now = os.urandom(4096), now_ms()
    each = RECORDS // len(INPUTS)
    for n in range(each):
        for name in INPUTS:
            produce(name, noise[n % 3000 : n % 3000 + 100], b"%010d" % n, now + n)
        producer.poll(0)
    draw, form, left = random.Random(1), CoastFormat(), dict.fromkeys(INPUTS, 0)
    while waiting := [name for name, offset in left.items() if offset < each]:
        name = draw.choice(waiting)
        for _ in range(min(draw.randint(1, 20), each - left[name])):
            key, value = form.encode(MergeEntry(name, 0, left[name]))
            produce("log", value, key or b"", now)
            left[name] += 1
        producer.poll(0)
    assert producer.flush(120) == 0
