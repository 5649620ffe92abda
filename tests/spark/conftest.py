"""One Spark session and one broker for all of these tests; each starts when first asked for."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.conftest import (
    MakeTopic,
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
