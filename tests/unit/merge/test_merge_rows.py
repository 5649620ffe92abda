"""The check of Spark's joined rows against the local engine's state machine, on random logs."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.merge.log import MergeEntry
from recovery.merge.merge_request import MergePart, ReplayRequest
from recovery.merge.reading import no_record
from recovery.merge.replay import Base, Replay, ReplayPosition
from spark_jobs.merge_rows import _checked
from tests.share import share

MERGE = TopicPartition("m", 3)
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("merge_offset", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("there", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
REQUEST: dict[str, Any] = {
    "merge": "m",
    "format": "json",
    "inputs": ("a", "b"),
    "output": "o",
    "isolation": "read_committed",
    "group": "g",
    "staging": "/nowhere",
    "cluster_id": None,
    "created_at": "",
    "topic_ids": {},
    "logs": (),
    "range_offsets": 5,
}


def world(
    draw: random.Random,
) -> tuple[dict[TopicPartition, list[int]], list[tuple[int, MergeEntry]]]:
    """Visible offsets of two inputs, and a log over them: true, or with one or two faults."""
    inputs = {TopicPartition(name, 0): sorted(draw.sample(range(60), 20)) for name in ("a", "b")}
    queues = [[MergeEntry(*partition, o) for o in offsets] for partition, offsets in inputs.items()]
    order: list[MergeEntry] = []
    while queues := [q for q in queues if q]:
        order.append(draw.choice(queues).pop(0))
    for _ in range(draw.choice([0, 1, 2])):
        partition = draw.choice(sorted(inputs))
        if draw.random() < 0.5:  # a record that the log leaves out
            order.remove(draw.choice([e for e in order if e.topic_partition == partition]))
        else:  # an entry for a record that is not there
            inputs[partition].remove(draw.choice(inputs[partition]))
    offsets = sorted(draw.sample(range(200), len(order)))
    return inputs, list(zip(offsets, order, strict=True))


def local(
    inputs: dict[TopicPartition, list[int]], log: list[tuple[int, MergeEntry]], drop: int
) -> tuple[list[int], str | None]:
    """What the local engine takes before it refuses, as offsets of the log, and its sentence."""
    replay: Replay[tuple[TopicPartition, int]] = Replay(MERGE, ReplayPosition(0, drop))
    for merge_offset, entry in log:
        replay.log(merge_offset, entry)
    for partition, offsets in inputs.items():
        replay.records(partition, offsets, [(partition, o) for o in offsets])
    at = {(entry.topic_partition, entry.offset): merge_offset for merge_offset, entry in log}
    taken: list[int] = []
    try:
        while some := replay.take(7):
            taken += [at[record] for record in some]
        if replay.waits_for is not None:
            raise no_record(MERGE, replay.waits_for)
    except RefusedError as error:
        return taken, error.sentence
    return taken, None


def joined(
    inputs: dict[TopicPartition, list[int]], log: list[tuple[int, MergeEntry]]
) -> list[dict[str, Any]]:
    """The full outer join up to the last entry of each input, as Spark sorts it."""
    named = {(entry.topic_partition, entry.offset): merge_offset for merge_offset, entry in log}
    last = {partition: max(o for p, o in named if p == partition) for partition in inputs}
    first = {partition: min(o for p, o in named if p == partition) for partition in inputs}
    rows: list[tuple[int | None, str, int, int, int | None]] = [
        (named.get((partition, o)), *partition, o, 1)
        for partition, offsets in inputs.items()
        for o in offsets
        if first[partition] <= o <= last[partition]
    ]
    there = {(row[1:3], row[3]) for row in rows}
    rows += [
        (m, *partition, o, None)
        for (partition, o), m in named.items()
        if (partition, o) not in there
    ]
    rows.sort(key=lambda row: (row[0] is not None, row[0] or 0, row[3]))
    content = {"part": 0, "key": b"k", "value": None, "headers": None, "timestamp": 1000}
    names = ("merge_offset", "topic", "partition", "offset", "there")
    return [content | dict(zip(names, row, strict=True)) for row in rows]


def spark(rows: list[dict[str, Any]], drop: int, size: int) -> tuple[list[int], str | None]:
    part = MergePart(
        partition=3, base=Base(0, TopicPartition("o", 3), 0), position=0, drop_left=drop, tip=999
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[at : at + size], schema=SCHEMA)

    taken: list[int] = []
    try:
        for batch in _checked(ReplayRequest(**REQUEST, parts=(part,)), part, batches()):
            assert set(batch.column("partition").to_pylist()) == {3}
            taken += batch.column("position").to_pylist()
    except RefusedError as error:
        return taken, error.sentence
    return taken, None


@pytest.mark.parametrize(
    ("content", "said", "local_takes_it"),
    [
        ({"headers": [{"key": "a\ufffd", "value": b""}]}, "holds U+FFFD, or is not UTF-8", True),
        ({"timestamp": None}, "it has no timestamp: the record could not", True),
        ({"timestamp": 0}, "its timestamp is 0, which would be sent as now", False),
    ],
)
def test_records_that_could_not_be_written_as_they_are(
    content: dict[str, Any], said: str, local_takes_it: bool
) -> None:
    inputs: dict[TopicPartition, list[int]] = {TopicPartition("a", 0): [4, 7]}
    rows = joined(inputs, [(1, MergeEntry("a", 0, 4)), (2, MergeEntry("a", 0, 7))])
    rows[1] |= content
    taken, refused = spark(rows, 0, 100)
    assert taken == []
    assert refused is not None
    assert refused.startswith("a:0 at 7: ")
    assert said in refused
    assert ("--engine local" in refused) is local_takes_it


@pytest.mark.parametrize("seed", range(share(150, 30)))
def test_rows_are_refused_and_dropped_as_the_local_engine_does(seed: int) -> None:
    draw = random.Random(seed)
    inputs, log = world(draw)
    # the local engine begins to read an input where the log first names it
    for partition in inputs:
        first = min(e.offset for _, e in log if e.topic_partition == partition)
        inputs[partition] = [o for o in inputs[partition] if o >= first]
    drop = draw.choice([0, draw.randrange(30)])
    expected, refused = local(inputs, log, drop)
    taken, said = spark(joined(inputs, log), drop, draw.choice([1, 4, 100]))
    assert said == refused
    if refused is None:
        assert taken == expected


def test_the_random_logs_are_of_all_kinds() -> None:
    """True ones, left out records, absent ones in the middle and at the end."""
    said = [local(*world(random.Random(seed)), 0)[1] or "true" for seed in range(150)]
    for word in ("true", "comes before it", "the next is at", "where there is no record;"):
        assert any(word in one for one in said), word
