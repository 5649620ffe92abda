"""A real MirrorMaker 2 for the tests, in its dedicated mode: started, killed, started again."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, read_lock
from tests import java

LOCK = Path(__file__).with_name(f"mirror-{KAFKA}.lock")
SOURCE, TARGET = "a", "b"
WAIT_SECONDS = 180.0


def class_path() -> str:
    """Kafka's jars, and those that MirrorMaker needs beside them."""
    return java.class_path([*read_lock(KAFKA), *java.locked_jars(LOCK)])


class MirrorMaker:
    """Mirrors a topic and the offsets of its groups from one lab into another.

    settings: more properties, as in an mm2.properties.
    """

    def __init__(
        self, folder: Path, source: Lab, target: Lab, topic: str, settings: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._told = {
            "clusters": f"{SOURCE}, {TARGET}",
            f"{SOURCE}.bootstrap.servers": source.bootstrap_servers,
            f"{TARGET}.bootstrap.servers": target.bootstrap_servers,
            f"{SOURCE}->{TARGET}.enabled": "true",
            f"{SOURCE}->{TARGET}.topics": topic,
            f"{SOURCE}->{TARGET}.groups": f"{topic}.*",
            f"{TARGET}->{SOURCE}.enabled": "false",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.interval.seconds": "1",
            "sync.topic.acls.enabled": "false",
            "refresh.topics.interval.seconds": "5",
            "refresh.groups.interval.seconds": "5",
            "tasks.max": "1",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: str) -> None:
        """Start it. settings: properties of this run, with `_` for `.`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "mm2.properties"
        told = self._told | {name.replace("_", "."): value for name, value in settings.items()}
        config.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        logging = resources.files("eoctl.lab") / "log4j2.properties"
        flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += [f"-Dlog4j2.configurationFile={logging}", f"-Deoctl.log={self._folder}/mm2.log"]
        program = "org.apache.kafka.connect.mirror.MirrorMaker"
        with (self._folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [str(find_java().path), *flags, "-cp", class_path(), program, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait for something while it runs."""
        end = time.monotonic() + WAIT_SECONDS
        while not met():
            assert self._process is not None
            assert self._process.poll() is None, f"it ended: see {self._folder}"
            assert time.monotonic() < end, f"{what}: see {self._folder}/mm2.log"
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(20)
