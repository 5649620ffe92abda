"""Stores of offsets as the application file describes them: [app.store] and [app.mirror].

Their content: `recovery.restart.stored`.
"""

from typing import Annotated, Literal

from pydantic import Field

from recovery.documents import StrictDocument

Name = Annotated[str, Field(min_length=1, max_length=249)]
Text = Annotated[str, Field(min_length=1)]


class _Store(StrictDocument):
    """position: whether each offset in the store is the `next` one to process or the `last` one
    that was processed."""

    position: Literal["next", "last"] = "next"


class KafkaGroupStore(_Store):
    """Committed offsets of a consumer group; the outputs are in the commit's metadata."""

    kind: Literal["kafka-group"]
    group: Name


class FileStore(_Store):
    """A JSON file."""

    kind: Literal["file"]
    path: Text


class TopicStore(_Store):
    """A compacted topic of the application: the value under `key` is the JSON object. With the
    strategy `changelog` the topic is the changelog itself and has no key."""

    kind: Literal["topic"]
    topic: Name
    key: Text | None = None


class ZooKeeperStore(_Store):
    """connect: host:port,host:port/chroot. path: `/consumers/<group>/offsets`, with decimal text in
    a node for each partition, or any other node, which then holds the JSON object."""

    kind: Literal["zookeeper"]
    connect: Text
    path: Annotated[str, Field(pattern="^/.*[^/]$")]

    @property
    def is_consumer_offsets(self) -> bool:
        """Return True for nodes of decimal text, as old consumers kept them: without outputs."""
        parts = self.path.split("/")
        return len(parts) == 4 and (parts[1], parts[3]) == ("consumers", "offsets")


class SqlColumns(StrictDocument):
    """The table's columns by content; null: the table has no such column.

    app: the application's name, if several share the table. output: the JSON of the outputs;
    state: bytes.
    """

    app: Text | None = None
    topic: Text = "topic"
    partition: Text = "partition"
    offset: Text = "offset"
    output: Text | None = None
    state: Text | None = None
    merge: Text | None = None
    cluster_id: Text | None = None
    topic_id: Text | None = None
    leader_epoch: Text | None = None


class SqlStore(_Store):
    """A table with a row per partition. url: SQLAlchemy's, or `env:NAME` or `file:PATH` with it."""

    kind: Literal["sql"]
    url: Annotated[str, Field(min_length=1, repr=False)]
    table: Text
    columns: SqlColumns = SqlColumns()


class SparkCheckpointStore(_Store):
    """A Structured Streaming checkpoint directory, which eoctl never writes.

    sink: `batch-id` drops batches that it has seen, `eoctl` is eoctl's own, `other` is any other.
    """

    kind: Literal["spark-checkpoint"]
    path: Text
    sink: Literal["batch-id", "eoctl", "other"] = "other"


class FlinkCheckpointStore(_Store):
    """The source offsets of a Flink checkpoint or savepoint, which eoctl never writes.

    uid: of the source, or its name or operator id; needed if several sources read one partition.
    """

    kind: Literal["flink-checkpoint"]
    path: Text
    uid: Text | None = None


class ConnectStore(StrictDocument):
    """Source offsets of a connector of Kafka Connect, through a worker's REST interface.

    offsets_topic: the workers' `offset.storage.topic`. position: whether the number in
    `[app.source] field` is that of the last record or of the next one. password and key_password
    are `env:NAME` or `file:PATH`; ca, certificate and key name PEM files.
    """

    kind: Literal["connect"]
    url: Annotated[str, Field(pattern="^https?://[^/@?#]+/?$")]
    connector: Text
    offsets_topic: Name
    position: Literal["next", "last"] = "last"
    user: Text | None = None
    password: Annotated[str | None, Field(pattern="^(env|file):", repr=False)] = None
    ca: Text | None = None
    certificate: Text | None = None
    key: Text | None = None
    key_password: Annotated[str | None, Field(pattern="^(env|file):", repr=False)] = None


Store = (
    KafkaGroupStore
    | FileStore
    | TopicStore
    | ZooKeeperStore
    | SqlStore
    | SparkCheckpointStore
    | FlinkCheckpointStore
    | ConnectStore
)
