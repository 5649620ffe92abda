"""Reading a range with confluent-kafka: the fallback, and an independent check of the own reader.

Slower, and it shows only what a read_committed consumer gets: nothing of aborted records.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.properties import ClientSettings
from recovery.errors import IncompleteError
from recovery.formats.columns import rows_schema

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES = 20_000
WAIT_SECONDS = 0.2  # consume() waits the whole time at the end of a partition
SILENT_SECONDS = 30.0


def read(
    settings: ClientSettings,
    topic: str,
    partition: int,
    start: int,
    end: int,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator["pa.RecordBatch"]:
    """The visible records with offsets in [start, end), as `rows_schema`.

    end must not be above the last stable offset. Raises IncompleteError.
    """
    import time

    from confluent_kafka import KafkaError, TopicPartition

    if start >= end:
        return
    config = {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # a marker at the end has no message to stop at
        "auto.offset.reset": "error",
        "check.crcs": True,
        "queued.max.messages.kbytes": 65536,
    }
    consumer = confluent.consumer(settings, config)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        position, heard, done = start, time.monotonic(), False
        while not done:
            messages = consumer.consume(MESSAGES, WAIT_SECONDS)
            batch = []
            for message in messages:
                error = message.error()
                if error is None:
                    if message.offset() >= end:
                        done = True
                        break
                    batch.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    done = message.offset() >= end
                    if not done and message.offset() > position:
                        position = message.offset()
                else:
                    raise IncompleteError(error.str(), where=f"{topic}-{partition}")
            if batch:
                rows = _rows(batch)
                before, position = position, batch[-1].offset() + 1
                if progress is not None:
                    progress(rows.nbytes, position - before)
                yield rows
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise IncompleteError(
                    f"nothing came from offset {position} on", where=f"{topic}-{partition}"
                )
        if progress is not None:
            progress(0, end - position)
    finally:
        consumer.close()


def _rows(messages: list) -> "pa.RecordBatch":  # type: ignore[type-arg]
    import pyarrow as pa

    columns = (
        [m.offset() for m in messages],
        [None if m.timestamp()[0] == 0 else m.timestamp()[1] for m in messages],
        [m.key() for m in messages],
        [m.value() for m in messages],
    )
    schema = rows_schema()
    arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
