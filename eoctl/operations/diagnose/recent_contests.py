"""Find the ids that are contested now, in the newest part of `__transaction_state`."""

from collections.abc import Callable, Sequence

from eoctl.kafka.ask import clocks, groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.recent_log import OF_CONTESTS, OF_RECORDS, Tail, newest_states
from eoctl.operations.inspect.history_answer import contest_row
from eoctl.operations.inspect.source import Source
from eoctl.render.diagnose_words import contest_notes, reading_notes
from recovery.answers import Answer, error_rows
from recovery.diagnose.case import clients_of, possible_groups
from recovery.diagnose.contest import WINDOW_MS, Contests, goes_on
from recovery.diagnose.contest_log import ContestLog
from recovery.diagnose.decided import Decisions
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.facts import GroupFacts, Missing
from recovery.formats.batches import has_numpy
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.log_part import LogPart
from recovery.row import ErrorRow
from recovery.times import rfc3339
from recovery.values import replace

NOT_SEEN = "ids that are contested there are not seen"


class _Reading:
    """The contests of the newest states and, where it is asked often, how many were decided."""

    def __init__(self, *, often: bool) -> None:
        self.contests = ContestLog()
        self.decisions = Decisions() if often else None

    @property
    def full(self) -> bool:
        return self.contests.full

    def add(self, part: LogPart, partition: int) -> None:
        self.contests.add(part, partition)
        if self.decisions is not None:
            self.decisions.add(part, partition)


async def recent_contests(
    cluster: Cluster, clock: Callable[[], int], *, often: bool = False
) -> Contests:
    """Return the contests that go on, with the groups of their owners.

    clock: ours, epoch ms. often: for a dashboard, which reads less and counts decisions too.
    """
    now, late = clock(), 0
    recent = await _newest(cluster, now, often)
    if isinstance(recent, Tail) and not recent.tails.ranges:
        # idle, or all that is new is older than the window by our clock
        late = await _late(cluster, clock)
        recent = await _newest(cluster, now - late, often) if late else recent
    if isinstance(recent, Missing):
        return Contests(missing=(recent,))
    found = _judged(recent, now - late)
    if found.read_from is not None:
        found = replace(found, read_from=found.read_from + late)
    if not found.contests:
        return found
    names = {name for c in found.contests for name in possible_groups(c.transactional_id)}
    owners, missing = await groups.find_groups(cluster, sorted(names))
    return replace(found, groups=tuple(owners), groups_missing=tuple(missing))


async def _newest(cluster: Cluster, now: int, often: bool) -> Tail[_Reading] | Missing:
    # without numpy each record takes ten times as long
    bounds = OF_RECORDS if often or not has_numpy() else OF_CONTESTS
    return await newest_states(cluster, now - WINDOW_MS, lambda: _Reading(often=often), bounds)


async def _late(cluster: Cluster, clock: Callable[[], int]) -> int:
    """Return by how many ms the cluster's slowest clock is behind ours; 0: none is, or not known.

    Only an open transaction lets a coordinator's clock be measured; else it is the controller's.
    """
    _, measured = await clocks.of_coordinators(cluster, clock)
    ahead = [c.ahead for c in measured] or [await clocks.of_controller(cluster, clock) or 0]
    return max((-difference for difference in ahead if difference < 0), default=0)


def _judged(tail: Tail[_Reading], now: int) -> Contests:
    """Return the contests that go on among the records, and what was not read."""
    found, decisions = tail.sink.contests.contests, tail.sink.decisions
    number = tail.tails.partitions
    newest = {
        c.transactional_id: tail.newest.get(coordinator_partition(c.transactional_id, number), now)
        for c in found
    }
    counted = None
    if decisions is not None and not tail.ends and not tail.failed:
        counted = decisions.between(tail.read_from or now - WINDOW_MS, now)
    return Contests(
        # by our clock, and by its own coordinator's, which may be ahead of ours
        tuple(
            c
            for c in found
            if goes_on(c.initialisations[-1].at, now)
            and goes_on(c.initialisations[-1].at, newest[c.transactional_id])
        ),
        read_from=tail.read_from,
        unfinished=len(tail.ends),
        missing=(
            *tail.not_read(NOT_SEEN),
            *tail.not_reached(f"{NOT_SEEN}; ask `txn history ID` about an id", partly=True),
        ),
        decided=counted,
    )


async def with_contests(source: Source, answer: Answer) -> Answer:
    """Return an answer about the complete cluster with its contested ids, which are a finding."""
    return with_found(answer, await source.contests())


def with_found(answer: Answer, found: Contests) -> Answer:
    """Return an answer with these contests."""
    rows, now = contest_rows(found), answer.collected_at
    return replace(
        answer,
        errors=[*answer.errors, *error_rows(not_named(found, answer.errors))],
        extra={
            **answer.extra,
            "contests": None if found.number is None else rows,
            "contests_read_from": None if found.read_from is None else rfc3339(found.read_from),
            "contests_unfinished": found.unfinished,
        },
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
        _with_clients(contest_row(c), found.groups, found.groups_missing) for c in found.contests
    ]


async def with_clients(source: Source, row: ContestRow) -> ContestRow:
    """Return a contest with the clients of the groups that its id is named after."""
    found, missing = await source.named_groups(possible_groups(row.transactional_id))
    return _with_clients(row, found, missing)


def _with_clients(
    row: ContestRow, owners: Sequence[GroupFacts], missing: Sequence[Missing]
) -> ContestRow:
    members = clients_of(row.transactional_id, owners)
    if not members and missing:
        return row
    return replace(row, clients=[f"{client} at {host}" for client, host in members])
