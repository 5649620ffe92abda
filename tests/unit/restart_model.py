"""Applications over logs in memory, killed anywhere: the truth that restart plans are held against.

`World` holds logs whose every offset is known, and stores. An application is a generator that does
one atomic thing and yields; a kill is a generator that is not asked again. `plan` answers what the
planner wants to know by looking at each offset of a log, and nothing else.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.facts import TopicPartition
from recovery.formats.batches import TRANSACTIONAL, BatchHeader
from recovery.formats.counting import Counts
from recovery.formats.spark_checkpoint import Checkpoint
from recovery.restart.commits import GroupCommit, OutputEvidence
from recovery.restart.decide import changes, decide, wants
from recovery.restart.decision import RestartPlan
from recovery.restart.drop_first import DropFirst, OutputNow, restart_offset
from recovery.restart.observed import (
    Attached,
    ChangelogTip,
    CommitOf,
    Count,
    Counted,
    FlinkFacts,
    InCommit,
    Log,
    LogEnd,
    MergeTail,
    Observed,
    OffsetAt,
    PendingCommit,
    Question,
    SameLog,
    SourceRange,
    TimeAt,
    Walk,
)
from recovery.restart.plan_output import env_lines
from recovery.restart.producers import ProducerRuns
from recovery.restart.stored import (
    StoredPartition,
    as_kept,
    dump_stored,
    next_positions,
    parse_stored,
)
from recovery.shared.app_file import App
from recovery.shared.log_position import Standing
from recovery.values import replace

DATA, ABORTED, CONTROL, OPEN, MISSING = "data", "aborted", "control", "open", "missing"


@dataclass
class Entry:
    """One offset. kind: what became of it. value: of a marker, what its records became."""

    kind: str
    value: Any = None
    producer_id: int = -1
    epoch: int = 0
    sequence: int = -1
    transactional: bool = False


@dataclass
class ModelLog:
    """A partition. What is open pins the last stable offset."""

    entries: list[Entry] = field(default_factory=list)
    log_start: int = 0
    policy: str | None = "delete"
    leader_epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        return next((i for i, e in enumerate(self.entries) if e.kind == OPEN), self.end)

    def write(self, value: Any, producer_id: int = 1, *, transactional: bool = False) -> int:
        sequence = self.sequences.get(producer_id, -1) + 1
        self.sequences[producer_id] = sequence
        kind = OPEN if transactional else DATA
        self.entries.append(Entry(kind, value, producer_id, 0, sequence, transactional))
        return self.end - 1

    def marker(self, producer_id: int, kind: str) -> None:
        """The end of a transaction: its records become data or aborted."""
        for e in self.entries:
            if e.kind == OPEN and e.producer_id == producer_id:
                e.kind = kind
        self.entries.append(Entry(CONTROL, kind, producer_id, transactional=True))

    def visible(self, start: int = 0, end: int | None = None) -> list[tuple[int, Any]]:
        """(offset, value) of the records that a read_committed reader sees."""
        top = min(self.end if end is None else end, self.stable)
        return [
            (i, self.entries[i].value) for i in range(start, top) if self.entries[i].kind == DATA
        ]

    def counted(self, start: int, end: int) -> Counts:
        found = dict.fromkeys((DATA, ABORTED, CONTROL, OPEN, MISSING), 0)
        for i in range(start, end):
            kind = self.entries[i].kind if i >= self.log_start else MISSING
            found[OPEN if kind == DATA and i >= self.stable else kind] += 1
        return Counts(*found.values())

    def runs(self, start: int, end: int) -> ProducerRuns:
        runs = ProducerRuns(start, end)
        for i, e in enumerate(self.entries):
            if e.kind in (DATA, ABORTED):
                attributes = TRANSACTIONAL if e.transactional else 0
                header = BatchHeader(
                    0, 0, i, i, 0, 2, 0, attributes, 0, 0, e.producer_id, e.epoch, e.sequence, 1
                )
                runs.add(header, visible=e.kind == DATA)
            elif e.kind == CONTROL and e.value == DATA:
                runs.add_commit(i)
        return runs


@dataclass
class World:
    """A cluster with its stores. stored: as JSON text, as the application wrote it.

    committers: whose transaction the newest commit of an input was in; absent: in none.
    """

    logs: dict[TopicPartition, ModelLog] = field(default_factory=dict)
    stored: str = '{"partitions":[]}'
    position: Any = "next"
    committers: dict[TopicPartition, int] = field(default_factory=dict)
    pending: list[PendingCommit] = field(default_factory=list)
    fenced: set[int] = field(default_factory=set)
    results: list[Any] = field(default_factory=list)
    spark: Checkpoint | None = None
    flink: FlinkFacts | None = None
    spark_sink: dict[int, list[Any]] = field(default_factory=dict)
    producer_ids: int = 4000

    def log(self, topic: str, partition: int = 0) -> ModelLog:
        return self.logs.setdefault(TopicPartition(topic, partition), ModelLog())

    def new_producer(self) -> int:
        self.producer_ids += 1
        return self.producer_ids

    def entries(self) -> tuple[StoredPartition, ...]:
        return next_positions(parse_stored(self.stored, "store"), self.position)

    def commit(self, *entries: StoredPartition, producer: int | None = None) -> None:
        """Atomic, as every store here is: entries replace those of the same input. producer: in
        whose transaction."""
        for e in entries:
            self.committers.pop(e.input.topic_partition, None)
            if producer is not None:
                self.committers[e.input.topic_partition] = producer
        held = {e.input.topic_partition: e for e in self.entries()} | {
            e.input.topic_partition: e for e in entries
        }
        self.stored = dump_stored(as_kept(held.values(), self.position))

    def observe(self, answers: Mapping[Question[Any], Any] | None = None) -> Observed:
        counts: dict[str, int] = {}
        for topic, partition in self.logs:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        logs = {
            topic_partition: Log(
                *topic_partition,
                topic_id=f"id-{topic_partition[0]}",
                leader_epoch=log.leader_epoch,
                log_start_offset=log.log_start,
                reads=(LogEnd(log.end, log.end, log.stable),) * 2,
                cleanup_policy=log.policy,
                producers=(),
            )
            for topic_partition, log in self.logs.items()
        }
        found = Observed(
            cluster_id="c",
            partition_counts=counts,
            logs=logs,
            stored=self.entries(),
            pending=tuple(self.pending),
            fenced=frozenset(self.fenced),
            spark=self.spark,
            flink=self.flink,
        )
        return replace(found, answers=answers or {})

    def answer(self, want: Question[Any]) -> Any:
        """The answer, by looking at every offset."""
        log = self.logs[want.topic_partition]
        match want:
            case Count():
                runs = log.runs(want.start, want.end).producers if want.producers else None
                return Counted(log.counted(want.start, want.end), runs)
            case Walk():
                kinds = (DATA, ABORTED, OPEN) if want.uncommitted else (DATA,)
                top = log.end if want.uncommitted else log.stable
                seen = [i for i in range(want.start, top) if log.entries[i].kind in kinds]
                return seen[want.records - 1] + 1 if len(seen) >= want.records else None
            case TimeAt():
                after = [i for i, _ in log.visible(want.offset)]
                return after[0] * 1000 if after else None
            case OffsetAt():
                after = [i for i, _ in log.visible() if i * 1000 >= want.instant]
                return after[0] if after else None
            case SameLog():
                held = want.offset <= log.end
                return Standing(held, f"the log ends at {log.end}", None if held else log.end)
            case CommitOf():
                return self.committed(want.topic_partition)
            case InCommit():
                mine = [e.producer_id for e in log.entries if e.kind == DATA]
                return (
                    OutputEvidence.DECISION
                    if want.commit.producer_id in mine
                    else OutputEvidence.NOTHING
                )
            case ChangelogTip():
                seen_records = log.visible(log.log_start, want.end)
                if not seen_records:
                    return None
                offset, (upstream, downstream, _) = seen_records[-1]
                return Attached(upstream, downstream, offset)
            case MergeTail():
                sources: dict[TopicPartition, SourceRange] = {}
                for _, (partition, offset) in log.visible(want.start, want.end):
                    before = sources.get(partition)
                    sources[partition] = (
                        SourceRange(offset, offset, 1)
                        if before is None
                        else SourceRange(
                            before.first,
                            offset,
                            before.entries + 1,
                            before.rising and offset > before.last,
                        )
                    )
                return sources

    def committed(self, topic_partition: TopicPartition) -> GroupCommit:
        """The record of a group's commit, in its transaction or in none."""
        [offset] = [
            e.input.offset for e in self.entries() if e.input.topic_partition == topic_partition
        ]
        plain = GroupCommit(partition=0, at=1, offset=offset, timestamp=0)
        producer = self.committers.get(topic_partition)
        if producer is None:
            return plain
        return replace(plain, producer_id=producer, producer_epoch=0, marker_at=2, marker_epoch=0)

    def plan(self, app: App) -> RestartPlan:
        """Ask, answer, ask again, decide. Fails when the questions never end."""
        answers: dict[Question[Any], Any] = {}
        for _ in range(8):
            observed = self.observe(answers)
            questions = wants(app, observed)
            if not questions:
                return decide(app, observed)
            for want in questions:
                assert want not in answers, f"asked twice: {want}"
                answers[want] = self.answer(want)
        raise AssertionError(f"still asking: {questions}")

    def look(self, topic: str, partition: int, start: int) -> OutputNow:
        """What an application sees that counts again at its start."""
        log = self.log(topic, partition)
        return OutputNow(log.end, len(log.visible(start)), log.leader_epoch)


@dataclass
class Start:
    """How a run begins: by the plan's environment, or, the first time, at the beginning."""

    world: World
    env: dict[str, str] | None = None

    @classmethod
    def by(cls, world: World, plan: RestartPlan) -> "Start":
        """Apply the plan: the store as planned, then the variables."""
        world.commit(*(change.after for change in changes(plan, world.observe())))
        return cls(world, dict(line.split("=", 1) for line in env_lines(plan)))

    def offset(self, topic: str, partition: int = 0) -> int:
        return 0 if self.env is None else restart_offset(self.env, topic, partition)

    def drop(self, topic: str, partition: int = 0) -> Callable[[], bool]:
        if self.env is None:
            return lambda: True
        return DropFirst.from_env(self.env, topic, partition, self.world.look).sends


Application = Callable[[World, Start], Generator[None]]


def run(
    world: World,
    app: App,
    application: Application,
    kills: list[int],
    cleanup: Callable[[World], None] = lambda _: None,
) -> list[RestartPlan]:
    """Run, kill after so many steps, plan, apply, run again, ...; the last run is not killed.

    cleanup: what happens to a dead process's transactions before planning.
    """
    plans: list[RestartPlan] = []
    start = Start(world)
    for steps in [*kills, None]:
        running = application(world, start)
        for done, _ in enumerate(running, 1):
            if steps is not None and done >= steps:
                break
        else:
            return plans
        running.close()
        cleanup(world)
        plans.append(world.plan(app))
        start = Start.by(world, plans[-1])
    return plans


def with_reads(observed: Observed, partition: TopicPartition, **changes: Any) -> Observed:
    """The same with one log changed."""
    logs = dict(observed.logs)
    logs[partition] = replace(logs[partition], **changes)
    return replace(observed, logs=logs)
