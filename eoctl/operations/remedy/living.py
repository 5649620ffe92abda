"""Find out whether the owners of a plan's transactions write, and who they are, for all together.

A partition that the diagnosis read once is read twice here. The plan names what cannot be seen; if
that is whether the owner writes, `--yes` alone is not enough.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, coordinators, groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.pause import refuse_pause
from eoctl.operations.remedy.group_offsets import with_group_offsets
from eoctl.operations.remedy.plan_reach import partition_of, with_reach
from recovery.change.plan import Plan, Step
from recovery.diagnose.case import named_after
from recovery.errors import RefusedError
from recovery.facts import GroupFacts, Missing, ProducerFacts, TopicPartition, TransactionFacts
from recovery.remedy.life import (
    WRITES,
    id_position,
    looks,
    looks_at_id,
    position,
    unseen_looks,
    writes,
    writing,
)
from recovery.values import Value

MOST_MEMBERS = 5
Rows = Mapping[TopicPartition, Sequence[ProducerFacts]]


async def with_evidence(cluster: Cluster, plan: Plan, interval: float) -> Plan:
    """Return the plan with all that its reader must know: how far it reaches, where groups stand
    afterwards, whether its owners live. Raises IncompleteError as `with_life`."""
    reaching = await with_reach(cluster, plan)
    return await with_life(cluster, await with_group_offsets(cluster, reaching), interval)


async def with_life(cluster: Cluster, plan: Plan, interval: float) -> Plan:
    """Return the plan with what two checks, `interval` s apart, show about its owners in `about`.

    Its `sha256` stays; its typed word says where an owner writes. Raises IncompleteError if the
    second check does not fit into the deadline.
    """
    once = {
        partition
        for s in plan.steps
        for row in s.about
        if row.get("looks") is None and (partition := partition_of(row)) is not None
    }
    bare = {
        row["transactional_id"]
        for s in plan.steps
        for row in s.about
        if row["partition"] is None and row.get("looks") is None
    }
    first, second, apart_ms = await _two_looks(cluster, once, bare, interval)
    names = {n for s in plan.steps for row in s.about if (n := row["transactional_id"])}
    held = {g for s in plan.steps for row in s.about for g in row.get("groups_held", ())}
    facts, missing = await _groups(cluster, names, held)

    def told(step: Step, row: Mapping[str, Any]) -> dict[str, Any]:
        found, partition = row.get("looks"), partition_of(row)
        if found is None and partition is not None:
            found = unseen_looks()
            if partition in first.rows and partition in second.rows:
                pid = row["producer_id"]
                found = looks(
                    _of(first.rows, partition, pid), _of(second.rows, partition, pid), apart_ms
                )
        name = row["transactional_id"]
        if found is None and name in bare:
            found = looks_at_id(first.ids.get(name), second.ids.get(name), apart_ms)
        mine = [
            g
            for g in facts
            if (name and named_after(name, g.group)) or g.group in row.get("groups_held", ())
        ]
        return {**row, "looks": found} | _members(mine, missing)

    steps = tuple(
        s.model_copy(update={"about": [told(s, row) for row in s.about]}) for s in plan.steps
    )
    changed = plan.model_copy(update={"steps": steps})
    if not writing(changed) or changed.hits is None:
        return changed
    return changed.model_copy(update={"hits": f"{changed.hits}-{WRITES}"})


def _of(rows: Rows, partition: TopicPartition, producer_id: int) -> ProducerFacts | None:
    return next((p for p in rows[partition] if p.producer_id == producer_id), None)


class _Look(Value):
    """What was requested, as far as it could be seen: partitions' producers, ids without any."""

    rows: Rows
    ids: Mapping[str, TransactionFacts]


async def _look(
    cluster: Cluster, partitions: Collection[TopicPartition], ids: Collection[str]
) -> _Look:
    rows: Rows = {}
    if partitions:
        metadata = await cluster.metadata(sorted({topic for topic, _ in partitions}))
        parts = [
            p
            for t in metadata.topics.values()
            for p in t.partitions
            if p.topic_partition in partitions
        ]
        rows, _ = await collect.producers(cluster, parts)
    described, _ = await coordinators.find(cluster, sorted(ids)) if ids else ([], [])
    return _Look(rows, {t.transactional_id: t for t in described})


async def _two_looks(
    cluster: Cluster, partitions: Collection[TopicPartition], ids: Collection[str], interval: float
) -> tuple[_Look, _Look, int]:
    """Return two snapshots of these partitions and ids, and the ms between them."""
    if not partitions and not ids:
        return _Look({}, {}), _Look({}, {}), 0
    begun = now_ms()
    first = await _look(cluster, partitions, ids)
    refuse_pause(cluster.deadline, interval, interval, " at its producer")
    await asyncio.sleep(interval)
    apart_ms = now_ms() - begun
    return first, await _look(cluster, partitions, ids), apart_ms


async def refuse_new_writes(cluster: Cluster, steps: Sequence[Step]) -> None:
    """Raise RefusedError if an owner that was silent during planning has written since.

    For steps that --owner-is-gone allowed: the others rest on their producers' positions. A
    partition or an id that does not answer is left to the judging code.
    """
    quiet = [
        (step, row)
        for step in steps
        if step.parameters.get("owner_is_gone") and not writes(step)
        for row in step.about
        if row.get("looks") is not None and "last" in row["looks"]
    ]
    partitions = {partition for _, row in quiet if (partition := partition_of(row)) is not None}
    bare = {row["transactional_id"] for _, row in quiet if row["partition"] is None}
    if not quiet:
        return
    now = await _look(cluster, partitions, bare)
    for step, row in quiet:
        partition, name = partition_of(row), row["transactional_id"]
        if partition is None:
            found = now.ids.get(name)
            moved = found is not None and id_position(found) != row["looks"]["last"]
        else:
            producer = (
                _of(now.rows, partition, row["producer_id"]) if partition in now.rows else None
            )
            moved = partition in now.rows and position(producer) != row["looks"]["last"]
        if moved:
            raise RefusedError(
                "its owner has written since the plan was made: it lives",
                where=step.target,
                remedy="stop it, or plan again",
            )


async def _groups(
    cluster: Cluster, names: Collection[str], held: Collection[str]
) -> tuple[list[GroupFacts], list[Missing]]:
    """Describe the groups that the ids are named after, and those whose offsets they hold."""
    if not names and not held:
        return [], []
    listed, missing = await groups.list_groups(cluster)
    mine = [
        g for g in listed if g.group in held or any(named_after(name, g.group) for name in names)
    ]
    described, more = await groups.describe_groups(cluster, mine)
    return described, [*missing, *more]


def _members(mine: Sequence[GroupFacts], missing: Sequence[Missing]) -> dict[str, Any]:
    """Return the members of the groups, for a plan's row; None means unknown."""
    members = [
        {"group": g.group, "client": client, "host": host}
        for g in mine
        for client, host in g.members or ()
    ]
    unseen = next((f"group {g.group}" for g in mine if g.members is None), None)
    if unseen is None and missing:
        unseen = missing[0].detail
    return {
        "members": members[:MOST_MEMBERS],
        "members_more": max(0, len(members) - MOST_MEMBERS),
        "members_unseen": unseen,
    }
