"""Send any DataFrame, deterministic or not, from Spark to Kafka exactly once.

    from eoctl.kafka.connection.access import Access
    from spark_jobs.sink.write import write_exactly_once

    access = Access({"bootstrap.servers": "b1:9092", "sasl.password": "env:KAFKA_PASSWORD"})
    write_exactly_once(df, topic="clean", job="orders-cleanup", batch=0,
                       staging_folder="/shared/staging", access=access)

If the process is killed at any point, the same call sends what is missing and nothing twice. See
`staging`, `commit` and `markers` for the rules and each part's purpose. A batch is one transaction
or several per partition, so readers may see part of it while it is written (`atomic: false`).
"""

import json
import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import TopicMetadata
from eoctl.kafka.write.exactly_once import DECIDED_SECONDS, FencedError, Writer
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.errors import (
    NO_SUCH_TOPIC,
    EoctlError,
    IncompleteError,
    RefusedError,
    UnverifiedError,
    UsageError,
)
from recovery.plurals import counted
from recovery.values import replace
from spark_jobs.session import executors
from spark_jobs.sink import commit, markers, query, staging
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.staging import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTION_TIMEOUT_MS = 60_000
ROWS_PER_TRANSACTION = 500_000
UNKNOWN_RETENTION_MS = 2 * 3_600_000
PROBES = 4
DONE = "done.json"
SENT = rf"batch-(\d+)/{re.escape(DONE)}"


def write_exactly_once(
    frame: "DataFrame",
    *,
    topic: str,
    job: str,
    batch: int,
    staging_folder: str | Path,
    access: Access,
    partitions: int | None = None,
    run_id: str | None = None,
    checkpoint: str | None = None,
    allow_speculation: bool = False,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    rows_per_transaction: int = ROWS_PER_TRANSACTION,
    keep_batches: int | None = None,
) -> dict[str, Any]:
    """Send the rows of `frame` to `topic`, each exactly once; return what was done.

    frame: columns key, value (string or binary), and optionally headers, partition, timestamp, as
    in Spark's own Kafka sink. job names the markers and transactional ids: one name, one writer.
    batch: ascending numbers; a batch that was sent is not sent again. staging_folder: seen by
    executors and by this process. partitions: repartition to so many; None: the frame's own number
    in the first batch, and afterwards the sink's: a frame with more is coalesced. run_id: the run
    that owns the batches, since batch numbers recur after a checkpoint is deleted; None: the id of
    the streaming query that calls this in foreachBatch, and outside of one nothing, so that the
    caller alone vouches for the numbers. Only the thread in which Spark calls foreachBatch knows
    the query: call this function there, or give run_id, or checkpoint (the query's
    checkpointLocation), which nothing else reveals within Spark Connect. keep_batches: the number
    of sent batches, this one included, whose staged files are kept; None: all.

    Raises RefusedError for what it cannot guarantee (partition count changed, marker expired,
    another staging of the same batch, another run's batch, an unfinished batch before it, a query's
    batch whose number belonged to another one, speculation that is not allowed), UsageError,
    IncompleteError if Kafka failed: call again, nothing is sent twice.
    """
    _refuse_words(job, batch)
    if keep_batches is not None and keep_batches < 1:
        raise UsageError(f"keep_batches is a number from 1, not {keep_batches}")
    spark = frame.sparkSession
    sender = query.sender(spark, batch, checkpoint) if run_id is None else None
    run = run_id if sender is None else sender.id
    if not allow_speculation:
        refuse_speculation(spark)
    root = storage_at(staging_folder)
    storage = storage_at(f"{root.address}/{job}/batch-{batch}")
    folder = storage.address
    executors.check_storage(spark, storage, root, PROBES)
    by_name = markers.topics(access, [topic, markers.name(job)])
    if topic not in by_name:
        raise UsageError(NO_SUCH_TOPIC, where=topic)
    marker_topic = by_name.get(markers.name(job))
    manifest = staging.load(storage)
    planned = None if sender is None else sender.planned
    if manifest is not None:
        commit.refuse_other_run(manifest, run, folder)
    if manifest is None:
        had = None
        if marker_topic is not None:
            had = len(marker_topic.partitions)
            _same_count(job, partitions or had, marker_topic)
            for p, marker in markers.last_committed(access, job, range(had)).items():
                commit.refuse_other_run(marker, run, str(markers.marker_partition(job, p)))
                if sender is not None:  # before anything of the batch is staged
                    query.refuse_earlier(marker, batch, str(markers.marker_partition(job, p)))
        if partitions is not None:
            frame = frame.repartition(partitions)
        elif had is not None:
            frame = frame.coalesce(had)
        files = staging.stage(frame, storage, partitions or had)
        marker_topic = _markers_ready(access, job, len(files), by_name[topic], marker_topic)
        manifest = staging.publish(
            storage,
            Manifest(
                job=job,
                batch=batch,
                topic=topic,
                topic_id=by_name[topic].topic_id,
                marker_topic_id=marker_topic.topic_id,
                files=tuple(files),
                created=now_ms(),
                run=run,
                planned=planned,
            ),
        )
        commit.refuse_other_run(manifest, run, folder)  # another run may have published first
    query.refuse_planned_anew(manifest, planned, folder)
    _refuse_changes(manifest, topic, by_name[topic], marker_topic)
    limits = transaction_timeout_ms, rows_per_transaction
    report = _send(spark, manifest, storage, access, *limits, in_query=sender is not None)
    if keep_batches is not None:
        _remove_older(storage_at(f"{root.address}/{job}"), batch, keep_batches)
    return report


def _refuse_words(job: str, batch: int) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", job) or job in (".", ".."):
        raise UsageError(f"{job!r} cannot name a job: letters, digits, . _ - as in a topic's name")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 0:
        raise UsageError(f"a batch is a number from 0, not {batch!r}")


def _remove_older(storage: Storage, batch: int, kept: int) -> None:
    """Remove the staged files of batches that were sent before this one, except the last ones.

    storage: the job's folder. This batch was sent: a file that cannot be removed is only logged.
    """
    try:
        sent = (re.fullmatch(SENT, name) for name in storage.names(""))
        numbers = sorted((int(match[1]) for match in sent if match), reverse=True)
        for number in [n for n in numbers if n <= batch][kept:]:
            storage.delete_folder(f"batch-{number}")
    except (OSError, EoctlError) as error:
        logging.getLogger("eoctl.sink").warning(
            "batch %d was sent; staged files of earlier ones stay, the next batch removes them: %s",
            batch,
            error.sentence if isinstance(error, EoctlError) else error,
        )


def refuse_speculation(spark: "SparkSession") -> None:
    """Raise RefusedError while spark.speculation is on."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise RefusedError(
            "spark.speculation is on: attempts of one partition would fence one another",
            remedy="turn it off, or allow it explicitly",
        )


def _same_count(job: str, count: int, marker_topic: TopicMetadata) -> None:
    had = len(marker_topic.partitions)
    if count != had:
        raise RefusedError(
            f"the sink has {counted(had, 'partition')}, the DataFrame {count}",
            where=markers.name(job),
            remedy=f"give partitions={had}, or another job name",
        )


def _markers_ready(
    access: Access,
    job: str,
    count: int,
    topic: TopicMetadata,
    marker_topic: TopicMetadata | None,
) -> TopicMetadata:
    """Check that every partition has had marker 0. Raises RefusedError."""
    if marker_topic is None:
        replicas = min(len(p.replicas) for p in topic.partitions)
        markers.create_topic(access, job, count, replicas)
        marker_topic = _created(access, job)
    _same_count(job, count, marker_topic)
    committed = markers.last_committed(access, job, range(count))
    absent = [p for p in range(count) if p not in committed]
    if absent:
        once = markers.initialised(access, job, count)
        if gone := [p for p in absent if p in once]:
            decided = markers.committed(access, job, gone, DECIDED_SECONDS)
            gone = [p for p in gone if p not in decided]
        if gone:
            raise commit.expired(job, gone)
        for p in absent:
            _first_marker(access, job, p)
    return marker_topic


def _created(access: Access, job: str) -> TopicMetadata:
    end = time.monotonic() + markers.ANSWER_SECONDS
    while time.monotonic() < end:
        marker_topic = markers.topics(access, [markers.name(job)]).get(markers.name(job))
        if marker_topic is not None and all(p.leader is not None for p in marker_topic.partitions):
            return marker_topic
        time.sleep(markers.PAUSE_SECONDS)
    raise IncompleteError("was created and is not seen yet", where=markers.name(job))


def _first_marker(access: Access, job: str, partition: int) -> None:
    """Commit marker 0 and the record that reports it, in one transaction."""
    with suppress(FencedError):  # another run does the same
        if partition not in _take_over(access, job, partition, None):
            raise IncompleteError("its first marker was not committed", where=markers.name(job))


def _take_over(
    access: Access, job: str, partition: int, marker: Marker | None
) -> dict[int, Marker]:
    """Fence, read the markers, commit `marker` again as it is (None: marker 0 if absent)."""
    topic_partition = markers.marker_partition(job, partition)
    ids = markers.transactional_id(job, partition), markers.name(job)
    writer = Writer(access.settings(), *ids, timeout_ms=TRANSACTION_TIMEOUT_MS)
    try:
        writer.open()
        committed = markers.committed(access, job, [partition])
        now = now_ms()
        standing = committed.get(partition)
        if marker is not None and standing is None:
            raise commit.expired(job, [partition])
        if marker is None and standing is not None:
            return committed
        writer.begin()
        if standing is None:
            renewed = markers.first(now)
            text = json.dumps({"partition": partition, "marker": 0, "at": now})
            writer.send(*topic_partition, None, text.encode())
        else:
            renewed = replace(standing, written=now)
        writer.commit({topic_partition: renewed.position})
    finally:
        writer.close()
    return markers.committed(access, job, [partition])


def _refuse_changes(
    manifest: Manifest, topic: str, now: TopicMetadata, marker_topic: TopicMetadata | None
) -> None:
    """Refuse a batch if a topic has changed since the staging. Raises RefusedError."""
    job = manifest.job
    if manifest.topic != topic:
        raise RefusedError(
            f"batch {manifest.batch} was staged for topic {manifest.topic}", where=topic
        )
    if manifest.topic_id != now.topic_id:
        raise RefusedError("the topic was recreated since the batch was staged", where=topic)
    if marker_topic is None or manifest.marker_topic_id != marker_topic.topic_id:
        raise RefusedError(
            "the marker topic was deleted, and the markers with it",
            where=markers.name(job),
            remedy="compare the topic with the staged files, then go on under a new job name",
        )
    _same_count(job, len(manifest.files), marker_topic)


def _send(
    spark: "SparkSession",
    manifest: Manifest,
    storage: Storage,
    access: Access,
    transaction_timeout_ms: int,
    rows_per_transaction: int,
    *,
    in_query: bool,
) -> dict[str, Any]:
    digest, job = manifest.sha256, manifest.job
    begin = time.monotonic()
    works = [
        commit.Work(
            access=access,
            job=job,
            topic=manifest.topic,
            batch=manifest.batch,
            manifest=digest,
            partition=staged.partition,
            file=staged,
            folder=storage.address,
            transaction_timeout_ms=transaction_timeout_ms,
            rows_per_transaction=rows_per_transaction,
            run=manifest.run,
        )
        for staged in manifest.files
    ]
    before = markers.last_committed(access, job, [w.partition for w in works])
    if absent := [w.partition for w in works if w.partition not in before]:  # or only pending
        before |= markers.committed(access, job, absent, DECIDED_SECONDS)
    _judged(works, before)
    done_before = DONE in storage.top()
    newer = [p for p, marker in before.items() if marker.batch > manifest.batch]
    if newer and in_query:
        query.refuse_earlier(
            before[newer[0]], manifest.batch, str(markers.marker_partition(job, newer[0]))
        )
    if newer and not done_before:
        raise RefusedError(
            f"batch {before[newer[0]].batch} was sent after it, and nothing proves that batch "
            f"{manifest.batch} was sent completely",
            where=str(markers.marker_partition(job, newer[0])),
            remedy="batches are sent in the order of their numbers",
        )
    answers: list[Any] = []
    if not newer:
        with _Renewal(access, works, before):
            answers = executors.run(
                spark,
                lambda p: commit.Attempt(works[p]).run(),
                len(works),
                f"eoctl sink {job}, batch {manifest.batch}",
                sends=True,
            )
        _verify(access, works)
    report = {
        "job": job,
        "batch": manifest.batch,
        "topic": manifest.topic,
        "manifest_sha256": digest,
        "partitions": len(works),
        "rows": manifest.rows,
        "rows_sent_now": sum(a["sent"] for a in answers),
        "transactions": sum(a["transactions"] for a in answers),
        "takeovers": sum(a["takeovers"] for a in answers),
        "atomic": False,
        "seconds": round(time.monotonic() - begin, 3),
    }
    if not done_before:
        storage.put_new(DONE, json.dumps(report, indent=1).encode())  # or keeps another run's
        listed = {staged.file for staged in manifest.files}
        stale = [n for n in storage.top() if n.startswith("part-") and n not in listed]
        storage.delete(stale)  # left by attempts that did not count
    return report


def _judged(works: list[commit.Work], by_partition: dict[int, Marker]) -> dict[int, Marker]:
    """Return all markers after judging each one. Raises RefusedError."""
    job = works[0].job
    if absent := [w.partition for w in works if w.partition not in by_partition]:
        raise commit.expired(job, absent)
    for work in works:
        commit.judge(by_partition[work.partition], work)
    return by_partition


def _verify(access: Access, works: list[commit.Work]) -> None:
    """Check that every partition's marker says the batch is complete. Raises UnverifiedError."""
    by_partition = markers.committed(access, works[0].job, [w.partition for w in works])
    for p, marker in _judged(works, by_partition).items():
        if (marker.batch, marker.complete) != (works[p].batch, True):
            raise UnverifiedError(
                f"the marker says batch {marker.batch}, row {marker.next_row} of {marker.rows}",
                where=str(markers.marker_partition(works[p].job, p)),
            )


class _Renewal:
    """Commits old markers again before they expire, while a batch is sent.

    Only for partitions whose turn has not come: a marker that old has no live attempt, because an
    attempt commits at least once within a transaction's timeout.
    """

    def __init__(self, access: Access, works: list[commit.Work], before: dict[int, Marker]) -> None:
        retention = markers.retention_ms(access)
        self.half = (UNKNOWN_RETENTION_MS if retention is None else retention) // 2
        self._access, self._works, self._before = access, works, before
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="eoctl-markers", daemon=True)

    def __enter__(self) -> None:
        self._renew(self._before)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        job = self._works[0].job
        while not self._ended.wait(self.half / 4000):
            with suppress(EoctlError):  # the tasks report what is wrong
                self._renew(markers.committed(self._access, job, range(len(self._works))))

    def _renew(self, by_partition: dict[int, Marker]) -> None:
        limit = now_ms() - self.half
        for p, marker in by_partition.items():
            finished = marker.batch == self._works[p].batch and marker.complete
            if marker.written < limit and not finished and not self._ended.is_set():
                with suppress(FencedError):  # another run does the same, or sends
                    _take_over(self._access, self._works[p].job, p, marker)
