"""`why`: the story of one partition, or of what holds a group up, on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eoctl.config import Context
from eoctl.kafka.cluster import Cluster
from eoctl.operations.history import history
from eoctl.operations.inspect import Scope
from eoctl.operations.source import Source, source_of
from eoctl.operations.verdict_rows import hanging_row, unknown_as_missing
from recovery.answers import Answer, error_rows
from recovery.diagnosis import ORDER, Diagnosis, Judged
from recovery.facts import GroupFacts, Missing, PartitionFacts, TopicPartition
from recovery.inspection import blocking_producer
from recovery.observation import Settings
from recovery.rows_diagnosis import HistoryRow
from recovery.rows_why import HeldGroupRow, OwnerRow, WaitingRow, WaitRow, WhyRow
from recovery.selectors import Selector
from recovery.waiting import Waiting

HISTORY_RECORDS = 8
NEVER_ENDS = frozenset({"orphan", "marker-lost"})


async def why(
    cluster: Cluster | Source,
    context: Context,
    selectors: Sequence[Selector],
    group: str | None,
    settings: Settings,
    *,
    sample_interval: float,
) -> Answer:
    """One row per partition: those named and held, those of the group, or the worst one."""
    source = source_of(cluster)
    missing: list[Missing] = []
    facts: list[GroupFacts] | None = None
    if group is not None:
        facts, more = await source.named_groups([group])
        missing += more
        read = sorted({(o.topic, o.partition) for g in facts for o in g.offsets})
        scope = Scope(tuple(_exactly(tp) for tp in read))
        if not read:
            return _answer(source, [], missing, [], group)
    else:
        scope = Scope(tuple(selectors))
    d = await source.diagnose(scope, settings, sample_interval=sample_interval)
    missing += d.missing
    targets = _targets(d, worst_only=not selectors and group is None)
    if facts is None:
        facts, more = await _groups(source, targets)
        missing += more
    retention, more = await source.topic_configs(sorted({p.topic for p in targets}))
    missing += more
    rows = [await _row(source, context, d, p, facts, retention.get(p.topic, {})) for p in targets]
    if not rows and (selectors or group):
        rows = await _healthy(source, scope, d, facts, group)
    return _answer(source, rows, missing, unknown_as_missing(d), group, d)


async def _groups(
    source: Source, partitions: Sequence[PartitionFacts]
) -> tuple[list[GroupFacts], list[Missing]]:
    """The groups that have committed on these partitions, with members and these offsets."""
    return (
        await source.groups([(p.topic, p.partition) for p in partitions])
        if partitions
        else ([], [])
    )


def _exactly(tp: TopicPartition) -> Selector:
    from recovery.selectors import parse_selector

    return parse_selector(f"{tp[0]}:{tp[1]}")


def _answer(
    source: Source,
    rows: Sequence[WhyRow],
    missing: Sequence[Missing],
    unknown: Sequence[Missing],
    group: str | None,
    d: Diagnosis | None = None,
) -> Answer:
    shown = {(r.topic, r.partition) for r in rows}
    mine = [m for m in unknown if (m.topic, m.partition) in shown]
    return Answer(
        schema="why",
        cluster_id=source.cluster_id,
        collected_at=source.now() if d is None else d.collected_at,
        rows=rows,
        errors=error_rows(dict.fromkeys([*missing, *mine])),
        extra={"group": group},
        judging=True,
        finding=d is not None and any(j.about.topic_partition in shown for j in d.findings),
        notes=() if d is None else d.notes,
    )


def _targets(d: Diagnosis, *, worst_only: bool) -> list[PartitionFacts]:
    held = [p for p in d.partitions if p.held or p.error is not None]
    if not worst_only:
        return held
    severity = {j.about.topic_partition: ORDER.index(j.verdict.name) for j in reversed(d.judged)}
    ranked = sorted(
        (p for p in held if p.held),
        key=lambda p: (severity.get((p.topic, p.partition), len(ORDER)), -(p.held or 0)),
    )
    return ranked[:1]


async def _row(
    source: Source,
    context: Context,
    d: Diagnosis,
    p: PartitionFacts,
    facts: Sequence[GroupFacts],
    config: Mapping[str, str | None],
) -> WhyRow:
    judged = [j for j in d.judged if j.about.topic_partition == (p.topic, p.partition)]
    first = holder_of(p, judged)
    counted = await source.waiting(p, first.about.producer_id if first else None)
    rows = [hanging_row(j, context.argv, d.cluster_id) for j in judged]
    holder = next((r for j, r in zip(judged, rows, strict=True) if j is first), None)
    return WhyRow(
        topic=p.topic,
        topic_id=p.topic_id,
        partition=p.partition,
        leader=p.leader,
        stuck=None if p.held is None else True,
        headline=_headline(p, first),
        log_start_offset=p.log_start_offset,
        last_stable_offset=p.last_stable_offset,
        high_watermark=p.high_watermark,
        held=p.held,
        waiting=None if counted is None else _waiting_row(counted),
        held_by=holder,
        others=[r for r in rows if r is not holder],
        owner=None if first is None else _owner(first, facts),
        history=[] if first is None else await _history(source, first),
        groups=[_group_row(g, p) for g in facts if _offset(g, p) is not None],
        groups_said=_groups_said(facts, p),
        if_you_wait=None if first is None else _if_you_wait(first, counted, config, d.collected_at),
        samples=2 if d.pause is not None else 1,
        brokers_up=d.brokers_up,
        brokers_known=d.brokers_known,
        error=p.error,
    )


def holder_of(p: PartitionFacts, judged: Sequence[Judged]) -> Judged | None:
    """Of the open transactions the one at the LSO."""
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
        return "HELD  just ending"
    name = "marker-lost, mixed" if first.verdict.mixed else first.verdict.name
    return f"{'HELD' if name in ('open', 'prepare') else 'STUCK'}  {name}"


def _waiting_row(w: Waiting) -> WaitingRow:
    return WaitingRow(
        records=w.records,
        mine=w.mine,
        aborted=w.aborted,
        other_open=w.other_open,
        freed=w.freed,
        oldest_timestamp=w.oldest_timestamp,
        at_least=not w.complete,
    )


def _owner(j: Judged, facts: Sequence[GroupFacts]) -> OwnerRow:
    """Who: the id, and clients of groups whose name the id begins with (Kafka Streams, Connect)."""
    owner = j.verdict.owner
    ids = j.history.transactional_ids if j.history else ()
    name = owner.transactional_id if owner else ids[0] if len(ids) == 1 else None
    clients = sorted(
        {
            f"{client} at {host}"
            for g in facts
            for client, host in g.members or ()
            if name is not None and g.group and f"{name}-".startswith(f"{g.group}-")
        }
    )
    coordinators = j.newest.transactions.coordinators
    seen = sum(c.seen for c in coordinators)
    answered = f"{seen} of {len(coordinators)} coordinator partitions answered"
    if j.verdict.samples > 1:
        answered += ", twice"
    if owner is not None:
        said = f"{name} ({owner.state}), coordinator on broker {owner.coordinator}"
        said += (
            f"; clients of its group: {', '.join(clients)}"
            if clients
            else ("; which client that is, Kafka does not tell")
        )
    elif name is not None:
        said = f"none now; its producer id belonged to {name}: {answered}"
    else:
        said = f"none: {answered}"
    return OwnerRow(
        transactional_id=name,
        coordinator=owner.coordinator if owner else None,
        clients=clients,
        said=said,
    )


async def _history(source: Source, j: Judged) -> list[HistoryRow]:
    """The last records of the ids that bore the producer id."""
    if j.about.producer_id is None:
        return []
    known = j.history.transactional_ids if j.history else ()
    ids = [j.verdict.owner.transactional_id] if j.verdict.owner else list(known)
    if j.history and not ids:
        return []  # all partitions were looked through for its producer id
    answer = await history(source, ids, [] if ids else [j.about.producer_id])
    rows = [row for row in answer.rows if isinstance(row, HistoryRow)]
    return rows[-HISTORY_RECORDS:]


def _offset(g: GroupFacts, p: PartitionFacts) -> int | None:
    return next(
        (
            o.committed_offset if o.committed_offset is not None else -1
            for o in g.offsets
            if (o.topic, o.partition) == (p.topic, p.partition)
        ),
        None,
    )


def _group_row(g: GroupFacts, p: PartitionFacts) -> HeldGroupRow:
    o = next(o for o in g.offsets if (o.topic, o.partition) == (p.topic, p.partition))
    at, lso, hw = o.committed_offset, p.last_stable_offset, p.high_watermark
    lag = None if at is None or lso is None else max(0, lso - at)
    return HeldGroupRow(
        group=g.group,
        type=g.type,
        state=g.state,
        committed_offset=at,
        lag=lag,
        lag_hw=None if at is None or hw is None else max(0, hw - at),
        pending=o.pending,
        held_up=None if lag is None else lag == 0 and bool(p.held),
        members=[f"{client} at {host}" for client, host in g.members or ()],
    )


def _groups_said(facts: Sequence[GroupFacts], p: PartitionFacts) -> str:
    here = [_group_row(g, p) for g in facts if _offset(g, p) is not None]
    if not here:
        return "none has committed an offset here; readers without commits are not seen"
    words = []
    for row in sorted(here, key=lambda r: (not r.held_up, r.group)):
        lags = f"lag {row.lag} to LSO, {row.lag_hw} to HW" if row.lag is not None else "no offset"
        words.append(f"{row.group} ({lags}{', commit pending' if row.pending else ''})")
    return ", ".join(words)


def _if_you_wait(
    j: Judged, counted: Waiting | None, config: Mapping[str, str | None], now: int
) -> WaitRow:
    name, owner = j.verdict.name, j.verdict.owner
    ends_at: int | None = None
    if name in NEVER_ENDS and not j.verdict.mixed:
        said = "never ends by itself"
    elif name in ("prepare", "prepare-stuck"):
        said = "ends when its markers are written"
    elif name == "two-phase":
        said = "ends when the system that owns it decides"
    elif owner is not None and owner.start_timestamp is not None and owner.timeout_ms is not None:
        ends_at = owner.start_timestamp + owner.timeout_ms
        said = "its coordinator aborts it after its timeout"
    else:
        said = "whether it ends by itself is not known"
    deleted_at: int | None = None
    policy, retention = config.get("cleanup.policy"), config.get("retention.ms")
    if policy is not None and "delete" not in policy:
        said += "; nothing is deleted by time (compacted topic)"
    elif retention is None:
        said += "; retention is not known"
    elif int(retention) < 0:
        said += "; retention never deletes here"
    elif counted is not None and counted.oldest_timestamp is not None:
        deleted_at = counted.oldest_timestamp + int(retention)
        said += (
            "; retention deletes blocked records"
            if deleted_at > now
            else ("; retention may already delete blocked records")
        )
    return WaitRow(said=said, ends_at=ends_at, deleted_at=deleted_at)


async def _healthy(
    source: Source,
    scope: Scope,
    d: Diagnosis,
    facts: Sequence[GroupFacts],
    group: str | None,
) -> list[WhyRow]:
    """What was named and is not held: said so, with each group's lag."""
    look = await source.look(replace(scope, internal=True))
    here = facts
    if group is None:
        here, _ = await _groups(source, look.partitions)
    return [
        WhyRow(
            topic=p.topic,
            topic_id=p.topic_id,
            partition=p.partition,
            leader=p.leader,
            stuck=False,
            headline="NOT HELD  the LSO is at the high watermark: not a transaction's doing",
            log_start_offset=p.log_start_offset,
            last_stable_offset=p.last_stable_offset,
            high_watermark=p.high_watermark,
            held=p.held,
            waiting=None,
            held_by=None,
            others=[],
            owner=None,
            history=[],
            groups=[_group_row(g, p) for g in here if _offset(g, p) is not None],
            groups_said=_groups_said(here, p),
            if_you_wait=None,
            samples=1,
            brokers_up=d.brokers_up,
            brokers_known=d.brokers_known,
        )
        for p in look.partitions
        if p.error is None
    ]
