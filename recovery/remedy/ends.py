"""Say what may be done about a judged transaction: now, by whoever knows more, and otherwise.

Nothing is offered that its command would refuse: every way is asked of the rules that the command
asks (`recovery.remedy.repairs`). `WAYS_OUT` lists what each verdict can end with; `explain`, the
docs and the runbook show that table.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from recovery.diagnose.case import life_of
from recovery.diagnose.diagnosis import Judged, JudgedId
from recovery.diagnose.remedies import Remedy
from recovery.facts import TransactionFacts
from recovery.inspect.two_phase import is_two_phase
from recovery.remedy.repairs import (
    NEVER_KNOWN,
    DistantEpochError,
    raise_first,
    remedy_allowed,
    undecided_refused,
)
from recovery.values import Reason, Value, replace

Command = Literal["abort", "resolve", "fence", "why"]
Knowledge = Literal["owner-gone", "committed", "aborted"]
OtherwiseCode = Literal[
    "never-ends",
    "another-id",
    "wait-for-owner",
    "wait-for-coordinator",
    "coordinator-does-not",
    "wait-for-markers",
    "wait-for-commit",
    "wait-for-id",
    "start-brokers",
    "restart-coordinator",
    "move-leader",
    "upgrade",
    "ask-system",
    "ask-owner",
    "look-again",
]


class Way(Value):
    """A command that is accepted now, as a plan. knows: what one must know that Kafka does not.

    transactional_id, producer_id, producer_epoch: of a fence; `why` shows the page of that id.
    """

    action: Command
    knows: Knowledge | None = None
    outcome: str | None = None
    owner_is_gone: bool = False
    without_proof: bool = False
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None


class Otherwise(Value):
    """What is left for whoever knows no more: what to wait for, what to repair, whom to ask.

    data: partitions, broker, moves, transactional_id, rule: the rule whose page says what to grant
    or what to ask. refused: why an outcome may not be written without proof although no look can
    show one; None: a look may.
    """

    code: OtherwiseCode
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    refused: Reason | None = None


class Ends(Value):
    """The end of a page: no reader is left without a next step."""

    next: Way | None
    if_you_know: tuple[Way, ...]
    otherwise: Otherwise


class WayOut(Value):
    """One row of the table. when: which of the verdict's cases. next: None = nothing to run."""

    verdict: str
    when: str
    next: Command | None
    if_you_know: tuple[Knowledge, ...]
    otherwise: OtherwiseCode


OUTCOMES: tuple[tuple[Knowledge, str], ...] = (("committed", "commit"), ("aborted", "abort"))
_EITHER: tuple[Knowledge, ...] = ("committed", "aborted")
WAYS_OUT: tuple[WayOut, ...] = (
    WayOut("orphan", "nobody", "abort", (), "never-ends"),
    WayOut("orphan", "id-at-work", "why", (), "wait-for-id"),
    WayOut("orphan", "brokers", None, (), "start-brokers"),
    WayOut("marker-lost", "decided", "resolve", (), "never-ends"),
    WayOut("marker-lost", "id-at-work", "why", (), "wait-for-id"),
    WayOut("marker-lost", "brokers", None, (), "start-brokers"),
    WayOut("mixed", "committed-below", None, ("owner-gone",), "wait-for-commit"),
    WayOut("mixed", "not-from-here", None, (), "wait-for-commit"),
    WayOut("mixed", "aborted-below", None, (), "wait-for-owner"),
    WayOut("mixed", "brokers", None, (), "start-brokers"),
    WayOut("coordinator-fenced", "few-epochs", None, (), "move-leader"),
    WayOut("coordinator-fenced", "proven", "resolve", (), "another-id"),
    WayOut("coordinator-fenced", "unproven", None, _EITHER, "ask-owner"),
    WayOut("coordinator-fenced", "not-seen", None, (), "look-again"),
    WayOut("coordinator-fenced", "nothing-open", None, (), "another-id"),
    WayOut("coordinator-fenced", "brokers", None, (), "start-brokers"),
    WayOut("prepare-stuck", "brokers", None, (), "start-brokers"),
    WayOut("prepare-stuck", "all-lead", None, (), "restart-coordinator"),
    WayOut("prepare-stuck", "some-written", None, (), "upgrade"),
    WayOut("overdue", "silent", "fence", (), "wait-for-coordinator"),
    WayOut("overdue", "ignored", "fence", (), "coordinator-does-not"),
    WayOut("overdue", "may-live", None, ("owner-gone",), "wait-for-owner"),
    WayOut("overdue", "not-seen", None, (), "look-again"),
    WayOut("overdue", "brokers", None, (), "start-brokers"),
    WayOut("long", "silent", "fence", (), "wait-for-owner"),
    WayOut("long", "may-live", None, ("owner-gone",), "wait-for-owner"),
    WayOut("long", "not-seen", None, (), "look-again"),
    WayOut("long", "brokers", None, (), "start-brokers"),
    WayOut("two-phase", "its-system", None, ("owner-gone",), "ask-system"),
    WayOut("two-phase", "not-from-here", None, (), "ask-system"),
    WayOut("two-phase", "brokers", None, (), "start-brokers"),
    WayOut("prepare", "being-written", None, (), "wait-for-markers"),
    WayOut("open", "within-limits", None, ("owner-gone",), "wait-for-owner"),
    WayOut("open", "not-from-here", None, (), "wait-for-owner"),
    WayOut("open", "brokers", None, (), "start-brokers"),
    WayOut("unknown", "not-seen", None, (), "look-again"),
    WayOut("unknown", "never-known", None, _EITHER, "ask-owner"),
    WayOut("unknown", "id-at-work", "why", (), "wait-for-id"),
)
"""What each verdict can end with."""


def way_out(verdict: str, ends: Ends) -> WayOut | None:
    """Return the table's row of these ends, None if it has none. verdict: `mixed` for such ones."""
    kind = (
        None if ends.next is None else ends.next.action,
        tuple(w.knows for w in ends.if_you_know),
        ends.otherwise.code,
    )
    rows = [
        w for w in WAYS_OUT if w.verdict == verdict and (w.next, w.if_you_know, w.otherwise) == kind
    ]
    return rows[0] if rows else None


def ends_of(j: Judged | JudgedId, transaction_version: int = 2) -> Ends:
    """Return what may be done about a judged transaction, or id that holds no partition.

    transaction_version: the cluster's. Below 2 only InitProducerId raises an id, and brokers refuse
    that request with the timeout of a two-phase transaction.
    """
    if isinstance(j, JudgedId):
        return _id_ends(j, transaction_version)
    plain = plain_way(j.verdict.remedy)
    if plain is None or refused_because(j, plain) is not None:
        id_first = _at_work(j)
        plain = None if id_first is None else Way("why", transactional_id=id_first.transactional_id)
    known: tuple[Way, ...] = ()
    if plain is None:
        known = tuple(
            w for w in _for_knowledge(j, transaction_version) if refused_because(j, w) is None
        )
    return Ends(plain, known, _otherwise(j, plain, known))


def refused_because(j: Judged, way: Way) -> Reason | None:
    """Return why the command of this way would be refused now; None: its plan is shown.

    What only the command asks for is not known here: the members of groups whose offsets the
    transaction holds, and its other partitions.
    """
    if way.action == "why":
        return None
    # the command takes the second look itself
    verdict = replace(j.verdict, samples=2) if way.without_proof else j.verdict
    refusal = remedy_allowed(
        verdict,
        way.action,
        owner_is_gone=way.owner_is_gone,
        without_proof=way.without_proof,
    )
    if refusal is not None or way.action == "fence":
        return refusal
    if way.owner_is_gone:
        return _life_seen(j)
    if way.without_proof and (refusal := undecided_refused(j)) is not None:
        return refusal
    return marker_refused(j)


def marker_refused(j: Judged) -> Reason | None:
    """Return why no marker may be written now, whatever its outcome; None: nothing forbids it."""
    row = j.newest.producer(j.about.producer_id or 0)
    if row is None or j.partition.leader is None or j.about.start_offset is None:
        return Reason("producer-not-seen")
    try:
        raised = raise_first(row, j.newest.transactions, end_version=None)
    except DistantEpochError as error:
        return Reason("distant-epoch", {"error": str(error)})
    except ValueError as error:
        return Reason("may-write-with-its-epoch", {"error": str(error)})
    log = None if raised is None else j.newest.transactions.log_of(raised.transactional_id)
    if log is not None and log.takes_no_record:
        return Reason("log-too-short", {"log": log.name})
    return None


def _life_seen(j: Judged) -> Reason | None:
    owner = j.verdict.owner
    if owner is None:
        return Reason("nobody-owns-it")
    life = life_of(owner.transactional_id, j.newest.groups, j.newest.groups_missing)
    if life.living or life.unseen:
        return Reason("may-be-alive", {"name": owner.transactional_id})
    if not (j.first.sees_all_coordinators and j.newest.sees_all_coordinators):
        return Reason("owner-may-be-hidden")
    live = (*j.first.live(owner.producer_id), *j.newest.live(owner.producer_id))
    others = [t for t in live if t.transactional_id != owner.transactional_id]
    return Reason("another-id-has-it") if others else None


def plain_way(remedy: Remedy) -> Way | None:
    """Return the command of a verdict's own remedy; None: its remedy is no command."""
    match remedy.action:
        case "abort":
            return Way("abort")
        case "resolve" | "write-prepared-marker":
            return Way("resolve", outcome=remedy.outcome)
        case "fence":
            return _fence(remedy.transactional_id, remedy.producer_id, remedy.producer_epoch)
    return None


def _fence(name: str | None, pid: int | None, epoch: int | None, *, gone: bool = False) -> Way:
    return Way(
        "fence",
        knows="owner-gone" if gone else None,
        owner_is_gone=gone,
        transactional_id=name,
        producer_id=pid,
        producer_epoch=epoch,
    )


def _for_knowledge(j: Judged, transaction_version: int) -> Iterator[Way]:
    """Yield what somebody could do who knows that the owner is gone, or the outcome."""
    owner = j.verdict.owner
    if owner is not None and owner.state == "Ongoing":
        if j.verdict.mixed:
            yield Way("resolve", knows="owner-gone", outcome="commit", owner_is_gone=True)
        elif _can_raise(owner, transaction_version):
            yield _fence(owner.transactional_id, owner.producer_id, owner.producer_epoch, gone=True)
    for knows, outcome in OUTCOMES:
        yield Way("resolve", knows=knows, outcome=outcome, without_proof=True)


def _can_raise(owner: TransactionFacts, transaction_version: int) -> bool:
    return transaction_version >= 2 or not is_two_phase(owner)


def _at_work(j: Judged) -> TransactionFacts | None:
    """Return an id that is open with this producer id, whose end must come first."""
    if j.verdict.name not in ("orphan", "marker-lost", "unknown") or j.verdict.mixed:
        return None
    if j.verdict.remedy.action == "restore-leader":  # that id cannot end before
        return None
    if j.verdict.name == "unknown" and j.verdict.rule not in NEVER_KNOWN:
        return None
    return next(iter(j.newest.live(j.about.producer_id or 0)), None)


def _otherwise(j: Judged, plain: Way | None, known: tuple[Way, ...]) -> Otherwise:
    v, remedy = j.verdict, j.verdict.remedy
    if remedy.action == "restore-leader":
        return Otherwise("start-brokers", {"partitions": list(remedy.partitions)})
    if plain is not None and plain.action == "why":
        return Otherwise("wait-for-id", {"transactional_id": plain.transactional_id})
    if v.name == "coordinator-fenced":
        return _fenced(j, known)
    if v.name == "unknown":
        return _unknown(j, known)
    if v.mixed:
        code: OtherwiseCode = (
            "wait-for-commit" if v.proven_outcome == "commit" else "wait-for-owner"
        )
        return Otherwise(code)
    if v.name in ("orphan", "marker-lost"):
        return Otherwise("never-ends") if plain is not None else _no_marker(j)
    if v.name == "prepare-stuck":
        if remedy.action == "restart-coordinator":
            return Otherwise("restart-coordinator", {"broker": remedy.broker})
        return Otherwise("upgrade")
    if v.name in ("prepare", "two-phase"):
        return Otherwise("wait-for-markers" if v.name == "prepare" else "ask-system")
    if v.name == "overdue" and plain is not None:
        missed = v.cycles_missed is not None
        return Otherwise("coordinator-does-not" if missed else "wait-for-coordinator")
    return Otherwise("wait-for-owner")


def _unknown(j: Judged, known: tuple[Way, ...]) -> Otherwise:
    rule = j.verdict.rule
    if known:
        return Otherwise("ask-owner", {"rule": rule})
    why = None
    if rule in NEVER_KNOWN:
        why = refused_because(j, Way("resolve", outcome="abort", without_proof=True))
    return Otherwise("look-again", {"rule": rule}, why)


def _no_marker(j: Judged) -> Otherwise:
    """Say what keeps a marker out although its outcome is known: the log of its idle id."""
    row = j.newest.producer(j.about.producer_id or 0)
    idle = () if row is None else j.newest.transactions.owners(row.producer_id)
    logs = [j.newest.transactions.log_of(t.transactional_id) for t in idle]
    short = [log.name for log in logs if log and log.takes_no_record]
    return Otherwise("start-brokers", {"partitions": short or [j.about.name]})


def _fenced(j: Judged, known: tuple[Way, ...]) -> Otherwise:
    v, remedy = j.verdict, j.verdict.remedy
    name = {"transactional_id": remedy.transactional_id}
    if remedy.action == "restart-coordinator":
        return Otherwise("move-leader", name | {"moves": remedy.moves, "broker": remedy.broker})
    if known:
        return Otherwise("ask-owner", name | {"rule": v.unproven})
    if v.unproven is not None:
        return Otherwise("look-again", name | {"rule": v.unproven})
    return Otherwise("another-id", name)


def _id_ends(j: JudgedId, transaction_version: int) -> Ends:
    v, remedy, row = j.verdict, j.verdict.remedy, j.verdict.about
    plain = plain_way(remedy) if remedy.action == "fence" else None
    known: tuple[Way, ...] = ()
    owned = v.name in ("open", "long", "overdue", "two-phase") and row.state == "Ongoing"
    owned = owned and _can_raise(row, transaction_version)
    if owned and plain is None and v.all_visible and remedy.action != "restore-leader":
        known = (_fence(row.transactional_id, row.producer_id, row.producer_epoch, gone=True),)
    return Ends(plain, known, _id_otherwise(j, plain))


def _id_otherwise(j: JudgedId, plain: Way | None) -> Otherwise:
    v, remedy, name = j.verdict, j.verdict.remedy, {"transactional_id": j.name}
    if remedy.action == "restore-leader":
        return Otherwise("start-brokers", {"partitions": list(remedy.partitions)})
    if v.name == "unknown":
        return Otherwise("look-again", {"rule": v.rule})
    if v.name == "coordinator-fenced":
        if remedy.action == "restart-coordinator":
            return Otherwise("move-leader", name | {"moves": remedy.moves, "broker": remedy.broker})
        if remedy.action == "write-prepared-marker":  # these are judged by themselves
            held = [p.name for p in j.first.named or () if p.open_from is not None]
            return Otherwise("look-again", name | {"partitions": held})
        return Otherwise("another-id", name)
    if v.name == "prepare-stuck":
        return Otherwise("upgrade", name)
    if v.name in ("prepare", "two-phase"):
        return Otherwise("wait-for-markers" if v.name == "prepare" else "ask-system")
    if remedy.action == "none":  # partitions that are hidden keep a fence out
        return Otherwise("look-again", {"rule": v.rule})
    code: OtherwiseCode = "wait-for-owner"
    if v.name == "overdue" and plain is not None:
        code = "wait-for-coordinator"
    return Otherwise(code)
