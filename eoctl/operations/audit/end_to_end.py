"""`audit end-to-end`: follow each input to its output by an id that both have.

Ends are read in the order in which the answer needs them: the group's commits, then the outputs'
ends, then the inputs'. So an output that was written for a commit is read, and so is each input of
an output. Both topics are read once; records meet in files (`id_buckets`). The rules:
`recovery.audit.end_to_end`.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import Failed, not_read
from eoctl.engine.id_buckets import IdBuckets, key_of, rows_of
from eoctl.host.clock import now_ms
from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.ask.groups import find_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.committed import with_offsets
from eoctl.operations.audit.end_to_end_rows import EndToEnd, Tally, end_to_end_answer, readers
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
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import Missing, TopicPartition
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
    """What is read. cuts: by input, None: see EndToEndRequest. began: epoch ms."""

    inputs: tuple[Resolved, ...]
    outputs: tuple[Resolved, ...]
    cuts: tuple[int | None, ...]
    missing: tuple[Missing, ...]
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
    words = [request.start.text, request.cut and request.cut.text, request.group]
    key = key_of([cluster.cluster_id, request.topics, ids, request.source.partitions, by, words])
    with only_one("audit end-to-end", key, "pair of topics"):
        scope = await _scope(cluster, request)
        buckets = IdBuckets(key, sum(r.end - r.start for r in scope.ranges))
        run = _Run(cluster, request, reading, buckets, scope)
        if buckets.saved is not None:
            await run.continue_from(buckets.saved)
        await run.read()
        result = run.judged(await _may_lack(cluster, request.topics[1]))
        if not run.failed:
            buckets.remove()
    result.readers, result.readers_known = await readers(cluster, result)
    return end_to_end_answer(cluster.cluster_id, request.topics, request.by.text, result)


async def _scope(cluster: Cluster, request: EndToEndRequest) -> Scope:
    commits = None if request.group is None else await _commits(cluster, request)
    began = now_ms()
    outputs, missing = await resolve(cluster, [request.output], request.start, WATERMARK)
    inputs, more = await resolve(cluster, [request.source], request.start, request.cut or STABLE)
    cuts: list[int | None] = []
    for r in inputs:
        cut = None if request.cut is None else r.end
        if commits is not None:
            cut = min(r.end, commits.get(r.topic_partition, r.start))
        cuts.append(cut)
    whole = [replace(r, end=max(r.start, r.last_stable_offset)) for r in inputs]
    return Scope(tuple(whole), tuple(outputs), tuple(cuts), (*missing, *more), began)


async def _commits(cluster: Cluster, request: EndToEndRequest) -> dict[TopicPartition, int]:
    """Return what the group has committed of the input. Raises IncompleteError, UsageError."""
    assert request.group is not None
    metadata = await cluster.metadata([request.topics[0]])
    partitions = [p.topic_partition for p in metadata.topics[request.topics[0]].partitions]
    groups, missing = await find_groups(cluster, [request.group])
    groups, more = await with_offsets(cluster, groups, partitions)
    if unseen := [*missing, *more]:
        text = f"{unseen[0].error}: {unseen[0].detail}"
        raise IncompleteError(text, where=f"group {request.group}")
    offsets = [
        o for g in groups for o in g.offsets if o.committed_offset is not None and not o.is_share
    ]
    commits = {o.topic_partition: o.committed_offset or 0 for o in offsets}
    if not commits:
        raise UsageError(
            f"it has committed nothing of {request.topics[0]}", where=f"group {request.group}"
        )
    at = {
        o.topic_partition: LogPosition(o.committed_offset or 0, o.leader_epoch, "commit")
        for o in offsets
    }
    remedy = "its log was cut off since the commit: say up to where with --end"
    await positions.refuse_other_logs(cluster, at, remedy)
    return commits


async def _may_lack(cluster: Cluster, output: str) -> bool:
    """Return whether compaction may have taken outputs; hidden settings prove nothing."""
    configs, _ = await topic_configs(cluster, [output], ("cleanup.policy",))
    policy = configs.get(output, {}).get("cleanup.policy")
    return policy is None or "compact" in policy


@dataclass
class _Run:
    cluster: Cluster
    request: EndToEndRequest
    reading: AuditOptions
    buckets: IdBuckets
    scope: Scope
    failed: Failed = field(default_factory=dict)
    tallies: list[Tally] = field(init=False)

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
            self.scope, self.tallies = scope, tallies
        else:
            self.buckets.restart()

    async def read(self) -> None:
        """Read what was not read yet."""
        done = sum(t.position - r.start for r, t in self._both())
        told = self._progress(done)
        for number, (r, tally) in enumerate(self._both()):
            if tally.position >= r.end:
                continue
            parts = columns(
                self.cluster, replace(r, start=tally.position), r.end, self.reading, told
            )
            try:
                async with aclosing(parts):
                    async for part in parts:
                        rows = self._rows(number, part)
                        if self.buckets.add(rows):
                            self.buckets.save(self._kept())
            except EoctlError as error:
                self.failed[r.topic_partition] = not_read(r.topic_partition, error)
        self.buckets.save(self._kept())

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
        part = part.select((part.offset >= tally.position) & (part.offset < r.end))
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
        if len(part):
            tally.position = int(part.offset[-1]) + 1
            tally.epoch = int(part.leader_epoch[-1])
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

    def judged(self, may_lack: bool) -> EndToEnd:
        """Judge what was read. may_lack: compaction may have taken outputs."""
        import numpy as np

        inputs, outputs = self.scope.inputs, self.scope.outputs
        reach = Reach(len(inputs), len(outputs))
        for rows in self.buckets:
            reach.add(rows)
        after = reach.proven_after(np.array([r.start > 0 for r in outputs], np.bool_))
        if may_lack or any(r.topic_partition in self.failed for r in outputs):
            after = np.full(len(inputs), NEVER, np.int64)
        ends = reach.last + 1
        for number, (r, cut) in enumerate(zip(inputs, self.scope.cuts, strict=True)):
            if cut is not None:
                ends[number] = cut
            if r.topic_partition in self.failed:
                ends[number] = 0
        judged = Judged(
            [r.topic_partition for r in self.scope.ranges], Cut(ends, after), self.reading.most
        )
        for rows in self.buckets:
            judged.add(rows)
        return EndToEnd(
            self.scope.inputs,
            self.scope.outputs,
            self.tallies,
            judged,
            ends.tolist(),
            (*self.scope.missing, *self.failed.values()),
            self.scope.began,
            cut_known=[cut is not None for cut in self.scope.cuts],
        )
