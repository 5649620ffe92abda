"""A store of offsets in one word, as the command line takes it: `zookeeper:zk1:2181/my/offsets`.

`group:G`, `file:PATH`, `topic:TOPIC#KEY`, `zookeeper:CONNECT/PATH`, `sql:URL#TABLE`, `spark:DIR`,
`flink:DIR#UID`.
Anything else (other columns, `position = "last"`) needs an application file.
"""

import re

from pydantic import ValidationError

from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.shared.store_tables import (
    FileStore,
    FlinkCheckpointStore,
    KafkaGroupStore,
    SparkCheckpointStore,
    SqlStore,
    Store,
    TopicStore,
    ZooKeeperStore,
)

WORDS = (
    "group:G, file:PATH, topic:T#KEY, zookeeper:HOSTS/PATH, sql:URL#TABLE, spark:DIR, "
    "flink:DIR[#UID] or APP.toml"
)
_CONSUMER = re.compile(r"(.*)(/consumers/[^/]+/offsets)")


def parse_store(word: str) -> Store | None:
    """Return the store; None if the word has no such prefix and so names an application file.

    Raises UsageError, which never shows a url or a connect string: both may contain a password.
    """
    kind, colon, rest = word.partition(":")
    if kind not in _KINDS or not colon:
        if "@" in word or (colon and not word.endswith(".toml")):  # it may contain a password
            shown = (
                f"{quoted(kind + ':')} is not the beginning of a store; "
                if kind.isalpha() and colon
                else ""
            )
            raise UsageError(f"{shown}write {WORDS}", where="--store")
        return None
    try:
        return _KINDS[kind](rest)
    except (ValidationError, ValueError):
        hidden = kind in ("sql", "zookeeper") or "@" in word
        shown = "" if hidden else f"{quoted(word)} is not a store; "
        raise UsageError(f"{shown}write {_FORMS[kind]}", where="--store") from None


def _group(rest: str) -> Store:
    return KafkaGroupStore(kind="kafka-group", group=rest)


def _file(rest: str) -> Store:
    return FileStore(kind="file", path=rest)


def _topic(rest: str) -> Store:
    topic, _, key = rest.partition("#")  # a topic's name has no #
    if not key:
        raise ValueError("no key")
    return TopicStore(kind="topic", topic=topic, key=key)


def _zookeeper(rest: str) -> Store:
    credentials, at, address = rest.rpartition("@")
    hosts, slash, path = address.partition("/")
    if not hosts or not slash:
        raise ValueError("no path")
    folder, path = "", slash + path
    if inside := _CONSUMER.fullmatch(path):  # old consumers' folder, also below a chroot
        folder, path = inside[1], inside[2]
    return ZooKeeperStore(kind="zookeeper", connect=f"{credentials}{at}{hosts}{folder}", path=path)


def _sql(rest: str) -> Store:
    url, hash_, table = rest.rpartition("#")
    if not hash_:
        raise ValueError("no table")
    return SqlStore(kind="sql", url=url, table=table)


def _spark(rest: str) -> Store:
    return SparkCheckpointStore(kind="spark-checkpoint", path=rest)


def _flink(rest: str) -> Store:
    path, _, uid = rest.partition("#")
    return FlinkCheckpointStore(kind="flink-checkpoint", path=path, uid=uid or None)


_KINDS = {
    "group": _group,
    "file": _file,
    "topic": _topic,
    "zookeeper": _zookeeper,
    "sql": _sql,
    "spark": _spark,
    "flink": _flink,
}
_FORMS = {
    "group": "group:NAME",
    "file": "file:PATH",
    "topic": "topic:TOPIC#KEY",
    "zookeeper": "zookeeper:HOST:PORT/consumers/GROUP/offsets, or /any/node of your own",
    "sql": "sql:URL#TABLE, the url also env:NAME or file:PATH",
    "spark": "spark:DIRECTORY",
    "flink": "flink:DIRECTORY, or flink:DIRECTORY#UID of one source",
}
