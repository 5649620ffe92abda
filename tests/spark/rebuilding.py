"""What tests of rebuilds share: the rebuild on a session's executors, without a job's process."""

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.engine.rebuild import RebuildRequest, rebuild
from eoctl.lab.cluster import Lab
from eoctl.operations.state.rebuild import RebuildWish, rebuild_state
from eoctl.settings.context import Connect, Context, resolve
from spark_jobs.rebuild import SparkEngine
from tests.kafka.state_oracle import Rebuilt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eoctl.kafka.connection.access import Access
    from recovery.state.manifest import Manifest


def context(lab: Lab) -> Context:
    return resolve(Connect(bootstrap_server=lab.bootstrap_servers))


def on_session(
    spark: "SparkSession", lab: Lab, wanted: RebuildWish, seconds: float = 120
) -> Rebuilt:
    """The rebuild with the session's executors, without a job's process."""

    def run(request: RebuildRequest, access: "Access") -> "Manifest":
        engine = SparkEngine(spark, Path(request.output))
        return rebuild(request, access, engine, "spark")

    rebuild_state(context(lab), wanted, seconds, spark=run)
    return Rebuilt(wanted.output)
