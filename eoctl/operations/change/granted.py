"""Ask the brokers which of the rights that a change needs they report as not granted.

Brokers report the operations that they allow on topics, groups and the cluster (KIP-430) to whoever
has DESCRIBE there, and never those on transactional ids. What they do not report is not refused for
that: then the broker's own answer to the step decides.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from eoctl.kafka.ask import acls
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.errors import UnreachableError
from recovery.inspect.rights import Need

_ALLOWED_BY = {
    "READ": (acls.READ,),
    "WRITE": (acls.WRITE,),
    "DELETE": (acls.DELETE,),
    "ALTER": (acls.ALTER, acls.CLUSTER_ACTION),  # either writes markers (KIP-1037)
}
Report = Mapping[str, int]
"""Name of a resource → bits of the operations allowed on it."""


async def ungranted(cluster: Cluster, needs: Collection[Need]) -> frozenset[Need]:
    """Return those that are reported as not granted. Each kind of resource is asked for once."""
    found: set[Need] = set()
    for kind, ask in _REPORTS.items():
        mine = [need for need in needs if need.kind == kind]
        if mine:
            report = await _reported(ask(cluster, sorted({need.name for need in mine})))
            found |= {need for need in mine if is_ungranted(need, report)}
    return frozenset(found)


def is_ungranted(need: Need, report: Report) -> bool:
    """Return whether the report denies the operation. One without DESCRIBE says nothing: False."""
    bits = report.get(need.name, 0)
    return bool(bits >> acls.DESCRIBE & 1) and not any(
        bits >> operation & 1 for operation in _ALLOWED_BY[need.operation]
    )


async def _reported(asking: Coroutine[Any, Any, Report]) -> Report:
    try:
        return await asking
    except (WireError, UnreachableError):
        return {}


async def _on_topics(cluster: Cluster, names: list[str]) -> Report:
    return await cluster.topic_operations(names)


async def _on_groups(cluster: Cluster, names: list[str]) -> Report:
    return (await acls.group_operations(cluster, names))[0]


async def _on_cluster(cluster: Cluster, names: list[str]) -> Report:
    return {"": await acls.cluster_operations(cluster) or 0}


_REPORTS: Mapping[str, Callable[[Cluster, list[str]], Coroutine[Any, Any, Report]]] = {
    "topic": _on_topics,
    "group": _on_groups,
    "cluster": _on_cluster,
}
