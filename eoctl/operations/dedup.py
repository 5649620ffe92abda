"""`dedup`: the clean copy of a topic that holds repeats, written exactly once.

Partition p of the input is read in order up to its last stable offset; what was not there before
goes to partition p of the output, in a transaction that also commits how far the input was read.
Killed anywhere, the next run goes on from there. Who decides: `recovery.combine.dedup`.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from eoctl.config import Context
from eoctl.kafka import collect
from eoctl.kafka.cluster import Cluster, TopicMetadata
from eoctl.kafka.exactly_once import Position, Writer, committed
from eoctl.kafka.failures import Deadline
from eoctl.kafka.properties import client_settings
from eoctl.kafka.read_columns import read_columns
from eoctl.operations.session import now_ms
from eoctl.operations.steps import Seen, die_here_in_tests
from eoctl.stores import dedup_memory
from eoctl.stores.locks import lock_words
from recovery.combine.dedup import Deduplicator, Tally, visible
from recovery.combine.record_ids import RecordId, SourceHeaders, parse_record_id
from recovery.combine.source_numbers import Scattered
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import PartitionFacts
from recovery.formats.columns import ColumnBatch
from recovery.plan import VALID_MS, Plan, Step
from recovery.times import format_duration

KIND = "dedup"
RULE = 1  # what makes two records the same is told by these lines' version
SAVE_SECONDS = 300.0
TRANSACTION_MS = 60_000
TRANSACTION_SECONDS = 5.0
TRANSACTION_RECORDS = 100_000

Progress = Callable[[str, int, int], None]
"""Called with (what, offsets read, offsets in all)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is copied where, and what makes two records the same.

    horizon_ms, horizon_offsets: how far back ids are compared; None and None = to the beginning.
    follow: go beyond the end of a run that was finished. max_rate: bytes per second and broker.
    """

    source: str
    output: str
    by: RecordId
    job: str
    horizon_ms: int | None = None
    horizon_offsets: int | None = None
    follow: bool = False
    max_rate: float | None = None

    @property
    def group(self) -> str:
        """Whose committed offsets are the positions."""
        return f"{self.job}-eoctl-dedup"

    @property
    def settings(self) -> dict[str, Any]:
        """What must stay the same from run to run."""
        rule: dict[str, Any] = {
            "rule": RULE,
            "id": self.by.text,
            "ms": self.horizon_ms,
            "offsets": self.horizon_offsets,
        }
        if self.by.kind == "source":
            rule |= {f"header_{k}": v for k, v in asdict(self.by.source).items()}
        return {"input": self.source, "output": self.output, "job": self.job, **rule}

    @property
    def beyond(self) -> str:
        """What is not compared, as a sentence."""
        within = "records are compared within a partition"
        if self.by.kind == "source":
            return f"{within}; outputs of one source record in two are found within one run's range"
        if (self.horizon_ms, self.horizon_offsets) == (None, None):
            return within
        far = (
            f"{self.horizon_offsets} offsets"
            if self.horizon_offsets is not None
            else format_duration((self.horizon_ms or 0) / 1000)
        )
        return f"{within}; a repeat more than {far} behind its original is copied"


@dataclass(frozen=True, slots=True)
class _Job:
    """A wish on this cluster: topic ids are part of what must stay the same."""

    wish: Wish
    digest: str

    @classmethod
    def of(cls, wish: Wish, facts: Mapping[str, Any]) -> "_Job":
        text = json.dumps([wish.settings, facts], sort_keys=True)
        return cls(wish, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])

    def metadata(self, begin: int, end: int) -> str:
        """What stands beside a position. begin, end: of the job, and of its newest run."""
        found = {"dedup": self.digest, "begin": begin, "end": end}
        return json.dumps(found, separators=(",", ":"))

    def limits(self, position: Position, where: str) -> tuple[int, int]:
        """begin and end as `metadata` wrote them. Raises RefusedError for anybody else's."""
        try:
            found = json.loads(position.metadata)
            digest, begin, end = found["dedup"], int(found["begin"]), int(found["end"])
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                "its committed offset is not of a dedup: somebody else commits there",
                where=where,
                remedy="give another --job",
            ) from None
        if digest != self.digest:
            raise RefusedError(
                "the job was begun with another rule, or a topic was made anew since",
                where=where,
                remedy="use the same options, or another --job and an empty output",
            )
        return begin, end


async def plan(
    cluster: Cluster, context: Context, wish: Wish, progress: Progress | None = None
) -> Plan | None:
    """What would be copied, found by reading it all. None: there is nothing new.

    Raises RefusedError, with the reason, where the copy would not be right.
    """
    topics = await _topics(cluster, wish)
    job = _Job.of(wish, topics)
    inputs = await _partitions(cluster, wish.source)
    outputs = await _partitions(cluster, wish.output)
    places = [(wish.source, p.partition) for p in inputs]
    positions = await committed(cluster, wish.group, places)
    scattered = Scattered() if wish.by.kind == "source" else None
    steps, total, finished = [], Tally(), []
    for facts, output in zip(inputs, outputs, strict=True):
        name = f"{wish.source}:{facts.partition}"
        position = positions.get((facts.topic, facts.partition))
        begin, start, end = _range(facts, output, position, job)
        if start >= end:
            if end < _stable(facts):
                finished.append(name)
            continue
        memory = await _remembered(cluster, job, facts, begin, start)
        before = Tally(**asdict(memory.tally))
        memory.share(scattered)
        await _read(cluster, wish, facts.partition, (start, end), memory, progress)
        if memory.scattered:
            raise RefusedError(
                f"{memory.scattered}: a number per source cannot tell which one is the repeat",
                where=wish.source,
                remedy="compare ids instead: `--by header:NAME`, `--by key` or `--by json:PATH`",
            )
        found = memory.tally.since(before)
        total += found
        steps.append(_step(wish, facts.partition, (begin, start, end), found))
    if not steps:
        if finished and not wish.follow:
            raise RefusedError(
                f"this job is done; records came since on {', '.join(finished[:5])}",
                where=wish.group,
                remedy="--follow copies them",
            )
        return None
    if cluster.cluster_id is None:
        raise IncompleteError("the brokers do not tell their cluster id", where=context.title)
    now = now_ms()
    return Plan(
        kind=KIND,
        action="dedup",
        created_at=now,
        expires_at=now + VALID_MS,
        context=context.title,
        argv=context.argv,
        cluster_id=cluster.cluster_id,
        scope=scope(wish),
        summary=f"{wish.source} -> {wish.output}: {_words(total)}",
        lock=lock_words(context.lock_zookeeper),
        observed={"topics": topics},
        steps=tuple(steps),
        independent=True,
        details={"wish": _plain(wish), "tally": asdict(total), "beyond": wish.beyond},
    )


def scope(wish: Wish) -> str:
    """What one dedup at a time holds: two with one output would exclude each other's records."""
    return f"dedup {wish.output}"


def is_wish(plan: Plan, wish: Wish) -> bool:
    """Was the plan made for the same wish? How fast it is read does not matter."""
    return _wish(plan.details["wish"]).settings == wish.settings


def _words(tally: Tally) -> str:
    text = f"{tally.copied:,} of {tally.records:,} records are copied, {tally.duplicates:,} repeats"
    text += " are left out"
    if tally.without_id:
        text += f", {tally.without_id:,} without an id are copied"
    if tally.differs:
        text += f", {tally.differs:,} that repeat a number with other content are copied"
    if tally.unchecked:
        text += f", {tally.unchecked:,} of the repeats were told by their number alone"
    return text


def _step(wish: Wish, partition: int, offsets: tuple[int, int, int], found: Tally) -> Step:
    begin, start, end = offsets
    return Step(
        action="copy",
        target=f"{wish.output}:{partition}",
        parameters={"partition": partition, "begin": begin, "start": start, "end": end},
        does=f"from {wish.source}:{partition} [{start}, {end}) {_words(found)}",
        stands_on=("topics",),
    )


async def _topics(cluster: Cluster, wish: Wish) -> dict[str, Any]:
    """Both topics' ids and partition counts. Raises RefusedError where they do not fit."""
    if wish.source == wish.output:
        raise UsageError("a topic cannot be its own clean copy", where=wish.output)
    found = (await cluster.metadata([wish.source, wish.output])).topics
    source, output = (_there(found.get(name), name) for name in (wish.source, wish.output))
    if len(source.partitions) != len(output.partitions):
        raise RefusedError(
            f"it has {len(output.partitions)} partitions, {wish.source} has "
            f"{len(source.partitions)}: partition p is copied to partition p",
            where=wish.output,
        )
    return {t.name: [t.topic_id, len(t.partitions)] for t in (source, output)}


def _there(topic: TopicMetadata | None, name: str) -> TopicMetadata:
    if topic is None or topic.error is not None:
        why = "cannot be seen" if topic is None else f"cannot be seen: {topic.error}"
        missing = topic is not None and topic.error == "UNKNOWN_TOPIC_OR_PARTITION"
        if not missing:
            raise IncompleteError(why, where=name)
        raise RefusedError("the topic does not exist", where=name, remedy="create it first")
    return topic


async def _partitions(cluster: Cluster, topic: str) -> list[PartitionFacts]:
    """All partitions by number, all offsets known. Raises IncompleteError."""
    topics = (await cluster.metadata([topic])).topics.values()
    asked = [p for t in topics for p in t.partitions]
    facts, missing = await collect.partition_offsets(cluster, topics, asked)
    if missing or any(f.error or f.last_stable_offset is None for f in facts):
        why = missing[0].detail if missing else "its offsets were not told"
        raise IncompleteError(f"cannot be read: {why}", where=topic)
    return sorted(facts, key=lambda f: f.partition)


def _stable(facts: PartitionFacts) -> int:
    assert facts.last_stable_offset is not None
    return facts.last_stable_offset


def _range(
    facts: PartitionFacts, output: PartitionFacts, position: Position | None, job: _Job
) -> tuple[int, int, int]:
    """Where the job began, and what is read now: [start, end).

    Raises RefusedError where a part of it is gone, or the position was lost.
    """
    assert facts.log_start_offset is not None
    name = f"{facts.topic}:{facts.partition}"
    if position is None:
        _refuse_written(output)
        return facts.log_start_offset, facts.log_start_offset, _stable(facts)
    begin, end = job.limits(position, name)
    end = max(end, _stable(facts)) if job.wish.follow else end
    _refuse_lost(facts, position.offset, end)
    return begin, position.offset, end


def _refuse_written(output: PartitionFacts) -> None:
    """Without a position only an output that nobody ever wrote to is a beginning."""
    if output.high_watermark != output.log_start_offset or output.log_start_offset:
        raise RefusedError(
            "it has been written to, but no position of this job is known: it has expired, or "
            "somebody else wrote",
            where=f"{output.topic}:{output.partition}",
            remedy="begin again with an empty output and another --job",
        )


def _refuse_lost(facts: PartitionFacts, position: int, end: int) -> None:
    """Everything in [position, end) must be there and decided, or records would be passed over."""
    assert facts.log_start_offset is not None
    name = f"{facts.topic}:{facts.partition}"
    if position < facts.log_start_offset:
        raise RefusedError(
            f"the job stands at {position}, the log begins at {facts.log_start_offset} now: "
            f"{facts.log_start_offset - position} offsets are gone",
            where=name,
        )
    if _stable(facts) < end:
        raise IncompleteError(
            f"it is to be read up to {end}, but its last stable offset is {_stable(facts)} now: a "
            "new leader lags behind, or the log was cut off",
            where=name,
            remedy="look with `eoctl lso`; where the log was cut off, begin again",
        )


async def _remembered(
    cluster: Cluster, job: _Job, facts: PartitionFacts, begin: int, position: int
) -> Deduplicator:
    """The memory of all records of [begin, position): as it was kept, the rest read again."""
    assert facts.log_start_offset is not None
    wish, partition = job.wish, facts.partition
    made = (wish.source, partition, wish.by, wish.horizon_ms, wish.horizon_offsets)
    memory = Deduplicator(*made)
    kept = dedup_memory.load(wish.job, partition, job.digest, position)
    if kept is not None:
        try:
            memory.load(kept[1])
            begin = kept[0]
        except (ValueError, TypeError, KeyError, IndexError):  # a shortcut of another version
            memory = Deduplicator(*made)
    if begin < position:
        if begin < facts.log_start_offset:
            raise RefusedError(
                f"what was copied of offsets [{begin}, {position}) is neither remembered on this "
                f"host nor in the log, which begins at {facts.log_start_offset}",
                where=f"{wish.source}:{partition}",
                remedy="run it where it ran before, or begin again with an empty output",
            )
        await _read(cluster, wish, partition, (begin, position), memory, None)
    return memory


async def _read(
    cluster: Cluster,
    wish: Wish,
    partition: int,
    offsets: tuple[int, int],
    memory: Deduplicator,
    progress: Progress | None,
) -> None:
    """Judge the records of a range, for the memory and the tally only."""
    start, end = offsets
    read = 0

    def more(_bytes: int, count: int) -> None:
        nonlocal read
        read += count
        if progress is not None:
            progress(f"{wish.source}:{partition} offsets", read, end - start)

    async for records in read_columns(
        cluster,
        wish.source,
        partition,
        start,
        end,
        max_rate=wish.max_rate,
        progress=more,
    ):
        await asyncio.to_thread(memory.judge, visible(records))


@asynccontextmanager
async def opened(
    plan: Plan, context: Context, seconds: float | None
) -> AsyncIterator["DedupOperation"]:
    """The operation that carries a dedup's plan out, on an open cluster."""
    settings = client_settings(context.properties, hosts=context.hosts, socks5=context.socks5)
    async with Cluster(settings, Deadline(seconds), read_only=context.read_only) as cluster:
        yield DedupOperation(cluster, context, plan)


class DedupOperation:
    """Observes, performs and verifies the copies of one plan."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan) -> None:
        self._cluster, self._context = cluster, context
        self._wish = _wish(plan.details["wish"])
        self._job = _Job.of(self._wish, plan.observed["topics"])

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """The topics, as they are now."""
        self._cluster.forgive()
        return {"topics": await _topics(self._cluster, self._wish)}

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Copy from the committed position to the step's end. What was copied, for the journal."""
        partition = step.parameters["partition"]
        settings = client_settings(
            self._context.properties, hosts=self._context.hosts, socks5=self._context.socks5
        )
        name = f"{self._wish.group}-{partition}"
        writer = Writer(settings, name, self._wish.group, timeout_ms=TRANSACTION_MS)
        await asyncio.to_thread(writer.open)  # first: it fences, then the position is final
        try:
            return asdict(await self._copy(step, writer, ensure_held))
        except BaseException:
            await asyncio.to_thread(writer.abort)
            raise
        finally:
            await asyncio.to_thread(writer.close)

    async def _copy(self, step: Step, writer: Writer, ensure_held: Callable[[], None]) -> Tally:
        wish, partition = self._wish, int(step.parameters["partition"])
        begin, end = int(step.parameters["begin"]), int(step.parameters["end"])
        [facts] = [
            p for p in await _partitions(self._cluster, wish.source) if p.partition == partition
        ]
        position = await self._position(step)
        _refuse_lost(facts, position, end)
        memory = await _remembered(self._cluster, self._job, facts, begin, position)
        before = Tally(**asdict(memory.tally))
        copy = _Copy(writer, self._job, partition, begin, end, ensure_held)
        saved = time.monotonic()
        async for records in read_columns(
            self._cluster, wish.source, partition, position, end, max_rate=wish.max_rate
        ):
            position = int(records.offset[-1]) + 1
            await asyncio.to_thread(copy.send, visible(records), position, memory)
            if time.monotonic() - saved > SAVE_SECONDS:
                await asyncio.to_thread(copy.commit, position)
                dedup_memory.save(wish.job, partition, position, self._job.digest, memory.dump())
                saved = time.monotonic()
        await asyncio.to_thread(copy.commit, end)
        dedup_memory.save(wish.job, partition, end, self._job.digest, memory.dump())
        return memory.tally.since(before)

    async def _position(self, step: Step) -> int:
        """Where the copy goes on. Raises RefusedError where another job is at work."""
        place = (self._wish.source, int(step.parameters["partition"]))
        found = (await committed(self._cluster, self._wish.group, [place])).get(place)
        start = int(step.parameters["start"])
        name = f"{place[0]}:{place[1]}"
        if found is None:
            if start != step.parameters["begin"]:
                raise RefusedError("its position is gone since the plan", where=name)
            outputs = await _partitions(self._cluster, self._wish.output)
            _refuse_written(outputs[place[1]])
            return start
        self._job.limits(found, name)
        if not start <= found.offset <= step.parameters["end"]:
            raise RefusedError(
                f"the job stands at {found.offset}, planned was [{start}, "
                f"{step.parameters['end']}): another run is at work",
                where=name,
                remedy="plan again",
            )
        return found.offset

    async def verify(self, step: Step) -> Seen:
        """Is everything up to the step's end copied?"""
        self._cluster.forgive()
        place = (self._wish.source, int(step.parameters["partition"]))
        found = (await committed(self._cluster, self._wish.group, [place])).get(place)
        name = f"{place[0]}:{place[1]}"
        if found is None:
            return Seen(False, None, f"nothing of {name} is copied")
        self._job.limits(found, name)
        done = found.offset >= step.parameters["end"]
        return Seen(done, found.offset, f"{name} is copied up to offset {found.offset}")


class _Copy:
    """The transactions of one partition's copy; used in a thread."""

    def __init__(
        self,
        writer: Writer,
        job: _Job,
        partition: int,
        begin: int,
        end: int,
        ensure_held: Callable[[], None],
    ) -> None:
        self._writer, self._job, self._partition = writer, job, partition
        self._metadata = job.metadata(begin, end)
        self._ensure_held = ensure_held
        self._sent = 0
        self._until: float | None = None  # of the open transaction

    def send(self, records: ColumnBatch, position: int, memory: Deduplicator) -> None:
        """Send what was not there before, in order. position: behind all that was read."""
        copied = memory.judge(records)
        chosen = records.select(copied)
        output, times = self._job.wish.output, chosen.timestamp.tolist()
        for i in range(len(chosen)):
            if self._until is None:
                self._ensure_held()
                self._writer.begin()
                self._sent, self._until = 0, time.monotonic() + TRANSACTION_SECONDS
            self._writer.send(
                output,
                self._partition,
                chosen.key[i],
                chosen.value[i],
                headers=chosen.header_list(i),
                timestamp=times[i],
            )
            self._sent += 1
            if self._sent >= TRANSACTION_RECORDS or time.monotonic() > self._until:
                self.commit(int(chosen.offset[i]) + 1)
        # repeats alone send nothing: the transaction must not grow old over them
        if self._until is not None and time.monotonic() > self._until:
            self.commit(position)
        die_here_in_tests("dedup-batch")

    def commit(self, position: int) -> None:
        """Commit what was sent, and the position, also where nothing was sent."""
        self._ensure_held()
        if self._until is None:
            self._writer.begin()
        places = {(self._job.wish.source, self._partition): Position(position, self._metadata)}
        self._writer.commit(places)
        self._until = None
        die_here_in_tests("dedup-committed")


def _plain(wish: Wish) -> dict[str, Any]:
    return wish.settings | {
        "follow": wish.follow,
        "max_rate": None if wish.max_rate is None else int(wish.max_rate),
    }


def _wish(content: Mapping[str, Any]) -> Wish:
    names = {k.removeprefix("header_"): v for k, v in content.items() if k.startswith("header_")}
    return Wish(
        source=content["input"],
        output=content["output"],
        by=parse_record_id(content["id"], SourceHeaders(**names)),
        job=content["job"],
        horizon_ms=content["ms"],
        horizon_offsets=content["offsets"],
        follow=content["follow"],
        max_rate=content["max_rate"],
    )
