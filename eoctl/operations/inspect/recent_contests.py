"""Find the ids that are contested now, in the newest part of `__transaction_state`."""

from collections.abc import Sequence

from eoctl.kafka.ask import groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.recent_state import not_read, recent_state
from eoctl.operations.inspect.source import Source
from eoctl.render.contest_words import contest_notes, reading_notes
from recovery.answers import Answer, error_rows
from recovery.diagnose.case import clients_of, possible_groups
from recovery.diagnose.contest import (
    WINDOW_MS,
    Contest,
    Contests,
    contests,
    goes_on,
)
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.facts import Missing
from recovery.row import ErrorRow
from recovery.values import replace


async def recent_contests(cluster: Cluster, now: int) -> Contests:
    """Return the contests that go on, with the groups of their owners. now: epoch ms, our clock."""
    recent = await recent_state(cluster, now - WINDOW_MS)
    if isinstance(recent, Missing):
        return Contests(missing=(recent,))
    found = Contests(
        tuple(c for c in contests(recent.records) if goes_on(c.initialisations[-1].at, now)),
        read_from=recent.read_from,
        unfinished=recent.unfinished,
        missing=tuple(not_read(recent, "ids that are contested there are not seen")),
    )
    if not found.contests:
        return found
    names = {name for c in found.contests for name in possible_groups(c.transactional_id)}
    owners, missing = await groups.find_groups(cluster, sorted(names))
    return replace(found, groups=tuple(owners), groups_missing=tuple(missing))


async def with_contests(source: Source, answer: Answer) -> Answer:
    """Return an answer about the complete cluster with its contested ids, which are a finding."""
    found = await source.contests()
    rows, now = contest_rows(found), answer.collected_at
    return replace(
        answer,
        errors=[*answer.errors, *error_rows(not_named(found, answer.errors))],
        extra={**answer.extra, "contests": None if found.number is None else rows},
        finding=answer.finding or bool(rows),
        notes=[*answer.notes, *contest_notes(rows, now), *reading_notes(found, now)],
    )


def not_named(found: Contests, others: Sequence[ErrorRow]) -> list[Missing]:
    """Return what could not be read, without what absent coordinators explain already."""
    away = any(e.scope in ("broker", "coordinator") for e in others)
    return [
        m
        for m in found.missing
        if ErrorRow.of(m) not in others and (m.error.endswith("AUTHORIZATION_FAILED") or not away)
    ]


def contest_rows(found: Contests) -> list[ContestRow]:
    """Return the contests as they are printed, with the clients of their groups."""
    return [
        replace(contest_row(c), clients=_clients(found, c.transactional_id)) for c in found.contests
    ]


def _clients(found: Contests, transactional_id: str) -> list[str] | None:
    members = clients_of(transactional_id, found.groups)
    if not members and found.groups_missing:
        return None
    return [f"{client} at {host}" for client, host in members]


def contest_row(c: Contest) -> ContestRow:
    """Return a contest as it is printed."""
    return ContestRow(
        transactional_id=c.transactional_id,
        initialisations=len(c.initialisations),
        aborted=c.aborted,
        since=c.initialisations[0].at,
        until=c.initialisations[-1].at,
        interval_seconds=c.interval_ms / 1000,
        timeouts_ms=list(c.timeouts),
        causes=list(c.causes),
        producer_id=c.producer_id,
        producer_epoch=c.producer_epoch,
        state=c.state,
    )
