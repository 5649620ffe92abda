"""A streaming query through foreach_batch, to be killed: run until nothing new is left.

A program for tests, and what the tests call in their own session: argv[1] is JSON, the fields of
`Asked`. It ends with 0, or with 1 and the error on stderr.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from eoctl.kafka.connection.access import Access
from spark_jobs.sink.foreach import foreach_batch
from spark_jobs.source import register


@dataclass(frozen=True)
class Asked:
    """topic: read; topic + "-out": written. options: of the source. query: SQL of key and value."""

    server: str
    topic: str
    folder: str
    options: dict[str, str] = field(default_factory=dict)
    query: tuple[str, ...] = ("key", "value")

    def text(self) -> str:
        return json.dumps(asdict(self))


def start(spark: Any, asked: Asked) -> Any:
    """The query, started."""
    access = Access({"bootstrap.servers": asked.server})
    register(spark, access)
    rows = spark.readStream.format("eoctl-kafka").options(**asked.options).load()
    sending = foreach_batch(
        topic=f"{asked.topic}-out",
        job=asked.topic,
        staging_folder=f"{asked.folder}/staging",
        access=access,
        rows_per_transaction=100,
        partitions=2,
    )
    writer = rows.selectExpr(*asked.query).writeStream.foreachBatch(sending)
    writer = writer.option("checkpointLocation", f"{asked.folder}/checkpoint")
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from pyspark.sql import SparkSession

    asked = Asked(**json.loads(sys.argv[1]))
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    start(spark, asked).awaitTermination()


if __name__ == "__main__":
    main()
