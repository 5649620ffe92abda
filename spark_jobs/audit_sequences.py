"""`audit sequences` on Spark: a task reads a partition's batch headers and judges its sequences.

A partition is never split: a producer's batch can only be judged after all batches before it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import read_sequences
from eoctl.kafka.connection.access import Access
from recovery.audit.audit_request import SequencesFound, SequencesRequest, joined_sequences
from spark_jobs import audits
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see SequencesFound."""
    audit = job.understood(SequencesRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 1)
    done = stages.stage("read headers")
    ranges, most = audit.ranges, audit.most
    reading, unread = audits.reading(spark, audit, len(ranges)), audits.Unread(spark)

    def read(number: int) -> dict[str, Any]:
        result = access.ask(
            lambda cluster: read_sequences(cluster, [ranges[number]], reading, most),
            read_only=True,
        )
        unread.lasting(result.failed)
        done(ranges[number].end - ranges[number].start)
        return result.model_dump(mode="json")

    answers = executors.run(spark, read, len(ranges), "eoctl audit sequences")
    result = joined_sequences([SequencesFound.model_validate(a) for a in answers], most)
    stages.end()
    each = [p.examined for p in result.partitions]
    return audits.ended(audit, result, sum(e.gaps + e.repeats + e.epochs_back for e in each))


if __name__ == "__main__":
    job.main("audit_sequences", work)
