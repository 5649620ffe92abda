"""Read everything on which a restart is decided: logs, store and group, and counts of ranges.

Ends and store are read twice, a moment apart; then the strategy's questions are answered in rounds,
each for all partitions together, every leader in parallel.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from eoctl.kafka.ask import collect, configs
from eoctl.kafka.ask.log_ends import read_ends
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read import group_commits, log_search, pending_offsets, positions
from eoctl.kafka.read.count import Cuts, count
from eoctl.operations.diagnose import pending_owners
from eoctl.operations.inspect.history_answer import read_state_logs
from eoctl.operations.inspect.lists import look_at_owners
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart.origin import refuse_moved
from eoctl.operations.restart.output_owners import with_owners
from eoctl.operations.restart.restart_request import RestartRequest
from eoctl.stores.offsets.group import refuse_members
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import Contents, OffsetStore
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.coast import decode_changelog
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record
from recovery.merge.log import Tail, merge_format
from recovery.restart.commits import GroupCommit, OutputEvidence, decided, written_with
from recovery.restart.decision import RestartPlan
from recovery.restart.observed import (
    Attached,
    ChangelogTip,
    CommitOf,
    Count,
    Counted,
    InCommit,
    Log,
    LogEnd,
    MergeTail,
    Observed,
    OffsetAt,
    PendingCommit,
    Question,
    SameLog,
    TimeAt,
    Walk,
)
from recovery.restart.producers import ProducerRuns
from recovery.shared.log_position import LogPosition, Standing
from recovery.shared.store_tables import KafkaGroupStore
from recovery.values import Value, replace

W = TypeVar("W", bound="Question[Any]")
A = TypeVar("A")

PAUSE_SECONDS = 1.0  # between two reads of ends, store and group

Answers = tuple[Mapping[W, A], Mapping[W, str]]
"""What was answered, and why others could not be."""


class Stores(Value):
    """The open stores of a request."""

    main: OffsetStore | None
    mirror: OffsetStore | None


class RestartLook(Value):
    """Everything that was seen, and what follows from it. mirror: None without one."""

    observed: Observed
    decision: RestartPlan
    contents: Contents | None
    mirror: Contents | None


@asynccontextmanager
async def opened_stores(cluster: Cluster, request: RestartRequest) -> AsyncIterator[Stores]:
    """Yield the stores, and close them at the end."""
    async with AsyncExitStack() as stack:
        stores = [
            None
            if described is None
            else await stack.enter_async_context(
                open_store(described, cluster=cluster, app=request.app)
            )
            for described in (request.store, request.mirror)
        ]
        yield Stores(*stores)


async def look(
    cluster: Cluster,
    request: RestartRequest,
    stores: Stores,
    *,
    pause: float = PAUSE_SECONDS,
    reading: Reading | None = None,
) -> RestartLook:
    """Observe and decide. pause: seconds between the two reads.

    Raises RefusedError (PendingError while commits of the group are undecided), IncompleteError.
    """
    observer = _Observer(cluster, request, stores, reading or Reading())
    observed = await observer.observe(pause)
    if request.origin is not None and request.origin.map_of is None:
        await refuse_moved(request.origin, cluster.deadline)
    decision = request.decide(observed)
    mirror = None if stores.mirror is None else await stores.mirror.read()
    return RestartLook(observed, decision, observer.contents, mirror)


class _Observer:
    def __init__(
        self, cluster: Cluster, request: RestartRequest, stores: Stores, reading: Reading
    ) -> None:
        self._cluster = cluster
        self._asked = request
        self._store = stores.main
        self._reading = reading
        self._partitions: dict[TopicPartition, PartitionMetadata] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self.contents: Contents | None = None

    async def observe(self, pause: float) -> Observed:
        """Return everything that `decide` needs."""
        contents = await self._read_store()
        metadata = await self._cluster.metadata(self._asked.topics)
        counts = {}
        for t in metadata.topics.values():
            if t.error not in (None, "UNKNOWN_TOPIC_OR_PARTITION"):
                raise IncompleteError(f"it could not be described: {t.error}", where=t.name)
            if t.error is None:
                counts[t.name] = len(t.partitions)
            self._partitions |= {p.topic_partition: p for p in t.partitions}
        topics = list(metadata.topics.values())
        growing = [p for p in self._partitions.values() if p.topic in self._asked.growing]
        first, first_ends, _ = await read_ends(self._cluster, topics, growing)
        await asyncio.sleep(pause)
        again = await self._read_store()
        if self._store is not None and again != contents:
            raise RefusedError(
                "it was written while it was watched: the application, or another one, still runs",
                where=self._store.name,
                remedy="stop it, then plan again",
            )
        self.contents = contents
        second, second_ends, _ = await read_ends(self._cluster, topics, growing)
        others = [p for p in self._partitions.values() if p.topic not in self._asked.growing]
        inputs, _ = await collect.partition_offsets(self._cluster, topics, others)
        policies, _ = await configs.topic_configs(self._cluster, sorted(counts), ["cleanup.policy"])
        producers, _ = await collect.producers(self._cluster, growing)
        reads = {_partition_of(f): [_end(f, first_ends)] for f in first if f.error is None}
        for f in (*second, *inputs):
            partition = _partition_of(f)
            if f.error is not None or f.log_start_offset is None:
                continue
            self._logs[partition] = Log(
                *partition,
                topic_id=f.topic_id,
                leader_epoch=f.leader_epoch,
                log_start_offset=f.log_start_offset,
                reads=(*reads.get(partition, ()), _end(f, second_ends)),
                cleanup_policy=policies.get(f.topic, {}).get("cleanup.policy"),
                producers=producers.get(partition),
            )
        observed = Observed(
            cluster_id=self._cluster.cluster_id,
            partition_counts=counts,
            logs=self._logs,
            stored=tuple(
                e.position
                for e in (contents.entries if contents else ())
                if e.topic_partition[0] in self._asked.inputs
            ),
            pending=await self._pending(contents),
            spark=contents.spark if contents else None,
            flink=contents.flink if contents else None,
            sources={p: kept["offset"] for (p, _), kept in contents.sources.items()}
            if contents
            else {},
        )
        answered = await self._answered(observed)
        return await with_owners(self._cluster, answered, self._logs.values())

    async def _read_store(self) -> Contents | None:
        if self._store is None:
            return None
        contents = await self._store.read()
        refuse_members(contents, self._store.name)
        return contents

    async def _pending(self, contents: Contents | None) -> tuple[PendingCommit, ...]:
        """Return the group's commits that transactions hold, and the ids these belong to."""
        pending = [
            o for o in (contents.pending if contents else ()) if o.topic in self._asked.inputs
        ]
        if not pending:
            return ()
        holders = await pending_offsets.pending_holders(self._cluster, pending)
        return await pending_owners.judged(self._cluster, pending, holders)

    async def _answered(self, observed: Observed) -> Observed:
        """Ask until nothing more is needed; each round has a new question."""
        before: set[Question[Any]] = set()
        while wants := self._asked.wants(observed):
            assert not before.issuperset(wants), f"still asking: {wants[0]}"
            before |= set(wants)
            answers, unseen = await self._answer(wants)
            observed = replace(
                observed,
                answers={**observed.answers, **answers},
                unseen={**observed.unseen, **unseen},
            )
        return observed

    async def _answer(self, wants: Sequence[Question[Any]]) -> Answers[Question[Any], Any]:
        answers: dict[Question[Any], Any] = {}
        unseen: dict[Question[Any], str] = {}

        def put(values: Mapping[Any, Any], not_seen: Mapping[Any, str]) -> None:
            answers.update(values)
            unseen.update(not_seen)

        def of(kind: type[W]) -> list[W]:
            return [w for w in wants if isinstance(w, kind)]

        if counts := of(Count):
            put(*await self._count(counts))
        if walks := of(Walk):
            tops = {p: (g.last_stable_offset, g.high_watermark) for p, g in self._logs.items()}
            walked = await log_search.walk(self._cluster, walks, tops)
            put(walked.answers, walked.unseen)
        if times := of(TimeAt):
            ends = {p: g.high_watermark for p, g in self._logs.items()}
            searched = await log_search.times(self._cluster, times, ends)
            put(searched.answers, searched.unseen)
        if instants := of(OffsetAt):
            put(*await self._offsets_at(instants))
        if stored := of(SameLog):
            put(*await self._same_logs(stored))
        if tips := of(ChangelogTip):
            put(*await self._tips(tips))
        if tails := of(MergeTail):
            put(*await self._tails(tails))
        if commits := of(CommitOf):
            put(*await self._commits(commits))
        if outputs := of(InCommit):
            put(*await self._in_commits(outputs))
        return answers, unseen

    async def _count(self, wants: Sequence[Count]) -> Answers[Count, Counted]:
        answers: dict[Count, Counted] = {}
        unseen: dict[Count, str] = {}
        for one in log_search.in_turn(wants):
            runs = {p: ProducerRuns(w.start, w.end) for p, w in one.items() if w.producers}
            cuts = [
                Cuts(
                    *partition,
                    (want.start, want.end),
                    self._logs[partition].log_start_offset,
                    self._logs[partition].last_stable_offset,
                    runs.get(partition),
                )
                for partition, want in one.items()
            ]
            counts, missing = await count(self._cluster, cuts, self._reading)
            for partition, (counted,) in counts.items():
                producers = runs[partition].producers if partition in runs else None
                answers[one[partition]] = Counted(counted, producers)
            for m in missing:
                unseen[one[TopicPartition(m.topic or "", m.partition or 0)]] = (
                    f"it could not be counted: {m.detail}"
                )
        return answers, unseen

    async def _offsets_at(self, wants: Sequence[OffsetAt]) -> Answers[OffsetAt, int | None]:
        partitions = {w.topic_partition for w in wants}
        by_instant, _ = await collect.offsets_at(
            self._cluster, [self._partitions[p] for p in partitions], {w.instant for w in wants}
        )
        answers: dict[OffsetAt, int | None] = {}
        unseen: dict[OffsetAt, str] = {}
        for w in wants:
            offsets = by_instant.get(w.topic_partition)
            if offsets is None:
                unseen[w] = "its leader did not find the offset of an instant"
            else:
                answers[w] = offsets.get(w.instant)
        return answers, unseen

    async def _same_logs(self, wants: Sequence[SameLog]) -> Answers[SameLog, Standing]:
        answers: dict[SameLog, Standing] = {}
        unseen: dict[SameLog, str] = {}
        for one in log_search.in_turn(wants):
            stored = {p: LogPosition(w.offset, w.leader_epoch, "commit") for p, w in one.items()}
            try:
                standings = await positions.standings(self._cluster, stored)
            except IncompleteError as error:
                unseen |= dict.fromkeys(one.values(), error.what)
            else:
                answers |= {one[partition]: standing for partition, standing in standings.items()}
        return answers, unseen

    async def _tips(self, wants: Sequence[ChangelogTip]) -> Answers[ChangelogTip, Attached | None]:
        starts = {p: g.log_start_offset for p, g in self._logs.items()}
        records = await log_search.last_records(self._cluster, wants, starts)
        answers: dict[ChangelogTip, Attached | None] = {}
        for want, record in records.answers.items():
            answers[want] = None
            if record is not None:
                where = f"{want.topic_partition} at {record.offset}"
                try:
                    change = decode_changelog(record.key, record.value)
                except CorruptError as error:
                    raise error.within(where) from None
                answers[want] = Attached(change.upstream, change.downstream, record.offset)
        return answers, records.unseen

    async def _tails(self, wants: Sequence[MergeTail]) -> Answers[MergeTail, Any]:
        app = self._asked.app
        assert app is not None
        assert app.merge is not None
        form = merge_format(app.merge.format)
        tails = {w: Tail() for w in wants}

        def each(want: MergeTail, record: Record) -> None:
            try:
                tails[want].add(form.decode(record.key, record.value))
            except CorruptError as error:
                where = f"{want.topic_partition} at {record.offset}"
                raise error.within(where) from None

        searched = await log_search.tails(self._cluster, wants, each)
        return {w: tails[w].sources for w in searched.answers}, searched.unseen

    async def _commits(self, wants: Sequence[CommitOf]) -> Answers[CommitOf, GroupCommit]:
        """Return the commit records of the offsets that the coordinator returned."""
        store = self._asked.store
        assert isinstance(store, KafkaGroupStore)
        assert self.contents is not None
        offsets = {e.topic_partition: e.kept.get("offset") for e in self.contents.entries}
        read, why = await group_commits.last_commits(self._cluster, store.group)
        answers: dict[CommitOf, GroupCommit] = {}
        unseen: dict[CommitOf, str] = {}
        for want in wants:
            partition = want.topic_partition
            commit = read.get(partition)
            if why is not None:
                unseen[want] = why
            elif commit is None or commit.offset != offsets.get(partition):
                unseen[want] = (
                    f"__consumer_offsets holds {'nothing' if commit is None else commit.offset}, "
                    f"the coordinator returned {offsets.get(partition)}"
                )
            else:
                answers[want] = commit
        return answers, unseen

    async def _in_commits(self, wants: Sequence[InCommit]) -> Answers[InCommit, OutputEvidence]:
        """Answer by the decisions of the ids that committed; under v2 also by the outputs."""
        pids = {w.commit.producer_id for w in wants if w.commit.producer_id is not None}
        owners = await look_at_owners(self._cluster, sorted(pids))
        ids = sorted({t.transactional_id for t in owners.rows if t.producer_id in pids})
        logs = (await read_state_logs(self._cluster, ids, [])).logs if ids else ()
        history = [r for log in logs for r in log.standing]
        answers = {w: decided(w.commit, w.topic_partition, history) for w in wants}
        unseen: dict[InCommit, str] = {}
        left = [
            w for w, shown in answers.items() if shown is OutputEvidence.NOTHING and w.commit.is_v2
        ]
        for one in log_search.in_turn(left):
            ends = {partition: (w.start, w.end) for partition, w in one.items()}
            read, failed = await group_commits.tails(self._cluster, ends)
            for partition, w in one.items():
                if partition in failed:
                    unseen[w] = f"its last batches could not be read: {failed[partition]}"
                    del answers[w]
                else:
                    answers[w] = written_with(w.commit, read.get(partition, ()))
        return answers, unseen


def _partition_of(f: PartitionFacts) -> TopicPartition:
    return f.topic_partition


def _end(f: PartitionFacts, ends: Mapping[TopicPartition, int]) -> LogEnd:
    assert f.high_watermark is not None
    assert f.last_stable_offset is not None
    return LogEnd(ends.get(_partition_of(f)), f.high_watermark, f.last_stable_offset)
