"""From where a checkpoint's transactions are counted: their start, or the whole of their logs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.chunks import Range
from eoctl.operations.remedy import flink_transactions as flink
from recovery.facts import Missing, PartitionFacts, ProducerFacts, TopicPartition, TransactionFacts
from recovery.formats.flink_checkpoint import Committable
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.remedy.transaction_fates import Recorded

ONE = Committable("etl-0-7", 40, 3, 7, "")
OUT = [TopicPartition("out", p) for p in range(3)]


class Topics(Cluster):
    """Topics out, with three partitions from 5 to 60, and other, with one; gone is not there."""

    def __init__(self) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))

    async def metadata(self, topics: Any = None) -> ClusterMetadata:
        found = {}
        for name in topics:
            count = {"out": 3, "other": 1}.get(name, 0)
            members = tuple(PartitionMetadata(name, p, 1, 0, (1,), None) for p in range(count))
            found[name] = TopicMetadata(name, name, False, members, None if count else "UNKNOWN")
        return ClusterMetadata("c", 1, {}, found)


def open_id(pid: int = 40, epoch: int = 3, state: str = "Ongoing", *at: int) -> TransactionFacts:
    partitions = tuple(OUT[p] for p in at)
    return TransactionFacts("etl-0-7", 1, pid, state, epoch, 60_000, 1, partitions)


def counted(
    was: Recorded = Recorded(),
    row: TransactionFacts | None = None,
    loose: Sequence[TransactionFacts] = (),
    topics: Sequence[str] = (),
    starts: Sequence[tuple[int, int, int | None]] = (),
    records: Sequence[StateRecord] = (),
) -> tuple[dict[str, tuple[int, int]], set[tuple[int, int]], list[Missing]]:
    """The ranges that are read, for which transactions. starts: partition, producer, start."""
    read: list[Any] = []

    async def offsets(cluster: Any, given: Any, parts: Any) -> Any:
        facts = [
            PartitionFacts(p.topic, p.partition, log_start_offset=5, high_watermark=60)
            for p in parts
        ]
        return facts, []

    async def producers(cluster: Any, parts: Any) -> Any:
        found: dict[TopicPartition, Any] = {}
        for partition, pid, start in starts:
            one = ProducerFacts("out", partition, pid, 3, 1, 1, 0, start)
            found.setdefault(OUT[partition], []).append(one)
        return {p.topic_partition: found.get(p.topic_partition, ()) for p in parts}, []

    async def written(cluster: Any, ranges: Sequence[Range], wanted: Any) -> Any:
        read.append(({str(r.topic_partition): (r.start, r.end) for r in ranges}, set(wanted)))
        return {}, []

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(collect, "partition_offsets", offsets)
        monkeypatch.setattr(collect, "producers", producers)
        monkeypatch.setattr(flink, "written", written)
        rows = {} if row is None else {"etl-0-7": row}
        asked = flink._amounts(Topics(), {ONE: was}, rows, loose, records, topics)
        _, missing = asyncio.run(asked)
    [(ranges, wanted)] = read
    return ranges, wanted, missing


def test_an_open_one_is_counted_from_its_start() -> None:
    """The earliest on a partition; from the log start where its leader does not say it."""
    row = open_id(40, 3, "Ongoing", 0, 1, 2)
    starts = [(0, 40, 20), (0, 41, 9), (1, 40, 2), (2, 40, None)]
    ranges, wanted, _ = counted(row=row, starts=starts)
    assert ranges == {"out:0": (20, 60), "out:1": (5, 60), "out:2": (5, 60)}
    assert wanted == {(40, 3)}


@pytest.mark.parametrize(
    "row",
    [
        None,
        open_id(40, 3, "CompleteAbort", 0),
        open_id(40, 4, "Ongoing", 0),
        open_id(41, 3, "Ongoing", 0),
    ],
)
def test_one_that_ended_is_counted_over_whole_logs(row: TransactionFacts | None) -> None:
    was = Recorded("abort", partitions=(OUT[1],))
    assert counted(was, row, starts=[(1, 40, 20)])[:2] == ({"out:1": (5, 60)}, {(40, 3)})
    committed = Recorded("commit", partitions=(OUT[1],))
    assert counted(committed, row)[:2] == ({}, set())


def test_one_that_is_forgotten_is_looked_for_in_its_topics() -> None:
    """Those that were named, and those of any record of the same ids."""
    everywhere = {f"out:{p}": (5, 60) for p in range(3)}
    assert counted(topics=["out"])[0] == everywhere
    value = TransactionValue(
        producer_id=40,
        producer_epoch=1,
        timeout_ms=60_000,
        state=TransactionState("Ongoing"),
        partitions=(TopicPartition("other", 0),),
        last_update_ms=1,
        start_ms=1,
        client_transaction_version=2,
    )
    records = [StateRecord("etl-0-7", 0, 1, 1, value), StateRecord("etl-0-7", 0, 2, 1, None)]
    ranges, wanted, missing = counted(topics=["out", "gone"], records=records)
    assert ranges == everywhere | {"other:0": (5, 60)}
    assert wanted == {(40, 3)}
    assert [(m.error, m.topic) for m in missing] == [("UNKNOWN", "gone")]


def test_others_of_the_sinks_are_counted_too() -> None:
    loose = [open_id(50, 1, "Ongoing", 2)]
    committed = Recorded("commit")
    ranges, wanted, _ = counted(committed, None, loose, starts=[(2, 50, 30), (2, 40, 10)])
    assert (ranges, wanted) == ({"out:2": (30, 60)}, {(50, 1)})
