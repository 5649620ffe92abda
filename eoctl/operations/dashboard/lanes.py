"""Read the logs of the partitions of an id's newest transaction, for its timeline."""

import asyncio

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.partition_strip import strip
from recovery.answers import Answer
from recovery.inspect.cluster_rows import HistoryRow

MOST = 8  # partitions


async def lanes(cluster: Cluster, history: Answer) -> Answer:
    """Return the stretches of each partition around its LSO, as of `strip`.

    extra: partitions, those that were read; left_out, how many more the transaction has.
    """
    rows = [r for r in history.rows if isinstance(r, HistoryRow)]
    named = next((r.partitions for r in reversed(rows) if r.partitions), [])
    read = named[:MOST]
    answers = await asyncio.gather(*(strip(cluster, name) for name in read))
    return Answer(
        "strip",
        cluster.cluster_id,
        now_ms(),
        [row for a in answers for row in a.rows],
        [error for a in answers for error in a.errors],
        extra={"partitions": read, "left_out": len(named) - len(read)},
    )
