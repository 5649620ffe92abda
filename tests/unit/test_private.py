"""What may hold keys, values or names is nobody else's to read."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoctl.stores import private
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.files import StateWriter, write_run
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


def test_states_and_staged_batches(tmp_path: Path) -> None:
    rows = rows_schema().empty_table()
    writer = StateWriter(tmp_path / "state", "topic", 0)
    writer.write(rows)
    writer.close()
    write_run(tmp_path / "state", "run", [rows])
    state_folder.write(tmp_path / "new" / "request.json", "{}")
    with state_folder.held(tmp_path / "held"):
        assert readable_by_others(tmp_path) == []
    batch = tmp_path / "staging" / "job" / "batch-0"
    private.make_folder(batch)
    values = pa.RecordBatch.from_pydict({"value": [b"v"]})
    file = staging.StagedFile(**staging._write(str(batch), "of-one-staging", 0, iter([values])))
    staging._write(str(batch), "of-one-staging", 1, iter(()))
    staging.publish(batch, staging.Manifest("job", 0, "t", None, None, (file,), 0))
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
