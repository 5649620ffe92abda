"""A real Flink job for the tests: source topic -> Kafka sink EXACTLY_ONCE, killed, restored.

`FlinkJob.java` runs in one JVM with the connector as it is released. With `hold_at` the operator
before the sink keeps the news that a checkpoint is complete from it: the checkpoint is on disk and
its transactions are prepared, and none is committed. That is the moment in which it is killed.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from tests import java

SOURCE = Path(__file__).with_name("FlinkJob.java")
VERSIONS = ("2.2.0", "2.0.0")
"""Of Flink: with the Kafka connector 5.0.0 (kafka-clients 4.2.0) and 4.0.1 (3.9.1)."""
PARALLELISM = PARTITIONS = 2
WAIT_SECONDS = 120.0
CHECKPOINT_MS = 1000

_OPENED = ("java.base/java.util=ALL-UNNAMED", "java.base/java.lang=ALL-UNNAMED")


def class_path(version: str) -> str:
    """The job's classes, and Flink's jars, which bring Kafka clients of their own."""
    lock = SOURCE.with_name(f"flink-{version}.lock")
    return java.class_path(java.locked_jars(lock), SOURCE)


def _command(version: str, *words: str, log: Path | str = os.devnull) -> list[str]:
    flags = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    flags += [word for name in _OPENED for word in ("--add-opens", name)]
    logging = resources.files("eoctl.lab") / "log4j2.properties"
    flags += [f"-Dlog4j2.configurationFile={logging}", f"-Deoctl.log={log}"]
    return [str(find_java().path), *flags, "-cp", class_path(version), "FlinkJob", *words]


@dataclass(frozen=True)
class Loaded:
    """What Flink's own classes read from a checkpoint, in the order of eoctl's values.

    committables: (transactional id, producer id, epoch, checkpoint); writers: (prefix, subtask,
    ownership); offsets: (topic, partition, offset).
    """

    checkpoint: int
    committables: list[tuple[str, int, int, int]]
    writers: list[tuple[str, int, str]]
    offsets: list[tuple[str, int, int]]


def load(version: str, checkpoint: Path) -> Loaded:
    """Let Flink's Checkpoints.loadCheckpointMetadata and the connector's serializers read it."""
    ran = subprocess.run(
        _command(version, "load", str(checkpoint)),
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
        text=True,
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"')]
    number = next(row["checkpoint"] for row in rows if "checkpoint" in row)

    def field(text: str, name: str) -> str:
        match = re.search(rf"\b{name}='?([^,'}}]*)", text)
        assert match is not None, text
        return match[1]

    committables, writers = [], []
    for row in rows:
        if "committable" in row:
            checkpoint_id, _, text = row["committable"].partition(" ")
            numbers = int(field(text, "producerId")), int(field(text, "epoch"))
            name = field(text, "transactionalId")
            committables.append((name, *numbers, int(checkpoint_id)))
        if "writer" in row:
            text = row["writer"]
            prefix, subtask = field(text, "transactionalIdPrefix"), field(text, "ownedSubtaskId")
            writers.append((prefix, int(subtask), field(text, "transactionOwnership")))
    splits = [row["split"].split() for row in rows if "split" in row]
    offsets = [(topic, int(partition), int(offset)) for topic, partition, offset in splits]
    return Loaded(number, sorted(committables), sorted(writers), sorted(offsets))


def rewrite(version: str, checkpoint: Path, form: int, to: Path) -> None:
    """Let Flink write a checkpoint's `_metadata` in an older format."""
    words = ("rewrite", str(checkpoint), str(form), str(to))
    subprocess.run(_command(version, *words), check=True, timeout=120)


class Job:
    """One job; it may be started again from a checkpoint. settings: Flink's, by their names."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        *,
        source: str,
        sink: str,
        version: str = VERSIONS[0],
        naming: str = "INCREMENTING",
        prefix: str | None = None,
        timeout_ms: int = 600_000,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.version, self.sink = folder, version, sink
        self.checkpoints = folder / "checkpoints"
        self.prefix = prefix or f"etl-{sink}"
        self._told = {
            "bootstrap": lab.bootstrap_servers,
            "group": f"flink-{sink}",
            "source": source,
            "sink": sink,
            "folder": str(folder),
            "naming": naming,
            "prefix": self.prefix,
            "timeout.ms": str(timeout_ms),
            "flink.parallelism.default": str(PARALLELISM),
            "flink.execution.checkpointing.interval": f"{CHECKPOINT_MS} ms",
            "flink.execution.checkpointing.dir": self.checkpoints.as_uri(),
            "flink.execution.checkpointing.externalized-checkpoint-retention": (
                "RETAIN_ON_CANCELLATION"
            ),
            "flink.execution.checkpointing.num-retained": "100",
            "flink.restart-strategy.type": "none",
            **{f"flink.{name}": value for name, value in (settings or {}).items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, *, restore: Path | None = None, hold_at: int = 0, from_group: str | None = None
    ) -> None:
        """Start it. hold_at: the checkpoint from which on nothing is committed; 0 = none.

        from_group: the source begins where this group stands, and is refused where it stands
        nowhere; None = at the beginning, or where the checkpoint says.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for held in self.folder.glob("held-*"):
            held.unlink()
        told = self._told | {"hold.at": str(hold_at)}
        if from_group is not None:
            told |= {"group": from_group, "from.group": "true"}
        if restore is not None:
            told["flink.execution.state-recovery.path"] = restore.as_uri()
        config = self.folder / "job.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        with (self.folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                _command(self.version, "run", str(config), log=self.folder / "flink.log"),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait for something while it runs; it is killed if that does not come."""
        end = time.monotonic() + WAIT_SECONDS
        try:
            while not met():
                assert self._process is not None
                assert self._process.poll() is None, f"it ended: see {self.folder}/flink.log"
                assert time.monotonic() < end, f"{what}: see {self.folder}/flink.log"
                time.sleep(0.05)
        except BaseException:
            self.kill()
            raise

    def killed_before_commit(self, hold_at: int) -> Path:
        """Start it, kill it when checkpoint `hold_at` is complete and not committed; that one."""
        self._held(hold_at)
        self.kill()
        return self.checkpoint(hold_at)

    def savepoint(self, *, stop: bool = False) -> Path:
        """Let Flink take a savepoint; its folder. It goes on writing, or ends with it (stop).

        Flink commits what a savepoint promises if it ends the job, else with the next checkpoint.
        """
        made, wanted = self.folder / "savepoint-made", self.folder / "savepoint-wanted"
        arriving = wanted.with_suffix(".arriving")
        arriving.write_text("stop" if stop else "go on")
        arriving.rename(wanted)
        if stop:
            assert self._process is not None
            try:
                status = self._process.wait(WAIT_SECONDS)
            finally:
                self.kill()
            assert status == 0, f"see {self.folder}/flink.log"
        else:
            self.until(made.exists, "no savepoint is made")
        path = Path(unquote(urlsplit(made.read_text()).path))
        made.unlink()
        return path

    def frozen_before_commit(self, hold_at: int) -> Path:
        """Like `killed_before_commit`, but it is only stopped (SIGSTOP): see `thaw`."""
        self._held(hold_at)
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        return self.checkpoint(hold_at)

    def thaw(self) -> None:
        """Let a frozen one go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _held(self, hold_at: int) -> None:
        """Start it, and wait until checkpoint `hold_at` is complete and not committed."""
        self.start(hold_at=hold_at)
        held = [self.folder / f"held-{subtask}" for subtask in range(PARALLELISM)]
        self.until(lambda: all(path.exists() for path in held), "no checkpoint was held")
        complete = f"*/chk-{hold_at}/_metadata"
        self.until(lambda: any(self.checkpoints.glob(complete)), "no checkpoint is complete")
        time.sleep(0.3)  # it is registered, and whoever is told of it is told

    def checkpoint(self, number: int) -> Path:
        """The folder of a checkpoint, of whichever run of the job."""
        [found] = self.checkpoints.glob(f"*/chk-{number}")
        return found

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(20)


def topics(lab: Lab, source: str, sink: str, records: int = 10_000) -> None:
    """Make both topics, and fill the source: each record's value is its number."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab.client_properties())
    new = [NewTopic(name, PARTITIONS, 1) for name in (source, sink)]
    for made in admin.create_topics(new, operation_timeout=10).values():
        made.result(20)
    producer = Producer(lab.client_properties())
    for number in range(records):
        producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(20) == 0
