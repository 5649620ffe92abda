"""`audit end-to-end`: follow each input to its output by an id that both have.

Ends are read in the order in which the answer needs them: the group's commits, then the outputs'
ends, then the inputs'. So an output that was written for a commit is read, and so is each input of
an output. Both topics are read once; records meet in files (`id_buckets`). The rules:
`recovery.audit.end_to_end`.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import Failed, not_read
from eoctl.engine.id_buckets import IdBuckets, key_of, rows_of
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.operations.audit.end_to_end_rows import (
    EndToEnd,
    Tally,
    compacted_topics,
    end_to_end_answer,
    group_commits,
    readers,
    unproven,
)
from eoctl.operations.audit.mirror import STABLE, topic_id
from eoctl.operations.audit.ranges import AuditOptions, Resolved, columns, resolve
from eoctl.stores.locks.running import only_one
from recovery.answers import Answer
from recovery.audit.end_to_end import (
    INPUT,
    INPUT_ABORTED,
    NEVER,
    OUTPUT,
    OUTPUT_OPEN,
    Cut,
    Judged,
    Reach,
)
from recovery.errors import EoctlError, UsageError
from recovery.facts import Missing
from recovery.formats.columns import ABORTED, OPEN, ColumnBatch
from recovery.selectors import Selector
from recovery.shared.log_position import LogPosition
from recovery.shared.offset_bounds import Bound
from recovery.shared.record_ids import RecordId, digests, place_digests
from recovery.values import Value, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WATERMARK = Bound("hw", "hw")


class EndToEndRequest(Value):
    """source, output: one topic each. start: in both. cut: inputs from there on may still wait,
    None: those after the last one that has an output. group: its commits are the cut."""

    source: Selector
    output: Selector
    by: RecordId
    start: Bound
    cut: Bound | None = None
    group: str | None = None

    @property
    def topics(self) -> tuple[str, str]:
        source, output = self.source.literal, self.output.literal
        assert source is not None
        assert output is not None
        return source, output


class Scope(Value):
    """What is read. cuts: by input, None: see EndToEndRequest. doubts: cuts that are not proven.
    began: epoch ms."""

    inputs: tuple[Resolved, ...]
    outputs: tuple[Resolved, ...]
    cuts: tuple[int | None, ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Missing, ...]
    began: int

    @property
    def ranges(self) -> tuple[Resolved, ...]:
        return (*self.inputs, *self.outputs)


async def audit_end_to_end(
    cluster: Cluster, request: EndToEndRequest, reading: AuditOptions
) -> Answer:
    """Judge every input up to the cut. A run that was killed is continued.

    Raises UsageError for topics that do not exist, IncompleteError if the group's commits are not
    seen.
    """
    if request.topics[0] == request.topics[1]:
        raise UsageError("it would be compared with itself", where=request.topics[0])
    ids = [await topic_id(cluster, topic) for topic in request.topics]
    by = {**request.by.as_dict(), "crc": reading.check_crc}
    # "2h ago" is another instant in the next run, which is not continued from this one
    bounds = [(b.kind, b.value) for b in (request.start, request.cut) if b is not None]
    parts = [request.topics, ids, request.source.partitions, by, bounds, request.group]
    key = key_of([cluster.cluster_id, *parts])
    with only_one("audit end-to-end", key, "pair of topics"):
        scope = await _scope(cluster, request)
        buckets = IdBuckets(key, sum(r.end - r.start for r in scope.ranges))
        run = _Run(cluster, request, reading, buckets, scope)
        if buckets.saved is not None:
            await run.continue_from(buckets.saved)
        await run.read()
        result = run.judged(await compacted_topics(cluster, request.topics))
        result.readers, result.readers_known = await readers(cluster, result)
        answer = end_to_end_answer(cluster.cluster_id, request.topics, request.by.text, result)
        # what could not be read is no reason to keep these ends: the next run has newer ones
        buckets.remove()
    return answer


async def _scope(cluster: Cluster, request: EndToEndRequest) -> Scope:
    commits, doubts = None, list[Missing]()
    if request.group is not None:
        commits, doubts = await group_commits(cluster, request.group, request.topics[0])
    began = now_ms()
    outputs, missing = await resolve(cluster, [request.output], request.start, WATERMARK)
    inputs, more = await resolve(cluster, [request.source], request.start, request.cut or STABLE)
    cuts: list[int | None] = []
    for r in inputs:
        cut = None if request.cut is None else r.end
        if commits is not None:
            cut = min(r.end, commits.get(r.topic_partition, r.start))
            if r.end > r.start and r.topic_partition not in commits:
                text = f"{request.group} has committed nothing here: none of its inputs is judged; "
                doubts.append(unproven(r.topic_partition, text + "say up to where with --end"))
        cuts.append(cut)
    whole = [replace(r, end=max(r.start, r.last_stable_offset)) for r in inputs]
    failed = (*missing, *more)
    return Scope(tuple(whole), tuple(outputs), tuple(cuts), failed, tuple(doubts), began)


@dataclass
class _Run:
    cluster: Cluster
    request: EndToEndRequest
    reading: AuditOptions
    buckets: IdBuckets
    scope: Scope
    failed: Failed = field(default_factory=dict)
    tallies: list[Tally] = field(init=False)
    continued: bool = False

    def __post_init__(self) -> None:
        self.tallies = [Tally(position=r.start) for r in self.scope.ranges]

    async def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on where a run of the same request was killed, unless its logs have changed since."""
        inputs, outputs = (
            tuple(Resolved(**r) for r in saved[side]) for side in ("inputs", "outputs")
        )
        scope = Scope(
            inputs,
            outputs,
            tuple(saved["cuts"]),
            tuple(Missing(**m) for m in saved["missing"]),
            tuple(Missing(**m) for m in saved["doubts"]),
            saved["began"],
        )
        tallies = [Tally(**t) for t in saved["tallies"]]
        starts = {r.topic_partition: r.log_start_offset for r in self.scope.ranges}
        read = {
            r.topic_partition: LogPosition(t.position, t.epoch)
            for r, t in zip(scope.ranges, tallies, strict=True)
            if t.position > r.start
        }
        kept = await positions.standings(self.cluster, read)
        if all(s.held for s in kept.values()) and all(
            starts.get(r.topic_partition, NEVER) <= max(t.position, r.start)
            for r, t in zip(scope.ranges, tallies, strict=True)
        ):
            self.scope, self.tallies, self.continued = scope, tallies, True
        else:
            self.buckets.restart()

    async def read(self) -> None:
        """Read what was not read yet."""
        done = sum(t.position - r.start for r, t in self._both())
        told = self._progress(done)
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
        r, tally = self.scope.ranges[number], self.tallies[number]
        rest = replace(r, start=tally.position)
        parts = columns(self.cluster, rest, r.end, self.reading, told, control=True)
        try:
            async with aclosing(parts):
                async for part in parts:
                    yield self._rows(number, part)
            tally.holes += r.end - tally.position
            tally.position = r.end
        except EoctlError as error:
            self.failed[r.topic_partition] = not_read(r.topic_partition, error)

    def _both(self) -> list[tuple[Resolved, Tally]]:
        return list(zip(self.scope.ranges, self.tallies, strict=True))

    def _progress(self, done: int) -> Callable[[int, int], None]:
        total, size = sum(r.end - r.start for r in self.scope.ranges), 0

        def told(new: int, offsets: int) -> None:
            nonlocal size, done
            size, done = size + new, done + offsets
            if self.reading.progress is not None:
                self.reading.progress(size, done, total)

        return told

    def _kept(self) -> dict[str, Any]:
        return {**self.scope.as_dict(), "tallies": [asdict(t) for t in self.tallies]}

    def _rows(self, number: int, part: ColumnBatch) -> "NDArray[Any]":
        """Return the rows of a part, and count its records."""
        import numpy as np

        r, tally = self.scope.ranges[number], self.tallies[number]
        is_input = number < len(self.scope.inputs)
        with_markers = part.select((part.offset >= tally.position) & (part.offset < r.end))
        part = with_markers.select(~with_markers.is_control)
        outcome = part.outcome
        kind = np.where(outcome == ABORTED, INPUT_ABORTED, INPUT)
        keep = outcome != OPEN
        if not is_input:
            kind = np.where(outcome == OPEN, OUTPUT_OPEN, OUTPUT)
            keep = outcome != ABORTED
        kept, kind = part.select(keep), kind[keep]
        ids, has = self._ids(r, kept, is_input)  # raises: then nothing of the part is counted
        visible = kind == (INPUT if is_input else OUTPUT)
        tally.without_id += int((visible & ~has).sum())
        tally.count(part.offset, outcome)
        if len(with_markers):
            end = int(with_markers.offset[-1]) + 1
            tally.holes += end - tally.position - len(with_markers)
            tally.position, tally.epoch = end, int(with_markers.leader_epoch[-1])
        return rows_of(ids[has], kept.offset[has], kept.timestamp[has], number, kind[has])

    def _ids(
        self, r: Resolved, part: ColumnBatch, is_input: bool
    ) -> "tuple[NDArray[np.uint64], NDArray[np.bool_]]":
        import numpy as np

        by = self.request.by
        if is_input and by.kind == "source":
            ids = place_digests(by.source, r.topic_partition, part)
            return ids, np.ones(len(part), np.bool_)
        return digests(by, part)

    def _all_read(self, topic: str, compacted: Collection[str]) -> bool:
        """Return whether no record is missing after the start of each of the topic's partitions."""
        failed = (*self.scope.missing, *self.failed.values())
        return topic not in compacted and not (
            any(m.topic in (None, topic) for m in failed)
            or any(t.holes for r, t in self._both() if r.topic == topic)
        )

    def _proven_after(
        self, reach: Reach, partitions_known: bool, compacted: Collection[str]
    ) -> "NDArray[np.int64]":
        """Return from where on a missing output is proven, by input. compacted: topics."""
        import numpy as np

        inputs, outputs = self.scope.inputs, self.scope.outputs
        cut_off = np.array([r.start > 0 for r in outputs], np.bool_)
        after = reach.proven_after(cut_off)
        if (
            not self._all_read(self.request.topics[1], compacted)
            or any(t.without_id for t in self.tallies[len(inputs) :])
            or (cut_off.any() and not partitions_known)
        ):
            after[:] = NEVER
        doubted = {m.topic_partition for m in self.scope.doubts}
        after[[r.topic_partition in doubted for r in inputs]] = NEVER
        return after

    def _ends(self, reach: Reach) -> "NDArray[np.int64]":
        """Return the offset from which on inputs may still wait, by input."""
        ends = reach.last + 1
        for number, (r, cut) in enumerate(zip(self.scope.inputs, self.scope.cuts, strict=True)):
            if cut is not None:
                ends[number] = cut
            if r.topic_partition in self.failed:
                ends[number] = 0
        return ends

    def judged(self, compacted: Collection[str]) -> EndToEnd:
        """Judge what was read. compacted: topics whose records compaction may have taken."""
        inputs, outputs = self.scope.inputs, self.scope.outputs
        by_place = self.request.by.kind == "source"  # such an id has one input, wherever it is
        partitions_known = by_place or (
            self.request.source.partitions is None
            and self._all_read(self.request.topics[0], compacted)
        )
        inputs_known = by_place or (partitions_known and all(r.start == 0 for r in inputs))
        reach = Reach(len(inputs), len(outputs))
        for rows in self.buckets:
            reach.add(rows)
        ends = self._ends(reach)
        cut = Cut(ends, self._proven_after(reach, partitions_known, compacted), inputs_known)
        judged = Judged([r.topic_partition for r in self.scope.ranges], cut, self.reading.most)
        for rows in self.buckets:
            judged.add(rows)
        return EndToEnd(
            inputs,
            outputs,
            self.tallies,
            judged,
            ends.tolist(),
            (*self.scope.missing, *self.failed.values()),
            self.scope.began,
            cut_known=[cut is not None for cut in self.scope.cuts],
            inputs_known=inputs_known,
            doubts=self.scope.doubts,
            continued=self.continued,
        )
