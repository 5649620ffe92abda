"""The Data Source's options without a cluster: what is refused, and what the others mean."""

import pytest

from eoctl.kafka.connection.access import Access
from recovery.errors import UsageError
from recovery.facts import PartitionFacts, TopicPartition
from spark_jobs.source_options import can_stream, connection, of_ranges, understood, wanted


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sasl.password", "credentials cannot be options"),
        ("kafka.sasl.jaas.config", "credentials cannot be options"),
        ("kafka.ssl.keystore.password", "credentials cannot be options"),
        ("secret", "credentials cannot be options"),
        ("kafka.group.id", "no group is joined: leave it out"),
        ("kafka.auto.offset.reset", "write startingOffsets"),
        ("startingOffset", r"no option startingOffset; did you mean startingOffsets\?"),
        ("minOffsetsPerTrigger", "no option minOffsetsPerTrigger"),
        ("kafkaConsumer.pollTimeoutMs", "no option kafkaConsumer.pollTimeoutMs; one of topics"),
    ],
)
def test_names_that_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        understood({name: "hunter2"})
    assert "hunter2" not in str(refused.value)


JSON_OFFSETS = '{"t": {"0": 1}}'


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "t", "subscribe": "t"}, "option topics: subscribe says already"),
        ({"assign": "{}", "cut": "c"}, "option cut: assign says already"),
        ({"topics": "t", "startingOffsets": "earliest"}, "with topics, write start and end"),
        ({"subscribe": "t", "end": "lso"}, "with subscribe, write startingOffsets and ending"),
        ({"cut": "c", "endingOffsets": "latest"}, "a cut file says it already"),
        ({"cut": "c", "start": "3"}, "option start: .*a cut file says it already"),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "otherwise"),
        ({"range_offsets": "5", "maxRecordsPerPartition": "6"}, "range_offsets says otherwise"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        understood(options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "earliest"}, "no topics are named"),
        ({"subscribe": " , "}, "option subscribe: no topics are named"),
        ({"subscribePattern": " "}, "option subscribePattern: it is empty"),
        ({"subscribePattern": "(a"}, "option subscribePattern: not understood"),
        ({"subscribePattern": r"\p{Alpha}"}, "option subscribePattern: not understood"),
        ({"subscribePattern": r"a\Q.\E"}, "option subscribePattern: not understood"),
        ({"subscribePattern": "[a-z&&[^b]]"}, "sets of characters within sets"),
        ({"subscribePattern": "[a[b]]"}, "sets of characters within sets"),
        ({"assign": "t"}, "option assign: this is not a JSON object"),
        ({"assign": "{}"}, "option assign: it names no partitions"),
        ({"assign": '{"t": {"0": 1}}'}, "option assign: it names no partitions"),
        ({"assign": '{"t": [true]}'}, "option assign: it names no partitions"),
        ({"assign": '{"t": [-1]}'}, "option assign: it names no partitions"),
        ({"startingOffsets": "latest"}, "option startingOffsets: a batch cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "a batch cannot start at latest"),
        ({"endingOffsets": "Earliest"}, "option endingOffsets: a batch cannot end at earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "a batch cannot end at earliest"),
        ({"endingOffsets": "12"}, "option endingOffsets: this is not a JSON object"),
        ({"endingOffsets": '{"t": 3}'}, "option endingOffsets: no partitions of t"),
        ({"endingOffsets": '{"t": {"0": -3}}'}, "a value of t is not what it should be"),
        ({"endingOffsets": '{"t": {"0": 1.5}}'}, "a value of t is not what it should be"),
        ({"endingOffsets": '{"t": {"x": 1}}'}, "a value of t is not what it should be"),
        ({"startingTimestamp": "2026-01-01"}, "not a time in epoch milliseconds"),
        ({"startingTimestamp": "-1"}, "not a time in epoch milliseconds"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "a value of t is not what it should"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "write error or latest"),
        ({"maxOffsetsPerTrigger": "9"}, "option maxOffsetsPerTrigger: it is of streams"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: write true or false"),
        ({"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
    ],
)
def test_values_that_are_refused(options: dict[str, str], sentence: str) -> None:
    selects = any(name in ("subscribe", "subscribePattern", "assign") for name in options)
    given = {
        **({} if selects or options == {"startingOffsets": "earliest"} else {"subscribe": "t"})
    }
    with pytest.raises(UsageError, match=sentence):
        wanted(understood({**given, **options}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "t", "endingOffsets": "latest"}, "option endingOffsets: a stream has no"),
        ({"topics": "t", "end": "hw"}, "option end: a stream has no end"),
        ({"cut": "c"}, "option cut: a stream has no end: name topics and start"),
        ({"topics": "t", "headers_only": "true"}, "may lie in two batches of a stream"),
        ({"topics": "t", "max_rate": "9"}, "streams are limited by maxOffsetsPerTrigger"),
        ({"subscribe": "t", "startingOffsets": "first"}, "this is not a JSON object"),
        ({}, "no topics are named"),
    ],
)
def test_options_that_no_stream_has(options: dict[str, str], sentence: str) -> None:
    assert not can_stream(understood(options))
    with pytest.raises(UsageError, match=sentence):
        wanted(understood(options), stream=True)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"topics": "t"}, 10),
        ({"topics": "t", "start": "hw"}, 90),
        ({"subscribe": "t"}, 70),  # as Spark's own source
        ({"subscribe": "t", "startingOffsets": "earliest"}, 10),
        ({"subscribe": "t", "startingOffsets": "Latest"}, 70),
        ({"subscribe": "t", "isolation": "read_uncommitted"}, 90),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}, 70),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -2}}'}, 10),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": 33}}'}, 33),
        ({"subscribe": "t", "startingTimestamp": "5", "maxOffsetsPerTrigger": "7"}, 30),
    ],
)
def test_where_a_stream_starts(options: dict[str, str], start: int) -> None:
    given = understood(options)
    assert can_stream(given)
    edge = wanted(given, stream=True).start
    edge.check({TopicPartition("t", 0)})
    assert edge.resolve(FACTS, 30) == start


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders.*", {"orders", "orders-eu", "orders.x"}),
        (r"orders[-.]\w+", {"orders-eu", "orders.x"}),
        ("(?i)ORDERS$", {"orders"}),
        ("eu", {"orders-eu"}),  # a part of the name is enough, as in Spark
        ("^orders$", {"orders"}),
        ("ay$", {"pay"}),
    ],
)
def test_patterns_are_looked_for_in_names(pattern: str, names: set[str]) -> None:
    found = wanted(understood({"subscribePattern": pattern})).pattern
    assert found is not None
    assert {t for t in ("orders", "orders-eu", "orders.x", "pay") if found.search(t)} == names


FACTS = PartitionFacts(
    topic="t",
    partition=0,
    leader=1,
    log_start_offset=10,
    last_stable_offset=70,
    high_watermark=90,
)


@pytest.mark.parametrize(
    ("options", "at", "expected"),
    [
        ({}, None, (10, 70)),
        ({"isolation": "read_uncommitted"}, None, (10, 90)),
        ({"kafka.isolation.level": "READ_UNCOMMITTED"}, None, (10, 90)),
        ({"startingOffsets": '{"t": {"0": -2}}', "endingOffsets": JSON_OFFSETS}, None, (10, 1)),
        ({"startingOffsets": '{"t": {"0": 0}}'}, None, (0, 70)),
        ({"startingTimestamp": "5"}, 30, (30, 70)),
        ({"endingTimestamp": "5"}, 30, (10, 30)),
        # Kafka's consumer finds no record at or above where its isolation ends
        ({"endingTimestamp": "5"}, 80, (10, 70)),
        ({"endingTimestamp": "5", "isolation": "read_uncommitted"}, 80, (10, 80)),
        ({"endingTimestamp": "5"}, None, (10, 70)),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
            None,
            (70, 70),
        ),
        # the first that is given: the instant of all, that of each partition, the offsets
        ({"startingTimestamp": "5", "startingOffsets": JSON_OFFSETS}, 30, (30, 70)),
        ({"startingOffsetsByTimestamp": JSON_OFFSETS, "startingOffsets": "earliest"}, 30, (30, 70)),
    ],
)
def test_ranges(options: dict[str, str], at: int | None, expected: tuple[int, int]) -> None:
    meant = wanted(understood({"subscribe": "t", **options}))
    for edge in (meant.start, meant.end):
        edge.check({TopicPartition("t", 0)})
    assert (meant.start.resolve(FACTS, at), meant.end.resolve(FACTS, at)) == expected


def test_a_start_behind_the_last_record_is_refused_unless_told_otherwise() -> None:
    start = wanted(understood({"subscribe": "t", "startingTimestamp": "5"})).start
    for at in (None, 70):
        with pytest.raises(UsageError, match="t-0 has no record of that time or later"):
            start.resolve(FACTS, at)


def test_every_partition_and_no_other_has_a_bound() -> None:
    end = wanted(understood({"subscribe": "t", "endingOffsets": JSON_OFFSETS})).end
    end.check({TopicPartition("t", 0)})
    with pytest.raises(UsageError, match="option endingOffsets: t-1 is missing"):
        end.check({TopicPartition("t", 0), TopicPartition("t", 1)})
    with pytest.raises(UsageError, match="option endingOffsets: t-0 is not read"):
        end.check(set())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.bootstrap.servers": "evil:9092"}, "option kafka.bootstrap.servers: the Access"),
        ({"kafka.bootstrap.servers": "b1:9092,evil:9092"}, "the Access given to register"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "option kafka.security.protocol: the Access"),
    ],
)
def test_credentials_go_to_no_other_server(options: dict[str, str], sentence: str) -> None:
    access = Access({"bootstrap.servers": "b1:9092,b2:9092", "security.protocol": "SASL_SSL"})
    with pytest.raises(UsageError, match=sentence):
        connection(access, understood(options))


def test_properties_in_options() -> None:
    access = Access({"bootstrap.servers": "b1:9092,b2"})
    given = understood(
        {
            "kafka.bootstrap.servers": "b2:9092",
            "kafka.request.timeout.ms": "9000",
            "kafka.isolation.level": "read_uncommitted",
        }
    )
    assert connection(access, given).properties == {
        "bootstrap.servers": "b1:9092,b2",
        "request.timeout.ms": "9000",
    }
    assert connection(Access({}), given).properties["bootstrap.servers"] == "b2:9092"


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_servers_by_either_name_are_those_of_the_access(name: str) -> None:
    for other in ("bootstrap.servers", "metadata.broker.list"):
        with pytest.raises(UsageError, match="the Access given to register"):
            connection(Access({name: "b1:9092"}), understood({f"kafka.{other}": "evil:9092"}))


def test_what_decides_ranges() -> None:
    """Columns do not, and the isolation only where `latest` depends on it."""
    view = {"columns": "key", "includeHeaders": "true", "isolation": "read_uncommitted"}
    assert of_ranges(understood({"topics": "t", **view})) == {"topics": "t"}
    assert of_ranges(understood({"subscribe": "t", **view})) == {
        "subscribe": "t",
        "isolation": "read_uncommitted",
    }
