"""`audit mirror` on Spark: a task compares a partition with the mirror's.

A partition is never split: a record's copy may be anywhere in the mirror's log, and of equal
records the first has the first copy.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eoctl.engine.mirror_task import compared_pair
from eoctl.kafka.connection.access import Access
from recovery.answers import status_of
from recovery.audit.audit_request import MirrorFound, MirrorPairsRequest, joined_mirror
from recovery.errors import EoctlError
from spark_jobs import audits
from spark_jobs.session import executors, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: job.JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see MirrorFound."""
    audit = job.understood(MirrorPairsRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 1)
    done = stages.stage("compare records")
    pairs = audit.pairs
    reading, unread = audits.reading(spark, audit, len(pairs)), audits.Unread(spark)

    def compare(number: int) -> dict[str, Any]:
        pair = pairs[number]
        try:
            part = audits.ask_both(access, lambda a, b: compared_pair(a, b, audit, pair, reading))
            found = MirrorFound(parts=(part,))
        except EoctlError as error:
            found = MirrorFound(failed=unread.of(pair.source.topic_partition, error))
        done(pair.offsets)
        return found.model_dump(mode="json")

    answers = executors.run(spark, compare, len(pairs), "eoctl audit mirror")
    each = [MirrorFound.model_validate(answer) for answer in answers]
    parts, failed = [p for f in each for p in f.parts], [m for f in each for m in f.failed]
    result = joined_mirror(parts, failed, audit.most)
    stages.end()
    complete = not (failed or audit.missing or result.unproven)
    return audits.ended(audit, result, result.findings, status_of(complete, result.findings > 0))


if __name__ == "__main__":
    job.main("audit_mirror", work)
