"""`dedup --engine spark` on real Kafka and Spark: the local engine's clean copy, once."""

import shutil
import signal
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.dedup_world import Copier, check_clean, consumed, source, topics

pytestmark = pytest.mark.timeout(600)

SPARK = ("--engine", "spark", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
ACT = ("--execute", "--yes")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own: the jobs in it are this test's."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def dirty_and_clean(lab1: Lab, topic: MakeTopic) -> tuple[str, str, Copier]:
    dirty, clean = topics(lab1, topic)
    copier = Copier(lab1, dirty, seed=11)
    copier.run(600)
    return dirty, clean, copier


def dedup(lab: Lab, *words: str, kill_at: str | None = None) -> Ran:
    env = environment(EOCTL_TEST_KILL_AT=kill_at)
    return eoctl("dedup", *words, lab=lab, env=env, timeout=300)


def test_begun_here_killed_and_ended_on_spark(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path
) -> None:
    """The first partition is copied, the second one begun; no memory of either is left."""
    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, *ACT, kill_at="step-2-started")
    assert killed.status == -signal.SIGKILL
    assert consumed(lab1, clean, 0)
    shutil.rmtree(state / "dedup")
    ended = dedup(lab1, dirty, clean, *ACT, *SPARK)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert check_clean(lab1, dirty, clean, source) > 50
