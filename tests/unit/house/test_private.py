"""What may hold keys, values or names is nobody else's to read."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoctl.stores import private
from eoctl.stores.state.files import StateWriter
from eoctl.stores.state.runs import write_run
from eoctl.stores.storage import LocalFolder
from recovery.errors import RefusedError
from recovery.formats.columns import rows_schema
from spark_jobs.session import executors
from spark_jobs.sink import staging


@pytest.fixture(autouse=True)
def others_may_read() -> Iterator[None]:
    """The umask that most people have."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    return [f"{p}: {p.stat().st_mode:o}" for p in folder.rglob("*") if p.stat().st_mode & 0o077]


HOLD = """
import sys, time
from eoctl.stores import private
folder = private.make_temporary("test")
(folder / "of-a-key").touch()
print(folder, flush=True)
time.sleep(600)
"""


def test_temporary_folders_of_killed_processes_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of living ones stay, and what no such process has made."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "eoctl-test-by-another-version").mkdir()
    owners = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, living = (Path((owner.stdout or sys.stdin).readline().strip()) for owner in owners)
        owners[0].kill()
        owners[0].wait()
        assert (killed / "of-a-key").exists()
        with private.temporary("test") as folder:
            assert sorted(tmp_path.iterdir()) == sorted(
                [folder, living, tmp_path / "eoctl-test-by-another-version"]
            )
            assert readable_by_others(folder.parent / folder.name) == []
            assert folder.stat().st_mode & 0o077 == 0
            with private.temporary("test") as other:  # one's own is no killed one's
                assert folder.is_dir()
            assert not other.exists()
        assert not folder.exists()
        assert (living / "of-a-key").exists()
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()


TURNS = """
from eoctl.stores import private
for _ in range(100):
    with private.temporary("test") as folder:
        (folder / "mine").touch()
"""


def test_nobody_takes_a_temporary_folder_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that make one and look for killed ones' at the same time keep their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    each = [subprocess.Popen([sys.executable, "-c", TURNS]) for _ in range(4)]
    assert [one.wait(60) for one in each] == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_states_and_staged_batches(tmp_path: Path) -> None:
    rows = rows_schema().empty_table()
    writer = StateWriter(LocalFolder(tmp_path / "state"), "topic", 0)
    writer.write(rows)
    writer.close()
    write_run(LocalFolder(tmp_path / "state"), "run", [])
    LocalFolder(tmp_path / "new").put("request.json", b"{}")
    with LocalFolder(tmp_path / "held").held():
        assert readable_by_others(tmp_path) == []
    batch = tmp_path / "staging" / "job" / "batch-0"
    private.make_folder(batch)
    values = pa.RecordBatch.from_pydict({"value": [b"v"]})
    file = staging.StagedFile(**staging._write(str(batch), "of-one-staging", 0, iter([values])))
    staging._write(str(batch), "of-one-staging", 1, iter(()))
    staging.publish(LocalFolder(batch), staging.Manifest("job", 0, "t", None, None, (file,), 0))
    assert len(list(tmp_path.rglob("*"))) > 10
    assert readable_by_others(tmp_path) == []


def test_a_command_writes_nothing_that_others_may_read(tmp_path: Path) -> None:
    """Of those that need no cluster: one that keeps a choice, one that fails and reports."""
    config = tmp_path / "config.toml"
    config.write_text('[contexts.a]\nbootstrap_servers = "127.0.0.1:1"\n')
    config.chmod(0o600)
    state = tmp_path / "state" / "eoctl"
    env = {"EOCTL_CONFIG": str(config), "EOCTL_STATE_DIR": str(state), "HOME": str(tmp_path)}
    for words in (["context", "use", "a"], ["lso"]):
        subprocess.run(
            [sys.executable, "-m", "eoctl", *words], env=os.environ | env, check=False, timeout=60
        )
    assert (state / "context").exists()
    assert readable_by_others(tmp_path) == []


def test_probes_of_a_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written as what follows them is: else executors of another user pass them."""
    seen: list[str] = []

    def run(spark: Any, task: Callable[[int], str], tasks: int, what: str) -> list[str]:
        names = [task(number) for number in range(tasks)]
        assert len(list(folder.iterdir())) == 3
        seen.extend(readable_by_others(folder))
        return names

    folder = tmp_path / "batch-0"
    monkeypatch.setattr(executors, "run", run)
    spark: Any = None
    executors.check(spark, folder, 2)
    assert seen == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("denied", ["the job's", "an executor's"])
def test_a_probe_that_may_not_be_read_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    """Another user's, mode 600. Tests may run as root, who may read all."""
    spark: Any = None
    read = Path.read_text
    running: list[bool] = []

    def run(spark: Any, task: Callable[[int], str], tasks: int, what: str) -> list[str]:
        running.append(True)
        names = [task(0)]
        running.clear()
        return names

    def read_text(path: Path, *given: Any, **named: Any) -> str:
        if bool(running) is (denied == "the job's"):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *given, **named)

    monkeypatch.setattr(executors, "run", run)
    monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(RefusedError, match=r"do not see this folder|is not seen by the process"):
        executors.check(spark, tmp_path / "batch-0", 1)
    assert list((tmp_path / "batch-0").iterdir()) == []
