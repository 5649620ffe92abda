"""What brokers answered to ApiVersions when their connections were opened: no request is sent."""

from functools import partial

from eoctl.kafka.connection.cluster import Cluster
from recovery.doctor.versions import Protocol


async def protocols(cluster: Cluster) -> dict[int, Protocol]:
    """Return the versions and features of each broker that answers."""
    connections, _ = await cluster.ask_each(
        {broker: partial(cluster.connection, broker) for broker in cluster.brokers}
    )
    return {
        broker: Protocol(dict(c.versions), dict(c.supported), dict(c.features))
        for broker, c in connections.items()
    }
