"""Run `audit transactions` on Spark: a task reads each partition, others judge by producer id.

A shuffle sends what each partition holds of a transaction to the task that judges its producer id,
together with all other partitions'. `recovery.audit.transactions.judge` needs only one id's data.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import read_transactions
from eoctl.kafka.connection.access import Access
from recovery.answers import status_of
from recovery.audit.audit_request import TransactionsFound, TransactionsRequest, joined_transactions
from recovery.audit.transaction_facts import Data, Ending, Mark
from recovery.audit.transactions import Torn, judge, of_producers, undecided
from recovery.facts import TopicPartition
from spark_jobs import audits
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS = 10_000
ENDINGS = "piece int, told string, pid bigint, nth bigint, ending string"


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job and return its result: see TransactionsFound."""
    audit = job.understood(TransactionsRequest.model_validate, request)
    stages = audits.StageProgress(spark, progress, audit, 1)
    done = stages.stage("read headers and judge")
    result = TransactionsFound()
    if audit.ranges:
        count, refusals = audits.buckets(audit), executors.Refusals(spark)
        reader = _reader(spark, audit, access, done)
        rows = (
            audits.frame(spark, reader, len(audit.ranges), ENDINGS, refusals)
            .repartition(count, "pid")
            .sortWithinPartitions("pid", "piece", "nth")
            .mapInArrow(_judge(audit), audits.ANSWER)
        )
        what = "eoctl audit transactions"
        each, _ = audits.answers(spark, rows, TransactionsFound, what, refusals)
        result = joined_transactions(each, audit.most)
    stages.end()
    seen = not (result.failed or audit.missing)
    complete = seen and not any(c.unproven for c in audit.covered)
    status = status_of(complete, result.findings > 0, finding_first=seen)
    return audits.ended(audit, result, result.findings, status)


def _reader(
    spark: "SparkSession", audit: TransactionsRequest, access: Access, done: audits.CountRecords
) -> audits.Give:
    """Return a function that gives a partition's endings, by producer id and in their order."""
    ranges = audit.ranges
    reading, unread = audits.reading(spark, audit, len(ranges)), audits.Unread(spark)

    def endings(number: int) -> "Iterator[pa.RecordBatch]":
        whole, failed = access.ask(
            lambda cluster: read_transactions(cluster, [ranges[number]], reading), read_only=True
        )
        repeated = sum(t.repeated_markers for t in whole.values())
        result = TransactionsFound(failed=unread.lasting(failed), markers_without_data=repeated)
        done(ranges[number].end - ranges[number].start)
        yield audits.beside(number, result, ENDINGS)
        for transactions in whole.values():
            each = enumerate(transactions.endings())
            while rows := list(islice(each, ROWS)):
                columns = {
                    "piece": [number] * len(rows),
                    "pid": [pid for _, (pid, _) in rows],
                    "nth": [nth for nth, _ in rows],
                    "ending": [json.dumps(ending) for _, (_, ending) in rows],
                }
                yield audits.batch(columns, ENDINGS)

    return endings


def _judge(audit: TransactionsRequest) -> Any:
    """Return a function that judges endings that arrive by producer id, partition and order."""
    partitions = [r.topic_partition for r in audit.ranges]
    covered, later = of_producers(audit.covered), of_producers(audit.later)
    skew, most = audit.skew, audit.most

    def judged(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        findings, without = 0, TransactionsFound()
        torn: list[Torn] = []
        beside: list[pa.RecordBatch] = []
        for pid, rows in groupby(audits.rows_apart(batches, beside), key=lambda row: row["pid"]):
            endings: dict[TopicPartition, dict[int, list[Ending]]] = {}
            for row in rows:
                data, mark = json.loads(row["ending"])
                ending = Ending(data and Data(*data), mark and Mark(*mark))
                endings.setdefault(partitions[row["piece"]], {}).setdefault(pid, []).append(ending)
            known = covered.get(pid, [])
            foreign = undecided([*known, *later.get(pid, [])], endings, audit.own)
            without = without.with_undecided(foreign, most)
            torn_here = judge(known, endings, skew)
            findings += len(torn_here)
            torn += torn_here[: max(0, most - len(torn))]  # ids arrive in the order of findings
        yield from beside
        result = without.model_copy(update={"findings": findings, "torn": tuple(torn)})
        yield audits.answer_row(audits.answer_json(result))

    return judged


if __name__ == "__main__":
    job.main("audit_transactions", work)
