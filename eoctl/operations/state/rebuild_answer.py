"""`state rebuild`: turn changelogs into a published state, up to one cut.

Resolves everything first (`eoctl.engine.rebuild_request`), so that the work itself is numbers; then
the engine does the work, and the logs are checked again before anything is published.
"""

import os
import time
from collections.abc import Callable, Sequence

from eoctl.engine.local import LocalEngine
from eoctl.engine.rebuild import RebuildEngine, RebuildJob, rebuild
from eoctl.engine.rebuild_request import RebuildRequest, begin
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.state import folder as state_folder
from eoctl.stores.storage import Storage
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.plurals import counted
from recovery.row import ErrorRow
from recovery.state.manifest import Manifest
from recovery.state.state_rows import StateDigest, StateRebuildRow

NOT_COMPLETE = "NOT_PROVABLY_COMPLETE"
EARLY = 2  # workers started before it is known how many are needed
SPARK_OFFSETS = 200_000_000  # below, a session takes longer to start than several cores save

RebuildProgress = Callable[[int, int, int], None]
"""Called with bytes read, offsets done and offsets in all."""

SparkEngine = Callable[[RebuildJob, Access], Manifest]


def rebuild_state(
    context: Context,
    request: RebuildRequest,
    timeout: float | None,
    progress: RebuildProgress | None = None,
    spark: SparkEngine | None = None,
) -> Answer:
    """Make the state. spark: runs a request on Spark, if the chosen engine allows it."""
    request.check()
    bound = None if timeout is None else time.monotonic() + timeout
    access = context.access
    moved = _Moved(progress)
    most = request.processes or len(os.sched_getaffinity(0))
    with LocalEngine(most, moved, bound) as processes:
        if request.engine != "spark":
            processes.start(EARLY)  # they load while the cut is made
        rebuild_job = begin(request, lambda use: with_cluster(context, timeout, use))
        engine, why = choose_engine(request.engine, rebuild_job, spark is not None)
        if engine == "spark":
            assert spark is not None
            manifest = spark(rebuild_job, access)
        else:
            moved.total = sum(p.end - p.start for p in rebuild_job.cut.by_partition().values())
            run: RebuildEngine = processes
            manifest = rebuild(rebuild_job, access, run, "local", lambda: most)
    return answer(manifest, request.how.storage, why)


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


def choose_engine(engine: str, request: RebuildJob, spark_there: bool) -> tuple[str, str]:
    """Return local or spark, and why."""
    offsets = sum(p.end - p.start for p in request.cut.by_partition().values())
    if engine != "auto":
        return engine, "as asked"
    if offsets < SPARK_OFFSETS:
        few = counted(offsets, "offset is", "offsets are")
        return "local", f"{few} read before a Spark session would have started"
    if not spark_there:
        return "local", "Spark is not available"
    return "spark", f"{counted(offsets, 'offset')} are worth starting Spark"


def answer(manifest: Manifest, storage: Storage, why: str | None = None) -> Answer:
    """Return a finished state, as the command shows it."""
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
            ignored=p.counts.get("ignored"),
            expired=p.expired,
            incomplete=p.incomplete,
            proof=p.proof,
        )
        for p in manifest.partitions
    ]
    cut = manifest.cut
    extra = {
        "manifest": storage.shown(state_folder.MANIFEST),
        "format": manifest.format,
        "at": cut.at,
        "engine": manifest.engine,
        "engine_why": why,
        "reader": manifest.reader,
        "digest": StateDigest(**manifest.digest.model_dump()).json_values(),
        "consistent": manifest.consistent,
        "split": [t.model_dump(mode="json") for t in cut.split],
        "open": [t.model_dump(mode="json") for t in cut.open],
        "notes": list(manifest.notes),
        "seconds": manifest.seconds,
    }
    return Answer(
        "state-rebuild", manifest.cluster_id, now_ms(), rows, not_complete(manifest), extra=extra
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
    """Return the named changelogs. Raises UsageError for a partition or a pattern."""
    for word in words:
        if not word or any(letter in word for letter in ":*,"):
            raise UsageError(
                f"{word!r} names no topic",
                where="CHANGELOG",
                remedy="a state is made from complete changelogs",
            )
    return tuple(words)
