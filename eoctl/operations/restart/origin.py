"""Read the group in the cluster that it leaves: a plan relies on what it committed there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.operations.restart.restart_request import Origin
from eoctl.settings.context import Connect, resolve
from eoctl.stores.offsets.group import GroupOffsets, refuse_members
from eoctl.stores.offsets.store import Contents
from recovery.change.plan import differences
from recovery.errors import RefusedError, UnreachableError
from recovery.quoting import some
from recovery.shared.app_file import named
from recovery.shared.store_tables import KafkaGroupStore


@asynccontextmanager
async def opened_origin(context: str, deadline: Deadline) -> AsyncIterator[Cluster]:
    """Yield the cluster that the group leaves, only to read it.

    Raises UsageError for an unknown context, UnreachableError.
    """
    settings = resolve(Connect(context=context)).settings()
    async with Cluster(settings, deadline, read_only=True) as cluster:
        yield cluster


async def committed_in(
    cluster: Cluster, context: str, group: str, topics: Sequence[str] | None
) -> Contents:
    """Return what the group has committed there. topics: None = all that it has committed.

    Raises RefusedError while it has members or commits that a transaction holds, IncompleteError.
    """
    where = f"group {group} in {context}"
    store = GroupOffsets(KafkaGroupStore(kind="kafka-group", group=group), cluster, topics)
    contents = await store.read()
    refuse_members(contents, where)
    pending = [o for o in contents.pending if topics is None or o.topic in topics]
    if pending:
        raise RefusedError(
            "an open transaction holds its commit of "
            + some([str(o.topic_partition) for o in pending]),
            where=where,
            remedy=f"it must end first: see `eoctl why --group {group} --context {context}`",
        )
    return contents


async def refuse_moved(origin: Origin, deadline: Deadline) -> None:
    """Raise RefusedError if the group has committed something else than the plan relies on."""
    try:
        async with opened_origin(origin.context, deadline) as cluster:
            if cluster.cluster_id != origin.cluster_id:
                raise RefusedError(
                    f"the plan comes from cluster {origin.cluster_id}, but {cluster.cluster_id} "
                    "answers",
                    where=origin.context,
                )
            topics = sorted({partition.rpartition(":")[0] for partition in origin.commits})
            contents = await committed_in(cluster, origin.context, origin.group, topics)
    except UnreachableError as error:
        raise UnreachableError(
            f"the cluster that the group leaves does not answer: {error.what}",
            where=origin.context,
            remedy="its offsets cannot be compared again; `restart show PLAN --export` has the "
            "planned ones, for `restart plan --from-file`",
        ) from None
    held = {named(partition): kept for partition, kept in contents.kept.items()}
    now = {partition: held.get(partition) for partition in origin.commits}
    changed = differences(origin.commits, now)
    if changed:
        raise RefusedError(
            f"it has committed since: {changed[0]}",
            where=f"group {origin.group} in {origin.context}",
            remedy="stop it there, then plan again",
        )
