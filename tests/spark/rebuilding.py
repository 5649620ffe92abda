"""What tests of rebuilds share: the rebuild on a session's executors, without a job's process."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.engine.rebuild import RebuildJob, rebuild
from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.lab.cluster import Lab
from eoctl.operations.state.rebuild_answer import rebuild_state
from eoctl.settings.context import Connect, Context, resolve
from spark_jobs.rebuild import SparkEngine
from tests.kafka.state_oracle import Rebuilt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eoctl.kafka.connection.access import Access
    from recovery.state.manifest import Manifest


def context(lab: Lab) -> Context:
    return resolve(Connect(bootstrap_server=lab.bootstrap_servers))


def plain(topic: str, output: Path, since: Path | None = None, **how: Any) -> RebuildRequest:
    """Ask for a plain state of a topic up to its LSO, on Spark."""
    made = Making("plain", {}, str(output), **how)
    return RebuildRequest(
        (topic,), "lso", made, "spark", since=None if since is None else str(since)
    )


def on_session(
    spark: "SparkSession", lab: Lab, wanted: RebuildRequest, seconds: float = 120
) -> Rebuilt:
    """The rebuild with the session's executors, without a job's process."""

    def run(request: RebuildJob, access: "Access") -> "Manifest":
        engine = SparkEngine(spark, request.how.storage)
        return rebuild(request, access, engine, "spark")

    rebuild_state(context(lab), wanted, seconds, spark=run)
    return Rebuilt(Path(wanted.how.output))
