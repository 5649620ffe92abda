"""The application file and what its store holds: read as written, or refused by table and key."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.restart.stored import (
    StoredOffset,
    StoredOutput,
    StoredPartition,
    as_kept,
    dump_metadata,
    dump_stored,
    next_positions,
    parse_metadata,
    parse_stored,
)
from recovery.shared.app_file import App, parse_app_file
from recovery.shared.store_tables import (
    FileStore,
    KafkaGroupStore,
    SqlStore,
    TopicStore,
    ZooKeeperStore,
)

APP = """
[app]
name = "orders-enricher"
strategy = "commit-pair"
inputs = ["orders"]
outputs = ["orders-enriched"]
isolation = "read_committed"
exclusive = true
[app.mapping]
"orders:3" = ["orders-enriched:7"]
[app.base]
"orders:0" = 17
[app.store]
kind = "kafka-group"
group = "orders-enricher"
position = "next"
[app.mirror]
kind = "zookeeper"
connect = "zk1:2181"
path = "/consumers/orders-enricher/offsets"
"""


def test_the_file_of_the_documentation() -> None:
    app = parse_app_file(APP, "app.toml")
    assert (app.name, app.strategy, app.inputs) == ("orders-enricher", "commit-pair", ("orders",))
    assert app.store == KafkaGroupStore(kind="kafka-group", group="orders-enricher")
    assert app.outputs_of(TopicPartition("orders", 3)) == (("orders-enriched", 7),)
    assert app.outputs_of(TopicPartition("orders", 4)) == (("orders-enriched", 4),)
    assert app.base_of(TopicPartition("orders", 0)) == 17
    assert app.base_of(TopicPartition("orders", 1)) is None
    assert isinstance(app.mirror, ZooKeeperStore)
    assert app.mirror.is_consumer_offsets


def test_what_may_be_left_out() -> None:
    app = parse_app_file('[app]\nname="a"\nstrategy="output-end"\ninputs=["i"]\noutputs=["o"]', "f")
    assert app == App(name="a", strategy="output-end", inputs=("i",), outputs=("o",))
    assert (app.isolation, app.exclusive, app.position) == ("read_committed", True, "next")


def written(strategy: str, store: str, more: str = "", outputs: str | None = None) -> str:
    if outputs is None:
        outputs = "[]" if strategy.endswith("-checkpoint") else '["o"]'
    return (
        f'[app]\nname="a"\nstrategy="{strategy}"\ninputs=["i"]\noutputs={outputs}\n'
        f"[app.store]\n{store}\n{more}"
    )


@pytest.mark.parametrize(
    ("strategy", "store"),
    [
        ("output-end", 'kind="file"\npath="p"'),
        ("commit-pair", 'kind="topic"\ntopic="t"\nkey="k"'),
        ("commit-pair", 'kind="zookeeper"\nconnect="z:1"\npath="/mine"'),
        ("checkpoint", 'kind="file"\npath="p"\nposition="last"'),
        ("changelog", 'kind="topic"\ntopic="coast.cl.s"'),
        ("transactional", 'kind="kafka-group"\ngroup="g"'),
        ("sql", 'kind="sql"\nurl="env:U"\ntable="t"'),
        ("sql", 'kind="sql"\nurl="env:U"\ntable="t"\n[app.store.columns]\noffset="next"'),
        ("spark-checkpoint", 'kind="spark-checkpoint"\npath="p"\nsink="eoctl"'),
        ("flink-checkpoint", 'kind="flink-checkpoint"\npath="p"'),
        ("flink-checkpoint", 'kind="flink-checkpoint"\npath="p"\nuid="orders-source"'),
    ],
)
def test_stores_that_fit(strategy: str, store: str) -> None:
    app = parse_app_file(written(strategy, store), "f")
    assert app.store is not None
    assert f'kind="{app.store.kind}"' in store


def test_a_merge_log_names_its_topic() -> None:
    more = '[app.merge]\ntopic="coast.mg.o"\nformat="coast"'
    app = parse_app_file(written("merge-log", 'kind="file"\npath="p"', more), "f")
    assert app.merge is not None
    assert (app.merge.topic, app.merge.format) == ("coast.mg.o", "coast")


FILE = 'kind="file"\npath="p"'
GROUP = 'kind="kafka-group"\ngroup="g"'
SPARK = 'kind="spark-checkpoint"\npath="p"\nsink="eoctl"'
FLINK = 'kind="flink-checkpoint"\npath="p"'


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[app", "f", "not TOML"),
        ("[other]", "f", "[app]"),
        ('[app]\nname="a"', "f, [app] strategy", "missing"),
        (APP.replace("commit-pair", "guess"), "f, [app] strategy", "'guess' is not known"),
        (APP.replace("exclusive = true", "exclusive = 1"), "f, [app] exclusive", "bool"),
        (APP.replace("exclusive", "exclusiv"), "f, [app] exclusiv", "not a key"),
        (APP.replace("[app.base]", "[app.bases]"), "f, [app.bases]", "not a key"),
        (APP.replace("= 17", "= -1"), "f, [app.base] orders:0", "greater"),
        (APP.replace('"orders:0" = 17', '"other:0" = 17'), "f, [app.base]", "other"),
        (APP.replace('"orders:0" = 17', '"orders" = 17'), "f, [app.base]", "not one partition"),
        (APP.replace('"orders:0" = 17', '"orders:0-2" = 17'), "f, [app.base]", "not one partition"),
        (APP.replace('"orders:0" = 17', '"orders:00" = 17'), "f, [app.base]", "write orders:0"),
        (APP.replace('"orders:3" =', '"orders-enriched:3" ='), "f, [app.mapping]", "not an input"),
        (APP.replace("enriched:7", "enriched:x"), "f, [app.mapping] orders:3", "enriched:x"),
        (APP.replace('enriched:7"', 'enriched:7", "orders-enriched:7"'), "mapping]", "twice"),
        (APP.replace('"kafka-group"', '"redis"'), "f, [app.store] kind", "'redis' is not a store"),
        (APP.replace('kind = "kafka-group"', ""), "f, [app.store] kind", "missing"),
        (APP.replace("group = ", "groups = "), "f, [app.store] group", "missing"),
        (APP.replace('"next"', '"first"'), "f, [app.store] position", "'first' is not known"),
        (APP.replace('"zk1:2181"', "5"), "f, [app.mirror] connect", "string"),
        (APP.replace('["orders"]', '["orders","orders"]'), "f, [app] inputs", "twice"),
        (APP.replace('["orders"]', '["or*"]'), "f, [app] inputs", "not a topic name"),
        (APP.replace('["orders-enriched"]', '["orders"]'), "f, [app] outputs", "read again"),
        (APP.replace('["orders-enriched"]', "[]"), "f, [app] outputs", "name them"),
        (written("checkpoint", GROUP), "f, [app.store] kind", "kafka-group cannot hold"),
        (written("transactional", FILE), "f, [app.store] kind", "file cannot hold"),
        (written("commit-pair", 'kind="topic"\ntopic="t"'), "f, [app.store] key", "missing"),
        (written("changelog", 'kind="topic"\ntopic="t"\nkey="k"'), "[app.store] key", "no meaning"),
        (
            written("commit-pair", 'kind="zookeeper"\nconnect="z"\npath="/consumers/g/offsets"'),
            "f, [app.store] path",
            "input offsets only",
        ),
        (
            written("commit-pair", 'kind="sql"\nurl="u"\ntable="t"'),
            "f, [app.store.columns] output",
            "missing",
        ),
        (
            written("sql", 'kind="sql"\nurl="u"\ntable="t"\n[app.store.columns]\nofset="x"'),
            "f, [app.store.columns] ofset",
            "not a key",
        ),
        (written("merge-log", FILE), "f, [app.merge]", "missing"),
        (
            written("commit-pair", FILE, '[app.merge]\ntopic="m"\nformat="json"'),
            "f, [app.merge]",
            "merge-log only",
        ),
        (written("commit-pair", FILE, f"[app.mirror]\n{FILE}"), "f, [app.mirror]", "itself"),
        (
            written("changelog", 'kind="topic"\ntopic="t"').replace('["i"]', '["i","j"]'),
            "f, [app]",
            "one of each",
        ),
        (
            '[app]\nname="a"\nstrategy="sql"\ninputs=["i"]',
            "f, [app.store]",
            "missing",
        ),
        *(
            (written(*each), "f, [app.store] position", "is for stores that keep")
            for each in (
                ("changelog", 'kind="topic"\ntopic="t"\nposition="last"'),
                ("spark-checkpoint", f'{SPARK}\nposition="last"'),
                ("flink-checkpoint", f'{FLINK}\nposition="last"'),
            )
        ),
        (written("spark-checkpoint", SPARK, outputs='["o"]'), "f, [app] outputs", "Spark replays"),
        (written("flink-checkpoint", FLINK, outputs='["o"]'), "f, [app] outputs", "transactions"),
        (written("flink-checkpoint", GROUP), "f, [app.store] kind", "write flink-checkpoint"),
        (written("commit-pair", FLINK), "f, [app.store] kind", "flink-checkpoint cannot hold"),
        (
            written("flink-checkpoint", 'kind="flink-checkpoint"'),
            "f, [app.store] path",
            "missing",
        ),
        (
            written("flink-checkpoint", FLINK, f"[app.mirror]\n{GROUP}"),
            "f, [app.mirror]",
            "nothing can be mirrored here",
        ),
    ],
)
def test_every_error_names_table_and_key(text: str, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_app_file(text, "f")
    assert where in (caught.value.where or "")
    assert what in caught.value.sentence


def test_the_url_of_a_database_is_a_secret() -> None:
    app = parse_app_file(
        written("sql", 'kind="sql"\nurl="postgresql://u:hunter2@h/d"\ntable="t"'), "f"
    )
    assert isinstance(app.store, SqlStore)
    assert app.store.url.endswith("/d")
    assert "hunter2" not in repr(app)
    with pytest.raises(UsageError) as caught:
        parse_app_file(written("sql", 'kind="sql"\nurl=["hunter2"]\ntable="t"'), "f")
    assert "hunter2" not in caught.value.sentence


def test_file_and_topic_stores_are_what_was_written() -> None:
    file = parse_app_file(written("commit-pair", 'kind="file"\npath="/a b"'), "f").store
    assert file == FileStore(kind="file", path="/a b")
    topic = parse_app_file(written("commit-pair", 'kind="topic"\ntopic="t"\nkey="k"'), "f").store
    assert topic == TopicStore(kind="topic", topic="t", key="k")


# What a store holds.

NAMES = st.text(string.ascii_lowercase + "._-", min_size=1, max_size=8)
OFFSETS = st.integers(0, 2**62)


def stored(kind: type[StoredOffset]) -> st.SearchStrategy[StoredOffset]:
    fields = {
        "topic": NAMES,
        "partition": st.integers(0, 9),
        "offset": OFFSETS,
        "cluster_id": st.none() | NAMES,
        "topic_id": st.none() | NAMES,
        "leader_epoch": st.none() | st.integers(0, 99),
    }
    if kind is StoredOutput:
        fields |= {k: st.none() | st.integers(0, 9) for k in ("producer_id", "last_sequence")}
    return st.builds(kind, **fields)


PARTITIONS = st.lists(
    st.builds(
        StoredPartition,
        input=stored(StoredOffset),
        output=st.lists(
            stored(StoredOutput), max_size=3, unique_by=lambda o: o.topic_partition
        ).map(tuple),
        state=st.none() | st.binary(max_size=9),
        merge=st.none() | OFFSETS,
    ),
    max_size=4,
    unique_by=lambda p: p.input.topic_partition,
).map(tuple)


@given(PARTITIONS)
@settings(deadline=None)
def test_stored_offsets_come_back_as_they_were(partitions: tuple[StoredPartition, ...]) -> None:
    text = dump_stored(partitions)
    assert parse_stored(text, "s") == partitions
    assert dump_stored(parse_stored(text, "s")) == text
    for p in partitions:
        assert parse_metadata(dump_metadata(p.output), "m") == p.output
    assert next_positions(as_kept(partitions, "last"), "last") == partitions
    assert as_kept(partitions, "next") == partitions == next_positions(partitions, "next")


def test_the_object_of_the_documentation() -> None:
    text = """{"partitions": [
      {"input": {"topic": "orders", "partition": 3, "offset": 1042, "topic_id": "x"},
       "output": {"topic": "out", "partition": 3, "offset": 17, "leader_epoch": 2},
       "state": "AAEC", "merge": 9},
      {"input": {"topic": "orders", "partition": 4, "offset": 0},
       "output": [{"topic": "a", "partition": 4, "offset": 1},
                  {"topic": "b", "partition": 4, "offset": 2}]}]}"""
    first, second = parse_stored(text, "s")
    assert first.input == StoredOffset(topic="orders", partition=3, offset=1042, topic_id="x")
    assert first.output == (StoredOutput(topic="out", partition=3, offset=17, leader_epoch=2),)
    assert (first.state, first.merge) == (b"\0\1\2", 9)
    assert [o.topic for o in second.output] == ["a", "b"]
    assert json.loads(dump_stored((first, second))) == json.loads(text)


def test_last_is_one_below_next_for_every_offset() -> None:
    entry = StoredPartition(
        input=StoredOffset(topic="i", partition=0, offset=4),
        output=(StoredOutput(topic="o", partition=0, offset=-1),),
        merge=7,
    )
    (found,) = next_positions((entry,), "last")
    assert (found.input.offset, found.output[0].offset, found.merge) == (5, 0, 8)
    with pytest.raises(CorruptError, match="o:0 holds the offset -1"):
        next_positions((entry,), "next")


INPUT = '{"topic":"i","partition":0,"offset":1}'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not the JSON"),
        ("{", "not the JSON"),
        ("[" * 100_000, "nested"),
        ("[]", "valid dictionary"),
        ('{"partitions": 1}', "partitions"),
        ('{"partitions": [], "partitions": []}', "twice"),
        ('{"partitions": [], "more": 1}', "more"),
        ('{"partitions": [{}]}', "partitions.0.input"),
        (f'{{"partitions": [{{"input":{INPUT},"ouput":{INPUT}}}]}}', "partitions.0.ouput"),
        (f'{{"partitions": [{{"input":{INPUT[:-1]}.5}}}}]}}', "partitions.0.input.offset"),
        (f'{{"partitions": [{{"input":{INPUT.replace("1", "true")}}}]}}', "input.offset"),
        (f'{{"partitions": [{{"input":{INPUT.replace("1", "-2")}}}]}}', "input.offset"),
        (f'{{"partitions": [{{"input":{INPUT},"state":"?"}}]}}', "not base64"),
        (f'{{"partitions": [{{"input":{INPUT}}},{{"input":{INPUT}}}]}}', "i:0 is there twice"),
        (
            f'{{"partitions": [{{"input":{INPUT},"output":[{INPUT},{INPUT}]}}]}}',
            "i:0 is there twice",
        ),
    ],
)
def test_other_content_is_refused_not_guessed(text: str, what: str) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_stored(text, "file /x")
    assert what in caught.value.sentence
    assert caught.value.where == "file /x"


@pytest.mark.parametrize("text", [None, "", "some words", "5", "[]", '{"app": 1}', "{"])
def test_metadata_of_others_holds_no_outputs(text: str | None) -> None:
    assert parse_metadata(text, "g") == ()


def test_metadata_as_librdkafkas_python_bindings_store_it() -> None:
    """With a NUL at its end."""
    text = '{"output": {"topic": "o", "partition": 0, "offset": 7}}'
    assert parse_metadata(text + "\0", "g") == parse_metadata(text, "g") != ()


def test_metadata_with_a_broken_output_is_refused() -> None:
    with pytest.raises(CorruptError, match="metadata: output"):
        parse_metadata('{"output": {"topic": "o"}}', "g")
    assert dump_metadata(()) == ""
