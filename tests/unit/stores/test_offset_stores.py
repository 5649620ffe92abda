"""Stores of offsets that need no server: a JSON file, a Spark checkpoint."""

import json
import multiprocessing
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest

from eoctl.stores.offsets.file import _locked
from eoctl.stores.offsets.opening import open_store
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.shared.store_tables import FileStore, SparkCheckpointStore
from tests.offset_stores import Open, change, kept, position, read, there_and_back

A, B = TopicPartition("orders", 0), TopicPartition("orders", 3)
HOSTILE = "it's \"; DROP TABLE offsets; -- %s ⚠ \u202e/.."


def file_store(path: Path, **more: Any) -> Open:
    return partial(open_store, FileStore(kind="file", path=str(path), **more))


def test_a_file_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    there_and_back(file_store(path), (A, B), state=b"\x00\xff", merge=7)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["next", "last"])
def test_positions_of_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "offsets.json"
    store = file_store(path, position=name)
    change(store, (A, None, kept(store, position(A, 0, 5))))
    [row] = json.loads(path.read_text())["partitions"]
    shift = -1 if name == "last" else 0
    assert (row["input"]["offset"], row["output"]["offset"]) == (0 + shift, 5 + shift)
    assert read(store).entries[0].position == position(A, 0, 5)


def test_mode_owner_order_and_link_of_a_file_stay(tmp_path: Path) -> None:
    real, path = tmp_path / "real.json", tmp_path / "link.json"
    rows = [{"input": {"topic": HOSTILE, "partition": p, "offset": p}} for p in (9, 1, 4)]
    real.write_text(json.dumps({"partitions": rows}))
    real.chmod(0o640)
    if os.getuid() == 0:
        os.chown(real, 12345, 23456)
    before = real.stat()
    path.symlink_to(real)
    store = file_store(path)
    there = {e.topic_partition: e for e in read(store).entries}
    assert [topic_partition[1] for topic_partition in there] == [1, 4, 9]
    one = TopicPartition(HOSTILE, 1)
    change(store, (one, there[one].kept, kept(store, position(one, 70))))
    rows[1]["input"]["offset"] = 70
    assert json.loads(real.read_text()) == {"partitions": rows}
    after = real.stat()
    assert path.is_symlink()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"partitions": [], "more": 1}',
        b'{"partitions": [{"input": {"topic": "orders", "partition": 0, "ofset": 1}}]}',
        b'{"partitions": [{"input": {"topic": "orders", "partition": 0, "offset": -2}}]}',
        b'{"partitions": [{"input": {"topic": "orders", "partition": 0, "offset": 1.5}}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_ours_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(content)
    store = file_store(path)
    with pytest.raises(CorruptError, match=r"offsets\.json"):
        read(store)
    with pytest.raises(RefusedError, match=r"offsets\.json.*nothing was written"):
        change(store, (A, None, kept(store, position(A, 1))))
    assert path.read_bytes() == content


def test_permission_missing(tmp_path: Path, unprivileged: Callable[..., str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    path = folder / "offsets.json"
    path.write_text('{"partitions": []}')
    path.chmod(0o644)
    said = unprivileged(_try_to_write, str(path))
    assert said == f"file {path}: cannot be written: Permission denied"
    path.chmod(0o600)
    assert unprivileged(_try_to_read, str(path)).endswith("cannot be read: Permission denied")


def _try_to_write(path: str) -> None:
    store = file_store(Path(path))
    with pytest.raises(RefusedError) as refusal:
        change(store, (A, None, kept(store, position(A, 1))))
    raise SystemExit(refusal.value.sentence)


def _try_to_read(path: str) -> None:
    with pytest.raises(IncompleteError) as refusal:
        read(file_store(Path(path)))
    raise SystemExit(refusal.value.sentence)


@pytest.fixture
def unprivileged(tmp_path: Path) -> Callable[..., str]:
    """Run a function as nobody; what it said when it ended."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)

    def run(function: Callable[..., None], *arguments: Any) -> str:
        said = tmp_path / "said"  # this process's stderr is also that of other tests' clients
        with said.open("w") as stderr:
            process = multiprocessing.get_context("fork").Process(
                target=_as_nobody, args=(stderr, function, *arguments)
            )
            process.start()
            process.join(30)
        return said.read_text().strip()

    return run


def _as_nobody(stderr: TextIO, function: Callable[..., None], *arguments: Any) -> None:
    sys.stderr = stderr
    os.setgid(65534)
    os.setuid(65534)
    function(*arguments)


def _race(path: str, offset: int, start: float) -> None:
    store = file_store(Path(path))
    before, after = kept(store, position(A, 0)), kept(store, position(A, offset))
    time.sleep(max(0.0, start - time.time()))
    try:
        change(store, (A, before, after))
    except RefusedError:
        raise SystemExit(4) from None


def test_of_several_writers_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    store = file_store(path)
    change(store, (A, None, kept(store, position(A, 0))))
    context = multiprocessing.get_context("fork")
    start = time.time() + 0.5
    racing = [context.Process(target=_race, args=(str(path), n, start)) for n in range(1, 5)]
    for process in racing:
        process.start()
    for process in racing:
        process.join(30)
    statuses = [process.exitcode for process in racing]
    assert sorted(s or 0 for s in statuses) == [0, 4, 4, 4]
    winner = statuses.index(0) + 1
    assert read(store).entries[0].position == position(A, winner)


def _die(path: str) -> None:
    store = file_store(Path(path))

    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    os.replace = Path.replace = killed  # type: ignore[assignment]
    change(store, (A, None, kept(store, position(A, 1))))


def test_a_writer_that_is_killed_leaves_the_file_and_is_cleaned_up_after(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    process = multiprocessing.get_context("fork").Process(target=_die, args=(str(path),))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    left = {"offsets.json.lock", ".offsets.json.eoctl"}
    assert {p.name for p in tmp_path.iterdir()} == left
    store = file_store(path)
    assert not read(store).exists
    change(store, (A, None, kept(store, position(A, 2))))
    assert [p.name for p in tmp_path.iterdir()] == ["offsets.json"]


def test_a_writer_at_work_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    store = file_store(path)
    with _locked(path), pytest.raises(RefusedError, match="another run of eoctl is writing it"):
        change(store, (A, None, kept(store, position(A, 1))))
    change(store, (A, None, kept(store, position(A, 1))))


def test_the_application_that_writes_meanwhile_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    store = file_store(path)
    mine, theirs = kept(store, position(A, 1)), '{"partitions": []}'
    with pytest.raises(RefusedError, match="another process changed the file just now"):
        change(store, (A, None, mine), held=lambda: (path.write_text(theirs), None)[1])
    assert path.read_text() == theirs


def test_a_disk_that_is_silent_is_not_waited_for_and_not_written_later(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    store = partial(open_store, FileStore(kind="file", path=str(path)), seconds=0.3)
    begin = time.monotonic()
    with pytest.raises(RefusedError, match=r"no answer within 300ms, nothing was written"):
        change(store, (A, None, kept(store, position(A, 1))), held=lambda: time.sleep(1))
    assert time.monotonic() - begin < 0.9
    time.sleep(1)
    assert not path.exists()


COMMIT = "v1\n{}"


def spark(path: Path | str) -> Open:
    return partial(open_store, SparkCheckpointStore(kind="spark-checkpoint", path=str(path)))


def checkpoint(folder: Path, **more: str) -> Path:
    """Batches 4 and 5 of a query, 5 is in flight. more: name with _ for / to text."""
    offsets = {
        "offsets/4": 'v1\n{}\n{"orders":{"0":10,"1":20}}',
        "offsets/5": 'v1\n{}\n{"orders":{"0":15,"1":20}}',
        "commits/4": "v1\n{}",
        "metadata": '{"id":"a1"}',
        "offsets/.5.crc": "\x00",
    } | {name.replace("_", "/"): text for name, text in more.items()}
    for name, text in offsets.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    found = read(spark(checkpoint(tmp_path)))
    stands = {e.topic_partition: e.position.input.offset for e in found.entries}
    assert stands == {("orders", 0): 10, ("orders", 1): 20}
    assert found.spark is not None
    assert (found.spark.batch, found.spark.in_flight) == (5, True)
    (tmp_path / "metadata").unlink()
    assert read(spark(tmp_path)).spark is not None
    found = read(spark(f"file://{checkpoint(tmp_path, commits_5=COMMIT)}"))
    stands = {e.topic_partition: e.position.input.offset for e in found.entries}
    assert stands == {("orders", 0): 15, ("orders", 1): 20}


def test_a_checkpoint_is_never_written(tmp_path: Path) -> None:
    store = spark(checkpoint(tmp_path))
    [entry, _] = read(store).entries
    with pytest.raises(RefusedError, match="never written"):
        change(store, (entry.topic_partition, entry.kept, None))
    with pytest.raises(RefusedError, match="never written"):
        kept(store, entry.position)


def test_checkpoints_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="there is no such directory"):
        read(spark(tmp_path / "no"))
    with pytest.raises(UsageError, match="hdfs is not read here"):
        read(spark("hdfs://nn/checkpoint"))
    with pytest.raises(CorruptError, match=r"offsets/5: not JSON"):
        read(spark(checkpoint(tmp_path / "a", offsets_5="v1\n{}\n{")))
    folder = checkpoint(tmp_path / "b")
    (folder / "offsets" / "5").write_bytes(b"\xff\xfe")
    with pytest.raises(IncompleteError, match="it is not text"):
        read(spark(folder))
