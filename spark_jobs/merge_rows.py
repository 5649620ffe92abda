"""Decode the entries of a merge replay inside Spark's tasks and check the joined stream.

`checked` sees all entries of one partition of the log in order, each with its record, and refuses
what the local engine's `recovery.merge.replay.Replay` refuses, with the same sentences.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.merge.log import MergeEntry, merge_format
from recovery.merge.merge_request import MergePart, ReplayRequest
from recovery.merge.reading import entries_of, mismatch, no_record
from recovery.plurals import counted
from recovery.shared.app_file import named

REPLACED = "\ufffd"  # in place of a header name that is not UTF-8, or is this character

Through = Callable[[Iterator[Any]], Iterator[Any]]


def decode(form: str, topic: str, numbers: Mapping[int, int]) -> Through:
    """Return a mapInArrow function: the log's records as entries. numbers: part by partition."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.schema(
            [
                ("part", pa.int32()),
                ("merge_offset", pa.int64()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
            ]
        )
        decoder = merge_format(form)
        for batch in batches:
            columns = [batch.column(n).to_pylist() for n in ("partition", "offset", "key", "value")]
            partitions, offsets, keys, values = columns
            if not offsets:
                continue
            [partition] = set(partitions)
            topic_partitions, entries = entries_of(
                decoder, TopicPartition(topic, partition), offsets, keys, values
            )
            arrays = [
                [numbers[partition]] * len(offsets),
                offsets,
                [topic_partition[0] for topic_partition in topic_partitions],
                [topic_partition[1] for topic_partition in topic_partitions],
                entries,
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array(a, f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema
            )

    return run


def checked(replay: ReplayRequest) -> Through:
    """Return a function for staging that gives rows as the sink sends them. It raises RefusedError
    for a wrong log and for a record that cannot be written unchanged."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        yield from _checked(replay, replay.parts[number], _only(batches, number))

    return run


def _only(batches: Iterator[Any], number: int) -> Iterator[Any]:
    """Yield the batches, whose rows must all belong to one part."""
    import pyarrow.compute as pc

    for batch in batches:
        if not pc.all(pc.equal(batch.column("part"), number)).as_py():
            raise RefusedError("Spark has mixed the partitions of the merge log")
        yield batch


def _checked(replay: ReplayRequest, part: MergePart, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    merge, drop = TopicPartition(replay.merge, part.partition), part.drop_left
    left_out: dict[TopicPartition, int] = {}  # by input: the first record without an entry
    absent: tuple[int, MergeEntry] | None = None  # the first entry without a record
    for batch in batches:
        without = pc.is_null(batch.column("merge_offset"))
        for row in batch.filter(without).select(["topic", "partition", "offset"]).to_pylist():
            left_out.setdefault(TopicPartition(row["topic"], row["partition"]), row["offset"])
        rows = batch.filter(pc.invert(without))
        if left_out or absent or rows.column("there").null_count:
            absent = _refuse_untrue(merge, rows, left_out, absent)
        if absent:
            continue
        here = min(drop, rows.num_rows)
        drop, rows = drop - here, rows.slice(here)
        if not rows.num_rows:
            continue
        _refuse_unlike(rows)
        count = rows.num_rows
        columns = {name: rows.column(name) for name in ("key", "value", "headers", "timestamp")}
        columns["partition"] = pa.array([part.partition] * count, pa.int32())
        columns["position"] = rows.column("merge_offset")
        yield pa.RecordBatch.from_pydict(columns)
    if absent:
        raise no_record(merge, absent[1])
    if left_out:  # the record lies between two entries, so one of these has reported it
        raise RefusedError(
            f"{counted(len(left_out), 'input has', 'inputs have')} records that it leaves out",
            where=named(merge),
        )


def _refuse_untrue(
    merge: TopicPartition,
    rows: Any,
    left_out: Mapping[TopicPartition, int],
    absent: tuple[int, MergeEntry] | None,
) -> tuple[int, MergeEntry] | None:
    """Refuse at the first entry that is not the next record of its input. An entry without a record
    is returned until the input's next record, which the refusal names, is known."""
    names = ("merge_offset", "topic", "partition", "offset", "there")
    columns = [rows.column(name).to_pylist() for name in names]
    for merge_offset, topic, partition, offset, there in zip(*columns, strict=True):
        entry = MergeEntry(topic, partition, offset)
        topic_partition = entry.topic_partition
        missed = left_out.get(topic_partition)
        if absent is None:
            if missed is not None and missed < offset:
                raise mismatch(merge, merge_offset, entry, missed)
            absent = None if there else (merge_offset, entry)
        elif topic_partition == absent[1].topic_partition and there:
            following = offset if missed is None else min(offset, missed)
            raise mismatch(merge, *absent, following)
    return absent


def _refuse_unlike(rows: Any) -> None:
    """Raise RefusedError for records that cannot be written as they were read."""
    import pyarrow.compute as pc

    keys = rows.column("headers").flatten().field("key")
    if pc.any(pc.match_substring(keys, REPLACED)).as_py():
        for row in rows.select(["topic", "partition", "offset", "headers"]).to_pylist():
            if any(REPLACED in header["key"] for header in row["headers"] or ()):
                why = "the name of a header holds U+FFFD, or is not UTF-8"
                raise _unlike(row, why, "--engine local takes it in the former case")
    millis = rows.column("timestamp").cast("timestamp[ms]", safe=False).cast("int64")
    if pc.any(pc.equal(pc.fill_null(millis, 0), 0)).as_py():
        at = pc.fill_null(millis, 0).to_pylist().index(0)
        row = rows.select(["topic", "partition", "offset"]).slice(at, 1).to_pylist()[0]
        if millis[at].as_py() is None:
            raise _unlike(row, "it has no timestamp", "--engine local takes it")
        raise _unlike(row, "its timestamp is 0, which would be sent as now")


def _unlike(row: Mapping[str, Any], why: str, remedy: str | None = None) -> RefusedError:
    return RefusedError(
        f"{why}: the record could not be written as it is",
        where=f"{row['topic']}:{row['partition']} at {row['offset']}",
        remedy=remedy,
    )
