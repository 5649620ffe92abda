"""A healthy cluster with much to do: a load of real clients, for tests that look at it meanwhile.

Two processes: Java clients (transactions v2) beside a Kafka Streams application of each group
protocol (`tests/streams/BusyLoad.java`), and librdkafka clients (transactions v1). Transactions are
short and long, most commit, a fifth aborts; plain records go to the same partitions.
"""

import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from tests.started import started
from tests.streams.app import class_path

PROGRAM = Path(__file__).parents[1] / "streams" / "BusyLoad.java"
PROTOCOLS = ("classic", "streams")
START_SECONDS = 240.0
FLOW_SECONDS = 5.0


@dataclass(frozen=True)
class Load:
    """A running load. topic: where the clients write. name: prefix of its ids and groups."""

    topic: str
    name: str
    folder: Path

    @property
    def ended(self) -> int:
        """How many transactions of the clients were committed or aborted since the start."""
        return sum(int(n) for who in ("java", "librdkafka") for n in self._counts(who)[:2])

    @property
    def processed(self) -> int:
        """How many records the Streams applications have read."""
        return int(self._counts("java")[2])

    @property
    def applications(self) -> int:
        """How many Streams applications are in state RUNNING."""
        return int(self._counts("java")[3])

    def _counts(self, who: str) -> list[str]:
        lines = (self.folder / who).read_text().splitlines()
        return lines[-1].split() if lines else ["0"] * 4


@contextmanager
def busy(
    lab: Lab, folder: Path, *, ids: int = 200, partitions: int = 24, seed: int = 1
) -> Iterator[Load]:
    """Run the load for as long as the block: 3 in 5 ids are Java's, the others librdkafka's."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"busy-{uuid.uuid4().hex[:6]}"
    load = Load(f"{name}-topic", name, folder)
    replicas = min(3, len(lab.record.nodes))
    topics = [NewTopic(load.topic, partitions, replicas), NewTopic(f"{name}-in", 2, replicas)]
    topics += [NewTopic(f"{name}-{protocol}-out", 2, replicas) for protocol in PROTOCOLS]
    admin = AdminClient(lab.client_properties())
    for made in admin.create_topics(topics, operation_timeout=20).values():
        made.result(30)
    config = folder / "load.properties"
    config.write_text(
        f"bootstrap.servers={lab.bootstrap_servers}\ntopic={load.topic}\npartitions={partitions}\n"
        f"ids={ids * 3 // 5}\nseed={seed}\ninput={name}-in\nname={name}\n"
        f"state.dir={folder}/state\nprotocols={','.join(PROTOCOLS)}\n"
    )
    flags = ["-Xmx400m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java = [str(find_java().path), *flags, "-cp", class_path(PROGRAM), "BusyLoad", str(config)]
    python = [sys.executable, "-m", __name__, lab.bootstrap_servers, load.topic]
    python += [name, str(partitions), str(ids - ids * 3 // 5), str(seed)]
    with ExitStack() as stack:
        for who, words in (("java", java), ("librdkafka", python)):
            out = stack.enter_context((folder / who).open("w"))
            log = stack.enter_context((folder / f"{who}.log").open("w"))
            pipes = {"stdin": subprocess.PIPE, "stdout": out, "stderr": log}
            running = stack.enter_context(started(words, start_new_session=True, **pipes))
            _yield_to_others(running.pid)
        end = time.monotonic() + START_SECONDS
        while not _flows(load, ids):
            assert time.monotonic() < end, f"the load does not run: see {folder}"
        yield load


def _yield_to_others(pid: int) -> None:
    """Brokers and eoctl go before the clients: Java's senders ask some brokers without a pause.

    Linux shares a processor by sessions first (sched(7), autogroup): `nice` alone counts in one.
    """
    with suppress(OSError):  # elsewhere, or not allowed here: the load is only less polite
        Path(f"/proc/{pid}/autogroup").write_text("12")
    os.setpriority(os.PRIO_PROCESS, pid, 19)


def _flows(load: Load, ids: int) -> bool:
    """Whether everything runs, and an id's transactions end more often than every FLOW_SECONDS."""
    before = load.ended
    time.sleep(FLOW_SECONDS)
    applications = load.processed >= 100 and load.applications == len(PROTOCOLS)
    return applications and load.ended - before >= ids


class _Clients:
    """librdkafka's transactional producers, a thread each."""

    def __init__(self, servers: str, topic: str, partitions: int, seed: int) -> None:
        self._servers, self._topic, self._partitions = servers, topic, partitions
        self._seed = seed
        self._lock = threading.Lock()
        self.committed = self.aborted = 0

    def run(self, name: str, number: int) -> None:
        """Begin and end transactions of one id, for ever; after an error with a new client."""
        from confluent_kafka import KafkaException

        rng = random.Random(self._seed * 1000 + number)
        time.sleep(rng.random() * 5)
        while True:
            try:
                self._session(f"{name}-rdkafka-{number}", rng)
            except KafkaException as error:
                print(number, error, file=sys.stderr, flush=True)

    def _session(self, transactional_id: str, rng: random.Random) -> None:
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        while True:
            producer.begin_transaction()
            try:
                for _ in range(rng.randint(1, 4)):
                    producer.produce(self._topic, b"v", b"k", rng.randrange(self._partitions))
                producer.flush(10)
                time.sleep(_open_seconds(rng))
                commit = rng.random() < 0.8
                if commit:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(30)
                commit = False
            with self._lock:
                self.committed += commit
                self.aborted += not commit
            time.sleep(rng.random() * 2)


def _open_seconds(rng: random.Random) -> float:
    """How long a transaction stays open: mostly a moment, some for seconds."""
    kind = rng.random()
    return rng.random() * (0.05 if kind < 0.6 else 2 if kind < 0.9 else 8)


def main(servers: str, topic: str, name: str, partitions: int, ids: int, seed: int) -> None:
    """Run until stdin ends; each second a line: committed aborted."""
    clients = _Clients(servers, topic, partitions, seed)
    for number in range(ids):
        threading.Thread(target=clients.run, args=(name, number), daemon=True).start()
    ended = threading.Event()

    def until_stdin_ends() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=until_stdin_ends, daemon=True).start()
    while not ended.wait(1):
        print(clients.committed, clients.aborted, flush=True)


if __name__ == "__main__":
    _, servers, topic, name, *numbers = sys.argv
    partitions, ids, seed = map(int, numbers)
    main(servers, topic, name, partitions, ids, seed)
