"""For all tests: interruptible processes, no lab left behind, who shares one, a second try."""

import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.parts import PARTS, part_of
from tests.share import SHARE
from tests.timing import Timing

# a crowded machine is slow to draw examples, which says nothing of the code
settings.register_profile("crowded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` says the same of the same code; `make test-long` draws other examples each time
settings.register_profile(
    "same", settings.get_profile("crowded"), derandomize=True, max_examples=40
)
settings.load_profile("crowded" if SHARE >= 1 else "same")

RUN_FOLDER = "EOCTL_TEST_RUN"
"""The environment variable with the folder of this run; its workers make their own below it."""
TOGETHER = "together.json"
"""In that folder: which tests run on one worker besides those of a file, as its name by test."""


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
    files = [config.getoption(name) for name in ("--durations-file", "--tried-file")]
    config.pluginmanager.register(Timing(*(Path(file) if file else None for file in files)))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Labs of a worker that was killed, or had no time to take them down, end here."""
    if _is_worker(config):
        return
    run = Path(os.environ[RUN_FOLDER])
    for folder in filter(Path.is_dir, run.iterdir()):
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage is looked for among what tests make, not among the 7,000 that were collected.

    A full look at those takes a third of a second, which was a tenth of a unit test's time.
    """
    gc.disable()  # what collecting makes stays
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")  # of pytest-xdist


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--durations-file FILE`, `--tried-file FILE`: see tests.timing. `--part`: see tests.parts."""
    parser.addoption("--durations-file", metavar="FILE", help="write where the time went")
    parser.addoption("--tried-file", metavar="FILE", help="keep what docs/compatibility.md names")
    parser.addoption("--part", choices=tuple(PARTS), help="only the files of a part")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of other parts are not even imported."""
    part = config.getoption("--part")
    if part and collection_path.is_file() and part_of(collection_path) != part:
        return True
    return None


SERIAL = {"lab3": "three", "secure_lab": "secure", "lab2": "two"}
"""Fixtures of labs that one worker alone starts, and their names.

Their tests stop brokers, or their brokers are dear. A folder's tests with one of them run on
one worker, one after the other and before the folder's other tests; then the lab is taken down.
"""
WITH_BROKERS = ("kafka", "spark", "tui")
"""Folders whose tests run against brokers or Spark."""
ONE_WORKER = "spark" if SHARE < 1 else None
"""The folder whose tests with the fixture `spark` run on one worker, which alone starts a session;
its others, which launch jobs, run on another one. Both begin first.

In `make test`; the long ones take too long for one.
"""


def _folder(item: pytest.Item) -> str:
    return item.nodeid.split("/", 2)[1]  # of tests/; a path takes a tenth of all collecting


def _serial(item: pytest.Item) -> str | None:
    """The name of the lab whose tests this one runs among, if it uses one of SERIAL."""
    used = getattr(item, "fixturenames", ())
    return next((lab for fixture, lab in SERIAL.items() if fixture in used), None)


def _together(item: pytest.Item) -> str | None:
    """What names the tests that this one runs on one worker with, if not its file's."""
    folder, lab = _folder(item), _serial(item)
    if folder == ONE_WORKER:
        return folder if "spark" in getattr(item, "fixturenames", ()) else f"{folder} jobs"
    return f"{folder} {lab}" if lab else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """A second try for tests with brokers or Spark; and in the end the order.

    Brokers that are killed and a crowded machine miss deadlines: the closing lines say which tests
    were tried again. A unit test has no such excuse, and `make trust` takes none.
    """
    again = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if again and _folder(item) in WITH_BROKERS:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
    yield
    labs = [*SERIAL.values(), None]
    folders = list(dict.fromkeys([ONE_WORKER, *map(_folder, items)]))
    items.sort(key=lambda item: (folders.index(_folder(item)), labs.index(_serial(item))))
    if _is_worker(config):
        together = {item.nodeid: name for item in items if (name := _together(item))}
        own = Path(os.environ[RUN_FOLDER], f"together-{os.getpid()}")
        own.write_text(json.dumps(together))
        own.replace(own.with_name(TOGETHER))  # every worker has collected the same


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A lab of SERIAL ends with the last try of the last of its tests: idle brokers cost time."""
    lab, following = _serial(item), nextitem and _serial(nextitem)
    result = yield
    if lab and lab != following:
        take_labs_down(set(SERIAL.values()) - {following})
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of ONE_WORKER, or with a lab of SERIAL, are on one worker, as others of a file are."""
    from xdist.scheduler import LoadFileScheduling

    class ByLabOrFile(LoadFileScheduling):  # type: ignore[misc]
        @cached_property
        def _names(self) -> dict[str, str]:
            found: dict[str, str] = json.loads(Path(os.environ[RUN_FOLDER], TOGETHER).read_text())
            return found

        def _split_scope(self, nodeid: str) -> str:
            return self._names.get(nodeid) or str(super()._split_scope(nodeid))

    return ByLabOrFile(config, log)


Tried = Callable[[str, int], None]
"""Says what a test has tried, and how often: `tried("commands", 71)`, for `make trust`.

A truth counts as one or none.
"""


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    return lambda what, count: record_property(what, int(count))
