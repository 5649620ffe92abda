"""The facts of a verdict: two looks at one open transaction on one partition.

Frozen values, put together by whoever asked (a live cluster, a bundle). None is "not known".
What was decided in the past is `recovery.inspect.history.History`; the rules are
`recovery.diagnose.verdicts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.facts import (
    GroupFacts,
    HasPartition,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.two_phase import PRECOMMITTED_NAMES

CLOSED_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""A coordinator that says one of these owns no open transaction; any other state may."""


@dataclass(frozen=True, slots=True)
class OpenTransaction(HasPartition):
    """One producer's open transaction on one partition: the thing that is judged.

    producer_id and start_offset are None where a partition is held and nobody could tell, or
    nobody answered, by which transaction.
    """

    topic: str
    partition: int
    producer_id: int | None
    start_offset: int | None

    @property
    def name(self) -> str:
        return str(self.topic_partition)


@dataclass(frozen=True, slots=True)
class StartBatch:
    """The batch at `current_txn_start_offset`, fetched: whose transaction is judged.

    DescribeProducers' epoch is that of the producer's *last* batch, so it proves nothing here.
    timestamp, in ms: the broker's clock if append_time (LogAppendTime), else the producer's, which
    is never a ground. written_after, written_before: bounds by the partition leader's clock for
    when it was written: markers (their time is the leader's) nearest before and after it, any
    producer's, or its own time if append_time.
    groups: on `__consumer_offsets`, the groups in its keys: they are held.
    survivor: the start offset lies below the log start (DeleteRecords, retention): this is the
    producer's first batch that is left, at this offset. deleted: none is left; the epoch is that of
    the producer's last batch, as its leader describes it.
    """

    producer_id: int
    producer_epoch: int
    timestamp: int | None = None
    append_time: bool = False
    marker_before: int | None = None
    marker_after: int | None = None
    groups: tuple[str, ...] = ()
    survivor: int | None = None
    deleted: bool = False

    @property
    def written_after(self) -> int | None:
        """It was written at this time or later, by the leader's clock."""
        known = [self.timestamp if self.append_time else None, self.marker_before]
        return max((t for t in known if t is not None), default=None)

    @property
    def written_before(self) -> int | None:
        """It was written at this time or earlier, by the leader's clock."""
        known = [self.timestamp if self.append_time else None, self.marker_after]
        return min((t for t in known if t is not None), default=None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: the partition first, the coordinators after it (never the other way round).

    producers: DescribeProducers of this partition from its leader; None = not seen, and
    producers_missing says why. over_*: transactional ids that their coordinators' own clocks say
    run longer than their timeout, than `Settings.long_after` and `Settings.stuck_after`
    (ListTransactions' duration filter with a state filter); None = list_version is below 1, or not
    asked. topic_describe: DESCRIBE on the topic is proven, so that coordinators name it.
    named: the partitions that a Prepare* owner names, with their leaders as seen now, and those of
    Ongoing ones that have none.
    abort_cycles: (broker, ms) how often a coordinator with a late transaction looks for those past
    their timeout, as far as its settings are visible. groups: with members, the groups after which
    ids of late transactions are named, and ids with a name as of Flink; groups_missing: what of all
    groups could not be seen.
    ids: the Prepare* owners with what stands between them and their markers.
    unread: start offsets on this partition whose batch could not be read, and why. denied: what
    coordinators answered about ids that are open by their log and that no listing has.
    collected_at: our clock, epoch ms.
    """

    partition: PartitionFacts
    producers: tuple[ProducerFacts, ...] | None
    transactions: Transactions
    collected_at: int
    topic_describe: bool
    producers_missing: Missing | None = None
    over_timeout: frozenset[str] | None = None
    over_long: frozenset[str] | None = None
    over_stuck: frozenset[str] | None = None
    list_version: int | None = None
    named: tuple[PartitionFacts, ...] = ()
    abort_cycles: tuple[tuple[int, int], ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    groups_missing: tuple[Missing, ...] = ()
    ids: tuple[IdFacts, ...] = ()
    unread: tuple[tuple[int, Missing], ...] = ()
    denied: tuple[Missing, ...] = ()

    def standing(self, transactional_id: str) -> IdFacts | None:
        """Return what was seen of this id in Prepare*, if it was asked."""
        return next((i for i in self.ids if i.row.transactional_id == transactional_id), None)

    def producer(self, producer_id: int) -> ProducerFacts | None:
        """The row of this producer, if DescribeProducers answered and has one."""
        return next((p for p in self.producers or () if p.producer_id == producer_id), None)

    def live(self, producer_id: int) -> tuple[TransactionFacts, ...]:
        """Ids with this producer id whose state does not rule out an open transaction."""
        rows = self.transactions.owners(producer_id)
        return tuple(t for t in rows if t.state not in CLOSED_STATES)

    @property
    def sees_all_coordinators(self) -> bool:
        """Each `__transaction_state` partition was led, asked and proven by the probe.

        One id that could not be described is no hole: its row still carries its producer id.
        """
        t = self.transactions
        listed = {row.transactional_id for row in t.rows}
        holes = [m for m in t.missing if m.scope != "transaction" or m.id not in listed]
        return bool(t.coordinators) and all(c.seen for c in t.coordinators) and not holes


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of the rules. Durations in ms (see docs/interface.md, the options' defaults).

    two_phase_patterns: regular expressions of ids (full match) that look as if their records were
    pre-committed, as Flink's sinks name them (`prefix-subtask-number`). A name is no proof.
    """

    long_after: int = 15 * 60_000
    stuck_after: int = 60_000
    clock_skew: int = 5_000
    two_phase_patterns: Sequence[str] = PRECOMMITTED_NAMES
