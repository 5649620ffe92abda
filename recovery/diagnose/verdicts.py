"""Judge why a partition is held and name the one safe way out, in one table of rules.

`RULES` is evaluated from the top: the first rule whose condition holds gives verdict and remedy;
without one the verdict is `unknown`. Conditions use a `recovery.diagnose.case.Case`. Every rule
rests on behaviour seen on real brokers. Where facts are ambiguous, the safe reading was chosen:

- A partition whose leader does not answer is `prepare` or `prepare-stuck` if its coordinator
  reports a decision that names it: the markers are waiting for that leader.
- `unknown` is given only if the missing fact matters. A transaction that its coordinator owns is
  known without the other coordinators, without a second sample, and, if nothing has to be done,
  without the history; `fence` is then refused.
- A start batch under an Ongoing transaction of a *later* epoch is not owned by it: marker-lost
  (mixed) if its decision is found, else `unknown`, never an orphan.
- An orphan whose producer writes between the samples is `unknown`: the producer is alive.
- Lost decisions that differ, or batches beyond the last of them, are `unknown`: no single marker
  is right for all open data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from recovery.diagnose import id_remedies, remedies
from recovery.diagnose.case import Case
from recovery.diagnose.evidence import (
    about_batch,
    brokers_away,
    lost,
    markers_due,
    no_owner,
    nobody,
    rows_here,
    running_time,
    why_unproven,
)
from recovery.diagnose.remedies import Remedy, nothing
from recovery.facts import CoordinatorFacts, Missing, TransactionFacts, was_refused
from recovery.inspect.history import Decision, History
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch, is_over
from recovery.values import Reason, Value

VerdictName = Literal[
    "unknown",
    "coordinator-fenced",
    "prepare",
    "prepare-stuck",
    "marker-lost",
    "two-phase",
    "overdue",
    "long",
    "open",
    "orphan",
]
FINDINGS = frozenset(
    {
        "coordinator-fenced",
        "prepare-stuck",
        "marker-lost",
        "two-phase",
        "overdue",
        "long",
        "orphan",
    }
)
"""Verdicts that make a judging command exit with status 1; `unknown` makes it exit with 3."""


class Verdict(Value):
    """The verdict on one open transaction.

    rule: the rule that matched; for `unknown`, the reason. proven_outcome: commit or abort, if a
    decision proves it. unproven: of coordinator-fenced, the rule that says why no outcome is proven
    for what is open here. decision: the newest lost decision, which `resolve` copies. owner: the id
    that the verdict is about. fence_safe: no older decided data lies under the owner's transaction.
    gate: why a fence of the owner needs --owner-is-gone; None = nothing speaks against one.
    deadline: when its coordinator aborts it (ms, by the coordinator's clock); deadline_in: ms until
    then, negative once past. None: no Ongoing owner, two-phase (never), or unknown. abort_cycle: ms
    between the coordinator's checks for late transactions; None = not seen. cycles_missed: how many
    checks it missed since the deadline, if provably too many. short_log: the log of the coordinator
    that has to end it, if the log cannot be written; unled: partitions of the open transaction
    whose leader does not answer. clock_ahead: ms that its coordinator's clock is ahead of ours;
    None = not measured. age_seconds: by the clock named in age_clock (coordinator: since the start
    of the transaction; producer: since its last batch); None if unknown or the clocks disagree.
    """

    about: OpenTransaction
    name: VerdictName
    rule: str
    evidence: tuple[Reason, ...]
    remedy: Remedy
    mixed: bool = False
    offsets_pending: bool = False
    proven_outcome: str | None = None
    unproven: str | None = None
    decision: Decision | None = None
    owner: TransactionFacts | None = None
    gate: Reason | None = None
    deadline: int | None = None
    deadline_in: int | None = None
    abort_cycle: int | None = None
    cycles_missed: int | None = None
    clock_ahead: int | None = None
    fence_safe: bool = False
    short_log: CoordinatorFacts | None = None
    unled: tuple[str, ...] = ()
    age_seconds: float | None = None
    age_clock: Literal["coordinator", "producer"] | None = None
    samples: int = 1


class Rule(Value):
    """A row of the table. name: the reason if `unknown`. why: evidence after that on the batch."""

    name: str
    when: Callable[[Case], bool]
    verdict: VerdictName
    remedy: Callable[[Case], Remedy]
    why: Callable[[Case], Sequence[Reason]] = lambda c: ()


Data = Callable[[Case], Mapping[str, Any]]


def _unknown(
    name: str,
    when: Callable[[Case], bool],
    why: Data = lambda c: {},
    then: Data = lambda c: {},
) -> Rule:
    """Return a rule without a verdict. why, then: more of what is not known, and of what to do."""

    def reasons(c: Case) -> list[Reason]:
        return [Reason(name, more={"about": c.about, **why(c)}), *rows_here(c)]

    def remedy(c: Case) -> Remedy:
        return nothing(Reason(name, then(c), {"about": c.about}))

    return Rule(name, when, "unknown", remedy, reasons)


def refused(*errors: str | None) -> dict[str, bool]:
    """Return whether one of the answers says that a permission is missing, for what to do then."""
    return {"refused": any(map(was_refused, errors))}


def _offsets_refused(c: Case) -> Missing | None:
    return next(
        (
            Missing("partition", s.partition.error, "", s.partition.leader)
            for s in c.samples
            if s.partition.error is not None
        ),
        None,
    )


def _producers_refused(c: Case) -> Missing | None:
    return next((s.producers_missing for s in c.samples if s.producers_missing), None)


def _coordinator_errors(c: Case) -> list[str]:
    errors = [x.error for s in c.samples for x in s.transactions.coordinators if not x.seen]
    errors += [m.error for s in c.samples for m in s.transactions.missing]
    return sorted({e for e in errors if e})


def _search(c: Case) -> Mapping[str, Any]:
    searched = no_owner(c)
    return {**searched.data, **searched.more}


def _replaced(when: Callable[[Case], bool]) -> Rule:
    return _unknown(
        "history-replaced",
        lambda c: c.replaced is not None and when(c),
        lambda c: c.replaced or {},
    )


def _past_the_fence(c: Case) -> Remedy:
    assert c.standing is not None
    remedy = id_remedies.past_the_fence(
        c.refusing,
        c.standing,
        reload_safe=c.reload_safe,
        client_version=c.prepared_version,
        here=c.about.name,
    )
    reason = why_unproven(c)
    if remedy.action in ("write-prepared-marker", "none") and reason is not None:
        # the open data may be older than the decision: this marker is not proven for it
        return id_remedies.unproven(remedy, reason)
    return remedy


def _refusal(c: Case) -> Sequence[Reason]:
    assert c.standing is not None
    reason = why_unproven(c) if _past_the_fence(c).action == "none" else None
    refusals = id_remedies.about_refusal(c.refusing, c.standing)
    return [*rows_here(c), *refusals, *([] if reason is None else [reason])]


RULES: tuple[Rule, ...] = (
    # What could not be seen at all.
    _unknown(
        "partition-not-seen",
        lambda c: (
            not c.decided_unseen
            and any(s.partition.error is not None or s.partition.held is None for s in c.samples)
        ),
        lambda c: {"answer": _offsets_refused(c)},
        lambda c: refused(*(s.partition.error for s in c.samples)),
    ),
    _unknown("topic-made-anew", lambda c: c.made_anew),
    _unknown(
        "producers-not-seen",
        lambda c: not c.decided_unseen and any(s.producers is None for s in c.samples),
        lambda c: {"answer": _producers_refused(c)},
        lambda c: refused(*(m.error for s in c.samples if (m := s.producers_missing))),
    ),
    _unknown(
        "no-open-transaction",
        lambda c: not c.decided_unseen and (c.about.start_offset is None or c.vanished),
    ),
    _unknown(
        "start-batch-not-read",
        lambda c: (
            not c.decided_unseen and (c.start is None or c.start.producer_id != c.about.producer_id)
        ),
        lambda c: {"answer": c.unread, "foreign": c.start is not None},
        lambda c: refused(c.unread.error if c.unread else None),
    ),
    _unknown(
        "owner-not-described",
        lambda c: bool(c.undescribed),
        lambda c: {"ids": c.undescribed},
        lambda c: (
            refused(*(t.error for t in c.undescribed))
            | {"unanswered": any(t.error is None for t in c.undescribed)}
        ),
    ),
    # Decided, but the coordinator cannot write the markers.
    _unknown("refused-seen-once", lambda c: bool(c.refusing) and not c.twice),
    Rule(
        "coordinator-fenced",
        lambda c: any(r.above for r in c.refusing),
        "coordinator-fenced",
        _past_the_fence,
        _refusal,
    ),
    Rule(
        "producer-epoch-above",
        lambda c: bool(c.refusing),
        "coordinator-fenced",
        _past_the_fence,
        _refusal,
    ),
    # Decided, with markers on their way.
    Rule(
        "markers-not-written",
        lambda c: c.prepared_long_ago,
        "prepare-stuck",
        remedies.unblock_markers,
        markers_due,
    ),
    Rule(
        "markers-being-written",
        lambda c: c.preparing is not None,
        "prepare",
        remedies.wait_for_markers,
        markers_due,
    ),
    # Contradictions between the samples.
    _unknown("owner-changed", lambda c: c.owners_changed),
    _unknown("owner-odd", lambda c: bool(c.naming(c.newest)) and c.ongoing is None),
    # Decided, but the marker never came.
    _unknown("lost-seen-once", lambda c: bool(c.lost) and not c.twice),
    _unknown("decider-not-seen", lambda c: not c.deciders_seen),
    _unknown(
        "history-moved",
        lambda c: c.id_moved is not None and c.is_unnamed and (not c.lost or c.open_where_it_was),
        lambda c: {"moved": c.id_moved},
    ),
    _unknown(
        "log-says-open",
        lambda c: c.hidden_in_log is not None and c.is_unnamed,
        lambda c: {
            "name": c.hidden_in_log.transactional_id if c.hidden_in_log else "",
            "answer": c.refused_describe,
        },
        lambda c: refused(c.refused_describe.error if c.refused_describe else None),
    ),
    _replaced(lambda c: c.lost_by_order),
    _unknown("earlier-decision-compacted", lambda c: c.may_hide_earlier),
    _unknown("decisions-differ", lambda c: bool(c.lost) and not c.lost_agree),
    Rule(
        "earlier-marker-lost",
        lambda c: bool(c.lost) and c.ongoing is not None,
        "marker-lost",
        remedies.wait_for_commit,
        lost,
    ),
    _unknown("written-beyond-decision", lambda c: c.written_beyond),
    Rule("marker-not-written", lambda c: bool(c.lost), "marker-lost", remedies.resolve, lost),
    # Owned.
    Rule(
        "two-phase",
        lambda c: c.two_phase,
        "two-phase",
        remedies.leave_to_its_system,
        running_time,
    ),
    _unknown("later-transaction", lambda c: c.ongoing is not None and c.owner is None),
    _unknown(
        "clock-not-seen",
        lambda c: c.owner is not None and (c.past_timeout is None or c.past_long is None),
        lambda c: {"skew": c.settings.clock_skew},
    ),
    _unknown(
        "earlier-decision-not-excluded",
        lambda c: (bool(c.past_timeout) or bool(c.past_long)) and not c.nothing_decided_below,
        lambda c: {"reason": c.history.reason if c.history else None},
        lambda c: refused(c.log_error),
    ),
    Rule(
        "past-timeout",
        lambda c: c.past_timeout is True,
        "overdue",
        remedies.wait_then_fence,
        running_time,
    ),
    Rule("past-long", lambda c: c.past_long is True, "long", remedies.fence, running_time),
    Rule(
        "within-limits",
        lambda c: c.owner is not None,
        "open",
        remedies.let_it_run,
        running_time,
    ),
    # Not owned: everything must be proven.
    _unknown(
        "coordinators-not-seen",
        lambda c: not c.coordinators_seen,
        lambda c: {**_search(c), "errors": _coordinator_errors(c)},
        lambda c: {
            **refused(*_coordinator_errors(c)),
            "none": not any(s.transactions.coordinators for s in c.samples),
        },
    ),
    _unknown("topic-not-described", lambda c: not all(s.topic_describe for s in c.samples)),
    _unknown("one-sample", lambda c: not c.twice, _search),
    _unknown("still-writing", lambda c: c.still_writing),
    _unknown(
        "start-deleted",
        lambda c: c.start is not None and c.start.deleted,
        lambda c: {"log_start": c.newest.partition.log_start_offset},
    ),
    _unknown(
        "history-not-read",
        lambda c: c.history is None or c.history.reason == "history-not-read",
        lambda c: {"error": c.log_error},
        lambda c: refused(c.log_error),
    ),
    _unknown(
        "history-unreadable",
        lambda c: c.history is not None and c.history.reason == "history-unreadable",
    ),
    _replaced(lambda c: True),
    _unknown("history-compacted", lambda c: c.history is not None and not c.history.whole),
    _unknown("topic-identity", lambda c: c.topic_unclear),
    _unknown("order-unclear", lambda c: c.lost is None),
    Rule(
        "stray-of-a-live-id",
        lambda c: bool(c.elsewhere),
        "orphan",
        remedies.wait_for_namesake,
        nobody,
    ),
    Rule(
        "nobody-owns-it",
        lambda c: c.lost == () and not c.naming(c.first) and not c.naming(c.newest),
        "orphan",
        remedies.abort,
        nobody,
    ),
)

_NO_RULE = _unknown("no-rule", lambda c: True)


def judge(
    about: OpenTransaction,
    start: StartBatch | None,
    first: Sample,
    second: Sample | None = None,
    history: History | None = None,
    settings: Settings | None = None,
) -> Verdict | None:
    """Return the verdict on one open transaction; None: it is over and there is nothing to judge.

    `unknown` by rule one-sample or lost-seen-once asks for a second sample (the pause is taken only
    then). The history must have been read to an end that is not older than the first sample.
    """
    c = Case(about, start, first, second, history, settings or Settings())
    if _is_over(c):
        return None
    rule = next((r for r in RULES if r.when(c)), _NO_RULE)
    row = c.preparing or c.ongoing or next(iter(c.elsewhere), None)
    lost = rule.verdict == "marker-lost" and c.lost
    age, clock = c.age
    remedy = rule.remedy(c)
    short, unled = (c.short_log, c.unled) if _is_owners(c, remedy) else (None, ())
    evidence = (*about_batch(c), *brokers_away(short, unled), *rule.why(c))
    unproven = (e.data["rule"] for e in evidence if e.code == "outcome-unproven")
    return Verdict(
        about=about,
        name=rule.verdict,
        rule=rule.name,
        evidence=evidence,
        remedy=remedies.start_brokers_first(short, unled, remedy),
        mixed=rule.name == "earlier-marker-lost",
        offsets_pending=about.topic == "__consumer_offsets",
        proven_outcome=_proven(c, rule),
        unproven=next(unproven, None),
        decision=lost[-1] if lost else None,
        owner=row,
        gate=c.gate,
        deadline=c.deadline,
        deadline_in=c.deadline_in,
        abort_cycle=c.abort_cycle,
        cycles_missed=c.cycles_missed,
        clock_ahead=c.ahead,
        fence_safe=c.owner is not None and c.nothing_decided_below,
        short_log=short,
        unled=unled,
        age_seconds=age,
        age_clock=clock,
        samples=len(c.samples),
    )


def _is_owners(c: Case, remedy: Remedy) -> bool:
    """Return True if the remedy waits for an owner or ends its open transaction."""
    return remedy.transactional_id is not None and c.preparing is None


def _is_over(c: Case) -> bool:
    """Return True if the first sample lacks this transaction or the second proves that it ended."""
    if c.second is not None and is_over(c.about, c.first, c.second):
        return True
    pid = c.about.producer_id
    if pid is None or c.first.producers is None:
        return False
    row = c.first.producer(pid)
    opened = None if row is None else row.current_txn_start_offset
    if c.about.start_offset is None:  # the leader gives no offsets, as a new one without followers
        return opened is None
    return opened != c.about.start_offset


def _proven(c: Case, rule: Rule) -> str | None:
    if rule.verdict == "marker-lost" and c.lost:
        return c.lost[-1].outcome
    if rule.verdict == "coordinator-fenced" and why_unproven(c) is not None:
        return None
    if rule.verdict in ("prepare", "prepare-stuck", "coordinator-fenced"):
        return c.prepare_proves
    return None
