"""`state compare` and `state show`: what is in finished states."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from eoctl.cli.emit import emit
from eoctl.cli.options import ADDRESSES, Connection, Format, Ranked, argument, option
from eoctl.cli.spark_options import Conf, JobProgress, SparkOptions
from eoctl.operations.jobs.spark_launch import Spark, read_options
from eoctl.operations.state import state_comparison, state_entries
from eoctl.operations.state.spark_compare import OnSpark
from eoctl.operations.state.spark_state import SparkChoice, is_checkpoint
from eoctl.render.columns.state import COMPARE, SHOW
from recovery.errors import UsageError

_SERDES = "string|short|int|long|float|double|json|hex|base64|avro:FILE|protobuf:FILE:MESSAGE"


@dataclass(frozen=True)
class SparkStore(Ranked):
    """The options that say what is read of a checkpoint, by a Spark on this machine."""

    panel: ClassVar[str] = "Of spark:DIR, a Structured Streaming checkpoint"
    help_rank: ClassVar[int] = 1

    operator: Annotated[int | None, option("--operator N", "operatorId", min=0)] = None
    store_name: Annotated[str | None, option("--store-name NAME", "storeName")] = None
    join_side: Annotated[str | None, option("--join-side left|right", "joinSide")] = None
    batch: Annotated[int | None, option("--batch N", "batchId [last committed]", min=0)] = None
    key_column: Annotated[str | None, option("--key-column A.B", "of the key's struct")] = None
    value_column: Annotated[str | None, option("--value-column A.B", "of the value's struct")] = (
        None
    )

    def choice(self, word: str, spark: Spark, show: JobProgress) -> SparkChoice:
        """Return what is chosen of `word`. Raises UsageError."""
        if not is_checkpoint(word) and self != SparkStore():
            raise UsageError("these options are for a checkpoint, and this is none", where=word)
        if self.join_side not in (None, "left", "right"):
            raise UsageError("must be left or right", where="--join-side")
        return SparkChoice(
            self.operator,
            self.store_name,
            self.join_side,
            self.batch,
            self.key_column,
            self.value_column,
            spark,
            show,
        )


def compare(
    connection: Connection,
    output: Format,
    store: SparkStore,
    on: SparkOptions,
    a: Annotated[Path, argument("A", "a state's folder, or its manifest"), ADDRESSES],
    b: Annotated[
        str,
        argument(
            "B", "another one, a dump (.jsonl), `live`: the changelog, or spark:DIR, a checkpoint"
        ),
    ],
    at: Annotated[str | None, option("--at CUT", "of `live` [the cut of A]")] = None,
    scratch: Annotated[
        Path | None,
        option("--scratch DIR", "where `live` is rebuilt, for executors [a temporary folder]"),
        ADDRESSES,
    ] = None,
    limit: Annotated[int, option("--limit N", "differing entries shown", min=0)] = 20,
    ignore_timestamps: Annotated[
        bool, option("--ignore-timestamps", "only values count; reads all rows")
    ] = False,
    key_serde: Annotated[
        str, option(f"--key-serde {_SERDES}", "of A's keys, beside spark:DIR")
    ] = "string",
    value_serde: Annotated[
        str, option("--value-serde SERDE", "of A's values, beside spark:DIR")
    ] = "string",
) -> int:
    """Compare two states: entries only in one, entries that differ; exit 1 if there are any."""
    if not is_checkpoint(b) and (key_serde, value_serde) != ("string", "string"):
        raise UsageError("works only with a checkpoint", where="--key-serde, --value-serde")
    engine, spark = on.engine()
    if is_checkpoint(b) and engine == "local":
        raise UsageError("a checkpoint is read by Spark", where="--engine local")
    seconds = connection.seconds(None)
    with JobProgress() as progress:
        there = None
        if engine == "spark" and not is_checkpoint(b):
            assert spark is not None
            there = OnSpark(spark, progress, seconds)
        comparison = state_comparison.Comparison(
            str(a),
            b,
            at,
            limit,
            not ignore_timestamps,
            key_serde,
            value_serde,
            store.choice(b, spark or Spark(), progress),
            there,
            None if scratch is None else str(scratch),
        )
        answer = state_comparison.compare(connection.one, comparison, seconds)
    emit(answer, COMPARE, output)
    return answer.exit_status


def show(
    output: Format,
    store: SparkStore,
    folder: Annotated[str, argument("DIR", "a state's folder, or spark:DIR, a checkpoint")],
    key: Annotated[str | None, argument("[KEY]", "as --key-serde writes it; none: all")] = None,
    key_serde: Annotated[str, option(f"--key-serde {_SERDES}")] = "string",
    value_serde: Annotated[
        str, option("--value-serde SERDE", "the same; confluent-avro:FILE too")
    ] = "string",
    limit: Annotated[int, option("--limit N", "entries shown", min=1)] = 100,
    conf: Conf = [],  # noqa: B006 - as Typer declares a list
) -> int:
    """Show a key's entries, decoded; exit 1 when the state has none."""
    if conf and not is_checkpoint(folder):
        raise UsageError("is for a checkpoint, and this is none", where="--conf")
    with JobProgress() as progress:
        chosen = store.choice(folder, read_options(None, None, conf, None), progress)
        request = state_entries.ShowRequest(folder, key, key_serde, value_serde, limit, chosen)
        answer = state_entries.show(request)
    emit(answer, SHOW, output)
    return answer.exit_status
