"""A staged file is read from any of its rows on: those rows, all of them, and no other."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eoctl.stores.storage import LocalFolder
from recovery.errors import RefusedError
from spark_jobs.sink.staging import Row, StagedFile, _write, row_at, rows_from

BATCH = 65_536  # rows that pyarrow reads at once


def staged(folder: Path, *sizes: int) -> StagedFile:
    """A file of so many rows, written batch by batch; row n: value n, position 10 n."""
    import pyarrow as pa

    batches, row = [], 0
    for size in sizes:
        numbers = range(row, row + size)
        columns = {
            "value": [str(n).encode() for n in numbers],
            "position": [10 * n for n in numbers],
        }
        batches.append(pa.RecordBatch.from_pydict(columns))
        row += size
    return StagedFile(**_write(str(folder), "token", 3, iter(batches)))


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [
        ((1,), (0, 1)),
        ((3, 4, 5), range(13)),
        ((BATCH, 3), (0, 1, BATCH - 1, BATCH, BATCH + 1, BATCH + 2, BATCH + 3)),
        ((), (0,)),
    ],
)
def test_rows_from_a_row_on(tmp_path: Path, sizes: Sequence[int], starts: Sequence[int]) -> None:
    """An attempt that takes over goes on at the first row that is not committed."""
    count = sum(sizes)
    file = staged(tmp_path, *sizes)
    assert (file.partition, file.rows) == (3, count)
    assert file.bytes == (tmp_path / file.file).stat().st_size
    for start in starts:
        found = [int(row.value or b"") for row in rows_from(LocalFolder(tmp_path), file, start)]
        assert found == list(range(start, count))


@pytest.mark.parametrize("sizes", [(3, 4, 5), (BATCH, 3), ()])
def test_the_row_at_a_position(tmp_path: Path, sizes: Sequence[int]) -> None:
    count = sum(sizes)
    file = staged(tmp_path, *sizes)
    for row in {0, 1, 2, count // 2, count - 2, count - 1} & set(range(count)):
        for position in (10 * row - 9, 10 * row):
            assert row_at(LocalFolder(tmp_path), file, position) == row
    assert row_at(LocalFolder(tmp_path), file, 10 * count) == count


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_another_file_than_was_staged_is_refused(tmp_path: Path, how: str) -> None:
    file = staged(tmp_path, 5)
    path = tmp_path / file.file
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RefusedError) as refused:
        next(rows_from(LocalFolder(tmp_path), file, 0))
    assert str(path) in refused.value.sentence


def test_a_row_keeps_what_it_holds(tmp_path: Path) -> None:
    """A row without headers has none; times are in ms; columns that the frame lacks are empty."""
    import pyarrow as pa

    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []]
    columns = {
        "key": pa.array([b"k", None, b""]),
        "value": pa.array([b"v", b"", None]),
        "headers": pa.array(headers, kind),
        "partition": pa.array([4, None, 0], pa.int32()),
        "timestamp": pa.array([1_999, None, 7_000], pa.timestamp("us", "UTC")),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    file = StagedFile(**_write(str(tmp_path), "token", 0, iter([batch])))
    assert list(rows_from(LocalFolder(tmp_path), file, 0)) == [
        Row(b"k", b"v", [("h", b"1"), ("n", None)], 4, 1),
        Row(None, b"", None, None, None),
        Row(b"", None, [], 0, 7),
    ]
    plain = staged(tmp_path, 1)
    assert list(rows_from(LocalFolder(tmp_path), plain, 0)) == [
        Row(None, b"0", None, None, None, 0)
    ]
