"""Select how much of an id's past is needed: the newest records and those that decide a batch.

An id of a busy application has a hundred thousand records a day; a verdict needs a few of them. A
chain goes from the newest record back until the batch's epoch has begun. It keeps:

- the newest records, and some before the epoch began: they identify a topic and measure clocks;
- both sides of a change of epoch, up to two above the batch's, and all that begin or end an epoch;
- each decision that names one of the partitions, and the record after it (its completion).

So `read_history` gives the same answer as from all records. `StateLog.cuts` holds the offset below
which records were left out. If a chain reaches `most` records before the batch's epoch has begun,
the history is incomplete for that id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import OUTCOMES, StateRecord, producer_ids_of
from recovery.inspect.observation import OpenTransaction, StartBatch
from recovery.values import Value

NEWEST = 16  # records of an id that are always kept, and as many before its epoch began
MOST_RECORDS = 15_000  # of all ids in one request, in all partitions: about 15 MB
LEAST_RECORDS = 50  # of each id
_EPOCHS_ABOVE = 2  # an abort of Kafka 4.0.0 carries the batch's epoch + 2 (KAFKA-19367)


class Wanted(Value):
    """The batches of one producer id for which a history is read.

    epochs, partitions: those of the batches.
    """

    epochs: frozenset[int]
    partitions: frozenset[TopicPartition]

    @property
    def first_epoch(self) -> int:
        return min(self.epochs)

    def is_near(self, epoch: int) -> bool:
        """Return True if records of this epoch may show how a batch's epoch began or ended."""
        return any(e - 1 <= epoch <= e + _EPOCHS_ABOVE for e in self.epochs)


def wanted_of(
    transactions: Iterable[OpenTransaction], starts: Mapping[OpenTransaction, StartBatch]
) -> dict[int, Wanted]:
    """Return by producer id what these transactions' histories need. starts: the batch of each."""
    wanted: dict[int, Wanted] = {}
    for w in transactions:
        pid, epoch = w.producer_id, starts[w].producer_epoch
        if pid is None:
            continue
        before = wanted.get(pid, Wanted(frozenset(), frozenset()))
        wanted[pid] = Wanted(before.epochs | {epoch}, before.partitions | {w.topic_partition})
    return wanted


def most_records(ids: int) -> int:
    """Return how many records are kept at most for each id; ids: their number in all partitions."""
    return max(LEAST_RECORDS, MOST_RECORDS // max(1, ids))


@dataclass(slots=True)
class Chain:
    """The records of one id, added from the newest back until `done`.

    wanted: by producer id that the id has had; None = all records are kept, up to `most`.
    """

    wanted: Mapping[int, Wanted] | None
    most: int | None = None  # records kept; None = no limit
    kept: list[StateRecord] = field(default_factory=list)  # newest first
    cut: int | None = None  # offset of the oldest record read, if older ones were left out
    done: bool = False
    _read: int = 0
    _after: StateRecord | None = None  # the previously added record, which is newer
    _after_kept: bool = True
    _owned: set[int] = field(default_factory=set)  # producer ids of newer records, tags excluded
    _begun: set[int] = field(default_factory=set)  # producer ids whose epoch began later
    _margin: int | None = None  # records still to be read

    def add(self, record: StateRecord) -> None:
        """Add the next older record."""
        if self.most is not None and len(self.kept) >= self.most:
            self.cut, self.done = self._oldest(), True
            return
        self._read += 1
        if self._after is not None and not self._after_kept and self._both(record, self._after):
            self.kept.append(self._after)
        keeps = self._keeps(record)
        if keeps:
            self.kept.append(record)
        self._after, self._after_kept = record, keeps
        if self.wanted is not None:
            self._look_for_begin(record)

    def _oldest(self) -> int:
        assert self._after is not None
        return self._after.offset

    def _keeps(self, record: StateRecord) -> bool:
        value = record.value
        if (
            self.wanted is None
            or self._read <= NEWEST
            or self._margin is not None
            or not isinstance(value, TransactionValue)
        ):
            return True
        if self._crosses(record):
            return True
        if value.state in OUTCOMES and any(
            partition in w.partitions
            for w in self.wanted.values()
            for partition in value.partitions
        ):
            return True
        return self._near(record) and (
            value.state is TransactionState.EMPTY or value.client_transaction_version >= 2
        )

    def _both(self, record: StateRecord, after: StateRecord) -> bool:
        """Return True if the newer neighbour is needed: a completion, or where an epoch changes."""
        value = record.value
        decides = isinstance(value, TransactionValue) and value.state in OUTCOMES
        return (decides and self._keeps(record)) or self._crosses(record)

    def _crosses(self, record: StateRecord) -> bool:
        """Return True if the epoch changes from this record to the newer one, near a batch's."""
        after = self._after
        return after is not None and (
            _epoch(record) != _epoch(after) and (self._near(record) or self._near(after))
        )

    def _near(self, record: StateRecord) -> bool:
        value = record.value
        if not isinstance(value, TransactionValue) or self.wanted is None:
            return True
        return any(
            w.is_near(value.producer_epoch)
            if value.producer_id == pid
            else pid in producer_ids_of(record)
            for pid, w in self.wanted.items()
        )

    def _look_for_begin(self, record: StateRecord) -> None:
        assert self.wanted is not None
        value = record.value
        if self._margin is None and isinstance(value, TransactionValue):
            self._begun |= {
                pid
                for pid, w in self.wanted.items()
                if (value.producer_id == pid and value.producer_epoch < w.first_epoch)
                or (value.producer_id != pid and pid in self._owned)
            }
            self._owned.add(value.producer_id)
            if self._begun == self.wanted.keys() and self._read >= NEWEST:
                self._margin = NEWEST
        elif self._margin is not None:
            self._margin -= 1
            if self._margin <= 0:
                self.done = True
                self.cut = record.offset if self.wanted else None


def _epoch(record: StateRecord) -> tuple[int, int] | None:
    value = record.value
    return (
        (value.producer_id, value.producer_epoch) if isinstance(value, TransactionValue) else None
    )
