"""Audits on Spark: the numbers that bound what their tasks read and hold."""

import os

import numpy as np
import pyarrow as pa
import pytest

from recovery.audit.audit_request import Resolved
from recovery.audit.end_to_end import Reach
from recovery.audit.end_to_end_request import Tally
from recovery.errors import IncompleteError
from spark_jobs import audits
from spark_jobs.audit_duplicates import suspects_in
from spark_jobs.audit_end_to_end import _of_all, refuse_lost
from spark_jobs.session.executors import tries_of
from spark_jobs.session.slots import slots


@pytest.mark.parametrize(
    ("master", "parallelism", "expected"),
    [
        ("local", 8, 1),
        ("local[3]", 1, 3),
        ("local[3]", 200, 3),
        ("local[3, 4]", 1, 3),
        ("local[*]", 1, 6),
        ("local[*,4]", 9, 9),
        ("local-cluster[2,1,1024]", 2, None),
        ("spark://host:7077", 2, None),
        ("k8s://https://host", 2, None),
    ],
)
def test_as_many_tasks_share_a_rate_as_may_run_at_once(
    master: str, parallelism: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark.default.parallelism is no bound of it; JVM and Python may see other processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert slots(master, parallelism) == expected


@pytest.mark.parametrize(
    ("master", "failures", "expected"),
    [
        ("local", "4", 1),
        ("local[3]", "9", 1),
        ("local[*]", None, 1),
        ("local[3,4]", None, 4),
        ("local[*, 2]", "9", 2),
        ("local-cluster[2,1,1024]", "3", 3),
        ("spark://host:7077", None, 4),
        ("yarn", "1", 1),
        (None, "8", 1),
    ],
)
def test_a_task_is_tried_as_often_as_spark_says(
    master: str | None, failures: str | None, expected: int
) -> None:
    """As SparkContext.createTaskScheduler: local[N] never tries again, whatever the conf says. A
    master that is not known may be such a one."""
    assert tries_of(master, failures) == expected


def test_more_suspects_than_workers_are_given_are_refused() -> None:
    contents = [np.array(part, np.uint64).tobytes() for part in ([7, 2, 9], [1], [9])]
    assert suspects_in(contents, 5).tolist() == [1, 2, 7, 9]
    with pytest.raises(IncompleteError, match="5 ids may be duplicated") as refused:
        suspects_in(contents, 4)
    assert "--engine local" in refused.value.sentence


@pytest.mark.parametrize("arrived", [29, 31])
def test_rows_that_were_read_again_from_another_log_judge_nothing(arrived: int) -> None:
    """Spark reads a piece again when it has lost an executor: retention may have gone on."""
    ranges = [Resolved("orders", p, 0, 30, 0, 30, 30) for p in range(2)]
    tallies = [Tally(30, rows=30), Tally(30, rows=30)]
    refuse_lost(ranges, tallies, [30, 30])
    with pytest.raises(IncompleteError, match="30 records were read and") as refused:
        refuse_lost(ranges, tallies, [30, arrived])
    assert refused.value.where == "orders:1"


def test_the_parts_of_all_buckets_are_joined_and_what_is_told_is_passed_on() -> None:
    """Some come in one batch, in whatever order."""
    parts = [Reach(2, 1) for _ in range(3)]
    for number, part in enumerate(parts):
        part.last[0], part.rows[2] = number, number + 1
    told = audits.answer_row("{}", piece=7)
    rows = [audits.answer_row(content=part.dump()) for part in parts]
    given = [pa.concat_batches([rows[2], told, rows[0]]), rows[1]]
    passed, whole = _of_all(lambda: Reach(2, 1))(iter(given))
    assert passed.equals(told)
    joined = Reach(2, 1)
    joined.join(whole.column("content")[0].as_py())
    assert (joined.last.tolist(), joined.rows.tolist()) == ([2, -1], [0, 0, 6])
