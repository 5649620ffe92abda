"""Find the transactional ids that are contested now, in the newest part of `__transaction_state`.

What that costs is bounded: the last ten minutes of each partition, at most MOST_RECORDS offsets and
MOST_BYTES in all. Where there is more, every partition gets an equal share of its newest records.
"""

from collections.abc import Iterable, Sequence

from eoctl.kafka.ask import collect, coordinators, groups
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from eoctl.operations.inspect.source import Source
from eoctl.render.contest_words import contest_notes, reading_notes
from recovery.answers import Answer, error_rows
from recovery.diagnose.case import clients_of, possible_groups
from recovery.diagnose.contest import (
    MOST_BYTES,
    MOST_RECORDS,
    WINDOW_MS,
    Contest,
    Contests,
    contests,
    goes_on,
)
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.facts import GroupFacts, Missing, grouped
from recovery.formats.batches import verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import part_of
from recovery.plurals import counted
from recovery.row import ErrorRow
from recovery.values import Value, replace


async def recent_contests(cluster: Cluster, now: int) -> Contests:
    """Return the contests that go on, with the groups of their owners. now: epoch ms, our clock."""
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return Contests(missing=(partitions,))
    tails = await _tails(cluster, partitions, now - WINDOW_MS)
    found = _judged(tails, await _read(cluster, tails), len(partitions), now)
    if not found.contests:
        return found
    names = {name for c in found.contests for name in possible_groups(c.transactional_id)}
    owners, missing = await groups.find_groups(cluster, sorted(names))
    return replace(found, groups=tuple(owners), groups_missing=tuple(missing))


class _Tails(Value):
    """The ranges to read. cut: those that begin later than asked. failed: partition → why not."""

    ranges: tuple[Range, ...]
    cut: frozenset[int]
    failed: dict[int, str]


async def _tails(cluster: Cluster, partitions: Sequence[PartitionMetadata], since: int) -> _Tails:
    """Return the ranges from an epoch ms on, shortened to MOST_RECORDS offsets in all."""
    facts, _ = await collect.partition_offsets(cluster, (), partitions)
    first, _ = await collect.offsets_at(cluster, partitions, [since])
    ranges: list[Range] = []
    failed: dict[int, str] = {}
    for p in facts:
        if p.error is not None or p.log_start_offset is None or p.high_watermark is None:
            failed[p.partition] = p.error or "NOT_SEEN"
            continue
        end = p.high_watermark
        # a leader that moved between the two answers says nothing of times: its share is read
        start = first.get(p.topic_partition, {since: p.log_start_offset}).get(since, end)
        ranges.append(Range(p.topic, p.partition, min(start, end), end))
    most = fair_share([r.end - r.start for r in ranges], MOST_RECORDS)
    cut = frozenset(r.partition for r in ranges if r.end - r.start > most)
    shortened = (replace(r, start=max(r.start, r.end - most)) for r in ranges)
    return _Tails(tuple(r for r in shortened if r.start < r.end), cut, failed)


def fair_share(sizes: Iterable[int], most: int) -> int:
    """Return how much each may take, so that all together take at most `most`.

    >>> fair_share([10, 500, 900], 1010)
    500
    >>> fair_share([10, 20], 100)
    20
    """
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        share = most // (len(ordered) - number)
        if size > share:
            return share
        most -= size
    return ordered[-1] if ordered else 0


class _Tail:
    """What was read of the ranges. ends: of those that are not read to their end yet."""

    def __init__(self, tails: _Tails) -> None:
        self.ends = {r.partition: r.end for r in tails.ranges}
        self.failed = dict(tails.failed)
        self.records: list[StateRecord] = []
        self.size = 0

    def take(self, item: Chunk | Ended) -> None:
        """Add what the reader gives; after an error nothing more of that partition."""
        number = item.partition
        if isinstance(item, Ended):
            self.ends.pop(number, None)
            if item.error is not None:
                self.failed.setdefault(number, item.error)
            return
        self.size += len(item.records)
        if item.next_offset >= self.ends.get(number, 0):
            self.ends.pop(number, None)
        if number not in self.failed:
            try:
                self.records += _decoded(item)
            except CorruptError:
                self.failed[number] = "CORRUPT"


async def _read(cluster: Cluster, tails: _Tails) -> _Tail:
    """Read the ranges, about MOST_BYTES at most."""
    tail = _Tail(tails)
    reading = read(cluster, tails.ranges)
    try:
        async for item in reading:
            tail.take(item)
            if tail.size >= MOST_BYTES:
                break
    finally:
        await reading.aclose()
    return tail


def _judged(tails: _Tails, tail: _Tail, partitions: int, now: int) -> Contests:
    """Return the contests that go on among the records, and what was not read."""
    oldest: dict[int, int] = {}
    for r in tail.records:
        if r.partition in tails.cut and r.timestamp > now - WINDOW_MS:
            oldest.setdefault(r.partition, r.timestamp)
    return Contests(
        tuple(c for c in contests(tail.records) if goes_on(c.initialisations[-1].at, now)),
        read_from=max(oldest.values(), default=None),
        unfinished=len(tail.ends),
        missing=tuple(_missing(tail.failed, partitions)),
    )


def _decoded(chunk: Chunk) -> list[StateRecord]:
    """Return the records of a chunk. Raises CorruptError."""
    part = part_of(chunk.records)
    verify_crcs(chunk.records, part.scan)
    return list(part.decoded(chunk.partition, range(len(part.scan))))


def _missing(failed: dict[int, str], partitions: int) -> list[Missing]:
    """Return a `Missing` per error, each of all partitions that it concerns."""
    by_error = grouped((error, number) for number, error in sorted(failed.items()))
    return [
        Missing(
            "topic",
            error,
            f"{len(numbers)} of {counted(partitions, 'partition')} of __transaction_state could "
            "not be read, so ids that are contested there are not seen"
            + ("; grant READ on that topic" if error.endswith("AUTHORIZATION_FAILED") else ""),
            topic=coordinators.TRANSACTION_STATE,
        )
        for error, numbers in by_error.items()
    ]


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
