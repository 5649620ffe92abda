"""Runs and their merge, against a dict: whatever the sizes, the number of runs, and the hashes."""

import base64
import itertools
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.engine import rebuild_task
from eoctl.stores.state import runs
from eoctl.stores.storage import LocalFolder
from recovery.errors import RefusedError
from recovery.state import latest
from recovery.state.changelogs.changelog import Summary, changelog_format
from recovery.state.latest import HASHES
from recovery.values import replace
from tests.share import share
from tests.unit.state.test_combine import PLAIN, Row, batch, listed, logs, oracle, table


@contextmanager
def small(distinct: int, group_bytes: int) -> Iterator[None]:
    """Row groups and windows of a few rows, few runs at once, and only so many hashes."""
    real = latest.key_hash

    def alike(keys: Any) -> Any:
        found = real(keys)
        return found if distinct > 7 else found % np.uint64(distinct) << np.uint64(61)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest, "key_hash", alike)
        patch.setattr(runs, "GROUP_BYTES", group_bytes)
        patch.setattr(runs, "WINDOW_BYTES", 300)
        patch.setattr(rebuild_task, "MOST_RUNS", 3)
        yield


@pytest.mark.parametrize("distinct", [1, 7, 2**64])
@given(logs, st.lists(st.integers(0, 60), max_size=12), st.integers(1, 300), st.integers(1, 5))
@settings(max_examples=share(300), deadline=None)
def test_merged_runs_are_those_of_a_dict(
    distinct: int, rows: list[Row], cuts: list[int], group_bytes: int, buckets: int
) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [rows[low:high] for low, high in itertools.pairwise(edges)]
    with small(distinct, group_bytes), tempfile.TemporaryDirectory() as folder:
        storage = LocalFolder(Path(folder))
        names = [
            runs.Run(runs.write_run(storage, "t", [table(oracle(part))]))
            for part in reversed(parts)
        ]
        found: list[Row] = []
        merged = [0] * len(names)
        for bucket in range(buckets):
            read: dict[str, int] = {}
            low, behind = (HASHES * n // buckets for n in (bucket, bucket + 1))
            for part in rebuild_task._merged(PLAIN, storage, "t", names, low, behind, read):
                assert part.column_names == table([]).column_names
                found += listed(part)
            merged = [n + read[r.file.path] for n, r in zip(merged, names, strict=True)]
        assert sorted(found) == oracle(rows)
        assert merged == [len(oracle(part)) for part in reversed(parts)]
        assert sorted(storage.names("runs")) == sorted(
            run.file.path for run in names
        )  # no other is left


@pytest.mark.parametrize("section_bytes", [1, 1 << 14])
def test_a_window_reads_no_more_than_it_needs(tmp_path: Path, section_bytes: int) -> None:
    """Of two long runs, row groups come one after the other, as the windows get to them."""
    rows: list[Row] = [(i, 0, b"key-%06d" % i, b"value") for i in range(20_000)]
    storage = LocalFolder(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "GROUP_BYTES", 1 << 13)
        patch.setattr(runs, "SECTION_BYTES", section_bytes)
        made = [runs.write_run(storage, "t", [table(rows[half::2])]) for half in (0, 1)]
    readers = [runs.RunReader(storage, run, 0, HASHES) for run in made]
    groups = sum(run.memory - 8 * run.rows for run in made) >> 13  # without their hashes
    sizes = sum(int(reader.sizes.sum()) for reader in readers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "WINDOW_BYTES", sizes // 10 + 1)
        edges = runs.windows(readers, 0, HASHES)
    assert groups > 50
    assert len(edges) == 10
    assert edges[-1] == HASHES
    for edge in edges:
        found = sum(len(part) for reader in readers for part in reader.below(edge))
        assert 0 < found < len(rows) // 5
        held = sum(len(part) for reader in readers for part in reader._held)
        assert held <= 2 * (len(rows) // groups + 1) + 2


@given(st.data())
@settings(max_examples=share(300), deadline=None)
def test_a_run_that_was_changed_is_refused(data: st.DataObject) -> None:
    """A bit of it, or its length: what it holds is in no digest yet that would tell."""
    rows: list[Row] = [(i, 0, b"key-%03d" % i, b"value") for i in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalFolder(Path(folder))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs, "GROUP_BYTES", 1 << 11)
            run = runs.write_run(storage, "t", [table(rows)])
        assert sorted(read_through(storage, run)) == rows
        content = bytearray(storage.get(run.path))
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[at:]
        (Path(folder) / run.path).write_bytes(content)
        with pytest.raises(RefusedError, match=r"\.run"):
            read_through(storage, run)


def test_an_index_that_was_changed_loses_no_rows(tmp_path: Path) -> None:
    """It is not in the run: where it leads past rows, merging counts fewer than the run has."""
    rows: list[Row] = [(i, 0, b"key-%06d" % i, b"value") for i in range(20_000)]
    storage = LocalFolder(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "GROUP_BYTES", 1 << 13)
        patch.setattr(runs, "SECTION_BYTES", 1 << 13)
        run = runs.write_run(storage, "t", [table(rows)])
    assert run.rows == len(rows)
    index = base64.b64decode(run.index)
    entries = [struct.unpack_from("<qq", index, at) for at in range(0, len(index), 16)]
    assert len(entries) > 50
    for number in range(0, len(entries), 5):
        for bit in (1 << 40, 1 << 61, 1 << 62):
            first, at = entries[number]
            changed = [*entries[:number], (first ^ bit, at), *entries[number + 1 :]]
            whole_in_buckets(storage, indexed(run, changed), rows)  # if it does no harm
    for changed in ([], entries[3:], [(0, 1), *entries[1:]], [*entries[:5], *entries[4:]]):
        assert not whole_in_buckets(storage, indexed(run, changed), rows)
    for text in (run.index[:-1] + "!", run.index[:8], "é"):
        assert not whole_in_buckets(storage, replace(run, index=text), rows)
    lost = indexed(run, [(first | 1 << 60, at) for first, at in entries])
    assert not whole_in_buckets(storage, lost, rows)
    assert whole_in_buckets(storage, run, rows)


def indexed(run: runs.RunFile, entries: list[tuple[int, int]]) -> runs.RunFile:
    packed = b"".join(struct.pack("<qq", *entry) for entry in entries)
    return replace(run, index=base64.b64encode(packed).decode())


def whole_in_buckets(storage: LocalFolder, run: runs.RunFile, rows: list[Row]) -> bool:
    """Return whether three buckets count as many rows as the run has; if so, they have all."""
    found: list[Row] = []
    read = 0
    try:
        for n in range(3):
            reader = runs.RunReader(storage, run, HASHES * n // 3, HASHES * (n + 1) // 3)
            found += [row[:4] for t in reader.below(HASHES * (n + 1) // 3) for row in listed(t)]
            read += reader.rows
    except RefusedError:
        return False
    if read == run.rows:
        assert sorted(found) == rows
    return read == run.rows


def test_a_plan_that_was_changed_is_refused(tmp_path: Path) -> None:
    storage = LocalFolder(tmp_path)
    run = runs.Run(runs.write_run(storage, "t", [table([(1, 0, b"k", b"v")])]), {"seen": 1})
    plan = runs.plan_merge(storage, "t-0", [run])
    assert runs.planned(storage, plan) == [run]
    assert runs.plan_merge(storage, "t-0", [run, run]) != plan  # which stays
    text = storage.get(plan)
    for content in (text.replace(b'"rows": 1', b'"rows": 2'), b"{}", b"[]", text[:-1], b"\xff"):
        storage.put(plan, content)
        with pytest.raises(RefusedError, match=r"t-0-.*\.json"):
            runs.planned(storage, plan)
    storage.delete([plan, run.file.path])
    with pytest.raises(RefusedError, match="what is there now"):
        runs.planned(storage, plan)
    with pytest.raises(RefusedError, match="what is there now"):
        runs.RunReader(storage, run.file, 0, HASHES).below(HASHES)


def read_through(storage: LocalFolder, run: runs.RunFile) -> list[Row]:
    parts = runs.RunReader(storage, run, 0, HASHES).below(HASHES)
    return [row[:4] for part in parts for row in listed(part)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 40), st.sampled_from((b"a", b"b", b"c")), st.booleans(), st.booleans()
        ),
        min_size=2,
        max_size=60,
    ),
    st.integers(1, 12),
)
@settings(max_examples=share(500), deadline=None)
def test_a_versioned_store_in_ranges_is_that_of_one_replay(
    records: list[tuple[int, bytes, bool, bool]], retention: int
) -> None:
    """What a range has to ignore depends on the time that the ranges before it had reached."""
    rows: list[Row] = [
        (offset, time, key, b"%d" % offset if live else None)
        for offset, (time, key, live, _) in enumerate(records)
    ]
    form = changelog_format("streams-versioned", {"retention_ms": retention})
    edges = [0, *(n for n, record in enumerate(records) if record[3]), len(rows)]
    before: Summary = {}
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalFolder(Path(folder))
        made = []
        for low, high in itertools.pairwise(edges):
            seen: Summary = {}
            kept: list[Row] = []
            for row in rows[low:high]:
                mask = form.keep(batch([row]), seen)
                kept += [row] if mask is None or mask[0] else []
                seen = form.observe(batch([row]), seen)
            run = runs.write_run(storage, "t", [latest.latest(form, [table(kept)])])
            made.append(runs.Run(run, before))
            before = form.merge(before, seen)
        parts = rebuild_task._merged(form, storage, "t", made, 0, HASHES, {})
        live = [row for part in parts for row in form.finish(part, before).to_pylist()]
    found = sorted((row["key"], row["valid_from"], row["offset"]) for row in live)
    assert found == replayed(rows, retention)


def replayed(rows: list[Row], retention: int) -> list[tuple[bytes, int, int]]:
    """As RocksDBVersionedStore.restoreBatch takes records, and what it answers with afterwards."""
    kept: dict[bytes, dict[int, Row]] = {}
    now = -1
    for row in rows:
        time = row[1] or 0
        if time >= now - retention:
            now = max(now, time)
            kept.setdefault(row[2], {})[time] = row
    found = []
    for key, versions in kept.items():
        times = sorted(versions)
        for begin, end in itertools.pairwise([*times, 2**63]):
            offset, _, _, value = versions[begin]
            if value is not None and end > now - retention:
                found.append((key, begin, offset))
    return sorted(found)
