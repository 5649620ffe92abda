"""`state rebuild` of 5 M records, 1 M keys, in two processes, against two peers on the same log.

Transactions, some aborted, tombstones, an explicit cut. Peers: confluent-kafka and a dict, in two
processes as well, each with half of the partitions; and a real Kafka Streams application in two
threads that restores the changelog into RocksDB. Of Kafka Streams only the restore counts, from its
first onRestoreStart to its last onRestoreEnd: neither the start of Java nor joining the group. Ours
is the whole command: start of three Pythons, the cut, CRCs, the digest, Parquet safe on disk, the
log looked at again. What it says of itself in the manifest, from the first task given out to the
manifest, is printed beside. Their digests, taken outside the time, must be that of the state.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab
from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.stores.state import folder as state_folder
from tests.streams.app import class_path

RECORDS = int(os.environ.get("EOCTL_BENCH_RECORDS", "5000000"))
KEYS = max(1, RECORDS // 5)
PARTITIONS = 4
PROCESSES = 2
PER_TRANSACTION = 50_000
ROUNDS = 3
RESTORE = Path(__file__).parent.parent / "tests" / "streams" / "RestoreApp.java"

DICT = """
import sys
from multiprocessing import Process

def keep(server, topic, ends, told):
    from confluent_kafka import Consumer, TopicPartition
    consumer = Consumer({"bootstrap.servers": server, "group.id": "bench",
                         "enable.auto.commit": False, "isolation.level": "read_committed",
                         "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    states, left = {p: {} for p in ends}, set(ends)
    while left:
        for m in consumer.consume(10000, 0.1):
            if m.error():
                left.discard(m.partition())
            elif m.offset() < ends[m.partition()]:
                if m.value() is None:
                    states[m.partition()].pop(m.key(), None)
                else:
                    states[m.partition()][m.key()] = (m.timestamp()[1], m.value())
    consumer.close()
    if told:
        import hashlib, struct
        rows = total = 0
        for p, state in states.items():
            rows += len(state)
            for key, (timestamp, value) in state.items():
                row = struct.pack(">ii", p, len(key)) + key
                row += struct.pack(">qi", timestamp, len(value)) + value
                total += int.from_bytes(hashlib.sha256(row).digest(), "big")
        print(rows, total % 2**256, flush=True)

if __name__ == "__main__":
    server, topic, told = sys.argv[1], sys.argv[2], sys.argv[3] == "digest"
    ends = dict(enumerate(map(int, sys.argv[4:])))
    halves = [{p: e for p, e in ends.items() if p % 2 == half} for half in (0, 1)]
    running = [Process(target=keep, args=(server, topic, half, told)) for half in halves]
    for process in running:
        process.start()
    for process in running:
        process.join()
    sys.exit(max(process.exitcode for process in running))
"""


@dataclass(frozen=True)
class Rate:
    """Seconds and records."""

    what: str
    seconds: float
    records: int = RECORDS

    def lines(self) -> list[str]:
        return [self.what, f"  {self.records / self.seconds / 1e6:.2f} M records/s"]


def measure() -> Iterator[Measured | Rate]:
    with lab(LabSpec("rebuild")) as one, tempfile.TemporaryDirectory() as folder:
        for codec in ("none", "lz4"):
            yield from _measure(one, Path(folder), codec)


def _measure(one: Lab, folder: Path, codec: str) -> Iterator[Measured | Rate]:
    topic = f"rebuild-{codec}-kv-changelog"
    fill(one, topic, codec)
    script = folder / "keep.py"
    script.write_text(DICT, encoding="utf-8")
    state = folder / codec
    first = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "state", "rebuild", topic]
    first += ["--format", "plain", "--engine", "local", "--processes", str(PROCESSES)]
    cut = folder / f"{codec}.json"
    command([*first, "--at", "lso", "--output", str(state)])()
    shutil.copy(state / "cut.json", cut)
    ends = ends_of(state)
    keep = [sys.executable, str(script), one.bootstrap_servers, topic]
    check(state, [*keep, "digest", *ends])
    rebuild = command([*first, "--at", str(cut), "--output", str(state)])

    def ours() -> None:
        shutil.rmtree(state)
        rebuild()

    peer = command([*keep, "time", *ends])
    times = alternate(ours, peer, ROUNDS)
    what = f"rebuild {RECORDS:,} records, {KEYS:,} keys, codec {codec}, {PROCESSES} processes"
    yield Measured(what, *times, "confluent → dict", "at least 2.5x")
    yield Rate("  of these", min(times[0]))
    clocks: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    within: list[float] = []
    for number in range(ROUNDS + 1):  # the first round is lost
        began, before = time.perf_counter(), _children_cpu()
        ours()
        took, used = time.perf_counter() - began, _children_cpu() - before
        restored, restored_cpu = _restore(one, folder, codec, state)
        if number:
            clocks.append((took, restored))
            cpu.append((used, restored_cpu))
            within.append(state_folder.read(state).seconds)
    name = "Streams → RocksDB"
    yield Measured(what, [a for a, _ in clocks], [b for _, b in clocks], name, "at least 3.5x")
    inside = "  the same without the start of processes and the cut, as Streams is counted"
    yield Measured(inside, within, [b for _, b in clocks], name, "none, printed")
    what = "  the same in seconds of CPU, which others on the machine change less"
    yield Measured(what, [a for a, _ in cpu], [b for _, b in cpu], name, "none, printed")


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _restore(one: Lab, folder: Path, codec: str, state: Path) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of a restore by Kafka Streams with nothing on disk; two threads.

    Ends unless its digest is that of the state.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    application, where = f"rebuild-{codec}", folder / "streams"
    source = f"{application}-input"
    admin = AdminClient(one.client_properties())
    if source not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(source, PARTITIONS, 1)])[source].result(30)
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    told = {
        "application.id": application,
        "bootstrap.servers": one.bootstrap_servers,
        "state.dir": str(where),
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": str(PROCESSES),
        "consumer.session.timeout.ms": "6000",  # its predecessor died without a goodbye
        "consumer.heartbeat.interval.ms": "500",
        "input": source,
        "partitions": str(PARTITIONS),
    }
    config = folder / "streams.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    argv = [str(find_java().path), "-Xmx1g", "-cp", class_path(RESTORE), "RestoreApp", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"Kafka Streams did not restore: {done.stderr[-2000:]}")
    *nanoseconds, rows, sha256_sum = done.stdout.split()
    found = state_folder.read(state).digest
    if (found.rows, found.sha256_sum) != (int(rows), sha256_sum):
        raise SystemExit(f"Kafka Streams restored another state: {done.stdout} and {found}")
    clock, cpu = (int(text) / 1e9 for text in nanoseconds)
    return clock, cpu


def ends_of(state: Path) -> list[str]:
    """Of its cut, by rising partition."""
    (topic,) = state_folder.read(state).cut.topics
    return [str(p.end) for p in topic.partitions]


def check(state: Path, keep: list[str]) -> None:
    """Ends unless the digest that `DICT` says is that of the manifest."""
    said = subprocess.run(keep, capture_output=True, text=True, check=True).stdout.split()
    rows, total = sum(map(int, said[0::2])), sum(map(int, said[1::2])) % 2**256
    found = state_folder.read(state).digest
    if (found.rows, found.sha256_sum) != (rows, f"{total:064x}"):
        raise SystemExit(f"the rebuilt state is not that of the dict: {found}")


def fill(
    one: Lab, topic: str, codec: str, records: int = RECORDS, partitions: int = PARTITIONS
) -> None:
    """A changelog with five records a key, in transactions, every tenth of them aborted."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    admin = AdminClient(one.client_properties())
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
    producer = Producer(
        one.client_properties()
        | {
            "transactional.id": f"fill-{topic}",
            "linger.ms": 20,
            "batch.size": 200_000,
            "compression.type": codec,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    chance, keys = random.Random(7), max(1, records // 5)
    for number in range(0, records, PER_TRANSACTION):
        producer.begin_transaction()
        for i in range(number, min(records, number + PER_TRANSACTION)):
            key = chance.randrange(keys)
            value = None if i % 97 == 0 else (b"%010d" % i) * 10
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        b"key-%012d" % key,
                        partition=key % PARTITIONS,
                        timestamp=1_700_000_000_000 + i,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(60)
        if number // PER_TRANSACTION % 10 == 3:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    time.sleep(1)
