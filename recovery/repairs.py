"""May a remedy be carried out, and with exactly which requests. Nothing is sent from here."""

from dataclasses import dataclass

from recovery.facts import ProducerFacts, TransactionFacts, Transactions
from recovery.history import Decision
from recovery.observation import OpenTransaction
from recovery.verdicts import Verdict

MAX_EPOCH = 32_767


def remedy_allowed(
    verdict: Verdict,
    action: str,
    *,
    owner_is_gone: bool = False,
    accept_unknown_outcome: bool = False,
) -> str | None:
    """None: allowed. Else the refusal, one sentence that names the right remedy (exit status 4).

    For a fence ask this of every partition on which the id is open: one refusal is enough.
    """
    if action == "abort" and verdict.remedy.action == "abort":
        return None
    if action == "resolve" and (
        verdict.remedy.action == "resolve"
        or (verdict.rule == "history-compacted" and accept_unknown_outcome and not verdict.owner)
    ):
        return None
    why = _fence_refused(verdict, owner_is_gone) if action == "fence" else None
    if action == "fence" and why is None:
        return None
    refused = why or dict(verdict.remedy.refused).get(action, f"{action} is not for this verdict")
    kind = "marker-lost, mixed" if verdict.mixed else verdict.name
    return (
        f"{verdict.about.name} producer id {verdict.about.producer_id} is {kind} "
        f"({verdict.rule}): {refused}; the remedy is {verdict.remedy.action}: {verdict.remedy.does}"
    )


def _fence_refused(v: Verdict, owner_is_gone: bool) -> str | None:
    if v.name not in ("open", "long", "overdue", "two-phase", "orphan"):
        return dict(v.remedy.refused).get("fence", "fence is not for this verdict")
    if v.owner is None or v.owner.state != "Ongoing":
        return "no id is Ongoing with this producer id: there is nothing to fence"
    if v.owner_two_phase and not owner_is_gone:
        return f"{v.owner.transactional_id} is two-phase: only with --owner-is-gone"
    if v.name != "orphan" and not v.fence_safe:
        return "whether decided data lies under its transaction is not known: a fence destroys it"
    return None


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """One entry of WriteTxnMarkers, to the partition's leader only.

    transaction_version: the request's field (v2 of the request); 0 = as a v1 request means it.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    outcome: str
    coordinator_epoch: int
    transaction_version: int


@dataclass(frozen=True, slots=True)
class EndRequest:
    """EndTxn (abort) at this version with the observed producer id and epoch: compare-and-set."""

    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitRequest:
    """InitProducerId with the expected producer id and epoch and the id's described timeout."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


def _coordinator_epoch(row: ProducerFacts) -> int:
    # Never above what was described: a higher one fences the real coordinator.
    return max(row.coordinator_epoch if row.coordinator_epoch is not None else -1, 0)


def abort_marker(
    about: OpenTransaction,
    row: ProducerFacts,
    transactions: Transactions,
    transaction_version: int,
    outcome: str = "abort",
) -> MarkerRequest:
    """The marker for an orphan, or, with `outcome`, where the operator accepted an unknown one.

    transaction_version: the cluster's finalized feature. Epoch + 1 (version 2) shuts out stray
    writers, but also a live id with the old epoch: only if no coordinator knows the producer id,
    or knows it with an epoch at least that high. Else the equal epoch as version 0.
    """
    raised = row.producer_epoch + 1
    raise_it = (
        transaction_version >= 2
        and raised <= MAX_EPOCH
        and all(
            t.producer_epoch is not None and t.producer_epoch >= raised
            for t in transactions.owners(row.producer_id)
        )
    )
    return MarkerRequest(
        about.topic,
        about.partition,
        row.producer_id,
        raised if raise_it else row.producer_epoch,
        outcome,
        _coordinator_epoch(row),
        2 if raise_it else 0,
    )


def resolve_marker(about: OpenTransaction, row: ProducerFacts, decision: Decision) -> MarkerRequest:
    """The marker that the coordinator would have written: all copied from its Prepare* record."""
    return MarkerRequest(
        about.topic,
        about.partition,
        decision.producer_id,
        decision.producer_epoch,
        decision.outcome,
        _coordinator_epoch(row),
        decision.client_version,
    )


def fence_requests(
    row: TransactionFacts, transaction_version: int
) -> tuple[EndRequest, InitRequest | None]:
    """End it first with the observed epoch; a stale one changes nothing (ProducerFenced).

    v2 (EndTxn v5) raises the epoch itself. v1 (EndTxn v3) does not shut the owner out:
    InitProducerId follows, and what its owner begins between the two is aborted as well (the plan
    says so).
    Never InitProducerId alone: with a stale epoch it aborts all the same.
    Raises ValueError for an id that was not described or is not Ongoing.
    """
    if row.state != "Ongoing" or row.producer_epoch is None or row.timeout_ms is None:
        raise ValueError(f"{row.transactional_id} is {row.state}, or was not described")
    name, pid, epoch = row.transactional_id, row.producer_id, row.producer_epoch
    if transaction_version >= 2:
        return EndRequest(5, name, pid, epoch), None
    return EndRequest(3, name, pid, epoch), InitRequest(name, pid, epoch, row.timeout_ms)
