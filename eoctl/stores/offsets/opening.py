"""Open the store of offsets that an application file describes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eoctl.kafka.connection.cluster import Cluster
from eoctl.stores.offsets.store import OffsetStore
from recovery.errors import UsageError
from recovery.shared.app_file import App
from recovery.shared.store_tables import (
    ConnectStore,
    FileStore,
    FlinkCheckpointStore,
    KafkaGroupStore,
    SqlStore,
    Store,
    TopicStore,
    ZooKeeperStore,
)

ANSWER_SECONDS = 10.0  # how long a store may stay silent


@asynccontextmanager
async def open_store(
    described: Store,
    *,
    cluster: Cluster | None = None,
    app: App | None = None,
    seconds: float = ANSWER_SECONDS,
) -> AsyncIterator[OffsetStore]:
    """Open what [app.store] or [app.mirror] describes. cluster: for groups and topics.

    app: its name chooses the rows of a shared SQL table. seconds: how long the store may stay
    silent. Raises UsageError, UnreachableError.
    """
    if isinstance(described, KafkaGroupStore):
        from eoctl.stores.offsets.group import GroupOffsets

        yield GroupOffsets(described, _needed(cluster), None if app is None else app.inputs)
    elif isinstance(described, FileStore):
        from eoctl.stores.offsets.file import FileOffsets

        yield FileOffsets(described, seconds)
    elif isinstance(described, SqlStore):
        from eoctl.stores.offsets.sql import SqlOffsets

        yield SqlOffsets(described, None if app is None else app.name, seconds)
    elif isinstance(described, ZooKeeperStore):
        from eoctl.stores.offsets.zookeeper import ZooKeeperOffsets

        yield ZooKeeperOffsets(described, seconds)
    elif isinstance(described, TopicStore):
        from eoctl.stores.offsets.topic import TopicOffsets

        yield TopicOffsets(described, _needed(cluster), app, seconds)
    elif isinstance(described, FlinkCheckpointStore):
        from eoctl.stores.offsets.checkpoint_store import FlinkOffsets

        yield FlinkOffsets(described, seconds)
    elif isinstance(described, ConnectStore):
        from eoctl.stores.offsets.connect import ConnectOffsets

        yield ConnectOffsets(described, _needed(cluster), seconds)
    else:
        from eoctl.stores.offsets.checkpoint_store import SparkOffsets

        yield SparkOffsets(described, seconds)


def _needed(cluster: Cluster | None) -> Cluster:
    if cluster is None:
        raise UsageError("this store is in Kafka: name a cluster")
    return cluster
