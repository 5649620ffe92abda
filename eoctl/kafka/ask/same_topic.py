"""Ask whether a topic is the one that somebody else looked at."""

from eoctl.kafka.ask.collect import ids_of_leaders
from eoctl.kafka.connection.cluster import Cluster
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition


async def refuse_other(
    cluster: Cluster, cluster_id: str | None, topic_id: str | None, partition: TopicPartition
) -> None:
    """Raise RefusedError if a task reaches another cluster, or another topic of this name.

    cluster_id, topic_id: as the request has them. Raises IncompleteError if the leader of the
    partition does not say.
    """
    metadata = await cluster.metadata([partition.topic])
    where = str(partition)
    if cluster.cluster_id != cluster_id:
        raise RefusedError(
            f"executors reach cluster {cluster.cluster_id} there, and not {cluster_id}",
            where=where,
            remedy="let its brokers have the same addresses for them",
        )
    scope = [p for t in metadata.topics.values() for p in t.partitions]
    scope = [p for p in scope if p.topic_partition == partition]
    ids = (await ids_of_leaders(cluster, scope)).get(partition.topic, {None})
    if ids - {None, topic_id}:
        raise RefusedError(
            "it was deleted and created again since the run began",
            where=where,
            remedy="run it again",
        )
    if ids != {topic_id}:
        raise IncompleteError("its leader does not say which topic it is", where=where)
