"""Collect the facts of a transaction audit: what partitions hold and what coordinators decided.

Decisions are the Prepare* records of `__transaction_state`. Compaction removes them once their
transaction is complete; the coverage of an id says how much of its past the rest still proves.
A partition's facts come from batch headers, and the outcome from control batches. The judgement
needs both, of all partitions: see `recovery.audit.transactions`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.facts import TopicPartition
from recovery.formats.batches import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    HeaderScan,
    header_at,
)
from recovery.formats.reader import Buffer
from recovery.formats.records import ControlType, marker
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import OUTCOMES, Decision, StateLog, StateRecord, decided
from recovery.inspect.lost_markers import Past, past_of
from recovery.values import Value, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ENDS = {TransactionState.COMPLETE_COMMIT: "commit", TransactionState.COMPLETE_ABORT: "abort"}
# A marker as brokers write it: the bytes after the batch header that are attributes, deltas and
# the lengths of key (4) and value (6) as varints.
_USUAL = ((1, 0), (2, 0), (3, 0), (4, 8), (9, 12))
_KIND, _COORDINATOR, _SIZE = 7, 12, 16


class Data(NamedTuple):
    """Records of one producer id and epoch without a marker between. timestamp: of the first."""

    epoch: int
    first: int
    last: int
    timestamp: int


class Mark(NamedTuple):
    """A marker. timestamp: ms, by the leader's clock."""

    offset: int
    outcome: str
    epoch: int
    coordinator_epoch: int
    timestamp: int


class Ending(NamedTuple):
    """Data and the marker that ended it. data None: a marker alone; mark None: still open."""

    data: Data | None
    mark: Mark | None


Endings = Mapping[TopicPartition, Mapping[int, Sequence[Ending]]]
"""By partition that was read, then by producer id, in the order of offsets."""


class Coverage(Value):
    """The part of an id's past that the coordinators' log still holds. Times in ms.

    decisions: those in the log. pending: decisions without a record after them. ended: times of
    transactions whose end alone is left. whole: no transaction of the id can be missing. pasts: of
    its producer ids, the epochs of which no decision can be missing.
    """

    transactional_id: str
    decisions: tuple[Decision, ...]
    pending: int
    ended: tuple[int, ...]
    whole: bool
    pasts: tuple[Past, ...] = ()

    @property
    def unproven(self) -> bool:
        """Return whether transactions of the id are known in part, or may be missing."""
        return bool(self.ended) or not self.whole


@dataclass(slots=True)
class _Id:
    decisions: list[Decision] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    producer_ids: set[int] = field(default_factory=set)
    first: StateRecord | None = None
    before: StateRecord | None = None


def coverage(logs: Iterable[StateLog]) -> list[Coverage]:
    """Return the coverage of each id, sorted by id."""
    coverages: list[Coverage] = []
    for log in logs:
        ids: dict[str, _Id] = {}
        for record in log.records:
            _follow(ids.setdefault(record.transactional_id, _Id()), record)
        for name, one in ids.items():
            coverages.append(
                Coverage(
                    transactional_id=name,
                    decisions=tuple(one.decisions),
                    pending=sum(d.completed_at is None for d in one.decisions),
                    ended=tuple(one.ended),
                    whole=name not in log.cuts
                    and (
                        log.whole_from == 0
                        or (one.first in log.standing and _is_beginning(one.first))
                    ),
                    pasts=tuple(
                        past
                        for pid in sorted(one.producer_ids)
                        if (past := past_of([log], pid)) is not None
                    ),
                )
            )
    return sorted(coverages, key=lambda c: c.transactional_id)


def _is_beginning(record: StateRecord | None) -> bool:
    """Return True for an id's first record ever: no transaction of the id can precede it."""
    value = record.value if record else None
    return (
        isinstance(value, TransactionValue)
        and value.state is TransactionState.EMPTY
        and value.producer_epoch == 0
    )


def _follow(one: _Id, record: StateRecord) -> None:
    value, before = record.value, one.before
    one.before = record
    one.first = one.first or record
    if one.decisions and one.decisions[-1].completed_at is None:
        one.decisions[-1] = replace(one.decisions[-1], completed_at=record.timestamp)
    if not isinstance(value, TransactionValue):
        return
    one.producer_ids.add(value.producer_id)
    if value.state in OUTCOMES:
        one.decisions.append(decided(record, value))
    elif value.state in _ENDS:
        last = before.value if before else None
        proven = (
            isinstance(last, TransactionValue) and OUTCOMES.get(last.state) == _ENDS[value.state]
        )
        if not proven:
            one.ended.append(record.timestamp)


class PartitionTransactions:
    """The transactions of one partition, from buffers that are added in offset order."""

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self.repeated_markers = 0  # markers without data, such as a coordinator's second try
        self._open: dict[int, list[Data]] = {}
        self._ended: dict[int, list[Ending]] = {}

    def add(self, buffer: Buffer, scan: HeaderScan, end: int) -> None:
        """Add the next complete batches of [next_offset, end). A bad marker raises CorruptError."""
        import numpy as np

        base, last = scan.column("base_offset"), scan.last_offset
        inside = (last >= self.next_offset) & (base < end)
        if not inside.any():
            return
        self.next_offset = int(last[inside][-1]) + 1
        rows = np.flatnonzero(inside & scan.has(TRANSACTIONAL))
        if not len(rows):
            return
        pid = scan.column("producer_id")[rows]
        order = np.argsort(pid, kind="stable")  # each id's batches by offset
        rows, pid = rows[order], pid[order]
        control = scan.has(CONTROL)[rows]
        epoch = scan.column("producer_epoch")[rows]
        # adjacent data batches of one transaction are joined
        joined = ~control[1:] & ~control[:-1] & (pid[1:] == pid[:-1]) & (epoch[1:] == epoch[:-1])
        first = np.flatnonzero(np.concatenate(([True], ~joined)))
        behind = np.append(first[1:], len(rows))
        times = scan.column("max_timestamp")
        marks = iter(_marks(buffer, scan, rows[first][control[first]]))
        for begin, until in zip(first.tolist(), behind.tolist(), strict=True):
            row, who = int(rows[begin]), int(pid[begin])
            if control[begin]:
                if (mark := next(marks)) is not None:
                    self._end(who, mark)
                continue
            final = int(last[rows[until - 1]])
            stretches = self._open.setdefault(who, [])
            if stretches and stretches[-1].epoch == epoch[begin]:
                stretches[-1] = stretches[-1]._replace(last=final)
            else:
                stretches.append(Data(int(epoch[begin]), int(base[row]), final, int(times[row])))

    def endings(self) -> Iterator[tuple[int, Ending]]:
        """Yield (producer id, data and its marker), each id's by offset, open data last."""
        for pid in self._ended.keys() | self._open.keys():
            for ending in self._ended.get(pid, ()):
                yield pid, ending
            for data in self._open.get(pid, ()):
                yield pid, Ending(data, None)

    def _end(self, pid: int, mark: Mark) -> None:
        ended = self._ended.setdefault(pid, [])
        data = self._open.pop(pid, [])
        ended += [Ending(one, mark) for one in data]
        if not data:
            self.repeated_markers += 1
            ended.append(Ending(None, mark))


def _marks(buffer: Buffer, scan: HeaderScan, rows: "NDArray[np.intp]") -> list[Mark | None]:
    """Return the marker in each of these control batches; None if it ends no transaction."""
    import numpy as np

    if not len(rows):
        return []
    data = np.frombuffer(buffer, np.uint8)
    at = scan.positions[rows] + HEADER_SIZE
    usual = (scan.column("records_count")[rows] == 1) & (
        (scan.fields["attributes"][rows] & CODEC_MASK) == 0
    )
    usual &= scan.column("length")[rows] + 12 >= HEADER_SIZE + _SIZE
    for position, value in _USUAL:
        usual &= data[np.where(usual, at + position, 0)] == value
    kind = _number(data, np.where(usual, at + _KIND, 0), ">i2")
    coordinator = _number(data, np.where(usual, at + _COORDINATOR, 0), ">i4")
    columns = zip(
        rows.tolist(),
        usual.tolist(),
        kind.tolist(),
        coordinator.tolist(),
        scan.column("base_offset")[rows].tolist(),
        scan.column("producer_epoch")[rows].tolist(),
        scan.column("max_timestamp")[rows].tolist(),
        strict=True,
    )
    marks: list[Mark | None] = []
    for row, quick, what, coordinator_epoch, offset, epoch, time in columns:
        if quick and what in (0, 1):
            outcome = "commit" if what else "abort"
            marks.append(Mark(offset, outcome, epoch, coordinator_epoch, time))
            continue
        end_marker = marker(buffer, header_at(buffer, int(scan.positions[row])))
        if (
            end_marker is None
            or end_marker.type is ControlType.OTHER
            or end_marker.coordinator_epoch is None
        ):
            marks.append(None)
        else:
            marks.append(
                Mark(offset, end_marker.type.value, epoch, end_marker.coordinator_epoch, time)
            )
    return marks


def _number(data: "NDArray[np.uint8]", at: "NDArray[Any]", kind: str) -> "NDArray[np.int64]":
    import numpy as np

    width = np.dtype(kind).itemsize
    positions = at[:, None] + np.arange(width)
    return np.ascontiguousarray(data[positions]).view(kind)[:, 0].astype(np.int64)
