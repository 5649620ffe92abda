"""Make a plan from observations: its facts, its steps, and what `show` and `verify` need later.

One step per store: every store takes all partitions in one write. The mirror comes second.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.restart.observe import RestartLook, Stores
from eoctl.operations.restart.restart_request import RestartRequest
from eoctl.settings.context import Context
from eoctl.stores.offsets.store import Contents, OffsetStore, StoredValues, Write
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.facts import TopicPartition
from recovery.inspect.rights import Need
from recovery.plurals import counted
from recovery.restart.decide import changes
from recovery.restart.decision import RestartPlan
from recovery.restart.source_offsets import source_partition
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.app_file import named
from recovery.shared.store_tables import KafkaGroupStore, Store, TopicStore

KIND, UNDO = "restart", "restart-undo"
STORE, MIRROR = "store", "mirror"
GUARANTEE = "guarantee"  # a plan's subject: the evidence for it may be gone by then

_DECISION = TypeAdapter(RestartPlan)


def plan_of(
    request: RestartRequest,
    stores: Stores,
    look: RestartLook,
    context: Context,
    *,
    pause: float,
    valid_ms: int = VALID_MS,
) -> Plan:
    """Return the plan of one decision. Raises RefusedError if a store has no room for an entry."""
    observed = facts(stores, look)
    writes = _writes(stores.main, look)
    mirrored = _mirrored(stores.mirror, look)
    subjects = tuple(sorted(k for k in observed if not _is_mirror(stores, k)))
    steps = [
        _step(STORE, stores.main, writes, subjects)
        if writes and stores.main
        else _keep(stores.main, request, subjects)
    ]
    if stores.mirror is not None and mirrored:
        steps.append(_step(MIRROR, stores.mirror, mirrored, (_mirror_key(stores.mirror),)))
    return new_plan(
        context,
        look.observed.cluster_id,
        kind=KIND,
        action="restart",
        scope=scope(stores, request),
        summary=summary(look.decision),
        observed=observed,
        valid_ms=valid_ms,
        steps=steps,
        details={
            "asked": request.fixed(look.decision),
            "decision": _DECISION.dump_python(look.decision, mode="json"),
            "pause_ms": round(pause * 1000),
            "producers": _producers(look),
            "target": _target(look, writes),
            "existed": {
                STORE: look.contents is None or look.contents.exists,
                MIRROR: look.mirror is None or look.mirror.exists,
            },
        },
    )


def decision_of(plan: Plan) -> RestartPlan:
    """Return the decision that a plan carries out."""
    return _DECISION.validate_json(json.dumps(plan.details["decision"]))


def scope(stores: Stores, request: RestartRequest) -> str:
    """Return the lock's scope."""
    return stores.main.name if stores.main is not None else f"application {request.name}"


def facts(stores: Stores, look: RestartLook) -> dict[str, Any]:
    """Return what must still hold when the plan is applied, by subject."""
    decision, observed = look.decision, look.observed
    by_subject: dict[str, Any] = {}
    if stores.main is not None and look.contents is not None:
        by_subject[stores.main.name] = _store_facts(look.contents, decision)
    if stores.mirror is not None and look.mirror is not None:
        by_subject[_mirror_key(stores.mirror)] = _store_facts(look.mirror, decision)
    for i in decision.inputs:
        partition = i.topic_partition
        by_subject[named(partition)] = {
            "topic_id": observed.log(partition).topic_id,
            "partitions": observed.partition_counts.get(i.topic),
            "restart_offset": i.restart_offset,
        }
    for o in decision.outputs:
        partition = o.topic_partition
        by_subject[named(partition)] = {
            "topic_id": observed.log(partition).topic_id,
            "leader_epoch": o.leader_epoch,
            "from": o.start,
            "end_offset": o.end_offset,
            "drop_first": o.drop_first,
        }
    for s in decision.state:
        by_subject[f"state {s.topic}:{s.partition}"] = {"end_offset": s.end_offset}
    by_subject[GUARANTEE] = {"guarantee": decision.guarantee}
    return by_subject


def _store_facts(contents: Contents, decision: RestartPlan) -> dict[str, Any]:
    entries = contents.kept
    partitions = _store_partitions(decision)
    facts: dict[str, Any] = {
        "exists": contents.exists,
        "entries": {named(p): entries.get(p) for p in partitions},
    }
    if contents.spark is not None:
        facts["batch"], facts["committed"] = contents.spark.batch, contents.spark.committed
    return facts


def _store_partitions(decision: RestartPlan) -> list[TopicPartition]:
    """Return the store's partitions that the decision is about."""
    inputs = [i.topic_partition for i in decision.inputs]
    return [*inputs, *(source_partition(s.partition) for s in decision.sources)]


def summary(decision: RestartPlan) -> str:
    """Return `orders-enricher: REWIND 1,204 records on 1 partition, 17 outputs to be dropped;
    exactly-once`."""
    parts = []
    for direction in ("rewind", "skip"):
        mine = [i for i in decision.inputs if i.direction == direction]
        if mine:
            unknown = any(i.records is None for i in mine)
            records = sum(i.records or 0 for i in mine)
            what = f"{'at least ' if unknown else ''}{counted(records, 'record')}"
            where = counted(len(mine), "partition")
            parts.append(f"{direction.upper()} {what} on {where}")
    moved = sum(s.current_offset != s.restart_offset for s in decision.sources)
    if moved:
        parts.append(f"{counted(moved, 'source offset')} set")
    first = [
        i for i in decision.inputs if i.current_offset is None and i.restart_offset is not None
    ]
    if first and not parts:
        parts.append(f"{counted(len(first), 'first position')} set")
    if not parts:
        parts.append("no position moves")
    drops = sum(o.drop_first for o in decision.outputs)
    if drops:
        parts.append(f"{counted(drops, 'output')} to be dropped")
    return f"{decision.app}: {', '.join(parts)}; {decision.guarantee}"


def _writes(store: OffsetStore | None, look: RestartLook) -> tuple[Write, ...]:
    if store is None or look.contents is None:
        return ()
    held = look.contents.kept
    writes = []
    for s in look.decision.sources:
        after = None if s.restart_offset is None else {"offset": s.restart_offset}
        if held.get(partition := source_partition(s.partition)) != after:
            writes.append(Write(*partition, held.get(partition), after))
    for change in changes(look.decision, look.observed):
        partition = change.after.input.topic_partition
        write = Write(*partition, held.get(partition), store.kept(change.after))
        if write.before != write.after:
            writes.append(write)
    return tuple(writes)


def _mirrored(store: OffsetStore | None, look: RestartLook) -> tuple[Write, ...]:
    """Return the mirror's input offsets, for tools that read them there; nothing else."""
    if store is None or look.mirror is None:
        return ()
    held = look.mirror.kept
    writes = []
    for entry in look.decision.store:
        topic_partition = entry.input.topic_partition
        bare = StoredOffset(
            topic=topic_partition[0], partition=topic_partition[1], offset=entry.input.offset
        )
        write = Write(
            *topic_partition, held.get(topic_partition), store.kept(StoredPartition(input=bare))
        )
        if write.before != write.after:
            writes.append(write)
    return tuple(writes)


def _target(look: RestartLook, writes: Sequence[Write]) -> dict[str, StoredValues | None]:
    """Return what the store holds for each input partition once the plan is applied."""
    if look.contents is None:
        return {}
    held = look.contents.kept | {w.topic_partition: w.after for w in writes}
    return {named(p): held.get(p) for p in _store_partitions(look.decision)}


def _producers(look: RestartLook) -> dict[str, list[int]]:
    """Return the producers that had written each output before the plan, as far as known."""
    by_output: dict[str, set[int]] = {
        named(o.topic_partition): {
            p.producer_id for p in look.observed.log(o.topic_partition).producers or ()
        }
        for o in look.decision.outputs
    }
    for want, counts in look.observed.counted.items():
        here = by_output.get(named(want.topic_partition))
        if counts.producers is not None and here is not None:
            here |= set(counts.producers.last)
    return {partition: sorted(pids) for partition, pids in by_output.items()}


def _step(
    which: str, store: OffsetStore, writes: Sequence[Write], subjects: tuple[str, ...]
) -> Step:
    how = "compare and set" if store.compares else "read, compare, write: not in one atomic step"
    return Step(
        action="write",
        target=store.name,
        parameters=parameters(which, writes),
        does=f"{counted(len(writes), 'position')} in {store.name} ({how}): {_moves(writes)}",
        stands_on=subjects,
    )


def _keep(store: OffsetStore | None, request: RestartRequest, subjects: tuple[str, ...]) -> Step:
    holds = "there is no store" if store is None else f"{store.name} stays as it is"
    return Step(
        action="keep",
        target=store.name if store is not None else request.name,
        does=f"nothing is written, {holds}: everything is checked again",
        stands_on=subjects,
    )


def parameters(which: str, writes: Sequence[Write], *, dissolve: bool = False) -> dict[str, Any]:
    """Return a step's parameters, from which `writes_of` reads the writes again."""
    rows = [
        {"topic": w.topic, "partition": w.partition, "before": w.before, "after": w.after}
        for w in writes
    ]
    return {"which": which, "writes": rows, "dissolve": dissolve}


def writes_of(step: Step) -> tuple[Write, ...]:
    return tuple(Write(**row) for row in step.parameters.get("writes", ()))


def needs_of(step: Step, store: Store | None) -> frozenset[Need]:
    """Return the rights that a step's writes need at the brokers. store: of this step."""
    writes = writes_of(step)
    if isinstance(store, TopicStore) and writes:
        return frozenset({Need("topic", store.topic, "WRITE")})
    if not isinstance(store, KafkaGroupStore) or not writes:
        return frozenset()
    operations = {"DELETE" if w.after is None else "READ" for w in writes}
    topics = {Need("topic", w.topic, "READ") for w in writes}
    return frozenset(topics | {Need("group", store.group, name) for name in operations})


def _moves(writes: Sequence[Write], most: int = 3) -> str:
    def offset(kept: StoredValues | None) -> str:
        return "nothing" if kept is None else str(kept.get("offset", "?"))

    moves = [f"{named(w.topic_partition)} {offset(w.before)} -> {offset(w.after)}" for w in writes]
    more = f" and {len(moves) - most} more" if len(moves) > most else ""
    return ", ".join(moves[:most]) + more


def _mirror_key(store: OffsetStore) -> str:
    return f"mirror {store.name}"


def _is_mirror(stores: Stores, subject: str) -> bool:
    return stores.mirror is not None and subject == _mirror_key(stores.mirror)


def as_planned(plan: Plan, now: Mapping[str, Any], stores: Stores) -> dict[str, Any]:
    """Return the facts for a run that resumes a killed one, whose writes count as not written.

    Each partition of a store holds its earlier entry, or what the plan writes.
    """
    facts = dict(now)
    for step in plan.steps:
        writes = {named(w.topic_partition): w for w in writes_of(step)}
        store = stores.mirror if step.parameters.get("which") == MIRROR else stores.main
        if not writes or store is None:
            continue
        key = _mirror_key(store) if store is stores.mirror else store.name
        if key not in facts or key not in plan.observed:
            continue
        entries = dict(facts[key]["entries"])
        touched = False
        for partition, write in writes.items():
            if entries.get(partition) == write.after:
                entries[partition], touched = write.before, True
        exists = plan.observed[key]["exists"] if touched else facts[key]["exists"]
        if touched and GUARANTEE in plan.observed:  # what apply wrote is in no transaction
            facts[GUARANTEE] = plan.observed[GUARANTEE]
        facts[key] = {**facts[key], "entries": entries, "exists": exists}
    return facts
