"""`why`: tell the story of one partition, or of what holds a group up, on one page."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from eoctl.operations.diagnose.recent_contests import with_clients, with_contests
from eoctl.operations.diagnose.verdict_rows import HIDDEN, hanging_row, unknown_as_missing
from eoctl.operations.inspect.connect_owners import connect_rows
from eoctl.operations.inspect.history_answer import history_and_contests
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.marker_origins import marker_rows
from eoctl.operations.inspect.source import Source
from eoctl.render.diagnose_words import contest_notes, lag_words, stuck_words, wait_words
from eoctl.render.shell import command
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.diagnose.case import clients_of, named_after
from recovery.diagnose.contest import goes_on
from recovery.diagnose.diagnosis import ORDER, Diagnosis, Judged, JudgedId
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.diagnose.prospect import prospect
from recovery.diagnose.reach import READ_COMMITTED, also_holds, is_beyond, share_held_up
from recovery.diagnose.waiting_records import Waiting
from recovery.diagnose.why_rows import (
    GroupStoryRow,
    HeldGroupRow,
    OwnerRow,
    WaitingRow,
    WaitRow,
    WhyRow,
)
from recovery.facts import GroupFacts, Missing, PartitionFacts
from recovery.inspect.cluster_rows import ConnectRow, HistoryRow, StripRow
from recovery.inspect.group_life import own_process
from recovery.inspect.inspection import blocking_producer
from recovery.inspect.observation import Settings
from recovery.plurals import counted, listed
from recovery.quoting import some
from recovery.selectors import Selector
from recovery.values import replace

HISTORY_RECORDS = 8
WRITTEN_SINCE = 192  # records that may have come since the transaction was judged
MOST_FIRST = 20  # partitions, and ids, of a first snapshot: a terminal has no room for more
MOST_FREE_READ = 8  # partitions that nothing holds whose log is read for the markers in it
_HOST_UNKNOWN = "Kafka does not record its host: look for this id in your deployments"

FirstLook = Callable[[Diagnosis, Sequence[PartitionFacts], Sequence[JudgedId]], None]
"""Takes what one look judges, and the partitions and ids that are asked for."""


async def why(
    source: Source,
    context: Context,
    selectors: Sequence[Selector],
    settings: Settings,
    *,
    pause: float,
    transactional_id: str | None = None,
    on_first_look: Callable[[Answer], None] | None = None,
) -> Answer:
    """Return one row per partition: those named and held, or the worst one.

    transactional_id: those that the id holds; one row without a partition if it holds none. If
    nothing is named, the worst: a partition, or an id that holds none. on_first_look: called before
    the pause if two snapshots are needed, with rows of what the first one saw: the holder, its
    start, and the owner.
    """

    def first_look(
        d: Diagnosis, targets: Sequence[PartitionFacts], ids: Sequence[JudgedId]
    ) -> None:
        if on_first_look is not None:
            rows = [id_row_seen(context, d, j) for j in ids]
            rows += [seen_row(context, d, p, _about(d, p, transactional_id)) for p in targets]
            on_first_look(answer_of(source, rows, [], [], d))

    missing: list[Missing] = []
    if transactional_id is not None:
        return await _of_id(source, context, transactional_id, settings, pause, first_look)
    scope = Scope(tuple(selectors))
    anything = not selectors

    def worst_or_named(d: Diagnosis) -> None:
        # only a verdict shows which one is worst
        ids = [j for j in d.ids if anything and j.verdict.name not in HIDDEN]
        first_look(d, held_targets(d, worst_only=False)[:MOST_FIRST], ids[:MOST_FIRST])

    d = await source.diagnose(scope, settings, pause=pause, on_first_look=worst_or_named)
    missing += d.missing
    targets = held_targets(d, worst_only=anything)
    id_first = _worst_id(d, targets) if anything else None
    if id_first is not None:
        rows = [await id_row(source, context, d, id_first)]
    else:
        rows, more = await rows_of(source, context, d, targets)
        missing += more
        if not rows and selectors:
            rows = await healthy_rows(source, context, scope, d)
    answer = answer_of(source, rows, missing, unknown_as_missing(d), d)
    return await with_contests(source, answer) if anything else answer


async def _groups(
    source: Source, partitions: Sequence[PartitionFacts]
) -> tuple[list[GroupFacts], list[Missing]]:
    """Return the groups that have committed on these partitions, with members and these offsets."""
    return await source.groups([p.topic_partition for p in partitions]) if partitions else ([], [])


def answer_of(
    source: Source,
    rows: Sequence[WhyRow],
    missing: Sequence[Missing],
    unknown: Sequence[Missing],
    d: Diagnosis | None = None,
    notes: Sequence[str] = (),
    *,
    group: str | None = None,
    story: GroupStoryRow | None = None,
) -> Answer:
    """Return the answer of `why`. story: of the group, where one is asked about.

    A finding: what the diagnosis calls one of these rows, or that the row's id is contested.
    """
    shown = {(r.topic, r.partition) for r in rows}
    named = {r.transactional_id for r in rows if r.topic is None}
    mine = [
        m
        for m in unknown
        if (m.id in named if m.topic is None else (m.topic, m.partition) in shown)
    ]
    return Answer(
        schema="why",
        cluster_id=source.cluster_id,
        collected_at=source.now() if d is None else d.collected_at,
        rows=rows,
        errors=error_rows(dict.fromkeys([*missing, *mine])),
        extra={"group": group} if group is None else {"group": group, "group_story": story},
        judging=True,
        finding=any(r.contest is not None for r in rows)
        or (
            d is not None
            and any(
                j.name in named if isinstance(j, JudgedId) else j.about.topic_partition in shown
                for j in d.findings
            )
        ),
        notes=() if d is None else (*d.notes, *notes),
    )


async def _of_id(
    source: Source,
    context: Context,
    name: str,
    settings: Settings,
    pause: float,
    first_look: FirstLook,
) -> Answer:
    """Judge what one transactional id holds; it has a row without a partition if nothing."""

    def held_by_it(d: Diagnosis) -> tuple[list[PartitionFacts], list[JudgedId]]:
        holds = {j.about.topic_partition for j in d.judged if _is_of(j, name)}
        targets = [p for p in d.partitions if p.topic_partition in holds]
        return targets, [j for j in d.ids if j.name == name]

    d = await source.diagnose(
        Scope(),
        settings,
        pause=pause,
        on_first_look=lambda d: first_look(d, *held_by_it(d)),
    )
    missing, notes, contested = list(d.missing), [], False
    targets, ids = held_by_it(d)
    holds = {p.topic_partition for p in targets}
    rows, more = await rows_of(source, context, d, targets, name)
    missing += more
    notes = [
        f"{p.topic_partition}: another transaction, producer id {at_lso.about.producer_id}, "
        f"holds its readers first; this page and its remedy are about {name}"
        for p in targets
        if (at_lso := _holder(d, p)) is not None and at_lso is not _about(d, p, name)
    ]
    rows += [await id_row(source, context, d, j) for j in ids]
    if not rows:
        transactions, _ = await source.find([name])
        missing += [m for m in transactions.missing if m not in missing]
        notes = [
            f"{name} is {t.state}: it has no open transaction and holds nothing"
            for t in transactions.rows
        ]
        _, contests = await history_and_contests(
            source, [name], [], newest=HISTORY_RECORDS + WRITTEN_SINCE
        )
        contest = await contest_now(source, contests, d.collected_at)
        contested = contest is not None
        notes += contest_notes([contest], d.collected_at) if contest is not None else []
    else:
        # a partition without a leader matters only if this id may hold it
        of_id = [j for j in d.judged if j.about.topic_partition in holds]
        named = {p.topic_partition for j in d.ids if j.name == name for p in j.first.named or ()}
        named |= {tp for j in of_id if j.verdict.owner for tp in j.verdict.owner.partitions or ()}
        missing = [m for m in missing if m.scope != "partition" or m.topic_partition in named]
    answer = answer_of(source, rows, missing, unknown_as_missing(d), d, notes)
    return replace(answer, finding=True) if contested else answer


def _worst_id(d: Diagnosis, targets: Sequence[PartitionFacts]) -> JudgedId | None:
    """Return an id that holds no partition, unless one is worse; never `open` and `prepare`."""
    held = {p.topic_partition for p in targets}
    worst = min(
        (ORDER.index(j.verdict.name) for j in d.judged if j.about.topic_partition in held),
        default=len(ORDER),
    )
    stuck = [j for j in d.ids if j.verdict.name not in HIDDEN]
    first = min(stuck, key=lambda j: ORDER.index(j.verdict.name), default=None)
    return first if first and ORDER.index(first.verdict.name) < worst else None


async def id_row(source: Source, context: Context, d: Diagnosis, j: JudgedId) -> WhyRow:
    """Return the story of an id that holds no partition."""
    answer, contested = await history_and_contests(
        source, [j.name], [], newest=HISTORY_RECORDS + WRITTEN_SINCE
    )
    rows = [r for r in answer.rows if isinstance(r, HistoryRow)]
    connect = await _connect(source, j.name)
    row = id_row_seen(context, d, j, connect)
    contest = await contest_now(source, contested, d.collected_at)
    return of_contest(replace(row, history=rows[-HISTORY_RECORDS:]), contest)


def id_row_seen(
    context: Context, d: Diagnosis, j: JudgedId, connect: ConnectRow | None = None
) -> WhyRow:
    """Return what the diagnosis says about an id that holds no partition."""
    row, v = j.verdict.about, j.verdict
    return WhyRow(
        topic=None,
        topic_id=None,
        partition=None,
        leader=None,
        stuck=v.name not in HIDDEN if v.name != "unknown" else None,
        headline=f"{'OPEN' if v.name in HIDDEN else 'STUCK'}  {v.name}",
        log_start_offset=None,
        last_stable_offset=None,
        high_watermark=None,
        held=None,
        waiting=None,
        held_by=hanging_row(j, context.argv, d.cluster_id, d.transaction_version),
        others=[],
        owner=OwnerRow(
            transactional_id=j.name,
            coordinator=row.coordinator,
            clients=[],
            said=f"{j.name} ({row.state}), coordinator on broker {row.coordinator}; "
            + (_HOST_UNKNOWN if connect is None else connect.said),
            connect=connect,
        ),
        history=[],
        groups=None,
        groups_said="none: it holds no partition, so no reader waits for it",
        if_you_wait=WaitRow(
            said=_id_waits(j),
            ends_at=v.deadline,
            deleted_at=None,
            ends_in_seconds=None if v.deadline_in is None else v.deadline_in / 1000,
        ),
        samples=v.samples,
        brokers_up=d.brokers_up,
        brokers_known=d.brokers_known,
        transactional_id=j.name,
        error=row.error,
        again=command(["eoctl", *context.argv, "txn", "describe", "--watch", "--", j.name]),
    )


def _id_waits(j: JudgedId) -> str:
    blocked = "its own client waits (CONCURRENT_TRANSACTIONS)"
    if j.verdict.about.state == "Ongoing":
        if j.verdict.name == "two-phase":
            return "ends when the system that owns it decides"
        return "its coordinator aborts it after its timeout"
    if j.verdict.name == "prepare":
        return f"ends when its markers are written; until then {blocked}"
    return f"{blocked} until its coordinator can complete it"


async def rows_of(
    source: Source,
    context: Context,
    d: Diagnosis,
    partitions: Sequence[PartitionFacts],
    transactional_id: str | None = None,
) -> tuple[list[WhyRow], list[Missing]]:
    """Return the stories of a diagnosis's partitions, and what could not be seen of them.

    transactional_id: the id whose transaction each story is about; None: the one at the LSO.
    """
    facts, missing = await _groups(source, partitions)
    retention, more = await source.topic_configs(sorted({p.topic for p in partitions}))
    rows = [
        await story_row(
            source,
            context,
            d,
            p,
            facts,
            retention.get(p.topic, {}),
            _about(d, p, transactional_id),
        )
        for p in partitions
    ]
    return rows, [*missing, *more]


STORIES_AT_ONCE = 8
T = TypeVar("T")


async def rows_until(
    source: Source,
    context: Context,
    d: Diagnosis,
    partitions: Sequence[PartitionFacts],
    until: float | None,
) -> tuple[list[WhyRow], list[Missing], list[Missing]]:
    """Return the stories of many partitions as far as time allows, and what is missing.

    until: on the monotonic clock; None = without limit. The last value: partitions whose rows hold
    only the diagnosis because time ran out.
    """
    few = asyncio.Semaphore(STORIES_AT_ONCE)
    cut: list[Missing] = []
    groups = await in_time(_groups(source, partitions), until)
    topics = sorted({p.topic for p in partitions})
    configs = await in_time(source.topic_configs(topics), until)
    facts, missing = groups if groups is not None else ([], [_no_time("group")])
    retention, more = configs if configs is not None else ({}, [_no_time("topic")])

    async def row(p: PartitionFacts) -> WhyRow:
        async with few:
            story = story_row(source, context, d, p, facts, retention.get(p.topic, {}))
            found = await in_time(story, until)
        if found is None:
            cut.append(_no_time("partition", p.topic, p.partition))
            return seen_row(context, d, p, _holder(d, p))
        return found

    rows = await asyncio.gather(*(row(p) for p in partitions))
    return list(rows), [*missing, *more], cut


async def in_time(work: Coroutine[Any, Any, T], until: float | None) -> T | None:
    """Return the result, or None if it is late."""
    if until is None:
        return await work
    left = until - time.monotonic()
    if left <= 0:
        work.close()
        return None
    try:
        return await asyncio.wait_for(work, left)
    except TimeoutError:
        return None


def _no_time(scope: str, topic: str | None = None, partition: int | None = None) -> Missing:
    detail = "it was not read: no time was left; give more with --timeout"
    return Missing(scope, "NO_TIME", detail, topic=topic, partition=partition)


def held_targets(d: Diagnosis, *, worst_only: bool) -> list[PartitionFacts]:
    held = [p for p in d.partitions if p.held or p.error is not None]
    if not worst_only:
        return held
    severity = {j.about.topic_partition: ORDER.index(j.verdict.name) for j in reversed(d.judged)}
    ranked = sorted(
        (p for p in held if p.held),
        key=lambda p: (severity.get(p.topic_partition, len(ORDER)), -(p.held or 0)),
    )
    return ranked[:1]


async def story_row(
    source: Source,
    context: Context,
    d: Diagnosis,
    p: PartitionFacts,
    facts: Sequence[GroupFacts],
    config: Mapping[str, str | None],
    holder_first: Judged | None = None,
) -> WhyRow:
    """Return a partition's story. holder_first: its subject; None = the transaction at the LSO."""
    first = holder_first or _holder(d, p)
    counted = await source.waiting(p, first.about.producer_id if first else None)
    strip = await source.strip(p)
    history_of = first.history if first else None
    known = {} if history_of is None else {history_of.producer_id: history_of.markers}
    past, contest = ([], None) if first is None else await _history(source, first)
    row = replace(
        seen_row(context, d, p, first),
        waiting=None if counted is None else WaitingRow.of(counted, at_least=not counted.complete),
        owner=None
        if first is None
        else _owner(first, facts, await _connect(source, _owner_name(first))),
        strip=strip,
        markers=marker_rows(p.topic_partition, strip or (), known),
        history=past,
        groups=[_group_row(g, p, first) for g in facts if _offset(g, p) is not None],
        groups_said=_groups_said(facts, p, first),
        if_you_wait=None if first is None else _if_you_wait(first, counted, config, d.collected_at),
    )
    return of_contest(row, contest)


def of_contest(row: WhyRow, contest: ContestRow | None) -> WhyRow:
    """Return the row with the contest about its id; no fence ends that, so none is offered."""
    held = row.held_by
    if contest is not None and held is not None and held.ends is not None:
        ways = [w for w in held.ends.if_you_know if w.action != "fence"]
        held = replace(held, ends=replace(held.ends, if_you_know=ways))
    return replace(row, contest=contest, held_by=held)


def seen_row(context: Context, d: Diagnosis, p: PartitionFacts, first: Judged | None) -> WhyRow:
    """Return what the diagnosis alone says about a partition. first: the story's subject."""
    judged = [j for j in d.judged if j.about.topic_partition == p.topic_partition]
    return _first_row(context, d, p, judged, first)


def _first_row(
    context: Context,
    d: Diagnosis,
    p: PartitionFacts,
    judged: Sequence[Judged],
    first: Judged | None,
) -> WhyRow:
    """Return the row of a first snapshot. judged: what the partition has open."""
    rows = [hanging_row(j, context.argv, d.cluster_id, d.transaction_version) for j in judged]
    holder = next((r for j, r in zip(judged, rows, strict=True) if j is first), None)
    return WhyRow(
        topic=p.topic,
        topic_id=p.topic_id,
        partition=p.partition,
        leader=p.leader,
        stuck=None if p.held is None else first is not None,
        headline=_headline(p, first),
        log_start_offset=p.log_start_offset,
        last_stable_offset=p.last_stable_offset,
        high_watermark=p.high_watermark,
        held=p.held,
        waiting=None,
        held_by=holder,
        others=[r for r in rows if r is not holder],
        owner=None if first is None else _owner(first, ()),
        history=[],
        groups=None,
        groups_said="",
        if_you_wait=None,
        samples=2 if d.pause is not None else 1,
        brokers_up=d.brokers_up,
        brokers_known=d.brokers_known,
        transactional_id=None if holder is None else holder.transactional_id,
        error=p.error,
        again=_again(context, p, "lso"),
        also_holds=[] if first is None else _also_holds(d, first),
    )


def _again(context: Context, p: PartitionFacts, *words: str) -> str | None:
    """Return the command line that watches a partition. words: of the command."""
    return command(["eoctl", *context.argv, *words, "--watch", "--", str(p.topic_partition)])


def _also_holds(d: Diagnosis, j: Judged) -> list[str]:
    """Return where else the producer id holds: by its coordinator's list and by partitions seen."""
    owner, about = j.verdict.owner, j.about
    listed = (owner.partitions or ()) if owner is not None else ()
    opened = (
        k.about.topic_partition
        for k in d.judged
        if about.producer_id is not None and k.about.producer_id == about.producer_id
    )
    return [str(tp) for tp in also_holds(about.topic_partition, listed, opened)]


def _is_of(j: Judged, name: str) -> bool:
    """Return True if the id owns the transaction, or had its producer id."""
    owns = j.verdict.owner is not None and j.verdict.owner.transactional_id == name
    return owns or (j.history is not None and name in j.history.transactional_ids)


def _about(d: Diagnosis, p: PartitionFacts, name: str | None) -> Judged | None:
    """Return the transaction that a story is about: an id's own, or the one at the LSO."""
    partition = p.topic_partition
    mine = (
        j for j in d.judged if name and j.about.topic_partition == partition and _is_of(j, name)
    )
    return next(mine, None) or _holder(d, p)


def _holder(d: Diagnosis, p: PartitionFacts) -> Judged | None:
    return holder_of([j for j in d.judged if j.about.topic_partition == p.topic_partition])


def holder_of(judged: Sequence[Judged]) -> Judged | None:
    """Return the open transaction at the LSO."""
    sample = judged[0].newest if judged else None
    blocking = blocking_producer(sample.producers or ()) if sample else None
    for j in judged:
        if blocking is None or j.about.producer_id == blocking.producer_id:
            return j
    return None


def _headline(p: PartitionFacts, first: Judged | None) -> str:
    if p.error is not None:
        return "NOT SEEN"
    if first is None:
        return "HELD  moving on: the transaction that held it has ended"
    v = first.verdict
    name = "marker-lost, mixed" if v.mixed else v.name
    if v.short_log is not None:
        away = listed(v.short_log.away, "broker")
        return f"{stuck_words(name)}; its coordinator cannot end it: {away} away"
    if v.unled:
        return f"{stuck_words(name)}; no leader answers for {some(v.unled)}"
    if name == "two-phase":
        return "HELD  two-phase: it waits for the system that owns it"
    return stuck_words(name)


async def _connect(source: Source, name: str | None) -> ConnectRow | None:
    return None if name is None else (await connect_rows(source, [name])).get(name)


def _owner_name(j: Judged) -> str | None:
    """Return the id that owns the transaction, or was the only one with its producer id."""
    ids = j.history.transactional_ids if j.history else ()
    if j.verdict.owner is not None:
        return j.verdict.owner.transactional_id
    return ids[0] if len(ids) == 1 else None


def _owner(j: Judged, facts: Sequence[GroupFacts], connect: ConnectRow | None = None) -> OwnerRow:
    """Return the owner: the id, and the clients of its Kafka Streams process, else of the groups
    that begin its name, or the Kafka Connect connector that owns the id."""
    owner, name = j.verdict.owner, _owner_name(j)
    groups = [
        g for g in (*facts, *j.newest.groups) if name is not None and named_after(name, g.group)
    ]
    process = own_process(name or "", groups)
    clients = [f"{client} at {host}" for client, host in clients_of(name or "", groups)]
    coordinators = j.newest.transactions.coordinators
    number = sum(c.seen for c in coordinators)
    answered = f"{number} of {counted(len(coordinators), 'coordinator partition')} answered"
    if j.verdict.samples > 1:
        answered += ", twice"
    if owner is not None:
        sentence = f"{name} ({owner.state}), coordinator on broker {owner.coordinator}"
        if clients:
            whose = "client of its process" if process else "clients of its group"
            sentence += f"; {whose}: {', '.join(clients)}"
        elif connect is None:
            sentence += f"; {_HOST_UNKNOWN}"
    elif name is not None:
        sentence = f"none now; its producer id belonged to {name}: {answered}"
    else:
        sentence = f"none: {answered}"
    return OwnerRow(
        transactional_id=name,
        coordinator=owner.coordinator if owner else None,
        clients=clients,
        said=sentence if connect is None else f"{sentence}; {connect.said}",
        connect=connect,
    )


async def _history(source: Source, j: Judged) -> tuple[list[HistoryRow], ContestRow | None]:
    """Return the last records of the ids that had the producer id, and if one is contested."""
    if j.about.producer_id is None:
        return [], None
    known = j.history.transactional_ids if j.history else ()
    ids = [j.verdict.owner.transactional_id] if j.verdict.owner else list(known)
    if j.history and not ids:
        return [], None  # all partitions were searched for its producer id
    pids = [] if ids else [j.about.producer_id]
    answer, contested = await history_and_contests(
        source, ids, pids, newest=HISTORY_RECORDS + WRITTEN_SINCE
    )
    # later records do not belong to the judged moment
    end = j.history.read_until if j.history else None
    rows = [
        row
        for row in answer.rows
        if isinstance(row, HistoryRow) and (end is None or row.offset < end)
    ]
    return rows[-HISTORY_RECORDS:], await contest_now(source, contested, source.now())


async def contest_now(
    source: Source, contests: Sequence[ContestRow], now: int
) -> ContestRow | None:
    """Return the contest about an id whose history this is, with the clients of its groups.

    None also if it was over long ago.
    """
    first = next((c for c in contests if goes_on(c.until, now)), None)
    return None if first is None else await with_clients(source, first)


def _offset(g: GroupFacts, p: PartitionFacts) -> int | None:
    return next(
        (
            o.committed_offset if o.committed_offset is not None else -1
            for o in g.offsets
            if o.topic_partition == p.topic_partition
        ),
        None,
    )


def _group_row(g: GroupFacts, p: PartitionFacts, j: Judged | None = None) -> HeldGroupRow:
    o = next(o for o in g.offsets if o.topic_partition == p.topic_partition)
    at, lso, hw = o.committed_offset, p.last_stable_offset, p.high_watermark
    lag = None if at is None or lso is None else max(0, lso - at)
    lag_hw = None if at is None or hw is None else max(0, hw - at)
    held_up = None if lag is None else lag == 0 and bool(p.held)
    if o.is_share:
        lag = lag_hw = o.lag
        held_up = share_held_up(g.isolation, o.lag, p.held)
    start = j.about.start_offset if j is not None else None
    return HeldGroupRow(
        group=g.group,
        type=g.type,
        state=g.state,
        committed_offset=at,
        lag=lag,
        lag_hw=lag_hw,
        pending=o.pending,
        held_up=held_up,
        members=[f"{client} at {host}" for client, host in g.members or ()],
        members_seen=g.members is not None,
        isolation=g.isolation,
        beyond=is_beyond(at, start),
    )


def _groups_said(facts: Sequence[GroupFacts], p: PartitionFacts, j: Judged | None = None) -> str:
    here = [_group_row(g, p, j) for g in facts if _offset(g, p) is not None]
    if not here:
        return "none has committed an offset here; readers without commits are not seen"
    words = []
    for row in sorted(here, key=lambda r: (not r.held_up, r.group)):
        lags = lag_words(row.lag, row.lag_hw)
        if (row.type or "").lower() == "share":
            lags = _share_said(row)
        if row.beyond:
            lags += ", beyond this transaction's first record"
        words.append(f"{row.group} ({lags}{', commit pending' if row.pending else ''})")
    return ", ".join(words)


def _share_said(row: HeldGroupRow) -> str:
    """Return a share group's lag, and whether undecided records hold it."""
    lag = "this Kafka version does not report the lag" if row.lag is None else f"lag {row.lag}"
    if row.isolation is None:
        return (
            f"share group, {lag}; whether open transactions hold it is not known: grant "
            "DESCRIBE_CONFIGS on the group"
        )
    held = "not held by open transactions" if row.isolation != READ_COMMITTED else "held by them"
    return f"share group, {lag}; {row.isolation}: {held}"


def _if_you_wait(
    j: Judged, counted: Waiting | None, config: Mapping[str, str | None], now: int
) -> WaitRow:
    p = prospect(j.verdict, counted.oldest_timestamp if counted else None, config, now)
    return WaitRow(
        said=wait_words(p, now),
        ends_at=p.ends_at,
        deleted_at=p.deleted_at,
        ending=p.ending,
        ends_in_seconds=None if p.ends_in is None else p.ends_in / 1000,
    )


async def healthy_rows(
    source: Source,
    context: Context,
    scope: Scope,
    d: Diagnosis,
    facts: Sequence[GroupFacts] | None = None,
) -> list[WhyRow]:
    """Say which selected partitions are not held, with each group's lag.

    facts: the groups asked about; None = all with an offset there.
    """
    look = await source.look(replace(scope, internal=True))
    here = facts
    if here is None:
        here, _ = await _groups(source, look.partitions)
    free = [p for p in look.partitions if p.error is None]
    strips = {
        p.topic_partition: await source.strip(p) or () for p in free[:MOST_FREE_READ] if not p.held
    }
    return [
        replace(
            _first_row(context, d, p, (), None),
            stuck=False,
            headline=_headline(p, None)
            if p.held
            else "NOT HELD  the LSO is at the high watermark: not a transaction's doing",
            groups=[_group_row(g, p) for g in here if _offset(g, p) is not None],
            groups_said=_groups_said(here, p),
            samples=1,
            again=_again(context, p, "offsets", "show"),
            **_by_others(p, strips.get(p.topic_partition, ())),
        )
        for p in free
    ]


def _by_others(p: PartitionFacts, strip: Sequence[StripRow]) -> dict[str, Any]:
    """Return the markers near the end of a free partition that no coordinator decided.

    The log is shown only where there are any.
    """
    markers = marker_rows(p.topic_partition, strip, {})
    return {"strip": list(strip), "markers": markers} if markers else {}
