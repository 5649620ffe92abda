"""Collect the facts of a transaction audit: what partitions hold and what coordinators decided.

Decisions are the Prepare* records of `__transaction_state`. Compaction removes them once their
transaction is complete; the coverage of an id says how much of its past the rest still proves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import OUTCOMES, Decision, StateLog, StateRecord, decided
from recovery.inspect.lost_markers import Past, past_of
from recovery.values import Value, replace

_ENDS = {TransactionState.COMPLETE_COMMIT: "commit", TransactionState.COMPLETE_ABORT: "abort"}


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
