"""`state rebuild --engine spark`: hand a resolved request to a Spark job, return its manifest."""

import json
from collections.abc import Callable

from eoctl.engine.rebuild import RebuildJob
from eoctl.kafka.connection.access import Access
from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.settings.context import Context
from eoctl.stores.state import folder as state_folder
from recovery.state.manifest import Manifest


def on_spark(
    spark: Spark, context: Context, show: Show, seconds: float | None = None
) -> Callable[[RebuildJob, Access], Manifest]:
    """Return what runs a request as a Spark job; errors and interrupts are those of `launch`."""

    def run(request: RebuildJob, access: Access) -> Manifest:
        topics = ", ".join(t.topic for t in request.cut.topics)
        launch(
            "rebuild",
            json.loads(request.to_json()),
            access,
            spark,
            summary=f"rebuild of {topics} at {request.cut.at} into {request.how.output}",
            show=show,
            context=context.title,
            cluster_id=request.cut.cluster_id,
            output=request.how.output,
            seconds=seconds,
        )
        return state_folder.read(request.how.output)

    return run
