"""A state's folder: one rebuild at a time, a state never over another, no file taken on trust."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eoctl.engine import rebuild
from eoctl.engine.rebuild import RebuildJob
from eoctl.engine.rebuild_task import Making, RangeTask, Task
from eoctl.kafka.connection.access import Access
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.files import StateFile
from eoctl.stores.state.folder import TaskRow
from eoctl.stores.state.runs import RunFile
from eoctl.stores.storage import LocalFolder
from recovery.errors import RefusedError
from recovery.values import replace
from tests.unit.state.test_state_compare import A, cut, state


def request(folder: Path, form: str = "plain") -> RebuildJob:
    return RebuildJob(
        cut=cut(9, 9),
        how=Making(form, {}, str(folder), max_rate=300_000),
        started_ms=1_767_225_600_000,
        configs={"log": {"cleanup.policy": "compact"}},
        notes=("a note",),
    )


def row(*files: StateFile, runs: tuple[RunFile, ...] = ()) -> TaskRow:
    return TaskRow(
        topic="log",
        partition=0,
        start=0,
        end=9,
        bucket=None,
        buckets=None,
        counts={},
        files=files,
        runs=runs,
        digest_rows=0,
        digest="",
        expired=0,
        seen={},
        producers={},
        bytes_read=0,
        seconds=0.0,
        last_read_ms=None,
        peak_bytes=0,
        versions={},
    )


def no_engine(tasks: Sequence[Task]) -> Iterable[TaskRow]:
    raise AssertionError(f"{len(tasks)} tasks were begun")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_tasks_side_by_side_read_different_partitions(tmp_path: Path) -> None:
    asked: list[tuple[int, int, int]] = []

    def engine(tasks: Sequence[Task]) -> Iterable[TaskRow]:
        asked.extend((t.partition, t.start, t.end) for t in tasks if isinstance(t, RangeTask))
        raise RefusedError("enough was seen")

    wanted = request(tmp_path / "state")
    wanted = replace(wanted, how=replace(wanted.how, range_offsets=4))
    with pytest.raises(RefusedError, match="enough was seen"):
        rebuild.rebuild(wanted, Access({}), engine, "local")
    assert [p for p, _, _ in asked] == [0, 1] * (len(asked) // 2)
    for partition in (0, 1):
        ranges = [(start, end) for p, start, end in asked if p == partition]
        assert [o for start, end in ranges for o in range(start, end)] == list(range(9))
        assert len(ranges) > 1


@pytest.mark.parametrize(
    ("gib", "slots", "expected"),
    [((9, 4), 3, 5 + 2), ((9, 4), 100, 9 + 4), ((9, 4), None, 9 + 4), ((1, 1), 2, 2), ((), 1, 2)],
)
def test_ranges_follow_bytes_and_slots_and_stay(
    tmp_path: Path, gib: tuple[int, ...], slots: int | None, expected: int
) -> None:
    """A later run, on another machine, has the ranges of the first: what that finished counts."""
    asked: list[set[str]] = []

    def engine(tasks: Sequence[Task]) -> Iterable[TaskRow]:
        asked.append({task.key() for task in tasks})
        raise RefusedError("enough was seen")

    folder = LocalFolder(tmp_path / "state")
    sizes = {"log": {str(p): size << 30 for p, size in enumerate(gib)}}
    wanted = replace(request(folder.path), cut=cut(10_000, 10_000), log_bytes=sizes)
    for run in (lambda: slots, lambda: 1):
        with pytest.raises(RefusedError, match="enough was seen"):
            rebuild.rebuild(wanted, Access({}), engine, "local", run)
        wanted = RebuildJob.from_json(folder.get("request.json").decode())
    assert len(asked[0]) == expected
    assert asked[0] == asked[1]


def test_only_one_works_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    text = request(folder).to_json()
    state_folder.begin(LocalFolder(folder), text, None)
    (folder / "data").mkdir()
    refused: tuple[Callable[[], object], ...] = (
        lambda: state_folder.begin(LocalFolder(folder), text, text),
        lambda: state_folder.discard(LocalFolder(folder)),
        lambda: rebuild.rebuild(request(folder), Access({}), no_engine, "local"),
    )
    with LocalFolder(folder).held():
        for work in refused:
            with pytest.raises(RefusedError, match="another rebuild is at work there"):
                work()
        assert names(folder) == [".lock", "data", "request.json"]
    assert names(folder) == ["data", "request.json"]
    state_folder.begin(LocalFolder(folder), text, text)
    state_folder.discard(LocalFolder(folder))
    assert names(folder) == []


def test_what_another_began_meanwhile_stays(tmp_path: Path) -> None:
    mine, other = request(tmp_path), request(tmp_path, "streams-kv")
    state_folder.begin(LocalFolder(tmp_path), mine.to_json(), None)
    again = RebuildJob.from_json(mine.to_json())  # as a job gets it
    state_folder.check_begun(LocalFolder(tmp_path), again.to_json())
    for left in (None, other.to_json()):
        with pytest.raises(RefusedError, match="another rebuild has begun there meanwhile"):
            state_folder.begin(LocalFolder(tmp_path), other.to_json(), left)
    with pytest.raises(RefusedError, match="another rebuild has begun there meanwhile"):
        rebuild.rebuild(other, Access({}), no_engine, "local")
    assert (tmp_path / "request.json").read_text() == mine.to_json()


def test_what_another_process_removes_while_files_are_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink lists the batches of a job, of which another run may remove some."""
    for name in ("batch-0", "batch-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "done.json").touch()
    real = os.scandir

    def scandir(path: str | Path) -> Any:
        if Path(path).name == "batch-0" and Path(path).exists():
            (tmp_path / "batch-0" / "done.json").unlink(missing_ok=True)
            (tmp_path / "batch-0").rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert LocalFolder(tmp_path).names("") == ["batch-1/done.json"]
    assert LocalFolder(tmp_path).names("batch-0") == []


def test_a_state_is_never_published_over_another(tmp_path: Path) -> None:
    state(tmp_path, A)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(RefusedError, match="a state already"):
        state_folder.publish(LocalFolder(tmp_path), state_folder.read(tmp_path))
    assert not LocalFolder(tmp_path).put_new("manifest.json", b"{}")
    with pytest.raises(RefusedError, match="a state already"):
        rebuild.rebuild(request(tmp_path), Access({}), no_engine, "local")
    with pytest.raises(RefusedError, match="a state already"):
        state_folder.discard(LocalFolder(tmp_path))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("left", [None, b"PAR1"])
def test_a_listed_file_must_be_there(tmp_path: Path, left: bytes | None) -> None:
    manifest = state_folder.read(state(tmp_path, A))
    (tmp_path / "manifest.json").unlink()
    (file,) = (tmp_path / "data" / "log").glob("1-*")
    file.unlink() if left is None else file.write_bytes(left)
    with pytest.raises(RefusedError, match="is gone or has changed"):
        state_folder.publish(LocalFolder(tmp_path), manifest)
    assert not (tmp_path / "manifest.json").exists()


def test_a_row_whose_files_are_not_what_it_lists_is_not_found(tmp_path: Path) -> None:
    kept = state_folder.Attempts(LocalFolder(tmp_path))
    file = StateFile("data/there", 1, 4, hashlib.sha256(b"1234").hexdigest())
    key = row().key()
    run = RunFile(f"runs/{key}/there", 1, 4, 4, "")
    done = row(file, runs=(run,))
    assert kept.find(key, "") is None
    kept.keep(key, done)
    for path in (file.path, run.path):
        for listed in (file.path, run.path):
            (tmp_path / listed).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / listed).write_bytes(b"1234")
        assert kept.find(key, "") == done
        (tmp_path / path).write_bytes(b"12345")
        assert kept.find(key, "") is None
        (tmp_path / path).unlink()
        assert kept.find(key, "") is None


def test_a_row_of_another_request_or_task_or_changed_is_not_found(tmp_path: Path) -> None:
    """What a killed driver's executors still write, after --clean, is no result of the next."""
    kept, done = state_folder.Attempts(LocalFolder(tmp_path)), replace(row(), token="mine")
    key, path = done.key(), tmp_path / "tasks" / f"{done.key()}.json"
    kept.keep(key, done)
    assert kept.find(key, "mine") == done
    assert kept.find(key, "another") is None
    kept.keep("log-0-range-9-18", done)
    assert kept.find("log-0-range-9-18", "mine") is None
    text = path.read_text()
    for changed in ('"bytes_read": 1', '"digest_rows": 2'):
        path.write_text(text.replace(f"{changed[:-1]}0", changed))
        assert path.read_text() != text
        assert kept.find(key, "mine") is None


def test_a_request_of_which_another_run_has_made_the_ranges_is_the_same(tmp_path: Path) -> None:
    """In object storage two runs may be at work: each adopts what the other has decided."""
    asked: list[set[str]] = []

    def engine(tasks: Sequence[Task]) -> Iterable[TaskRow]:
        asked.append({task.key() for task in tasks})
        raise RefusedError("enough was seen")

    wanted = replace(request(tmp_path), cut=cut(100_000_000, 50_000_000))
    state_folder.begin(LocalFolder(tmp_path), wanted.to_json(), None)
    for run in (lambda: 40, lambda: 1):
        with pytest.raises(RefusedError, match="enough was seen"):
            rebuild.rebuild(wanted, Access({}), engine, "local", run)
    assert len(asked[0]) > 20
    assert asked[0] == asked[1]
    other = replace(wanted, how=replace(wanted.how, token="after --clean"))
    with pytest.raises(RefusedError, match="another rebuild has begun there meanwhile"):
        rebuild.rebuild(other, Access({}), no_engine, "local")


def test_a_bucket_that_missed_rows_of_a_run_is_refused(tmp_path: Path) -> None:
    run = RunFile("runs/key/there", 10, 4, 4, "")
    ranges = [row(runs=(run,)), replace(row(runs=(run,)), start=9, end=18)]

    def bucket(*merged: int) -> TaskRow:
        return replace(row(), start=None, end=None, bucket=0, buckets=2, merged=merged)

    folder = LocalFolder(tmp_path)
    rebuild._check_merged(folder, ranges, [bucket(4, 10), bucket(6, 0)])
    for first, second in (((4, 10), (5, 0)), ((4, 10), (6, 1)), ((), ()), ((10,), (0,))):
        with pytest.raises(RefusedError):
            rebuild._check_merged(folder, ranges, [bucket(*first), bucket(*second)])


def test_where_files_cannot_be_linked_one_is_still_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT and some network file systems: another file arrives just then."""
    storage = LocalFolder(tmp_path)

    def link(written: Path, path: Path) -> None:
        if path.name == "theirs.json":
            path.write_bytes(b"theirs")
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", link)
    assert storage.put_new("manifest.json", b"mine")
    assert not storage.put_new("manifest.json", b"again")
    assert (tmp_path / "manifest.json").read_bytes() == b"mine"
    assert not storage.put_new("theirs.json", b"mine")
    assert (tmp_path / "theirs.json").read_bytes() == b"theirs"
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["manifest.json", "theirs.json"]
