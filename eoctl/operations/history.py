"""`txn history`: what `__transaction_state` recorded of transactional ids and producer ids."""

from collections.abc import Sequence

from eoctl.kafka import coordinators, evidence
from eoctl.kafka.cluster import Cluster
from eoctl.operations.session import now_ms
from recovery.answers import Answer, error_rows
from recovery.facts import Missing
from recovery.formats.coordinator import coordinator_partition
from recovery.history_rows import history_rows
from recovery.rows_diagnosis import HistoryRow


async def history(
    cluster: Cluster,
    ids: Sequence[str],
    producer_ids: Sequence[int],
    window: tuple[int | None, int | None] = (None, None),
) -> Answer:
    """Every record of these ids, and of each id that ever bore one of the producer ids.

    window: records from this time and before that one (epoch ms).
    """
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return _answer(cluster, [], [partitions], 0, whole=False)
    wanted = partitions
    if not producer_ids and partitions:
        homes = {coordinator_partition(name, len(partitions)) for name in ids}
        wanted = tuple(p for p in partitions if p.partition in homes)
    logs = await evidence.state_logs(cluster, wanted, producer_ids, ids)
    missing = [
        Missing(
            "partition",
            log.error,
            "this part of the history could not be read",
            topic=coordinators.TRANSACTION_STATE,
            partition=log.partition,
        )
        for log in logs
        if log.error is not None
    ]
    since, until = window
    rows = [
        row
        for row in history_rows(r for log in logs for r in log.records)
        if row.timestamp is None
        or ((since is None or row.timestamp >= since) and (until is None or row.timestamp < until))
    ]
    named = {row.transactional_id for row in rows}
    found_logs = {coordinator_partition(name, len(partitions)) for name in named}
    whole = all(log.whole_from == 0 for log in logs if log.partition in found_logs)
    return _answer(cluster, rows, missing, len(named), whole=whole)


def _answer(
    cluster: Cluster,
    rows: Sequence[HistoryRow],
    missing: Sequence[Missing],
    ids: int,
    *,
    whole: bool,
) -> Answer:
    return Answer(
        schema="txn-history",
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        errors=error_rows(missing),
        extra={"transactional_ids": ids, "whole": whole},
    )
