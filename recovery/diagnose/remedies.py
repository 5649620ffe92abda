"""Choose the one safe way out of each verdict: the action, its target, its effect, its refusals.

`eoctl.render.verdicts.remedy_words` has the sentences. The command line is built from a `Remedy` in
higher layers; `recovery.remedy.repairs` has the requests that carry it out.
"""

from collections.abc import Sequence

from recovery.diagnose.case import Case
from recovery.diagnose.diagnosis_rows import Action
from recovery.facts import CoordinatorFacts, TransactionFacts
from recovery.values import Reason, Value, replace

Refused = tuple[str, Reason]
"""A tempting action, and why not."""


class Remedy(Value):
    """The one safe way out, or the statement that none exists yet.

    transactional_id, producer_id, producer_epoch: the target of a fence. outcome: what a resolve
    writes. partitions: those that need a leader. broker: whose coordinator to restart. deadline:
    when the coordinator ends the transaction on its own (ms, by the coordinator's clock). does: for
    people. refused: tempting alternatives. moves: how often the leader of the coordinator's log has
    to be moved.
    """

    action: Action
    does: Reason
    caveats: tuple[Reason, ...] = ()
    refused: tuple[Refused, ...] = ()
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    outcome: str | None = None
    partitions: tuple[str, ...] = ()
    broker: int | None = None
    deadline: int | None = None
    moves: int | None = None


_NO_ABORT_OWNED = ("abort", Reason("owner-may-commit"))
ONLY_IF_GONE = ("fence", Reason("only-if-gone"))
NO_FENCE = ("fence", Reason("never-answered"))
NO_RESTART = ("restart-coordinator", Reason("refuses-its-own-markers"))


def start_brokers_first(
    log: CoordinatorFacts | None, leaderless: Sequence[str], then: Remedy
) -> Remedy:
    """Return the remedy for an open transaction that cannot end before brokers are back.

    log: the coordinator's log, if too few of its replicas are in sync. leaderless: the
    transaction's partitions without an answering leader. then: the remedy after that.
    """
    if log is None and not leaderless:
        return then
    parts = list(leaderless)
    does = Reason("restore-for-its-end", {"partitions": leaderless})
    if log is not None:
        parts.insert(0, log.name)
        does = Reason("start-brokers", {"brokers": log.away, "log": parts[0]})
    refused = [r for r in then.refused if r[0] != "fence"]
    return replace(
        then,
        action="restore-leader",
        does=does,
        caveats=(Reason("not-before-that", more={"then": then.does}), *then.caveats),
        refused=(*refused, ("fence", Reason("not-before-back", {"name": parts[0]}))),
        partitions=tuple(parts),
    )


def nothing(does: Reason) -> Remedy:
    """Return no remedy. does: what to grant, to restore or to wait for."""
    return Remedy("none", does, refused=(("abort", Reason("could-drop-committed")),))


def wait_for_markers(c: Case) -> Remedy:
    return Remedy(
        "wait", Reason("markers-due"), refused=(("abort", Reason("no-marker-if-decided")),)
    )


def unblock_markers(c: Case) -> Remedy:
    """Restore leaders before a restart: the marker of a leaderless partition would be lost."""
    row = c.preparing
    refused = (("abort", Reason("could-contradict")), NO_FENCE)
    if c.leaderless:
        return Remedy(
            "restore-leader",
            Reason("restore-leaders", {"partitions": c.leaderless, "ask_again": False}),
            caveats=(Reason("restart-loses-markers"),),
            refused=(*refused, ("restart-coordinator", Reason("no-leader"))),
            partitions=c.leaderless,
        )
    if not c.reload_safe:
        return Remedy("none", Reason("fix-then-restart"), refused=(*refused, NO_RESTART))
    return Remedy(
        "restart-coordinator",
        Reason("restart-coordinator"),
        refused=refused,
        broker=row.coordinator if row else None,
    )


def resolve(c: Case) -> Remedy:
    outcome = c.lost[-1].outcome if c.lost else None
    said = {"outcome": outcome}
    return Remedy(
        "resolve",
        Reason("resolve", said),
        refused=(("abort", Reason("already-decided", said)),),
        outcome=outcome,
    )


def wait_for_commit(c: Case) -> Remedy:
    """Wait (mixed): one marker of the later transaction decides the earlier data too."""
    row = c.ongoing
    name = row.transactional_id if row else None
    outcome = c.lost[-1].outcome if c.lost else None
    forgotten = c.coordinator_lost_it and outcome is not None
    return Remedy(
        "wait",
        Reason("decision-lost" if forgotten else "mixed", {"name": name, "outcome": outcome}),
        refused=(
            ("abort", Reason("destroys-earlier")),
            ("fence", Reason("aborts-earlier")),
            ("resolve", Reason("tears-open", {"outcome": outcome})),
        ),
        transactional_id=name,
        deadline=c.deadline,
    )


def of_its_system(row: TransactionFacts, *refused: Refused) -> Remedy:
    """Return the remedy for a two-phase transaction: leave it to its own system (KIP-939)."""
    return Remedy(
        "none",
        Reason("ask-its-system", {"name": row.transactional_id}),
        refused=(*refused, ONLY_IF_GONE),
        transactional_id=row.transactional_id,
    )


def of_owner(row: TransactionFacts, why: Reason, *refused: Refused) -> Remedy:
    """Return the remedy for an owner that may be alive: wait."""
    return _about(row, "wait", Reason("let-owner-end", more={"why": why}), *refused, ONLY_IF_GONE)


def of_live(row: TransactionFacts, *refused: Refused) -> Remedy:
    """Return the remedy for a transaction within its limits: wait."""
    return _about(row, "wait", Reason("within-limits"), *refused)


def of_gone(row: TransactionFacts, first: Reason | None, *refused: Refused, held: bool) -> Remedy:
    """Return the remedy for an owner that is late: fence it.

    first: what to wait for before. held: the transaction holds records.
    """
    does = Reason("fence", {"name": row.transactional_id, "held": held}, {"first": first})
    caveats = (Reason("kills-owner"),)
    return replace(_about(row, "fence", does, *refused), caveats=caveats)


def _about(row: TransactionFacts, action: Action, does: Reason, *refused: Refused) -> Remedy:
    """Return a remedy whose target is an owner's transaction."""
    return Remedy(
        action,
        does,
        refused=refused,
        transactional_id=row.transactional_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
    )


def leave_to_its_system(c: Case) -> Remedy:
    return of_its_system(_owner(c), _NO_ABORT_OWNED)


def _owner(c: Case) -> TransactionFacts:
    assert c.owner is not None  # the rules ask for one
    return c.owner


def fence(c: Case) -> Remedy:
    """Fence the owner; if it may be alive, wait instead and say why."""
    return _fence(c, None)


def wait_then_fence(c: Case) -> Remedy:
    """Fence an owner past its timeout, once its coordinator had its time to abort."""
    missed = c.cycles_missed is not None
    first = Reason("not-aborted" if missed else "wait-for-cycle", {"cycle_ms": c.abort_cycle})
    return _fence(c, first)


def _fence(c: Case, first: Reason | None) -> Remedy:
    if c.gate is not None:
        return of_owner(_owner(c), c.gate, _NO_ABORT_OWNED)
    return of_gone(_owner(c), first, _NO_ABORT_OWNED, held=True)


def let_it_run(c: Case) -> Remedy:
    return of_live(_owner(c), _NO_ABORT_OWNED)


def abort(c: Case) -> Remedy:
    return Remedy("abort", Reason("abort"))


def wait_for_namesake(c: Case) -> Remedy:
    """Wait: the orphan's id lives elsewhere, and any marker would hit its owner's next write."""
    row = c.elsewhere[0]
    name = {"name": row.transactional_id}
    does = Reason("wait-for-namesake", {**name, "gated": c.gate is not None})
    return _about(row, "wait", does, ("abort", Reason("in-use", {**name, "state": row.state})))
