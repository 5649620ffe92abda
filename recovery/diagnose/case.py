"""Derive the facts that the rules use from the samples and the history of one open transaction.

The conditions in the rule table of `recovery.diagnose.verdicts` are written in terms of `Case`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from recovery.facts import (
    CoordinatorFacts,
    GroupFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
)
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.connect_ids import LEADER
from recovery.inspect.group_life import GroupLife, group_life, own_process
from recovery.inspect.history import (
    Decision,
    History,
    StateRecord,
    bearers_in_log,
    still_open_in_log,
)
from recovery.inspect.id_facts import IdFacts, Refusing, refusing, reload_is_safe
from recovery.inspect.lost_markers import covers, lost_decisions, topic_unclear
from recovery.inspect.observation import (
    CLOSED_STATES,
    OpenTransaction,
    Sample,
    Settings,
    StartBatch,
)
from recovery.inspect.two_phase import deadline, is_two_phase, looks_precommitted
from recovery.values import Reason, Value, replace

CYCLES_PATIENCE = 2
"""After this many missed abort cycles, assume the coordinator will not abort the transaction."""


class Case(Value, dict=True):
    """One open transaction and everything known about it."""

    about: OpenTransaction
    start: StartBatch | None
    first: Sample
    second: Sample | None
    history: History | None
    settings: Settings

    @cached_property
    def newest(self) -> Sample:
        return self.second or self.first

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def twice(self) -> bool:
        return self.second is not None

    # What the coordinators report.

    def naming(self, sample: Sample) -> tuple[TransactionFacts, ...]:
        """Return the open ids of this producer id whose partition list includes this partition."""
        here = self.about.topic_partition
        return tuple(t for t in self._live(sample) if here in (t.partitions or ()))

    def _live(self, sample: Sample) -> tuple[TransactionFacts, ...]:
        pid = self.about.producer_id
        return () if pid is None else sample.live(pid)

    def _producer(self, sample: Sample) -> ProducerFacts | None:
        pid = self.about.producer_id
        return None if pid is None else sample.producer(pid)

    @cached_property
    def undescribed(self) -> tuple[TransactionFacts, ...]:
        """Return ids of this producer id that may be open here: their partitions are unknown."""
        return tuple(
            t
            for sample in self.samples
            for t in self._live(sample)
            if t.partitions is None
            or t.producer_epoch is None
            or (not sample.topic_describe and self.about.topic_partition not in t.partitions)
        )

    @cached_property
    def preparing(self) -> TransactionFacts | None:
        """Return the id that is decided and still has to write its marker to this partition."""
        return self._naming_now("PrepareCommit", "PrepareAbort")

    @property
    def decided_unseen(self) -> bool:
        """Return True if the coordinator reports a decision but the leader here does not answer."""
        return (
            self.about.start_offset is None
            and self.preparing is not None
            and all(s.partition.error is not None for s in self.samples)
        )

    @cached_property
    def ongoing(self) -> TransactionFacts | None:
        """Return the id that is Ongoing on this partition, in the start batch's epoch or later."""
        return self._naming_now("Ongoing")

    def _naming_now(self, *states: str) -> TransactionFacts | None:
        oldest = 0 if self.start is None else self.start.producer_epoch
        return next(
            (
                t
                for t in self.naming(self.newest)
                if t.state in states and t.producer_epoch is not None and t.producer_epoch >= oldest
            ),
            None,
        )

    @property
    def owner(self) -> TransactionFacts | None:
        """Return the id Ongoing in the start batch's epoch; epoch + 1 is v2's next transaction."""
        row = self.ongoing
        start = self.start
        fits = row and start and (start.deleted or row.producer_epoch == start.producer_epoch)
        return row if fits else None

    @cached_property
    def elsewhere(self) -> tuple[TransactionFacts, ...]:
        """Return ids of this producer id that any sample shows open, but not on this partition."""
        others = {
            t.transactional_id: t
            for sample in self.samples
            for t in self._live(sample)
            if self.about.topic_partition not in (t.partitions or ())
        }
        return tuple(others.values())

    @property
    def owners_changed(self) -> bool:
        """Return True if an id that named this partition in the first sample has changed since."""
        now = {_stand(t) for t in self.naming(self.newest)}
        return any(_stand(t) not in now for t in self.naming(self.first))

    @property
    def coordinators_seen(self) -> bool:
        return all(s.sees_all_coordinators for s in self.samples)

    @property
    def is_unnamed(self) -> bool:
        """Return True if no id names this partition now and enough was seen to be sure of that."""
        return not self.naming(self.newest) and (self.coordinators_seen or bool(self.lost))

    # What was seen of the owner.

    @property
    def life(self) -> GroupLife:
        """Return the signs of life of the groups that the id is named after (Streams, Connect)."""
        row = self._held_by
        if row is None:
            return GroupLife()
        return life_of(row.transactional_id, self.newest.groups, self.newest.groups_missing)

    @property
    def moved(self) -> bool:
        """Return True if the owner wrote here or added a partition between the two samples."""
        row = self._held_by
        if row is None:
            return False
        before = next(
            (t for t in self.first.transactions.rows if t.transactional_id == row.transactional_id),
            None,
        )
        return self.still_writing or (before is not None and before.partitions != row.partitions)

    @property
    def late(self) -> bool:
        """Return True if the transaction has exceeded its timeout or --long-after."""
        row, newest = self._held_by, self.newest
        late = (newest.over_timeout or frozenset()) | (newest.over_long or frozenset())
        by_ours = bool(self.past_timeout or self.past_long)
        return by_ours or (row is not None and row.transactional_id in late)

    @property
    def _held_by(self) -> TransactionFacts | None:
        """Return the id that a fence would end: Ongoing here, else elsewhere (same producer id)."""
        return self.ongoing or next((t for t in self.elsewhere if t.state == "Ongoing"), None)

    @property
    def short_log(self) -> CoordinatorFacts | None:
        """Return the coordinator's log if it has too few in-sync replicas to end a transaction."""
        row = self._held_by
        log = None if row is None else self.newest.transactions.log_of(row.transactional_id)
        return log if log is not None and log.takes_no_record else None

    @property
    def unled(self) -> tuple[str, ...]:
        """Return the open transaction's partitions without an answering leader."""
        row = self._held_by
        here = () if row is None else row.partitions or ()
        return tuple(
            str(p.topic_partition)
            for p in self.newest.named
            if p.topic_partition in here and (p.leader is None or p.error is not None)
        )

    # What the clocks show.

    @property
    def ahead(self) -> int | None:
        """Return how many ms the coordinator's clock is ahead of ours; None if not measured."""
        row = self.preparing or self.ongoing
        return None if row is None else self.newest.transactions.ahead(row.coordinator)

    @property
    def coordinators_now(self) -> int:
        """Return the newest sample's time by the coordinator's clock if measured, else by ours."""
        return self.newest.collected_at + (self.ahead or 0)

    @property
    def deadline(self) -> int | None:
        """Return when the coordinator aborts the open transaction (`two_phase.deadline`)."""
        return None if self.ongoing is None else deadline(self.ongoing)

    @property
    def deadline_in(self) -> int | None:
        """Return milliseconds to the deadline, negative once it has passed. None: there is no
        deadline, or the clocks contradict the coordinator's own duration filter."""
        if self.deadline is None:
            return None
        left = self.deadline - self.coordinators_now
        past = self.past_timeout
        return None if past is not None and past != (left < 0) and self.ahead is None else left

    @property
    def abort_cycle(self) -> int | None:
        """Return the ms between the coordinator's checks for transactions past their timeout."""
        row = self.ongoing
        cycles = dict(self.newest.abort_cycles)
        return cycles.get(row.coordinator) if row and self.past_timeout else None

    @property
    def cycles_missed(self) -> int | None:
        """Return how many abort cycles the coordinator has missed since the deadline, if proven by
        its own measured clock and setting. None: fewer than `CYCLES_PATIENCE`, or unknown.
        """
        left, cycle = self.deadline_in, self.abort_cycle
        if left is None or not cycle or self.ahead is None or -left < CYCLES_PATIENCE * cycle:
            return None
        return -left // cycle

    def past(self, limit: int | None, late_ids: frozenset[str] | None) -> bool | None:
        """Return True if the transaction has run longer than `limit` ms, None if that is unknown.

        late_ids: what the coordinators' own clocks report. Without them, our clock is compared with
        the start time, and a difference within the skew gives None.
        """
        row = self.ongoing
        if row is None or limit is None:
            return None
        if late_ids is not None:
            return row.transactional_id in late_ids
        if row.start_timestamp is None:
            return None
        over, skew = self.coordinators_now - row.start_timestamp - limit, self.settings.clock_skew
        if over > skew:
            return True
        return False if over < -skew else None

    @property
    def past_timeout(self) -> bool | None:
        row = self.ongoing
        return self.past(row.timeout_ms if row else None, self.newest.over_timeout)

    @property
    def past_long(self) -> bool | None:
        return self.past(self.settings.long_after, self.newest.over_long)

    @property
    def prepared(self) -> StateRecord | None:
        """Return the preparing id's Prepare* record if it is still the newest one in the log."""
        row = self.preparing
        return next(
            (
                r
                for r in (self.history.latest if self.history else ())
                if row is not None
                and r.transactional_id == row.transactional_id
                and isinstance(r.value, TransactionValue)
                and r.value.state == row.state
                and r.value.producer_epoch == row.producer_epoch
            ),
            None,
        )

    @property
    def prepared_long_ago(self) -> bool:
        """Return True if the id was decided more than `stuck_after` (plus the skew) ago.

        The age comes from the record's timestamp, since no filter measures a Prepare*. But if the
        coordinator's clock shows a shorter run since the start, the decision cannot be older.
        """
        record, stuck_ids = self.prepared, self.newest.over_stuck
        if record is None:
            return False
        if stuck_ids is not None and record.transactional_id not in stuck_ids:
            return False
        past, skew = self.coordinators_now - record.timestamp, self.settings.clock_skew
        if past < -skew and stuck_ids is not None:
            return True  # our clock is implausible; the coordinator's own clock says the id is late
        return past > self.settings.stuck_after + skew

    # What prevents a decided id from writing its markers.

    @cached_property
    def standing(self) -> IdFacts | None:
        """Return the first sample's facts on the preparing id, with the partitions it names."""
        row = self.preparing
        return None if row is None else self.first.standing(row.transactional_id)

    @cached_property
    def refusing(self) -> tuple[Refusing, ...]:
        """Return partitions that refuse the marker; one refusal cancels the markers of all."""
        first = self.standing
        if first is None:
            return ()
        second = self.second.standing(first.row.transactional_id) if self.second else None
        if self.twice and second is None:
            return ()
        return refusing(first, second, self.prepared_version)

    @property
    def reload_safe(self) -> bool:
        """Return True if a reload of the coordinator cannot run into KAFKA-19999."""
        value = self.prepared.value if self.prepared else None
        return reload_is_safe(
            self.standing,
            self.prepared_version,
            value.partitions if isinstance(value, TransactionValue) else None,
        )

    @property
    def prepared_version(self) -> int | None:
        """Return the client's transaction version from the Prepare* record; None if unknown."""
        value = self.prepared.value if self.prepared else None
        return value.client_transaction_version if isinstance(value, TransactionValue) else None

    @property
    def prepare_proves(self) -> str | None:
        """Return the outcome that a Prepare* proves for the start batch; None: it proves nothing.

        The outcome is proven if no other decision lacks a marker and no older one can be compacted.
        """
        row, start, lost = self.preparing, self.start, self.lost
        if row is None or start is None or lost is None or len(lost) != 1:
            return None
        fits = row.producer_epoch in (start.producer_epoch, start.producer_epoch + 1)
        if not fits or self.may_hide_earlier or not self.lost_agree:
            return None
        return row.decided if lost[0].outcome == row.decided else None

    # What was decided.

    @cached_property
    def lost(self) -> tuple[Decision, ...] | None:
        """Return decisions after the start batch that have no marker; None if that is unknown."""
        question = self._question
        return None if question is None else lost_decisions(*question, self.settings.clock_skew)

    @cached_property
    def _question(self) -> tuple[History, StartBatch, int] | None:
        """Return the arguments for questions about the past; None if one of them was not seen."""
        past, start, offset = self._past, self.start, self.about.start_offset
        return None if past is None or start is None or offset is None else (past, start, offset)

    @cached_property
    def _past(self) -> History | None:
        """Return the history as it was at the newest sample."""
        history = self.history
        return history and replace(history, decisions=self._decisions_until_look(history))

    @property
    def topic_unclear(self) -> bool:
        """Return True if v1 decisions may be about an earlier topic of the same name."""
        return self._question is not None and topic_unclear(*self._question)

    @property
    def cache_decides(self) -> bool:
        """Return True if the result depends on what only this host's cache knows."""
        if self._question is None:
            return False
        past, start, offset = self._question
        skew = self.settings.clock_skew
        return self.lost != lost_decisions(past.without_cache, start, offset, skew)

    @property
    def replaced(self) -> Mapping[str, Any] | None:
        """Return what shows that `__transaction_state` is a later log than the batch, if anything.

        detail: a sentence of whoever read it; else two coordinator epochs: the one that a marker of
        this producer bears is above the one of the log; or name: an id that is `not_known`.
        """
        history = self.history
        if history is None or history.reason not in (None, "history-compacted", "history-replaced"):
            return None
        if history.reason == "history-replaced":
            return None if history.detail is None else {"detail": history.detail}
        row = self._producer(self.newest)
        marked, epoch = row.coordinator_epoch if row else None, history.leader_epoch
        if marked is not None and epoch is not None and marked > epoch:
            return {"marked": marked, "log_epoch": epoch}
        return None if self.not_known is None else {"name": self.not_known}

    def _decisions_until_look(self, history: History) -> tuple[Decision, ...]:
        """Leave out decisions made after the sample and before the log was read.

        Decisions that only the cache knows are older: the coordinator lost them and says Ongoing.
        """
        row, made = self.preparing or self.ongoing, history.decisions
        for number, d in enumerate(made):
            if (
                row
                and (d.transactional_id, d.started) == (row.transactional_id, row.start_timestamp)
                and d.source != "forgotten"
            ):
                return made[: number + (row is self.preparing)]
        return made

    @property
    def may_hide_earlier(self) -> bool:
        """Return True if an older lost decision, the batch's own, may have been compacted away.

        On v1 any number may have come before. A v2 end proves nothing about the start: a v2 client
        may have resumed a v1 transaction, and a fence or a timeout carries the server's version. If
        the record that began the batch's epoch was read too, no decision in that epoch is missing.
        """
        past, lost = self.history, self.lost
        if past is None or past.whole or not lost:
            return False
        return self.lost_by_order or not lost[0].begun

    @property
    def lost_by_order(self) -> bool:
        """Return True if the oldest lost decision is v1, identified by order and not by epoch."""
        if not self.lost:
            return False
        return self.lost[0].client_version < 2

    @property
    def lost_agree(self) -> bool:
        """Return True if one marker, which closes all lost transactions, is right for each."""
        lost, start = self.lost, self.start
        return bool(
            lost
            and start
            and covers(lost[0], start, self.history.ended_by if self.history else None)
            and len({d.outcome for d in lost}) == 1
        )

    @property
    def coordinator_lost_it(self) -> bool:
        """Return True if a lost decision is on the Ongoing transaction: its log lost its end."""
        row = self.ongoing
        return row is not None and any(
            (d.transactional_id, d.started) == (row.transactional_id, row.start_timestamp)
            for d in self.lost or ()
        )

    @property
    def written_beyond(self) -> bool:
        """Return True if the producer's last batch is beyond the epochs of the lost decisions."""
        row = self._producer(self.newest)
        if not self.lost or row is None:
            return False
        last = self.lost[-1]
        decided = last.producer_epoch - (1 if last.client_version >= 2 else 0)
        return row.producer_epoch > decided

    @property
    def deciders_seen(self) -> bool:
        """Return True if every sample saw the ids of lost decisions: none is in Prepare* here."""
        return all(
            s.sees_all_coordinators
            or any(
                t.transactional_id == d.transactional_id and t.error is None
                for t in s.transactions.rows
            )
            for d in self.lost or ()
            for s in self.samples
        )

    @property
    def hidden_in_log(self) -> StateRecord | None:
        """Return the record by which this producer id is open although no coordinator reports it.

        An id that a coordinator shows is not hidden, unless it shows this epoch without this
        partition. Under v2 a later epoch is a later transaction: no evidence on the batch's own.
        """
        shown = {t.transactional_id: t for t in self.newest.transactions.rows if not t.ghost}
        here = self.about.topic_partition
        for r in still_open_in_log(self.history) if self.history and not self.id_moved else ():
            v, row = r.value, shown.get(r.transactional_id)
            if not isinstance(v, TransactionValue) or self._is_later(v):
                continue
            same = row is not None and row.producer_epoch == v.producer_epoch
            if row is not None and row.state in CLOSED_STATES:
                continue
            if row is None or (
                same and here in v.partitions and here not in (row.partitions or ())
            ):
                return r
        return None

    @property
    def not_known(self) -> str | None:
        """Return an id that has this producer id by its newest record and that its coordinator
        does not know; None also for one that only a missing right hides.

        A log says when an id expires. A replica that lost the newer records of an id may have
        removed the older ones before: how the id's last transaction ended is lost.
        """
        shown = {t.transactional_id for s in self.samples for t in s.transactions.rows}
        shown |= {m.id for s in self.samples for m in s.denied if m.refused and m.id}
        in_log = bearers_in_log(self.history) if self.history else ()
        return next((r.transactional_id for r in in_log if r.transactional_id not in shown), None)

    def _is_later(self, value: TransactionValue) -> bool:
        """Return True for an Ongoing v2 transaction with a later epoch than the start batch's."""
        return (
            self.start is not None
            and value.state is TransactionState.ONGOING
            and value.client_transaction_version >= 2
            and value.producer_epoch > self.start.producer_epoch
        )

    @property
    def log_error(self) -> str | None:
        """Return the error with which `__transaction_state` could not be read."""
        return self.history.log_error if self.history else None

    @property
    def refused_describe(self) -> Missing | None:
        """Return what the coordinator answered about the id that is hidden in the log."""
        hidden = self.hidden_in_log
        named = None if hidden is None else hidden.transactional_id
        return next((m for m in self.newest.denied if m.id == named), None)

    @property
    def vanished(self) -> bool:
        """Return True if the second sample lacks the transaction, without proof of its end."""
        pid, second = self.about.producer_id, self.second
        if pid is None or second is None:
            return False
        row = second.producer(pid)
        return row is None or row.current_txn_start_offset != self.about.start_offset

    @property
    def unread(self) -> Missing | None:
        """Return why the start batch is missing: the answer to its Fetch."""
        return next((m for at, m in self.newest.unread if at == self.about.start_offset), None) or (
            next((m for at, m in self.first.unread if at == self.about.start_offset), None)
        )

    @property
    def id_moved(self) -> str | None:
        """Return an id whose current coordinator does not know what its records say."""
        return self.history.moved if self.history else None

    @property
    def open_where_it_was(self) -> bool:
        """Return True if the records of a moved id end with an undecided transaction."""
        return self.history is not None and any(
            isinstance(r.value, TransactionValue) and r.value.state is TransactionState.ONGOING
            for r in still_open_in_log(self.history)
        )

    @property
    def nothing_decided_below(self) -> bool:
        """Return True if no decided transaction of the id lies under the open one (`mixed`).

        On v2 the partition's leader adds it to the transaction, and only if no other is open there
        in that epoch. So a v2 record of the owner shows that it is the only one in its epoch.
        """
        if self.lost is None or self.lost or self.history is None:
            return False
        return self.history.whole or any(
            isinstance(r.value, TransactionValue)
            and self.owner is not None
            and r.transactional_id == self.owner.transactional_id
            and r.value.producer_epoch == self.owner.producer_epoch
            and r.value.producer_id == self.owner.producer_id
            and r.value.client_transaction_version >= 2
            for r in self.history.latest
        )

    # The rest.

    @property
    def two_phase(self) -> bool:
        return self.owner is not None and is_two_phase(self.owner)

    @property
    def gate(self) -> Reason | None:
        """Return why a fence of the id that is Ongoing, here or elsewhere, needs --owner-is-gone.

        None: nothing seen speaks against a fence. How long the id has run is not considered.
        """
        row = self._held_by
        if row is None:
            return None
        return gate_of(
            row,
            self.settings,
            late=self.late,
            moved=self.moved,
            groups=self.newest.groups,
            missing=self.newest.groups_missing,
        )

    @property
    def still_writing(self) -> bool:
        """Return True if the producer's state changed between the samples: it still writes."""
        rows = [self._producer(s) for s in self.samples]
        stands = {r and (r.producer_epoch, r.last_sequence, r.last_timestamp) for r in rows}
        return len(stands) > 1

    @property
    def age(self) -> tuple[float | None, Literal["coordinator", "producer"] | None]:
        """Return the seconds since the start or the last batch, and the clock they are measured by.

        None if the times are implausible by our clock and the coordinator's clock is unknown.
        """
        row = self.preparing or self.ongoing
        last = self._producer(self.newest)
        clock: Literal["coordinator", "producer"] = "coordinator" if row else "producer"
        since = row.start_timestamp if row else last.last_timestamp if last else None
        now = self.coordinators_now if row else self.newest.collected_at
        if since is None or since > now:
            return None, None
        return (now - since) / 1000, clock

    @property
    def made_anew(self) -> bool:
        """Return True if the two samples saw different topic ids, that is, two different logs."""
        return len({s.partition.topic_id for s in self.samples} - {None}) > 1

    @property
    def leaderless(self) -> tuple[str, ...]:
        """Return the Prepare* record's partitions that have no answering leader or are unseen."""
        row, record = self.preparing, self.prepared
        value = record.value if record else None
        recorded = value.partitions if isinstance(value, TransactionValue) else None
        facts: dict[TopicPartition, PartitionFacts] = {
            p.topic_partition: p for p in (*self.newest.named, self.newest.partition)
        }
        return tuple(
            str(partition)
            for partition in recorded or (row.partitions if row and row.partitions else ())
            if (p := facts.get(partition)) is None or p.leader is None or p.error is not None
        )


def _stand(row: TransactionFacts) -> tuple[str, str, int | None]:
    # Ongoing may become Prepare* between the samples; the new state is then what is judged
    return row.transactional_id, "Ongoing" if row.state == "Ongoing" else "*", row.producer_epoch


def named_after(transactional_id: str, group: str) -> bool:
    """Return True if the id is named after the group, as in Streams and Connect (leader too)."""
    first = f"{transactional_id}-".startswith(f"{group}-")
    return bool(group) and (first or transactional_id == LEADER + group)


def possible_groups(transactional_id: str) -> list[str]:
    """Return every group name that the id may be named after (see `named_after`).

    >>> possible_groups("app-6b1d-1")
    ['app', 'app-6b1d', 'app-6b1d-1']
    """
    words = transactional_id.split("-")
    names = ["-".join(words[:n]) for n in range(1, len(words) + 1)]
    if transactional_id.startswith(LEADER):
        names.append(transactional_id.removeprefix(LEADER))
    return [name for name in dict.fromkeys(names) if name]


def clients_of(transactional_id: str, groups: Iterable[GroupFacts]) -> list[tuple[str, str]]:
    """Return the (client id, host) of who may own the id: the members of its Kafka Streams process,
    else of the groups that it is named after."""
    mine = [g for g in groups if named_after(transactional_id, g.group)]
    members = {member for g in mine for member in g.members or ()}
    return own_process(transactional_id, mine) or sorted(members)


def life_of(
    transactional_id: str, groups: Sequence[GroupFacts], missing: Sequence[Missing]
) -> GroupLife:
    """Return the signs of life of the groups that an id is named after; others are ignored."""
    return group_life(groups, missing, lambda group: named_after(transactional_id, group))


def gate_of(
    row: TransactionFacts,
    settings: Settings,
    *,
    late: bool,
    moved: bool,
    groups: Sequence[GroupFacts],
    missing: Sequence[Missing],
) -> Reason | None:
    """Return why a fence of an Ongoing id needs --owner-is-gone; None: nothing speaks against it.

    late: the id is past a limit; signs of life are only checked then. moved: its owner did
    something between two samples. groups: those that the id is named after count, others are
    ignored. missing: what could not be seen of the groups.
    """
    name = {"name": row.transactional_id}
    if is_two_phase(row):
        return Reason("is-two-phase", name)
    if looks_precommitted(row, settings, groups):
        return Reason("may-be-precommitted", name)
    if not late:
        return None
    if moved:
        return Reason("worked-on", name)
    life = life_of(row.transactional_id, groups, missing)
    if life.living:
        return Reason("group-has-members", {**name, "groups": life.names})
    return Reason("group-not-seen", {**name, "unseen": life.unseen[0]}) if life.unseen else None
