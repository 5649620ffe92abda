"""`txn salvage`: the aborted records of lost transactions, copied exactly once, whatever is killed.

What lies where comes from plain consumers of librdkafka, who read it before and after.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.breaks.flink_job import write_checkpoint
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.facts import TransactionFacts
from tests.docs.pages import follows
from tests.kafka.command import Ran, environment, eoctl, unfinished
from tests.kafka.conftest import SOON, MakeTopic
from tests.kafka.crashed import until
from tests.kafka.merging import Copied, Partition, consumed, producer, transactional
from tests.kafka.offsets_oracle import consumed_number
from tests.kafka.reading import Reading
from tests.share import only_here

PARTITIONS = 2
RECORDS = 40
ACT = ("--execute", "--yes")
POINTS = (
    "read-again",
    "step-1-started",
    "salvage-opened",
    "salvage-sent",
    "salvage-committed",
    "step-1-performed",
    "step-1-done",
    "verified",
)


@pytest.fixture(scope="module", params=only_here([1, 2], 2))
def lab(request: pytest.FixtureRequest, lab1: Lab, start_lab: Callable[[LabSpec], Lab]) -> Lab:
    if request.param == 2:
        return lab1
    return start_lab(LabSpec(name="salvage-v1", transaction_version=1, settings=SOON))


@dataclass
class Sink:
    """A dead sink. lost: what each of its transactions wrote, in its order, by partition."""

    topic: str
    checkpoint: Path
    ids: list[TransactionFacts]
    lost: list[dict[Partition, list[Copied]]]

    @property
    def partitions(self) -> list[Partition]:
        return [(self.topic, p) for p in range(PARTITIONS)]


def described(lab: Lab, name: str) -> TransactionFacts:
    async def ask() -> TransactionFacts:
        async with Client.of(lab.client_properties()) as client:
            row = await client.transaction(name)
            assert row is not None
            return row

    return asyncio.run(ask())


def record(number: int, topic_partition: Partition, name: str) -> Copied:
    """Records of all shapes."""
    return (
        [None, b"", b"key-%d" % number][number % 3],
        None if number % 5 == 4 else f"{name} {topic_partition[1]} {number}".encode(),
        [None, [("h", b"1"), ("h", None)], [("\u00fc", b"")]][number % 3],
        1_700_000_000_000 + number,
    )


def produce(one: Any, topic_partition: Partition, copied: Copied) -> None:
    key, value, headers, timestamp = copied
    words = {"partition": topic_partition[1], "key": key, "value": value, "headers": headers}
    one.produce(topic_partition[0], **words, timestamp=timestamp, on_delivery=taken)


def taken(error: Any, _: Any) -> None:
    assert error is None, error


def died(
    lab: Lab, tmp_path: Path, make_topic: MakeTopic, *, subtasks: int = 2, lose: bool = True
) -> Sink:
    """A sink that died with its transactions prepared; others wrote between its records."""
    # its old timestamps would let retention take records while the test runs
    name = make_topic(lab, partitions=PARTITIONS, config={"retention.ms": "-1"})
    names = [f"{name}-{subtask}-7" for subtask in range(subtasks)]
    sinks, other = [], producer(lab, **{"enable.idempotence": True})
    lost: list[dict[Partition, list[Copied]]] = []
    for one_name in names:
        sinks.append(transactional(lab, one_name))
        sinks[-1].begin_transaction()
        lost.append({(name, p): [] for p in range(PARTITIONS)})
    for number in range(RECORDS):
        for one, one_name, mine in zip(sinks, names, lost, strict=True):
            for topic_partition in mine:
                mine[topic_partition].append(record(number, topic_partition, one_name))
                produce(one, topic_partition, mine[topic_partition][-1])
            if number == 0:  # so that they begin in this order
                assert one.flush(20) == 0
        if number % 8 == 0:
            for p in range(PARTITIONS):
                other.produce(name, f"other {number}", partition=p)
            for one in (*sinks, other):
                one.flush(20)
    for one in (*sinks, other):
        assert one.flush(20) == 0
    tops = {
        topic_partition: (0, end)
        for topic_partition, end in ends(lab, [(name, p) for p in range(PARTITIONS)]).items()
    }
    total = PARTITIONS * (subtasks * RECORDS + len(range(0, RECORDS, 8)))
    assert consumed_number(lab, "read_uncommitted", tops) == total
    rows = [described(lab, one_name) for one_name in names]
    assert {row.state for row in rows} == {"Ongoing"}
    checkpoint = tmp_path / name / "chk-7"
    promised = [(r.transactional_id, r.producer_id, r.producer_epoch or 0) for r in rows]
    write_checkpoint(checkpoint, name, promised)
    if lose:  # whoever initialises an id aborts what it has open, as a timeout does
        for one_name in names:
            transactional(lab, one_name)
    return Sink(name, checkpoint, rows, lost)


def contents(lab: Lab, partitions: Sequence[Partition]) -> dict[Partition, list[Copied]]:
    return {p: [copied for _, copied in rows] for p, rows in consumed(lab, partitions).items()}


def ends(lab: Lab, partitions: Sequence[Partition]) -> dict[Partition, int]:
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": "ends", "isolation.level": "read_uncommitted"}
    one = Consumer(lab.client_properties() | config)
    found = {
        partition: one.get_watermark_offsets(TopicPartition(*partition), 10)[1]
        for partition in partitions
    }
    one.close()
    return found


def salvage(lab: Lab, sink: Sink, *words: str, kill_at: str | None = None) -> Ran:
    env = environment(EOCTL_TEST_KILL_AT=kill_at)
    return eoctl("txn", "salvage", str(sink.checkpoint), *words, lab=lab, env=env)


def all_of(sink: Sink, before: Mapping[Partition, list[Copied]]) -> dict[Partition, list[Copied]]:
    """What readers are to see: what they saw, then each transaction's records in their order."""
    return {
        partition: [
            *before[partition],
            *(copied for lost in sink.lost for copied in lost[partition]),
        ]
        for partition in sink.partitions
    }


@follows("docs/flink.md", "Salvage what was lost")
def test_the_page(it: Reading, lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    """Without a checkpoint: by the id, its producer id and its epoch."""
    sink = died(lab, tmp_path, topic, subtasks=1)
    [lost] = sink.ids
    it.lab = lab
    it.names |= {
        "etl-0-42": str(lost.transactional_id),
        "4001": str(lost.producer_id),
        "0": str(lost.producer_epoch),
    }
    rows = it.run("txn salvage", 1, None, "-o", "json").rows
    assert [(r["status"], r["records"]) for r in rows] == [("lost", RECORDS)] * PARTITIONS


def test_all_of_it_comes_back_once(lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    sink = died(lab, tmp_path, topic)
    before, end = contents(lab, sink.partitions), ends(lab, sink.partitions)

    looked = salvage(lab, sink, "-o", "json")

    assert looked.status == 1, looked.text
    assert [r["status"] for r in looked.rows] == ["lost"] * 2 * PARTITIONS
    assert {r["records"] for r in looked.rows} == {RECORDS}
    assert ends(lab, sink.partitions) == end, "a look writes nothing"

    done = salvage(lab, sink, *ACT, "-o", "json")

    assert done.status == 0, done.text
    assert contents(lab, sink.partitions) == all_of(sink, before)
    for row in done.rows:
        partition = row["topic"], row["partition"]
        offsets = [o for o, _ in consumed(lab, [partition])[partition]]
        copies = [o for o in offsets if row["to_first_offset"] <= o <= row["to_last_offset"]]
        assert (row["status"], len(copies)) == ("salvaged", RECORDS)

    again = salvage(lab, sink, *ACT)
    assert again.status == 0, again.text
    assert "there is nothing to salvage" in again.text
    assert contents(lab, sink.partitions) == all_of(sink, before)


@pytest.mark.parametrize("point", only_here(POINTS, "salvage-sent"))
def test_killed_anywhere_nothing_is_doubled(
    lab: Lab, tmp_path: Path, topic: MakeTopic, point: str
) -> None:
    sink = died(lab, tmp_path, topic)
    before, left = contents(lab, sink.partitions), unfinished("txn")

    killed = salvage(lab, sink, *ACT, kill_at=point)

    assert killed.status == -signal.SIGKILL
    ended = salvage(lab, sink, *ACT)
    assert ended.status == 0, ended.text
    assert contents(lab, sink.partitions) == all_of(sink, before)
    assert unfinished("txn") == left


@pytest.mark.long
def test_to_another_topic(lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    sink = died(lab, tmp_path, topic, subtasks=1)
    before = contents(lab, sink.partitions)
    small, other = (
        topic(lab, partitions=1),
        topic(lab, partitions=PARTITIONS, config={"retention.ms": "-1"}),
    )
    refused = salvage(lab, sink, *ACT, "--to", small)
    assert refused.status == 4
    assert "it has no partition 1" in refused.text

    name = sink.ids[0].transactional_id
    words = ("--pid", str(sink.ids[0].producer_id), "--epoch", str(sink.ids[0].producer_epoch))
    done = eoctl("txn", "salvage", name, *words, "--to", other, *ACT, lab=lab)

    assert done.status == 0, done.text
    copies = contents(lab, [(other, p) for p in range(PARTITIONS)])
    assert copies == {(other, p): sink.lost[0][sink.topic, p] for p in range(PARTITIONS)}
    assert contents(lab, sink.partitions) == before


@pytest.mark.long
def test_what_is_not_proven_lost_is_refused(lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    from confluent_kafka import Consumer, TopicPartition

    sink = died(lab, tmp_path, topic, subtasks=1, lose=False)
    refused = salvage(lab, sink, *ACT)
    assert refused.status == 4, refused.text
    assert "it is open, not lost" in refused.text
    assert eoctl("txn", "salvage", "nobody-0-1", lab=lab).status == 2

    name = topic(lab)
    one = transactional(lab, f"{name}-0-7")
    for commit in (True, False):
        one.begin_transaction()
        one.produce(name, "v")
        one.flush(20)
        row = described(lab, f"{name}-0-7")
        one.commit_transaction(20) if commit else one.abort_transaction(20)

    # the group reads its input again, whose outputs a copy would double
    group = transactional(lab, f"{name}-with-group")
    group.begin_transaction()
    group.produce(name, "doubled")
    reader = Consumer({**lab.client_properties(), "group.id": f"{name}-group"})
    offsets = [TopicPartition(name, 0, 1)]
    group.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 20)
    group.flush(20)
    reader.close()
    of_group = described(lab, f"{name}-with-group")
    group.abort_transaction(20)
    words = ("--pid", str(of_group.producer_id), "--epoch", str(of_group.producer_epoch))
    kept = eoctl("txn", "salvage", f"{name}-with-group", *words, *ACT, lab=lab)
    assert kept.status == 4, kept.text
    assert "offsets of groups were in it (__consumer_offsets:" in kept.text

    words = ("--pid", str(row.producer_id), "--epoch", str(row.producer_epoch))
    mixed = eoctl("txn", "salvage", f"{name}-0-7", *words, *ACT, lab=lab)
    # librdkafka speaks v1: both have the same epoch; where it speaks v2, the last was aborted
    # this client speaks v1, so that both transactions have one producer id and epoch
    assert mixed.status == 3, mixed.text
    assert "show different outcomes" in mixed.text
    assert [v for _, v, _, _ in contents(lab, [(name, 0)])[name, 0]] == [b"v"]


def test_records_that_are_gone_are_counted(lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab.client_properties())
    sink = died(lab, tmp_path, topic, subtasks=1)
    row = next(r for r in salvage(lab, sink, "-o", "json").rows if r["partition"] == 1)
    cut = TopicPartition(sink.topic, 1, row["first_offset"] + 1)
    for deleted in admin.delete_records([cut]).values():
        deleted.result(20)
    before = contents(lab, sink.partitions)

    refused = salvage(lab, sink, *ACT)

    assert refused.status == 4, refused.text
    there = 2 * RECORDS - 1
    assert f"of {2 * RECORDS} records it lacks 1: deleted" in refused.text
    assert f"{there} of its records are in" in refused.text
    assert contents(lab, sink.partitions) == before

    for deleted in admin.delete_topics([sink.topic]).values():
        deleted.result(20)
    until(lambda: sink.topic not in admin.list_topics(timeout=10).topics, 30)
    for made in admin.create_topics([NewTopic(sink.topic, PARTITIONS, 1)]).values():
        made.result(20)
    looked = salvage(lab, sink)
    assert looked.status in (1, 3), looked.text
    assert salvage(lab, sink, *ACT).status in (3, 4)
    assert ends(lab, sink.partitions) == {(sink.topic, p): 0 for p in range(PARTITIONS)}
