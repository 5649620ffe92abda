"""Count the transactions that coordinators decided, from the newest part of `__transaction_state`.

A Prepare* record is a decision, appended once for each transaction that ends. Compaction may remove
one after its Complete*, though never from the segment that is written to, so of a busy log an older
stretch counts at least so many.
"""

from collections import Counter
from collections.abc import Iterable

from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import OUTCOMES, StateRecord
from recovery.inspect.log_part import LogPart
from recovery.values import Value

STEP_MS = 10_000


class Decided(Value):
    """Decisions from begin to before end (epoch ms, by the coordinators' clocks).

    commits, aborts: of each stretch of STEP_MS; the last one ends at `end`.
    """

    begin: int
    end: int
    commits: tuple[int, ...]
    aborts: tuple[int, ...]


class Decisions:
    """Counts the decisions of a log as its parts are read."""

    full = False

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()

    def add(self, part: LogPart, partition: int) -> None:
        """Count those of a part of `__transaction_state`. Raises CorruptError."""
        self.count(part.decoded(partition, range(len(part.scan))))

    def count(self, records: Iterable[StateRecord]) -> None:
        """Count those of these records."""
        for r in records:
            outcome = OUTCOMES.get(r.value.state) if isinstance(r.value, TransactionValue) else None
            if outcome is not None:
                self._counts[outcome, r.timestamp // STEP_MS] += 1

    def between(self, begin: int, end: int) -> Decided:
        """Return the counts of complete stretches, and of the last one up to its end.

        begin: all records appended since are among those that were counted.
        """
        first = -(-begin // STEP_MS)
        steps = range(first, -(-end // STEP_MS))
        commits, aborts = (
            tuple(self._counts[outcome, step] for step in steps) for outcome in ("commit", "abort")
        )
        return Decided(first * STEP_MS, end, commits, aborts)
