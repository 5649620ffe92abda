"""`state compare` on Spark: a task compares some keys of a partition in two finished states.

Executors read both states where they are; nothing is written there.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.engine.compare_task import compare_tasks, compared
from eoctl.kafka.connection.access import Access
from recovery.answers import status_of
from recovery.state.state_jobs import CompareRequest
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress
from spark_jobs.session.states import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job: a CompareFound of each task, in their order, to the file of the answer."""
    asked = job.understood(CompareRequest.model_validate, request)
    left, right = (opened(state).manifest for state in (asked.a, asked.b))
    tasks = compare_tasks(left, right)
    stage = {"stage": "compare files and rows", "stages_done": 0, "stages_total": 1}
    progress.watch({**stage, "records": None, "records_total": None}.copy)

    def compare(number: int) -> dict[str, Any]:
        a, b = opened(asked.a), opened(asked.b)
        return compared(a, b, tasks[number], asked.most, timestamps=asked.timestamps).as_dict()

    answers = executors.run(spark, compare, len(tasks), "eoctl state compare")
    names = ("only_a", "only_b", "different")
    differing = sum(answer[name] for answer in answers for name in names)
    complete = all(
        state.complete and not any(p.incomplete for p in state.partitions)
        for state in (left, right)
    )
    status = status_of(complete, differing > 0)
    result = {"differing": differing, "exit_status": int(status)}
    if asked.answer is None:
        return {**result, "found": answers}
    Path(asked.answer).write_text(json.dumps(answers), encoding="utf-8")
    return result


if __name__ == "__main__":
    job.main("compare_states", work)
