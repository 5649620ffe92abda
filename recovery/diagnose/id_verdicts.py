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

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from recovery.diagnose import id_remedies
from recovery.diagnose.case import gate_of
from recovery.diagnose.evidence import about_id, brokers_away
from recovery.diagnose.remedies import Remedy, of_its_system, of_live, start_brokers_first
from recovery.diagnose.verdicts import VerdictName, refused
from recovery.facts import CoordinatorFacts, TopicPartition, TransactionFacts, was_refused
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.id_facts import IdFacts, NamedPartition, Refusing, refusing, reload_is_safe
from recovery.inspect.observation import Settings
from recovery.inspect.two_phase import deadline, is_two_phase
from recovery.values import Reason, Value


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
    def gate(self) -> Reason | None:
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
    evidence: tuple[Reason, ...]
    remedy: Remedy
    proven_outcome: str | None = None
    gate: Reason | None = None
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
    why: Callable[[IdCase], Sequence[Reason]] = lambda c: ()


Data = Callable[[IdCase], Mapping[str, Any]]


def _unknown(
    name: str,
    when: Callable[[IdCase], bool],
    why: Data = lambda c: {},
    then: Data = lambda c: {},
) -> IdRule:
    """Return a rule without a verdict. why, then: what is not known, and what to do, in numbers."""
    return IdRule(
        name,
        when,
        "unknown",
        lambda c: Remedy("none", Reason(name, then(c))),
        lambda c: [Reason(name, more=why(c))],
    )


def _see_producers(c: IdCase) -> dict[str, Any]:
    topics = {p.facts.topic for p in c.unseen if was_refused(p.error)}
    return {"unseen": [p.name for p in c.unseen], "refused": sorted(topics)}


def _log_error(c: IdCase) -> dict[str, Any]:
    return {"error": c.newest.log_error}


def _read_the_log(c: IdCase) -> dict[str, bool]:
    return refused(c.newest.log_error)


def _to_see_all(c: IdCase) -> Reason | None:
    """Say what to grant so that all partitions of the transaction are seen; None = all are.

    A coordinator silently leaves out topics without DESCRIBE, but the id's record names them.
    """
    if c.all_visible:
        return None
    visible = set(c.row.partitions or ())
    hidden = sorted({topic for topic, n in c.recorded or () if (topic, n) not in visible})
    if hidden:
        return Reason("describe-topics", {"topics": hidden})
    return Reason("read-the-log", _read_the_log(c))


def _past_the_fence(c: IdCase) -> Remedy:
    return id_remedies.past_the_fence(
        c.refusing, c.first, reload_safe=c.reload_safe, client_version=c.client_version
    )


RULES: tuple[IdRule, ...] = (
    _unknown(
        "id-not-described",
        lambda c: not c.described,
        lambda c: {"row": c.row},
        lambda c: refused(c.row.error),
    ),
    # Decided.
    _unknown("refused-seen-once", lambda c: bool(c.refusing) and not c.twice),
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
        lambda c: Remedy("wait", Reason("markers-due")),
    ),
    _unknown(
        "prepare-age-not-known",
        lambda c: c.first.preparing and c.newest.decided_long_ago is None,
        _log_error,
        _read_the_log,
    ),
    _unknown(
        "prepare-record-not-read",
        lambda c: c.first.preparing and c.recorded is None,
        _log_error,
        _read_the_log,
    ),
    _unknown(
        "named-not-seen",
        lambda c: c.first.preparing and bool(c.unseen),
        lambda c: {"unseen": c.unseen},
        _see_producers,
    ),
    _unknown("written-seen-once", lambda c: c.first.preparing and c.written and not c.twice),
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
        lambda c: {"holding": [p.name for p in c.holding]},
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
        lambda c: {"skew": c.settings.clock_skew},
    ),
    _unknown(
        "holds-not-known",
        lambda c: bool((c.past_timeout or c.past_long) and (c.unseen or c.holding)),
        lambda c: {"unseen": c.unseen},
        _see_producers,
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
    short = c.short_log
    late = bool(c.past_timeout or c.past_long)
    return IdVerdict(
        about=row,
        name=rule.verdict,
        rule=rule.name,
        evidence=(_about(c), *brokers_away(short), *rule.why(c)),
        remedy=start_brokers_first(short, (), rule.remedy(c)),
        proven_outcome=row.decided,
        gate=c.gate,
        all_visible=c.all_visible or (c.record is None and not late and bool(row.partitions)),
        deadline=c.deadline,
        deadline_in=None if c.deadline is None else c.deadline - c.coordinators_now,
        age_seconds=age,
        age_clock=None if age is None else "coordinator",
        samples=1 if second is None else 2,
    )


def _about(c: IdCase) -> Reason:
    """Describe what the coordinator answered and which partitions the id names."""
    said = about_id(c.row)
    partitions = c.recorded if c.recorded is not None else c.row.partitions or ()
    holds_none = not c.holding and c.first.named is not None and not c.unseen
    data = {**said.data, "partitions": [str(tp) for tp in partitions]}
    return Reason(said.code, data, {**said.more, "holds_none": holds_none})


def _running(c: IdCase) -> list[Reason]:
    more = {
        "long_after": c.settings.long_after,
        "clock_measured": c.newest.ahead is not None,
        "compared": "our" if c.newest.over_timeout is None else "its",
    }
    data = {"age_seconds": c.age_seconds, "timeout_ms": c.row.timeout_ms}
    evidence = [Reason("running", data, more)]
    if c.recorded is not None and not c.all_visible:
        hidden = sorted(set(c.recorded) - set(c.row.partitions or ()))
        evidence.append(Reason("partitions-hidden", {"partitions": [str(tp) for tp in hidden]}))
    return evidence
