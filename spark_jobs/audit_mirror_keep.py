"""`audit mirror --keep` on Spark: a task reads what is new in a partition and its mirror.

What a task has read goes to the folder of the answer as soon as the task ends, so that the map is
saved while others read. Spark Connect tells it only when all have ended.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.engine.mirror_task import continued_pair
from eoctl.kafka.connection.access import Access
from eoctl.stores.offsets import mirror_maps
from eoctl.stores.textfile import write_whole
from recovery.audit.audit_request import PART, MirrorKeepRequest, MirrorKept
from recovery.audit.mirror_map import MapPartition
from recovery.errors import EoctlError
from spark_jobs import audits
from spark_jobs.session import executors, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: job.JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see MirrorKept. parts: only
    where the request names no file for the answer.
    """
    audit = job.understood(MirrorKeepRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 1)
    done = stages.stage("read what is new")
    kept = mirror_maps.known(Path(audit.path))
    known = {} if kept is None else kept.by_number()
    early = executors.Early(spark)
    pairs = audit.pairs
    reading, unread = audits.reading(spark, audit, len(pairs)), audits.Unread(spark)

    def read(number: int) -> dict[str, Any]:
        pair = pairs[number]
        before = known.get(pair.source.partition)
        try:
            part = audits.ask_both(
                access, lambda a, b: continued_pair(a, b, audit, pair, before, reading)
            )
        except EoctlError as error:
            failed = unread.of(pair.source.topic_partition, error)
            return MirrorKept(failed=failed).model_dump(mode="json")
        done(pair.offsets)
        told = early.add(part.partition, part.model_dump_json())
        return MirrorKept(parts=() if told else (part,)).model_dump(mode="json")

    with executors.meanwhile(lambda: _give(early.new(), audit.answer)):
        answers = executors.run(spark, read, len(pairs), "eoctl audit mirror --keep")
    each = [MirrorKept.model_validate(answer) for answer in answers]
    late = [p for f in each for p in f.parts]
    _give(((p.partition, p.model_dump_json()) for p in late), audit.answer)
    parts = [*map(MapPartition.model_validate_json, early.by_task.values()), *late]
    failed = tuple(m for f in each for m in f.failed)
    result = MirrorKept(failed=failed, parts=() if audit.answer else tuple(parts))
    stages.end()
    return audits.ended(audit, result, 0)


def _give(texts: Iterable[tuple[int, str]], answer: str | None) -> None:
    """Write parts of the map to the folder of the answer, a file each."""
    if answer is None:
        return
    for number, text in texts:
        write_whole(Path(answer).with_name(f"{number}{PART}"), text.encode(), mode=0o600)


if __name__ == "__main__":
    job.main("audit_mirror_keep", work)
