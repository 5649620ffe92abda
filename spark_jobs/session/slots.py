"""How many tasks run at once."""

import os
import re
from typing import TYPE_CHECKING

from spark_jobs.session import memory
from spark_jobs.session.executors import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def at_once(spark: "SparkSession", tasks: int) -> int:
    """Return how many of so many tasks run at once, at most: those share a rate."""
    if is_connect(spark):
        return max(1, tasks)
    context = spark.sparkContext
    return max(1, min(tasks, slots(str(context.master), context.defaultParallelism) or tasks))


def slots(master: str, parallelism: int) -> int | None:
    """Return how many tasks run at once, at most; None for a cluster, which does not say.

    parallelism: Spark's default parallelism, which users may set below what local[*] runs.
    """
    if master == "local":
        return 1
    if not (local := re.fullmatch(r"local\[ *(\d+|\*) *(?:,[^]]*)?\]", master)):
        return None
    if local[1] != "*":
        return int(local[1])
    return max(parallelism, os.cpu_count() or 1)


def task_slots(spark: "SparkSession") -> int | None:
    """Return how many tasks the executors run at once, as far as they have registered.

    None for Spark Connect, and for executors that come as needed without a limit.
    """
    if is_connect(spark):
        return None
    context = spark.sparkContext
    here = slots(str(context.master), context.defaultParallelism)
    conf = context.getConf()
    if here is None and conf.get("spark.dynamicAllocation.enabled") == "true":
        most = conf.get("spark.dynamicAllocation.maxExecutors")
        return None if most is None else int(most) * memory.tasks_at_once(dict(conf.getAll()))
    return here or context.defaultParallelism
