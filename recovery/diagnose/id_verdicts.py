"""Judge a transactional id that holds no partition and is not at rest, in one table of rules.

An id in Ongoing or Prepare* blocks its own client (CONCURRENT_TRANSACTIONS) even if no reader
waits for it. `RULES` is evaluated from the top, like `recovery.diagnose.verdicts.RULES`, which
judges the ids that do hold a partition. Ambiguous facts are read as follows:

- Invisible is not empty. Without DESCRIBE on a topic, a coordinator silently leaves that topic out
  of an id's partitions; the id's record in `__transaction_state` names them all. A fence is
  offered only if both agree.
- A state that can be normal for a moment (a coordinator that is completing or moving) is a finding
  only if a second sample finds the id in the same Prepare*.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

from recovery.diagnose import id_remedies
from recovery.diagnose.case import gate_of
from recovery.diagnose.evidence import Evidence, brokers_away, whose_clock
from recovery.diagnose.remedies import Remedy, of_its_system, of_live, start_brokers_first
from recovery.diagnose.verdicts import VerdictName, granted_or, was_refused
from recovery.facts import CoordinatorFacts, TopicPartition, TransactionFacts
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.id_facts import IdFacts, NamedPartition, Refusing, refusing, reload_is_safe
from recovery.inspect.observation import Settings
from recovery.inspect.two_phase import deadline, is_two_phase
from recovery.plurals import listed
from recovery.times import span
from recovery.values import Value


class IdCase(Value, dict=True):
    """One id in Ongoing or Prepare* and everything known about it.

    record: the id's newest record in its coordinator's log, if it matches this state; None: not
    read, or the log says something else.
    """

    first: IdFacts
    second: IdFacts | None
    record: StateRecord | None
    settings: Settings

    @property
    def newest(self) -> IdFacts:
        return self.second or self.first

    @property
    def row(self) -> TransactionFacts:
        return self.newest.row

    @property
    def name(self) -> str:
        return self.row.transactional_id

    @property
    def twice(self) -> bool:
        """Return True if two samples saw one transaction in one state."""
        return self.second is not None and self.first.same_transaction(self.second)

    @property
    def described(self) -> bool:
        row = self.row
        known = row.partitions is not None and row.producer_epoch is not None
        return known and row.error is None

    @property
    def short_log(self) -> CoordinatorFacts | None:
        """Return the coordinator's log if it has too few in-sync replicas to end a transaction."""
        look = self.newest
        if look.preparing or not look.too_few_in_sync:
            return None
        return CoordinatorFacts(
            look.state_partition,
            self.row.coordinator,
            seen=True,
            in_sync=look.in_sync,
            away=look.away,
            least=look.min_in_sync,
        )

    @cached_property
    def refusing(self) -> tuple[Refusing, ...]:
        """Return the partitions that refuse the coordinator's marker."""
        return refusing(self.first, self.second, self.client_version)

    @property
    def recorded(self) -> tuple[TopicPartition, ...] | None:
        """Return the partitions that the record names; None = its record was not read."""
        value = self.record.value if self.record else None
        if not isinstance(value, TransactionValue):
            return None
        row = self.row
        fits = (value.state, value.producer_id, value.producer_epoch) == (
            row.state,
            row.producer_id,
            row.producer_epoch,
        )
        return value.partitions if fits else None

    @property
    def client_version(self) -> int | None:
        """Return the client's transaction version (tag 2 of the record); None if unknown."""
        value = self.record.value if self.record else None
        if not isinstance(value, TransactionValue) or self.recorded is None:
            return None
        return value.client_transaction_version

    @property
    def reload_safe(self) -> bool:
        """Return True if a reload of the coordinator cannot run into KAFKA-19999."""
        return reload_is_safe(self.first, self.client_version, self.recorded)

    @property
    def all_visible(self) -> bool:
        """Return True if the description names every partition that the record names.

        A transaction begins with its first partition, so an empty record hides partitions.
        """
        if not self.recorded:
            return False
        return set(self.recorded) <= set(self.row.partitions or ())

    @property
    def unseen(self) -> tuple[NamedPartition, ...]:
        """Return the named partitions whose leader did not describe their producers."""
        return tuple(p for p in self.first.named or () if not p.seen and not p.gone)

    @property
    def written(self) -> bool:
        """Return True if every partition in the Prepare* record has its marker or needs none."""
        named = {p.topic_partition: p for p in self.first.named or ()}
        partitions = self.recorded
        return partitions is not None and all(tp in named and named[tp].closed for tp in partitions)

    @property
    def holding(self) -> tuple[NamedPartition, ...]:
        """Return the named partitions on which the id's producer has an open transaction."""
        return tuple(p for p in self.first.named or () if p.open_from is not None)

    def past(self, late: bool | None, limit: int | None) -> bool | None:
        """Return True if the transaction has run longer than `limit` ms, None if that is unknown.

        late: what the coordinator's own clock reports. None: our clock decides, beyond the skew.
        """
        since = self.row.start_timestamp
        if late is not None or limit is None or since is None:
            return late
        over = self.coordinators_now - since - limit
        return None if abs(over) <= self.settings.clock_skew else over > 0

    @property
    def past_timeout(self) -> bool | None:
        return self.past(self.newest.over_timeout, self.row.timeout_ms)

    @property
    def past_long(self) -> bool | None:
        return self.past(self.newest.over_long, self.settings.long_after)

    @property
    def coordinators_now(self) -> int:
        """Return the newest sample's time by the coordinator's clock if measured, else by ours."""
        return self.newest.collected_at + (self.newest.ahead or 0)

    @property
    def age_seconds(self) -> float | None:
        """Return the seconds since the transaction began; None if the clocks disagree."""
        since = self.row.start_timestamp
        if since is None or since > self.coordinators_now:
            return None
        return (self.coordinators_now - since) / 1000

    @property
    def deadline(self) -> int | None:
        """Return when the coordinator aborts the open transaction (`two_phase.deadline`)."""
        return deadline(self.row)

    @property
    def gate(self) -> str | None:
        """Return why a fence needs --owner-is-gone; None: nothing speaks against a fence."""
        if self.row.state != "Ongoing":
            return None
        return gate_of(
            self.row,
            self.settings,
            late=bool(self.past_timeout) or bool(self.past_long),
            moved=self.first.row.partitions != self.row.partitions,
            groups=self.newest.groups,
            missing=self.newest.groups_unseen,
        )


class IdVerdict(Value):
    """The verdict on one transactional id that holds no partition.

    rule: the rule that matched; for `unknown`, the reason. proven_outcome: commit or abort, for a
    Prepare*. gate, deadline, deadline_in: as in `recovery.diagnose.verdicts.Verdict`. all_visible:
    nothing seen says that its open transaction is on partitions that are hidden from us.
    age_seconds: since the transaction began, by the coordinator's clock.
    """

    about: TransactionFacts
    name: VerdictName
    rule: str
    evidence: tuple[Evidence, ...]
    remedy: Remedy
    proven_outcome: str | None = None
    gate: str | None = None
    all_visible: bool = False
    deadline: int | None = None
    deadline_in: int | None = None
    age_seconds: float | None = None
    age_clock: Literal["coordinator"] | None = None
    samples: int = 1


class IdRule(Value):
    """A row of the table. name: the reason if `unknown`. why: evidence after that on the id."""

    name: str
    when: Callable[[IdCase], bool]
    verdict: VerdictName
    remedy: Callable[[IdCase], Remedy]
    why: Callable[[IdCase], Sequence[Evidence]] = lambda c: ()


def _unknown(
    name: str,
    when: Callable[[IdCase], bool],
    why: Callable[[IdCase], str],
    then: str | Callable[[IdCase], str],
) -> IdRule:
    return IdRule(
        name,
        when,
        "unknown",
        lambda c: Remedy("none", then if isinstance(then, str) else then(c)),
        lambda c: [Evidence(name, why(c))],
    )


def _names(partitions: Sequence[NamedPartition]) -> str:
    return ", ".join(p.name for p in partitions)


def _answers(partitions: Sequence[NamedPartition]) -> str:
    """List each partition with the error that kept its producers from being seen."""
    return ", ".join(p.name + (f" ({p.error})" if p.error else "") for p in partitions)


def _see_producers(c: IdCase) -> str:
    refused = sorted({p.facts.topic for p in c.unseen if was_refused(p.error)})
    return granted_or(
        [p.error for p in c.unseen],
        f"READ on {listed(refused, 'topic')}",
        "ask again; wait until the leaders of these partitions answer",
    )


def _record_not_read(c: IdCase) -> str:
    error = c.newest.log_error
    return "its record was not read" + (f" ({error})" if error else "")


def _read_the_log(c: IdCase) -> str:
    return granted_or(
        [c.newest.log_error],
        "READ on __transaction_state",
        "ask again, until the log of its coordinator is read",
    )


def _to_see_all(c: IdCase) -> str | None:
    """Say what to grant so that all partitions of the transaction are seen; None = all are.

    A coordinator silently leaves out topics without DESCRIBE, but the id's record names them.
    """
    if c.all_visible:
        return None
    visible = set(c.row.partitions or ())
    hidden = sorted({topic for topic, n in c.recorded or () if (topic, n) not in visible})
    return f"grant DESCRIBE on {listed(hidden, 'topic')}" if hidden else _read_the_log(c)


def _past_the_fence(c: IdCase) -> Remedy:
    return id_remedies.past_the_fence(
        c.refusing, c.first, reload_safe=c.reload_safe, client_version=c.client_version
    )


RULES: tuple[IdRule, ...] = (
    _unknown(
        "id-not-described",
        lambda c: not c.described,
        lambda c: (
            f"broker {c.row.coordinator} answered DescribeTransactions with "
            f"{c.row.error or 'nothing'}"
        ),
        lambda c: granted_or(
            [c.row.error],
            "DESCRIBE on that transactional id",
            "ask again, until its coordinator describes it",
        ),
    ),
    # Decided.
    _unknown(
        "refused-seen-once",
        lambda c: bool(c.refusing) and not c.twice,
        lambda c: "a partition refuses its marker, but that was seen only once",
        "look again after the sample interval",
    ),
    IdRule(
        "coordinator-fenced",
        lambda c: any(r.above for r in c.refusing),
        "coordinator-fenced",
        _past_the_fence,
        lambda c: id_remedies.about_refusal(c.refusing, c.first),
    ),
    IdRule(
        "producer-epoch-above",
        lambda c: bool(c.refusing),
        "coordinator-fenced",
        _past_the_fence,
        lambda c: id_remedies.about_refusal(c.refusing, c.first),
    ),
    IdRule(
        "markers-being-written",
        lambda c: c.first.preparing and c.newest.decided_long_ago is False,
        "prepare",
        lambda c: Remedy(
            "wait", "its outcome is decided and its markers are being written: it ends by itself"
        ),
    ),
    _unknown(
        "prepare-age-not-known",
        lambda c: c.first.preparing and c.newest.decided_long_ago is None,
        lambda c: f"it is decided, but since when is not known: {_record_not_read(c)}",
        lambda c: _read_the_log(c),
    ),
    _unknown(
        "prepare-record-not-read",
        lambda c: c.first.preparing and c.recorded is None,
        lambda c: f"which partitions wait for its markers is not known: {_record_not_read(c)}",
        lambda c: _read_the_log(c),
    ),
    _unknown(
        "named-not-seen",
        lambda c: c.first.preparing and bool(c.unseen),
        lambda c: f"whether its markers are written is not known on {_answers(c.unseen)}",
        lambda c: _see_producers(c),
    ),
    _unknown(
        "written-seen-once",
        lambda c: c.first.preparing and c.written and not c.twice,
        lambda c: "all its markers are written and it is not complete, but that was seen only once",
        "look again after the sample interval",
    ),
    IdRule(
        "markers-all-written",
        lambda c: c.first.preparing and c.written,
        "prepare-stuck",
        lambda c: id_remedies.finish(c.first, c.newest, c.client_version),
        lambda c: id_remedies.about_finish(c.first, c.newest),
    ),
    _unknown(
        "markers-on-their-way",
        lambda c: c.first.preparing,
        lambda c: f"it waits for its markers on {_names(c.holding) or 'some partitions'}",
        "ask again: those partitions are judged by themselves",
    ),
    # Owned.
    IdRule(
        "two-phase",
        lambda c: is_two_phase(c.row),
        "two-phase",
        lambda c: of_its_system(c.row),
        lambda c: _running(c),
    ),
    _unknown(
        "clock-not-seen",
        lambda c: c.past_timeout is None or c.past_long is None,
        lambda c: (
            "no coordinator's clock could be asked how long it runs, and by ours it is "
            f"within {span(c.settings.clock_skew)} of a limit"
        ),
        "ask again; ListTransactions v1 (Kafka 3.8) asks the coordinator's clock",
    ),
    _unknown(
        "holds-not-known",
        lambda c: bool((c.past_timeout or c.past_long) and (c.unseen or c.holding)),
        lambda c: (
            "whether it holds records back is not known: "
            + (
                f"producers on {_answers(c.unseen)} were not seen"
                if c.unseen
                else "it holds some now"
            )
        ),
        lambda c: _see_producers(c) if c.unseen else "ask again: those partitions are judged then",
    ),
    IdRule(
        "past-timeout",
        lambda c: c.past_timeout is True,
        "overdue",
        lambda c: id_remedies.fence(c.row, c.gate, to_see_all=_to_see_all(c), overdue=True),
        lambda c: _running(c),
    ),
    IdRule(
        "past-long",
        lambda c: c.past_long is True,
        "long",
        lambda c: id_remedies.fence(c.row, c.gate, to_see_all=_to_see_all(c), overdue=False),
        lambda c: _running(c),
    ),
    IdRule(
        "within-limits",
        lambda c: True,
        "open",
        lambda c: of_live(c.row),
        lambda c: _running(c),
    ),
)

LOOK_AGAIN = frozenset({"refused-seen-once", "written-seen-once", "past-timeout", "past-long"})
"""Rules that need a second sample, to confirm them or to find signs of life."""


def judge_id(
    first: IdFacts,
    second: IdFacts | None = None,
    record: StateRecord | None = None,
    settings: Settings | None = None,
) -> IdVerdict:
    """Return the verdict on an id in Ongoing or Prepare* that holds no partition.

    record: the id's newest record in `__transaction_state`, read after the first sample.
    """
    c = IdCase(first, second, record, settings or Settings())
    rule = next(r for r in RULES if r.when(c))
    row, age = c.row, c.age_seconds
    decided = row.state.removeprefix("Prepare").lower()
    short = c.short_log
    late = bool(c.past_timeout or c.past_long)
    return IdVerdict(
        about=row,
        name=rule.verdict,
        rule=rule.name,
        evidence=(_about(c), *brokers_away(short), *rule.why(c)),
        remedy=start_brokers_first(short, (), rule.remedy(c)),
        proven_outcome=decided if decided in ("commit", "abort") else None,
        gate=c.gate,
        all_visible=c.all_visible or (c.record is None and not late and bool(row.partitions)),
        deadline=c.deadline,
        deadline_in=None if c.deadline is None else c.deadline - c.coordinators_now,
        age_seconds=age,
        age_clock=None if age is None else "coordinator",
        samples=1 if second is None else 2,
    )


def _about(c: IdCase) -> Evidence:
    """Describe what the coordinator answered and which partitions the id names."""
    row = c.row
    partitions = c.recorded if c.recorded is not None else row.partitions or ()
    named = ", ".join(map(str, partitions)) or "no partition"
    text = (
        f"transactional id {row.transactional_id} (coordinator on broker {row.coordinator}) is "
        f"{row.state} with producer id {row.producer_id}, epoch {row.producer_epoch}; it names "
        f"{named}"
    )
    if not c.holding and c.first.named is not None and not c.unseen:
        text += " and holds none of it back"
    data = {
        "transactional_id": row.transactional_id,
        "state": row.state,
        "producer_epoch": row.producer_epoch,
        "coordinator": row.coordinator,
        "partitions": [str(tp) for tp in partitions],
    }
    return Evidence("coordinator", text, data)


def _running(c: IdCase) -> list[Evidence]:
    row, age = c.row, c.age_seconds
    whose = "its coordinator's clock" if c.newest.over_timeout is not None else "our clock"
    runs = "how long it has run is not known"
    if age is not None:
        runs = f"it has run for about {span(round(age * 1000))} by {whose_clock(c.newest.ahead)}"
    text = (
        f"{runs} (its timeout is {span(row.timeout_ms or 0)}, counted as long after "
        f"{span(c.settings.long_after)}; compared by {whose})"
    )
    data = {"age_seconds": age, "timeout_ms": row.timeout_ms}
    evidence = [Evidence("running", text, data)]
    if c.recorded is not None and not c.all_visible:
        hidden = sorted(set(c.recorded) - set(row.partitions or ()))
        names = [str(tp) for tp in hidden]
        text = "its record names partitions that we may not see: " + (", ".join(names) or "none")
        evidence.append(Evidence("partitions-hidden", text, {"partitions": names}))
    return evidence
