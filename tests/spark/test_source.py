"""The Data Source against what a plain confluent-kafka consumer reads, and what was sent."""

import json
import time
from base64 import urlsafe_b64encode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from recovery.errors import IncompleteError
from spark_jobs.session import executors
from spark_jobs.source import register
from tests.kafka.conftest import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EACH = 40
KEPT = {"retention.ms": "-1"}  # the records are as old as their timestamps


def fill(lab: Lab, topic: str) -> None:
    """Per partition: EACH committed, EACH aborted, EACH outside of transactions; then one open."""
    from confluent_kafka import Producer

    plain = lab.client_properties()
    for kind in ("committed", "aborted"):
        producer = Producer({**plain, "transactional.id": f"{topic}-{kind}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        _send(producer, topic, kind)
        producer.flush(30)
        if kind == "committed":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer = Producer({**plain, "enable.idempotence": True, "compression.type": "zstd"})
    _send(producer, topic, "none")
    producer.flush(30)


def _send(producer: Any, topic: str, kind: str) -> None:
    for partition in range(2):
        for n in range(EACH):
            key = None if n % 5 == 0 else f"k{n}".encode()
            value = None if n % 7 == 0 else f"{kind}-{n}".encode() * (n + 1)
            headers = [("h", b"x"), ("null", None)] if n % 3 == 0 else None
            producer.produce(
                topic, value, key, partition, timestamp=1_700_000_000_000 + n, headers=headers
            )


def oracle(lab: Lab, topic: str, isolation: str) -> list[tuple[Any, ...]]:
    """(key, value, topic, partition, offset, timestamp ms, headers) as confluent-kafka reads."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    found: list[tuple[Any, ...]] = []
    ended = 0
    until = time.monotonic() + 60
    while ended < 2 and time.monotonic() < until:
        m = consumer.poll(1.0)
        if m is None:
            continue
        if m.error() is not None:
            assert m.error().code() == KafkaError._PARTITION_EOF
            ended += 1
            continue
        headers = m.headers()
        found.append(
            (
                m.key(),
                m.value(),
                m.topic(),
                m.partition(),
                m.offset(),
                m.timestamp()[1],
                None if headers is None else tuple(headers),
            )
        )
    consumer.close()
    assert ended == 2
    return sorted(found, key=lambda row: row[3:5])


def rows(frame: "DataFrame") -> list[tuple[Any, ...]]:
    chosen = frame.selectExpr(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp) ms",
        "headers",
    )
    found = [
        (
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            r.topic,
            r.partition,
            r.offset,
            r.ms,
            None
            if r.headers is None
            else tuple((h.key, None if h.value is None else bytes(h.value)) for h in r.headers),
        )
        for r in chosen.collect()
    ]
    return sorted(found, key=lambda row: row[3:5])


@pytest.fixture(scope="module")
def filled(lab1: Lab, spark: "SparkSession") -> str:
    """A topic of two partitions with records of every outcome; the source knows the lab."""
    import uuid

    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"source-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab1.client_properties())
    admin.create_topics([NewTopic(name, 2, 1, config=KEPT)], operation_timeout=10)[name].result(20)
    fill(lab1, name)
    register(spark, Access(lab1.client_properties()))
    return name


EVERY = (
    "key,value,topic,partition,offset,timestamp,timestampType,headers,producer_id,"
    "producer_epoch,sequence,is_transactional,is_control,outcome"
)


def load(spark: "SparkSession", **options: str) -> "DataFrame":
    reader = spark.read.format("eoctl-kafka")
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_columns_are_what_a_plain_consumer_reads(
    spark: "SparkSession", lab1: Lab, filled: str, isolation: str
) -> None:
    frame = load(spark, topics=filled, columns=EVERY, isolation=isolation, range_offsets="50")
    expected = oracle(lab1, filled, isolation)
    assert len(expected) == EACH * 2 * (2 if isolation == "read_committed" else 3)
    assert rows(frame) == expected


def test_outcomes_and_producers(spark: "SparkSession", filled: str) -> None:
    """By what was sent: each producer's sequences begin at 0 in a partition and have no gap."""
    frame = load(spark, topics=filled, columns=EVERY, isolation="read_uncommitted", control="true")
    found = frame.collect()
    data = [r for r in found if not r.is_control]
    outcomes = Counter(r.outcome for r in data)
    assert outcomes == {"committed": 2 * EACH, "aborted": 2 * EACH, "none": 2 * EACH}
    for r in data:
        if r.value is not None:
            assert bytes(r.value).startswith(r.outcome.encode())
        assert r.is_transactional == (r.outcome != "none")
        assert r.timestampType == 0
    by_producer: dict[tuple[int, int], list[int]] = {}
    for r in sorted(data, key=lambda r: r.offset):
        by_producer.setdefault((r.producer_id, r.partition), []).append(r.sequence)
    assert list(by_producer.values()) == [list(range(EACH))] * 6
    markers = [r for r in found if r.is_control]
    assert len(markers) == 4  # a COMMIT and an ABORT in each partition


def test_headers_only_counts_without_opening(spark: "SparkSession", filled: str) -> None:
    frame = load(spark, topics=filled, headers_only="true", range_offsets="10")
    found = frame.collect()
    counts: Counter[str] = Counter()
    for r in found:
        if not r.is_control:
            counts[r.outcome] += r.records
    assert counts == {"committed": 2 * EACH, "aborted": 2 * EACH, "none": 2 * EACH}
    assert {r.codec for r in found if r.outcome == "none" and not r.is_control} == {"zstd"}


@pytest.mark.long
def test_two_filtered_actions_after_an_append_read_the_same_cut(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, filled: str
) -> None:
    name = topic(lab1, 2, config=KEPT)
    fill(lab1, name)
    frame = load(spark, topics=name)
    before = frame.filter("partition = 0").count()
    fill(lab1, name)
    assert frame.filter("partition = 0").count() == before == 2 * EACH
    assert frame.filter("offset >= 0 and partition = 1").count() == before
    assert load(spark, topics=name).filter("partition = 0").count() == 2 * before
    # decided when it was registered, but only for what it was registered with
    register(spark, Access(lab1.client_properties()), name="registered", topics=name, end="3")
    fixed = spark.read.format("registered")
    assert fixed.load().count() == 6
    assert fixed.option("topics", topic(lab1, 1)).option("end", "lso").load().count() == 0


def test_ranges_in_offsets_instants_and_a_cut_file(
    spark: "SparkSession", lab1: Lab, filled: str, tmp_path: Path
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    assert [
        (r.partition, r.offset)
        for r in load(spark, topics=filled, start="3", end="5").orderBy("partition").collect()
    ] == [(0, 3), (0, 4), (1, 3), (1, 4)]
    consumer = Consumer({**lab1.client_properties(), "group.id": "oracle"})
    instant = 1_700_000_000_000 + 20
    partitions = [TopicPartition(filled, p, instant) for p in range(2)]
    wanted = {t.partition: t.offset for t in consumer.offsets_for_times(partitions, 20)}
    consumer.close()
    first = load(spark, topics=filled, start="2023-11-14T22:13:20.020Z")
    found = first.groupBy("partition").min("offset").collect()
    assert {r[0]: r[1] for r in found} == wanted
    whole = load(spark, topics=filled, columns="partition,offset")
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(_cut(lab1, filled)))
    assert load(spark, cut=str(cut)).count() == whole.filter("offset < 7").count() == 14
    broken = _cut(lab1, filled)
    broken["topics"][0]["topic_id"] = "AAAAAAAAAAAAAAAAAAAAAQ"
    cut.write_text(json.dumps(broken))
    with pytest.raises(Exception, match="the cut is of another topic of that name"):
        load(spark, cut=str(cut))


def _cut(lab: Lab, topic: str) -> dict[str, Any]:
    """A cut file by hand: offsets 0 to 7 of each partition."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    from confluent_kafka import TopicCollection

    found = admin.describe_topics(TopicCollection([topic]))[topic].result(20).topic_id
    halves = (found.get_most_significant_bits(), found.get_least_significant_bits())
    # Kafka's spelling (org.apache.kafka.common.Uuid): librdkafka's own has + and / for - and _
    topic_id = urlsafe_b64encode(b"".join(h.to_bytes(8, signed=True) for h in halves))[:22]
    parts = [
        {
            "partition": p,
            "start": 0,
            "end": 7,
            "last_stable_offset": 7,
            "high_watermark": 7,
            "leader_epoch": 0,
        }
        for p in range(2)
    ]
    return {
        "schema": "eoctl.cut/v1",
        "cluster_id": lab.record.cluster_id,
        "created_at": "2026-01-01T00:00:00.000Z",
        "at": "lso",
        "topics": [{"topic": topic, "topic_id": topic_id.decode(), "partitions": parts}],
    }


@pytest.mark.long
def test_our_own_error_in_a_task_comes_home_as_what_it_is(spark: "SparkSession") -> None:
    """Not as the end of a stack trace: bytes that are damaged, met while a column is made."""

    def fail(batches: Any) -> Any:
        from recovery.formats.reader import CorruptError

        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise CorruptError("its headers are malformed", where="t:0 at 5") from cause
        yield from batches

    executors.ship(spark)
    frame = spark.range(0, 2, 1, 1).mapInArrow(fail, "a int")
    with pytest.raises(IncompleteError) as found:
        executors.collected(spark, frame, "test", executors.Refusals(spark))
    assert found.value.sentence == "t:0 at 5: its headers are malformed"


@pytest.mark.long
def test_one_action_s_filters_take_nothing_from_the_next(
    spark: "SparkSession", filled: str
) -> None:
    """With pushdown on, Spark 4.3.0 keeps a reader that took filters for all later actions."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, topics=filled, columns="partition,offset")
        one = frame.filter("partition = 1 and offset > 10 and offset <= 12")
        assert [(r.partition, r.offset) for r in one.collect()] == [(1, 11), (1, 12)]
        assert frame.count() == 4 * EACH
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
