"""The exactly-once sink for `DataStreamWriter.foreachBatch`.

    from spark_jobs.sink.foreach import foreach_batch

    send = foreach_batch(topic="clean", job="orders", staging_folder="/shared/staging",
                         access=access)
    frame.writeStream.foreachBatch(send).option("checkpointLocation", "/shared/orders").start()

A query that is started again with its checkpoint sends what is missing and nothing twice. Batches
of another checkpoint under the same job name are refused: those were recreated, or set back.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection.access import Access
from recovery.errors import EoctlError, RefusedError, UsageError
from spark_jobs.sink import query
from spark_jobs.sink.write import write_exactly_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def foreach_batch(
    *,
    topic: str,
    job: str,
    staging_folder: str | Path,
    access: Access,
    checkpoint: str | None = None,
    **options: Any,
) -> "Callable[[DataFrame, int], None]":
    """Return a function that sends each batch of a streaming query exactly once.

    checkpoint: the query's checkpointLocation, which must be named under Spark Connect. options:
    further ones of `write_exactly_once`; staged files of earlier batches are removed (keep_batches
    is 1 unless given). Raises UsageError for options that the query decides.
    """
    for name in {"run_id", "batch"} & options.keys():
        raise UsageError("the streaming query says it", where=name, remedy="leave it out")
    sink: dict[str, Any] = {"keep_batches": 1, **options}
    sink |= {"topic": topic, "job": job, "staging_folder": staging_folder, "access": access}

    def send(frame: "DataFrame", batch: int) -> None:
        if checkpoint is None:
            sender = query.sender(frame.sparkSession, batch, None)
            if sender is None:
                raise UsageError(
                    "no streaming query calls this",
                    where="foreach_batch",
                    remedy="give it to foreachBatch; for a batch, call write_exactly_once",
                )
            if sender.planned is None:
                raise RefusedError(
                    f"this Spark does not show what its checkpoint says about batch {batch}",
                    where="foreach_batch",
                    remedy="give checkpoint=, the query's checkpointLocation",
                )
        try:
            write_exactly_once(frame, batch=batch, checkpoint=checkpoint, **sink)
        except EoctlError as error:  # Spark Connect passes on 2,048 characters, the stack first
            raise error.with_traceback(None) from None

    return send
