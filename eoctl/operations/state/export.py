"""Export a rebuild (`jobs export`): the request itself, which the job resolves on each run."""

import json
from pathlib import Path

from eoctl.engine.rebuild_request import RebuildRequest, resolved
from eoctl.engine.resolve_cut import parse_at
from eoctl.host.clock import now_ms
from eoctl.operations.jobs import job_export as jobs
from eoctl.operations.jobs.spark_launch import Spark
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.state.folder import MANIFEST
from eoctl.stores.storage_address import storage_and_name
from recovery.answers import Answer
from recovery.shared.cut import Cut
from recovery.values import replace


def export_rebuild(
    context: Context, request: RebuildRequest, spark: Spark, folder: Path, timeout: float | None
) -> Answer:
    """Write the rebuild into a folder for spark-submit.

    It is resolved once, without a result, so that a missing topic or an unknown retention is
    reported now. Raises what that does, and what `export` raises.
    """
    request.check()
    jobs.check(context.access, spark)
    request = _from_anywhere(request)
    at = parse_at(request.at)
    now = at if isinstance(at, Cut) else parse_at("lso")  # others may have to wait, or be refused
    rebuild_job = with_cluster(context, timeout, lambda cluster: resolved(cluster, request, now))
    row = jobs.export(folder, "rebuild", json.loads(request.to_json()), context.access, spark)
    return Answer("jobs-export", rebuild_job.cut.cluster_id, now_ms(), [row])


def _from_anywhere(request: RebuildRequest) -> RebuildRequest:
    """Return the request with absolute paths: the job runs in another folder. Addresses stay."""
    since = None
    if request.since is not None:
        earlier, manifest = storage_and_name(request.since, MANIFEST)
        since = earlier.shown(manifest)
    of_file = request.at.endswith(".json") or Path(request.at).is_file()
    return replace(
        request,
        at=jobs.anywhere(request.at) if of_file else request.at,
        how=replace(request.how, output=request.how.storage.address),
        since=since,
    )
