"""`offsets count` over 5 M records, CRCs checked, against reading them with two consumers.

The counting's memory is measured too: its bound must hold whatever the size of the topic.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, tool
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec

RECORDS = int(os.environ.get("EOCTL_BENCH_RECORDS", "5000000"))
PARTITIONS = 4
MEMORY_MIB = 150

CONSUME = """
import sys
from confluent_kafka import Consumer, TopicPartition
server, topic, partitions, records = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": server, "group.id": "bench", "enable.auto.commit": False,
                     "isolation.level": "read_committed"})
consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
seen = 0
while seen < records:
    messages = consumer.consume(10000, 0.1)
    assert not any(m.error() for m in messages)
    seen += len(messages)
consumer.close()
"""


@dataclass(frozen=True)
class Memory:
    """Peak resident memory of one run."""

    what: str
    mib: float

    def lines(self) -> list[str]:
        return [self.what, f"  peak {self.mib:.0f} MiB   goal: at most {MEMORY_MIB} MiB"]


def measure() -> Iterator[Measured | Memory]:
    with lab(LabSpec("count")) as one:
        for name, codec in (("plain", "none"), ("compressed", "lz4")):
            topic, stored = f"count-{name}", fill(one, f"count-{name}", codec)
            what = f"count {RECORDS:,} records, {stored >> 20} MiB, codec {codec}"
            counting = [*EOCTL, "--bootstrap-server", one.bootstrap_servers]
            counting += ["offsets", "count", topic, "--end", "hw", "-o", "csv"]
            ours = command(counting, least=PARTITIONS + 1)
            consume = [sys.executable, "-c", CONSUME, one.bootstrap_servers, topic]
            consume += [str(PARTITIONS), str(RECORDS)]
            perf_test = tool(one, "ConsumerPerformance", "--topic", topic)
            perf_test += ["--num-records", str(RECORDS), "--timeout", "60000"]
            peers = (
                ("consume(10000)", consume, "12x or more"),
                ("consumer-perf-test", perf_test, "3x or more"),
            )
            for peer_name, argv, goal in peers:
                times = alternate(ours, command(argv), rounds=3)
                yield Measured(what, *times, peer_name, goal)
            yield Memory(f"memory of counting {topic}", _peak(counting))


def _peak(argv: list[str]) -> float:
    """MiB of one run."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_maxrss / 1024


def fill(one: Lab, topic: str, codec: str) -> int:
    """Make the topic; its size on the broker's disk in bytes."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(one.client_properties())
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=30)[topic].result(60)
    producer = Producer(
        one.client_properties()
        | {
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 131_072,
            "enable.idempotence": True,
        }
    )
    noise = os.urandom(4096)
    for i in range(RECORDS):
        value = noise[i % 3000 : i % 3000 + 50] + b"%050d" % i  # half of it compresses
        while True:
            try:
                producer.produce(topic, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    time.sleep(2)
    return sum(f.stat().st_size for f in one.data_folder(1).rglob(f"{topic}-*/*.log"))
