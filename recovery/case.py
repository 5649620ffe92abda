"""What two looks and the history amount to for one open transaction: the facts the rules ask for.

`Case` answers the questions that the table in `recovery.verdicts` is made of.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from recovery.facts import PartitionFacts, TransactionFacts
from recovery.formats.transaction_state import TransactionValue
from recovery.history import Decision, History, StateRecord, still_open_in_log
from recovery.lost_markers import covers, lost_decisions
from recovery.observation import OpenTransaction, Sample, Settings, StartBatch

TWO_PHASE_TIMEOUT = 2_147_483_647
"""The timeout of an id that another system commits (KIP-939)."""


@dataclass(frozen=True)
class Case:
    """One open transaction with all that is known of it."""

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

    # What the coordinators say.

    def naming(self, sample: Sample) -> tuple[TransactionFacts, ...]:
        """Ids of this producer id, not closed, whose list has this partition."""
        pid, here = self.about.producer_id, self.about.topic_partition
        rows = () if pid is None else sample.live(pid)
        return tuple(t for t in rows if here in (t.partitions or ()))

    @cached_property
    def undescribed(self) -> tuple[TransactionFacts, ...]:
        """Ids of this producer id that may be open here: their partitions are not known."""
        pid = self.about.producer_id
        return tuple(
            t
            for sample in self.samples
            for t in (() if pid is None else sample.live(pid))
            if t.partitions is None
            or t.producer_epoch is None
            or (not sample.topic_describe and self.about.topic_partition not in t.partitions)
        )

    @cached_property
    def preparing(self) -> TransactionFacts | None:
        """The id that is decided and still writes its markers, this partition's among them."""
        return self._naming_now("PrepareCommit", "PrepareAbort")

    @property
    def decided_unseen(self) -> bool:
        """The partition's leader answers nobody, and its coordinator says that it is decided."""
        return (
            self.about.start_offset is None
            and self.preparing is not None
            and all(s.partition.error is not None for s in self.samples)
        )

    @cached_property
    def ongoing(self) -> TransactionFacts | None:
        """The id that is Ongoing on this partition: with the start batch, or after it."""
        return self._naming_now("Ongoing")

    def _naming_now(self, *states: str) -> TransactionFacts | None:
        oldest = -1 if self.start is None else self.start.producer_epoch
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
        """The id that is Ongoing with the start batch's epoch. + 1 is its next transaction (v2)."""
        row = self.ongoing
        fits = row and self.start and row.producer_epoch == self.start.producer_epoch
        return row if fits else None

    @cached_property
    def elsewhere(self) -> tuple[TransactionFacts, ...]:
        """Ids of this producer id that are open, but not on this partition (in either look)."""
        pid = self.about.producer_id
        found = {
            t.transactional_id: t
            for sample in self.samples
            for t in (() if pid is None else sample.live(pid))
            if self.about.topic_partition not in (t.partitions or ())
        }
        return tuple(found.values())

    @property
    def owners_changed(self) -> bool:
        """An id that named this partition in the first look says something else in the second."""
        now = {_stand(t) for t in self.naming(self.newest)}
        return any(_stand(t) not in now for t in self.naming(self.first))

    @property
    def coordinators_seen(self) -> bool:
        return all(s.sees_all_coordinators for s in self.samples)

    # What the clocks say.

    def past(self, limit: int | None, said: frozenset[str] | None) -> bool | None:
        """Does the owner run longer than `limit` ms? None: cannot tell.

        said: what the coordinators' own clocks say. Without it our clock against the start time,
        only beyond the skew, in both directions.
        """
        row = self.ongoing
        if row is None or limit is None:
            return None
        if said is not None:
            return row.transactional_id in said
        if row.start_timestamp is None:
            return None
        over = self.newest.collected_at - row.start_timestamp - limit
        return None if abs(over) <= self.settings.clock_skew else over > 0

    @property
    def past_timeout(self) -> bool | None:
        row = self.ongoing
        return self.past(row.timeout_ms if row else None, self.newest.over_timeout)

    @property
    def past_long(self) -> bool | None:
        return self.past(self.settings.long_after, self.newest.over_long)

    @property
    def prepared(self) -> StateRecord | None:
        """The Prepare* record of the id that is preparing, when the log's newest says so too."""
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
        """Decided longer than `stuck_after` ago: by the record's time, beyond the skew.

        No filter measures a Prepare*; but an id that its coordinator's clock sees running for
        less than that since its start was not decided longer ago.
        """
        record, row, limit = self.prepared, self.preparing, self.settings
        young = row and self.newest.over_stuck is not None
        if record is None or row is None:
            return False
        if young and row.transactional_id not in (self.newest.over_stuck or ()):
            return False
        return self.newest.collected_at - record.timestamp > limit.stuck_after + limit.clock_skew

    # What was decided.

    @cached_property
    def lost(self) -> tuple[Decision, ...] | None:
        """Decisions after the start batch, without marker; None = not known, or cannot tell."""
        if self.start is None or self.history is None or self.about.start_offset is None:
            return None
        seen = replace(self.history, decisions=self._decisions_until_look(self.history))
        return lost_decisions(seen, self.start, self.about.start_offset, self.settings.clock_skew)

    def _decisions_until_look(self, history: History) -> tuple[Decision, ...]:
        """Without those made after the look: a live transaction may end before the log is read."""
        row, made = self.preparing or self.ongoing, history.decisions
        for number, d in enumerate(made):
            if row and (d.transactional_id, d.started) == (
                row.transactional_id,
                row.start_timestamp,
            ):
                return made[: number + (row is self.preparing)]
        return made

    @property
    def may_hide_earlier(self) -> bool:
        """An older lost decision may have been compacted away: the found one is not the batch's.

        On v2 the decision with the batch's epoch + 1 is the only one on it; on v1 any number may
        have come before.
        """
        lost, history = self.lost, self.history
        return bool(lost and history and not history.whole and lost[0].client_version < 2)

    @property
    def lost_agree(self) -> bool:
        """One marker is right for all that is open: it closes every lost transaction at once."""
        lost, start = self.lost, self.start
        return bool(
            lost and start and covers(lost[0], start) and len({d.outcome for d in lost}) == 1
        )

    @property
    def written_beyond(self) -> bool:
        """The producer's last batch here is of a later epoch than the lost decisions decide."""
        row = self.newest.producer(self.about.producer_id or 0)
        if not self.lost or row is None:
            return False
        last = self.lost[-1]
        decided = last.producer_epoch - (1 if last.client_version >= 2 else 0)
        return row.producer_epoch > decided

    @property
    def deciders_seen(self) -> bool:
        """The id of each lost decision was seen in every look: it is not in Prepare* here."""
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
    def lost_earlier(self) -> bool:
        """A decision older than the one that is being carried out lacks its marker too."""
        row = self.preparing
        return row is not None and len(self.lost or ()) > 1

    @property
    def hidden_in_log(self) -> StateRecord | None:
        """The log says this producer id is open, here or elsewhere, and no coordinator does."""
        listed = {t.transactional_id: t for t in self.newest.live(self.about.producer_id or 0)}
        here = self.about.topic_partition
        for r in still_open_in_log(self.history) if self.history else ():
            row = listed.get(r.transactional_id)
            named = r.value.partitions if isinstance(r.value, TransactionValue) else ()
            if row is None or (here in named and here not in (row.partitions or ())):
                return r
        return None

    @property
    def nothing_decided_below(self) -> bool:
        """No older, decided transaction of the id lies under the open one (it would be `mixed`).

        On v2 each transaction has its own epoch, so an owner that fits is the only one.
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
        return self.owner is not None and is_two_phase(self.owner, self.settings)

    @property
    def still_writing(self) -> bool:
        """Its producer's state here changed between the looks: somebody writes with this id."""
        rows = [s.producer(self.about.producer_id or 0) for s in self.samples]
        stands = {r and (r.producer_epoch, r.last_sequence, r.last_timestamp) for r in rows}
        return len(stands) > 1

    @property
    def age(self) -> tuple[float | None, Literal["coordinator", "producer"] | None]:
        """Seconds, and by whose clock: since its start (coordinator) or last batch (producer).

        None where the times do not make sense against our clock.
        """
        row, about = self.preparing or self.ongoing, self.about
        last = None if about.producer_id is None else self.newest.producer(about.producer_id)
        clock: Literal["coordinator", "producer"] = "coordinator" if row else "producer"
        since = row.start_timestamp if row else last.last_timestamp if last else None
        if since is None or since > self.newest.collected_at:
            return None, None
        return (self.newest.collected_at - since) / 1000, clock

    @property
    def leaderless(self) -> tuple[str, ...]:
        """Partitions in the Prepare* record that have no leader that answers, or were not asked."""
        row, record = self.preparing, self.prepared
        value = record.value if record else None
        wanted = value.partitions if isinstance(value, TransactionValue) else None
        seen: dict[tuple[str, int], PartitionFacts] = {
            (p.topic, p.partition): p for p in (*self.newest.named, self.newest.partition)
        }
        return tuple(
            f"{topic}:{number}"
            for topic, number in wanted or (row.partitions if row and row.partitions else ())
            if (p := seen.get((topic, number))) is None or p.leader is None or p.error is not None
        )


def _stand(row: TransactionFacts) -> tuple[str, str, int | None]:
    # Ongoing may become Prepare* between the looks; that is judged by its new state
    return row.transactional_id, "Ongoing" if row.state == "Ongoing" else "*", row.producer_epoch


def is_two_phase(row: TransactionFacts, settings: Settings) -> bool:
    """Another system commits or aborts this id (KIP-939, or a name as Flink gives)."""
    return row.timeout_ms == TWO_PHASE_TIMEOUT or any(
        re.fullmatch(p, row.transactional_id) for p in settings.two_phase_patterns
    )
