"""`audit mirror` and its `--keep` on Spark: a task reads a partition and the mirror's.

A partition is never split: a record's copy may be anywhere in the mirror's log, and of equal
records the first has the first copy.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.engine.mirror_task import compared_pair, continued_pair, ranges_after
from eoctl.kafka.connection.access import Access
from eoctl.stores.offsets import mirror_maps
from eoctl.stores.textfile import write_whole
from recovery.answers import status_of
from recovery.audit.audit_request import (
    PART,
    MirrorFound,
    MirrorKeepRequest,
    MirrorKept,
    MirrorPairsRequest,
    joined_mirror,
    not_told,
)
from recovery.audit.mirror_map import MapPartition
from recovery.errors import EoctlError
from spark_jobs import audits
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job that the request is of, and return its result."""
    if "path" in request:
        kept = job.understood(MirrorKeepRequest.model_validate, request)
        return keep(spark, kept, access, progress)
    audit = job.understood(MirrorPairsRequest.model_validate, request)
    return compare(spark, audit, access, progress)


def compare(
    spark: "SparkSession", audit: MirrorPairsRequest, access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Compare records and return MirrorFound."""
    stages = audits.StageProgress(spark, progress, audit, 1)
    done = stages.stage("compare records")
    pairs = audit.pairs
    reading, unread = audits.reading(spark, audit, len(pairs)), audits.Unread(spark)

    def compared(number: int) -> dict[str, Any]:
        pair = pairs[number]
        try:
            part = audits.ask_both(
                access, audit.topics, pair, lambda a, b: compared_pair(a, b, audit, pair, reading)
            )
            found = MirrorFound(parts=(part,))
        except EoctlError as error:
            found = MirrorFound(failed=unread.of(pair.source.topic_partition, error))
        done(pair.offsets)
        return found.model_dump(mode="json")

    answers = executors.run(spark, compared, len(pairs), "eoctl audit mirror")
    each = [MirrorFound.model_validate(answer) for answer in answers]
    parts, failed = [p for f in each for p in f.parts], [m for f in each for m in f.failed]
    result = joined_mirror(parts, failed, audit.most)
    stages.end()
    complete = not (failed or audit.missing or result.unproven)
    return audits.ended(audit, result, result.findings, status_of(complete, result.findings > 0))


def keep(
    spark: "SparkSession", audit: MirrorKeepRequest, access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Read what is new and return MirrorKept. parts: only where the request names no file for the
    answer.

    What a task has read goes to the folder of the answer as soon as the task ends, so that the map
    is saved while others read. Spark Connect tells it only when all have ended.
    """
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
                access,
                audit.topics,
                pair,
                lambda a, b: continued_pair(a, b, audit, pair, before, reading),
            )
        except EoctlError as error:
            failed = unread.of(pair.source.topic_partition, error)
            return MirrorKept(failed=failed).model_dump(mode="json")
        done(sum(r.end - r.start for r in ranges_after(before, pair.source, pair.mirror)))
        told = early.add(part.partition, part.model_dump_json())
        return MirrorKept(parts=() if told else (part,)).model_dump(mode="json")

    with executors.meanwhile(lambda: _give(early.new(), audit.answer)):
        answers = executors.run(spark, read, len(pairs), "eoctl audit mirror --keep")
    each = [MirrorKept.model_validate(answer) for answer in answers]
    late = [p for f in each for p in f.parts]
    _give(((p.partition, p.model_dump_json()) for p in late), audit.answer)
    parts = [*map(MapPartition.model_validate_json, early.by_task.values()), *late]
    failed = [m for f in each for m in f.failed]
    failed += not_told(pairs, [p.partition for p in parts], failed)
    result = MirrorKept(failed=tuple(failed), parts=() if audit.answer else tuple(parts))
    stages.end()
    gaps = any(p.unseen_since(known.get(p.partition)) for p in parts)
    complete = not (failed or audit.missing or gaps)
    return audits.ended(audit, result, 0, status_of(complete, False))


def _give(texts: Iterable[tuple[int, str]], answer: str | None) -> None:
    """Write parts of the map to the folder of the answer, a file each."""
    if answer is None:
        return
    for number, text in texts:
        write_whole(Path(answer).with_name(f"{number}{PART}"), text.encode(), mode=0o600)


if __name__ == "__main__":
    job.main("audit_mirror", work)
