"""The files of a Streams task, without an application: what is read back, what is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoctl.operations.state import into_streams
from eoctl.operations.state.delivery import DeliveryRequest
from eoctl.stores.state import task_directory
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.columns import rows_schema
from recovery.formats.streams_directory import checkpoint, store_of
from recovery.shared.digest import digest

ROWS = [
    (b"", b"", 0),
    (b"\xff\x00", b"x" * 9000, None),
    (b"a", b"-", -1),
    (b"b", b"", 1_700_000_000_000),
]


def table(rows: list[tuple[bytes, bytes, int | None]]) -> pa.Table:
    entries = [
        {"offset": n, "key": k, "value": v, "timestamp": t} for n, (k, v, t) in enumerate(rows)
    ]
    return pa.Table.from_pylist(entries, schema=rows_schema())


def test_a_store_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    rows = table(ROWS)
    task_directory.write_store(tmp_path / "t", [rows.slice(2), rows.slice(0, 2)], timestamped=True)
    assert task_directory.read_store(tmp_path / "t", 3, timestamped=True) == digest(3, rows)
    task_directory.write_store(tmp_path / "p", [rows], timestamped=False)
    bare = digest(3, table([(k, v, None) for k, v, _ in ROWS]))
    assert task_directory.read_store(tmp_path / "p", 3, timestamped=False) == bare
    assert digest(3, task_directory.without_timestamps(rows)) == bare
    for name in "tp":
        assert not list((tmp_path / name).glob("rocksdict*"))
        assert [f.stat().st_size for f in (tmp_path / name).glob("*.log")] == [0]  # nothing in it


@pytest.mark.parametrize("change", ["value", "less", "more"])
def test_another_store_has_another_digest(tmp_path: Path, change: str) -> None:
    rows = {
        "value": [(b"a", b"+", -1) if key == b"a" else (key, v, t) for key, v, t in ROWS],
        "less": ROWS[1:],
        "more": [*ROWS, (b"c", b"", 1)],
    }[change]
    task_directory.write_store(tmp_path / "s", [table(rows)], timestamped=True)
    there = task_directory.read_store(tmp_path / "s", 0, timestamped=True)
    assert there != digest(0, table(ROWS))


def test_a_store_that_is_damaged(tmp_path: Path) -> None:
    """A bad block ends the rows without a word of rocksdict's: the digest notices."""
    task_directory.write_store(tmp_path / "s", [table(ROWS)], timestamped=True)
    (file,) = (tmp_path / "s").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    there = task_directory.read_store(tmp_path / "s", 0, timestamped=True)
    assert there != digest(0, table(ROWS))
    (tmp_path / "s" / "CURRENT").unlink()
    with pytest.raises(IncompleteError, match="RocksDB failed"):
        task_directory.read_store(tmp_path / "s", 0, timestamped=True)


def test_a_checkpoint_is_what_streams_reads(tmp_path: Path) -> None:
    """The last offset, inclusive; -4 is a store that has read nothing (OffsetCheckpoint)."""
    ends = {TopicPartition("a-s-changelog", 2): 1, TopicPartition("a-t-changelog", 2): 0}
    assert checkpoint(ends) == "0\n2\na-s-changelog 2 0\na-t-changelog 2 -4\n"
    assert not task_directory.has_checkpoint(tmp_path, ends)
    task_directory.write_checkpoint(tmp_path, ends)
    assert task_directory.has_checkpoint(tmp_path, ends)
    assert not task_directory.has_checkpoint(
        tmp_path, {**ends, TopicPartition("a-t-changelog", 2): 1}
    )
    task_directory.settle(tmp_path)


@pytest.mark.parametrize(
    ("application", "topic", "store"),
    [
        ("a", "a-s-changelog", "s"),
        ("a-b", "a-b-c-changelog", "c"),
        ("a", "a-b-c-changelog", "b-c"),
        ("a", "b-s-changelog", None),
        ("a", "a-s-repartition", None),
        ("a", "a--changelog", None),
        ("a", "a-changelog", None),
        ("a", "a-..-changelog", None),
    ],
)
def test_the_store_of_a_changelog(application: str, topic: str, store: str | None) -> None:
    assert store_of(application, topic) == store


def test_what_a_changelog_does_not_tell_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def stores(**given: Any) -> dict[str, tuple[str, bool]]:
        request = DeliveryRequest(folder="/s", into="streams-dir:/d/a", **given)
        return into_streams._stores(request, "a", ["a-s-changelog", "a-t-changelog"])

    both = {"s": "plain", "t": "timestamped"}
    assert stores(stores=both, subtopology=0) == {
        "a-s-changelog": ("s", False),
        "a-t-changelog": ("t", True),
    }
    for given, where in (
        ({}, "--store"),
        ({"stores": {"s": "plain"}, "subtopology": 0}, "--store"),
        ({"stores": both}, "--subtopology"),
        ({"stores": {**both, "u": "plain"}, "subtopology": 0}, "--store"),
    ):
        with pytest.raises(UsageError) as raised:
            stores(**given)
        assert raised.value.where == where
    with pytest.raises(RefusedError, match="is not named a-STORE-changelog"):
        into_streams._stores(DeliveryRequest("/s", "streams-dir:/d/a"), "a", ["orders"])
    monkeypatch.setattr(into_streams, "installed", lambda package: False)
    with pytest.raises(UsageError, match="extra 'data'"):
        stores(stores=both, subtopology=0)
