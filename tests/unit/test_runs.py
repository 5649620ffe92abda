"""Runs and their merge, against a dict: whatever the sizes, the number of runs, and the hashes."""

import itertools
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
from recovery.state import latest
from recovery.state.latest import HASHES
from tests.share import share
from tests.unit.test_combine import PLAIN, Row, listed, logs, oracle, table


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
            runs.write_run(storage, "t", [table(oracle(part))]).path for part in reversed(parts)
        ]
        found: list[Row] = []
        for bucket in range(buckets):
            low, behind = (HASHES * n // buckets for n in (bucket, bucket + 1))
            for part in rebuild_task._merged(PLAIN, storage, "t", names, low, behind):
                assert part.column_names == table([]).column_names
                found += listed(part)
        assert sorted(found) == oracle(rows)
        assert sorted(storage.names("runs")) == sorted(names)  # no other is left


def test_a_window_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Of two long runs, row groups come one after the other, as the windows get to them."""
    rows: list[Row] = [(i, 0, b"key-%06d" % i, b"value") for i in range(20_000)]
    storage = LocalFolder(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "GROUP_BYTES", 1 << 13)
        names = [runs.write_run(storage, "t", [table(rows[half::2])]).path for half in (0, 1)]
    readers = [runs.RunReader(storage, name, 0) for name in names]
    groups = sum(len(reader.first) for reader in readers)
    sizes = sum(int(reader.sizes.sum()) for reader in readers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "WINDOW_BYTES", sizes // 10)
        edges = runs.windows(readers, 0, HASHES)
    assert groups > 50
    assert 10 <= len(edges) <= 11
    assert edges[-1] == HASHES
    for edge in edges:
        found = sum(len(part) for reader in readers for part in reader.below(edge))
        assert 0 < found < len(rows) // 5
        held = sum(len(part) for reader in readers for part in reader._held)
        assert held <= 2 * len(rows) // groups + 2
