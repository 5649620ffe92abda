"""The Data Source's columns as Spark knows them, and records turned into Arrow.

Arrays are made from numpy's memory: `pa.array` of a numpy array would load pandas in each worker.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from recovery.errors import RefusedError
from recovery.formats.batches import CODEC_MASK, CODECS, CONTROL, TIMESTAMP_TYPE, TRANSACTIONAL
from recovery.formats.columns import NO_TIMESTAMP, OUTCOMES, Batches, ColumnBatch, int64_array
from recovery.formats.records import replaced

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

LAST_MS = (2**63 - 1) // 1000
HEADERS = "array<struct<key:string,value:binary>>"

_PRODUCER = {
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "is_transactional": "boolean",
    "is_control": "boolean",
    "outcome": "string",
}

RECORD: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS,
    **_PRODUCER,
}
"""A row per record: Spark's own Kafka source's columns, then what became of its transaction.

timestampType: 0 CreateTime, 1 LogAppendTime. Producer fields: -1 where there is none. outcome:
committed, aborted, open, or none for a record that is in no transaction.
"""

BATCH: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "last_offset": "bigint",
    "records": "int",
    "bytes": "int",
    "codec": "string",
    "timestamp": "timestamp",
    "timestampType": "int",
    **_PRODUCER,
}
"""A row per record batch (headers_only): nothing is decompressed. offset, last_offset: of the
batch, which may reach beyond the range; records: that it holds now, markers included; timestamp:
the latest; sequence: the first."""


def never_null(column: str) -> bool:
    """Return True if no row lacks a value. A producer may write no timestamp (-1)."""
    return column not in ("key", "value", "timestamp", "headers")


def ddl(columns: Mapping[str, str]) -> str:
    """Return the columns as in Spark's CREATE TABLE."""
    return ", ".join(
        f"`{name}` {kind}{' NOT NULL' if never_null(name) else ''}"
        for name, kind in columns.items()
    )


def records(
    batch: ColumnBatch, topic: str, partition: int, schema: "pa.Schema"
) -> "pa.RecordBatch":
    """Return the columns that `schema` (of RECORD) names."""
    import pyarrow as pa

    scan = batch.batches.scan
    made: dict[str, Callable[[], Any]] = {
        "key": lambda: batch.key.array().cast(pa.binary()),
        "value": lambda: batch.value.array().cast(pa.binary()),
        "topic": lambda: _repeated(topic, len(batch)),
        "partition": lambda: _int32(_full(partition, len(batch))),
        "offset": lambda: int64_array(batch.offset),
        "timestamp": lambda: _timestamp(batch.timestamp),
        "timestampType": lambda: _int32(_timestamp_type(batch.batches)[batch.batch]),
        "headers": lambda: _headers(batch, schema.field("headers").type),
        "producer_id": lambda: int64_array(batch.producer_id),
        "producer_epoch": lambda: _int32(batch.producer_epoch),
        "sequence": lambda: _int32(batch.sequence),
        "is_transactional": lambda: _bool(scan.has(TRANSACTIONAL)[batch.batch]),
        "is_control": lambda: _bool(scan.has(CONTROL)[batch.batch]),
        "outcome": lambda: _words(OUTCOMES, batch.outcome),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in schema.names], schema=schema)


def batch_rows(
    batches: Batches, topic: str, partition: int, schema: "pa.Schema"
) -> "pa.RecordBatch":
    """Return the columns that `schema` (of BATCH) names."""
    import pyarrow as pa

    from recovery.formats.batches import LOG_OVERHEAD

    scan = batches.scan
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: _repeated(topic, len(scan)),
        "partition": lambda: _int32(_full(partition, len(scan))),
        "offset": lambda: int64_array(scan.column("base_offset")),
        "last_offset": lambda: int64_array(scan.last_offset),
        "records": lambda: _int32(scan.column("records_count")),
        "bytes": lambda: _int32(scan.column("length") + LOG_OVERHEAD),
        "codec": lambda: _words(_CODEC_WORDS, scan.fields["attributes"] & CODEC_MASK),
        "timestamp": lambda: _timestamp(scan.column("max_timestamp")),
        "timestampType": lambda: _int32(_timestamp_type(batches)),
        "producer_id": lambda: int64_array(scan.column("producer_id")),
        "producer_epoch": lambda: _int32(scan.column("producer_epoch")),
        "sequence": lambda: _int32(scan.column("base_sequence")),
        "is_transactional": lambda: _bool(scan.has(TRANSACTIONAL)),
        "is_control": lambda: _bool(scan.has(CONTROL)),
        "outcome": lambda: _words(OUTCOMES, batches.outcome),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in schema.names], schema=schema)


_CODEC_WORDS = (*CODECS, *(f"codec {n}" for n in range(len(CODECS), CODEC_MASK + 1)))


def _full(value: int, count: int) -> "NDArray[np.int64]":
    import numpy as np

    return np.full(count, value, np.int64)


def _timestamp_type(batches: Batches) -> "NDArray[np.int64]":
    import numpy as np

    appended: NDArray[np.int64] = batches.scan.has(TIMESTAMP_TYPE).astype(np.int64)
    return appended


def _int32(values: "NDArray[Any]") -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    buffer = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int32))
    return pa.Array.from_buffers(pa.int32(), len(values), [None, buffer])


def _bool(values: "NDArray[np.bool_]") -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    buffer = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, buffer])


def _timestamp(millis: "NDArray[np.int64]") -> "pa.Array":
    """Return Spark's microseconds in UTC, null if there are none. Raises RefusedError for what
    Spark's timestamps cannot express: some producers write nanoseconds."""
    import pyarrow as pa

    if len(millis) and max(-int(millis.min()), int(millis.max())) > LAST_MS:
        raise RefusedError(
            "a record's timestamp is farther away than Spark's timestamps reach",
            where="column timestamp",
            remedy="name the other columns in the option columns",
        )
    array = int64_array(millis * 1000, millis == NO_TIMESTAMP)
    kind = pa.timestamp("us", tz="UTC")
    return pa.Array.from_buffers(kind, len(array), array.buffers())


def _repeated(text: str, count: int) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    data = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _words(words: tuple[str, ...], which: "NDArray[Any]") -> "pa.Array":
    """Return words[i] for each i."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *(len(word) for word in words)], dtype=np.int32)
    data = "".join(words).encode()
    each = pa.Array.from_buffers(
        pa.string(), len(words), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    return each.take(_int32(which))


def _headers(batch: ColumnBatch, kind: "pa.DataType") -> "pa.Array":
    """Return headers as Spark's own source does: null for none, U+FFFD in a name not in UTF-8."""
    import pyarrow as pa

    rows = [
        [{"key": replaced(key), "value": value} for key, value in batch.header_list(i)] or None
        for i in range(len(batch))
    ]
    return pa.array(rows, kind)
