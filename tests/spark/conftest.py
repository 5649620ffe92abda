"""One Spark session and one broker for all of these tests; each starts when first asked for."""

import multiprocessing.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.conftest import (
    MakeTopic,
    it,
    lab1,
    lab3,
    lab_state,
    pytest_configure,
    secure_lab,
    start_lab,
    topic,
)
from tests.spark.jvm import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "MakeTopic",
    "it",
    "lab1",
    "lab3",
    "lab_state",
    "pytest_configure",
    "secure_lab",
    "start_lab",
    "topic",
]


@pytest.fixture(scope="session", autouse=True)
def swift_jvms() -> Iterator[None]:
    """Every JVM of Spark starts with the flags of `tests.spark.jvm`, whoever starts it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of these tests' own, so that what they leave in it is theirs."""
    tmp_path_factory.getbasetemp()  # stays where it is
    multiprocessing.util.get_temp_dir()  # so does that of forked processes
    before, found = os.environ.get("TMPDIR"), Path(tempfile.mkdtemp(prefix="eoctl-spark-"))
    found.chmod(0o711)  # other tests of this worker make theirs in it, PostgreSQL as another user
    os.environ["TMPDIR"], tempfile.tempdir = str(found), None
    yield found
    del os.environ["TMPDIR"]
    if before is not None:
        os.environ["TMPDIR"] = before
    tempfile.tempdir = None
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def nothing_left(temporary: Path) -> Iterator[None]:
    """Fails a test whose jobs leave a process, or something of eoctl's in the temporary folder.

    What is shipped to the executors of these tests' own session stays as long as that.
    """
    from spark_jobs.session import executors

    def left() -> set[str]:
        mine = f"TMPDIR={temporary}".encode()
        of_jobs = set()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (path / "environ").read_bytes().split(b"\0")
                if mine in words and any(word.startswith(b"EOCTL_JOB=") for word in words):
                    of_jobs.add(f"process {path.name}")
        served = {folder.name for folder in executors._served}
        return of_jobs | {path.name for path in temporary.glob("eoctl-*")} - served

    before = left()
    yield
    assert left() - before == set()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """local[2], a failed task is tried seven times more; its event log is kept."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = tmp_path_factory.mktemp("events")
    made = (
        SparkSession.builder.master("local[2,8]")
        .appName("eoctl tests")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.port", "0")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def event_logs(spark: "SparkSession") -> Path:
    """The folder of the session's event log."""
    return Path(str(spark.conf.get("spark.eventLog.dir")).removeprefix("file://"))
