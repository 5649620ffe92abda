"""Before a replay is planned: a killed one's open transaction has to be over first.

Its records make the output's end unknown until the coordinator aborts it, at the latest when its
timeout has passed. The same command run again waits for that instead of being refused.
"""

import asyncio
import time
from collections.abc import Callable

from eoctl.kafka.cluster import Cluster
from eoctl.kafka.coordinators import find
from eoctl.operations.merge import Merge
from eoctl.operations.merge_replay import TIMEOUT_MS

MORE_SECONDS = 20.0  # coordinators look for timeouts every 10 s
_POLL_SECONDS = 0.5
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def own_ended(cluster: Cluster, asked: Merge, note: Callable[[str], None]) -> None:
    """Wait, bounded, until no transactional id of these replays has an open transaction.

    note: told once, if there is something to wait for. What cannot be seen is not waited for:
    planning finds out what is wrong.
    """
    topic = (await cluster.metadata([asked.topic])).topics[asked.topic]
    partitions = asked.partitions or tuple(p.partition for p in topic.partitions)
    ids = [asked.transactional_id(p) for p in partitions]
    end = time.monotonic() + TIMEOUT_MS / 1000 + MORE_SECONDS
    told = False
    while time.monotonic() < end and not cluster.deadline.passed:
        rows, _ = await find(cluster, ids)
        if not any(row.state in _OPEN for row in rows):
            return
        if not told:
            told = True
            seconds = round(TIMEOUT_MS / 1000)
            note(f"an earlier replay left a transaction open: waiting, up to {seconds} s")
        await asyncio.sleep(_POLL_SECONDS)
        cluster.forgive()
