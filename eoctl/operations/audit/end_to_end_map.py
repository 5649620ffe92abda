"""`audit end-to-end --by map:FILE`: what a mirror lacks of a source that only a mirror map knows.

The id of a record is its digest. The outputs are the mirror's records; the inputs are those of its
records that the map pairs, and the source's records that had no copy when the map looked, of which
it has the digests. So the verdicts are those of `recovery.audit.end_to_end`.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from eoctl.engine.audit_reading import not_read
from eoctl.engine.end_to_end_task import compacted_topics, read_rows, readers
from eoctl.engine.id_buckets import IdBuckets, key_of, rows_of
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.end_to_end import WATERMARK, FollowedRanges
from eoctl.operations.audit.end_to_end_rows import end_to_end_answer, unproven
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.failover_map import refuse_cut_off, refuse_other_mirror
from eoctl.operations.audit.mirror import EARLIEST
from eoctl.operations.audit.mirror_logs import OnProgress, Progress, check_blocks, sums_of
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.stores.locks.running import only_one
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer
from recovery.audit.end_to_end import INPUT, INPUT_ABORTED, NEVER, OUTPUT, Cut, Judged, Reach
from recovery.audit.end_to_end_request import EndToEndFound, EndToEndScope, Tally
from recovery.audit.mirror_map import MapPartition, MirrorMap, ids_unknown
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.formats.columns import NO_TIMESTAMP, ColumnBatch
from recovery.selectors import Selector, parse_selector
from recovery.shared.record_digests import record_digests
from recovery.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REMEDY = "keep a new map while both clusters answer: audit mirror --keep"
UNLESS = (
    "the source had such a record before the map begins, or has written one since it looked: "
    "compare it with the source, audit mirror"
)


@dataclass(frozen=True)
class MapAudit(Audit[EndToEndFound]):
    """source: of the map; its cluster is not asked. output: its mirror. everything: all that the
    map knows should be there; else what comes after the last copy may still wait."""

    source: Selector
    output: str
    path: Path
    everything: bool

    job: ClassVar[str] = ""  # one log is read, by this process
    spark_offsets: ClassVar[int] = NEVER
    answer_type = EndToEndFound

    async def look(self, cluster: Cluster) -> "MappedRanges":
        """Raise RefusedError if the mirror is not the map's, UsageError for another topic's map."""
        kept = mirror_maps.read(self.path)
        if kept.source_topic != self.source.literal:
            raise UsageError(f"the map is of {kept.source_topic}", where=str(self.path))
        await refuse_other_mirror(cluster, kept, self.output, REMEDY)
        parts = {n: p for n, p in kept.by_number().items() if self._selects(n)}
        doubts = await refuse_cut_off(cluster, kept, parts.keys(), REMEDY)
        if (unknown := ids_unknown(kept)) is not None:
            doubts |= {TopicPartition(kept.source_topic, n): unknown for n in parts}
        copies = replace(parse_selector(self.output), partitions=self.source.partitions)
        outputs, missing = await resolve(cluster, [copies], EARLIEST, WATERMARK)
        missing += self._unmapped(kept, [r.partition for r in outputs])
        outputs = [r for r in outputs if r.partition in parts]
        inputs = [_input(kept, parts[r.partition]) for r in outputs]
        cuts = tuple(r.end if self.everything else None for r in inputs)
        doubtful = tuple(unproven(place, f"{text}: {REMEDY}") for place, text in doubts.items())
        scope = EndToEndScope(
            tuple(inputs), tuple(outputs), cuts, tuple(missing), doubtful, now_ms()
        )
        return MappedRanges(
            cluster.cluster_id, scope.ranges, scope.missing, scope=scope, topic_ids=(), kept=kept
        )

    def _selects(self, number: int) -> bool:
        return self.source.literal is not None and self.source.matches(self.source.literal, number)

    def _unmapped(self, kept: MirrorMap, numbers: Sequence[int]) -> list[Missing]:
        """Return the partitions that exist, or should, and that the map does not know."""
        asked = {n for n in (*kept.asked, *numbers) if self._selects(n)}
        text = f"the map does not know this partition yet: {REMEDY}"
        return [
            unproven(TopicPartition(kept.source_topic, n), text)
            for n in sorted(asked - kept.by_number().keys())
        ]

    def request(self, audited: AuditedRanges, reading: AuditOptions) -> NoReturn:
        raise UsageError(
            "a map is compared in this process", where="--by map", remedy="leave out --engine"
        )

    async def read(
        self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions
    ) -> EndToEndFound:
        """Read the mirror, and judge what the map knows of the source."""
        assert isinstance(audited, MappedRanges)
        kept = audited.kept
        key = key_of([kept.mirror_cluster_id, kept.mirror_topic_id, kept.mirror_topic, "map"])
        with only_one("audit end-to-end", key, "mirror"):
            buckets = IdBuckets(key, 2 * audited.offsets)
            buckets.restart()  # another map may have other pairs
            run = _Run(cluster, audited, reading, buckets)
            try:
                await run.read()
                found = run.judged()
            finally:
                buckets.remove()
        named, known = await readers(cluster, audited.scope, run.tallies)
        return found.model_copy(update={"readers": named, "readers_known": known})

    def answer(self, audited: AuditedRanges, result: EndToEndFound) -> Answer:
        assert isinstance(audited, MappedRanges)
        kept = audited.kept
        topics = kept.source_topic, kept.mirror_topic
        return end_to_end_answer(audited.cluster_id, topics, "map", result, kept.looked_at)


class MappedRanges(FollowedRanges, kw_only=True):
    """kept: the map, whose partitions are the inputs."""

    kept: MirrorMap


def _input(kept: MirrorMap, part: MapPartition) -> Resolved:
    start, end = part.source.start, part.source.end
    return Resolved(kept.source_topic, part.partition, start, end, start, end, end)


@dataclass
class _Run:
    """One reading of the mirror. unproven: inputs of which a missing copy is not proven."""

    cluster: Cluster
    audited: MappedRanges
    reading: AuditOptions
    buckets: IdBuckets
    failed: list[Missing] = field(default_factory=list)
    unproven: set[int] = field(default_factory=set)
    tallies: list[Tally] = field(init=False)

    def __post_init__(self) -> None:
        self.tallies = [Tally(position=r.start) for r in self.audited.ranges]

    async def read(self) -> None:
        """Read each partition of the mirror, and add its rows and the map's."""
        kept, scope = self.audited.kept, self.audited.scope
        compacted = bool(await compacted_topics(self.cluster, [kept.mirror_topic]))
        doubted = {m.partition for m in scope.doubts}
        told = Progress(self.reading.progress).over(sum(r.end - r.start for r in scope.outputs))
        for number, r in enumerate(scope.outputs):
            part = kept.by_number()[r.partition]
            # a copy that was made since the map looked may be deleted already
            if compacted or r.partition in doubted or r.start > part.mirror.end:
                self.unproven.add(number)
            try:
                await self._read(number, part, told, compacted=compacted)
            except RefusedError:
                raise
            except EoctlError as error:
                self.failed.append(not_read(r.topic_partition, error))
                self.unproven.add(number)
            self._save()

    async def _read(
        self, number: int, part: MapPartition, told: OnProgress, *, compacted: bool
    ) -> None:
        """Read one partition of the mirror. number: of its input."""
        import numpy as np

        scope, (steps, rest) = self.audited.scope, part.unpacked()
        mirror, output = scope.outputs[number], len(scope.inputs) + number
        tally, sums = self.tallies[output], sums_of(part)
        place = np.uint64(number)  # an equal record of another partition is another record
        parts = read_rows(
            self.cluster, scope, output, mirror.end, tally, self._digests, self.reading, told
        )
        async with aclosing(parts):
            async for copies in parts:
                made = copies["kind"] == OUTPUT
                sums.add(copies["offset"][made], copies["id"][made])
                copies["id"][:, 1] += place
                paired = copies[made]
                sources = steps.sources(paired["offset"])
                paired["offset"], paired["range"], paired["kind"] = sources, number, INPUT
                self._add_inputs(number, paired[sources >= 0])
                if self.buckets.add(copies):
                    self._save()
        check_blocks(part, sums, mirror, REMEDY, compacted=compacted)
        kind = np.where(rest.visible, INPUT, INPUT_ABORTED)
        times = np.full(len(rest), NO_TIMESTAMP)
        without = rows_of(rest.digest, rest.offset, times, number, kind)
        without["id"][:, 1] += place
        self._add_inputs(number, without)
        if tally.holes:
            self.unproven.add(number)

    def _add_inputs(self, number: int, rows: "NDArray[Any]") -> None:
        visible = int((rows["kind"] == INPUT).sum())
        self.tallies[number].records += visible
        self.tallies[number].aborted += len(rows) - visible
        self.buckets.add(rows)

    def _save(self) -> None:
        self.buckets.save({"began": self.audited.scope.began})

    def _digests(self, part: ColumnBatch) -> "tuple[NDArray[np.uint64], NDArray[np.bool_]]":
        """Return records' digests as ids: as the map compared them."""
        import numpy as np

        compared = self.audited.kept.compared
        ids = record_digests(
            part, timestamps="timestamp" in compared, headers="headers" in compared
        )
        return ids, np.ones(len(part), np.bool_)

    def judged(self) -> EndToEndFound:
        """Judge what was read."""
        scope = self.audited.scope
        reach = Reach(len(scope.inputs), len(scope.outputs))
        for rows in self.buckets:
            reach.add(rows)
        cut = self._cut(reach)
        judged = Judged([r.topic_partition for r in scope.ranges], cut, self.reading.most)
        for rows in self.buckets:
            judged.add(rows)
        return EndToEndFound(
            failed=tuple(self.failed),
            scope=scope,
            tallies=tuple(self.tallies),
            ends=tuple(cut.ends.tolist()),
            verdicts=judged.verdicts,
            unless=UNLESS,
        )

    def _cut(self, reach: Reach) -> Cut:
        import numpy as np

        kept, scope = self.audited.kept.by_number(), self.audited.scope
        ends, after = reach.last + 1, np.full(len(scope.inputs), -1, np.int64)
        known = np.zeros(len(scope.outputs), np.int64)
        for number, (r, cut) in enumerate(zip(scope.inputs, scope.cuts, strict=True)):
            ends[number] = ends[number] if cut is None else cut
            if number in self.unproven:
                after[number] = NEVER
            if r.start == 0:  # else an older record may equal the copy
                known[number] = kept[r.partition].mirror.end
        return Cut(ends, after, known)
