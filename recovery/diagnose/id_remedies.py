"""Choose the way out for a transactional id that is stuck or cannot write its marker.

KAFKA-19999: without its fix a partition refuses a marker of transactions version 2 that it
already has, and the coordinator then never finishes. A coordinator that reloads sends every marker
of a Prepare* again. So a reload is advised only if no named partition has its marker yet.
"""

from collections.abc import Sequence
from typing import Any

from recovery.diagnose.remedies import (
    NO_FENCE,
    NO_RESTART,
    Refused,
    Remedy,
    of_gone,
    of_owner,
)
from recovery.facts import TransactionFacts
from recovery.inspect.id_facts import IdFacts, Refusing
from recovery.values import Reason

FEW_MOVES = 10
"""A leader can be moved this often by hand; beyond that, the real epoch does not catch up."""

_UNTIL = Reason("use-another-id")
_NO_RESOLVE = ("resolve", Reason("written-after-that"))


def past_the_fence(
    refusals: Sequence[Refusing],
    look: IdFacts,
    *,
    reload_safe: bool,
    client_version: int | None,
    here: str | None = None,
) -> Remedy:
    """Return the way out if partitions refuse the marker of an id in Prepare*.

    If a few epochs are missing, move the leader of its log that many times. Else write the marker
    that the Prepare* proves, where this transaction is open. client_version: None = unknown. here:
    the partition that is judged; None = the id, which holds none.
    """
    row, above = look.row, max(r.above for r in refusals)
    target: dict[str, Any] = {"transactional_id": row.transactional_id, "outcome": row.decided}
    held = [p.name for p in look.named or () if p.open_from is not None]
    by_epoch_alone = all(r.above > 0 for r in refusals)
    refused: list[Refused] = [NO_FENCE, _decided(row)]
    if by_epoch_alone and above <= FEW_MOVES and reload_safe:
        return _catch_up(look, above, [*refused, *([] if here is None else [_NO_RESOLVE])])
    # under v1 all batches of the transaction have that epoch: only a refusal by it counts
    own_epoch = [
        r.partition.name
        for r in refusals
        if r.above == 0
        and r.partition.producer
        and r.partition.producer.producer_epoch == row.producer_epoch
    ]
    if own_epoch and (here is None or here in own_epoch):
        does = Reason("written-with-its-epoch", {"partitions": own_epoch})
        refused.append(("restart-coordinator", Reason("refused-again")))
        return Remedy("none", does, refused=tuple(refused), **target)
    if not reload_safe:
        refused.append(NO_RESTART)
    ends = _when_it_ends(look, by_epoch_alone, client_version)
    if held:
        does = Reason("write-prepared-marker", {"outcome": row.decided, "partitions": held})
        caveats = (_UNTIL, ends)
        return Remedy("write-prepared-marker", does, caveats, tuple(refused), **target)
    return Remedy("none", Reason("nothing-open"), (ends,), tuple(refused), **target)


def _decided(row: TransactionFacts) -> Refused:
    return "abort", Reason("decided", {"outcome": row.decided})


def _catch_up(look: IdFacts, moves: int, refused: Sequence[Refused]) -> Remedy:
    """Return the moves of its log's leader after which partitions take the marker again."""
    row = look.row
    leaderless = tuple(p.name for p in look.named or () if not p.gone and p.facts.error is not None)
    if leaderless:
        return Remedy(
            "restore-leader",
            Reason("restore-leaders", {"partitions": leaderless, "ask_again": True}),
            caveats=(_UNTIL,),
            refused=(*refused, ("restart-coordinator", Reason("reload-loses-markers"))),
            transactional_id=row.transactional_id,
            partitions=leaderless,
            outcome=row.decided,
        )
    return Remedy(
        "restart-coordinator",
        Reason("move-leader", {"log": look.log, "moves": moves}),
        caveats=(_UNTIL,),
        refused=tuple(refused),
        transactional_id=row.transactional_id,
        outcome=row.decided,
        broker=row.coordinator,
        moves=moves,
    )


def unproven(remedy: Remedy, why: Reason) -> Remedy:
    """Return the remedy where no decision proves an outcome for what is open on a partition.

    remedy: the one that its id would have. why: evidence.
    """
    return Remedy(
        "none",
        Reason("unproven", more={"why": why}),
        caveats=remedy.caveats,
        refused=(
            *(pair for pair in remedy.refused if pair[0] not in ("abort", "resolve")),
            ("abort", Reason("decided-perhaps-on-these", {"outcome": remedy.outcome})),
            ("resolve", Reason("no-decision-proves")),
        ),
        transactional_id=remedy.transactional_id,
    )


def _when_it_ends(look: IdFacts, by_epoch_alone: bool, client_version: int | None) -> Reason:
    """Say which reload lets the coordinator finish: all partitions have to take the marker again.

    v1 markers carry the epoch of the batches, so a second one is accepted; v2 markers are accepted
    again only since the fix of KAFKA-19999.
    """
    log, v2 = look.log if by_epoch_alone else None, client_version is None or client_version >= 2
    return Reason("stuck-until-reload", {"state": look.row.state, "log": log, "v2": v2})


def about_refusal(refusals: Sequence[Refusing], look: IdFacts) -> list[Reason]:
    """Say which partitions refuse the marker, due to which epoch, and what a foreign one cost."""
    evidence = []
    for r in refusals:
        p = r.partition
        assert p.producer is not None
        data = {
            "topic": p.facts.topic,
            "partition": p.facts.partition,
            "coordinator_epoch": p.producer.coordinator_epoch,
            "leader_epoch": look.coordinator_epoch,
            "above": r.above,
            "producer_epoch": p.producer.producer_epoch,
            "open_from": p.open_from,
            "ended_by": None if p.ended_by is None else list(p.ended_by),
        }
        evidence.append(Reason("marker-refused", data, {"refusing": r, "look": look}))
    return evidence


def finish(look: IdFacts, newest: IdFacts, client_version: int | None) -> Remedy:
    """Return the way out of a Prepare* whose markers are all written."""
    name = look.row.transactional_id
    refused = (NO_FENCE, ("abort", Reason("all-written")))
    replicas = {"log": look.log, "in_sync": newest.in_sync, "min_in_sync": newest.min_in_sync}
    if newest.too_few_in_sync:
        return Remedy(
            "restore-leader",
            Reason("restore-replicas", replicas),
            caveats=(_UNTIL,),
            refused=(*refused, NO_RESTART),
            transactional_id=name,
            partitions=(look.log,),
        )
    v1 = client_version is not None and client_version < 2
    hidden = {
        "log_is_hidden": newest.too_few_in_sync is None,
        "least_is_hidden": newest.min_in_sync is None,
    }
    does = Reason("finish", {"log": look.log, **hidden, "v1": v1})
    return Remedy("none", does, (_UNTIL,), refused if v1 else (*refused, NO_RESTART), name)


def about_finish(look: IdFacts, newest: IdFacts) -> list[Reason]:
    """Say that every named partition has its marker, and how many log replicas are in sync."""
    named = look.named or ()
    gone = [p.name for p in named if p.gone]
    more = {"log": look.log, "too_few": newest.too_few_in_sync}
    data = {"in_sync": newest.in_sync, "min_in_sync": newest.min_in_sync}
    return [
        Reason("markers-written", {"partitions": [p.name for p in named]}, {"gone": gone}),
        Reason("coordinator-log", data, more),
    ]


def fence(
    row: TransactionFacts, gate: Reason | None, *, to_see_all: Reason | None, overdue: bool
) -> Remedy:
    """Return the fence of an id past a limit, or what to grant if its partitions are hidden.

    gate: why its owner may be alive; None = no reason. to_see_all: what to grant so that all its
    partitions are seen; None = they are.
    """
    if gate is not None:
        return of_owner(row, gate)
    if to_see_all is not None:
        return Remedy(
            "none",
            Reason("see-all-first", more={"then": to_see_all}),
            refused=(("fence", Reason("hidden-partitions")),),
            transactional_id=row.transactional_id,
        )
    return of_gone(row, Reason("wait-one-cycle") if overdue else None, held=False)
