"""`state rebuild` on a disk that fills up: one sentence, exit 3, nothing half there, then done."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, environment, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, producer

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
PARTITIONS, KEYS, VALUE = 2, 200, 1500  # 150 kB that nothing compresses in each partition


@dataclass(frozen=True)
class Disk:
    """A file system of its own. inside: the words before a command that is to see it there."""

    folder: Path
    inside: tuple[str, ...]
    seen: Path
    """The same folder, for this process."""

    def resize(self, size: str) -> None:
        words = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        subprocess.run([*self.inside, *words], check=True)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Disk]:
    """A tmpfs in a mount namespace of its own, which ends with the block."""
    folder.mkdir()
    mounted = f"mount -t tmpfs -o size={size} tmpfs {folder} && echo ready && exec sleep 600"
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted]
    try:
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip("no file system may be mounted here")
        pid = holder.pid
        inside = ("nsenter", "-t", str(pid), "--user", "--mount", "--preserve-credentials")
        yield Disk(folder, inside, Path(f"/proc/{pid}/root{folder}"))
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def changelog(lab1: Lab, topic: MakeTopic) -> str:
    """Every key twice, its values random."""
    name = topic(lab1, partitions=PARTITIONS, config=COMPACT)
    writer = producer(lab1)
    writer.begin_transaction()
    for number in range(2 * KEYS):
        key = number % KEYS
        writer.produce(name, os.urandom(VALUE), b"key-%d" % key, partition=key % PARTITIONS)
    writer.commit_transaction(30)
    return name


def _ran(
    lab: Lab, changelog: str, disk: Path, *words: str, inside: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(*inside, *EOCTL, "--bootstrap-server", lab.bootstrap_servers, "state", "rebuild"),
            *(changelog, "--format", "plain", "--at", "lso", "--output", str(disk / "state")),
            *("--engine", "local", "--processes", "1", *words),
        ],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )


def _is_one_sentence(ran: "subprocess.CompletedProcess[str]", reason: str) -> None:
    assert ran.returncode == 3, (ran.returncode, ran.stderr)
    (line,) = said(ran.stderr)
    assert reason in line
    assert "Traceback" not in ran.stderr
    assert "make space there" in line


def _is_whole(lab: Lab, changelog: str, folder: Path) -> None:
    state = Rebuilt(folder)
    expected, _ = dict_state(lab, changelog, state.ends)
    assert state.digest == digest(expected)
    assert state.state() == expected
    listed = {Path(f.path).name for p in state.manifest.partitions for f in p.files}
    assert {path.name for path in folder.glob("data/*/*")} == listed
    assert sorted(path.name for path in folder.iterdir()) == ["cut.json", "data", "manifest.json"]


# KiB free at the beginning: for nothing, the request, less than a file, about what two files take
LONG = [pytest.param(n, marks=pytest.mark.long) for n in (0, 100, *range(304, 352, 4))]


@pytest.mark.long
@pytest.mark.parametrize("left", [8, 240, *LONG])
def test_a_full_disk(lab1: Lab, changelog: str, tmp_path: Path, left: int) -> None:
    with small_disk(tmp_path / "disk", "400k") as disk:
        (disk.seen / "other").write_bytes(bytes((400 - left) << 10))
        ran = _ran(lab1, changelog, disk.folder, inside=disk.inside)
        if ran.returncode:
            _is_one_sentence(ran, "No space left on device")
            assert not (disk.seen / "state" / "manifest.json").exists()
            disk.resize("2m")
            ran = _ran(lab1, changelog, disk.folder, inside=disk.inside)
        else:
            assert left > 300
        assert ran.returncode == 0, ran.stderr
        _is_whole(lab1, changelog, disk.seen / "state")


@pytest.mark.long
def test_failing_again_and_again_takes_no_more_room(
    lab1: Lab, changelog: str, tmp_path: Path
) -> None:
    """What an attempt has left is removed by the next one, finished tasks are kept."""
    used: list[int] = []
    with small_disk(tmp_path / "disk", "240k") as disk:
        for _ in range(3):
            _is_one_sentence(_ran(lab1, changelog, disk.folder, inside=disk.inside), "No space")
            used.append(len(list(disk.seen.glob("state/data/*/*"))))
            assert len(list(disk.seen.glob("state/tasks/*.json"))) == 1
        disk.resize("2m")
        ran = _ran(lab1, changelog, disk.folder, inside=disk.inside)
        assert ran.returncode == 0, ran.stderr
        _is_whole(lab1, changelog, disk.seen / "state")
    assert max(used) <= 2, used


@pytest.mark.long
def test_a_file_that_may_not_grow(lab1: Lab, changelog: str, tmp_path: Path) -> None:
    """EFBIG instead of ENOSPC, also for what is spilt in ranges."""
    limit = ("prlimit", f"--fsize={100 << 10}")
    words = ("--range-offsets", "180")
    ran = _ran(lab1, changelog, tmp_path, *words, inside=limit)
    _is_one_sentence(ran, "File too large")
    assert not (tmp_path / "state" / "manifest.json").exists()
    assert _ran(lab1, changelog, tmp_path, *words).returncode == 0
    _is_whole(lab1, changelog, tmp_path / "state")


@pytest.mark.long
def test_cleaning_makes_room(lab1: Lab, changelog: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "240k") as disk:
        _is_one_sentence(_ran(lab1, changelog, disk.folder, inside=disk.inside), "No space")
        ran = _ran(lab1, changelog, disk.folder, "--clean", inside=disk.inside)
        _is_one_sentence(ran, "No space")
        disk.resize("2m")
        assert _ran(lab1, changelog, disk.folder, "--clean", inside=disk.inside).returncode == 0
        _is_whole(lab1, changelog, disk.seen / "state")
