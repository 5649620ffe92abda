"""Python's memory on executors, which YARN and Kubernetes grant in addition to the JVM's.

A container that uses more than it was granted is killed. By default Spark requests a tenth of
`spark.executor.memory` more, and at least 384 MiB, which is less than one of our tasks may need.
Source: Spark's documentation, "Spark Properties", spark.executor.memoryOverhead.
"""

import re
import sys
from collections.abc import Mapping

from recovery.plurals import counted

TASK_MIB = 1024  # at most, of the Python process of one task: docs/state.md
OVERHEAD = "spark.executor.memoryOverhead"
CHOSEN = (
    OVERHEAD,
    "spark.executor.memoryOverheadFactor",
    "spark.executor.minMemoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.kubernetes.memoryOverheadFactor",
)
"""With one of them somebody has decided already."""
_LEAST_MIB = 384
_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_MIB = {"k": 2**-10, "": 1, "m": 1, "g": 2**10, "t": 2**20}


def grants(master: str) -> bool:
    """Return True if this kind of cluster limits an executor's total memory."""
    return master == "yarn" or master.startswith("k8s:")


def overhead(conf: Mapping[str, str]) -> int | None:
    """Return the MiB that Python needs in addition to the JVM's; None if no setting is needed.

    >>> overhead({"spark.master": "yarn", "spark.executor.cores": "2"})
    2432
    """
    if not grants(conf.get("spark.master", "")) or any(key in conf for key in CHOSEN):
        return None
    size = _SIZE.fullmatch(conf.get("spark.executor.memory", "1g").strip())
    memory = int(size[1]) * _MIB[size[2].lower()] if size else 0
    return max(_LEAST_MIB, int(memory) // 10) + tasks_at_once(conf) * TASK_MIB


def tasks_at_once(conf: Mapping[str, str]) -> int:
    """Return how many of an executor's tasks run at once."""
    cores, each = (conf.get(f"spark.{name}", "1") for name in ("executor.cores", "task.cpus"))
    return max(1, int(cores) // max(1, int(each)))


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the conf to add to the given one, and say on stderr why.

    What spark-submit and spark-defaults.conf set is known only to the JVM, which starts here.
    """
    if not grants(given.get("spark.master", "yarn")):
        return {}
    from pyspark import SparkConf, SparkContext

    conf = SparkConf()
    conf.setAll(list(given.items()))
    SparkContext._ensure_initialized(conf=conf)
    whole = {**dict(SparkConf().getAll()), **given}
    if (mib := overhead(whole)) is None:
        return {}
    print(
        f"eoctl: {OVERHEAD}={mib}m: the Python of {counted(tasks_at_once(whole), 'task')} at once "
        f"may take {TASK_MIB} MiB each; --conf {OVERHEAD}=... sets another",
        file=sys.stderr,
    )
    return {OVERHEAD: f"{mib}m"}
