"""The facts for a verdict: two snapshots of one open transaction on one partition.

The values are frozen and come from a live cluster or from a bundle. None means unknown.
`recovery.inspect.history.History` holds what was decided in the past; the rules are in
`recovery.diagnose.verdicts`.
"""

from collections.abc import Sequence

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
from recovery.values import Value

CLOSED_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""A coordinator that says one of these owns no open transaction; any other state may."""


class OpenTransaction(HasPartition, Value):
    """One producer's open transaction on one partition, which gets a verdict.

    producer_id and start_offset are None if a partition is held but no answer shows by which
    transaction.
    """

    topic: str
    partition: int
    producer_id: int | None
    start_offset: int | None

    @property
    def name(self) -> str:
        return str(self.topic_partition)


class StartBatch(Value):
    """The fetched batch at `current_txn_start_offset`, which shows whose transaction it is.

    The epoch in DescribeProducers is that of the producer's *last* batch and proves nothing here.
    timestamp: ms, by the broker's clock if append_time, else by the producer's, on which no verdict
    rests. marker_before, marker_after: times of the nearest markers of any producer around the
    batch, by the partition leader's clock.
    groups_read: False: not all of the transaction's keys there were read, so it may hold more
    groups.
    survivor: the start offset is below the log start (DeleteRecords, retention), and this is the
    offset of the producer's first remaining batch. deleted: no batch remains; the epoch is that of
    the producer's last batch, from DescribeProducers.
    """

    producer_id: int
    producer_epoch: int
    timestamp: int | None = None
    append_time: bool = False  # the topic has LogAppendTime
    marker_before: int | None = None
    marker_after: int | None = None
    groups: tuple[str, ...] = ()  # on `__consumer_offsets`, the groups in its keys, which are held
    survivor: int | None = None
    deleted: bool = False
    groups_read: bool = True

    @property
    def written_after(self) -> int | None:
        """Return a time, by the leader's clock, at which or after which the batch was written."""
        known = [self.timestamp if self.append_time else None, self.marker_before]
        return max((t for t in known if t is not None), default=None)

    @property
    def written_before(self) -> int | None:
        """Return a time, by the leader's clock, at which or before which the batch was written."""
        known = [self.timestamp if self.append_time else None, self.marker_after]
        return min((t for t in known if t is not None), default=None)


class Sample(Value):
    """One snapshot: the partition first, the coordinators after it (never the other way round).

    over_timeout, over_long, over_stuck: transactional ids that, by their coordinators' own clocks,
    run longer than their timeout, `Settings.long_after` and `Settings.stuck_after`
    (ListTransactions' duration filter with a state filter); None = list_version is below 1, or not
    requested.
    named: the partitions that a Prepare* owner names, with their leaders as seen now,
    and the partitions of Ongoing ids without a leader that answers.
    abort_cycles: (broker, ms) how often a coordinator with a late transaction checks for timeouts,
    if its settings are visible.
    groups: with members, the groups that ids of late transactions or ids with Flink-like names are
    named after; groups_missing: what could not be seen of all groups.
    """

    partition: PartitionFacts
    producers: tuple[ProducerFacts, ...] | None  # DescribeProducers at its leader; None = not seen
    transactions: Transactions
    collected_at: int  # our clock, epoch ms
    topic_describe: bool  # DESCRIBE on the topic is proven, so coordinators name the topic
    producers_missing: Missing | None = None  # why producers were not seen
    over_timeout: frozenset[str] | None = None
    over_long: frozenset[str] | None = None
    over_stuck: frozenset[str] | None = None
    list_version: int | None = None
    named: tuple[PartitionFacts, ...] = ()
    abort_cycles: tuple[tuple[int, int], ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    groups_missing: tuple[Missing, ...] = ()
    ids: tuple[IdFacts, ...] = ()  # the Prepare* owners, with what keeps them from their markers
    unread: tuple[tuple[int, Missing], ...] = ()  # start offsets with an unreadable batch, and why
    denied: tuple[Missing, ...] = ()  # answers about ids open in their log but in no listing

    def standing(self, transactional_id: str) -> IdFacts | None:
        """Return what was seen of this id in Prepare*; None: it was not requested."""
        return next((i for i in self.ids if i.row.transactional_id == transactional_id), None)

    def producer(self, producer_id: int) -> ProducerFacts | None:
        """Return the facts of this producer, if DescribeProducers answered and has them."""
        return next((p for p in self.producers or () if p.producer_id == producer_id), None)

    def live(self, producer_id: int) -> tuple[TransactionFacts, ...]:
        """Return the ids with this producer id whose state allows an open transaction."""
        rows = self.transactions.owners(producer_id)
        return tuple(t for t in rows if t.state not in CLOSED_STATES)

    @property
    def sees_all_coordinators(self) -> bool:
        """Return True if each `__transaction_state` partition has a leader that answered the probe.

        One id that could not be described leaves no gap: its row still carries its producer id.
        """
        t = self.transactions
        listed = {row.transactional_id for row in t.rows}
        holes = [m for m in t.missing if m.scope != "transaction" or m.id not in listed]
        return bool(t.coordinators) and all(c.seen for c in t.coordinators) and not holes


class Settings(Value):
    """The limits of the rules. Durations in ms (docs/interface.md has the options' defaults).

    two_phase_patterns: regular expressions (full match) for ids whose records look pre-committed,
    such as the names from Flink's sinks (`prefix-subtask-number`). A name proves nothing.
    """

    long_after: int = 15 * 60_000
    stuck_after: int = 60_000
    clock_skew: int = 5_000
    two_phase_patterns: Sequence[str] = PRECOMMITTED_NAMES


def is_over(about: OpenTransaction, before: Sample, after: Sample) -> bool:
    """Return True if the later snapshot shows that an open transaction has ended.

    The leader, at no lower leader epoch, shows no such transaction, and an LSO above the start: a
    marker that is not yet on all replicas leaves the LSO where it was. Where the same leader shows
    an older transaction that holds the LSO, the missing row is all there is; a marker that its
    followers lack is seen once the older one has ended. If the transaction was never identified:
    the LSO moved, or nothing is held any more.
    """
    p, q = before.partition, after.partition
    if q.error is not None or q.last_stable_offset is None or after.producers is None:
        return False
    if None not in (p.topic_id, q.topic_id) and p.topic_id != q.topic_id:
        return False  # another log
    if (q.leader_epoch or 0) < (p.leader_epoch or 0):
        return False
    pid, start = about.producer_id, about.start_offset
    opened = {
        (r.producer_id, r.current_txn_start_offset)
        for r in after.producers
        if r.current_txn_start_offset is not None
    }
    if start is not None:
        lso = q.last_stable_offset
        in_log = start < (q.high_watermark or 0) and q.leader_epoch == p.leader_epoch
        older = in_log and lso < start and any(begin <= lso for _, begin in opened)
        return (lso > start or older) and (pid, start) not in opened
    if q.held == 0:
        return True
    if pid is not None:
        return pid not in {producer for producer, _ in opened}
    return p.last_stable_offset is not None and q.last_stable_offset > p.last_stable_offset


def continues(about: OpenTransaction, before: OpenTransaction, held_from: int | None) -> bool:
    """Return True if `about`, from a later snapshot, is what an earlier one saw as `before`.

    held_from: the LSO of the earlier snapshot if that did not identify the transaction: what began
    later is another one. None: that snapshot saw nothing of the partition.
    """
    if about.topic_partition != before.topic_partition:
        return False
    if before.start_offset is not None:
        return (about.producer_id, about.start_offset) == (before.producer_id, before.start_offset)
    if before.producer_id is not None and about.producer_id is not None:
        return about.producer_id == before.producer_id
    return held_from is None or about.start_offset is None or about.start_offset <= held_from
