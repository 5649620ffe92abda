"""Choose the way out for a transactional id that is stuck or cannot write its marker.

KAFKA-19999: without its fix (`FIX`) a partition refuses a marker of transactions version 2 that it
already has, and the coordinator then never finishes. A coordinator that reloads sends every marker
of a Prepare* again. So a reload is advised only if no named partition has its marker yet.
"""

from collections.abc import Sequence

from recovery.diagnose.evidence import Evidence
from recovery.diagnose.remedies import FIX, NO_FENCE, NO_RESTART, Remedy, of_gone, of_owner
from recovery.facts import TransactionFacts
from recovery.inspect.id_facts import IdFacts, Refusing
from recovery.plurals import counted
from recovery.values import replace

FEW_MOVES = 10
"""A leader can be moved this often by hand; beyond that, the real epoch does not catch up."""

_UNTIL = (
    "until its coordinator finishes it, the id answers CONCURRENT_TRANSACTIONS: let its "
    "application use another transactional id meanwhile"
)
_NO_RESOLVE = ("resolve", "its coordinator writes the decided marker itself after that")


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
    outcome = row.state.removeprefix("Prepare").lower()
    log = f"__transaction_state:{look.state_partition}"
    held = [p for p in look.named or () if p.open_from is not None]
    by_epoch_alone = all(r.above > 0 for r in refusals)
    refused = [NO_FENCE, ("abort", f"its coordinator decided {outcome}")]
    if here is not None:
        refused.append(_NO_RESOLVE)
    few = by_epoch_alone and above <= FEW_MOVES and reload_safe
    leaderless = tuple(p.name for p in look.named or () if not p.gone and p.facts.error is not None)
    if few and leaderless:
        return Remedy(
            "restore-leader",
            "bring back a leader that answers for " + ", ".join(leaderless) + "; then ask again",
            caveats=(_UNTIL,),
            refused=(
                *refused,
                ("restart-coordinator", "a reload loses the markers of partitions without leader"),
            ),
            transactional_id=row.transactional_id,
            partitions=leaderless,
            outcome=outcome,
        )
    if few:
        times = "once" if above == 1 else f"{above} times"
        return Remedy(
            "restart-coordinator",
            f"move the leader of {log} to another broker {times}, each move raises its epoch by "
            "one; then its coordinator's markers are accepted again, and it sends them without "
            "further action",
            caveats=(_UNTIL,),
            refused=tuple(refused),
            transactional_id=row.transactional_id,
            outcome=outcome,
            broker=row.coordinator,
            moves=above,
        )
    refused = [pair for pair in refused if pair != _NO_RESOLVE]
    # under v1 all batches of the transaction have that epoch: only a refusal by it counts
    own_epoch = [
        r.partition.name
        for r in refusals
        if r.above == 0
        and r.partition.producer
        and r.partition.producer.producer_epoch == row.producer_epoch
    ]
    if own_epoch and (here is None or here in own_epoch):
        return Remedy(
            "none",
            f"what is open on {', '.join(own_epoch)} was written with the epoch of its marker, by "
            "nobody that its coordinator knows: no outcome of it is proven; " + _UNTIL,
            refused=(*refused, ("restart-coordinator", "its marker would be refused again")),
            transactional_id=row.transactional_id,
            outcome=outcome,
        )
    if not reload_safe:
        refused.append(NO_RESTART)
    ends = _when_it_ends(look, by_epoch_alone, client_version)
    if held:
        names = ", ".join(p.name for p in held)
        return Remedy(
            "write-prepared-marker",
            f"write the {outcome} marker that its Prepare record proves, to {names}, where this "
            "very transaction is open; its coordinator cannot",
            caveats=(_UNTIL, ends),
            refused=tuple(refused),
            transactional_id=row.transactional_id,
            outcome=outcome,
        )
    return Remedy(
        "none",
        "nothing of it is open any more, so no marker helps; " + _UNTIL,
        caveats=(ends,),
        refused=tuple(refused),
        transactional_id=row.transactional_id,
        outcome=outcome,
    )


def unproven(remedy: Remedy, why: str) -> Remedy:
    """Return the remedy where no decision proves an outcome for what is open on a partition.

    remedy: the one that its id would have. why: a sentence.
    """
    return Remedy(
        "none",
        f"no outcome of the records that are held is proven: {why}",
        caveats=remedy.caveats,
        refused=(
            *(pair for pair in remedy.refused if pair[0] not in ("abort", "resolve")),
            ("abort", f"its coordinator decided {remedy.outcome}, perhaps on these very records"),
            ("resolve", "no decision proves an outcome for these records"),
        ),
        transactional_id=remedy.transactional_id,
    )


def _when_it_ends(look: IdFacts, by_epoch_alone: bool, client_version: int | None) -> str:
    """Say which reload lets the coordinator finish: all partitions have to take the marker again.

    v1 markers carry the epoch of the batches, so a second one is accepted; v2 markers are accepted
    again only since the fix of KAFKA-19999.
    """
    catch_up = ""
    if by_epoch_alone:
        catch_up = f"the leader epoch of __transaction_state:{look.state_partition} has caught up"
        if client_version is None or client_version >= 2:
            catch_up += f" (with transactions version 2 only on brokers with {FIX})"
        catch_up += ", or after "
    return (
        f"it stays {look.row.state} until its coordinator reloads after {catch_up}the partition "
        "has forgotten the producer (producer.id.expiration.ms, 24 h)"
    )


def about_refusal(refusals: Sequence[Refusing], look: IdFacts) -> list[Evidence]:
    """Say which partitions refuse the marker, due to which epoch, and what a foreign one cost."""
    evidence = []
    outcome = look.row.state.removeprefix("Prepare").lower()
    for r in refusals:
        p = r.partition
        assert p.producer is not None
        if p.open_from is not None:
            is_open = f"a transaction is open there from offset {p.open_from}"
        else:
            is_open = "none of it is open there any more"
        if p.open_from is None and p.ended_by is not None:
            by, at = p.ended_by
            is_open += f": the {by} marker at offset {at} ended it"
            if by != outcome:
                is_open += (
                    f". LOSS: its coordinator decided {outcome}, and that marker says {by}"
                    if outcome == "commit"
                    else f". Its coordinator decided {outcome}: records were delivered that it "
                    "aborted"
                )
        if r.above:
            text = (
                f"{p.name} has seen coordinator epoch {p.producer.coordinator_epoch}, its "
                f"coordinator's is {look.coordinator_epoch}: {r.above} below, so its marker is "
                f"refused; {is_open}"
            )
        elif p.producer.producer_epoch == look.row.producer_epoch:
            text = (
                f"on {p.name} somebody wrote with producer epoch {p.producer.producer_epoch}, the "
                "one of its marker, which is refused for as long as that is open (KAFKA-19999): "
                f"{is_open}"
            )
        else:
            text = (
                f"{p.name} has seen producer epoch {p.producer.producer_epoch}, its Prepare* "
                f"bears {look.row.producer_epoch}: its marker is refused; {is_open}"
            )
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
        evidence.append(Evidence("marker-refused", text, data))
    return evidence


def finish(look: IdFacts, newest: IdFacts, client_version: int | None) -> Remedy:
    """Return the way out of a Prepare* whose markers are all written."""
    row, log = look.row, f"__transaction_state:{look.state_partition}"
    refused = (NO_FENCE, ("abort", "every partition has its marker: nothing is open"))
    if newest.too_few_in_sync:
        return Remedy(
            "restore-leader",
            f"bring back replicas of {log}: {newest.in_sync} in sync, it must have "
            f"{newest.min_in_sync} (min.insync.replicas) to take the record that completes it; "
            "its coordinator then finishes it",
            caveats=(_UNTIL,),
            refused=(*refused, NO_RESTART),
            transactional_id=row.transactional_id,
            partitions=(log,),
        )
    if newest.too_few_in_sync is None:
        log_words = (
            f"find out whether {log} has as many replicas in sync as min.insync.replicas asks "
            "for (grant DESCRIBE_CONFIGS on it); if it has, "
        )
    else:
        log_words = "ask again in a minute: a record that its log refused is tried again; then, "
    if client_version is not None and client_version < 2:
        does = "its coordinator has only to write its last record: see its broker's log"
        return Remedy("none", log_words + does, (_UNTIL,), refused, row.transactional_id)
    does = (
        "its coordinator may send markers again that were written before, and brokers without "
        f"{FIX} refuse these: upgrade them, or have its coordinator reload after the partitions "
        "have forgotten the producer (producer.id.expiration.ms, 24 h)"
    )
    return Remedy(
        "none",
        log_words + does,
        (_UNTIL,),
        (*refused, NO_RESTART),
        row.transactional_id,
    )


def about_finish(look: IdFacts, newest: IdFacts) -> list[Evidence]:
    """Say that every named partition has its marker, and how many log replicas are in sync."""
    named = look.named or ()
    gone = [p.name for p in named if p.gone]
    text = (
        f"it names {counted(len(named), 'partition')}: each has its marker, or nothing of it is "
        "open there, and its coordinator has not completed it"
    )
    if gone:
        text += f"; deleted since: {', '.join(gone)}"
    log = f"__transaction_state:{look.state_partition}"
    replica_text = {
        None: "how many of its replicas must be in sync is not known",
        True: "too few for a record that all of these must acknowledge",
        False: "enough",
    }[newest.too_few_in_sync]
    replicas = f"Replicas of {log} in sync: {_or_unknown(newest.in_sync)}, needed: "
    replicas += f"{_or_unknown(newest.min_in_sync)}: {replica_text}"
    data = {"in_sync": newest.in_sync, "min_in_sync": newest.min_in_sync}
    return [
        Evidence("markers-written", text, {"partitions": [p.name for p in named]}),
        Evidence("coordinator-log", replicas, data),
    ]


def _or_unknown(value: int | None) -> str:
    return "not known" if value is None else str(value)


def fence(
    row: TransactionFacts, gate: str | None, *, to_see_all: str | None, overdue: bool
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
            f"{to_see_all}: which partitions a fence would abort is not known",
            refused=(("fence", "partitions that are not visible may hold records of it"),),
            transactional_id=row.transactional_id,
        )
    wait = "the coordinator aborts it in its next cycle: wait one, then fence; " if overdue else ""
    late = of_gone(row, ", which holds no record back,")
    return replace(late, does=wait + late.does)
