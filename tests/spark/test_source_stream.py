"""The Data Source as a stream, with foreach_batch behind it, against a plain consumer's counts."""

import asyncio
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.failures import WireError
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from recovery.errors import RefusedError, UsageError
from spark_jobs.sink.foreach import foreach_batch
from spark_jobs.source import register
from spark_jobs.source_options import understood
from spark_jobs.source_ranges import Span
from spark_jobs.source_reader import choice
from spark_jobs.source_stream import StreamReader
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import until
from tests.kafka.planting import led_uncleanly
from tests.spark.sinking import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = {"retention.ms": "-1", "cleanup.policy": "delete"}


def send(
    lab: Lab, topic: str, words: str, count: int, *, how: str = "plain", partitions: int = 2
) -> Any:
    """Records `WORDS-0` and so on in turn into the partitions; the producer, where it is open.

    how: plain, commit, abort, or open.
    """
    from confluent_kafka import Producer

    settings: dict[str, Any] = lab.client_properties()
    if how != "plain":
        settings |= {"transactional.id": f"{topic}-{words}", "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    if how != "plain":
        producer.init_transactions(30)
        producer.begin_transaction()
    for n in range(count):
        producer.produce(topic, f"{words}-{n}", partition=n % partitions)
    producer.flush(30)
    if how == "open":
        return producer
    if how != "plain":
        (producer.commit_transaction if how == "commit" else producer.abort_transaction)(30)
    return None


class Query:
    """A query from `topic` to `topic`-out, run until nothing new is left; its progress."""

    def __init__(self, spark: "SparkSession", lab: Lab, topic: str, folder: Path) -> None:
        self.spark, self.lab, self.topic, self.folder = spark, lab, topic, folder
        self.checkpoint = folder / "checkpoint"
        register(spark, Access(lab.client_properties()))

    def run(self, options: Mapping[str, str] | None = None, **named: Any) -> list[dict[str, Any]]:
        given = {"startingOffsets": "earliest", **(options or {})}
        if "subscribePattern" not in given:
            given["subscribe"] = self.topic
        rows = self.spark.readStream.format("eoctl-kafka").options(**given).load()
        sending = foreach_batch(
            topic=f"{self.topic}-out",
            job=self.topic,
            staging_folder=self.folder / "staging",
            access=Access(self.lab.client_properties()),
            **named,
        )
        writer = rows.select("key", "value").writeStream.foreachBatch(sending)
        writer = writer.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        query.awaitTermination()
        return [json.loads(p.json) for p in query.recentProgress]

    def repeat_last_batch(self, change: Callable[[dict[str, Any]], None] | None = None) -> int:
        """Let Spark run its last batch again, planned by offsets that are changed; its number."""
        last = max(int(p.name) for p in (self.checkpoint / "offsets").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        for crc in self.checkpoint.glob(f"*/.{last}.crc"):
            crc.unlink()
        if change is not None:
            path = self.checkpoint / "offsets" / str(last)
            *head, text = path.read_text().splitlines()
            offset = json.loads(text)
            change(offset)
            path.write_text("\n".join([*head, json.dumps(offset)]))
        return last


@pytest.fixture
def query(spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Query:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic(lab1, 2, 1, KEPT)
    clients = AdminClient(lab1.client_properties())
    new = NewTopic(f"{name}-out", 2, 1)
    clients.create_topics([new], operation_timeout=10)[f"{name}-out"].result(20)
    return Query(spark, lab1, name, tmp_path)


def ends(progress: dict[str, Any]) -> list[int]:
    (one,) = progress["sources"][0]["endOffset"]["topics"].values()
    return [one["partitions"][p]["offset"] for p in sorted(one["partitions"])]


@pytest.mark.long
def test_a_stream_gives_what_a_plain_consumer_reads(query: Query, lab1: Lab) -> None:
    """Never past the last stable offset, in batches that keep the limit, and in new partitions."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    name, out = query.topic, f"{query.topic}-out"
    send(lab1, name, "committed", 60, how="commit")
    send(lab1, name, "aborted", 40, how="abort")
    send(lab1, name, "plain", 20)
    stable = [30 + 1 + 20 + 1 + 10] * 2
    still_open = send(lab1, name, "open", 8, how="open")
    send(lab1, name, "behind", 10)
    batches = [p for p in query.run({"maxOffsetsPerTrigger": "50"}) if p["numInputRows"]]
    assert ends(batches[-1]) == stable
    assert [ends(p) for p in batches] == [[25, 25], [50, 50], [62, 62]]
    first = values(lab1, name)  # a plain consumer's
    assert first.total() == 80
    assert values(lab1, out) == first
    still_open.commit_transaction(30)
    clients = AdminClient(lab1.client_properties())
    clients.create_partitions([NewPartitions(name, 3)])[name].result(20)
    send(lab1, name, "third", 9, partitions=3)
    query.repeat_last_batch()  # as after a crash, and with another limit
    progress = query.run({"subscribePattern": f"^{name}$"})
    assert progress[-1]["batchId"] == 3
    assert (query.checkpoint / "commits" / "2").exists()  # Spark tells nothing of its repeat
    assert values(lab1, name).total() == 98 + 9
    assert values(lab1, out) == values(lab1, name)
    staged = query.folder / "staging" / name
    assert [p.name for p in staged.iterdir()] == ["batch-3"]


@pytest.mark.long
def test_topics_made_anew_and_deleted_records_are_refused(query: Query, lab1: Lab) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    name, clients = query.topic, AdminClient(lab1.client_properties())
    send(lab1, name, "first", 40)
    query.run()
    send(lab1, name, "second", 40)
    gone = TopicPartition(name, 0, 25)
    clients.delete_records([gone])[gone].result(20)
    deleted = rf"{name}-0: records 20 to 24 were deleted before the stream read them"
    with pytest.raises(Exception, match=deleted) as refused:
        query.run()
    assert "Traceback" not in str(refused.value)
    query.run({"failOnDataLoss": "false"})
    lost = Counter(f"second-{n}".encode() for n in range(0, 10, 2))
    had = Counter(f"{w}-{n}".encode() for w in ("first", "second") for n in range(40))
    assert values(lab1, f"{name}-out") == had - lost
    clients.delete_topics([name], operation_timeout=10)[name].result(20)
    clients.create_topics([NewTopic(name, 2, 1)], operation_timeout=10)[name].result(20)
    send(lab1, name, "third", 120)  # the offsets are there again
    with pytest.raises(Exception, match=rf"{name}: the topic was deleted and created again"):
        query.run({"failOnDataLoss": "false"})
    assert values(lab1, f"{name}-out") == had - lost


def epochs_ahead(offset: dict[str, Any]) -> None:
    for one in offset["topics"].values():
        for position in one["partitions"].values():
            position["leader_epoch"] += 7


def beyond_the_log(offset: dict[str, Any]) -> None:
    for one in offset["topics"].values():
        one["partitions"]["1"]["offset"] += 1000


def of_spark_s_source(offset: dict[str, Any]) -> None:
    del offset["schema"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (epochs_ahead, "its leader epoch went back from 7 to 0"),
        (beyond_the_log, "its log ends at 20, and the stream has read up to 1020"),
        (of_spark_s_source, "the offsets in the query's checkpoint are not of this source"),
    ],
)
def test_offsets_of_another_log_are_refused(
    query: Query, lab1: Lab, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    """As where the cluster was restored from a backup, beside a checkpoint that is newer."""
    send(lab1, query.topic, "first", 40)
    query.run()
    query.repeat_last_batch(change)
    shutil.rmtree(query.folder / "staging")
    with pytest.raises(Exception, match=sentence) as refused:
        query.run()
    assert "Traceback" not in str(refused.value)
    assert values(lab1, f"{query.topic}-out").total() == 40


@pytest.mark.long
def test_what_a_stream_refuses(query: Query, lab1: Lab) -> None:
    """When it starts: at load Spark does not tell a stream from a batch."""
    cases = {
        "maxOffsetsPerTrigger": ("0", "not a number above 0"),
        "startingOffsets": ('{"x": {"0": 3}}', "-0 is missing"),
    }
    for option, (value, sentence) in cases.items():
        with pytest.raises(Exception, match=sentence) as refused:
            query.run({option: value})
        assert "Traceback" not in str(refused.value)
    with pytest.raises(UsageError, match="run_id: the streaming query says it"):
        query.run(run_id="mine")
    with pytest.raises(UsageError, match="no streaming query calls this"):
        foreach_batch(
            topic=query.topic,
            job=query.topic,
            staging_folder=query.folder,
            access=Access(lab1.client_properties()),
        )(query.spark.range(3).selectExpr("cast(id as string) value"), 0)
    batch = query.spark.read.format("eoctl-kafka").option("subscribe", query.topic)
    with pytest.raises(Exception, match="maxOffsetsPerTrigger: it is of streams"):
        batch.option("maxOffsetsPerTrigger", "5").load().count()
    assert values(lab1, f"{query.topic}-out").total() == 0


@pytest.mark.long
def test_a_checkpoint_made_anew_or_of_another_query_is_refused(query: Query, lab1: Lab) -> None:
    send(lab1, query.topic, "first", 40)
    query.run(checkpoint=str(query.checkpoint))  # named, as under Spark Connect
    newest = query.checkpoint
    query.checkpoint = query.folder / f"made-anew-{uuid.uuid4().hex[:6]}"
    with pytest.raises(Exception, match=r"batch 0 here belongs to run [0-9a-f-]{36}"):
        query.run()
    with pytest.raises(Exception, match="does not say that batch 0 runs"):
        query.run(checkpoint=str(newest))
    query.checkpoint = newest
    send(lab1, query.topic, "second", 40)
    query.run()
    assert values(lab1, f"{query.topic}-out") == values(lab1, query.topic)


@pytest.mark.long
@pytest.mark.parametrize("elections", [1, 2])
def test_replaced_records_are_refused(
    lab3: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, elections: int
) -> None:
    """An unclean election: the successor lacks records that the stream has read, and takes others.
    A second one, back to the first leader, which had others at the same offsets all the time.

    Asked as Spark asks, on the driver and in a task that reads while that happens.
    """
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")  # which the reader sets
    first, second, _ = lab3.broker_ids
    name = topic(lab3)
    given = understood({"topics": name})
    schema = StructType().add("offset", "long", nullable=False)

    def reader() -> StreamReader:
        access = Access(lab3.client_properties())
        return StreamReader(access, choice({**given, "columns": "offset"}), given, schema)

    async def write(records: int) -> None:
        async with Client.to(lab3.bootstrap_servers) as client:
            for _ in range(records):
                await client.plain(name, 0, [NewRecord(b"v" * 200)])

    def answered() -> bool:
        with suppress(WireError):
            asyncio.run(write(0))
            return True
        return False

    def read(spans: list[Span]) -> int:
        return sum(len(batch) for span in spans for batch in reader().read(span))

    asyncio.run(led_uncleanly(lab3, name, first, second))
    begin = reader().initialOffset()
    asyncio.run(write(50))
    kept = reader().latestOffset(begin, ReadAllAvailable())
    try:
        if elections == 2:
            lab3.kill(first)
            until(answered)
            asyncio.run(write(60))
            lab3.kill(second)
            lab3.start(first)
            until(answered)
        else:
            lab3.kill(second)
        asyncio.run(write(30))
        end = reader().latestOffset(kept, ReadAllAvailable())
        spans = reader().partitions(kept, end)
        assert [(s.start, s.end) for s in spans] == [(50, 80)]
        assert read(spans) == 30
        lab3.kill(first)
        lab3.start(second)
        until(answered)  # the others take a while to notice
        asyncio.run(write(40))
        cut = {1: "offset 50", 2: "offset 79 or before it"}[elections]
        another = f"cut off at {cut} and written again, and the stream has read up to 80"
        for ask in (
            lambda: reader().latestOffset(end, ReadAllAvailable()),
            lambda: reader().partitions(kept, end),
            lambda: read(spans),
        ):
            with pytest.raises(RefusedError, match=another):
                ask()
        after = reader().latestOffset(kept, ReadAllAvailable())  # which had all of its records
        assert read(reader().partitions(kept, after)) == {1: 40, 2: 100}[elections]
    finally:
        for broker in (first, second):
            lab3.start(broker)
