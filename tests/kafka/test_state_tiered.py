"""Reading what a broker has moved to remote storage (KIP-405), and what is said when that is gone.

The remote store is Kafka's own LocalTieredStorage, a folder: a class of kafka-storage's test jar.
"""

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, run_ivy
from eoctl.lab.record import LabSpec
from eoctl.settings.context import cache_dir
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill

SHA256 = "f3236936854c13815ffaa7f35a3f2d6861c125616cba5395b538b8680dded886"
IVY = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="eoctl" module="tests"/>
<configurations><conf name="default"/></configurations>
<dependencies>
<dependency org="org.apache.kafka" name="kafka-storage" rev="{KAFKA}" transitive="false"
 conf="default->default">
<artifact name="kafka-storage" type="jar" ext="jar" m:classifier="test"/>
</dependency>
</dependencies></ivy-module>
"""
TIERED = {"remote.storage.enable": "true", "local.retention.ms": "500", "segment.ms": "1000"}


def storage_jar(folder: Path) -> Path:
    """kafka-storage's test jar, in the user's cache."""
    path = cache_dir().absolute() / "jars" / f"kafka-storage-{KAFKA}-test.jar"
    if not path.exists():
        with run_ivy(find_java(), folder, IVY, None) as lines:
            said = "".join(lines)
        (got,) = [*folder.glob("kafka-storage-*.jar")] or pytest.fail(said)
        path.parent.mkdir(parents=True, exist_ok=True)
        got.replace(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    return path


@dataclass(frozen=True)
class Tiered:
    lab: Lab
    remote: Path

    def wait_until_moved(self, topic: str) -> None:
        """Until the broker has no segment of the log's beginning on its own disk."""
        until = time.monotonic() + 120
        folder = self.lab.data_folder(1)
        while (folder / f"{topic}-0" / f"{0:020}.log").exists():
            assert time.monotonic() < until, "no segment went to the remote store"
            time.sleep(0.3)


@pytest.fixture(scope="module")
def tiered(start_lab: Callable[[LabSpec], Lab], tmp_path_factory: pytest.TempPathFactory) -> Tiered:
    folder = tmp_path_factory.mktemp("remote")
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "remote.log.storage.manager.class.path": str(storage_jar(folder)),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "rsm.config.dir": str(folder / "store"),
        "log.retention.check.interval.ms": "500",
    }
    return Tiered(start_lab(LabSpec(name="tiered", settings=settings)), folder / "store")


@pytest.mark.long
def test_what_was_moved_is_read_through_its_broker(
    tiered: Tiered, topic: MakeTopic, tmp_path: Path
) -> None:
    """The same state as a plain consumer sees; then the remote store is gone: a sentence."""
    lab = tiered.lab
    name = topic(lab, config={"cleanup.policy": "delete", "retention.ms": "-1", **TIERED})
    for seed in range(3):
        fill(lab, name, seed=seed, records=1500, keys=300, partitions=1)
        time.sleep(1.2)  # segment.ms
    fill(lab, name, seed=9, records=10, keys=300, partitions=1)
    tiered.wait_until_moved(name)
    words = ("state", "rebuild", name, "--format", "plain", "--at", "lso", "--engine", "local")
    for more in ((), ("--range-offsets", "700")):
        folder = tmp_path / f"state-{len(more)}"
        ran = eoctl(*words, *more, "--output", str(folder), "-o", "json", lab=lab, timeout=120)
        assert ran.status == 0, ran.stderr
        state = Rebuilt(folder)
        expected, counts = dict_state(lab, name, state.ends)
        assert state.state() == expected
        assert state.digest == digest(expected)
        assert state.manifest.partitions[0].counts["data"] == counts["data"]
        assert state.manifest.partitions[0].counts["missing"] == 0
    shutil.rmtree(tiered.remote)
    env = environment(EOCTL_STATE_DIR=str(tmp_path / "own"))  # whose journal is empty
    ran = eoctl(*words, "--output", str(tmp_path / "gone"), lab=lab, env=env, timeout=120)
    assert ran.status == 3, ran.stderr
    assert f"{name}-0: could not be read from offset 0 on: it is in remote storage" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "gone" / "manifest.json").exists()
