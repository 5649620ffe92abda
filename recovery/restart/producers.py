"""The producers that wrote a range of a partition, and their gaps, from its batches' headers.

They are read in offset order while counting; memory does not grow with the range.
"""

from collections.abc import Mapping

import msgspec

from recovery.facts import ProducerFacts
from recovery.formats.batches import MAX_SEQUENCE, NO_PRODUCER_ID, BatchHeader
from recovery.values import Value


class ProducerRun(Value):
    """Consecutive visible batches of one producer. producer_id: -1 = written without an id."""

    producer_id: int
    first_offset: int
    last_offset: int
    transactional: bool


class Gap(Value):
    """A batch at `offset` whose epoch and sequence do not follow its producer's previous batch."""

    producer_id: int
    offset: int
    expected: tuple[int, int]
    found: tuple[int, int]


class Producers(Value):
    """The producers of a range.

    runs: up to the first producer that comes back. gaps: at most the first hundred. first, last: by
    producer id, (epoch, sequence) of its first and last record in the range, aborted ones included.
    first_commit: offset of the first COMMIT marker; None: the range has none.
    """

    runs: tuple[ProducerRun, ...] = ()
    gaps: tuple[Gap, ...] = ()
    first: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    last: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    first_commit: int | None = None

    @property
    def producer_ids(self) -> tuple[int, ...]:
        """Return the producer ids in the order of their first visible records."""
        return tuple(dict.fromkeys(run.producer_id for run in self.runs))

    @property
    def interleaved(self) -> tuple[ProducerRun, ProducerRun, ProducerRun] | None:
        """Return runs A, B, A of the first producer that wrote again after another; None: none."""
        latest: dict[int, int] = {}
        for number, run in enumerate(self.runs):
            if run.producer_id in latest:
                before = latest[run.producer_id]
                return self.runs[before], self.runs[before + 1], run
            latest[run.producer_id] = number
        return None


def ended_a_transaction(producer: ProducerFacts) -> bool:
    """Return True if a producer without an open transaction here writes in transactions: one that
    never did has no marker."""
    return producer.coordinator_epoch is not None and producer.coordinator_epoch >= 0


def next_sequence(epoch: int, sequence: int) -> tuple[int, int]:
    """Return the next epoch and sequence within an epoch: 0 comes after 2^31 - 1."""
    return epoch, 0 if sequence == MAX_SEQUENCE else sequence + 1


class ProducerRuns:
    """Collects `Producers` of [start, end).

    Call `add` once for every data batch, in offset order; batches outside the range are skipped.
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
        """Take in a batch. visible: to read_committed readers, as `AbortedTransactions` finds."""
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
            return  # one proof is enough, and the number of runs has no limit
        if self._runs and (last := self._runs[-1]).producer_id == run.producer_id:
            both = last.transactional and run.transactional
            self._runs[-1] = ProducerRun(last.producer_id, last.first_offset, run.last_offset, both)
            return
        self._interleaved = run.producer_id in self._writers
        self._writers.add(run.producer_id)
        self._runs.append(run)

    @property
    def producers(self) -> Producers:
        """Return the result for the batches added so far."""
        runs, gaps = tuple(self._runs), tuple(self._gaps)
        return Producers(runs, gaps, dict(self._first), dict(self._last), self.first_commit)


def _sequence(header: BatchHeader, offset: int) -> int:
    return (header.base_sequence + offset - header.base_offset) & MAX_SEQUENCE
