"""The producers that wrote a range of a partition, and their gaps, from its batches' headers.

Read in offset order, batch by batch, beside counting; memory does not grow with the range.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.facts import ProducerFacts
from recovery.formats.batches import MAX_SEQUENCE, NO_PRODUCER_ID, BatchHeader


@dataclass(frozen=True, slots=True)
class ProducerRun:
    """Consecutive visible batches of one producer. producer_id: -1 for a producer without one."""

    producer_id: int
    first_offset: int
    last_offset: int
    transactional: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """At `offset`, a batch whose epoch and sequence do not follow this producer's one before."""

    producer_id: int
    offset: int
    expected: tuple[int, int]
    found: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Producers:
    """The producers of a range.

    runs: up to the first producer that comes back. gaps: the first hundred. first, last: of each
    producer id, (epoch, sequence) of its first and last record here, aborted ones included.
    first_commit: offset of the first COMMIT marker; None: there is none.
    """

    runs: tuple[ProducerRun, ...] = ()
    gaps: tuple[Gap, ...] = ()
    first: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    last: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    first_commit: int | None = None

    @property
    def producer_ids(self) -> tuple[int, ...]:
        """Return producer ids in the order of their first visible records."""
        return tuple(dict.fromkeys(run.producer_id for run in self.runs))

    @property
    def interleaved(self) -> tuple[ProducerRun, ProducerRun, ProducerRun] | None:
        """A, B, A: the first producer that came back after another one had written."""
        latest: dict[int, int] = {}
        for number, run in enumerate(self.runs):
            if run.producer_id in latest:
                before = latest[run.producer_id]
                return self.runs[before], self.runs[before + 1], run
            latest[run.producer_id] = number
        return None


def ended_a_transaction(producer: ProducerFacts) -> bool:
    """Return True if a producer with nothing open in its partition writes in transactions: one
    without a marker never did."""
    return producer.coordinator_epoch is not None and producer.coordinator_epoch >= 0


def next_sequence(epoch: int, sequence: int) -> tuple[int, int]:
    """The epoch and sequence that follow within an epoch: 0 comes after 2^31 - 1."""
    return epoch, 0 if sequence == MAX_SEQUENCE else sequence + 1


class ProducerRuns:
    """Collects `Producers` of [start, end).

    `add` every data batch once, in offset order; batches outside the range are passed over.
    first_commit: see `Producers`.
    """

    _MOST_GAPS = 100

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self.first_commit: int | None = None
        self._runs: list[ProducerRun] = []
        self._writers: set[int] = set()
        self._interleaved = False
        self._gaps: list[Gap] = []
        self._first: dict[int, tuple[int, int]] = {}
        self._last: dict[int, tuple[int, int]] = {}

    def add(self, header: BatchHeader, *, visible: bool) -> None:
        """visible: read_committed readers see it, `AbortedTransactions` tells."""
        low = max(header.base_offset, self._start)
        high = min(header.last_offset, self._end - 1)
        if header.is_control or low > high or not header.records_count:
            return
        if header.producer_id != NO_PRODUCER_ID:
            self._follow(header, low, high)
        if visible:
            self._extend(ProducerRun(header.producer_id, low, high, header.is_transactional))

    def add_commit(self, offset: int) -> None:
        """Take in a COMMIT marker."""
        if self.first_commit is None and self._start <= offset < self._end:
            self.first_commit = offset

    def _follow(self, header: BatchHeader, low: int, high: int) -> None:
        producer, epoch = header.producer_id, header.producer_epoch
        begins = epoch, _sequence(header, low)
        before = self._last.get(producer)
        if before is None:
            self._first[producer] = begins
        else:
            # A new epoch begins at 0 (KIP-360, KIP-890).
            expected = next_sequence(*before) if epoch <= before[0] else (epoch, 0)
            if begins != expected and len(self._gaps) < self._MOST_GAPS:
                self._gaps.append(Gap(producer, low, expected, begins))
        self._last[producer] = epoch, _sequence(header, high)

    def _extend(self, run: ProducerRun) -> None:
        if self._interleaved:
            return  # one proof is enough, and runs would be without number
        if self._runs and (last := self._runs[-1]).producer_id == run.producer_id:
            both = last.transactional and run.transactional
            self._runs[-1] = ProducerRun(last.producer_id, last.first_offset, run.last_offset, both)
            return
        self._interleaved = run.producer_id in self._writers
        self._writers.add(run.producer_id)
        self._runs.append(run)

    @property
    def producers(self) -> Producers:
        """Return what was added until now."""
        runs, gaps = tuple(self._runs), tuple(self._gaps)
        return Producers(runs, gaps, dict(self._first), dict(self._last), self.first_commit)


def _sequence(header: BatchHeader, offset: int) -> int:
    return (header.base_sequence + offset - header.base_offset) & MAX_SEQUENCE
