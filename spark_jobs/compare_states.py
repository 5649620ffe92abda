"""`state compare` on Spark: a task compares some keys of a partition in two finished states.

Executors read both states where they are; nothing is written there.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.engine.compare_task import compare_tasks, compared
from eoctl.kafka.connection.access import Access
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import StateRows
from recovery.answers import status_of
from recovery.errors import RefusedError, UsageError
from recovery.state.compare import CompareRequest, NamedState
from spark_jobs.session import executors, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: job.JobProgress
) -> Mapping[str, Any]:
    """Run the job: a CompareFound of each task, in their order, to the file of the answer."""
    asked = job.understood(CompareRequest.model_validate, request)
    left, right = opened(asked.a), opened(asked.b)
    tasks = compare_tasks(left.manifest, right.manifest)
    stage = {"stage": "compare files and rows", "stages_done": 0, "stages_total": 1}
    progress.watch({**stage, "records": None, "records_total": None}.copy)

    def compare(number: int) -> dict[str, Any]:
        a, b = opened(asked.a), opened(asked.b)
        return compared(a, b, tasks[number], asked.most, timestamps=asked.timestamps).as_dict()

    answers = executors.run(spark, compare, len(tasks), "eoctl state compare")
    names = ("only_a", "only_b", "different")
    differing = sum(answer[name] for answer in answers for name in names)
    result = {"differing": differing, "exit_status": int(status_of(True, differing > 0))}
    if asked.answer is None:
        return {**result, "found": answers}
    Path(asked.answer).write_text(json.dumps(answers), encoding="utf-8")
    return result


def opened(state: NamedState) -> StateRows:
    """Return a state as this process sees it. Raises RefusedError if it is not there, or another
    one."""
    try:
        storage, manifest, content = state_folder.read_bytes(state.address)
    except UsageError as error:
        raise RefusedError(
            f"executors do not see this state: {error.what}",
            where=state.address,
            remedy=executors.SHARED,
        ) from None
    if hashlib.sha256(content).hexdigest() != state.sha256:
        raise RefusedError(
            "executors see another state there, or it was replaced meanwhile",
            where=state.address,
            remedy=executors.SHARED,
        )
    return StateRows(storage, manifest)


if __name__ == "__main__":
    job.main("compare_states", work)
