"""Choose the one safe way out of each verdict: the action, its target, its effect, its refusals.

The command line is built from a `Remedy` in higher layers; `recovery.remedy.repairs` has the
requests that carry it out.
"""

from collections.abc import Sequence

from recovery.diagnose.case import Case
from recovery.diagnose.diagnosis_rows import Action
from recovery.facts import CoordinatorFacts, TransactionFacts
from recovery.plurals import listed
from recovery.times import format_duration
from recovery.values import Value, replace


class Remedy(Value):
    """The one safe way out, or the statement that none exists yet.

    transactional_id, producer_id, producer_epoch: the target of a fence. outcome: what a resolve
    writes. partitions: those that need a leader. broker: whose coordinator to restart. deadline:
    when the coordinator ends the transaction on its own (ms, by the coordinator's clock). does: in
    words. refused: tempting alternatives as (action, why not). moves: how often the leader of the
    coordinator's log has to be moved.
    """

    action: Action
    does: str
    caveats: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    outcome: str | None = None
    partitions: tuple[str, ...] = ()
    broker: int | None = None
    deadline: int | None = None
    moves: int | None = None


_NO_ABORT_OWNED = (
    "abort",
    "its owner may still commit: you would drop its records here and keep them elsewhere",
)
ONLY_IF_GONE = (
    "its transaction would be lost. Only if that system is gone for good: --owner-is-gone"
)


FIX = "the fix of KAFKA-19999 (each release of Apache Kafka that needs it has it, since 4.2.0)"
"""Markers that need it came with it. Sources: apache/kafka pull request 21176, which Jira calls
resolved on 2025-12-28; class files of kafka-storage 4.2.0, which have it, and of 4.0.1, which
refuses no marker of the epoch that it has."""
NO_FENCE = ("fence", "InitProducerId on a Prepare* id answers ConcurrentTransactions without end")
NO_RESTART = (
    "restart-coordinator",
    (
        f"it sends every marker again; brokers without {FIX} refuse those that are written, and it "
        "never finishes"
    ),
)


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
    does = f"bring back a leader that answers for {', '.join(parts)}: its end is written there too"
    if log is not None:
        parts.insert(0, f"__transaction_state:{log.partition}")
        does = (
            f"start {listed(log.away, 'broker')}: until enough replicas of {parts[0]} are in sync, "
            "its coordinator can neither commit nor abort it"
        )
    refused = [r for r in then.refused if r[0] != "fence"]
    return replace(
        then,
        action="restore-leader",
        does=does,
        caveats=(f"not before that: {then.does}", *then.caveats),
        refused=(*refused, ("fence", f"its end cannot be written before {parts[0]} is back")),
        partitions=tuple(parts),
    )


def nothing(does: str) -> Remedy:
    """Return no remedy: `does` says what to grant, to restore or to wait for."""
    return Remedy(
        "none",
        does,
        refused=(("abort", "it could drop committed records: nobody can tell whose they are"),),
    )


def wait_for_markers(c: Case) -> Remedy:
    return Remedy(
        "wait",
        "its outcome is decided and its markers are being written: it ends by itself",
        refused=(("abort", "a decided transaction never gets a marker from here"),),
    )


def unblock_markers(c: Case) -> Remedy:
    """Restore leaders before a restart: the marker of a leaderless partition would be lost."""
    row = c.preparing
    refused = (
        ("abort", "its outcome is decided: a marker from here could contradict it"),
        NO_FENCE,
    )
    if c.leaderless:
        return Remedy(
            "restore-leader",
            "bring back a leader that answers for " + ", ".join(c.leaderless),
            caveats=("without a leader a restart of the coordinator loses the marker for good",),
            refused=(*refused, ("restart-coordinator", "a partition has no leader that answers")),
            partitions=c.leaderless,
        )
    if not c.reload_safe:
        return Remedy(
            "none",
            "every partition has a leader, and some may already have their marker: "
            f"make sure that their brokers have {FIX}, then restart the coordinator",
            refused=(*refused, NO_RESTART),
        )
    return Remedy(
        "restart-coordinator",
        "every partition has a leader: a restart of the coordinator sends the markers again",
        refused=refused,
        broker=row.coordinator if row else None,
    )


def resolve(c: Case) -> Remedy:
    outcome = c.lost[-1].outcome if c.lost else None
    return Remedy(
        "resolve",
        f"writes the {outcome} marker that its decision proves, to this partition only",
        refused=(
            ("abort", f"the coordinator already decided {str(outcome).upper()}: use resolve"),
        ),
        outcome=outcome,
    )


def wait_for_commit(c: Case) -> Remedy:
    """Wait (mixed): one marker of the later transaction decides the earlier data too."""
    row = c.ongoing
    name = row.transactional_id if row else None
    torn = "its marker would tear the open transaction"
    if c.lost and c.lost[-1].outcome == "commit":
        torn += (
            "; only if its owner is gone for good, and before the deadline: --outcome commit "
            "--owner-is-gone, which commits that transaction too"
        )
        does = (
            f"the commit of {name}'s open transaction saves the earlier, committed data; its abort "
            "or timeout destroys it: let its owner commit before the deadline"
        )
    else:
        does = (
            f"the end of {name}'s open transaction decides the earlier, aborted data too: its "
            "commit would deliver it, its abort drops it; that is its owner's choice"
        )
    if c.coordinator_lost_it and c.lost:
        decided = c.lost[-1].outcome
        does = (
            f"the coordinator of {name} has lost that decision and takes the transaction for open"
        )
        if decided == "commit":
            does += (
                ": its owner will not commit it again, and its timeout destroys it. Before the "
                "deadline: txn resolve --outcome commit --owner-is-gone"
            )
        else:
            does += ": its timeout aborts it, as was decided"
    return Remedy(
        "wait",
        does,
        refused=(
            ("abort", "it would destroy the earlier data with the later"),
            ("fence", "it aborts the open transaction, and the earlier data with it"),
            ("resolve", torn),
        ),
        transactional_id=name,
        deadline=c.deadline,
    )


def of_its_system(row: TransactionFacts, *refused: tuple[str, str]) -> Remedy:
    """Return the remedy for a two-phase transaction: leave it to its own system (KIP-939)."""
    return Remedy(
        "none",
        f"{row.transactional_id} belongs to a system that commits or aborts it itself "
        "(two-phase): ask that system",
        refused=(*refused, ("fence", ONLY_IF_GONE)),
        transactional_id=row.transactional_id,
    )


def of_owner(row: TransactionFacts, why: str, *refused: tuple[str, str]) -> Remedy:
    """Return the remedy for an owner that may be alive: wait. why: a sentence."""
    return _about(row, "wait", f"let its owner end it: {why}", *refused, ("fence", ONLY_IF_GONE))


def of_live(row: TransactionFacts, *refused: tuple[str, str]) -> Remedy:
    """Return the remedy for a transaction within its limits: wait."""
    return _about(row, "wait", "a live transaction within its limits: its owner ends it", *refused)


def of_gone(row: TransactionFacts, reach: str, *refused: tuple[str, str]) -> Remedy:
    """Return the remedy for an owner that is late: fence it. reach: words after the id's name."""
    does = f"aborts the open transaction of {row.transactional_id}{reach} and shuts its owner out"
    caveats = ("an owner that still lives is killed by it",)
    return replace(_about(row, "fence", does, *refused), caveats=caveats)


def _about(row: TransactionFacts, action: Action, does: str, *refused: tuple[str, str]) -> Remedy:
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
    if c.gate is not None:
        return of_owner(_owner(c), c.gate, _NO_ABORT_OWNED)
    return of_gone(_owner(c), " on all its partitions", _NO_ABORT_OWNED)


def wait_then_fence(c: Case) -> Remedy:
    plain = fence(c)
    if plain.action != "fence":
        return plain
    cycle = c.abort_cycle
    if c.cycles_missed is not None:
        first = "its coordinator does not abort it although it is due; "
    else:
        every = (
            "every 10s by default" if cycle is None else f"every {format_duration(cycle / 1000)}"
        )
        first = (
            f"its coordinator looks for such {every} and aborts it itself: wait for that first; "
        )
    return replace(plain, does=first + plain.does)


def let_it_run(c: Case) -> Remedy:
    return of_live(_owner(c), _NO_ABORT_OWNED)


def abort(c: Case) -> Remedy:
    return Remedy(
        "abort",
        "writes an abort marker to this partition only: its records are dropped for read_committed "
        "readers and the records after it are freed",
    )


def wait_for_namesake(c: Case) -> Remedy:
    """Wait: the orphan's id lives elsewhere, and any marker would hit its owner's next write."""
    row = c.elsewhere[0]
    danger = (
        f"{row.transactional_id} is still in use elsewhere ({row.state}): an abort marker here "
        "could break its next write or cause a duplicate"
    )
    fenced = "fence it first" + (" with --owner-is-gone" if c.gate else "")
    does = (
        f"wait until {row.transactional_id} has ended its transaction elsewhere, or {fenced}; then "
        "abort this one"
    )
    return _about(row, "wait", does, ("abort", danger))
