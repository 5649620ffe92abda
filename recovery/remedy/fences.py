"""Judge a fence's result by what the coordinator then reports about its id."""

from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import Incarnation, is_shut_out
from recovery.inspect.observation import CLOSED_STATES

NOT_FENCED = "ASSUMED: the old process is dead. It was not fenced: check it"


def incarnation(row: TransactionFacts) -> Incarnation:
    """Return the id's current incarnation. A described id has an epoch."""
    assert row.producer_epoch is not None
    return Incarnation(row.producer_id, row.producer_epoch)


def taken_over(name: str, other: Incarnation, *, cut_short: bool) -> str:
    """Say who holds an id that was initialised again before its owner was shut out.

    cut_short: a request of the fence may have aborted a transaction of that holder.
    """
    harm = "its own transaction may have been aborted by this fence" if cut_short else "untouched"
    return (
        f"somebody has initialised {name} meanwhile: producer id {other.producer_id} epoch "
        f"{other.producer_epoch} holds it now, {harm}. Ask whether its application was started "
        f"again: then leave it. {NOT_FENCED}, then `eoctl txn fence {name} --owner-is-gone`"
    )


def beyond_fence(now: TransactionFacts, used: Incarnation, *, outcome: str) -> str | None:
    """Say how a finished transaction ended other than by its fence; None: as planned.

    The fence leaves the id idle and its owner shut out; an application that starts after that has
    an even later epoch. outcome: how the fence ends the transaction, abort or commit.
    """
    if is_shut_out(used, incarnation(now)):
        return None
    again = f"`eoctl txn fence {now.transactional_id} --owner-is-gone`"
    if now.state == "CompleteCommit" and outcome == "abort":
        return f"its owner committed: nothing was aborted. {NOT_FENCED}, then {again}"
    if now.state == "Ongoing":
        return f"an owner goes on with epoch {now.producer_epoch}: it was not shut out"
    return f"{NOT_FENCED}, then {again}"


def is_half_fenced(
    now: TransactionFacts, used: Incarnation, *, outcome: str, owner_is_gone: bool
) -> bool:
    """Return True if a fence that was cut off after its EndTxn may continue with raising the id.

    The id must not have been initialised since, or it would be Empty, as after a raise by eoctl.
    With owner_is_gone (the operator's word) the fence may continue in that case too.
    """
    if now.state not in CLOSED_STATES or is_shut_out(used, incarnation(now)):
        return False
    if owner_is_gone:
        return True
    epochs = (used.producer_epoch, used.producer_epoch + 1)
    same = now.producer_id == used.producer_id and now.producer_epoch in epochs
    return same and now.state == f"Complete{outcome.capitalize()}"
