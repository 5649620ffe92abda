"""Partition folders as crashes leave them: what is whole counts, what is not is said."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from eoctl.operations.inspect import segment_answer
from recovery.answers import Answer
from recovery.errors import Exit, UsageError
from recovery.inspect.cluster_rows import ProducerRow
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

T = 1_700_000_000_000


def data(
    base: int, pid: int, sequence: int, *, epoch: int = 0, transactional: bool = True
) -> bytes:
    """Two records of a producer at `base`."""
    items = [Item(0, T + base), Item(1, T + base + 1)]
    return batch(base, items, producer=(pid, epoch, sequence), transactional=transactional)


# offsets: 0-1 pid 1 (committed), 2 its marker, 3-4 pid 2 (open), 5-6 pid 1's next, 7 aborts that
LOG = data(0, 1, 0) + marker(2, 1, COMMIT) + data(3, 2, 0) + data(5, 1, 2) + marker(7, 1, ABORT)
WHOLE = {1: (3, None, 31), 2: (1, 3, None)}
"""pid → last sequence, open transaction's start, coordinator epoch."""


def snapshot(*rows: tuple[int, int, int, int, int, int, int, int]) -> bytes:
    """A .snapshot file, written from ProducerSnapshot.json by hand."""
    from kafka.record.util import calc_crc32c

    body = struct.pack(">i", len(rows)) + b"".join(struct.pack(">qhiqiqiq", *r) for r in rows)
    return struct.pack(">hI", 1, calc_crc32c(memoryview(body))) + body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "orders-3"
    made.mkdir()
    (made / f"{0:020}.log").write_bytes(LOG)
    (made / "partition.metadata").write_text("version: 0\ntopic_id: kLl_x-1\n")
    (tmp_path / "meta.properties").write_text("#\ncluster.id=c-1\nversion=1\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nother-x 3 9\norders 3 8\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n0\n")
    return made


def table(answer: Answer) -> dict[int, tuple[int | None, int | None, int | None]]:
    return {
        r.producer_id: (r.last_sequence, r.current_txn_start_offset, r.coordinator_epoch)
        for r in answer.rows
        if isinstance(r, ProducerRow)
    }


def about(answer: Answer) -> dict[str, object]:
    found = answer.extra["segments"]
    assert isinstance(found, list)
    (row,) = found
    assert isinstance(row, dict)
    return row


def test_a_whole_folder(folder: Path) -> None:
    answer = segment_answer.producers([folder], [])
    assert table(answer) == WHOLE
    assert answer.complete
    assert answer.cluster_id == "c-1"
    row = about(answer)
    assert (row["topic"], row["partition"], row["topic_id"]) == ("orders", 3, "kLl_x-1")
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 8)
    assert (row["last_stable_offset"], row["high_watermark"]) == (3, 8)
    assert (row["clean_shutdown"], row["notes"]) == (False, [])
    (folder.parent / ".kafka_cleanshutdown").touch()
    assert about(segment_answer.producers([folder], []))["clean_shutdown"] is True
    assert table(segment_answer.producers([folder], [2])) == {2: WHOLE[2]}


def test_timestamps_and_epochs(folder: Path) -> None:
    """A new epoch, also of a marker as transactions v2 write it, forgets the sequences."""
    more = data(8, 2, 7, epoch=1) + marker(10, 2, COMMIT, epoch=2)
    (folder / f"{0:020}.log").write_bytes(LOG + data(8, 2, 7, epoch=1))
    (row,) = segment_answer.producers([folder], [2]).rows
    assert isinstance(row, ProducerRow)
    assert (row.producer_epoch, row.last_sequence, row.last_timestamp) == (1, 8, T + 9)
    (folder / f"{0:020}.log").write_bytes(LOG + more)
    (row,) = segment_answer.producers([folder], [2]).rows
    assert isinstance(row, ProducerRow)
    assert (row.producer_epoch, row.last_sequence) == (2, None)
    assert row.current_txn_start_offset is None


def test_the_snapshot_is_used_and_only_what_follows_it_is_applied(folder: Path) -> None:
    path = folder / f"{5:020}.snapshot"
    path.write_bytes(
        snapshot(
            (1, 0, 1, 1, 1, T + 1, 31, -1),
            (2, 0, 1, 4, 1, T + 4, -1, 3),
            (9, 4, 5, 2, 0, T, -1, -1),
        )
    )
    answer = segment_answer.producers([folder], [])
    assert about(answer)["snapshot_offset"] == 5
    # pid 9 is only in the snapshot: its batches are gone from the log
    assert table(answer) == {**WHOLE, 9: (5, None, None)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (snapshot((9, 0, 5, 2, 0, T, -1, -1))[:-3], "snapshot"),
        (snapshot((9, 0, 5, 2, 0, T, -1, -1))[:-1] + b"x", "CRC"),
        (b"", "snapshot"),
    ],
)
def test_a_broken_snapshot_is_passed_over(folder: Path, content: bytes, said: str) -> None:
    (folder / f"{5:020}.snapshot").write_bytes(content)
    (folder / f"{3:020}.snapshot").write_bytes(snapshot((1, 0, 1, 1, 1, T, 31, -1)))
    answer = segment_answer.producers([folder], [])
    assert about(answer)["snapshot_offset"] == 3
    assert table(answer) == WHOLE
    assert answer.complete
    assert said in str(about(answer)["notes"])


def test_a_snapshot_beyond_the_end_is_passed_over(folder: Path) -> None:
    """A crash lost the log's tail, and the snapshot of it stayed."""
    (folder / f"{20:020}.snapshot").write_bytes(snapshot((9, 0, 5, 19, 0, T, -1, 17)))
    answer = segment_answer.producers([folder], [])
    assert table(answer) == WHOLE
    assert "beyond the log's end 8" in str(about(answer)["notes"])


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_cut_last_batch_is_passed_over(folder: Path, cut: int) -> None:
    last = len(marker(7, 1, ABORT))
    assert cut < last
    (folder / f"{0:020}.log").write_bytes(LOG[:-cut])
    answer = segment_answer.producers([folder], [])
    assert table(answer) == {1: (3, 5, 31), 2: (1, 3, None)}
    assert about(answer)["log_end_offset"] == 7
    assert answer.complete
    assert "no complete batch" in str(about(answer)["notes"])


@pytest.mark.parametrize("zeros", [1, 12, 61, 100_000])
def test_preallocated_zeros_are_the_end(folder: Path, zeros: int) -> None:
    (folder / f"{0:020}.log").write_bytes(LOG + bytes(zeros))
    answer = segment_answer.producers([folder], [])
    assert table(answer) == WHOLE
    assert answer.complete
    assert about(answer)["log_end_offset"] == 8


def test_a_wrong_crc_ends_the_reading_and_the_answer_is_incomplete(folder: Path) -> None:
    broken = bytearray(LOG)
    broken[len(data(0, 1, 0)) + len(marker(2, 1, COMMIT)) + 70] ^= 1
    (folder / f"{0:020}.log").write_bytes(broken)
    answer = segment_answer.producers([folder], [])
    assert table(answer) == {1: (1, None, 31)}
    assert about(answer)["log_end_offset"] == 3
    (error,) = answer.errors
    assert (error.topic, error.partition, error.error) == ("orders", 3, "CORRUPT_MESSAGE")
    assert "offset 3: the CRC is wrong" in error.detail
    assert answer.exit_status is Exit.INCOMPLETE


def test_a_hole_between_segments_is_no_tail(folder: Path) -> None:
    (folder / f"{8:020}.log").write_bytes(data(8, 5, 0))
    whole = segment_answer.producers([folder], [])
    assert table(whole) == {**WHOLE, 5: (1, 8, None)}
    assert about(whole)["segments"] == 2
    (folder / f"{0:020}.log").write_bytes(LOG[:-5])
    answer = segment_answer.producers([folder], [])
    assert not answer.complete
    assert 5 not in table(answer)


def test_segments_before_the_snapshot_need_not_be_there(folder: Path) -> None:
    (folder / f"{0:020}.log").unlink()
    (folder / f"{8:020}.log").write_bytes(data(8, 1, 4))
    (folder / f"{8:020}.snapshot").write_bytes(snapshot((1, 0, 3, 6, 1, T, 31, -1)))
    answer = segment_answer.producers([folder], [])
    assert table(answer) == {1: (5, 8, 31)}
    assert about(answer)["log_start_offset"] == 8


def test_batches_emptied_by_compaction(folder: Path) -> None:
    """A marker without its record applies nothing; an emptied data batch still has its state."""
    emptied = bytearray(marker(8, 2, COMMIT))[:61]
    struct.pack_into(">i", emptied, 57, 0)
    from tests.unit.formats_build import seal

    (folder / f"{0:020}.log").write_bytes(LOG + seal(emptied))
    answer = segment_answer.producers([folder], [])
    assert table(answer) == WHOLE
    assert about(answer)["log_end_offset"] == 9


def test_aborted_transactions_are_counted(folder: Path) -> None:
    entry = struct.pack(">hqqqq", 0, 1, 5, 7, 3)
    (folder / f"{0:020}.txnindex").write_bytes(entry)
    assert about(segment_answer.producers([folder], []))["aborted_transactions"] == 1
    (folder / f"{0:020}.txnindex").write_bytes(entry[:-1])
    answer = segment_answer.producers([folder], [])
    assert about(answer)["aborted_transactions"] == 0
    assert "txnindex" in str(about(answer)["notes"])


def make_named(name: str) -> Callable[[Path], Path]:
    def make(tmp: Path) -> Path:
        (tmp / name).mkdir()
        return tmp / name

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_named("orders-0"), "holds no segment"),
        (make_named("orders"), "not a partition's folder"),
        (lambda tmp: tmp / "none-0", "cannot be read"),
    ],
)
def test_what_is_no_partition_is_said(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        segment_answer.producers([make(tmp_path)], [])


def test_the_same_partition_twice_is_said(folder: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        segment_answer.producers([folder, folder], [])
