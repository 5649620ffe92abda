"""Deliver a finished state into the state directory of a stopped Kafka Streams application.

The application continues its changelogs from the offsets next to its stores. So a state is right
there only while its changelogs have everything after its cut: the rule by which a rebuild continues
an earlier state, checked again right before a task appears. Each task is made next to its place,
read back, and renamed: the application sees all of it or nothing.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from eoctl.engine.delivered import DeliveredState
from eoctl.engine.rebuild_request import why_read_again
from eoctl.engine.resolve_cut import parse_at, resolve
from eoctl.host.extras import installed, missing
from eoctl.kafka.ask import configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.steps import Effect, die_here_in_tests
from eoctl.operations.state.delivery import KINDS, STREAMS, DeliveryRequest
from eoctl.stores.state import task_directory
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats import streams_directory as names
from recovery.plurals import counted
from recovery.shared.digest import Digest, digest
from recovery.times import instant, rfc3339

FORMAT = "streams-kv"
_SETTINGS = ("cleanup.policy", "delete.retention.ms")


class IntoStreams:
    """See `steps.Operation`: a step for each task of the subtopology that has any records."""

    def __init__(
        self, cluster: Cluster, request: DeliveryRequest, states: Sequence[DeliveredState]
    ) -> None:
        self._cluster, self._request = cluster, request
        self._folder = Path(request.into.removeprefix(STREAMS))
        self._states = {state.changelog: state for state in states}
        self._manifest = states[0].manifest
        self._stores = _stores(request, self._folder.name, [*self._states])
        self._refuse_state()
        self._note = ""
        self._compared: dict[int, tuple[object, int]] = {}

    @property
    def name(self) -> str:
        return f"Streams directory {self._folder}"

    @property
    def note(self) -> str:
        """Return until when the application must be started, and what else it has."""
        return self._note

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    def _refuse_state(self) -> None:
        """Refuse a state that is not one of key-value stores of a single subtopology."""
        if self._manifest.format != FORMAT:
            raise RefusedError(
                f"the state's format is {self._manifest.format}: only key-value stores can be "
                "delivered, not window, session or versioned stores",
                where=self.name,
                remedy=f"rebuild a key-value store's changelog with --format {FORMAT}",
            )
        if len({frozenset(state.partitions) for state in self._states.values()}) > 1:
            raise RefusedError(
                "the changelogs have different numbers of partitions, so their stores are not of "
                "one subtopology",
                where=self.name,
                remedy="deliver those of one subtopology; --changelog names one",
            )

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Return the state and its changelogs. Raises RefusedError if they do not go together, or
        the directory may not be written now."""
        self._cluster.forgive()
        try:
            self._refuse_directory()
        except OSError as error:
            raise IncompleteError(
                f"cannot be looked at: {error.strerror}", where=str(self._folder)
            ) from None
        await self._refuse_stale()
        ids = {t.topic: t.topic_id for t in self._manifest.cut.topics if t.topic in self._states}
        return {"state": [s.facts for s in self._states.values()], "changelogs": ids}

    def _refuse_directory(self) -> None:
        if not self._folder.exists():
            if not self._folder.parent.is_dir():
                raise RefusedError("there is no such folder", where=str(self._folder.parent))
            return
        if not self._folder.is_dir():
            raise RefusedError("is not a folder", where=str(self._folder))
        if (owner := self._folder.stat().st_uid) != os.geteuid():
            raise RefusedError(
                f"it belongs to the user with id {owner}, who could not write what the user with "
                f"id {os.geteuid()} makes in it",
                where=str(self._folder),
                remedy="run eoctl as the application's user",
            )
        task_directory.refuse_running(self._folder)

    async def _refuse_stale(self) -> None:
        """Refuse a state from which the application could not catch up with its changelogs."""
        earlier, topics = self._manifest, [t.topic for t in self._manifest.cut.topics]
        now = await resolve(self._cluster, topics, parse_at("lso"), 0)
        settings, _ = await configs.topic_configs(self._cluster, topics, _SETTINGS)
        why = await why_read_again(self._cluster, earlier, now, FORMAT, earlier.options, settings)
        if why is not None:
            raise RefusedError(
                f"the application could not go on from the state: {why}",
                where=self.name,
                remedy=f"rebuild it with --format {FORMAT} --at lso; --since reads what came since",
            )
        kept = min(
            int(config["delete.retention.ms"] or 0)
            for config in (*settings.values(), *(earlier.topic_configs[t] for t in topics))
        )
        until = instant(earlier.cut.created_at, 0) + kept
        self._note = f"; start the application before {rfc3339(until)}"
        metadata = await self._cluster.metadata(None)
        others = [
            t
            for t in sorted(metadata.topics)
            if t not in self._states and names.store_of(self._folder.name, t)
        ]
        if others:
            self._note += f"; not in it: {', '.join(others)}"

    async def steps(self) -> list[Step]:
        observed = await self.observe(())
        steps = []
        for p in sorted(next(iter(self._states.values())).partitions):
            task, ends = self._task(p), self._ends(p)
            if not any(ends.values()):
                continue
            rows = {t: state.partitions[p].digest.rows for t, state in self._states.items()}
            stores = [
                f"{counted(rows[topic], 'entry', 'entries')} of {store} below offset "
                f"{ends[TopicPartition(topic, p)]}"
                for topic, (store, _) in self._stores.items()
            ]
            step = Step(
                action="deliver",
                target=str(task),
                parameters={"wish": self._request.facts, "partition": p, "rows": rows},
                does=f"task {task.name}: {', '.join(stores)}",
                stands_on=tuple(observed),
            )
            if not (await self.verify(step)).done:
                self._refuse_used(task)
            steps.append(step)
        return steps

    def _refuse_used(self, task: Path) -> None:
        """Refuse to overwrite anything, except an empty task directory."""
        if os.path.lexists(task) and not (task.is_dir() and not any(task.iterdir())):
            raise RefusedError(
                "there is one already, and a delivery writes over nothing",
                where=f"task directory {task}",
                remedy="move it away",
            )

    def _task(self, p: int) -> Path:
        return self._folder / f"{self._request.subtopology}_{p}"

    def _ends(self, p: int) -> dict[TopicPartition, int]:
        """Return the first offset that each store of a task lacks, 0 for an empty changelog."""
        return {
            TopicPartition(topic, p): state.partitions[p].end
            for topic, state in self._states.items()
        }

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Make the task next to its place, read it back, and move it there."""
        p = int(step.parameters["partition"])
        task = self._task(p)
        made = self._folder / f".eoctl-{task.name}"  # a name that Streams takes for no task
        try:
            with suppress(FileExistsError):
                self._folder.mkdir(mode=0o750)  # as Streams creates it
            with task_directory.held(self._folder):
                self._refuse_used(task)
                try:
                    await asyncio.to_thread(self._make, made, p)
                    await self._refuse_stale()  # writing takes time
                    ensure_held()
                    made.rename(task)
                    await asyncio.to_thread(task_directory.settle, self._folder, deep=False)
                finally:
                    shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            raise IncompleteError(f"cannot be written: {error.strerror}", where=str(made)) from None
        return {"rows": step.parameters["rows"]}

    def _make(self, made: Path, p: int) -> None:
        if made.exists():
            shutil.rmtree(made)  # left by an attempt that was killed
        made.mkdir(mode=0o750)
        for topic, (store, timestamped) in self._stores.items():
            if self._ends(p)[TopicPartition(topic, p)]:
                rows = self._states[topic].rows.all_rows(TopicPartition(topic, p))
                path = made / names.ROCKSDB / store
                task_directory.write_store(path, rows, timestamped=timestamped)
                die_here_in_tests(f"deliver-store-{p}-{store}")
        self._compare(made, p)
        task_directory.write_checkpoint(made, self._ends(p))
        task_directory.settle(made)
        die_here_in_tests(f"deliver-made-{p}")

    def _compare(self, task: Path, p: int) -> int:
        """Return how many entries a task's stores hold. Raises IncompleteError if they are not
        those of the state. Files that have not changed since are not read again."""
        marks, (known, rows) = task_directory.marks(task), self._compared.get(p, (None, 0))
        if marks == known:
            return rows
        rows = 0
        for topic, (store, timestamped) in self._stores.items():
            if not self._ends(p)[TopicPartition(topic, p)]:
                continue
            path = task / names.ROCKSDB / store
            there = task_directory.read_store(path, p, timestamped=timestamped)
            if there != self._expected(topic, p, timestamped):
                raise IncompleteError(
                    f"the store holds {counted(there.rows, 'entry', 'entries')}, not the state's",
                    where=str(path),
                )
            rows += there.rows
        self._compared[p] = marks, rows
        return rows

    def _expected(self, topic: str, p: int, timestamped: bool) -> Digest:
        state = self._states[topic]
        if timestamped:
            return state.partitions[p].digest.digest()
        tables = state.rows.all_rows(TopicPartition(topic, p))
        return Digest.sum(digest(p, task_directory.without_timestamps(rows)) for rows in tables)

    async def verify(self, step: Step) -> Effect:
        """Read the task's stores back, and compare their rows with the state's by digest."""
        p = int(step.parameters["partition"])
        return await asyncio.to_thread(self._effect, p)

    def _effect(self, p: int) -> Effect:
        task = self._task(p)
        if not os.path.lexists(task):
            return Effect(False, None, f"there is no {task}", untouched=True)
        if not task_directory.has_checkpoint(task, self._ends(p)):
            return Effect(False, None, f"{task} holds something else, or is in use", final=True)
        try:
            task_directory.refuse_running(self._folder)
            rows = self._compare(task, p)
        except (RefusedError, IncompleteError) as error:
            return Effect(None, None, error.sentence, final=True)
        return Effect(
            True, {"rows": rows}, f"{task} holds the state's {counted(rows, 'entry', 'entries')}"
        )


def _stores(
    request: DeliveryRequest, application: str, changelogs: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return the store of each changelog, and whether it is timestamped. Raises UsageError."""
    if not installed("rocksdict"):
        raise missing("data", f"--into {STREAMS}DIR")
    stores: dict[str, tuple[str, bool]] = {}
    for topic in changelogs:
        store = names.store_of(application, topic)
        if store is None:
            raise RefusedError(
                f"{topic} is not named {application}-STORE-changelog, {application} being the "
                "application.id, as which the directory is named",
                where=f"{STREAMS}DIR",
                remedy="name the directory of the application: state.dir/application.id",
            )
        kind = request.stores.get(store)
        if kind is None:
            raise UsageError(
                f"a changelog does not show what kind of store {store} is, and the kinds differ on "
                "disk",
                where="--store",
                remedy=f"--store {store}=timestamped for a store of the DSL or of "
                f"timestampedKeyValueStoreBuilder, --store {store}=plain for one of "
                "keyValueStoreBuilder",
            )
        stores[topic] = store, kind == KINDS[0]
    if others := request.stores.keys() - {store for store, _ in stores.values()}:
        raise UsageError(f"the state has no changelog of {min(others)}", where="--store")
    if request.subtopology is None:
        raise UsageError(
            "a changelog does not show to which subtopology its store belongs",
            where="--subtopology",
            remedy="print Topology.describe() of the application: `Sub-topology: N` is above "
            "the processor that lists it in `stores`",
        )
    return stores
