"""Count the transactions that coordinators decided, from the newest part of `__transaction_state`.

A Prepare* record is a decision, appended once for each transaction that ends. Compaction may remove
one after its Complete*, though never from the segment that is written to, so of a busy log an older
stretch counts at least so many.
"""

from collections.abc import Iterable

from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import OUTCOMES, StateRecord
from recovery.values import Value

STEP_MS = 10_000


class Decided(Value):
    """Decisions from begin to before end (epoch ms, by the coordinators' clocks).

    commits, aborts: of each stretch; stretches end at the multiples of STEP_MS, and at `end`.
    """

    begin: int
    end: int
    commits: tuple[int, ...]
    aborts: tuple[int, ...]


def decided(records: Iterable[StateRecord], begin: int, end: int) -> Decided:
    """Count the decisions of these records. begin: all records appended since are among them."""
    first = begin // STEP_MS
    number = max(0, -(-end // STEP_MS) - first)
    counts = {"commit": [0] * number, "abort": [0] * number}
    for r in records:
        if isinstance(r.value, TransactionValue) and begin <= r.timestamp < end:
            outcome = OUTCOMES.get(r.value.state)
            if outcome is not None:
                counts[outcome][r.timestamp // STEP_MS - first] += 1
    return Decided(begin, end, tuple(counts["commit"]), tuple(counts["abort"]))
