"""Find the streaming query that sends a batch, and which of the batches with that number it is.

A query's checkpoint says what a batch reads before the batch runs (`offsets/N`), and still says so
when Spark repeats the batch. A checkpoint that was set back has lost that entry: Spark plans the
batch again, with what has arrived since then.
"""

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from recovery.errors import RefusedError, UsageError
from recovery.values import Value
from spark_jobs.session import executors
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.staging import Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_ID = "sql.streaming.queryId"
"""Spark's StreamExecution sets it for all that a micro-batch runs."""


class Sender(Value):
    """A streaming query that sends a batch.

    planned: SHA-256 of what its checkpoint says about the batch; None if Spark does not say.
    """

    id: str
    planned: str | None


def sender(spark: "SparkSession", batch: int, checkpoint: str | None) -> Sender | None:
    """Return the query whose foreachBatch runs in this thread, None outside of one.

    checkpoint: its checkpointLocation; None: as Spark reports it, which Spark Connect does not.
    Raises UsageError within a Spark Connect server if none is given, and for another query's.
    """
    if checkpoint is None:
        query = query_id(spark)
        return None if query is None else Sender(query, planned(spark, query, batch))
    query, entry = _read(spark, checkpoint.rstrip("/"), batch)
    if not executors.is_connect(spark) and query_id(spark) not in (None, query):
        raise _not_of_query(checkpoint, f"is of query {query}")
    return Sender(query, hashlib.sha256(entry).hexdigest())


def _read(spark: "SparkSession", root: str, batch: int) -> tuple[str, bytes]:
    """Return the query's id and the batch's entry from a checkpoint that ends with this entry.

    Uses Spark's own reader: only that can read every file system a checkpoint may be on.
    """
    log = f"offsets/{batch}"
    paths = [f"{root}/metadata", f"{root}/{{offsets,commits}}/{{{batch},{batch + 1}}}"]
    try:
        rows = spark.read.format("binaryFile").load(paths).select("path", "content").collect()
    except Exception as error:
        raise _not_of_query(root, f"cannot be read: {str(error).splitlines()[0]}") from None
    files = {}
    for row in rows:
        folder, name = row["path"].split("/")[-2:]
        files[name if name == "metadata" else f"{folder}/{name}"] = bytes(row["content"])
    if files.keys() != {"metadata", log}:
        raise _not_of_query(root, f"does not say that batch {batch} runs")
    return str(json.loads(files["metadata"])["id"]), files[log]


def _not_of_query(checkpoint: str, why: str) -> UsageError:
    remedy = "give the checkpointLocation of the query that runs, exactly as it is written there"
    return UsageError(f"the checkpoint {why}", where=checkpoint, remedy=remedy)


def query_id(spark: "SparkSession") -> str | None:
    """Return the id of the query whose foreachBatch runs in this thread, None outside of one.

    Raises UsageError within a Spark Connect server, which does not say whose foreachBatch this is.
    """
    if not executors.is_connect(spark):
        return spark.sparkContext.getLocalProperty(QUERY_ID)
    if "SPARK_CONNECT_LOCAL_URL" in os.environ:  # set by Spark's foreach_batch_worker
        raise UsageError(
            "Spark Connect does not show which streaming query this batch belongs to",
            remedy="give checkpoint=, the query's checkpointLocation",
        )
    return None


def planned(spark: "SparkSession", query: str, batch: int) -> str | None:
    """Return SHA-256 of what the query's checkpoint says about the batch, None if that is unknown.

    Uses Spark classes that are no public API: if another version lacks some, the batch is sent.
    """
    session: Any = spark
    try:
        jvm, inner = session.sparkContext._jvm, session._jsparkSession
        number = jvm.java.util.UUID.fromString(query)
        root = inner.sharedState().activeStreamingQueries().get(number).resolvedCheckpointRoot()
        path = jvm.org.apache.hadoop.fs.Path(f"{root}/offsets/{batch}")
        file = path.getFileSystem(inner.sessionState().newHadoopConf()).open(path)
        try:
            entry = jvm.org.apache.commons.io.IOUtils.toByteArray(file)
        finally:
            file.close()
    except Exception:
        return None
    return hashlib.sha256(entry).hexdigest()


def refuse_planned_anew(manifest: Manifest, now: str | None, where: str) -> None:
    """Refuse a batch that is not the one staged under its number. Raises RefusedError."""
    if None not in (manifest.planned, now) and manifest.planned != now:
        raise _set_back(
            f"batch {manifest.batch} was staged before, and the query's checkpoint has planned it "
            "again since",
            where,
        )


def refuse_earlier(marker: Marker, batch: int, where: str) -> None:
    """Refuse a query's batch that precedes one that was sent. Raises RefusedError."""
    if marker.batch > batch:
        what = (
            f"batch {marker.batch} was sent after it. Spark never repeats a batch before its last"
        )
        raise _set_back(what, where)


def _set_back(what: str, where: str) -> RefusedError:
    """Return the refusal of a batch whose number belonged to another batch."""
    return RefusedError(
        f"{what}: its checkpoint was set back, and this batch may hold other rows",
        where=where,
        remedy="give the query its newest checkpoint again, or another job name",
    )
