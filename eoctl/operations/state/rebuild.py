"""`state rebuild`: from changelogs to a published state, up to one cut.

Resolves everything first (cut, settings, retention, engine), so that the work itself is numbers;
then the engine does it, and the logs are looked at again before anything is published.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eoctl.engine.local import LocalEngine
from eoctl.engine.rebuild import RebuildEngine, RebuildRequest, rebuild
from eoctl.engine.rebuild_task import Making
from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import log_checks
from eoctl.operations.inspect import cut as cuts
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.state import folder as state_folder
from eoctl.stores.storage import Storage
from recovery.errors import RefusedError, UsageError
from recovery.rows.answers import Answer
from recovery.rows.row import ErrorRow
from recovery.rows.state import StateDigest, StateRebuildRow
from recovery.shared.cut import Cut
from recovery.state.incremental import why_full
from recovery.state.manifest import Manifest

WAIT_SECONDS = 60.0
DAY_MS = 86_400_000  # what Kafka Streams adds to a store's retention by default
SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "segment.ms",
    "segment.bytes",
    "message.timestamp.type",
)
NOT_COMPLETE = "NOT_PROVABLY_COMPLETE"
EARLY = 2  # workers started before it is known how many there is work for
SPARK_OFFSETS = 200_000_000  # below, a session takes longer to start than several cores save

RebuildProgress = Callable[[int, int, int], None]
"""Called with bytes read, offsets done and offsets in all."""

SparkEngine = Callable[[RebuildRequest, Access], Manifest]


@dataclass(frozen=True, slots=True)
class RebuildWish:
    """The request of `state rebuild`. retention_ms: --retention; None: the topics' own.

    processes: of the local engine. wait_seconds: for transactions open below --at hw. clean:
    throw an unfinished rebuild in the folder away. since: the folder or
    address of an earlier state to carry on.
    """

    changelogs: tuple[str, ...]
    at: str
    how: Making
    engine: str = "auto"
    retention_ms: int | None = None
    processes: int | None = None
    wait_seconds: float = WAIT_SECONDS
    clean: bool = False
    since: str | None = None

    def check(self) -> None:
        """Raises UsageError."""
        if len(set(self.changelogs)) < len(self.changelogs):
            raise UsageError("a changelog is named twice")
        self.how.form()


def rebuild_state(
    context: Context,
    wish: RebuildWish,
    timeout: float | None,
    progress: RebuildProgress | None = None,
    spark: SparkEngine | None = None,
) -> Answer:
    """Make the state. spark: runs a request there, where the engine asked for allows it."""
    wish.check()
    bound = None if timeout is None else time.monotonic() + timeout
    access = context.access
    at = cuts.parse_at(wish.at)
    storage = wish.how.storage
    left = state_folder.unfinished(storage)
    if left is not None and wish.clean:
        state_folder.discard(storage)
        left = None
    moved = _Moved(progress)
    with LocalEngine(wish.processes or len(os.sched_getaffinity(0)), moved, bound) as processes:
        if wish.engine != "spark":
            processes.start(EARLY)  # they load while the cut is made
        request = with_cluster(context, timeout, lambda c: _request(c, wish, at))
        if left is not None:
            request = _resumed(request, RebuildRequest.from_json(left), wish, at)
        state_folder.begin(storage, request.to_json(), left)
        engine, why = choose_engine(wish.engine, request, spark is not None)
        if engine == "spark":
            assert spark is not None
            manifest = spark(request, access)
        else:
            moved.total = sum(p.end - p.start for p in request.cut.places().values())
            run: RebuildEngine = processes
            manifest = rebuild(request, access, run, "local")
    return answer(manifest, storage, why)


class _Moved:
    """Adds up what workers have read, for a Progress."""

    def __init__(self, progress: RebuildProgress | None) -> None:
        self._progress = progress
        self._read = self._done = self.total = 0

    def __call__(self, size: int, offsets: int) -> None:
        self._read += size
        self._done += offsets
        if self._progress is not None:
            self._progress(self._read, self._done, self.total)


def choose_engine(engine: str, request: RebuildRequest, spark_there: bool) -> tuple[str, str]:
    """local or spark, and why."""
    offsets = sum(p.end - p.start for p in request.cut.places().values())
    if engine != "auto":
        return engine, "as asked"
    if offsets < SPARK_OFFSETS:
        return "local", f"{offsets} offsets are read before a Spark session would have started"
    if not spark_there:
        return "local", "no Spark is at hand"
    return "spark", f"{offsets} offsets pay for a Spark session"


async def _request(cluster: Cluster, wish: RebuildWish, at: cuts.At) -> RebuildRequest:
    """Everything resolved."""
    topics = wish.changelogs
    cut = await cuts.resolve(cluster, topics, at, wish.wait_seconds)
    configs_now, _ = await configs.topic_configs(cluster, topics, SETTINGS)
    retention, source = _retention(wish, configs_now)
    notes = []
    if cut.instant is not None:
        created = [
            t
            for t in topics
            if configs_now.get(t, {}).get("message.timestamp.type") != "LogAppendTime"
        ]
        if created:
            notes.append(
                f"not a point in time: producers set the timestamps of {', '.join(created)}; the "
                "cut is where a record of that time or later comes first"
            )
    base = None
    if wish.since is not None:
        why = await _why_full(cluster, wish, cut, configs_now)
        base = None if why is not None else state_folder.opened(wish.since)[0].address
        if why is not None:
            notes.append(f"everything was read, not only what came since: {why}")
    return RebuildRequest(
        base=base,
        cut=cut,
        how=replace(wish.how, output=wish.how.storage.address),
        started_ms=now_ms(),
        configs={t: configs_now.get(t) for t in topics},
        retention=retention,
        retention_from=source,
        epoch_per_transaction=cluster.transaction_version >= 2,
        notes=tuple(notes),
        fresh=not isinstance(at, Cut) and cut.instant is None and base is None,
    )


async def _why_full(
    cluster: Cluster,
    wish: RebuildWish,
    cut: Cut,
    configs_now: Mapping[str, Mapping[str, str | None]],
) -> str | None:
    assert wish.since is not None
    earlier = state_folder.read(wish.since)
    metadata = await cluster.metadata(list(wish.changelogs))
    now = {(p.topic, p.partition): p for t in metadata.topics.values() for p in t.partitions}
    epochs = {
        place: (leader, epoch, p.leader_epoch)
        for place, p in earlier.cut.places().items()
        if place in now and p.leader_epoch is not None
        for leader, epoch in [(now[place].leader, now[place].leader_epoch)]
        if leader is not None and epoch is not None
    }
    ends = await log_checks.epoch_ends(cluster, epochs)
    form, how = wish.how.form(), wish.how
    return why_full(earlier, cut, form, how.format, how.options, configs_now, ends, now_ms())


def _retention(
    wish: RebuildWish, configs_now: Mapping[str, Mapping[str, str | None]]
) -> tuple[dict[str, int], str | None]:
    """Return each changelog's retention (ms) and its source; none where the format has none."""
    form = wish.how.form()
    if not form.needs_retention:
        if wish.retention_ms is not None:
            raise UsageError(f"the format {wish.how.format} has none", where="--retention")
        return {}, None
    if wish.retention_ms is not None:
        return dict.fromkeys(wish.changelogs, wish.retention_ms), "--retention"
    key = form.retention_config
    retention = {}
    for topic in wish.changelogs:
        value = configs_now.get(topic, {}).get(key)
        if value is None or int(value) <= DAY_MS:
            raise UsageError(
                f"the store's retention does not follow from {key}={value}",
                where=topic,
                remedy="give --retention",
            )
        retention[topic] = int(value) - DAY_MS
    return retention, f"{key} less the day that Kafka Streams adds"


def _resumed(
    request: RebuildRequest, left: RebuildRequest, wish: RebuildWish, at: cuts.At
) -> RebuildRequest:
    """Return the folder's unfinished request if it equals this one. Raises RefusedError."""
    same = (
        _logs(request.cut) == _logs(left.cut)
        and (request.how.format, request.how.options, request.retention, request.how.range_offsets)
        == (left.how.format, left.how.options, left.retention, left.how.range_offsets)
        and (request.cut.topics == left.cut.topics if isinstance(at, Cut) else at.kind != "time")
        and (isinstance(at, Cut) or request.cut.at == left.cut.at)
        and request.base == left.base
    )
    if not same:
        raise RefusedError(
            "another rebuild was left unfinished there",
            where=wish.how.output,
            remedy="--clean throws it away, or give another --output",
        )
    return replace(left, fresh=False)


def _logs(cut: Cut) -> tuple[object, ...]:
    return cut.cluster_id, tuple((t.topic, t.topic_id) for t in cut.topics)


def answer(manifest: Manifest, storage: Storage, why: str | None = None) -> Answer:
    """A finished state, as the command shows it."""
    rows = [
        StateRebuildRow(
            topic=p.topic,
            partition=p.partition,
            start=p.start,
            end=p.end,
            rows=p.digest.rows,
            sha256_sum=p.digest.sha256_sum,
            data_records=p.counts.get("data") or 0,
            aborted_records=p.counts.get("aborted"),
            control_records=p.counts.get("control"),
            missing_offsets=p.counts.get("missing"),
            tombstones=p.counts.get("tombstones") or 0,
            invalid=p.counts.get("invalid") or 0,
            ignored=p.counts.get("ignored") or 0,
            expired=p.expired,
            incomplete=p.incomplete,
            proof=p.proof,
        )
        for p in manifest.partitions
    ]
    cut = manifest.cut
    return Answer(
        schema="state-rebuild",
        cluster_id=manifest.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        errors=not_complete(manifest),
        extra={
            "manifest": storage.shown(state_folder.MANIFEST),
            "format": manifest.format,
            "at": cut.at,
            "engine": manifest.engine,
            "engine_why": why,
            "reader": manifest.reader,
            "digest": StateDigest(**manifest.digest.model_dump()).model_dump(),
            "consistent": manifest.consistent,
            "split": [t.model_dump(mode="json") for t in cut.split],
            "open": [t.model_dump(mode="json") for t in cut.open],
            "notes": list(manifest.notes),
            "seconds": manifest.seconds,
        },
    )


def not_complete(manifest: Manifest) -> list[ErrorRow]:
    """Return why a state is not provably complete, as rows."""
    return [
        ErrorRow(
            scope="partition",
            topic=p.topic,
            partition=p.partition,
            error=NOT_COMPLETE,
            detail=why_not,
        )
        for p in manifest.partitions
        for why_not in p.incomplete
    ]


def topics_of(words: Sequence[str]) -> tuple[str, ...]:
    """Changelogs as named. Raises UsageError for a partition or a pattern."""
    for word in words:
        if not word or any(letter in word for letter in ":*,"):
            raise UsageError(
                f"{word!r} names no topic",
                where="CHANGELOG",
                remedy="a state is made from whole changelogs",
            )
    return tuple(words)
