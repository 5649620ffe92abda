"""Read what became of a drill's cases from the brokers' logs and from the journal."""

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from eoctl.kafka.connection.failures import WireError
from eoctl.lab.client import Client
from eoctl.lab.drills import judge, work
from eoctl.lab.drills.catalogue import OWN
from eoctl.lab.drills.drill_state import Case, DrillState
from eoctl.lab.drills.judge import Ending, Fence
from eoctl.lab.lab_tables import DrillGradeRow
from eoctl.stores.journal_files import Journal
from recovery.change.journal import JournalEntry
from recovery.errors import EoctlError
from recovery.row import ErrorRow

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

COMMIT = 1  # the type in a control record's key (KIP-98)
NEVER = 2**63  # epoch ms


def grade(lab: "Lab", state: DrillState) -> tuple[list[DrillGradeRow], list[ErrorRow]]:
    """Return a row per case, and what could not be read. For use outside an event loop."""
    looks = lab.status().brokers
    ready = {b.broker for b in looks if b.state == "ready"}
    away = next((b.broker for b in looks if b.broker not in ready), None)
    return asyncio.run(_grade(lab, state, ready, away))


async def _grade(
    lab: "Lab", state: DrillState, ready: set[int], away: int | None
) -> tuple[list[DrillGradeRow], list[ErrorRow]]:
    rows: list[DrillGradeRow] = []
    errors: list[ErrorRow] = []
    fences = _fences(lab, state)
    async with Client.of(lab.client_properties(), away) as client:
        for case in state.cases:
            try:
                if case.role == "broker":
                    gone = not (case.owner and case.owner.alive)  # the process that makes it leave
                    rows.append(judge.broker(case, gone=gone, ready=case.broker in ready))
                elif case.producer_id is None:
                    rows.append(work.grade(lab, case))
                else:
                    ending = await _ending(client, case, asked_at(state, case))
                    rows.append(
                        judge.transaction(case, ending, fences.get(str(case.transactional_id)))
                    )
            except (WireError, EoctlError) as error:
                errors.append(_error(case, error))
    return rows, errors


def _error(case: Case, error: WireError | EoctlError) -> ErrorRow:
    """Return a row for what could not be read about a case."""
    wire = isinstance(error, WireError)
    return ErrorRow(
        scope="partition",
        topic=case.topic,
        partition=case.partition,
        id=case.transactional_id,
        error=error.error if isinstance(error, WireError) else type(error).__name__,
        detail=error.detail if wire else error.sentence,  # type: ignore[union-attr]
    )


def asked_at(state: DrillState, case: Case) -> int | None:
    """Return when a trainee who ends a transaction had to ask at the latest, epoch ms.

    None: no time; its owner or coordinator may have ended it, which a twin's do not.
    """
    if state.drill != OWN.name:
        return None
    return state.questions.get(str(case.transactional_id), NEVER)


async def _ending(client: Client, case: Case, asked_at: int | None) -> Ending:
    """Read the log from the transaction's first batch to the first marker after it.

    asked_at: see `asked_at`.
    """
    assert case.topic is not None
    assert case.partition is not None
    assert case.start_offset is not None
    records = 0
    for batch in await client.batches(case.topic, case.partition, case.start_offset):
        if batch.producer_id != case.producer_id or batch.base_offset < case.start_offset:
            continue
        if not batch.is_control_batch:
            records += sum(1 for _ in batch)
            continue
        [marker] = batch
        key = bytes(marker.key)
        outcome = int.from_bytes(key[2:4], "big")
        unasked = asked_at is not None and marker.timestamp < asked_at
        decided: Literal["commit", "abort"] = "commit" if outcome == COMMIT else "abort"
        return Ending(decided, records, batch.base_offset, unasked)
    return Ending(None, records)


def _fences(lab: "Lab", state: DrillState) -> dict[str, Fence]:
    """Return each id's fences that were carried out since the drill began."""
    fences: dict[str, Fence] = {}
    for entry in Journal().find().entries:
        if entry.begun.at < state.started_at or entry.plan.cluster_id != lab.record.cluster_id:
            continue
        for name in _fenced(entry):
            asked = state.questions.get(name)
            fences.setdefault(name, Fence(asked is not None and asked <= entry.begun.at))
    return fences


def _fenced(entry: JournalEntry) -> set[str]:
    """Return the ids in an entry's fence steps that were begun."""
    begun = entry.steps("step-started")
    about: list[dict[str, Any]] = [
        a
        for number, step in enumerate(entry.plan.steps, 1)
        if step.action == "fence" and number in begun
        for a in step.about
    ]
    return {str(a["transactional_id"]) for a in about}
