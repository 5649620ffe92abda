"""Refuse a change before its first step if the brokers report that a right it needs is missing.

Brokers report the operations that they allow on topics, groups and the cluster (KIP-430) to whoever
has DESCRIBE there, and never those on transactional ids. Without a report nothing is refused here:
then the broker's own answer to the step decides.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from eoctl.kafka.ask import acls
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.errors import RefusedError, UnreachableError
from recovery.inspect.rights import ALTER_CLUSTER, WRITES_MARKERS, Need
from recovery.quoting import some

_ALLOWED_BY = {
    "READ": (acls.READ,),
    "WRITE": (acls.WRITE,),
    "DELETE": (acls.DELETE,),
    "ALTER": (acls.ALTER, acls.CLUSTER_ACTION),  # either writes markers (KIP-1037)
}
Report = Mapping[str, int]
"""Name of a resource → bits of the operations allowed on it."""


async def refuse_ungranted(cluster: Cluster, needs: Collection[Need]) -> None:
    """Raise RefusedError, which names each right that is reported as not granted."""
    ungranted: list[Need] = []
    for kind, ask in _REPORTS.items():
        mine = sorted((need for need in needs if need.kind == kind), key=lambda need: need.right)
        if mine:
            report = await _reported(ask(cluster, sorted({need.name for need in mine})))
            ungranted += [need for need in mine if is_ungranted(need, report)]
    if ungranted:
        rights = some([need.right for need in ungranted])
        raise RefusedError(
            f"the brokers report these rights as not granted: {rights}",
            where=cluster.cluster_id,
            remedy=ALTER_CLUSTER if ungranted == [WRITES_MARKERS] else f"grant {rights}",
        )


def is_ungranted(need: Need, report: Report) -> bool:
    """Return True only if the resource's report has DESCRIBE, without which it is none."""
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
