"""A store in one word."""

import pytest

from recovery.errors import UsageError
from recovery.restart.store_words import parse_store
from recovery.shared.store_tables import (
    FileStore,
    KafkaGroupStore,
    SparkCheckpointStore,
    SqlStore,
    Store,
    TopicStore,
    ZooKeeperStore,
)


def zookeeper(connect: str, path: str) -> Store:
    return ZooKeeperStore(kind="zookeeper", connect=connect, path=path)


def sql(url: str, table: str) -> Store:
    return SqlStore(kind="sql", url=url, table=table)


@pytest.mark.parametrize(
    ("word", "store"),
    [
        ("group:orders:x", KafkaGroupStore(kind="kafka-group", group="orders:x")),
        ("file:/var/a b.json", FileStore(kind="file", path="/var/a b.json")),
        ("topic:offsets#my#key", TopicStore(kind="topic", topic="offsets", key="my#key")),
        ("spark:/data/ckpt", SparkCheckpointStore(kind="spark-checkpoint", path="/data/ckpt")),
        (
            "zookeeper:zk1:2181,zk2:2181/consumers/g/offsets",
            zookeeper("zk1:2181,zk2:2181", "/consumers/g/offsets"),
        ),
        (
            "zookeeper:zk1:2181/kafka/prod/consumers/g/offsets",
            zookeeper("zk1:2181/kafka/prod", "/consumers/g/offsets"),
        ),
        ("zookeeper:zk1:2181/my/node", zookeeper("zk1:2181", "/my/node")),
        (
            "zookeeper:ops:file:/etc/p@zk1:2181/my/node",
            zookeeper("ops:file:/etc/p@zk1:2181", "/my/node"),
        ),
        ("sql:env:DB#offsets", sql("env:DB", "offsets")),
        ('sql:postgresql://h/db#"s"."t"', sql("postgresql://h/db", '"s"."t"')),
        ("sql:sqlite:////a#b/c#offsets", sql("sqlite:////a#b/c", "offsets")),
        ("app.toml", None),
        ("./file:odd.toml", None),
        ("C:app.toml", None),
    ],
)
def test_words(word: str, store: Store | None) -> None:
    assert parse_store(word) == store


@pytest.mark.parametrize(
    "word",
    [
        "group:",
        "file:",
        "topic:offsets",
        "topic:#k",
        "topic:offsets#",
        "spark:",
        "zookeeper:zk1:2181",
        "zookeeper:/node",
        "zookeeper:u:secret@zk1:2181",
        "zookeeper:zk1:2181/node/",
        "sql:postgresql://u:secret@h/db",
        "sql:#t",
        "sql:postgresql://u:secret@h/db#",
    ],
)
def test_what_is_no_store(word: str) -> None:
    with pytest.raises(UsageError, match=r"--store: .*write ") as error:
        parse_store(word)
    assert "secret" not in error.value.sentence
