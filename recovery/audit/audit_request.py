"""Define an audit's request and result: plain values, identical for every engine.

Everything is resolved: a Spark job receives such a request, and its findings are those of the local
engine. Everything fits in JSON, and nothing is secret.
"""

from collections.abc import Container, Iterable, Sequence

from recovery.audit.audit_rows import AuditMirrorRow, MirrorCheckpoint, MirrorExamined
from recovery.audit.duplicates import Duplicate, first
from recovery.audit.mirror_map import MapPartition
from recovery.audit.sequences import Examined, Finding
from recovery.audit.transaction_facts import Coverage
from recovery.audit.transactions import ForeignMarker, Torn, Undecided, place, rank
from recovery.documents import Document
from recovery.facts import HasPartition, Missing, TopicPartition
from recovery.formats.mirror_maker import Checkpoint, OffsetSync
from recovery.inspect.lost_markers import OwnMarker
from recovery.shared.record_ids import RecordId
from recovery.values import Value, replace

PART = ".part"
"""How the names of files end in which a job gives the parts of a map, beside its answer."""

NOT_TOLD = "what was read of it has not arrived: its map is as it was, run it again"


class Resolved(HasPartition, Value):
    """Offsets [start, end) of a partition, and its facts at the time of resolution."""

    topic: str
    partition: int
    start: int
    end: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class AuditRequest(Document):
    """An audit of these ranges. most: findings that are shown; all are counted.

    max_rate: bytes per second that all tasks together read from one broker. answer: the file that
    the job writes its findings to; None: they are the job's result. missing: what could not be
    looked at before the ranges were chosen.
    """

    ranges: tuple[Resolved, ...]
    most: int
    check_crc: bool = True
    max_rate: float | None = None
    answer: str | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def offsets(self) -> int:
        return sum(r.end - r.start for r in self.ranges)


class SequencesRequest(AuditRequest):
    """The request of `audit sequences`."""


class TransactionsRequest(AuditRequest):
    """The request of `audit transactions`. covered: decisions. skew: of brokers' clocks, ms.

    later: what the coordinators' log held once the ranges' ends were chosen, where it differs. own:
    the markers in this host's journal.
    """

    covered: tuple[Coverage, ...]
    skew: int
    later: tuple[Coverage, ...] = ()
    own: tuple[OwnMarker, ...] = ()


class DuplicatesRequest(AuditRequest):
    """The request of `audit duplicates`. range_offsets: the most that one task reads."""

    by: RecordId
    range_offsets: int


class MirrorPair(Value):
    """A partition of the source and the mirror's of that number, with MirrorMaker's data on both.

    checkpoints: of groups that go on in the mirror.
    """

    source: Resolved
    mirror: Resolved
    syncs: tuple[OffsetSync, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def offsets(self) -> int:
        return self.source.end - self.source.start + self.mirror.end - self.mirror.start


class TopicOf(Value):
    """Which topic a name meant when the ranges were chosen. topic_id None: brokers give none."""

    cluster_id: str | None
    topic_id: str | None


class MirrorPairsRequest(AuditRequest):
    """The request of `audit mirror`. ranges: of both topics. topics: the source's and the mirror's.
    fields: those that make two records the same.

    compacted: whether source and mirror may be. since: the instant at which both ranges begin, ms;
    None: at the log starts.
    """

    pairs: tuple[MirrorPair, ...]
    topics: tuple[TopicOf, TopicOf]
    fields: tuple[str, ...]
    compacted: tuple[bool, bool]
    since: int | None


class MirrorKeepRequest(AuditRequest):
    """The request of `audit mirror --keep`. ranges: what is to be read of both topics. topics: as
    for `audit mirror`.

    path: the map's file, which is continued if there is one.
    """

    pairs: tuple[MirrorPair, ...]
    topics: tuple[TopicOf, TopicOf]
    fields: tuple[str, ...]
    path: str


class AuditResult(Document):
    """The result of an audit. failed: partitions that could not be read."""

    failed: tuple[Missing, ...] = ()

    @property
    def unread(self) -> set[TopicPartition]:
        return {TopicPartition(m.topic or "", m.partition or 0) for m in self.failed}


class PartitionSequences(HasPartition, Document):
    """What was read of one partition, and its first findings."""

    topic: str
    partition: int
    examined: Examined
    findings: tuple[Finding, ...]


class SequencesFound(AuditResult):
    """partitions: those that could be read, in the order of the ranges."""

    partitions: tuple[PartitionSequences, ...] = ()


class TransactionsFound(AuditResult):
    """findings: the number of torn transactions; torn: the first of them.

    foreign: the number of markers that nobody decided; foreign_markers: the first of them. ours,
    gone: see Undecided.
    """

    findings: int = 0
    markers_without_data: int = 0
    torn: tuple[Torn, ...] = ()
    foreign: int = 0
    ours: int = 0
    gone: int = 0
    foreign_markers: tuple[ForeignMarker, ...] = ()

    def with_undecided(self, undecided: Undecided, most: int) -> "TransactionsFound":
        """Return the result with these markers too. most: how many are kept."""
        foreign = sorted([*self.foreign_markers, *undecided.foreign], key=place)
        added = {
            "foreign": self.foreign + len(undecided.foreign),
            "ours": self.ours + undecided.ours,
            "gone": self.gone + undecided.gone,
            "foreign_markers": tuple(foreign[:most]),
        }
        return self.model_copy(update=added)


class RecordsRead(HasPartition, Document):
    """Counts of the records read from a partition or a range; without_id: those without an id."""

    topic: str
    partition: int
    records: int
    without_id: int


class DuplicatesFound(AuditResult):
    """findings: ids of more than one record; repeats: records other than the first of their id.

    read: all partitions, failed ones as far as they were read. shown: the first findings.
    """

    findings: int = 0
    repeats: int = 0
    read: tuple[RecordsRead, ...] = ()
    shown: tuple[Duplicate, ...] = ()


class MirrorPart(Value):
    """What was found in one partition and its mirror. rows: the first findings; of a key the text
    is missing. missing: what is not proven."""

    examined: MirrorExamined
    rows: list[AuditMirrorRow]
    findings: int
    missing: list[Missing]
    checkpoints: list[MirrorCheckpoint]


class MirrorFound(AuditResult):
    """parts: of the pairs that could be read, in their order."""

    parts: tuple[MirrorPart, ...] = ()

    @property
    def findings(self) -> int:
        return sum(part.findings for part in self.parts)

    @property
    def unproven(self) -> list[Missing]:
        """Return what was read and proves nothing."""
        return [one for part in self.parts for one in part.missing]


class MirrorKept(AuditResult):
    """parts: of the map, those that were brought up to date."""

    parts: tuple[MapPartition, ...] = ()


def joined_sequences(results: Sequence[SequencesFound], most: int) -> SequencesFound:
    """Join the findings of tasks, in the order of the ranges."""
    partitions, left = [], most
    for one in (p for f in results for p in f.partitions):
        kept = one.findings[:left]
        partitions.append(one.model_copy(update={"findings": kept}))
        left -= len(kept)
    return SequencesFound(failed=_failed(results), partitions=tuple(partitions))


def not_told(
    pairs: Iterable[MirrorPair], told: Container[int], failed: Iterable[Missing]
) -> list[Missing]:
    """Return the pairs of which neither a part of the map nor an error has come. told: partitions
    with a part."""
    known = {m.partition for m in failed}
    return [
        Missing("partition", "NOT_READ", NOT_TOLD, None, *pair.source.topic_partition)
        for pair in pairs
        if pair.source.partition not in known and pair.source.partition not in told
    ]


def joined_mirror(parts: Sequence[MirrorPart], failed: Sequence[Missing], most: int) -> MirrorFound:
    """Join what was found in the pairs, in their order."""
    joined, left = [], most
    for part in parts:
        joined.append(replace(part, rows=part.rows[:left]))
        left -= len(joined[-1].rows)
    return MirrorFound(failed=tuple(failed), parts=tuple(joined))


def joined_transactions(results: Sequence[TransactionsFound], most: int) -> TransactionsFound:
    """Join the findings of tasks, whose producer ids do not overlap."""
    torn = sorted((t for f in results for t in f.torn), key=rank)
    foreign = sorted((m for f in results for m in f.foreign_markers), key=place)
    return TransactionsFound(
        failed=_failed(results),
        findings=sum(f.findings for f in results),
        markers_without_data=sum(f.markers_without_data for f in results),
        torn=tuple(torn[:most]),
        foreign=sum(f.foreign for f in results),
        ours=sum(f.ours for f in results),
        gone=sum(f.gone for f in results),
        foreign_markers=tuple(foreign[:most]),
    )


def joined_duplicates(results: Sequence[DuplicatesFound], most: int) -> DuplicatesFound:
    """Join the findings of tasks, whose record ids do not overlap."""
    return DuplicatesFound(
        failed=_failed(results),
        findings=sum(f.findings for f in results),
        repeats=sum(f.repeats for f in results),
        read=tuple(r for f in results for r in f.read),
        shown=tuple(first((d for f in results for d in f.shown), most)),
    )


def _failed(results: Iterable[AuditResult]) -> tuple[Missing, ...]:
    """Return the first failure of each partition."""
    failed: dict[tuple[str | None, int | None], Missing] = {}
    for missing in (m for f in results for m in f.failed):
        failed.setdefault((missing.topic, missing.partition), missing)
    return tuple(failed.values())
