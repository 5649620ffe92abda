"""Find which groups' offsets the transactions of a plan hold, and what they are afterwards.

A transaction that spans inputs, outputs and `__consumer_offsets` is one transaction: its offsets
are looked for on every partition of `__consumer_offsets`. No remedy depends on them: the plan names
what cannot be seen, and is not refused for that.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from eoctl.kafka.ask.groups import CONSUMER_OFFSETS, offsets_partitions
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import committed
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.read.pending_offsets import Pending, pending_in
from eoctl.operations.inspect.offset_answers import at_partitions
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.plan_reach import or_missing
from eoctl.render.group_offset_words import harm
from recovery.change.plan import Plan, Step
from recovery.facts import GroupFacts, Missing, PartitionFacts, TopicPartition, grouped
from recovery.formats.consumer_offsets import OffsetKey, PendingOffset
from recovery.formats.counting import Counts
from recovery.inspect.observation import OpenTransaction
from recovery.remedy.group_offsets import (
    GroupOffset,
    outcome_of,
    outcomes,
    partitions_named,
    row_fields,
    urgency,
)
from recovery.remedy.repairs import MARKER_ACTION
from recovery.values import replace

MOST_COUNTED = 200_000  # offsets of all inputs, the shortest first: a plan must not take minutes
Held = tuple[OpenTransaction, PendingOffset, bool]
"""A transaction, an offset that it holds, and whether the step ends it there."""


async def with_group_offsets(cluster: Cluster, plan: Plan) -> Plan:
    """Return the plan with the groups' offsets that its transactions hold in `about` of its steps.

    A group that the plan leaves without an offset is the first of the step's `harms`. Its `sha256`
    stays: none of this is part of what is approved.
    """
    ending = [s for s in plan.steps if s.about and s.action != remedy_raise.ACTION]
    (pending, missing) = await or_missing(_pending(cluster, ending), {})
    held = {id(s): list(_held(s, pending)) for s in ending}
    keys = {p.key for mine in held.values() for _, p, _ in mine}
    known, unknown = await or_missing(_committed(cluster, keys), {})
    by_step = {id(s): [_offset(s, *one, known, unknown) for one in held[id(s)]] for s in ending}
    counted = await _counted(cluster, [o for mine in by_step.values() for o in mine])
    steps = tuple(
        _with_offsets(s, [counted.get(o, o) for o in by_step[id(s)]], pending, missing, plan)
        if id(s) in by_step
        else s
        for s in plan.steps
    )
    return plan.model_copy(update={"steps": steps})


async def _pending(cluster: Cluster, steps: Sequence[Step]) -> tuple[Pending, list[Missing]]:
    """Return what the transactions of these steps hold on `__consumer_offsets`."""
    named = {name for s in steps for name in partitions_named(s) or ()}
    anywhere = any(s.action == MARKER_ACTION for s in steps)
    if not anywhere and not any(map(_keeps_offsets, named)):
        return {}, []
    homes = await offsets_partitions(cluster)
    if isinstance(homes, Missing):
        return {}, [homes]
    mine = [p for p in homes if anywhere or str(p.topic_partition) in named]
    return await pending_in(cluster, mine, {int(s.parameters["producer_id"]) for s in steps})


def _keeps_offsets(name: str) -> bool:
    return TopicPartition.parse(name).topic == CONSUMER_OFFSETS


def _held(step: Step, pending: Pending) -> Sequence[Held]:
    """Return the offsets that a step's transaction holds.

    On other partitions than a marker's own, those with the epoch of its batches: with another one
    they are of another transaction.
    """
    named, epoch = partitions_named(step), step.parameters.get("described_epoch")
    held = []
    for transaction, offsets in pending.items():
        if transaction.producer_id != step.parameters["producer_id"]:
            continue
        ends = transaction.name in ({step.target} if named is None else named)
        for p in offsets:
            if ends or (named is None and p.producer_epoch == epoch):
                held.append((transaction, p, ends))
    return held


Known = Mapping[OffsetKey, tuple[int | None, str | None]]
"""What a group has committed, or None for none, and why that was not seen."""


async def _committed(
    cluster: Cluster, keys: Collection[OffsetKey]
) -> tuple[Known, Sequence[Missing]]:
    """Return what counts now of these offsets; a group that gave no answer is left out."""
    if not keys:
        return {}, []
    partitions = sorted({key.topic_partition for key in keys})
    groups = [GroupFacts(name, None) for name in sorted({key.group for key in keys})]
    facts, missing = await committed.with_offsets(cluster, groups, partitions, decided_only=True)
    rows = {OffsetKey(o.group, o.topic, o.partition): o for g in facts for o in g.offsets}
    silent = {m.id for m in missing if m.topic is None}  # None: some broker's groups
    return {
        key: (row.committed_offset, row.error) if (row := rows.get(key)) else (None, None)
        for key in keys
        if key in rows or not silent & {key.group, None}
    }, missing


def _offset(
    step: Step,
    transaction: OpenTransaction,
    pending: PendingOffset,
    ends: bool,
    known: Known,
    unknown: Sequence[Missing],
) -> GroupOffset:
    key = pending.key
    nobody = next((m.error for m in unknown if m.id in (key.group, None)), "NO_ANSWER")
    offset, error = known.get(key, (None, nobody))
    return GroupOffset(
        group=key.group,
        topic=key.topic,
        partition=key.partition,
        on=transaction.name,
        ends=ends,
        outcomes=outcomes(step, ends=ends),
        committed_offset=offset,
        committed_error=error,
        pending_offset=pending.offset,
        pending_deleted=pending.deleted,
        overtaken=pending.overtaken,
    )


async def _counted(
    cluster: Cluster, offsets: Sequence[GroupOffset]
) -> dict[GroupOffset, GroupOffset]:
    """Return the offsets that an outcome leaves unset, with the records that readers of the group
    would read again or skip. What cannot be counted keeps its offsets, and what cannot be read
    nothing."""
    unset = [o for o in offsets if o.without and o.position is not None]
    if not unset:
        return {}
    (facts, _) = await or_missing(at_partitions(cluster, {o.topic_partition for o in unset}), [])
    ends = {
        f.topic_partition: f
        for f in facts
        if f.log_start_offset is not None and f.last_stable_offset is not None
    }
    mine = {tp: o for tp, o in grouped((o.topic_partition, o) for o in unset).items() if tp in ends}
    cuts = [_cuts(ends[partition], here) for partition, here in mine.items()]
    first = {partition: min(map(urgency, here)) for partition, here in mine.items()}
    cuts.sort(key=lambda c: (first[c.topic_partition], c.offsets[-1] - c.offsets[0]))
    sizes = accumulate(c.offsets[-1] - c.offsets[0] for c in cuts)
    few = [c for c, size in zip(cuts, sizes, strict=True) if size <= MOST_COUNTED]
    pieces = await _pieces(cluster, few)
    return {o: _with_counts(o, ends.get(o.topic_partition), pieces) for o in unset}


def _cuts(ends: PartitionFacts, offsets: Sequence[GroupOffset]) -> Cuts:
    low, stable = ends.log_start_offset or 0, ends.last_stable_offset or 0
    at = {min(max(o.position or 0, low), stable) for o in offsets}
    return Cuts(*ends.topic_partition, tuple(sorted({low, stable} | at)), low, stable)


Pieces = Mapping[TopicPartition, Sequence[tuple[int, int]]]
"""Where each counted stretch begins, and its visible records."""


async def _pieces(cluster: Cluster, cuts: Sequence[Cuts]) -> Pieces:
    # nothing is counted without the extra `data`, or READ on the topic
    counts, _ = await or_missing(count(cluster, [c for c in cuts if len(c.offsets) > 1]), {})
    nothing: list[Counts] = []
    return {
        c.topic_partition: [
            (start, piece.data)
            for start, piece in zip(c.offsets, counts.get(c.topic_partition, nothing), strict=False)
        ]
        for c in cuts
        if c.topic_partition in counts or len(c.offsets) == 1
    }


def _with_counts(o: GroupOffset, ends: PartitionFacts | None, pieces: Pieces) -> GroupOffset:
    if ends is None:
        return o
    low, stable = ends.log_start_offset, ends.last_stable_offset
    changed = replace(o, log_start_offset=low, last_stable_offset=stable)
    here = pieces.get(o.topic_partition)
    if here is None:
        return changed
    position = o.position or 0
    before = sum(records for start, records in here if start < position)
    after = sum(records for start, records in here if start >= position)
    return replace(changed, records_before=before, records_after=after)


def _with_offsets(
    step: Step,
    offsets: Sequence[GroupOffset],
    pending: Pending,
    missing: Sequence[Missing],
    plan: Plan,
) -> Step:
    """Return the step with its offsets, each in the row of its partition, else in the first."""
    unseen = _unseen(step, pending, missing)
    own = {row["partition"] for row in step.about}
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(step.about):
        mine = [o for o in offsets if o.on == row["partition"] or (not number and o.on not in own)]
        rows.append(row | row_fields(mine, () if number else unseen))
    left = [o for o in offsets if o.ends and outcome_of(step) in o.without]
    harms = [*harm(left, outcome_of(step), plan.argv), *step.harms]
    return step.model_copy(update={"about": rows, "harms": tuple(harms)})


def _unseen(step: Step, pending: Pending, missing: Sequence[Missing]) -> list[Missing]:
    """Return what hides offsets of this step's transaction.

    A gap in what was read of a partition concerns only the transactions that are open there.
    """
    named, pid = partitions_named(step), step.parameters["producer_id"]
    if named is not None and not any(map(_keeps_offsets, named)):
        return []
    read = {t.topic_partition for t in pending}
    mine = {t.topic_partition for t in pending if t.producer_id == pid}
    return [
        m
        for m in dict.fromkeys(missing)
        if (where := m.topic_partition) is None
        or where in mine
        or (where not in read and (named is None or str(where) in named))
    ]
