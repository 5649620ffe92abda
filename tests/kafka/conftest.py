"""Real brokers for the tests: each lab starts when a test first asks for it, once per run.

State lives in a folder of this run (two runs never meet); the jars are the user's own cache.
"""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from eoctl.lab.cluster import Lab, lab_names, load, up
from eoctl.lab.record import LabSpec


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python reads its schemas in a way that Python 3.11 warns about and 3.13 took back."""
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


@pytest.fixture(scope="session")
def lab_state() -> Iterator[Path]:
    """EOCTL_STATE_DIR of this run. At its end every lab in it is taken down, however it ends."""
    before = os.environ.get("EOCTL_STATE_DIR")
    folder = Path(tempfile.mkdtemp(prefix="eoctl-tests-"))
    os.environ["EOCTL_STATE_DIR"] = str(folder)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt  # pytest tears fixtures down after this, not after SIGTERM

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield folder
    finally:
        signal.signal(signal.SIGTERM, old)
        for name in lab_names():
            with suppress(Exception):
                load(name).down()
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["EOCTL_STATE_DIR"]
        else:
            os.environ["EOCTL_STATE_DIR"] = before


@pytest.fixture(scope="session")
def start_lab(lab_state: Path) -> Callable[[LabSpec], Lab]:
    """Start a lab that the run's end takes down, if the test does not."""
    return up


REBALANCE = {
    "leader.imbalance.check.interval.seconds": "2",
    "leader.imbalance.per.broker.percentage": "0",
}
"""A broker that was stopped takes its partitions back within seconds."""


@pytest.fixture(scope="session")
def lab1(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """One broker, open listener. Shared: leave its settings as they are."""
    return start_lab(LabSpec(name="one"))


@pytest.fixture(scope="session")
def lab3(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """Three brokers, open listener. Shared: a test that stops one starts it again.

    Which then takes its partitions back within seconds, for the tests that follow.
    """
    return start_lab(LabSpec(name="three", brokers=3, settings=REBALANCE))


@pytest.fixture(scope="session")
def secure_lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """One broker, a listener per mechanism, ACLs, users."""
    return start_lab(LabSpec(name="secure", secure=True))


MakeTopic = Callable[..., str]


@pytest.fixture
def topic() -> MakeTopic:
    """topic(lab, partitions=1, replicas=1, config=None, name=None): make one; its unique name."""

    def make(
        lab: Lab,
        partitions: int = 1,
        replicas: int = 1,
        config: dict[str, str] | None = None,
        name: str = "t",
    ) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"{name}-{uuid.uuid4().hex[:8]}"
        admin = AdminClient(lab.client_properties())
        new = NewTopic(name, partitions, replicas, config=config or {})
        admin.create_topics([new], operation_timeout=10)[name].result(20)
        return name

    return make
