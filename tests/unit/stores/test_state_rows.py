"""The rows of a state in the order of their offsets, and calls that may be long but not silent."""

import asyncio
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

from eoctl.stores.offsets.bounded import BlockingCall, SilentError, bounded
from eoctl.stores.state.files import StateWriter
from eoctl.stores.state.finished_rows import StateRows
from eoctl.stores.storage import LocalFolder
from recovery.facts import TopicPartition
from recovery.formats.columns import rows_schema
from recovery.state.manifest import Manifest, ManifestDigest, ManifestFile, ManifestPartition

LOG = TopicPartition("log", 3)


def state(folder: Path, groups: list[list[dict[str, object]]]) -> StateRows:
    """One file for each two groups of rows."""
    files = []
    for low in range(0, len(groups), 2):
        writer = StateWriter(LocalFolder(folder), *LOG)
        for rows in groups[low : low + 2]:
            writer.write(pa.Table.from_pylist(rows, schema=rows_schema()))
        made = writer.close()
        files.append(
            ManifestFile(path=made.path, rows=made.rows, size=made.size, sha256=made.sha256)
        )
    part = ManifestPartition.model_construct(
        topic="log",
        partition=3,
        digest=ManifestDigest(rows=sum(f.rows for f in files), sha256_sum="0" * 64),
        files=tuple(files),
    )
    return StateRows(LocalFolder(folder), Manifest.model_construct(partitions=(part,)))


@pytest.mark.parametrize("seed", range(10))
def test_rows_come_by_rising_offset_from_any_row_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice([0, 1, 7, 50])
    rows: list[dict[str, object]] = [
        {
            "offset": offset,
            "timestamp": chance.choice([None, 5]),
            "key": b"k%d" % offset,
            "value": b"v" * chance.randrange(4),
        }
        for offset in chance.sample(range(1000), count)
    ]
    edges = sorted(chance.randrange(count + 1) for _ in range(4))
    bounds = zip([0, *edges], [*edges, count], strict=True)
    found = state(tmp_path, [rows[a:b] for a, b in bounds])
    wanted = [{"partition": 3, **row} for row in sorted(rows, key=lambda r: int(str(r["offset"])))]
    assert found.offsets(LOG).tolist() == [row["offset"] for row in wanted]
    for at_once in (None, 1, 3, 1000):
        for first in {0, count // 2, max(0, count - 1), count}:
            tables = list(found.in_order(LOG, first, at_once))
            assert [row for t in tables for row in t.to_pylist()] == wanted[first:]
            assert all(len(t) <= (at_once or count) for t in tables)


def test_a_long_call_that_answers_is_waited_for_a_silent_one_is_not() -> None:
    def answers(job: BlockingCall) -> str:
        for _ in range(8):
            time.sleep(0.1)
            job.answered()
        return "done"

    assert asyncio.run(bounded(answers, 0.4)) == "done"
    begin = time.monotonic()
    with pytest.raises(SilentError):
        asyncio.run(bounded(lambda job: time.sleep(3), 0.2))
    assert time.monotonic() - begin < 2
