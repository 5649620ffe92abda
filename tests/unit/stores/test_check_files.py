"""The files of `check`: written whole or not at all, one run at a time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eoctl.stores.locks.running import only_one
from eoctl.stores.textfile import write_whole
from recovery.errors import BusyError, Exit, UsageError
from tests.started import started

WRITER = """
import sys
from pathlib import Path
from eoctl.stores.textfile import write_whole
path, number = Path(sys.argv[1]), 0
print("writing", flush=True)
while True:
    number = (number + 1) % 10
    write_whole(path, (str(number) * 200_000 + "\\n").encode())
"""


def test_a_reader_sees_a_whole_file_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "eoctl.prom"
    write_whole(path, b"0" * 200_000 + b"\n")
    for delay in range(12):
        with started(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            time.sleep(0.003 * delay)
            for _ in range(20):
                _whole(path)
            process.send_signal(signal.SIGKILL)
        _whole(path)
        # what a collector would pick up is only the file itself
        assert [p.name for p in tmp_path.glob("*.prom")] == ["eoctl.prom"]


def _whole(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) == 200_001
    assert len(set(data[:-1])) == 1
    assert data.endswith(b"\n")


def test_leftovers_of_killed_writers_are_swept(tmp_path: Path) -> None:
    path = tmp_path / "eoctl.prom"
    old, young, other = (
        tmp_path / name for name in (".eoctl.prom.a.tmp", ".eoctl.prom.b.tmp", ".other.prom.a.tmp")
    )
    for leftover in (old, young, other):
        leftover.write_text("half")
    for leftover in (old, other):
        os.utime(leftover, (0, 0))
    write_whole(path, b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".eoctl.prom.b.tmp",
        ".other.prom.a.tmp",
        "eoctl.prom",
    ]


def test_a_collector_of_another_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "eoctl.prom"
    write_whole(path, b"x")
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["", "missing/eoctl.prom"])
def test_what_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_whole(tmp_path / name, b"x")


HOLDER = """
import sys
from eoctl.stores.locks.running import only_one
with only_one("check", "c"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_at_a_time_and_a_dead_one_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    with started(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        begin = time.monotonic()
        with pytest.raises(BusyError) as busy, only_one("check", "c"):
            pytest.fail("two at a time")
        assert time.monotonic() - begin < 0.5
        assert busy.value.exit_status is Exit.BUSY
        with only_one("check", "another cluster"):
            pass
        process.send_signal(signal.SIGKILL)
    with only_one("check", "c"):
        pass


def test_without_a_place_for_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EOCTL_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="no HOME"), only_one("check", "c"):
        pass
