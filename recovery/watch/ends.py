"""Count how many transactions ended between two lists from the coordinators.

Kafka has no request that counts commits and aborts. A list holds each id's newest transaction, so
two lists give a lower bound: a transaction that began and ended between them shows only as a raised
epoch, and only transactions v2 (KIP-890) raise the epoch at every end.
"""

from collections.abc import Iterable

from recovery.inspect.cluster_rows import TxnListRow
from recovery.values import Value


class Ends(Value):
    """A lower bound of ended transactions. commits, aborts: those whose outcome a list shows."""

    ended: int = 0
    commits: int = 0
    aborts: int = 0

    def __add__(self, other: "Ends") -> "Ends":
        return Ends(
            self.ended + other.ended, self.commits + other.commits, self.aborts + other.aborts
        )


def ends_between(
    before: Iterable[TxnListRow], after: Iterable[TxnListRow], *, all_before: bool
) -> Ends:
    """Count the transactions that ended between two lists.

    all_before: the first list has all ids, so the transaction of an id missing there began later.
    """
    known = {r.transactional_id: r for r in before}
    ended = commits = aborts = 0
    for new in after:
        old = known.get(new.transactional_id)
        if new.state is None or (old is None and not all_before) or (old and old.state is None):
            continue
        same = old is not None and (
            (old.producer_id, old.start_timestamp) == (new.producer_id, new.start_timestamp)
        )
        count = 0
        outcome = _outcome(new.state)
        if outcome and not (same and old and _outcome(old.state)):
            count += 1
            commits += outcome == "commit"
            aborts += outcome == "abort"
        if old and old.state == "Ongoing" and not same:
            count += 1  # how the earlier one ended is no longer shown
        ended += max(count, _raised(old, new))
    return Ends(ended, commits, aborts)


def _outcome(state: str | None) -> str | None:
    """Return how the newest transaction ends; None: not decided yet."""
    if state in ("PrepareCommit", "CompleteCommit"):
        return "commit"
    if state in ("PrepareAbort", "CompleteAbort", "PrepareEpochFence"):
        return "abort"
    return None


def _raised(old: TxnListRow | None, new: TxnListRow) -> int:
    """Return how often an end raised the epoch: transactions v2 raise it at each end.

    A new InitProducerId raises the epoch too and leaves the id Empty or, once its producer writes,
    Ongoing, so such a restart may be counted as one end too many.
    """
    if old is None or old.producer_id != new.producer_id:
        return 0
    if old.producer_epoch is None or new.producer_epoch is None:
        return 0
    return max(0, new.producer_epoch - old.producer_epoch - (new.state == "Empty"))
