"""A real Kafka Streams application for the tests: compiled, started, asked, killed.

`StreamsApp.java` has a store of every kind. It commits only when told to, so that a test knows
which records a commit covers; what it says of its stores (interactive queries) is the oracle.
"""

import asyncio
import base64
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eoctl.host.java import find_java
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, read_lock
from tests import java

SOURCE = Path(__file__).with_name("StreamsApp.java")
PARTITIONS = 2
STORES = {
    "kv": "streams-kv",
    "kv-cached": "streams-kv",
    "memory": "streams-kv",
    "versioned": "streams-versioned",
    "window": "streams-window",
    "window-cached": "streams-window",
    "hopping-memory": "streams-window",
    "session": "streams-session",
    "session-cached": "streams-session",
}
"""Each store of the application and the format of its changelog."""

WINDOW_MS, GAP_MS, RETENTION_MS, HISTORY_MS = 10_000, 3_000, 60_000, 45_000
WAIT_SECONDS = 120.0


def class_path(source: Path = SOURCE, version: str = KAFKA) -> str:
    """An application's classes, and the jars that it needs, Kafka Streams' of a version."""
    lock = Path(__file__).with_name(f"streams-{version}.lock")
    return java.class_path([*read_lock(version), *java.locked_jars(lock)], source)


@dataclass(frozen=True)
class Row:
    """One row of a store. key, value: the user's bytes; start, end: of a window or session."""

    store: str
    partition: int
    key: bytes
    value: bytes
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class AsOf:
    """What the versioned store says of a key: at a time, or (at None) one of its versions."""

    partition: int
    key: bytes
    at: int | None
    value: bytes | None
    valid_from: int | None
    valid_to: int | None


class Program:
    """A Java program of this folder in a process of its own, asked line by line."""

    def __init__(self, folder: Path, source: Path, version: str = KAFKA) -> None:
        self.folder, self._source, self._version = folder, source, version
        self._process: subprocess.Popen[str] | None = None

    def launch(self, *configs: Mapping[str, str]) -> None:
        """Start it with a properties file for each of these."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"app-{number}.properties" for number in range(len(configs))]
        for file, config in zip(files, configs, strict=True):
            file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        flags = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        with (self.folder / "app.log").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(str(find_java().path), *flags),
                    *("-cp", class_path(self._source, self._version)),
                    *(self._source.stem, *map(str, files)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, *words: str) -> dict[str, Any]:
        """One command, and the application's answer."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(words) + "\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            if line.startswith('{"command"'):
                answer: dict[str, Any] = json.loads(line)
                assert "error" not in answer, f"{answer}: see {self.folder}/app.log"
                return answer
        raise AssertionError(f"the application ended: see {self.folder}/app.log")

    def halt(self) -> None:
        """Die at once: no commit, no abort, no goodbye."""
        process = self._running()
        assert process.stdin is not None
        process.stdin.write("halt\n")
        process.stdin.flush()
        assert process.wait(20) == 137
        self._close()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, and a command was not sent
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._close()

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Ask again until it is so."""
        end = time.monotonic() + WAIT_SECONDS
        while not met():
            assert time.monotonic() < end, f"{what}: see {self.folder}/app.log"
            time.sleep(0.05)

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the application does not run"
        return self._process

    def _close(self) -> None:
        process = self._running()
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.close()
        if not process.stdin.closed:
            process.stdin.close()
        self._process = None


class App(Program):
    """One application id; it may be started again after a crash, with the state it left.

    source: its input topic. program: what is run, with Kafka Streams of a version.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        name: str,
        source: str,
        settings: Mapping[str, str],
        *,
        program: Path = SOURCE,
        version: str = KAFKA,
    ) -> None:
        super().__init__(folder, program, version)
        self.lab, self.name, self.source, self._settings = lab, name, source, settings

    def changelog(self, store: str) -> str:
        return f"{self.name}-{store}-changelog"

    def start(self) -> None:
        """Start it and wait until it runs."""
        told = {
            "application.id": self.name,
            "bootstrap.servers": self.lab.bootstrap_servers,
            "state.dir": str(self.folder / "state"),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "500000",
            "producer.transaction.timeout.ms": "600000",
            "statestore.cache.max.bytes": str(1 << 20),
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
            "consumer.auto.offset.reset": "earliest",
            "poll.ms": "20",
            "num.stream.threads": "1",
            "metrics.recording.level": "INFO",
            # roll soon, so that the cleaner has something to clean
            "topic.segment.ms": "1000",
            "topic.min.cleanable.dirty.ratio": "0.001",
            "input": self.source,
            "partitions": str(PARTITIONS),
            "window.ms": str(WINDOW_MS),
            "gap.ms": str(GAP_MS),
            "retention.ms": str(RETENTION_MS),
            "history.ms": str(HISTORY_MS),
            **self._settings,
        }
        self.launch(told)
        self.until(lambda: self.ask("state")["state"] == "RUNNING", "it does not run")

    def processed(self, count: int) -> None:
        """Wait until this incarnation has processed so many input records."""
        self.until(lambda: bool(self.ask("state")["processed"] >= count), f"{count} not processed")

    def commit(self) -> None:
        """Commit until all of the input is committed."""
        ends = {
            partition: high
            for (_, partition), (_, _, high) in bounds(self.lab, [self.source]).items()
            if high
        }

        def met() -> bool:
            self.ask("commit")
            time.sleep(0.2)
            return self._committed() == ends

        self.until(met, f"input up to {ends} not committed")

    def rows(self) -> list[Row]:
        """Every row of every store but the versioned one, by interactive queries."""
        file = self.folder / "dump.jsonl"
        self.ask("dump", str(file))
        return [
            Row(
                store=found["store"],
                partition=found["partition"],
                key=base64.b64decode(found["key"]),
                value=base64.b64decode(found["value"]),
                timestamp=found.get("timestamp"),
                start=found.get("start"),
                end=found.get("end"),
            )
            for found in map(json.loads, file.read_text().splitlines())
        ]

    def as_of(self, keys: Sequence[bytes], times: Sequence[int]) -> list[AsOf]:
        """All versions of each key, and the versioned store's answer at each time."""
        file, wanted = self.folder / "asof.jsonl", self.folder / "keys.txt"
        wanted.write_text("".join(base64.b64encode(key).decode() + "\n" for key in keys))
        self.ask("asof", str(file), str(wanted), *map(str, times))
        return [
            AsOf(
                partition=found["partition"],
                key=base64.b64decode(found["key"]),
                at=found.get("at"),
                value=None if found["value"] is None else base64.b64decode(found["value"]),
                valid_from=found["timestamp"],
                valid_to=found["valid_to"],
            )
            for found in map(json.loads, file.read_text().splitlines())
        ]

    def _committed(self) -> dict[int, int]:
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self.lab.client_properties())
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.name)], require_stable=True
        )
        found = asked[self.name].result(20).topic_partitions
        return {p.partition: p.offset for p in found if p.error is None and p.offset > 0}


def bounds(lab: Lab, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(log start, last stable offset, high watermark) of every partition."""

    async def look() -> dict[tuple[str, int], tuple[int, int, int]]:
        async with Client.to(lab.bootstrap_servers) as client:
            return {
                (topic, partition): await client.offsets(topic, partition)
                for topic in topics
                for partition in range(PARTITIONS)
            }

    return asyncio.run(look())


def produce(lab: Lab, topic: str, records: Iterable[tuple[bytes, bytes | None, int]]) -> int:
    """Write input records (key, value, timestamp in ms), each with a header; how many."""
    from confluent_kafka import Producer

    producer = Producer(lab.client_properties())
    count = 0
    for count, (key, value, timestamp) in enumerate(records, 1):
        producer.produce(
            topic, value, key, timestamp=timestamp, headers=[("trace", str(count).encode())]
        )
        producer.poll(0)
    assert producer.flush(20) == 0
    return count


def inputs(seed: int, count: int, begin: int, end: int) -> list[tuple[bytes, bytes | None, int]]:
    """Records of 200 keys whose times rise from begin to end, some late, some deletions.

    Seeded. Some come up to 1.5 retentions late: windows, sessions and versions expire.
    """
    rng = random.Random(seed)
    records: list[tuple[bytes, bytes | None, int]] = []
    for number in range(count):
        key = b"key-%d" % int(200 * rng.random() ** 2)
        value = None if rng.random() < 0.15 else b"%d:%d" % (seed, number)
        late = rng.choice((0, 0, 0, rng.randrange(8_000), rng.randrange(RETENTION_MS * 3 // 2)))
        records.append((key, value, begin + (end - begin) * number // count - late))
    return records
