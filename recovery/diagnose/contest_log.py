"""Find contests in the newest part of `__transaction_state` as it is read, and keep no record.

A busy cluster writes thousands of records a second, nearly all of them of transactions that commit.
Of those only the state and the epoch matter, by which the next record is judged: with numpy they
are read where they are, and nothing else is decoded.
"""

from recovery.diagnose.contest import Contest, Newest, Series
from recovery.formats.transaction_state import TransactionState
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import Head, LogPart, heads
from recovery.inspect.log_tokens import encoded

MOST_IDS = 100_000
"""Ids that are kept at once: those whose newest record is no end of a transaction, and those that
were initialised again. 100,000 take some 30 MB."""

_QUICK = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
)
"""They need no more than their epoch, unless something about the id is kept."""
_BEGUN = (TransactionState.EMPTY, TransactionState.ONGOING)


class ContestLog:
    """Finds the contests; `add` the parts of each partition in the order of their offsets."""

    def __init__(self) -> None:
        self._begun: dict[bytes, tuple[TransactionState, int]] = {}
        self._series: dict[bytes, Series] = {}

    @property
    def full(self) -> bool:
        """Return True if no more should be added."""
        return len(self._begun) + len(self._series) >= MOST_IDS

    @property
    def contests(self) -> list[Contest]:
        """Return the contests so far, by transactional id."""
        named = {n.decode("utf-8", "surrogatepass"): mine for n, mine in self._series.items()}
        found = (mine.contest(name) for name, mine in sorted(named.items()))
        return [contest for contest in found if contest is not None]

    def add(self, part: LogPart, partition: int) -> None:
        """Add the next part of a partition. Raises CorruptError."""
        quick = heads(part, _QUICK)
        for row in range(len(part.scan)):
            head = quick.get(row)
            if head is not None and self._passed(part, head):
                continue
            for record in part.decoded(partition, [row]):
                self._take(record)

    def _passed(self, part: LogPart, head: Head) -> bool:
        """Return True if the record with this head needs no more than this."""
        state, epoch, begin, end, _ = head
        name = bytes(part.data[begin:end])
        if name in self._series:
            return False
        if state not in _BEGUN:
            self._begun.pop(name, None)
        elif state is TransactionState.EMPTY and self._begun.get(name, (None,))[0] is state:
            return False
        else:
            self._begun[name] = state, epoch
        return True

    def _take(self, record: StateRecord) -> None:
        name = encoded(record.transactional_id)
        series = self._series.get(name)
        if series is None:
            state, epoch = self._begun.pop(name, (None, -1))
            series = Series(None if state is None else Newest(state, -1, epoch, -1))
        series.add(record)
        newest = series.newest
        if series.found or (newest is not None and newest.state not in _QUICK):
            self._series[name] = series
            return
        self._series.pop(name, None)
        if newest is not None and newest.state in _BEGUN:
            self._begun[name] = newest.state, newest.producer_epoch
