"""Wait for a killed replay's open transaction to end, before a new replay is planned.

Its records make the output's end unknown until the coordinator aborts it, at the latest when its
timeout has passed. The repeated command waits for that instead of being refused. It does not wait
for the transaction of a replay that still runs.
"""

import asyncio
from collections.abc import Callable

from eoctl.kafka.ask.coordinators import find
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.acting import refuse_beside_running
from eoctl.operations.merge.planning import Merge
from eoctl.operations.merge.replay import TIMEOUT_MS
from eoctl.operations.merge.replay_change import scope_of
from recovery.times import format_duration

MORE_SECONDS = 20.0  # coordinators check timeouts every 10 s
_POLL_SECONDS = 0.5
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def own_ended(cluster: Cluster, merge: Merge, note: Callable[[str], None]) -> None:
    """Wait, bounded, until no transactional id of these replays has an open transaction.

    note: called once, if there is something to wait for. Does not wait for what cannot be seen:
    planning finds out what is wrong. Raises RefusedError while a replay of this host runs.
    """
    refuse_beside_running(cluster.cluster_id or "", scope_of(merge))
    topic = (await cluster.metadata([merge.topic])).topics[merge.topic]
    partitions = merge.partitions or tuple(p.partition for p in topic.partitions)
    ids = [merge.transactional_id(p) for p in partitions]
    most = cluster.deadline.within(TIMEOUT_MS / 1000 + MORE_SECONDS)
    noted = False
    while not most.passed:
        rows, _ = await find(cluster, ids)
        if not any(row.state in _OPEN for row in rows):
            return
        if not noted:
            noted = True
            up_to = format_duration(round(most.seconds_left or 0))
            note(
                "an earlier replay left a transaction open, or one runs on another host: waiting, "
                f"up to {up_to}"
            )
        await asyncio.sleep(_POLL_SECONDS)
        cluster.forgive()
