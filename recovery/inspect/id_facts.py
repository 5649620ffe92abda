"""Facts of an unfinished transactional id: its coordinator's log, and each partition it names.

Frozen values, as `recovery.inspect.observation`. None is "not known". A coordinator writes the
leader epoch of its partition of `__transaction_state` into every marker; a partition refuses
markers below the coordinator epoch, or below the producer epoch, that it has seen (Kafka's
ProducerAppendInfo). Refused once, the coordinator never sends the marker again until it reloads
(TransactionMarkerRequestCompletionHandler cancels it).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.facts import (
    GroupFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
)

LAST_EPOCH = 32_767
"""There is none above it: a partition takes a marker of it again (Kafka's ProducerAppendInfo)."""

GONE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
"""Errors of a partition that does not exist any more: it needs no marker."""


@dataclass(frozen=True, slots=True)
class NamedPartition:
    """One partition that the id names.

    facts: its leader and offsets, or why they were not given. producer: the id's producer there,
    None where the leader knows none of that producer id. seen: DescribeProducers answered.
    ended_by: outcome and offset of the producer's last marker, where that was looked for.
    refusal: the error of DescribeProducers.
    """

    facts: PartitionFacts
    seen: bool
    producer: ProducerFacts | None = None
    ended_by: tuple[str, int] | None = None
    refusal: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.facts.topic_partition

    @property
    def name(self) -> str:
        return str(self.facts.topic_partition)

    @property
    def error(self) -> str | None:
        """The answer by which the leader did not show its producers."""
        return self.refusal or self.facts.error

    @property
    def gone(self) -> bool:
        """The partition does not exist any more."""
        return self.facts.error in GONE

    @property
    def open_from(self) -> int | None:
        """First offset of the producer's open transaction here; None: nothing of it is open."""
        return None if self.producer is None else self.producer.current_txn_start_offset

    @property
    def closed(self) -> bool:
        """Nothing of the producer is open here: it wrote nothing, or its marker is written."""
        return self.gone or (self.seen and self.open_from is None)


@dataclass(frozen=True, slots=True)
class IdFacts:
    """One look at an id in Ongoing or Prepare*: described first, its partitions asked after.

    state_partition: its partition of `__transaction_state`. coordinator_epoch: that one's leader
    epoch. in_sync: how many of its replicas are in sync, on brokers that answer; away: brokers of
    the others; min_in_sync: how many must be (min.insync.replicas). named: the partitions that its
    description or its newest record names; None = not asked. over_timeout, over_long: its
    coordinator's clock says that it runs longer than its timeout, than `Settings.long_after`.
    decided_long_ago: the same clock says that it is in
    Prepare* for longer than `Settings.stuck_after`. collected_at: our clock, epoch ms. ahead: ms
    that its coordinator's clock is ahead of ours; None = not measured. groups: with members, those
    of its name; groups_missing: what could not be seen of groups; groups_seen: nothing was missing.
    All three only of late Ongoing ids. log_error: why its coordinator's log was not read.
    """

    row: TransactionFacts
    collected_at: int
    state_partition: int
    coordinator_epoch: int | None = None
    in_sync: int | None = None
    min_in_sync: int | None = None
    away: tuple[int, ...] = ()
    named: tuple[NamedPartition, ...] | None = None
    over_timeout: bool | None = None
    over_long: bool | None = None
    decided_long_ago: bool | None = None
    ahead: int | None = None
    groups: tuple[GroupFacts, ...] = ()
    groups_seen: bool = True
    groups_missing: tuple[Missing, ...] = ()
    log_error: str | None = None

    @property
    def groups_unseen(self) -> tuple[Missing, ...]:
        """Return what could not be seen of groups, also where an older bundle only says that."""
        if self.groups_seen or self.groups_missing:
            return self.groups_missing
        return (Missing("group", "NOT_SEEN", "not all groups were seen"),)

    @property
    def preparing(self) -> bool:
        """Return True if the outcome is decided."""
        return self.row.state.startswith("Prepare")

    @property
    def too_few_in_sync(self) -> bool | None:
        """Return True if the log takes no record: fewer replicas are in sync than it must have."""
        if self.in_sync is None or self.min_in_sync is None:
            return None
        return self.in_sync < self.min_in_sync

    def same_transaction(self, other: "IdFacts") -> bool:
        """Both looks saw one transaction in one state."""
        a, b = self.row, other.row
        return (a.state, a.producer_id, a.producer_epoch, a.start_timestamp) == (
            b.state,
            b.producer_id,
            b.producer_epoch,
            b.start_timestamp,
        )


@dataclass(frozen=True, slots=True)
class Refusing:
    """A partition that refuses the marker of an id in Prepare*.

    above: by how much its coordinator epoch is above that of the id's coordinator; 0 = its
    producer epoch is above the Prepare*'s, or (v2) equal with something open.
    """

    partition: NamedPartition
    above: int


def refusing(
    first: IdFacts, second: IdFacts | None, client_version: int | None = None
) -> tuple[Refusing, ...]:
    """Partitions that refuse the marker of the id. client_version: of its Prepare*.

    A partition is believed as the first look saw it, the id as the second: the id was still in
    the same Prepare* after its partition had been seen, and leader epochs only grow. A producer
    epoch above its own is what an id under transactions v2 shows that completed meanwhile, and
    wrote again: of one that was decided lately it is no sign. Under v2 a marker is refused by its
    own epoch too while something is open with it (a stray: the transaction has the epoch before).
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
    """Return whether a reload of the id's coordinator cannot run into KAFKA-19999.

    recorded: the partitions of its Prepare* record. A description leaves out those whose marker
    was acknowledged. Under transactions version 2 a marker carries the epoch of the Prepare*, which
    the batches below it do not.
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
        return p.open_from is not None or epoch is None or p.producer.producer_epoch < epoch

    return all(tp in named and without_marker(named[tp]) for tp in recorded)
