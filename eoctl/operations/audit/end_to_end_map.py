"""`audit end-to-end --by map:FILE`: what a mirror lacks of a source that only a mirror map knows.

The id of a record is its digest. The outputs are the mirror's records; the inputs are those of its
records that the map pairs, and the source's records that had no copy when the map looked, of which
it has the digests. So the verdicts are those of `recovery.audit.end_to_end`. Any doubt in a
partition leaves all of it unproven: the source cannot be asked.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from eoctl.engine.audit_reading import not_read
from eoctl.engine.end_to_end_task import compacted_topics, read_rows, readers, refuse_changed
from eoctl.engine.id_buckets import IdBuckets, key_of, rows_of
from eoctl.engine.mirror_logs import (
    DigestSum,
    OnProgress,
    Progress,
    check_blocks,
    sums_of,
)
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.end_to_end import FollowedRanges
from eoctl.operations.audit.end_to_end_rows import end_to_end_answer
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.failover_map import refuse_cut_off, refuse_other_mirror
from eoctl.operations.audit.mirror import EARLIEST
from eoctl.operations.audit.ranges import WATERMARK, AuditOptions, Resolved, resolve
from eoctl.stores.locks.running import only_one
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer
from recovery.audit.end_to_end import INPUT, INPUT_ABORTED, NEVER, OUTPUT, Cut, Judged, Reach
from recovery.audit.end_to_end_request import EndToEndFound, EndToEndScope, Tally, unproven
from recovery.audit.mirror_map import MapPartition, MirrorMap, ids_unknown, unread_parts
from recovery.audit.mirror_steps import Waiting
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.formats.batches import TIMESTAMP_TYPE
from recovery.formats.columns import NO_TIMESTAMP, ColumnBatch
from recovery.plurals import counted
from recovery.selectors import parse_selector
from recovery.shared.record_digests import record_digests
from recovery.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REMEDY = "keep a new map while both clusters answer: audit mirror --keep"
UNLESS = (
    "the source had such a record before the map begins, or has written one since it looked, or "
    "its copy is deleted: compare it with the source, audit mirror"
)
ELSEWHERE = (
    "the mirror has such records in other partitions: its copies may be in any of them, so nothing "
    "is proven to be missing; compare it with the source, audit mirror"
)
STAMPED = (
    "the mirror has its own times (LogAppendTime), and the map compares times: newer copies are "
    f"not known again, so nothing is proven; {REMEDY}"
)
NO_COPY = (
    "none of its records has a copy in the mirror's partition of that number: the mirror may "
    "change records or their partitions, so none is proven to be missing; compare it with the "
    "source, audit mirror"
)


@dataclass(frozen=True)
class MapAudit(Audit[EndToEndFound]):
    """source: the topic of the map; its cluster is not asked. output: its mirror. everything: all
    that the map knows should be there; else what comes after the last copy may still wait."""

    source: str
    output: str
    path: Path
    everything: bool

    job: ClassVar[str] = ""  # one log is read, by this process
    spark_offsets: ClassVar[int] = NEVER
    answer_type = EndToEndFound

    async def look(self, cluster: Cluster) -> "MappedRanges":
        """Raise RefusedError if the mirror is not the map's, UsageError for another topic's map."""
        kept = mirror_maps.read(self.path)
        if kept.source_topic != self.source:
            raise UsageError(f"the map is of {kept.source_topic}", where=str(self.path))
        await refuse_other_mirror(cluster, kept, self.output, REMEDY)
        parts = kept.by_number()
        cut_off = await refuse_cut_off(cluster, kept, parts.keys(), REMEDY)
        outputs, missing = await resolve(
            cluster, [parse_selector(self.output)], EARLIEST, WATERMARK
        )
        missing += _unmapped(kept, [r.partition for r in outputs])
        outputs = [r for r in outputs if r.partition in parts]
        inputs = tuple(_input(kept, parts[r.partition]) for r in outputs)
        cuts = tuple(r.end if self.everything else None for r in inputs)
        doubts = tuple(_doubts(kept, cut_off))
        scope = EndToEndScope(inputs, tuple(outputs), cuts, tuple(missing), doubts, now_ms())
        ids = kept.source_topic_id, kept.mirror_topic_id
        return MappedRanges(
            cluster.cluster_id, scope.ranges, scope.missing, scope=scope, topic_ids=ids, kept=kept
        )

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
        looked_at = min((p.looked_at for p in kept.partitions), default=0)
        return end_to_end_answer(audited.cluster_id, topics, "map", result, looked_at or None)


class MappedRanges(FollowedRanges, kw_only=True):
    """kept: the map, whose partitions are the inputs."""

    kept: MirrorMap


def _input(kept: MirrorMap, part: MapPartition) -> Resolved:
    start, end = part.source.start, part.source.end
    return Resolved(kept.source_topic, part.partition, start, end, start, end, end)


def _unmapped(kept: MirrorMap, numbers: Iterable[int]) -> list[Missing]:
    """Return the partitions that exist, or should, and that the map does not know."""
    unknown = {*kept.asked, *numbers} - kept.by_number().keys()
    text = f"the map does not know this partition yet: {REMEDY}"
    return [unproven(TopicPartition(kept.source_topic, n), text) for n in sorted(unknown)]


def _doubts(kept: MirrorMap, cut_off: Mapping[TopicPartition, str]) -> Iterator[Missing]:
    """Yield why nothing is proven of a partition that the map knows."""
    unknown = ids_unknown(kept)
    for part in kept.partitions:
        place = TopicPartition(kept.source_topic, part.partition)
        if (text := cut_off.get(place, unknown)) is not None:
            yield unproven(place, f"{text}: {REMEDY}")
    for number, text in unread_parts(kept):
        yield unproven(TopicPartition(kept.source_topic, number), text)


def _first_pair(part: MapPartition) -> int:
    """Return the source's offset up to which the mirror may have deleted copies before any look
    saw them: that of the first pair; -1: it had deleted nothing; NEVER: no pair is left."""
    if not part.mirror.start:
        return -1
    steps, _ = part.unpacked()
    return int(steps.source.min(initial=NEVER))


@dataclass
class _Run:
    """One reading of the mirror. doubts: what is not proven, beside the scope's. doubtful: inputs
    of which nothing is proven. stamped: the partition that is read has times of the mirror's.
    unknown_copies: some records of the mirror, in any partition, may be copies that are not known
    again."""

    cluster: Cluster
    audited: MappedRanges
    reading: AuditOptions
    buckets: IdBuckets
    failed: list[Missing] = field(default_factory=list)
    doubts: list[Missing] = field(default_factory=list)
    doubtful: set[int] = field(default_factory=set)
    stamped: bool = False
    unknown_copies: bool = False
    tallies: list[Tally] = field(init=False)

    def __post_init__(self) -> None:
        self.tallies = [Tally(position=r.start) for r in self.audited.ranges]
        scope = self.audited.scope
        doubted = {m.partition for m in scope.doubts}
        self.doubtful |= {n for n, r in enumerate(scope.inputs) if r.partition in doubted}
        self.parts = [self.audited.kept.by_number()[r.partition] for r in scope.inputs]
        self.waiting = Waiting([part.unpacked()[1] for part in self.parts])

    async def read(self) -> None:
        """Read each partition of the mirror, and add its rows and the map's."""
        kept, scope = self.audited.kept, self.audited.scope
        compacted = bool(await compacted_topics(self.cluster, [kept.mirror_topic]))
        if compacted:
            self.doubtful |= set(range(len(self.parts)))
        told = Progress(self.reading.progress).over(sum(r.end - r.start for r in scope.outputs))
        for number in range(len(self.parts)):
            rows = self._rows(number, told, compacted=compacted)
            async with aclosing(rows):
                async for one in rows:
                    if self.buckets.add(one):
                        self._save()
            self._save()
        ids = {kept.mirror_topic: kept.mirror_topic_id}
        tallies = self.tallies[len(self.parts) :]
        await refuse_changed(self.cluster, ids, scope.outputs, tallies)

    async def _rows(
        self, number: int, told: OnProgress, *, compacted: bool
    ) -> "AsyncGenerator[NDArray[Any], None]":
        """Yield the rows of a partition; note it if it cannot be read. number: of its input."""
        mirror = self.audited.scope.outputs[number]
        sums, self.stamped = sums_of(self.parts[number]), False
        rows = self._of_mirror(number, sums, told)
        try:
            async with aclosing(rows):
                async for one in rows:
                    yield one
            unchecked = check_blocks(self.parts[number], sums, mirror, REMEDY, compacted=compacted)
        except RefusedError:
            raise
        except EoctlError as error:
            self.failed.append(not_read(mirror.topic_partition, error))
            self.doubtful.add(number)
            return
        self._doubt_copies(number, unchecked)
        yield self._without_copy(number)

    async def _of_mirror(
        self, number: int, sums: DigestSum, told: OnProgress
    ) -> "AsyncGenerator[NDArray[Any], None]":
        """Yield the mirror's records, and those of the source that the map pairs with them."""
        import numpy as np

        scope, (steps, _) = self.audited.scope, self.parts[number].unpacked()
        output = len(scope.inputs) + number
        end, tally = scope.outputs[number].end, self.tallies[output]
        parts = read_rows(
            self.cluster, scope, output, end, tally, self._digests, self.reading, told
        )
        async with aclosing(parts):
            async for copies in parts:
                made = copies["kind"] == OUTPUT
                sums.add(copies["offset"][made], copies["id"][made])
                sources = steps.sources(copies["offset"])
                for owner in self.waiting.owners(copies["id"][sources < 0]) - {number}:
                    self._doubt(owner, ELSEWHERE)
                # an equal record of another partition is another record
                copies["id"][:, 1] += np.uint64(number)
                made &= sources >= 0
                paired = copies[made]
                paired["offset"], paired["range"], paired["kind"] = sources[made], number, INPUT
                self._count(number, paired)
                yield copies
                yield paired

    def _doubt_copies(self, number: int, unchecked: int) -> None:
        """Note what the mirror's records of a partition do not prove."""
        mirror = self.audited.scope.outputs[number].topic_partition
        if self.tallies[len(self.parts) + number].holes:
            self.doubtful.add(number)
            self.unknown_copies = True
        if self.stamped and "timestamp" in self.audited.kept.compared:
            self._doubt(number, STAMPED)
            self.unknown_copies = True
        if unchecked:
            text = (
                f"{counted(unchecked, 'record is', 'records are')} taken for the map's on trust, "
            )
            text += f"as others beside them are deleted or compacted: {REMEDY}"
            self.doubts.append(unproven(mirror, text))

    def _without_copy(self, number: int) -> "NDArray[Any]":
        """Return the source's records that had no copy when the map looked."""
        import numpy as np

        _, rest = self.parts[number].unpacked()
        kind = np.where(rest.visible, INPUT, INPUT_ABORTED)
        times = np.full(len(rest), NO_TIMESTAMP)
        rows = rows_of(rest.digest, rest.offset, times, number, kind)
        rows["id"][:, 1] += np.uint64(number)
        self._count(number, rows)
        return rows

    def _count(self, number: int, inputs: "NDArray[Any]") -> None:
        visible = int((inputs["kind"] == INPUT).sum())
        self.tallies[number].records += visible
        self.tallies[number].aborted += len(inputs) - visible

    def _doubt(self, number: int, text: str) -> None:
        self.doubtful.add(number)
        doubt = unproven(self.audited.scope.inputs[number].topic_partition, text)
        if doubt not in self.doubts:
            self.doubts.append(doubt)

    def _save(self) -> None:
        self.buckets.save({"began": self.audited.scope.began})

    def _digests(self, part: ColumnBatch) -> "tuple[NDArray[np.uint64], NDArray[np.bool_]]":
        """Return records' digests as ids: as the map compared them."""
        import numpy as np

        attributes = part.batches.scan.column("attributes")[part.batch]
        self.stamped |= bool((attributes & TIMESTAMP_TYPE).any())
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
            scope=replace(scope, doubts=(*scope.doubts, *self.doubts)),
            tallies=tuple(self.tallies),
            ends=tuple(cut.ends.tolist()),
            verdicts=judged.verdicts,
            unless=UNLESS,
        )

    def _cut(self, reach: Reach) -> Cut:
        """Return what the mirror must have, and up to where its copies prove anything."""
        import numpy as np

        scope = self.audited.scope
        ends = reach.last + 1
        after = np.zeros(len(ends), np.int64)
        known = np.zeros(len(ends), np.int64)
        # a copy may be in any partition of the mirror
        somewhere = bool(scope.missing or self.failed or self.unknown_copies)
        for number, (source, output) in enumerate(zip(scope.inputs, scope.outputs, strict=True)):
            if reach.last[number] < 0 and self.tallies[number].records:
                self._doubt(number, NO_COPY)
            if reach.last[number] < 0 or scope.cuts[number] is not None:
                ends[number] = source.end
            mirror = self.parts[number].mirror
            after[number] = _first_pair(self.parts[number])
            doubtful = number in self.doubtful
            # a copy that was made since the map looked may be deleted already
            # and one that no run saw may have been of any record without a pair
            deleted = output.start > mirror.end or self.parts[number].gaps
            if doubtful or somewhere or deleted:
                after[number] = NEVER
            # the copy may be of a record before the map's, or of one whose own copy is deleted
            if not doubtful and source.start == 0 and output.start == 0:
                known[number] = mirror.end
        return Cut(ends, after, known)
