"""Plan a `restart`, apply it and put it back. It changes only stores of offsets.

Right before a plan is applied everything is read again, outputs are counted again, and the group is
watched; each store compares and sets. `acting` does the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.acting import unfinished_entry
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import Effect
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart.observe import (
    PAUSE_SECONDS,
    Stores,
    look,
    opened_stores,
)
from eoctl.operations.restart.record_epochs import refuse_cut_off, with_epochs
from eoctl.operations.restart.restart_plan import (
    KIND,
    MIRROR,
    STORE,
    UNDO,
    as_planned,
    decision_of,
    facts,
    needs_of,
    parameters,
    plan_of,
    writes_of,
)
from eoctl.operations.restart.restart_request import RestartRequest, asked_again
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from eoctl.stores.offsets.group import refuse_members
from eoctl.stores.offsets.store import Contents, OffsetStore, Write, left, unsent
from recovery.change.journal import JournalEntry, unfinished
from recovery.change.plan import Plan, Step, differences
from recovery.errors import RefusedError
from recovery.inspect.rights import Need
from recovery.plurals import counted
from recovery.shared.app_file import named
from recovery.shared.store_tables import KafkaGroupStore
from recovery.times import not_done_within
from recovery.values import Value, replace


async def plan(
    cluster: Cluster,
    context: Context,
    request: RestartRequest,
    *,
    pause: float = PAUSE_SECONDS,
    reading: Reading | None = None,
) -> Plan:
    """Observe, decide, plan. Raises RefusedError (PendingError: fence first), IncompleteError."""
    async with opened_stores(cluster, request) as stores:
        observation = await look(cluster, request, stores, pause=pause, reading=reading)
        if isinstance(request.store, KafkaGroupStore):
            decision = await with_epochs(cluster, observation.decision, observation.observed)
            observation = replace(observation, decision=decision)
        return plan_of(request, stores, observation, context, pause=pause)


def check(plan: Plan, context: Context, seconds: float | None) -> None:
    """Refuse a plan that could not be applied now. Raises RefusedError that names what changed.

    A plan that was begun or applied is not checked.
    """
    plan.check_expiry(now_ms())
    for entry in Journal().find().entries:
        if entry.begun.data["sha256"] == plan.sha256 and entry.state in ("unfinished", "done"):
            return

    async def look_again() -> None:
        async with (
            asyncio.timeout(None if seconds is None else seconds + 0.5),
            opened(plan, context, seconds) as operation,
        ):
            answering = await operation.cluster_id()
            if answering != plan.cluster_id:
                raise RefusedError(
                    f"the plan is for cluster {plan.cluster_id}, but {answering} answers",
                    where=context.title,
                )
            plan.refuse_changed(await operation.observe(plan.steps), plan.steps)

    try:
        asyncio.run(look_again())
    except TimeoutError:
        raise not_done_within(seconds) from None


@asynccontextmanager
async def opened(
    plan: Plan, context: Context, seconds: float | None
) -> AsyncIterator["Restarting"]:
    """Yield the operation of a plan, with its cluster and its stores open."""
    cluster = context.open(seconds)  # its properties are read before the plan's stores
    request = asked_again(plan.details["asked"])
    async with cluster, opened_stores(cluster, request) as stores:
        yield Restarting(plan, request, cluster, stores)


class Restarting:
    """See `steps.Operation`."""

    def __init__(
        self, plan: Plan, request: RestartRequest, cluster: Cluster, stores: Stores
    ) -> None:
        self._plan = plan
        self._asked = request
        self._cluster = cluster
        self._stores = stores

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Read everything again; if the plan was begun, what it wrote counts as not written."""
        self._cluster.forgive()
        if self._plan.kind == UNDO:
            facts_now: Mapping[str, Any] = await _store_facts(self._plan, self._stores)
        else:
            pause = self._plan.details["pause_ms"] / 1000
            facts_now = facts(
                self._stores, await look(self._cluster, self._asked, self._stores, pause=pause)
            )
        begun = unfinished_entry(self._plan.kind, self._plan.cluster_id, self._plan.scope)
        if begun is not None and begun.touched and begun.plan.same_change(self._plan):
            facts_now = as_planned(self._plan, facts_now, self._stores)
        return facts_now

    def needs(self, step: Step) -> frozenset[Need]:
        stores = {STORE: self._asked.store, MIRROR: self._asked.mirror}
        return needs_of(step, stores.get(step.parameters.get("which", "")))

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Write what is not written yet. RefusedError: nothing was written."""
        store = _store_of(step, self._stores)
        if step.action == "keep" or store is None:
            return None
        with unsent():
            contents = await store.read()
        todo = left(contents, writes_of(step))
        if self._plan.kind == KIND and step.parameters["which"] == STORE:
            decision = decision_of(self._plan)
            await refuse_cut_off(self._cluster, decision, {w.topic_partition for w in todo})
        await store.write(todo, ensure_held, dissolve=step.parameters["dissolve"])
        return {"written": len(todo)}

    async def verify(self, step: Step) -> Effect:
        """Check whether the store holds the step's positions."""
        self._cluster.forgive()
        store = _store_of(step, self._stores)
        if store is None:
            return Effect(True, None, "nothing was to be written")
        contents = await store.read()
        if step.action == "keep":
            return self._read_back(contents, store)
        writes = writes_of(step)
        try:
            todo = left(contents, writes)
        except RefusedError as error:
            return Effect(False, None, error.what)
        if todo:
            partitions = ", ".join(named(w.topic_partition) for w in todo[:3])
            missing = f"{len(todo)} of {counted(len(writes), 'position')} not written: {partitions}"
            return Effect(False, None, missing, untouched=len(todo) == len(writes))
        if step.parameters["dissolve"] and contents.exists and not contents.entries:
            return Effect(False, None, f"{store.name} is still there")
        saw = {named(w.topic_partition): w.after for w in writes}
        return Effect(True, {"entries": saw}, f"{store.name}: new offsets written and read back")

    def _read_back(self, contents: Contents, store: OffsetStore) -> Effect:
        then = self._plan.details["target"]
        held = {named(partition): kept for partition, kept in contents.kept.items()}
        changed = differences(then, {partition: held.get(partition) for partition in then})
        if changed:
            return Effect(False, None, changed[0], untouched=True)  # nothing is written here
        return Effect(True, None, f"{store.name}: read back, it already holds the new offsets")


def _store_of(step: Step, stores: Stores) -> OffsetStore | None:
    return stores.mirror if step.parameters.get("which") == MIRROR else stores.main


# -- undo ------------------------------------------------------------------------------------------


def undo_plan(entry: JournalEntry, context: Context, seconds: float | None) -> Plan:
    """Undo what an entry wrote: offsets, metadata, leader epochs, absence.

    An undo that was begun before is resumed. Raises RefusedError unless the store still holds
    exactly what was written (of an unfinished entry also what was there before).
    """
    if (begun := begun_undo(entry)) is not None:
        return begun.plan
    if not any(writes_of(step) for step in entry.plan.steps):
        raise RefusedError("it wrote nothing: there is nothing to undo", where=entry.id)

    async def make(cluster: Cluster) -> Plan:
        request = asked_again(entry.plan.details["asked"])
        async with opened_stores(cluster, request) as stores:
            return await _undo(entry, context, stores)

    return with_cluster(context, seconds, make)


def begun_undo(entry: JournalEntry) -> JournalEntry | None:
    """Return an undo of this entry that was left unfinished."""
    begun = unfinished(Journal().find().entries)
    return next((other for other in begun if other.undoes == entry.id), None)


async def _undo(entry: JournalEntry, context: Context, stores: Stores) -> Plan:
    then = entry.plan
    steps = []
    for step in then.steps:
        store = _store_of(step, stores)
        if store is None or not writes_of(step):
            continue
        contents = await store.read()
        refuse_members(contents, store.name)
        _refuse_moved_on(entry, step, contents, store)
        back = _to_put_back(entry, step, contents, store)
        which = step.parameters["which"]
        if back:
            steps.append(
                Step(
                    action="write",
                    target=store.name,
                    parameters=parameters(which, back, dissolve=not then.details["existed"][which]),
                    does=f"puts {counted(len(back), 'position')} of {store.name} back",
                    stands_on=(_key(which, store),),
                )
            )
    writes = sum(len(writes_of(step)) for step in steps)
    observed = await _store_facts(then.model_copy(update={"steps": tuple(steps)}), stores)
    return new_plan(
        context,
        then.cluster_id,
        kind=UNDO,
        action="undo",
        scope=then.scope,
        summary=f"{then.scope}: {counted(writes, 'position')} as before {entry.id}",
        observed=observed,
        steps=steps,
        details={
            "asked": then.details["asked"],
            "target": {},
            # the reverse of a reverse leaves the store in place
            "existed": {STORE: True, MIRROR: True},
        },
    )


def _refuse_moved_on(
    entry: JournalEntry, step: Step, contents: Contents, store: OffsetStore
) -> None:
    """Refuse if a partition that was to stay unchanged has changed: the application ran."""
    if step.parameters["which"] != STORE or entry.plan.kind != KIND:
        return
    written = {named(w.topic_partition) for w in writes_of(step)}
    held = {named(partition): kept for partition, kept in contents.kept.items()}
    target = entry.plan.details["target"]
    kept = {partition: value for partition, value in target.items() if partition not in written}
    _refuse(entry, store, differences(kept, {partition: held.get(partition) for partition in kept}))


def _to_put_back(
    entry: JournalEntry, step: Step, contents: Contents, store: OffsetStore
) -> tuple[Write, ...]:
    held = contents.kept
    back, wrong = [], []
    for write in writes_of(step):
        now = held.get(write.topic_partition)
        if now == write.after:
            back.append(write.reverse)
        elif now != write.before or entry.state == "done":
            partition = named(write.topic_partition)
            wrong += differences({partition: write.after}, {partition: now})
    _refuse(entry, store, wrong)
    return tuple(back)


def _refuse(entry: JournalEntry, store: OffsetStore, changed: Sequence[str]) -> None:
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise RefusedError(
            f"{store.name} no longer holds what {entry.id} wrote: {changed[0]}{more}",
            where=entry.id,
            remedy="the application, or somebody else, moved on: nothing is put back",
        )


async def _store_facts(plan: Plan, stores: Stores) -> dict[str, Any]:
    """Return for each store that the steps write whether it exists, and what it holds."""
    facts: dict[str, Any] = {}
    for step in plan.steps:
        store = _store_of(step, stores)
        if store is None:
            continue
        contents = await store.read()
        refuse_members(contents, store.name)
        held = contents.kept
        facts[_key(step.parameters["which"], store)] = {
            "exists": contents.exists,
            "entries": {
                named(w.topic_partition): held.get(w.topic_partition) for w in writes_of(step)
            },
        }
    return facts


def _key(which: str, store: OffsetStore) -> str:
    return f"mirror {store.name}" if which == MIRROR else store.name


# -- the same command again ------------------------------------------------------------------------


def going_on_with(plan: Plan) -> JournalEntry | None:
    """Return an unfinished entry of an earlier plan that leads to the same positions.

    The next run of cron ends what a killed run began, although its plan was made later.

    An entry that sent nothing is closed: this plan takes its place. Raises RefusedError if it runs.
    """
    entry = unfinished_entry(KIND, plan.cluster_id, plan.scope)
    if entry is None or entry.plan.same_change(plan):
        return None
    if not entry.touched:
        Journal().abandon(entry.id, "nothing was sent; another plan took its place")
        return None
    same = entry.plan.details["target"] == plan.details["target"]
    return entry if same else None


def is_abandoned(entry: JournalEntry) -> bool:
    """Return True if the entry was closed because none of it had happened."""
    return Journal().get(entry.id).state == "abandoned"


class Became(Value):
    """This host's journal about a plan. applied: the entry that applied it; undone: the entry that
    undid it. None: no entry."""

    applied: JournalEntry | None
    undone: JournalEntry | None


def became(plan: Plan) -> Became:
    """Return what became of a plan: applied from here, undone, or neither."""
    entries = Journal().find().entries
    mine = [e for e in entries if e.begun.data["sha256"] == plan.sha256 and e.plan.kind == KIND]
    entry = mine[-1] if mine else None
    backs = [e for e in entries if entry is not None and e.undoes == entry.id]
    return Became(entry, backs[-1] if backs else None)


def applied(plan: Plan) -> JournalEntry:
    """Return the journal entry that applied a plan. Raises RefusedError."""
    entry = became(plan).applied
    if entry is not None:
        return entry
    raise RefusedError(
        "this plan was not applied from here: the journal does not know it",
        where=plan.scope,
        remedy="see `eoctl journal list`",
    )
