"""What `context test` says of this machine: a lock that a process has, folders that one left."""

import fcntl
import os
import sys
import tempfile
from pathlib import Path

import pytest

from eoctl.operations.inspect import machine
from recovery.facts import CoordinatorClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/locks")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_lock_is_what_a_process_has_and_not_its_file(tmp_path: Path) -> None:
    assert machine._locks().detail == "0 files, 0 taken by a process now"
    locks = tmp_path / "state" / "locks"
    locks.mkdir(parents=True)
    (locks / "old.lock").touch()
    with (locks / "check-1.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert machine._locks().detail == "2 files, 1 taken by a process now: check-1.lock"
    assert machine._locks().detail == "2 files, 0 taken by a process now"


def test_a_folder_of_a_process_that_lives_is_not_left_over(tmp_path: Path) -> None:
    folder = tmp_path / "eoctl-spark-held-1"
    folder.mkdir()
    with (tmp_path / "other").open("w"):
        journal, left = machine._leftovers()
    assert (journal.sees, left.sees) == (True, False)
    assert folder.name in left.detail
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert machine._leftovers()[1].detail == "none is left over"
    finally:
        os.close(descriptor)


def test_without_the_kernels_list_it_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "LOCKS", tmp_path / "none")
    assert machine._locks().sees is None
    assert [row.sees for row in machine._leftovers()] == [True, None]


@pytest.mark.parametrize(
    ("ahead", "well", "words"),
    [
        (0, True, "broker 1 within 1 s of ours"),
        (3_000, True, "broker 1 3s ahead"),
        (-5_001, False, "broker 1 5s behind"),
    ],
)
def test_a_clock_may_differ_as_judging_allows(ahead: int, well: bool, words: str) -> None:
    row = machine._clocks([CoordinatorClock(1, ahead)], {1})
    assert (row.sees, row.detail) == (well, words)


def test_a_clock_that_was_not_measured_is_not_called_well() -> None:
    near = [CoordinatorClock(1, 0), CoordinatorClock(3, 0)]
    row = machine._clocks(near, {1, 2, 3, 4})
    assert row.sees is None
    assert row.detail == (
        "brokers 1, 3 within 1 s of ours; brokers 2, 4 not measured, because no open transaction "
        "there shows its clock: compare `date -u`"
    )
    assert machine._clocks([*near, CoordinatorClock(2, 9_000)], {1, 2, 3, 4}).sees is False
    assert machine._clocks(near, {1, 3}).sees is True
    assert machine._clocks([], {1, 3}).sees is None


def test_a_folder_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").touch(mode=0o400)
    row = machine._folder("state folder", lambda: tmp_path / "state" / "x", "plans")
    assert row.sees is False
