"""Facts about an unfinished transactional id: its coordinator's log and each partition it names.

The values are frozen, as in `recovery.inspect.observation`. None means unknown. A coordinator
writes the leader epoch of its partition of `__transaction_state` into every marker; a partition
refuses markers below the coordinator epoch or the producer epoch that it has seen (Kafka's
ProducerAppendInfo). After one refusal the coordinator does not send the marker again until it
reloads (TransactionMarkerRequestCompletionHandler cancels it).
"""

from collections.abc import Sequence

from recovery.facts import (
    GroupFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    log_of_coordinator,
)
from recovery.values import Value

LAST_EPOCH = 32_767
"""There is none above it: a partition takes a marker of it again (Kafka's ProducerAppendInfo)."""

GONE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
"""Errors of a partition that does not exist any more: it needs no marker."""


class NamedPartition(Value):
    """One partition that the id names."""

    facts: PartitionFacts  # its leader and offsets, or why they are missing
    seen: bool  # DescribeProducers answered
    producer: ProducerFacts | None = None  # the id's; None: unknown to the leader
    ended_by: tuple[str, int] | None = None  # outcome and offset of its last marker, if looked for
    refusal: str | None = None  # the error of DescribeProducers

    @property
    def topic_partition(self) -> TopicPartition:
        return self.facts.topic_partition

    @property
    def name(self) -> str:
        return str(self.facts.topic_partition)

    @property
    def error(self) -> str | None:
        """Return the error with which the leader did not show its producers."""
        return self.refusal or self.facts.error

    @property
    def gone(self) -> bool:
        """Return True if the partition no longer exists."""
        return self.facts.error in GONE

    @property
    def open_from(self) -> int | None:
        """Return the start of the producer's open transaction here; None: none is open."""
        return None if self.producer is None else self.producer.current_txn_start_offset

    @property
    def closed(self) -> bool:
        """Return True if nothing of the producer is open here: no record, or a marker after it."""
        return self.gone or (self.seen and self.open_from is None)


class IdFacts(Value):
    """One snapshot of an id in Ongoing or Prepare*, described first, then its partitions.

    named: the partitions in its description or its newest record; None = not requested.
    groups_missing: what could not be seen of groups; groups_seen: nothing was missing. groups and
    these two are set only for late Ongoing ids.
    """

    row: TransactionFacts
    collected_at: int  # our clock, epoch ms
    state_partition: int  # its partition of `__transaction_state`
    coordinator_epoch: int | None = None  # the leader epoch of that partition
    in_sync: int | None = None  # its replicas in sync, on brokers that answer
    min_in_sync: int | None = None  # how many must be in sync (min.insync.replicas)
    away: tuple[int, ...] = ()  # the brokers of its other replicas
    named: tuple[NamedPartition, ...] | None = None
    over_timeout: bool | None = None  # by its coordinator's clock, it runs longer than its timeout
    over_long: bool | None = None  # by that clock, longer than `Settings.long_after`
    decided_long_ago: bool | None = None  # by that clock, in Prepare* longer than `stuck_after`
    ahead: int | None = None  # its coordinator's clock less ours, in ms; None = not measured
    groups: tuple[GroupFacts, ...] = ()  # those of its name, with members
    groups_seen: bool = True
    groups_missing: tuple[Missing, ...] = ()
    log_error: str | None = None  # why its coordinator's log was not read

    @property
    def groups_unseen(self) -> tuple[Missing, ...]:
        """Return what could not be seen of groups, also for an older bundle without the details."""
        if self.groups_seen or self.groups_missing:
            return self.groups_missing
        return (Missing("group", "NOT_SEEN", "not all groups were seen"),)

    @property
    def log(self) -> str:
        """Return the name of its coordinator's log."""
        return log_of_coordinator(self.state_partition)

    @property
    def preparing(self) -> bool:
        """Return True if the outcome is decided."""
        return self.row.state.startswith("Prepare")

    @property
    def too_few_in_sync(self) -> bool | None:
        """Return True if the log takes no record: fewer replicas are in sync than must be."""
        if self.in_sync is None or self.min_in_sync is None:
            return None
        return self.in_sync < self.min_in_sync

    def same_transaction(self, other: "IdFacts") -> bool:
        """Return True if both snapshots saw one transaction in one state."""
        a, b = self.row, other.row
        return (a.state, a.producer_id, a.producer_epoch, a.start_timestamp) == (
            b.state,
            b.producer_id,
            b.producer_epoch,
            b.start_timestamp,
        )


class Refusing(Value):
    """A partition that refuses the marker of an id in Prepare*.

    above: how far its coordinator epoch is above that of the id's coordinator; 0 = its producer
    epoch is above that of Prepare*, or (v2) equal while something is open.
    """

    partition: NamedPartition
    above: int


def refusing(
    first: IdFacts, second: IdFacts | None, client_version: int | None = None
) -> tuple[Refusing, ...]:
    """Return the partitions that refuse the id's marker. client_version: of its Prepare* record.

    The first snapshot counts for a partition, the second for the id: the id was still in the same
    Prepare* after its partition was seen, and leader epochs only grow. A producer epoch above the
    id's is no sign for an id that was decided lately: under transactions v2 it may have completed
    meanwhile and written again. Under v2 a partition also refuses a marker of its own epoch while
    something of that epoch is open (a stray: the transaction has the epoch before).
    """
    newest = second or first
    if not first.preparing or not first.same_transaction(newest):
        return ()
    epochs = [e for e in (first.coordinator_epoch, newest.coordinator_epoch) if e is not None]
    prepared, young = first.row.producer_epoch, newest.decided_long_ago is False
    strict = client_version is not None and client_version >= 2 and prepared != LAST_EPOCH
    refusals = []
    for p in first.named or ():
        if p.producer is None or not p.seen:
            continue
        marker_epoch = p.producer.coordinator_epoch
        above = marker_epoch - max(epochs) if marker_epoch is not None and epochs else 0
        if above > 0:
            refusals.append(Refusing(p, above))
        elif prepared is not None and not young:
            taken = strict and p.open_from is not None
            if p.producer.producer_epoch > prepared - taken:
                refusals.append(Refusing(p, 0))
    return tuple(refusals)


def reload_is_safe(
    look: IdFacts | None,
    client_version: int | None,
    recorded: Sequence[TopicPartition] | None,
) -> bool:
    """Return True if a reload of the id's coordinator cannot run into KAFKA-19999.

    recorded: the partitions of its Prepare* record; a description leaves out those whose marker was
    acknowledged. Under transactions v2 a marker carries the epoch of the Prepare*, and the batches
    below the marker do not.
    """
    if client_version is not None and client_version < 2:
        return True
    if look is None or look.named is None or client_version is None or recorded is None:
        return False
    named = {p.topic_partition: p for p in look.named}
    epoch = look.row.producer_epoch

    def without_marker(p: NamedPartition) -> bool:
        if p.gone or p.producer is None:
            return p.gone or p.seen
        return p.open_from is not None or (epoch is not None and p.producer.producer_epoch < epoch)

    return all(tp in named and without_marker(named[tp]) for tp in recorded)
