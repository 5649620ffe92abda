"""The request and the result of `audit end-to-end`, identical for every engine, and its cut.

What was read decides what is proven: `cut_of`, and what is not: `unproven_parts`. The rules:
`recovery.audit.end_to_end`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.audit_request import AuditRequest, AuditResult, Resolved
from recovery.audit.audit_rows import EndToEndReader
from recovery.audit.end_to_end import NEVER, Cut, Reach, Verdicts
from recovery.facts import Missing, TopicPartition
from recovery.formats.columns import ABORTED, OPEN
from recovery.plurals import counted
from recovery.shared.record_ids import RecordId
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass
class Tally:
    """How far a partition was read, and how many records it had.

    position: the next offset; epoch: of the record before it. records: those that a read_committed
    reader gets; without_id: of these. first_aborted: offset. holes: offsets before the position
    that have no record. rows: records that have an id and were not left out.
    """

    position: int
    epoch: int = -1
    records: int = 0
    without_id: int = 0
    aborted: int = 0
    open: int = 0
    holes: int = 0
    first_aborted: int | None = None
    rows: int = 0

    def count(self, offsets: "NDArray[np.int64]", outcome: "NDArray[np.int8]") -> None:
        """Count records of these outcomes."""
        aborted, open_ = outcome == ABORTED, outcome == OPEN
        if self.first_aborted is None and aborted.any():
            self.first_aborted = int(offsets[aborted][0])
        self.aborted += int(aborted.sum())
        self.open += int(open_.sum())
        self.records += int((~aborted & ~open_).sum())

    def join(self, later: "Tally") -> None:
        """Add what comes next in the partition."""
        self.position, self.epoch = later.position, later.epoch
        if self.first_aborted is None:
            self.first_aborted = later.first_aborted
        for name in ("records", "without_id", "aborted", "open", "holes", "rows"):
            setattr(self, name, getattr(self, name) + getattr(later, name))


class EndToEndScope(Value):
    """What is read. cuts: by input, None: after the last input that has an output. doubts: why no
    missing output is proven of a partition, such as a cut that another log may have had. began:
    epoch ms."""

    inputs: tuple[Resolved, ...]
    outputs: tuple[Resolved, ...]
    cuts: tuple[int | None, ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Missing, ...]
    began: int

    @property
    def ranges(self) -> tuple[Resolved, ...]:
        return (*self.inputs, *self.outputs)


class EndToEndRequest(AuditRequest):
    """The request of `audit end-to-end`. ranges: those of the scope. topics, topic_ids: the input's
    and the output's, None: the brokers have none. all_inputs: no partition of the input is left
    out. range_offsets: the most that one task reads."""

    scope: EndToEndScope
    topics: tuple[str, str]
    topic_ids: tuple[str | None, str | None]
    by: RecordId
    all_inputs: bool
    range_offsets: int


class EndToEndRead(AuditResult):
    """What a task read of a range."""

    number: int
    tally: Tally


UNREAD_INPUT = (
    "an input that was not read has the id: read all partitions from offset 0, or use --by source"
)


class EndToEndFound(AuditResult):
    """scope: what was read; of a continued run, as it was at its beginning. tallies, ends: by
    range, ends: of inputs. unless: what makes doubtful outputs right, and what settles it. readers:
    groups that have come past aborted outputs."""

    scope: EndToEndScope
    tallies: tuple[Tally, ...]
    ends: tuple[int, ...]
    verdicts: Verdicts
    unless: str = UNREAD_INPUT
    readers: tuple[EndToEndReader, ...] = ()
    readers_known: bool = True
    continued: bool = False


def cut_of(
    request: EndToEndRequest,
    tallies: Sequence[Tally],
    failed: Sequence[Missing],
    reach: Reach,
    compacted: Collection[str],
) -> Cut:
    """Return what the inputs must have brought, and from where on a missing output is proven.

    failed: what could not be read. compacted: topics whose records compaction may have taken.
    """
    import numpy as np

    read = _Read(request, tallies, failed, compacted)
    by_place = request.by.kind == "source"  # such an id has one input, wherever it is
    partitions_known = by_place or (request.all_inputs and read.completely(request.topics[0]))
    scope = request.scope
    all_known = by_place or (partitions_known and all(r.start == 0 for r in scope.inputs))
    known_to = np.full(len(scope.outputs), NEVER if all_known else 0, np.int64)
    return Cut(read.ends(reach), read.proven_after(reach, partitions_known), known_to)


@dataclass(frozen=True)
class _Read:
    """What was read, as `cut_of` is given it."""

    request: EndToEndRequest
    tallies: Sequence[Tally]
    failed: Sequence[Missing]
    compacted: Collection[str]

    def completely(self, topic: str) -> bool:
        """Return whether no record is missing after the start of each of the topic's partitions."""
        scope = self.request.scope
        ranges = zip(scope.ranges, self.tallies, strict=True)
        return topic not in self.compacted and not (
            any(m.topic in (None, topic) for m in (*scope.missing, *self.failed))
            or any(t.holes for r, t in ranges if r.topic == topic)
        )

    def ends(self, reach: Reach) -> "NDArray[np.int64]":
        """Return the offset from which on inputs may still wait, by input."""
        ends, scope = reach.last + 1, self.request.scope
        failed = {m.topic_partition for m in self.failed}
        for number, (r, cut) in enumerate(zip(scope.inputs, scope.cuts, strict=True)):
            if cut is not None:
                ends[number] = cut
            if r.topic_partition in failed:
                ends[number] = 0
        return ends

    def proven_after(self, reach: Reach, partitions_known: bool) -> "NDArray[np.int64]":
        """Return from where on a missing output is proven, by input."""
        import numpy as np

        scope = self.request.scope
        cut_off = np.array([r.start > 0 for r in scope.outputs], np.bool_)
        after = reach.proven_after(cut_off)
        if (
            not self.completely(self.request.topics[1])
            or any(t.without_id for t in self.tallies[len(scope.inputs) :])
            or (cut_off.any() and not partitions_known)
        ):
            after[:] = NEVER
        doubted = {m.topic_partition for m in scope.doubts}
        after[[r.topic_partition in doubted for r in scope.inputs]] = NEVER
        return after


def not_seen(found: EndToEndFound) -> list[Missing]:
    """Return what was not read and what is not proven: with any of it the audit is incomplete."""
    return [*found.scope.missing, *found.failed, *unproven_parts(found)]


def unproven_parts(found: EndToEndFound) -> Iterator[Missing]:
    """Yield what the logs do not show."""
    yield from found.scope.doubts
    yield from _unproven_outputs(found)
    for number, (r, t) in enumerate(zip(found.scope.inputs, found.tallies, strict=False)):
        place = r.topic_partition
        if n := found.verdicts.counts.unproven[number]:
            text = f"{counted(n, 'input has', 'inputs have')} no output, or one that "
            text += "was deleted, compacted or not read: the output is not all there; run it "
            text += "sooner after the records are written, or with an earlier --start"
            yield unproven(place, text)
        if t.holes:
            text = f"{counted(t.holes, 'offset has', 'offsets have')} no record (compacted?): if "
            text += (
                "these inputs had an output is unknown; run it before they go, or give a --start"
            )
            yield unproven(place, text)
        if t.without_id:
            text = f"{counted(t.without_id, 'input has', 'inputs have')} no such id and cannot"
            yield unproven(place, f"{text} be followed")
        followed = t.records - t.without_id
        if followed and found.scope.cuts[number] is None and found.ends[number] <= r.start:
            text = f"none of its {counted(followed, 'record')} has an output: nothing shows "
            text += "that outputs have this id; or say up to where they must: --group or --end"
            yield unproven(place, text)


def _unproven_outputs(found: EndToEndFound) -> Iterator[Missing]:
    inputs = found.scope.inputs
    for r, t in zip(found.scope.outputs, found.tallies[len(inputs) :], strict=True):
        if t.without_id:
            text = f"{counted(t.without_id, 'output has', 'outputs have')} no such id, so none "
            text += "is proven to be missing: name an id that all outputs have with --by"
            yield unproven(r.topic_partition, text)
        if t.holes:
            text = f"{counted(t.holes, 'offset has', 'offsets have')} no record (compacted?), so "
            text += "no output is proven to be missing: run it before they go"
            yield unproven(r.topic_partition, text)
    if doubtful := sum(found.verdicts.counts.doubtful):
        text = f"{counted(doubtful, 'output is', 'outputs are')} repeated or of an aborted input, "
        text += f"unless {found.unless}"
        yield Missing("topic", "UNPROVEN", text, topic=inputs[0].topic)


def unproven(place: TopicPartition, text: str) -> Missing:
    """Return what the logs of a partition do not show."""
    return Missing("partition", "UNPROVEN", text, None, *place)
