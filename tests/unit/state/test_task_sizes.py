"""The requests that a merge of runs makes to object storage, counted by a proxy."""

import asyncio
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from eoctl.engine.rebuild import _with_ranges
from eoctl.engine.rebuild_request import RebuildRequest, resolved
from eoctl.engine.rebuild_task import BucketTask, Making, run_or_find, runs_at_once
from eoctl.engine.resolve_cut import parse_at
from eoctl.kafka.ask import log_dirs
from eoctl.stores.object_storage import ObjectStorage
from eoctl.stores.state import runs
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.facts import Missing
from recovery.shared.cut import ranges
from recovery.state import task_sizes
from recovery.values import replace
from tests.object_store import Faulty, environment, make_bucket, s3_server
from tests.unit.engine.test_state_folder import request
from tests.unit.state.test_combine import Row, table
from tests.unit.state.test_state_compare import cut

ALSO = 3  # requests of a task: its row is looked for and kept, the plan of the merge is read


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        make_bucket(port, "bucket")
        yield port


@pytest.fixture
def lines(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The request lines that a proxy has seen; the storage is behind it."""
    seen: list[str] = []

    def count(line: str) -> None:
        seen.append(line)

    with closing(Faulty(server, count)) as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        yield seen


def filled(storage: Storage, number: int, rows: int) -> list[runs.Run]:
    """Runs of different keys, which lz4 does not make smaller."""
    parts: list[list[Row]] = [
        [(part * rows + i, 0, uuid.uuid4().bytes, uuid.uuid4().bytes * 4) for i in range(rows)]
        for part in range(number)
    ]
    return [runs.Run(runs.write_run(storage, "t-0", [table(part)])) for part in parts]


@pytest.mark.parametrize(
    ("number", "rows", "into", "read_bytes", "most"),
    [(7, 300, 5, 8 << 20, 64), (9, 3000, 2, 64 << 10, 64), (20, 2000, 3, 128 << 10, 4)],
)
def test_requests_are_as_planned(
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    rows: int,
    into: int,
    read_bytes: int,
    most: int,
) -> None:
    monkeypatch.setattr(ObjectStorage, "read_bytes", read_bytes)
    monkeypatch.setattr(task_sizes, "READ_BYTES", read_bytes)
    monkeypatch.setattr("eoctl.engine.rebuild_task.MOST_RUNS", most)
    for module in (runs, task_sizes):
        monkeypatch.setattr(module, "SECTION_BYTES", 64 << 10)
    monkeypatch.setattr(runs, "GROUP_BYTES", 16 << 10)
    storage = storage_at(f"s3://bucket/{uuid.uuid4().hex}")
    made = filled(storage, number, rows)
    plan = runs.plan_merge(storage, "t-0", made)
    how = Making("plain", {}, storage.address)
    tasks = [BucketTask("t", 0, plan, bucket, into, {}, how) for bucket in range(into)]
    lines.clear()
    before = storage.requests
    done = [run_or_find(task) for task in tasks]
    assert sum(row.digest_rows for row, _ in done) == number * rows
    assert not [line for line in lines if line.startswith("HEAD")]
    reads = [line for line in lines if re.match(r"GET .*/runs/t-0/", line)]
    size = sum(run.file.size for run in made)
    moved = size + number * into * (64 << 10)  # each slice with the rest of a section
    assert number * into <= len(reads) <= number * into + moved // read_bytes
    assert len(lines) == storage.requests - before
    sizes = [run.file.size for run in made]
    at_once = runs_at_once(storage)
    most_lines = task_sizes.requests(sizes, into, at_once) - number  # which wrote the runs
    removed = into * bool(task_sizes.merges(number, at_once))
    assert len(lines) <= most_lines + ALSO * into + removed
    lines.clear()
    assert [kept for _, kept in map(run_or_find, tasks)] == [True] * into
    assert len(lines) == 2 * into  # each row, and each file for its hash


@pytest.mark.parametrize("slots", [None, 4, 40, 400])
@pytest.mark.parametrize("known", [True, False])
def test_requests_of_ten_tebibytes(tmp_path: Path, slots: int | None, known: bool) -> None:
    """In 100 partitions, of 1 KiB records with different keys: nothing gets smaller by merging."""
    partitions, memory, size = 100, 256 << 20, 1024
    records = (10 << 40) // partitions // size
    sizes = {"log": dict.fromkeys(map(str, range(partitions)), records * size)}
    job = replace(request(tmp_path), cut=cut(*[records] * partitions))
    planned = _with_ranges(replace(job, log_bytes=sizes if known else {}), slots)
    parts = ranges(0, records, planned.range_offsets["log"]["0"])
    each = (memory * size) // (size + 40)  # a spilt run: what rows need besides is not in it
    spilt = [
        min(each, (end - start) * size - low)
        for start, end in parts
        for low in range(0, (end - start) * size, each)
    ]
    assert sum(spilt) == records * size
    into = task_sizes.buckets(spilt, len(parts), memory, by_request=True)
    one = task_sizes.requests(spilt, into, 32) + 2 * len(parts) + ALSO * into
    assert 4_000_000 < partitions * one <= 6_000_000


def test_ranges_of_a_log_in_remote_storage_do_not_follow_what_its_leader_holds(
    tmp_path: Path,
) -> None:
    job = replace(request(tmp_path), cut=cut(10**9), log_bytes={"log": {"0": 1 << 20}})
    tiered = {"log": {"remote.storage.enable": "true"}}
    for wanted in (job, replace(job, configs=tiered)):
        most = _with_ranges(wanted, 4).range_offsets["log"]["0"]
        assert most <= task_sizes.RANGE_OFFSETS
    sized = replace(job, log_bytes={"log": {"0": 1 << 40}})
    assert _with_ranges(replace(sized, configs=tiered), 4).range_offsets == {
        "log": {"0": task_sizes.RANGE_OFFSETS}
    }
    assert _with_ranges(sized, 4).range_offsets["log"]["0"] < task_sizes.LEAST_RANGE_OFFSETS


@pytest.mark.parametrize("given", [None, 5])
def test_what_hides_the_sizes_of_logs_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int | None
) -> None:
    hidden = [Missing("broker", log_dirs.REFUSED, log_dirs.HIDDEN, broker=1)]
    asked = {"resolve_cut.resolve": cut(9), "configs.topic_configs": ({}, [])}
    for name, answer in {**asked, "log_sizes": ({}, hidden)}.items():
        monkeypatch.setattr(f"eoctl.engine.rebuild_request.{name}", AsyncMock(return_value=answer))
    cluster = AsyncMock(transaction_version=2)
    cluster.metadata.return_value.topics = {}
    wanted = RebuildRequest(
        ("log",), "lso", Making("plain", {}, str(tmp_path), range_offsets=given)
    )
    job = asyncio.run(resolved(cluster, wanted, parse_at("lso")))
    expected = () if given else (f"where a log's size is not known: {log_dirs.HIDDEN}",)
    assert tuple(note.removeprefix("ranges follow offsets ") for note in job.notes) == expected
    assert job.how.token
