"""Read the state of a Structured Streaming query from its checkpoint, with Spark's data sources.

`state-metadata` names the stateful operators. `statestore` reads the keys and values of one of
them, for every state store provider. Both only read the checkpoint.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recovery.errors import IncompleteError, UsageError
from recovery.plurals import counted
from spark_jobs.session import job
from spark_jobs.session.executors import text_of
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from eoctl.kafka.connection.access import Access

BATCH_REMEDY = "`eoctl restart checkpoint DIR` shows what the checkpoint lacks"


def work(
    spark: "SparkSession", request: Mapping[str, Any], access: "Access", progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job: write the entries of one store as Parquet.

    request: checkpoint, output; operator, store, join_side and batch, null if there is no choice;
    key_column, value_column: null for the complete struct; key: null, or a key as text and as bytes
    (hexadecimal), to read only its entries; most: the most entries to read, null for all.

    Columns of the output: partition (Spark's); key_bytes and value_bytes, if the column holds
    bytes; key_json, value_json: the column, and key_struct, value_struct: the complete struct, as
    JSON.
    """
    where = str(request["checkpoint"])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        operator = _operator(_operators(spark, where), request, where)
        reader = spark.read.format("statestore").option("operatorId", operator["operatorId"])
        if request["join_side"] is not None:
            reader = reader.option("joinSide", request["join_side"])
        else:
            reader = reader.option("storeName", operator["stateStoreName"])
        if request["batch"] is not None:
            reader = reader.option("batchId", request["batch"])
        entries = reader.load(where)
        _check_partitions(entries, operator, where)
        chosen = _chosen(entries, request)
        chosen.write.parquet(request["output"])
    except Exception as error:
        if (sentence := of_spark(error)) is None:
            raise
        raise IncompleteError(
            f"Spark cannot read its state: {sentence}", where=where, remedy=BATCH_REMEDY
        ) from error
    return {
        "operator": operator["operatorId"],
        "operator_name": operator["operatorName"],
        "store": request["join_side"] or operator["stateStoreName"],
        "batch": operator["maxBatchId"] if request["batch"] is None else request["batch"],
    }


def of_spark(error: Exception) -> str | None:
    """Return the sentence of an error that Spark raised, None for any other error."""
    if not type(error).__module__.startswith(("pyspark.errors", "py4j")):
        return None
    text = text_of(error)
    named = re.search(r"\[[A-Z_.]+\] .*", text)
    return " ".join((named[0] if named else text).splitlines()[0].split())[:400]


def _operators(spark: "SparkSession", where: str) -> list[dict[str, Any]]:
    rows = spark.read.format("state-metadata").load(where).collect()
    return [row.asDict() for row in rows]


def _operator(
    operators: Sequence[Mapping[str, Any]], request: Mapping[str, Any], where: str
) -> Mapping[str, Any]:
    """Return the operator that the request names, or the only one. Raises UsageError."""
    matching = [
        o
        for o in operators
        if request["operator"] in (None, o["operatorId"])
        and (request["join_side"] is not None or request["store"] in (None, o["stateStoreName"]))
    ]
    if request["join_side"] is not None and len({o["operatorId"] for o in matching}) == 1:
        return matching[0]
    if len(matching) == 1:
        return matching[0]
    known = "; ".join(
        f"operator {o['operatorId']} ({o['operatorName']}), store {o['stateStoreName']}"
        for o in operators
    )
    if not known:
        raise UsageError("no stateful operator of it is known", where=where)
    raise UsageError(
        f"{'none' if not matching else 'more than one'} of its stores is meant; it has {known}",
        where=where,
        remedy="name one with --operator and --store-name, or a join's with --join-side",
    )


def _check_partitions(entries: "DataFrame", operator: Mapping[str, Any], where: str) -> None:
    """Raise IncompleteError if the folder of a partition is missing.

    Spark reads the folders that exist: if the last one is missing, it silently omits entries.
    """
    there = entries.rdd.getNumPartitions()
    if there != operator["numPartitions"]:
        raise IncompleteError(
            f"{there} of {counted(operator['numPartitions'], 'partition')} of its state found",
            where=where,
            remedy=BATCH_REMEDY,
        )


def _chosen(entries: "DataFrame", request: Mapping[str, Any]) -> "DataFrame":
    """Return the columns of the output. Raises UsageError."""
    import pyspark.sql.functions as F  # noqa: N812 - as PySpark's users know it

    if not {"key", "value"} <= set(entries.columns):
        raise UsageError(
            f"its columns are {', '.join(entries.columns)}: neither a key nor a value",
            where=str(request["checkpoint"]),
            remedy="lists, maps and timers of transformWithState are not read",
        )
    columns = [F.col("partition_id").alias("partition")]
    for name in ("key", "value"):
        columns += [c.alias(f"{name}_{a}") for a, c in _sides(entries, name, request).items()]
    rows = entries.select(*columns)
    if (key := request["key"]) is not None:
        text = F.get_json_object(F.concat(F.lit('{"k":'), "key_json", F.lit("}")), "$.k")
        wanted = F.col("key_bytes") == F.lit(bytes.fromhex(key["hex"]))
        rows = rows.filter(F.coalesce(wanted, text == key["text"]))
    return rows if request["most"] is None else rows.limit(request["most"])


def _sides(entries: "DataFrame", name: str, request: Mapping[str, Any]) -> dict[str, "Column"]:
    """Return the named column as bytes and as JSON, and the complete struct as JSON."""
    import pyspark.sql.functions as F  # noqa: N812 - as PySpark's users know it
    from pyspark.sql.types import BinaryType, DataType, StructType

    kind: DataType = entries.schema[name].dataType
    assert isinstance(kind, StructType)
    path = request[f"{name}_column"]
    # only of the named fields: a join's rows have one more, and to_json would fail
    column = F.struct(*(F.col(name).getField(n).alias(n) for n in kind.names))
    whole = _json(column)
    for part in path.split(".") if path else _only(kind):
        if not isinstance(kind, StructType) or part not in kind.names:
            known = entries.schema[name].dataType.simpleString()
            raise UsageError(
                f"the {name} has no column {path!r}: it is {known}", where=f"--{name}-column"
            )
        column, kind = column.getField(part), kind[part].dataType
    binary = isinstance(kind, BinaryType)
    nothing = F.lit(None)
    return {
        "bytes": column if binary else nothing.cast("binary"),
        "json": nothing.cast("string") if binary else _json(column),
        "struct": whole,
    }


def _only(kind: Any) -> list[str]:
    """Return the name of a struct's only column."""
    return list(kind.names) if len(getattr(kind, "names", ())) == 1 else []


def _json(column: "Column") -> "Column":
    """Return a column of any type as JSON: the part of {"x":...} after the colon."""
    import pyspark.sql.functions as F  # noqa: N812 - as PySpark's users know it

    text = F.to_json(F.struct(column.alias("x")), {"ignoreNullFields": "false"})
    return F.substring(text, F.lit(6), F.length(text) - F.lit(6))


if __name__ == "__main__":
    job.main("checkpoint_state", work)
