"""Find out how far the transactions of a plan reach, once for all its steps.

The reach says whom a remedy affects besides its own partition. No remedy depends on it: the plan
names what cannot be seen, and is not refused for that.
"""

import asyncio
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from eoctl.kafka.ask import collect, coordinators, groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read import committed
from eoctl.operations.inspect.lists import Scope, hidden_topics, selected
from eoctl.operations.remedy import raising as remedy_raise
from recovery.change.plan import Plan, Step
from recovery.diagnose.reach import Beyond, Reach, also_holds, is_beyond, offsets_by_partition
from recovery.errors import EoctlError
from recovery.facts import GroupFacts, Missing, TopicPartition, grouped
from recovery.inspect.observation import CLOSED_STATES
from recovery.plurals import counted
from recovery.remedy.repairs import MARKER_ACTION
from recovery.values import Value

MOST_ASKED_BY_NAME = 20
"""Partitions: above, groups are asked for all that they committed, which is less."""
GROUPS_AT_ONCE = 200
LOOK_SECONDS = 10.0
"""No further groups are asked then: 100,000 committed offsets take about 3 s to read."""

V = TypeVar("V")
Seen = tuple[V, Sequence[Missing]]


class _Look(Value):
    """One snapshot for all steps.

    holds: producer id → partitions on which it has open transactions. Missing by partition; None =
    about no single one.
    """

    holds: Mapping[int, Collection[TopicPartition]]
    holds_missing: Mapping[TopicPartition | None, Sequence[Missing]]
    committed: Mapping[TopicPartition, Sequence[Beyond]]
    committed_missing: Mapping[TopicPartition | None, Sequence[Missing]]


async def with_reach(cluster: Cluster, plan: Plan) -> Plan:
    """Return the plan with each transaction's reach in `about` of its step.

    Its `sha256` stays: the reach is not part of what is approved.
    """
    producer_ids = {
        int(s.parameters["producer_id"])
        for s in plan.steps
        if s.action == MARKER_ACTION and s.about
    }
    partitions = {
        topic_partition
        for s in plan.steps
        for row in s.about
        if (topic_partition := partition_of(row)) is not None
        and topic_partition[0] != groups.CONSUMER_OFFSETS
    }
    (holds, holds_missing), (offsets, offsets_missing) = await asyncio.gather(
        or_missing(_open_partitions(cluster, producer_ids), {}),
        or_missing(_offsets(cluster, sorted(partitions)), {}),
    )
    look = _Look(holds, _by_partition(holds_missing), offsets, _by_partition(offsets_missing))
    steps = tuple(
        s
        if s.action == remedy_raise.ACTION  # ends nothing that is open
        else s.model_copy(
            update={"about": [row | _reach(s, row, look).values() for row in s.about]}
        )
        for s in plan.steps
    )
    return plan.model_copy(update={"steps": steps})


def partition_of(row: Mapping[str, Any]) -> TopicPartition | None:
    """Return the partition of a plan's row; None: of an id that holds none."""
    if row["partition"] is None:
        return None
    return TopicPartition.parse(row["partition"])


def _by_partition(missing: Iterable[Missing]) -> dict[TopicPartition | None, list[Missing]]:
    return grouped((m.topic_partition, m) for m in dict.fromkeys(missing))


def _reach(step: Step, row: Mapping[str, Any], look: _Look) -> Reach:
    here = partition_of(row)
    unseen: Sequence[Missing] = ()
    if step.action == MARKER_ACTION:
        holds = also_holds(here, look.holds.get(row["producer_id"], ()))
        unseen = [
            m for partition, ms in look.holds_missing.items() if partition != here for m in ms
        ]
    else:  # its Ongoing record proved all partitions, or the step would not exist
        names = step.parameters.get("partitions", ())
        holds = also_holds(here, (p for n in names if (p := partition_of({"partition": n}))))
    if here is None or here[0] == groups.CONSUMER_OFFSETS:  # nobody's input
        return Reach(holds, (), unseen, ())
    start = row.get("start_offset")
    groups_unseen = [*look.committed_missing.get(here, ()), *look.committed_missing.get(None, ())]
    if start is None:
        text = "where its transaction begins is not known"
        groups_unseen.append(Missing("partition", "NOT_SEEN", text, None, *here))
    return Reach(
        holds,
        [b for b in look.committed.get(here, ()) if is_beyond(b.committed_offset, start)],
        unseen,
        groups_unseen,
    )


async def or_missing(look: Awaitable[Seen[V]], nothing: V) -> Seen[V]:
    """Return what a snapshot gives; if nothing answers at all, only that fact."""
    try:
        return await look
    except WireError as error:
        return nothing, [Missing("cluster", error.error, error.detail)]
    except EoctlError as error:
        return nothing, [Missing("cluster", "NOT_SEEN", error.what)]


async def _open_partitions(
    cluster: Cluster, producer_ids: Collection[int]
) -> Seen[Mapping[int, Collection[TopicPartition]]]:
    """Return where these producer ids have something open, from all partitions' leaders.
    Coordinators answer for partitions that could not be asked."""
    if not producer_ids:
        return {}, []
    scope = Scope()
    metadata, chosen, missing = await selected(cluster, scope)
    missing += await hidden_topics(cluster, scope)
    offsets, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    missing += more
    held = {p.topic_partition for p in offsets if p.held}
    states, more = await collect.producers(
        cluster, [p for p in chosen if p.topic_partition in held]
    )
    missing += more
    listed = await coordinators.transactions(cluster, producer_ids=sorted(producer_ids))
    described, more = await coordinators.described(cluster, listed.rows)
    missing += [*listed.missing, *(m for m in more if m.error != coordinators.NOT_FOUND)]
    opened = [
        (p.producer_id, partition)
        for partition, rows in states.items()
        for p in rows
        if p.producer_id in producer_ids and p.current_txn_start_offset is not None
    ]
    opened += [
        (t.producer_id, partition)
        for t in described
        if not t.ghost and t.state not in CLOSED_STATES
        for partition in t.partitions or ()
    ]
    return grouped(opened), missing


async def _offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> Seen[Mapping[TopicPartition, Sequence[Beyond]]]:
    """Return what groups committed on these partitions."""
    if not partitions:
        return {}, []
    begun = time.monotonic()
    listed, missing = await groups.list_groups(cluster)
    named = partitions if len(partitions) <= MOST_ASKED_BY_NAME else None
    facts: list[GroupFacts] = []
    for at in range(0, len(listed), GROUPS_AT_ONCE):
        if time.monotonic() - begun > LOOK_SECONDS:
            text = (
                f"{len(listed) - at} of {counted(len(listed), 'group')} not asked, to end in time"
            )
            missing.append(Missing("group", "ENOUGH", text))
            break
        asked = listed[at : at + GROUPS_AT_ONCE]
        answered, more = await committed.with_offsets(cluster, asked, named, decided_only=True)
        facts += answered
        missing += more
    return offsets_by_partition(facts), missing
