"""`merge replay` as a change of the cluster: make its plan, and carry it out.

`plan_replay` returns the plan; `opened` yields its operation, which reports progress and ends when
its event is set.
"""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.acting import unfinished_entry
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import Effect
from eoctl.operations.merge.planning import (
    Merge,
    Reached,
    bases,
    look,
    partitions_of,
    reached,
    thorough,
    visible,
)
from eoctl.operations.merge.replay import PartitionReplay, ReplayProgress, ReplayRun
from eoctl.operations.session.signals import ended_by_signals
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnverifiedError,
    UsageError,
)
from recovery.facts import TopicPartition
from recovery.inspect.rights import Need, needs_of_copy
from recovery.merge.replay import Base
from recovery.plurals import count, counted
from recovery.shared.app_file import named
from recovery.values import Value

KIND = "merge-replay"
GOES_ON = True
AT_ONCE = 4  # partitions of a replay that has an end


class Running(Value):
    """Watches a replay, and ends it. progress: see ReplayProgress.

    cancel: when set, open work is committed and no more is begun.
    """

    progress: ReplayProgress = lambda partition, done, total: None
    cancel: threading.Event = msgspec.field(default_factory=threading.Event)


def scope_of(merge: Merge) -> str:
    """Return the lock's scope: one replay at a time."""
    return f"merge log {merge.topic}"


async def plan_replay(
    cluster: Cluster,
    context: Context,
    merge: Merge,
    *,
    follow: bool = False,
    max_rate: float | None = None,
    thoroughly: bool = True,
) -> Plan:
    """Return the plan of a replay. max_rate: bytes a second read from the inputs of each partition.
    thoroughly: read the log and check what it names; else the replay does so later.

    Raises RefusedError if log, inputs and output do not belong together, IncompleteError.
    """
    if merge.output is None:
        raise UsageError("no output is named: there is nothing to replay to")
    logs = await look(cluster, merge, twice=True)
    if logs.missing:
        raise IncompleteError(logs.missing[0].detail, where=logs.missing[0].topic)
    chosen = partitions_of(merge, logs)
    for p in chosen:
        if (merge.output, p) not in logs.facts:
            raise RefusedError(
                f"partition {p} of {merge.topic} has none of its number there", where=merge.output
            )
    given = await bases(cluster, merge, chosen, logs)
    now_there = await reached(cluster, merge, given, logs)
    if thoroughly:
        await thorough(cluster, merge, given, logs)
    observed = _topic_ids(logs.facts)
    step = Step(
        action="follow" if follow else "replay",
        target=merge.topic,
        parameters={
            "format": merge.format,
            "inputs": list(merge.inputs),
            "output": merge.output,
            "isolation": merge.isolation,
            "follow": follow,
            "bases": {str(p): [b.merge_offset, b.output_offset] for p, b in given.items()},
        },
        does=_does(merge, now_there, follow=follow),
        stands_on=tuple(observed),
    )
    return new_plan(
        context,
        cluster.cluster_id,
        kind=KIND,
        action="follow" if follow else "replay",
        scope=scope_of(merge),
        summary=_does(merge, now_there, follow=follow),
        observed=observed,
        steps=(step,),
        details={
            "partitions": [
                {
                    "partition": p,
                    "from": r.position.merge_offset,
                    "to": r.tip,
                    "drop_first": r.position.drop_left,
                }
                for p, r in now_there.items()
            ],
            "max_rate": None if max_rate is None else round(max_rate),
        },
    )


def _does(merge: Merge, now: Mapping[int, Reached], *, follow: bool) -> str:
    entries, dropped = (
        sum(r.entries for r in now.values()),
        sum(r.outputs for r in now.values()),
    )
    text = (
        f"{counted(entries, 'record')} in the order of {merge.topic} to {merge.output}, "
        f"{count(dropped)} of them there already"
    )
    if follow:
        text += f"; then {', '.join(merge.inputs)} as they come, {merge.topic} extended first"
    return text + "".join(f"; {r.unproven}" for r in now.values() if r.unproven is not None)


def _topic_ids(facts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return each topic's id: none of them may be recreated meanwhile."""
    return {topic: {"topic_id": f.topic_id} for (topic, _), f in sorted(facts.items())}


def in_the_way(plan: Plan) -> str | None:
    """Return the entry of an unfinished replay of this log that was started otherwise.

    A new plan takes its place: everything that it sent is committed with its position, and the plan
    is based on that, so nothing has to be ended or undone first.
    """
    entry = unfinished_entry(KIND, plan.cluster_id, plan.scope)
    return None if entry is None or entry.plan.same_change(plan) else entry.id


@asynccontextmanager
async def opened(
    plan: Plan,
    context: Context,
    seconds: float | None,
    running: Running | None = None,
    engine: "ReplayEngine | None" = None,
) -> AsyncIterator["Replaying"]:
    """Yield the operation of a plan, with its cluster open."""
    async with context.open(seconds) as cluster:
        operation = (engine or Replaying)(cluster, running or Running(), plan.details["max_rate"])
        operation.planned = {
            p["partition"]: (p["from"], p["to"]) for p in plan.details["partitions"]
        }
        yield operation


def asked_again(step: Step) -> Merge:
    """Return the request that a plan's step keeps."""
    p = step.parameters
    given = {int(number): (base[0], base[1]) for number, base in p["bases"].items()}
    return Merge(
        topic=step.target,
        format=p["format"],
        inputs=tuple(p["inputs"]),
        output=p["output"],
        isolation=p["isolation"],
        partitions=tuple(sorted(given)),
        bases=given,
    )


class Replaying:
    """See `steps.Operation`. A single step: all partitions, each in its own thread."""

    def __init__(self, cluster: Cluster, running: Running, max_rate: int | None) -> None:
        self._cluster, self._running, self._max_rate = cluster, running, max_rate
        self._tips: dict[int, int] | None = None
        self._followed = False
        self.planned: Mapping[int, tuple[int, int]] = {}  # position and tip of each partition

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Check that no topic was recreated; `perform` checks the rest under its lock."""
        self._cluster.forgive()
        facts: dict[str, object] = {}
        for step in steps:
            facts |= _topic_ids((await look(self._cluster, asked_again(step), twice=False)).facts)
        return facts

    def needs(self, step: Step) -> frozenset[Need]:
        """Return its rights: what the output holds is read back, --follow extends the log."""
        merge, output = asked_again(step), step.parameters["output"]
        outputs = [output, *([merge.topic] if step.parameters["follow"] else [])]
        return needs_of_copy([merge.topic, *merge.inputs, output], outputs, merge.group)

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Replay to the tip, or follow until asked to end."""
        self._cluster.refuse_read_only()
        p, cancel = step.parameters, self._running.cancel
        request = asked_again(step)
        logs = await look(self._cluster, request, twice=False)
        self._tips = {
            n: logs.bounds(TopicPartition(request.topic, n), "read_committed")[1]
            for n in request.partitions
        }
        failed = threading.Event()
        job = ReplayRun(
            settings=self._cluster.settings,
            merge=request,
            follow=p["follow"],
            max_rate=self._max_rate,
            ensure_held=ensure_held,
            progress=self._running.progress,
            stop=_Either(cancel, failed),
        )
        replays = [
            PartitionReplay(job, Base(at, TopicPartition(p["output"], n), offset), n)
            for n, (at, offset) in request.bases.items()
        ]
        room = asyncio.Semaphore(len(replays) if job.follow else AT_ONCE)

        async def one(replay: PartitionReplay) -> None:
            async with room:
                if not job.stop.is_set():
                    try:
                        await _in_thread(replay.run)
                    except BaseException:
                        failed.set()
                        raise

        with ended_by_signals(cancel), _rare_collections():
            tasks = [asyncio.create_task(one(replay)) for replay in replays]
            together = asyncio.gather(*tasks, return_exceptions=True)
            try:
                ended = await asyncio.shield(together)
            except asyncio.CancelledError:
                cancel.set()
                await together  # hold the lock until nobody writes any more
                raise
        errors = [e for e in ended if isinstance(e, BaseException)]
        for error in sorted(errors, key=lambda e: not isinstance(e, RefusedError)):
            if isinstance(error, RefusedError) and any(r.committed for r in replays):
                raise UnverifiedError.of(error) from None
            raise error
        if cancel.is_set() and not job.follow:
            raise asyncio.CancelledError  # it was ended before its end
        self._followed = job.follow
        return {
            "sent": {named(TopicPartition(request.topic, r.partition)): r.sent for r in replays}
        }

    async def verify(self, step: Step) -> Effect:
        """Check that the position is at the tip and the output holds exactly the log's records."""
        self._cluster.forgive()
        request = asked_again(step)
        logs = await look(self._cluster, request, twice=True)
        given = {
            n: Base(at, TopicPartition(request.output or "", n), o)
            for n, (at, o) in request.bases.items()
        }
        saw: dict[str, int] = {}
        try:
            now = await reached(self._cluster, request, given, logs)
        except RefusedError as error:
            return Effect(False, None, error.sentence)
        # a position moves with each transaction that sends, the tip with each that extends the log
        untouched = all(
            self.planned.get(n) == (standing.position.merge_offset, standing.tip)
            for n, standing in now.items()
        )
        if step.parameters["follow"] and not self._followed:
            return Effect(False, None, "it follows until it is ended", untouched)
        for n, standing in now.items():
            merge = TopicPartition(request.topic, n)
            if standing.at is None:
                return Effect(False, saw, f"nothing was committed for {named(merge)}", untouched)
            begin = saw[named(merge)] = standing.at.merge_offset
            tip = standing.tip if self._tips is None else min(standing.tip, self._tips[n])
            if begin < tip and not step.parameters["follow"]:
                left = (await visible(self._cluster, logs, {merge: (begin, tip)}))[merge].data
                if left:
                    are = counted(left, "entry is", "entries are")
                    text = f"{named(merge)}: {are} not replayed yet"
                    return Effect(False, saw, text, untouched)
        return Effect(
            True, saw, f"{request.output} holds every record of the log up to its tip once"
        )


ReplayEngine = Callable[[Cluster, Running, int | None], Replaying]
"""Makes the operation that carries a plan out. The number: bytes a second, as plan_replay's."""


class _Either(threading.Event):
    """Set as soon as one of two other events is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        super().__init__()
        self._events = one, other

    def is_set(self) -> bool:
        return any(e.is_set() for e in self._events)

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or self._events[0].wait(timeout)


async def _in_thread(run: Callable[[], None]) -> None:
    """Run a function in its own thread, and wait for its end even when cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def target() -> None:
        try:
            run()
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, _carried(error))
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=target, name="eoctl-merge", daemon=True).start()
    await asyncio.shield(done)


def _carried(error: BaseException) -> BaseException:
    return error if isinstance(error, Exception) else EoctlError(repr(error))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: a replay makes millions of objects without reference cycles, and
    searching the waiting ones for cycles takes a third of its time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
