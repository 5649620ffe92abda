"""For all tests: interruptible processes, no lab left behind, a second try."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a crowded machine is slow to draw examples, which says nothing of the code
settings.register_profile("crowded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crowded")

RUN_FOLDER = "EOCTL_TEST_RUN"
"""The environment variable with the folder of this run; its workers make their own below it."""


def pytest_configure(config: pytest.Config) -> None:
    """SIGINT and SIGTERM end a run with its fixtures torn down.

    One in the background (`nohup`, CI) ignores SIGINT, and its children would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _is_worker(config):
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="eoctl-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Labs of a worker that was killed, or had no time to take them down, end here."""
    if _is_worker(config):
        return
    run = Path(os.environ[RUN_FOLDER])
    for folder in run.iterdir():
        os.environ["EOCTL_STATE_DIR"] = str(folder)
        take_labs_down()
    shutil.rmtree(run, ignore_errors=True)


def take_labs_down(names: Iterable[str] | None = None) -> None:
    """Those, or all, of the present EOCTL_STATE_DIR, if that is a folder of this run."""
    from eoctl.lab.cluster import lab_names, load

    if Path(os.environ.get("EOCTL_STATE_DIR", "")).parent == Path(os.environ[RUN_FOLDER]):
        for name in lab_names() if names is None else names:
            with suppress(Exception):
                load(name).down()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")  # of pytest-xdist


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Brokers that are killed and a crowded machine miss deadlines: once more, reported as R."""
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
