"""Incarnations of a transactional id, and when the owner of an earlier one can no longer write."""

from typing import Any, Self

from recovery.values import Value

LAST_OWNED = 32_766
"""The last epoch that a coordinator gives a client; another producer id comes after it."""
SHUT_OUT = 3
"""How far an id's epoch must lie above the last one that its owner was seen to use.

An owner that lives may be answered the epoch after its own while that is the id's present one: by
InitProducerId that expects the epoch before (KIP-360), and by EndTxn v5 sent again (KIP-890). So it
may hold that one unseen. Whoever holds an epoch two below the present one is refused every request.
"""


class Incarnation(Value):
    """A producer id and an epoch of a transactional id."""

    producer_id: int
    producer_epoch: int

    @classmethod
    def of(cls, values: Any) -> Self | None:
        """Return the incarnation of a journal's [producer id, epoch]; None for any other value."""
        if isinstance(values, list) and len(values) == 2:
            return cls(*map(int, values))
        return None

    @property
    def plain(self) -> list[int]:
        """Return [producer id, epoch], as a journal holds it."""
        return [self.producer_id, self.producer_epoch]


def is_shut_out(used: Incarnation, now: Incarnation) -> bool:
    """Return True if an owner that used `used`, and maybe the next epoch, can no longer write.

    used: the last incarnation that the owner was seen to use; now: the id's, from its coordinator.
    Another producer id means that the epochs of the old one ran out and counting began again at 0.

    >>> is_shut_out(Incarnation(7, 4), Incarnation(7, 6))
    False
    >>> is_shut_out(Incarnation(7, 4), Incarnation(7, 7))
    True
    >>> is_shut_out(Incarnation(7, 32766), Incarnation(8, 2))
    True
    """
    if now.producer_id != used.producer_id:
        return now.producer_epoch >= SHUT_OUT - 1
    return now.producer_epoch >= used.producer_epoch + SHUT_OUT


def follows(before: Incarnation, now: Incarnation) -> bool:
    """Return True if `now` is the incarnation right after `before`.

    >>> follows(Incarnation(7, 4), Incarnation(7, 5)), follows(Incarnation(7, 4), Incarnation(7, 6))
    (True, False)
    >>> follows(Incarnation(7, 32766), Incarnation(8, 0))
    True
    """
    if now.producer_id != before.producer_id:
        return before.producer_epoch >= LAST_OWNED and now.producer_epoch == 0
    return now.producer_epoch == before.producer_epoch + 1


def holds(
    used: Incarnation,
    at: Incarnation,
    now: Incarnation,
    *,
    is_idle: bool,
    written: int | None,
    known: int | None,
) -> bool:
    """Return True if nobody can write with an id that a fence raised from `used` to `at`.

    now: the id's incarnation, from its coordinator; is_idle: no transaction is open or being ended.
    A later incarnation than `at`, or an open transaction, means that some process is alive; an
    earlier one means that the coordinator has lost the fence. written: the epoch of the last record
    with the producer id of `used` in the logs that were read; known: the highest epoch that a
    partition knows, a marker's included; None = no such epoch.
    """
    if now != at or not is_idle:
        return False
    if written is not None and written > used.producer_epoch:
        return False
    same = used.producer_id == at.producer_id
    return known is None or not same or known <= at.producer_epoch - 2
