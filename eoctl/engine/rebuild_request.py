"""Turn the request for a rebuild into numbers: cut, settings, retention, base.

The command line resolves a request before it chooses an engine; an exported job carries the request
and resolves it whenever a scheduler runs the job.
"""

import json
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from eoctl.engine import resolve_cut
from eoctl.engine.rebuild import RebuildJob
from eoctl.engine.rebuild_task import Making
from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs
from eoctl.kafka.ask.log_dirs import log_sizes
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.stores.state import folder as state_folder
from recovery.errors import RefusedError, UsageError
from recovery.facts import Missing
from recovery.shared.cut import Cut
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.incremental import why_full
from recovery.state.manifest import Manifest
from recovery.values import Value, replace

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
    "remote.storage.enable",
)

Ask = Callable[[Callable[[Cluster], Coroutine[Any, Any, RebuildJob]]], RebuildJob]
"""Called with an asynchronous function; gives it an open cluster and returns its answer."""


class RebuildRequest(Value):
    """The request of `state rebuild`. retention_ms: --retention; None: the topics' own.

    processes: for the local engine. wait_seconds: for transactions open below --at hw. clean:
    discard an unfinished rebuild in the folder. since: the folder or address of an earlier state to
    carry on.
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
        """Check the request. Raises UsageError."""
        if len(set(self.changelogs)) < len(self.changelogs):
            raise UsageError("a changelog is named twice")
        self.how.form()

    def to_json(self) -> str:
        """Return the request as an exported job carries it, without its engine and processes."""
        fields = self.as_dict().items()
        return json.dumps({k: v for k, v in fields if k not in ("engine", "processes")})

    @classmethod
    def from_json(cls, text: str) -> "RebuildRequest":
        """Return the request. Raises TypeError, ValueError, KeyError for any other text."""
        fields = json.loads(text)
        return cls(
            **{
                **fields,
                "changelogs": tuple(fields["changelogs"]),
                "how": Making(**fields["how"]),
            }
        )


def begin(request: RebuildRequest, ask: Ask) -> RebuildJob:
    """Resolve a request and record in its folder that the state is being made there.

    If the folder holds an unfinished request for the same, that one is resumed, with its cut.
    Raises UsageError, RefusedError for a folder of something else, IncompleteError if the cut
    cannot be read, and what `ask` raises.
    """
    request.check()
    at = resolve_cut.parse_at(request.at)
    storage = request.how.storage
    left = state_folder.unfinished(storage)
    if left is not None and request.clean:
        state_folder.discard(storage)
        left = None
    rebuild_job = ask(lambda cluster: resolved(cluster, request, at))
    if left is not None:
        rebuild_job = _resumed(rebuild_job, RebuildJob.from_json(left), request, at)
    state_folder.begin(storage, rebuild_job.to_json(), left)
    return rebuild_job


async def resolved(cluster: Cluster, request: RebuildRequest, at: resolve_cut.At) -> RebuildJob:
    """Return what a request means now. Raises what `begin` raises about the cluster."""
    topics = request.changelogs
    cut = await resolve_cut.resolve(cluster, topics, at, request.wait_seconds)
    configs_now, _ = await configs.topic_configs(cluster, topics, SETTINGS)
    retention, source = _retention(request, configs_now)
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
    if request.since is not None:
        why = await _why_full(cluster, request, cut, configs_now)
        base = None if why is not None else state_folder.opened(request.since)[0].address
        if why is not None:
            notes.append(f"everything was read, not only what came since: {why}")
    sizes, unknown = dict[str, dict[str, int]](), list[Missing]()
    if request.how.range_offsets is None and request.how.form().in_ranges:
        sizes, unknown = await _log_bytes(cluster, cut)
    if unknown:
        notes.append(f"ranges follow offsets where a log's size is not known: {unknown[0].detail}")
    return RebuildJob(
        base=base,
        cut=cut,
        how=replace(request.how, output=request.how.storage.address, token=uuid.uuid4().hex),
        started_ms=now_ms(),
        configs={t: configs_now.get(t) for t in topics},
        retention=retention,
        retention_from=source,
        epoch_per_transaction=cluster.transaction_version >= 2,
        notes=tuple(notes),
        fresh=not isinstance(at, Cut) and cut.instant is None and base is None,
        log_bytes=sizes,
    )


async def _log_bytes(cluster: Cluster, cut: Cut) -> tuple[dict[str, dict[str, int]], list[Missing]]:
    """Return the bytes of each partition's log by topic and number, and what was not seen."""
    described = (await cluster.metadata([t.topic for t in cut.topics])).topics.values()
    sizes, missing = await log_sizes(cluster, [p for t in described for p in t.partitions])
    found: dict[str, dict[str, int]] = {}
    for at, size in sizes.items():
        found.setdefault(at.topic, {})[str(at.partition)] = size
    return found, missing


async def _why_full(
    cluster: Cluster,
    request: RebuildRequest,
    cut: Cut,
    configs_now: Mapping[str, Mapping[str, str | None]],
) -> str | None:
    assert request.since is not None
    how, earlier = request.how, state_folder.read(request.since)
    return await why_read_again(cluster, earlier, cut, how.format, how.options, configs_now)


async def why_read_again(
    cluster: Cluster,
    earlier: Manifest,
    cut: Cut,
    format_name: str,
    options: Mapping[str, Any],
    configs_now: Mapping[str, Mapping[str, str | None]],
) -> str | None:
    """Return what `incremental.why_full` says of an earlier state. cut: of the present logs."""
    now = cut.by_partition()
    kept = {
        partition: p.position
        for partition, p in earlier.cut.by_partition().items()
        if partition in now
    }
    standings = await positions.standings(cluster, kept)
    form = changelog_format(format_name, options)
    return why_full(earlier, cut, form, format_name, options, configs_now, standings, now_ms())


def _retention(
    request: RebuildRequest, configs_now: Mapping[str, Mapping[str, str | None]]
) -> tuple[dict[str, int], str | None]:
    """Return each changelog's retention (ms) and its source; none if the format has none."""
    form = request.how.form()
    if not form.needs_retention:
        if request.retention_ms is not None:
            raise UsageError(f"the format {request.how.format} has none", where="--retention")
        return {}, None
    if request.retention_ms is not None:
        return dict.fromkeys(request.changelogs, request.retention_ms), "--retention"
    key = form.retention_config
    retention = {}
    for topic in request.changelogs:
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
    rebuild_job: RebuildJob, left: RebuildJob, request: RebuildRequest, at: resolve_cut.At
) -> RebuildJob:
    """Return the folder's unfinished request if it equals this one. Raises RefusedError."""
    same = (
        _logs(rebuild_job.cut) == _logs(left.cut)
        and (
            rebuild_job.how.format,
            rebuild_job.how.options,
            rebuild_job.retention,
            rebuild_job.how.range_offsets,
        )
        == (left.how.format, left.how.options, left.retention, left.how.range_offsets)
        and (
            rebuild_job.cut.topics == left.cut.topics if isinstance(at, Cut) else at.kind != "time"
        )
        and (isinstance(at, Cut) or rebuild_job.cut.at == left.cut.at)
        and rebuild_job.base == left.base
    )
    if not same:
        raise RefusedError(
            "another rebuild was left unfinished there",
            where=request.how.output,
            remedy="--clean throws it away, or give another --output",
        )
    return replace(left, fresh=False)


def _logs(cut: Cut) -> tuple[object, ...]:
    return cut.cluster_id, tuple((t.topic, t.topic_id) for t in cut.topics)
