"""`txn history`: show `__transaction_state`'s records of transactional ids and producer ids."""

from collections import Counter
from collections.abc import Collection, Sequence

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.state_logs import noted_state_logs
from eoctl.operations.inspect.source import Source, StateLogs
from eoctl.render.diagnose_words import contest_notes
from eoctl.stores.history_cache import state_cache
from recovery.answers import Answer, error_rows
from recovery.diagnose.contest import Contest, contests
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.facts import Missing
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.history_rows import history_rows
from recovery.inspect.rights import and_grant

NEWEST = 1000
"""Records of each id that are shown: an id of a busy application has a hundred thousand a day."""


async def history(
    source: Source,
    ids: Sequence[str],
    producer_ids: Sequence[int],
    window: tuple[int | None, int | None] = (None, None),
    newest: int | None = NEWEST,
) -> Answer:
    """Return `history_and_contests` without the contests as values."""
    answer, _ = await history_and_contests(source, ids, producer_ids, window, newest)
    return answer


async def history_and_contests(
    source: Source,
    ids: Sequence[str],
    producer_ids: Sequence[int],
    window: tuple[int | None, int | None] = (None, None),
    newest: int | None = NEWEST,
) -> tuple[Answer, list[ContestRow]]:
    """Return the records of these ids, and of each id that ever had one of the producer ids.

    window: records from this time and before that one (epoch ms). newest: this many records of each
    id, which the window then filters; None = all. `left_out`: ids that have more.
    """
    state_logs = await source.state_logs(ids, producer_ids, newest)
    contested = [
        contest_row(c) for c in contests(r for log in state_logs.logs for r in log.records)
    ]
    since, until = window
    loaded = Counter(r.transactional_id for log in state_logs.logs for r in log.records)
    cut = {name for log in state_logs.logs for name in log.cuts}
    left_out = sorted(name for name in cut if newest is not None and loaded[name] >= newest)
    rows = [
        row
        for row in history_rows(r for log in state_logs.logs for r in log.records)
        if row.timestamp is None
        or ((since is None or row.timestamp >= since) and (until is None or row.timestamp < until))
    ]
    named = {row.transactional_id for row in rows}
    all_ids = named | set(ids or ())
    homes = {
        coordinator_partition(name, state_logs.partitions)
        for name in all_ids
        if state_logs.partitions
    }
    homes |= {row.coordinator_partition for row in rows}
    whole = not state_logs.missing and all(
        log.whole_from == 0 and not log.cuts for log in state_logs.logs if log.partition in homes
    )
    answer = Answer(
        schema="txn-history",
        cluster_id=source.cluster_id,
        collected_at=source.now(),
        rows=rows,
        errors=error_rows([*state_logs.missing, *unread(state_logs)]),
        extra={
            "transactional_ids": len(named),
            "whole": whole,
            "left_out": left_out,
            "contests": [c.json_values() for c in contested],
        },
        notes=contest_notes(contested, source.now()),
    )
    return answer, contested


def unread(state_logs: StateLogs) -> list[Missing]:
    """Return the logs that could not be read."""
    return [
        Missing(
            "partition",
            log.error,
            and_grant(
                "this part of the history could not be read", log.error, "READ on that topic"
            ),
            topic=coordinators.TRANSACTION_STATE,
            partition=log.partition,
        )
        for log in state_logs.logs
        if log.error is not None
    ]


async def read_state_logs(
    cluster: Cluster,
    ids: Sequence[str] | None,
    producer_ids: Collection[int],
    newest: int | None = None,
) -> StateLogs:
    """Read all logs for these ids and for all ids that had these producer ids. None = all ids.

    producer_ids: as a mapping to `Wanted`, only what histories of those batches need. newest: so
    many records of each id are enough; None = all. An id is where its records are: its hash may
    point elsewhere since partitions were added.
    """
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return StateLogs(0, (), (partitions,))
    cache = state_cache(cluster.cluster_id, partitions[0].topic_id if partitions else None)
    logs = await noted_state_logs(cluster, partitions, producer_ids, ids, cache, newest)
    return StateLogs(len(partitions), tuple(logs))


def contest_row(c: Contest) -> ContestRow:
    """Return a contest as it is printed."""
    return ContestRow(
        transactional_id=c.transactional_id,
        initialisations=len(c.initialisations),
        aborted=c.aborted,
        since=c.initialisations[0].at,
        until=c.initialisations[-1].at,
        interval_seconds=c.interval_ms / 1000,
        timeouts_ms=list(c.timeouts),
        causes=list(c.causes),
        producer_id=c.producer_id,
        producer_epoch=c.producer_epoch,
        state=c.state,
    )
