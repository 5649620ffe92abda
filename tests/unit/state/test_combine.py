"""Last value per key and the digest, against a dict and hashlib by hand."""

import hashlib
import struct
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.errors import UsageError
from recovery.formats.columns import rows_schema
from recovery.shared.digest import Digest, digest
from recovery.state.changelogs.changelog import ChangelogFormat, changelog_format
from recovery.state.latest import HASHES, Latest, by_hash, key_hash, latest
from tests.share import share

Row = tuple[int, int | None, bytes, bytes | None]

keys = st.one_of(st.sampled_from((b"", b"a", b"b", b"a\0", b"long" * 9)), st.binary(max_size=3))
logs = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-1, 9)), keys, st.one_of(st.none(), keys)),
    max_size=60,
).map(lambda rows: [(offset, *row) for offset, row in enumerate(rows)])
PLAIN = ChangelogFormat({})


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=rows_schema())


TYPES = rows_schema().types


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_batches([batch(rows)] if rows else [], schema=rows_schema())


def listed(found: pa.Table) -> list[Row]:
    return sorted(tuple(r.values()) for r in found.to_pylist())


def oracle(rows: list[Row]) -> list[Row]:
    return sorted({row[2]: row for row in rows}.values())


@given(logs, st.integers(1, 20), st.sampled_from((1, 600, 1 << 30)), st.randoms())
@settings(max_examples=share(1000), deadline=None)
def test_the_last_offset_of_each_key_wins(
    rows: list[Row], size: int, memory: int, chance: object
) -> None:
    """In whatever parts records come, and whatever is spilt meanwhile."""
    runs: list[pa.Table] = []
    combined = Latest(PLAIN, memory, runs.append)
    for low in range(0, len(rows), size):
        combined.add(batch(rows[low : low + size]))
    runs.append(combined.table())
    for run in runs:  # a run names no key twice
        assert len(set(run.column("key").to_pylist())) == len(run)
    chance.shuffle(runs)  # type: ignore[attr-defined]
    assert listed(latest(PLAIN, runs)) == oracle(rows)
    if memory == 1 and len(rows) > size:
        assert len(runs) > 1
    live = PLAIN.finish(latest(PLAIN, runs), {})
    assert listed(live) == [r for r in oracle(rows) if r[3] is not None]


@given(logs, st.integers(0, 9))
@settings(max_examples=share(500), deadline=None)
def test_the_digest_is_the_sum_of_the_rows_hashes(rows: list[Row], partition: int) -> None:
    def size(content: bytes | None) -> bytes:
        return struct.pack(">i", -1 if content is None else len(content)) + (content or b"")

    total = sum(
        int.from_bytes(
            hashlib.sha256(
                struct.pack(">i", partition)
                + size(key)
                + struct.pack(">q", -1 if time is None else time)
                + size(value)
            ).digest(),
            "big",
        )
        for _, time, key, value in rows
    )
    found = digest(partition, table(rows))
    assert (found.rows, found.hex) == (len(rows), f"{total % 2**256:064x}")
    parts = [digest(partition, table(rows[i::3])) for i in range(3)]
    assert Digest.sum(parts) == found
    assert Digest.of(found.rows, found.hex) == found


def test_keys_spread_over_buckets() -> None:
    """Ids that count up, the commonest keys, in buckets of nearly equal size."""
    rows = [(i, 0, b"user-%06d" % i, b"") for i in range(20_000)]
    parts = list(by_hash(table(rows), 1 << 15))
    hashes = np.concatenate([part.column("hash").to_numpy() for part in parts])
    assert len(parts) > 10
    assert (hashes[1:] >= hashes[:-1]).all()
    sizes = np.bincount(hashes // (HASHES // 16))
    assert (len(sizes), min(sizes) > 1100, max(sizes) < 1400) == (16, True, True)
    assert sorted(r[:4] for part in parts for r in listed(part)) == rows
    hashes = key_hash(table(rows).column("key").chunk(0))
    assert len(np.unique(hashes)) == len(rows)


def test_a_hash_does_not_depend_on_the_neighbours() -> None:
    rows = [(i, 0, b"k%d" % (i % 7), b"") for i in range(30)]
    whole = key_hash(table(rows).column("key").chunk(0))
    assert whole[7:14].tolist() == whole[:7].tolist()
    assert key_hash(batch(rows[3:5]).column("key")).tolist() == whole[3:5].tolist()
    assert key_hash(batch(rows).column("key").slice(3, 2)).tolist() == whole[3:5].tolist()


def test_invalid_and_unknown() -> None:
    rows = batch([(0, 1, b"a", b"1"), (1, 1, b"", None)])
    assert PLAIN.valid(rows).tolist() == [True, True]
    nulls = pa.RecordBatch.from_arrays(
        [*rows.columns[:2], pa.array([None, b"k"], pa.large_binary()), rows.column(3)],
        schema=rows_schema(),
    )
    assert PLAIN.valid(nulls).tolist() == [False, True]
    assert PLAIN.valid(nulls.slice(1, 1)).tolist() == [True]
    for name in ("nothing", "no.such:Format", "hashlib:sha256", "recovery.shared.digest:Digest"):
        with pytest.raises(UsageError):
            changelog_format(name, {})
    assert (
        changelog_format("recovery.state.changelogs.changelog:ChangelogFormat", {}).name == "plain"
    )


def test_pandas_is_not_loaded() -> None:
    """It costs each worker more than a second."""
    code = """
import sys
from tests.unit.formats_build import Item, batch, decoded
from recovery.state.changelogs.changelog import ChangelogFormat
from recovery.state.latest import Latest, by_hash
from recovery.shared.digest import digest
items = [Item(0, -1, None, b""), Item(1, 5, b"k", None), Item(2, 5, b"k")]
form = ChangelogFormat({})
found = decoded(batch(0, items), ())
rows = found.select(form.valid(found.rows())).rows()
combined = Latest(form, 1, lambda run: list(by_hash(run, 9)))
combined.add(rows)
combined.add(rows.slice(1))
combined.spill()
combined = Latest(form, 1 << 20, lambda run: None)
combined.add(rows)
print(digest(0, form.finish(combined.table(), {})).rows, "pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["1", "False"], "")
