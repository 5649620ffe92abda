"""`bundle create`, `bundle open`: read everything once, and keep it in a file.

Parts are seen one after the other, so a busy cluster moves on between them; each says at what time.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from eoctl import __version__
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.pending_offsets import groups_with_pending
from eoctl.operations.dashboard.bundled_records import moved_by, planned_of, records_of
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.why_answer import holder_of
from eoctl.operations.inspect.history_answer import read_state_logs, unread
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.offline import Offline
from eoctl.operations.inspect.records import permit as permit_records
from eoctl.operations.inspect.source import StateLogs
from eoctl.settings.context import Context
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import (
    Bundle,
    Origin,
    SeenDoctor,
    SeenHistory,
    SeenId,
    listed,
    without_verdicts,
)
from recovery.answers import Answer, error_rows
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import Diagnosis
from recovery.diagnose.waiting_records import Waiting
from recovery.errors import RefusedError
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing
from recovery.formats.consumer_offsets import OffsetKey
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.observation import Settings
from recovery.plurals import counted
from recovery.values import replace
from recovery.watch.check_rows import BundlePartRow

HELD_RECORDS, ALL_RECORDS = 1000, 100
"""Newest records kept of each id: of held transactions, and with --history of all ids."""
MOST_STRIPS = 200  # a bundle is small; nobody reads a page with more


async def collect(
    cluster: Cluster,
    context: Context,
    settings: Settings,
    *,
    pause: float,
    history: bool,
    with_records: int = 0,
    plan: Plan | None = None,
    on_part: Callable[[str], None] | None = None,
) -> Bundle:
    """Collect everything that the read commands see. history: of all ids, not only of holders.

    with_records: how many records to take along of each held partition, with keys and values.
    plan: a restart plan that is to be rehearsed on a twin of the bundle.
    on_part: called with a few words on what is read next. Raises RefusedError if records are asked
    for in a context that shows none.
    """
    if with_records:
        permit_records(context)
    begins = on_part or (lambda words: None)
    if plan is not None and plan.cluster_id != cluster.cluster_id:
        raise RefusedError(f"the plan is for cluster {plan.cluster_id}, not {cluster.cluster_id}")
    live = Live(cluster)
    begins("looking at partitions")
    metadata = await cluster.metadata(None)
    offsets = await live.look(Scope())
    begins("looking at producers")
    producers = await live.producers(Scope(), (), resolve=True)
    begins("looking at transactions")
    transactions = await live.transactions(TxnFilter(), describe=True)
    begins("judging open transactions")
    d = await live.diagnose(Scope(), settings, pause=pause)
    rest, opened, looks = without_verdicts(d)
    contests = await live.contests()
    doctor = await live.examined((), transactions)
    begins("looking at groups, settings and history")
    groups, groups_missing = await live.groups(None)
    groups = await groups_with_pending(cluster, groups)
    records, records_missing = await records_of(cluster, d.partitions, with_records)
    planned, planned_missing = await planned_of(cluster, plan, offsets.partitions)
    configs, configs_missing = await live.topic_configs(sorted({p.topic for p in d.partitions}))
    expirations, expirations_missing = await live.expirations()
    kept = moved_by(plan)
    return Bundle(
        eoctl_version=__version__,
        created_at=now_ms(),
        origin=_origin(context),
        cluster_id=cluster.cluster_id,
        brokers=tuple(metadata.brokers.values()),
        topics=tuple(metadata.topics.values()),
        offsets=listed(offsets),
        producers=listed(replace(producers, partitions=())),  # their leaders are in `topics`
        transactions=transactions,
        diagnosis=rest,
        open_transactions=opened,
        looks=looks,
        groups=tuple(_without_metadata(g, kept) for g in groups),
        history=await _history(cluster, d, everything=history),
        groups_missing=tuple(groups_missing),
        waiting=await _waiting(live, d),
        topic_configs=configs,
        topic_configs_missing=tuple(configs_missing),
        expirations=expirations,
        expirations_missing=tuple(expirations_missing),
        ids=tuple(SeenId(j.first, j.second, j.record) for j in d.ids),
        strips=await _strips(live, d),
        contests=contests,
        doctor=SeenDoctor.of(doctor),
        records=records,
        records_missing=records_missing,
        plan_sha256=None if plan is None else plan.sha256,
        planned=planned,
        planned_missing=planned_missing,
    )


def _origin(context: Context) -> Origin:
    # -X pairs may hold anything; without them the command still names the cluster
    argv = list(context.argv)
    while "-X" in argv:
        at = argv.index("-X")
        del argv[at : at + 2]
    return Origin(
        name=context.name,
        bootstrap_servers=context.properties.get("bootstrap.servers", ""),
        argv=tuple(argv),
        read_only=context.read_only,
        protected=context.protected,
        two_phase_patterns=tuple(context.two_phase_patterns),
        accept_missing=tuple(context.accept_missing),
        accept_findings=tuple(context.accept_findings),
    )


def _without_metadata(g: GroupFacts, kept: Collection[OffsetKey]) -> GroupFacts:
    """Return a group without its commits' metadata: applications may write anything there.

    kept: the commits that a plan moves, which stands on them as they are.
    """

    def without(o: GroupOffsetFacts) -> GroupOffsetFacts:
        return o if OffsetKey(g.group, *o.topic_partition) in kept else replace(o, metadata=None)

    return replace(g, offsets=tuple(map(without, g.offsets)))


async def _history(cluster: Cluster, d: Diagnosis, *, everything: bool) -> SeenHistory:
    owners = {j.verdict.owner.transactional_id for j in d.judged if j.verdict.owner}
    known = {name for j in d.judged if j.history for name in j.history.transactional_ids}
    ids = owners | known | {j.name for j in d.ids}
    pids = {j.about.producer_id for j in d.judged if j.about.producer_id is not None}
    if not everything and not ids and not pids:
        return SeenHistory(0, (), (), everything=False)
    asked, newest = (None, ALL_RECORDS) if everything else (sorted(ids), HELD_RECORDS)
    state_logs = await read_state_logs(cluster, asked, sorted(pids), newest)
    return SeenHistory(
        state_logs.partitions,
        state_logs.logs,
        state_logs.missing,
        everything,
        frozenset(ids),
        frozenset(pids),
    )


async def _waiting(live: Live, d: Diagnosis) -> tuple[tuple[str, int, Waiting | None], ...]:
    rows: list[tuple[str, int, Waiting | None]] = []
    for p in d.partitions:
        judged = [j for j in d.judged if j.about.topic_partition == p.topic_partition]
        first = holder_of(judged)
        pid = first.about.producer_id if first else None
        rows.append((p.topic, p.partition, await live.waiting(p, pid)))
    return tuple(rows)


async def _strips(
    live: Live, d: Diagnosis
) -> tuple[tuple[str, int, tuple[StripRow, ...] | None], ...]:
    rows = [(p.topic, p.partition, await live.strip(p)) for p in d.partitions[:MOST_STRIPS]]
    return tuple((topic, n, None if found is None else tuple(found)) for topic, n, found in rows)


def create(bundle: Bundle, path: Path) -> Answer:
    """Write the bundle and say what it contains. Raises UsageError."""
    checksum = bundle_files.write(bundle, path)
    return _contents("bundle-create", bundle, path, checksum)


def opened(path: Path) -> Answer:
    """Verify a bundle's checksum and say what it contains. Raises UsageError."""
    bundle, checksum = bundle_files.read(path)
    return _contents("bundle-open", bundle, path, checksum)


def source(path: Path) -> Offline:
    """Return the bundle in a file as a Source. Raises UsageError."""
    bundle, _ = bundle_files.read(path)
    return Offline(bundle)


def _contents(schema: str, bundle: Bundle, path: Path, checksum: str) -> Answer:
    b, state = bundle, bundle.history
    unread_logs = unread(StateLogs(state.partitions, state.logs))
    held = sum(bool(p.held) for p in b.offsets.facts.partitions)
    records = sum(len(log.records) for log in state.logs)
    rows = [
        _row(
            "partitions", len(b.offsets.facts.partitions), b.offsets.facts.missing, f"{held} held"
        ),
        _row(
            "producers",
            sum(len(rows) for _, _, rows in b.producers.producers),
            b.producers.facts.missing,
            "of all partitions",
        ),
        _row("transactional ids", len(b.transactions.rows), b.transactions.missing, "described"),
        _row(
            "open transactions",
            len(b.open_transactions),
            b.diagnosis.missing,
            f"{sum(t.second is not None for t in b.open_transactions)} looked at twice",
        ),
        _row("groups", len(b.groups), b.groups_missing, "with members and offsets"),
        _row(
            "history records",
            records,
            (*state.missing, *unread_logs),
            "of all transactional ids" if state.everything else "of held transactions only",
        ),
        _row(
            "settings",
            len(b.topic_configs) + len(b.expirations),
            (*b.topic_configs_missing, *b.expirations_missing),
            "of held topics and of brokers",
        ),
    ]
    if b.doctor is not None:
        facts = b.doctor.facts
        number = len(facts.broker_settings) + len(facts.topic_settings)
        rows.append(_row("for doctor", number, facts.missing, "brokers and topics with settings"))
    if b.records or b.records_missing:
        taken = sum(r.records for r in b.records)
        detail = f"WITH KEYS AND VALUES, of {counted(len(b.records), 'held partition')}"
        rows.append(_row("records", taken, b.records_missing, detail))
    if b.plan_sha256 is not None:
        taken = sum(r.records for r in b.planned)
        detail = f"that plan {b.plan_sha256[:16]} stands on, without keys and values"
        rows.append(_row("planned records", taken, b.planned_missing, detail))
    return Answer(
        schema=schema,
        cluster_id=b.cluster_id,
        collected_at=b.created_at,
        rows=rows,
        errors=error_rows(dict.fromkeys([*b.missing, *unread_logs])),
        extra={
            "file": str(path),
            "sha256": checksum,
            "eoctl_version": b.eoctl_version,
            "context": b.origin.name,
            "bootstrap_servers": b.origin.bootstrap_servers,
        },
    )


def _row(part: str, count: int, missing: tuple[Missing, ...], detail: str) -> BundlePartRow:
    return BundlePartRow(part=part, count=count, not_seen=len(missing), detail=detail)
