"""Stores of offsets as the application file describes them: [app.store] and [app.mirror].

What they hold: `recovery.restart.stored`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=249)]
Text = Annotated[str, Field(min_length=1)]


class Table(BaseModel):
    """A table of the application file: no other keys, no other types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class _Store(Table):
    """position: `next`, the next offset to process, or `last`, the last one that was processed;
    said of every offset that the store keeps."""

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
    """A compacted topic of the application: the JSON object is the value under `key`. With the
    strategy `changelog` the topic is the changelog itself, and there is no key."""

    kind: Literal["topic"]
    topic: Name
    key: Text | None = None


class ZooKeeperStore(_Store):
    """connect: host:port,host:port/chroot. path: `/consumers/<group>/offsets` with a node of
    decimal text for each partition, or any other node, which then holds the JSON object."""

    kind: Literal["zookeeper"]
    connect: Text
    path: Annotated[str, Field(pattern="^/.*[^/]$")]

    @property
    def is_consumer_offsets(self) -> bool:
        """Decimal text per partition, as Kafka's old consumers kept it: no room for outputs."""
        parts = self.path.split("/")
        return len(parts) == 4 and (parts[1], parts[3]) == ("consumers", "offsets")


class SqlColumns(Table):
    """The table's columns by what they hold. Those that are null are not there.

    app: the application's name, where several share the table. output: the JSON of the outputs;
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
    """url: SQLAlchemy's, or `env:NAME` or `file:PATH` that hold it. A row for each partition."""

    kind: Literal["sql"]
    url: Annotated[str, Field(min_length=1, repr=False)]
    table: Text
    columns: SqlColumns = SqlColumns()


class SparkCheckpointStore(_Store):
    """A Structured Streaming checkpoint directory; it is never written.

    sink: `batch-id` drops a batch that it has seen, `eoctl` is eoctl's own, `other` is any other.
    """

    kind: Literal["spark-checkpoint"]
    path: Text
    sink: Literal["batch-id", "eoctl", "other"] = "other"


class FlinkCheckpointStore(_Store):
    """The source offsets of a Flink checkpoint or savepoint; it is never written.

    uid: of the source, where several read the same partition; its name and its operator id do too.
    """

    kind: Literal["flink-checkpoint"]
    path: Text
    uid: Text | None = None


class ConnectStore(Table):
    """Source offsets of a connector of Kafka Connect, by a worker's REST interface.

    offsets_topic: the workers' `offset.storage.topic`. position: what the number of
    `[app.source] field` says: the last record, or the next one. password and key_password are
    `env:NAME` or `file:PATH`; ca, certificate and key name PEM files.
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
