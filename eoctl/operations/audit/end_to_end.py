"""`audit end-to-end`: follow each input to its output by an id that both have.

Ends are read in the order in which the answer needs them: the group's commits, then the outputs'
ends, then the inputs'. So an output that was written for a commit is read, and so is each input of
an output. Both topics are read once; records meet in files (`id_buckets`), or in Spark's shuffle.
The rules: `recovery.audit.end_to_end`.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from eoctl.engine.audit_reading import Failed, not_read
from eoctl.engine.end_to_end_task import (
    compacted_topics,
    ids_of,
    read_rows,
    readers,
    refuse_changed,
)
from eoctl.engine.id_buckets import IdBuckets, key_of
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.operations.audit.duplicates import RANGE_OFFSETS
from eoctl.operations.audit.end_to_end_rows import end_to_end_answer, group_commits
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.mirror import STABLE, topic_id
from eoctl.operations.audit.ranges import WATERMARK, AuditOptions, Resolved, resolve
from eoctl.stores.locks.running import only_one
from recovery.answers import Answer
from recovery.audit.end_to_end import NEVER, Judged, Reach
from recovery.audit.end_to_end_request import (
    EndToEndFound,
    EndToEndRequest,
    EndToEndScope,
    Tally,
    cut_of,
    unproven,
)
from recovery.errors import EoctlError, UsageError
from recovery.facts import Missing
from recovery.selectors import Selector
from recovery.shared.log_position import LogPosition
from recovery.shared.offset_bounds import Bound
from recovery.shared.record_ids import RecordId
from recovery.values import replace

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FollowedRanges(AuditedRanges, kw_only=True):
    """topic_ids: of the input and the output; None: the brokers have none."""

    scope: EndToEndScope
    topic_ids: tuple[str | None, str | None]


@dataclass(frozen=True)
class EndToEndAudit(Audit[EndToEndFound]):
    """source, output: one topic each. start: in both. cut: inputs from there on may still wait,
    None: those after the last one that has an output. group: its commits are the cut."""

    source: Selector
    output: Selector
    by: RecordId
    start: Bound
    cut: Bound | None = None
    group: str | None = None
    range_offsets: int = RANGE_OFFSETS

    job: ClassVar[str] = "audit_end_to_end"
    spark_offsets: ClassVar[int] = 20_000_000
    answer_type = EndToEndFound

    @property
    def topics(self) -> tuple[str, str]:
        """Return the input's and the output's."""
        source, output = self.source.literal, self.output.literal
        assert source is not None
        assert output is not None
        return source, output

    async def look(self, cluster: Cluster) -> FollowedRanges:
        """Raise UsageError for topics that do not exist, IncompleteError if the group's commits are
        not seen."""
        if self.topics[0] == self.topics[1]:
            raise UsageError("it would be compared with itself", where=self.topics[0])
        source, output = self.topics
        ids = await topic_id(cluster, source), await topic_id(cluster, output)
        scope = await self._scope(cluster)
        return FollowedRanges(
            cluster.cluster_id, scope.ranges, scope.missing, scope=scope, topic_ids=ids
        )

    async def _scope(self, cluster: Cluster) -> EndToEndScope:
        commits, doubts = None, list[Missing]()
        if self.group is not None:
            commits, doubts = await group_commits(cluster, self.group, self.topics[0])
        began = now_ms()
        outputs, missing = await resolve(cluster, [self.output], self.start, WATERMARK)
        inputs, more = await resolve(cluster, [self.source], self.start, self.cut or STABLE)
        cuts: list[int | None] = []
        for r in inputs:
            cut = None if self.cut is None else r.end
            if commits is not None:
                cut = min(r.end, commits.get(r.topic_partition, r.start))
                if r.end > r.start and r.topic_partition not in commits:
                    text = f"{self.group} has committed nothing here: none of its inputs is "
                    text += "judged; say up to where with --end"
                    doubts.append(unproven(r.topic_partition, text))
            cuts.append(cut)
        whole = [replace(r, end=max(r.start, r.last_stable_offset)) for r in inputs]
        failed = (*missing, *more)
        return EndToEndScope(
            tuple(whole), tuple(outputs), tuple(cuts), failed, tuple(doubts), began
        )

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> EndToEndRequest:
        assert isinstance(audited, FollowedRanges)
        return EndToEndRequest(
            **self.asked(audited, reading),
            scope=audited.scope,
            topics=self.topics,
            topic_ids=audited.topic_ids,
            by=self.by,
            all_inputs=self.source.partitions is None,
            range_offsets=self.range_offsets,
        )

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> EndToEndFound:
        """Judge every input up to the cut. A run that was killed is continued."""
        assert isinstance(audited, FollowedRanges)
        request = self.request(audited, reading)
        key = self._key(audited, reading)
        with only_one("audit end-to-end", key, "pair of topics"):
            buckets = IdBuckets(key, audited.offsets)
            run = LocalRun(cluster, request, reading, buckets)
            if buckets.saved is not None:
                await run.continue_from(buckets.saved)
            await run.read()
            found = await run.judged()
            # what could not be read is no reason to keep these ends: the next run has newer ones
            buckets.remove()
        return found

    def _key(self, audited: FollowedRanges, reading: AuditOptions) -> str:
        by = {**self.by.as_dict(), "crc": reading.check_crc}
        # "2h ago" is another instant in the next run, which is not continued from this one
        bounds = [(b.kind, b.value) for b in (self.start, self.cut) if b is not None]
        parts = [self.topics, audited.topic_ids, self.source.partitions, by, bounds, self.group]
        return key_of([audited.cluster_id, *parts])

    def answer(self, audited: AuditedRanges, result: EndToEndFound) -> Answer:
        return end_to_end_answer(audited.cluster_id, self.topics, self.by.text, result)


@dataclass
class LocalRun:
    """What this process reads and judges."""

    cluster: Cluster
    request: EndToEndRequest
    reading: AuditOptions
    buckets: IdBuckets
    failed: Failed = field(default_factory=dict)
    tallies: list[Tally] = field(init=False)
    continued: bool = False

    def __post_init__(self) -> None:
        self.tallies = [Tally(position=r.start) for r in self.request.ranges]

    async def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on where a run of the same request was killed, unless its logs have changed since."""
        request = EndToEndRequest.model_validate(saved["request"])
        tallies = [Tally(**t) for t in saved["tallies"]]
        starts = {r.topic_partition: r.log_start_offset for r in self.request.ranges}
        read = {
            r.topic_partition: LogPosition(t.position, t.epoch)
            for r, t in zip(request.ranges, tallies, strict=True)
            if t.position > r.start
        }
        kept = await positions.standings(self.cluster, read)
        if all(s.held for s in kept.values()) and all(
            starts.get(r.topic_partition, NEVER) <= max(t.position, r.start)
            for r, t in zip(request.ranges, tallies, strict=True)
        ):
            # how it is read, and how much is shown, are of this run
            scope = {"scope": request.scope, "ranges": request.ranges}
            self.request = self.request.model_copy(update=scope)
            self.tallies, self.continued = tallies, True
        else:
            self.buckets.restart()

    async def read(self) -> None:
        """Read what was not read yet."""
        told = self._progress(sum(t.position - r.start for r, t in self._both()))
        for number, (r, tally) in enumerate(self._both()):
            if tally.position >= r.end:
                continue
            parts = self._parts(number, told)
            async with aclosing(parts):
                async for rows in parts:
                    if self.buckets.add(rows):
                        self.buckets.save(self._kept())
        self.buckets.save(self._kept())

    async def _parts(
        self, number: int, told: Callable[[int, int], None]
    ) -> "AsyncGenerator[NDArray[Any], None]":
        """Yield the rows of a partition; note it if it cannot be read."""
        r, tally = self.request.ranges[number], self.tallies[number]
        ids, scope = ids_of(self.request, number), self.request.scope
        parts = read_rows(self.cluster, scope, number, r.end, tally, ids, self.reading, told)
        try:
            async with aclosing(parts):
                async for rows in parts:
                    yield rows
        except EoctlError as error:
            self.failed[r.topic_partition] = not_read(r.topic_partition, error)

    def _both(self) -> list[tuple[Resolved, Tally]]:
        return list(zip(self.request.ranges, self.tallies, strict=True))

    def _progress(self, done: int) -> Callable[[int, int], None]:
        total, size = self.request.offsets, 0

        def told(new: int, offsets: int) -> None:
            nonlocal size, done
            size, done = size + new, done + offsets
            if self.reading.progress is not None:
                self.reading.progress(size, done, total)

        return told

    def _kept(self) -> dict[str, Any]:
        return {
            "began": self.request.scope.began,
            "request": self.request.model_dump(mode="json"),
            "tallies": [asdict(t) for t in self.tallies],
        }

    async def judged(self) -> EndToEndFound:
        """Judge what was read. Raises what `refuse_changed` raises."""
        request = self.request
        ids = dict(zip(request.topics, request.topic_ids, strict=True))
        await refuse_changed(self.cluster, ids, request.ranges, self.tallies)
        compacted = await compacted_topics(self.cluster, self.request.topics)
        found = self.judge(compacted)
        named, known = await readers(self.cluster, self.request.scope, self.tallies)
        return found.model_copy(update={"readers": named, "readers_known": known})

    def judge(self, compacted: Collection[str]) -> EndToEndFound:
        """Judge the rows. compacted: topics whose records compaction may have taken."""
        request, failed = self.request, tuple(self.failed.values())
        reach = Reach(len(request.scope.inputs), len(request.scope.outputs))
        for rows in self.buckets:
            reach.add(rows)
        cut = cut_of(request, self.tallies, failed, reach, compacted)
        judged = Judged([r.topic_partition for r in request.ranges], cut, request.most)
        for rows in self.buckets:
            judged.add(rows)
        return EndToEndFound(
            failed=failed,
            scope=request.scope,
            tallies=tuple(self.tallies),
            ends=tuple(cut.ends.tolist()),
            verdicts=judged.verdicts,
            continued=self.continued,
        )
