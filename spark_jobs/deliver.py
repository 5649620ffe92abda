"""`state deliver --into topic:` on Spark: a task sends one partition, and reads it back.

Tasks do what the local engine does, with its transactional ids, group and metadata: either goes on
where the other was killed, and a task that is tried again fences the attempt before.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eoctl.engine.delivered import DeliveredState
from eoctl.engine.topic_delivery import TopicDelivery
from eoctl.kafka.ask.same_topic import refuse_other
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from recovery.facts import TopicPartition
from recovery.state.state_jobs import DeliverRequest
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress
from spark_jobs.session.states import opened
from spark_jobs.sink.write import refuse_speculation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job. Return {"delivered": {partition: how many rows are there, and how many of them
    the last attempt of its task sent; `start`, `end` and the digest of what was read back}}."""
    asked = job.understood(DeliverRequest.model_validate, request)
    refuse_speculation(spark)
    parts = DeliveredState(opened(asked.state), asked.changelog, asked.state.sha256).partitions
    rows = sum(parts[p].digest.rows for p in asked.partitions)
    stage = {"stage": "send and read back", "stages_done": 0, "stages_total": 1}
    progress.watch({**stage, "records": None, "records_total": rows}.copy)

    def deliver(number: int) -> dict[str, Any]:
        state = DeliveredState(opened(asked.state), asked.changelog, asked.state.sha256)
        partition = asked.partitions[number]
        return access.ask(lambda cluster: _delivered(cluster, access, state, asked, partition))

    answers = executors.run(
        spark, deliver, len(asked.partitions), "eoctl state deliver", sends=True
    )
    by_partition = zip(asked.partitions, answers, strict=True)
    return {"delivered": {str(partition): answer for partition, answer in by_partition}}


async def _delivered(
    cluster: Cluster, access: Access, state: DeliveredState, asked: DeliverRequest, partition: int
) -> dict[str, Any]:
    place = TopicPartition(asked.topic, partition)
    await refuse_other(cluster, asked.cluster_id, asked.topic_id, place)
    delivery = TopicDelivery(cluster, access.settings(), state, asked.topic)
    sent = await delivery.deliver(partition, asked.topic_id, lambda: None)
    facts = await delivery.settled(partition)
    there = await delivery.digest(facts)
    return {
        **sent,
        "start": facts.log_start_offset,
        "end": facts.last_stable_offset,
        "digest": {"rows": there.rows, "sha256_sum": there.hex},
    }


if __name__ == "__main__":
    job.main("deliver", work)
