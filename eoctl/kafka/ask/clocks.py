"""Measure how far each coordinator's clock is from ours, by its own duration filter.

No API returns a coordinator's clock. ListTransactions v1 (KIP-994) compares `now - start >
duration` at the coordinator: asked with several durations for a transaction with a known start, its
answers enclose the difference between its clock and ours. Where nothing is open, the active
controller's clock is the next best: DescribeQuorum v1 (KIP-836) returns it.
"""

import asyncio
from collections.abc import Callable, Iterable

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.errors import EoctlError
from recovery.facts import CoordinatorClock, TransactionFacts, Transactions, grouped

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
NEAR = 1_000
"""Clocks that differ by less than this, in ms, count as equal."""
MOST_QUESTIONS = 80
MOST_TIMED = 20  # open transactions described per coordinator, to measure its clock


async def of_coordinators(
    cluster: Cluster, now: Callable[[], int]
) -> tuple[Transactions, tuple[CoordinatorClock, ...]]:
    """List what is open, and measure the coordinators' clocks by MOST_TIMED of each one's."""
    listed = await coordinators.transactions(cluster, states=OPEN)
    of_each = grouped((t.coordinator, t.transactional_id) for t in listed.rows)
    names = [name for ids in of_each.values() for name in ids[:MOST_TIMED]]
    described, _ = await coordinators.find(cluster, names)
    return listed, await measured(cluster, described, now)


async def measured(
    cluster: Cluster, rows: Iterable[TransactionFacts], now: Callable[[], int]
) -> tuple[CoordinatorClock, ...]:
    """Measure the clocks of the coordinators of these transactions against `now` (epoch ms).

    A coordinator is left out if none of its transactions is open, if it is below ListTransactions
    v1, or if its answers do not enclose the difference.
    """
    oldest: dict[int, TransactionFacts] = {}
    for row in rows:
        if row.state in OPEN and row.start_timestamp is not None:
            known = oldest.setdefault(row.coordinator, row)
            if row.start_timestamp < (known.start_timestamp or 0):
                oldest[row.coordinator] = row
    differences = await asyncio.gather(*(_ahead(cluster, row, now) for row in oldest.values()))
    return tuple(
        CoordinatorClock(broker, ahead)
        for broker, ahead in sorted(zip(oldest, differences, strict=True))
        if ahead is not None
    )


async def of_controller(cluster: Cluster, now: Callable[[], int]) -> int | None:
    """Return the ms that the controller's clock is ahead of ours; 0 = near; None = not known.

    Needs DESCRIBE on the cluster, and Kafka 3.3 in KRaft mode.
    """
    request = messages.DescribeQuorumRequest
    partition = request.TopicData.PartitionData(partition_index=0)
    topic = request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    try:
        before = now()
        answer = await cluster.ask_any(request(topics=[topic]))
        after = now()
    except (WireError, EoctlError):
        return None
    # of the leader's own state both are its clock's present; of others they are in the past
    times = [
        voter.last_caught_up_timestamp
        for described in answer.topics
        for p in described.partitions
        for voter in p.current_voters
        if voter.replica_id == p.leader_id
    ]
    if answer.error_code or not times or times[0] <= 0:
        return None
    difference = int(times[0]) - (before + after) // 2
    return 0 if abs(difference) <= NEAR + (after - before) // 2 else difference


async def _ahead(cluster: Cluster, row: TransactionFacts, now: Callable[[], int]) -> int | None:
    """Return the ms that the coordinator's clock is ahead of ours; 0 = near; None = not known."""
    start = row.start_timestamp
    assert start is not None
    low: int | None = None
    high: int | None = None

    async def ask(ahead: int) -> None:
        """Ask whether the coordinator's clock is further ahead than this."""
        nonlocal low, high
        before = now()
        duration = max(0, before + ahead - start)
        answer = await cluster.ask(
            row.coordinator,
            messages.ListTransactionsRequest(
                state_filters=list(OPEN),
                producer_id_filters=[row.producer_id],
                duration_filter=duration,
            ),
            least=1,
        )
        after = now()
        if row.transactional_id in {t.transactional_id for t in answer.transaction_states}:
            bound = duration + start - after
            low = bound if low is None else max(low, bound)
        else:
            bound = duration + start - before
            high = bound if high is None else min(high, bound)

    try:
        await asyncio.gather(ask(-NEAR), ask(NEAR))
        for _ in range(MOST_QUESTIONS):
            if low is not None and high is not None and high - low <= 3 * NEAR:
                break
            if low is not None and high is not None:
                await ask((low + high) // 2)
            elif low is not None:
                await ask(2 * max(low, 0) + NEAR)
            elif high is not None and now() + high > start:
                await ask(2 * min(high, 0) - NEAR)
            else:
                return None  # the coordinator's clock shows a start in the future, or it has ended
        if low is None or high is None:
            return None
        if low <= 0 <= high:
            return 0
        middle, high = (low + high) // 2, None
        await ask(low - NEAR)
        if high is not None or not await _still_runs(cluster, row):
            return None  # it ended during the measurement, or another one was measured
        return middle
    except WireError:
        return None


async def _still_runs(cluster: Cluster, row: TransactionFacts) -> bool:
    """Return True if the transaction that began at the row's start is still the id's current one.

    The next one of a busy id is younger: measured by it, the clock would seem slow.
    """
    question = messages.DescribeTransactionsRequest(transactional_ids=[row.transactional_id])
    answer = await cluster.ask(row.coordinator, question)
    return any(
        not t.error_code and t.transaction_start_time_ms == row.start_timestamp
        for t in answer.transaction_states
    )
