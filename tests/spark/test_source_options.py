"""The options of Spark's own Kafka source, beside that source: the same options give the same rows.

Its newest whole version is 4.2.0. Both read with an isolation that is named: their defaults differ.
"""

import uuid
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.host.java import find_java
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import fetch
from recovery.errors import EoctlError
from spark_jobs.source import kafka_source, register
from tests import java
from tests.kafka.conftest import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCK = Path(__file__).with_name("kafka-source-4.2.0.lock")
EACH = 6
T0 = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # the records are as old as their timestamps
LOST = 10  # records deleted from the topic B


@pytest.fixture(scope="module")
def prefix(lab1: Lab, spark: "SparkSession") -> Iterator[str]:
    """Topics PREFIX-a and PREFIX-b; both sources know the lab.

    a, in each of 2 partitions: EACH committed, EACH aborted, EACH plain records; in partition 0
    then 4 of an open transaction and 3 plain ones, so that its LSO is 20 and its high watermark 27.
    b: 30 plain records, the first LOST deleted. A record is 10 ms younger than the one before it.
    """
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    name, plain = f"options-{uuid.uuid4().hex[:8]}", lab1.client_properties()
    admin = AdminClient(plain)
    topics = [NewTopic(f"{name}-a", 2, 1, config=KEPT), NewTopic(f"{name}-b", 1, 1, config=KEPT)]
    for made in admin.create_topics(topics, operation_timeout=10).values():
        made.result(20)

    def send(producer: Any, topic: str, count: int, begin: int, partitions: int = 1) -> None:
        for partition in range(partitions):
            for n in range(begin, begin + count):
                producer.produce(
                    f"{name}-{topic}",
                    *(f"value {n}", None if n % 3 else f"key {n}", partition),
                    timestamp=T0 + 10 * n,
                    headers=[("h", b"x"), ("none", None)] if n % 2 else None,
                )
        producer.flush(30)

    def transaction(kind: str) -> Any:
        settings = {"transactional.id": f"{name}-{kind}", "transaction.timeout.ms": 900_000}
        producer = Producer({**plain, **settings})
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    kept = transaction("committed")
    send(kept, "a", EACH, 0, 2)
    kept.commit_transaction(30)
    dropped = transaction("aborted")
    send(dropped, "a", EACH, EACH, 2)
    dropped.abort_transaction(30)
    free = Producer(plain)
    send(free, "a", EACH, 2 * EACH, 2)
    still_open = transaction("open")
    send(still_open, "a", 4, 3 * EACH)
    send(free, "a", 3, 3 * EACH + 4)
    send(free, "b", 30, 0)
    gone = TopicPartition(f"{name}-b", 0, LOST)
    admin.delete_records([gone])[gone].result(20)
    for jar in fetch(java.locked_jars(LOCK), find_java()):
        spark.sql(f"ADD JAR '{jar}'")
    register(spark, Access(plain))
    yield name
    still_open.abort_transaction(30)


def load(spark: "SparkSession", source: str, lab: Lab, options: Mapping[str, str]) -> "DataFrame":
    reader = spark.read.format(source).option("kafka.bootstrap.servers", lab.bootstrap_servers)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COMMITTED, ALL = "read_committed", "read_uncommitted"
LATER = "4000000000000"  # than any record; a marker has the time of its end

SAME: list[tuple[str, dict[str, str], int]] = [
    # (isolation, options, rows by what was sent); A and B are the topics
    (COMMITTED, {"subscribe": "A"}, 24),
    (ALL, {"subscribe": "A"}, 43),
    (COMMITTED, {"subscribe": " A ,B,", "includeHeaders": "true"}, 44),
    (ALL, {"subscribePattern": "PREFIX-[a-z]"}, 63),
    (ALL, {"subscribePattern": "PART-[ab]"}, 63),  # not at the beginning of the name
    (COMMITTED, {"subscribePattern": "PREFIX"}, 44),  # not to its end
    (COMMITTED, {"assign": '{"A": [1], "B": [0]}'}, 32),
    (COMMITTED, {"subscribe": "B", "STARTINGOFFSETS": "Earliest", "endingOffsets": "latest"}, 20),
    (
        ALL,
        {
            "subscribe": "A,B",
            "startingOffsets": '{"A": {"0": 3, "1": -2}, "B": {"0": 12}}',
            "endingOffsets": '{"A": {"0": 22, "1": -1}, "B": {"0": 20}}',
        },
        17 + 18 + 8,
    ),
    (COMMITTED, {"subscribe": "A", "endingOffsets": '{"A": {"0": 20, "1": 5}}'}, 12 + 5),
    (ALL, {"subscribe": "A", "startingTimestamp": str(T0 + 35)}, 25 - 4 + 18 - 4),
    (COMMITTED, {"subscribe": "A", "endingTimestamp": str(T0 + 130)}, 6 + 6),
    (COMMITTED, {"subscribe": "A", "endingTimestamp": LATER}, 24),
    (
        ALL,
        {
            "subscribe": "A",
            "startingOffsetsByTimestamp": f'{{"A": {{"0": {T0 + 200}, "1": {T0 + 10}}}}}',
            "endingOffsetsByTimestamp": f'{{"A": {{"0": {LATER}, "1": {T0 + 30}}}}}',
        },
        19 + 2,  # the first marker is the first that is so late
    ),
    (
        ALL,
        {
            "subscribe": "A",
            "startingOffsetsByTimestamp": f'{{"A": {{"0": {T0 + 35}, "1": {LATER}}}}}',
            "startingOffsetsByTimestampStrategy": "latest",
        },
        21,  # nothing of partition 1
    ),
    (
        COMMITTED,
        {
            "subscribe": "A",
            "startingTimestamp": str(T0 + 120),
            "startingOffsets": "earliest",  # does not count
            "endingOffsets": '{"A": {"0": 18, "1": 18}}',
        },
        8,
    ),
    (ALL, {"subscribe": "A,B", "minPartitions": "9"}, 63),
    (ALL, {"subscribe": "A,B", "maxRecordsPerPartition": "7"}, 63),
    (
        COMMITTED,
        {
            "subscribe": "B",
            "startingOffsets": '{"B": {"0": 3}}',
            "failOnDataLoss": "false",
            "kafka.max.poll.records": "7",
        },
        20,
    ),
]


def named(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Options with the topics' names in them."""

    def put(text: str) -> str:
        for word, name in (
            ("PREFIX", prefix),
            ("PART", prefix[1:]),
            ('"A"', f'"{prefix}-a"'),
            ('"B"', f'"{prefix}-b"'),
        ):
            text = text.replace(word, name)
        words = [
            {"A": f"{prefix}-a", "B": f"{prefix}-b"}.get(w.strip(), w) for w in text.split(",")
        ]
        return ",".join(words) if "{" not in text else text

    return {key: put(value) for key, value in options.items()}


@pytest.mark.parametrize(
    "cases",
    [pytest.param(SAME[::4], id="some"), pytest.param(SAME, id="all", marks=pytest.mark.long)],
)
def test_same_options_same_rows(
    spark: "SparkSession", lab1: Lab, prefix: str, cases: list[tuple[str, dict[str, str], int]]
) -> None:
    def rows(source: str) -> dict[int, list[tuple[Any, ...]]]:
        """Of each case, by (topic, partition, offset)."""
        frames = []
        for number, (isolation, options, _) in enumerate(cases):
            given = {**named(options, prefix), "kafka.isolation.level": isolation}
            frame = load(spark, source, lab1, given)
            headers = "headers" if "includeHeaders" in options else "null headers"
            frames.append(frame.selectExpr(f"{number} number", *COLUMNS, headers))
        found: dict[int, list[tuple[Any, ...]]] = {}
        for row in reduce(type(frames[0]).unionAll, frames).collect():
            found.setdefault(row.number, []).append(tuple(row)[1:])
        return {number: sorted(rows, key=lambda r: r[2:5]) for number, rows in found.items()}

    ours, theirs = rows("eoctl-kafka"), rows("kafka")
    for number, (isolation, options, count) in enumerate(cases):
        case = f"{isolation} {options}"
        assert len(theirs[number]) == count, case
        assert ours[number] == theirs[number], case


REFUSED: list[tuple[dict[str, str], str]] = [
    ({}, "no topics are named"),
    ({"subscribe": "A", "assign": '{"A": [0]}'}, "says already what is read"),
    ({"subscribe": "A", "startingOffsets": "latest"}, "a batch cannot start at latest"),
    ({"subscribe": "B", "startingOffsets": '{"B": {"0": -1}}'}, "cannot start at latest"),
    ({"subscribe": "B", "endingOffsets": '{"B": {"0": -2}}'}, "cannot end at earliest"),
    ({"subscribe": "B", "startingOffsets": "5"}, "this is not a JSON object"),
    ({"subscribe": "A", "startingTimestamp": "yesterday"}, "not a time in epoch milliseconds"),
    ({"subscribe": "A", "minPartitions": "0"}, "not a number above 0"),
    ({"subscribe": "A", "kafka.auto.offset.reset": "latest"}, "write startingOffsets"),
    ({"subscribe": "A", "kafka.enable.auto.commit": "true"}, "nothing is committed"),
    # what only the cluster tells
    ({"subscribe": "A", "startingOffsets": '{"A": {"0": 3}}'}, "-a-1 is missing"),
    ({"subscribe": "B", "startingTimestamp": LATER}, "no record of that time or later"),
    ({"subscribe": "B", "endingOffsets": '{"B": {"0": 5}}'}, "the range runs backwards: 10"),
    ({"subscribe": "B", "startingOffsets": '{"B": {"0": 3}}'}, "3 is below the log start 10"),
    ({"subscribe": "PREFIX-c"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ({"assign": '{"A": [5]}'}, "no partition .*-a-5"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_that_source_refuses_is_refused(
    spark: "SparkSession", lab1: Lab, prefix: str, options: dict[str, str], sentence: str
) -> None:
    given = named(options, prefix)
    once = {"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "2000"}
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many classes, even Java's assertions
        load(spark, "kafka", lab1, {**given, **once}).count()
    with pytest.raises(EoctlError, match=sentence):
        read(lab1, given)


def read(lab: Lab, given: dict[str, str]) -> None:
    """What Spark does of a batch before its first task."""
    from pyspark.sql.types import StructType

    source = kafka_source(Access(lab.client_properties()))(given)
    source.schema()
    source.reader(StructType([]))


def test_a_refusal_is_spark_s_error_with_one_sentence(
    spark: "SparkSession", lab1: Lab, prefix: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as refused:
        load(spark, "eoctl-kafka", lab1, {"subscribe": f"{prefix}-a", "minOffsetsPerTrigger": "9"})
    assert refused.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    said = [line for line in str(refused.value).splitlines() if line.strip()]
    assert len(said) == 2
    assert (
        "UsageError: eoctl-kafka: no option minoffsetspertrigger; did you mean maxOffsetsPerTrigger"
        in said[0]
    )
    assert said[1].strip().startswith("SQLSTATE")


def test_read_committed_ends_at_an_open_transaction(lab1: Lab, prefix: str) -> None:
    """Kafka's source waits there for two minutes, and fails then."""
    given = named({"subscribe": "A", "endingOffsets": '{"A": {"0": 24, "1": -1}}'}, prefix)
    with pytest.raises(EoctlError, match="24 is above the last stable offset 20"):
        read(lab1, given)


@pytest.mark.long
def test_columns_that_have_a_value_in_every_row_are_not_nullable(
    spark: "SparkSession", lab1: Lab, prefix: str
) -> None:
    frame = load(spark, "eoctl-kafka", lab1, {"subscribe": f"{prefix}-a", "includeHeaders": "true"})
    nullable = {f.name for f in frame.schema.fields if f.nullable}
    assert nullable == {"key", "value", "timestamp", "headers"}
    reader = spark.read.format("eoctl-kafka").option("topics", f"{prefix}-a")
    with pytest.raises(Exception, match="no column key of type binary NOT NULL"):
        reader.schema("key binary NOT NULL, offset bigint").load().count()
    assert reader.schema("key binary, offset bigint").load().count() == 24


def test_more_tasks(spark: "SparkSession", lab1: Lab, prefix: str) -> None:
    for options, least in (({"minPartitions": "9"}, 9), ({"maxRecordsPerPartition": "5"}, 12)):
        frame = load(spark, "eoctl-kafka", lab1, {"subscribePattern": f"{prefix}-.", **options})
        assert frame.rdd.getNumPartitions() >= least


@pytest.mark.long
def test_records_deleted_since_load(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, prefix: str
) -> None:
    """Refused in a sentence by the task, or left out; other Python keeps its stack."""
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from pyspark.sql.functions import udf

    name, plain = topic(lab1, 1), lab1.client_properties()
    producer = Producer(plain)
    for n in range(20):
        producer.produce(name, str(n))
    producer.flush(30)
    whole = load(spark, "eoctl-kafka", lab1, {"subscribe": name})
    left = load(spark, "eoctl-kafka", lab1, {"subscribe": name, "failOnDataLoss": "false"})
    admin, gone = AdminClient(plain), TopicPartition(name, 0, LOST)
    admin.delete_records([gone])[gone].result(20)
    assert left.count() == 20 - LOST
    with pytest.raises(Exception, match="offset 0 is no longer in the log") as refused:
        whole.count()
    assert "Traceback" not in str(refused.value)
    broken = udf(lambda number: number / 0, "double")
    with pytest.raises(Exception, match=r"(?s)Traceback.*ZeroDivisionError"):
        spark.range(1).select(broken("id")).collect()


SAFE = r"lost or doubled; {}spark_jobs\.sink\.write\.write_exactly_once \(docs/spark\.md\)"


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}, {"topics": "PREFIX-b"}])
def test_writing_is_refused_and_says_how(
    spark: "SparkSession", prefix: str, tmp_path: Path, options: dict[str, str]
) -> None:
    """Whatever a writer's options are."""
    given = {key: value.replace("PREFIX", prefix) for key, value in options.items()}
    frame = spark.range(3).selectExpr("cast(id as string) value")
    with pytest.raises(Exception, match=SAFE.format("call ")) as refused:
        frame.write.format("eoctl-kafka").options(**given).mode("append").save()
    assert "Traceback" not in str(refused.value)


def test_streams_are_refused_and_say_how(
    spark: "SparkSession", prefix: str, tmp_path: Path
) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writing = rate.writeStream.format("eoctl-kafka").option("topic", prefix)
    query = writing.option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(
        Exception,
        match=r"lost or doubled; use foreachBatch, with spark_jobs\.sink\.foreach\.foreach_batch",
    ) as refused:
        query.awaitTermination(60)
    assert "Traceback" not in str(refused.value)
