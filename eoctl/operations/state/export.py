"""Export a rebuild (`jobs export`): the request itself, which the job resolves on each run."""

import json
from pathlib import Path

from eoctl.engine.rebuild_wish import RebuildWish, resolved
from eoctl.engine.resolve_cut import parse_at
from eoctl.host.clock import now_ms
from eoctl.operations.jobs import export as jobs
from eoctl.operations.jobs.spark_launch import Spark
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.state.folder import MANIFEST
from eoctl.stores.storage_address import storage_and_name
from recovery.rows.answers import Answer
from recovery.shared.cut import Cut
from recovery.values import replace


def export_rebuild(
    context: Context, wish: RebuildWish, spark: Spark, folder: Path, timeout: float | None
) -> Answer:
    """Write the rebuild into a folder for spark-submit.

    It is resolved once, without a result, so that a missing topic or an unknown retention is
    reported now. Raises what that does, and what `export` raises.
    """
    wish.check()
    jobs.check(context.access, spark)
    wish = _from_anywhere(wish)
    at = parse_at(wish.at)
    now = at if isinstance(at, Cut) else parse_at("lso")  # others may have to wait, or be refused
    request = with_cluster(context, timeout, lambda cluster: resolved(cluster, wish, now))
    row = jobs.export(folder, "rebuild", json.loads(wish.to_json()), context.access, spark)
    return Answer("jobs-export", request.cut.cluster_id, now_ms(), [row])


def _from_anywhere(wish: RebuildWish) -> RebuildWish:
    """Return the request with absolute paths: the job runs in another folder. Addresses stay."""
    since = None
    if wish.since is not None:
        earlier, manifest = storage_and_name(wish.since, MANIFEST)
        since = earlier.shown(manifest)
    of_file = wish.at.endswith(".json") or Path(wish.at).is_file()
    return replace(
        wish,
        at=jobs.anywhere(wish.at) if of_file else wish.at,
        how=replace(wish.how, output=wish.how.storage.address),
        since=since,
    )
