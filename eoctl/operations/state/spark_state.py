"""Read a Structured Streaming query's state by a Spark job, as text, to compare with a rebuilt one.

Spark keeps keys and values as structs in a format of its own, a changelog holds bytes. So both
sides become text: bytes by a serde, a struct (or a column of it) as JSON.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eoctl.kafka.connection.access import Access
from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.settings.folders import local_path
from eoctl.stores import private
from eoctl.stores.serdes import serde
from eoctl.stores.state.finished_rows import StateRows, part_of
from recovery.errors import RefusedError, UsageError
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.state_rows import StateShowRow, StateSparkStore
from recovery.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "spark:"
BATCH_ROWS = 1 << 16

Text = Callable[[bytes], bytes]


class SparkChoice(Value):
    """Which store of a checkpoint, which of its columns, and the Spark that reads it.

    operator, store, join_side, batch: None for the only one, and the last committed batch.
    key_column, value_column: as `a.b`; None: the only column of the struct, or the complete struct.
    """

    operator: int | None = None
    store: str | None = None
    join_side: str | None = None
    batch: int | None = None
    key_column: str | None = None
    value_column: str | None = None
    spark: Spark = msgspec.field(default_factory=Spark)
    show: Show = lambda report: None


class CheckpointState(Value):
    """The entries of a store, in this process's own Parquet files."""

    address: str
    store: StateSparkStore
    files: tuple[Path, ...]

    @property
    def entries(self) -> int:
        """Return the number of entries."""
        import pyarrow.parquet as pq

        return sum(pq.ParquetFile(file).metadata.num_rows for file in self.files)

    def rows(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the entries, some at a time; columns: spark_jobs/checkpoint_state.py."""
        import pyarrow.parquet as pq

        for file in self.files:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
                yield batch.to_pylist()


def is_checkpoint(word: str) -> bool:
    """Return True for `spark:DIR`."""
    return word.startswith(PREFIX)


@contextmanager
def read(
    word: str,
    choice: SparkChoice,
    seconds: float | None,
    *,
    key: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Iterator[CheckpointState]:
    """Yield the entries of `spark:DIR` as long as they are needed.

    key, most: see spark_jobs/checkpoint_state.py. Raises UsageError; IncompleteError if Spark
    cannot read all of it; what `launch` raises.
    """
    checkpoint = word.removeprefix(PREFIX)
    if not choice.spark.here:
        raise UsageError("a checkpoint's state is read on this machine", where="--master, --remote")
    if "://" not in checkpoint:
        checkpoint = str(local_path(checkpoint).absolute())
        if not Path(checkpoint, "offsets").is_dir():
            raise UsageError("is not a checkpoint: it has no offsets", where=checkpoint)
    with private.temporary("state") as folder:
        output = folder / "rows"
        request = {
            "checkpoint": checkpoint,
            "output": output.as_uri(),
            "operator": choice.operator,
            "store": choice.store,
            "join_side": choice.join_side,
            "batch": choice.batch,
            "key_column": choice.key_column,
            "value_column": choice.value_column,
            "key": key,
            "most": most,
        }
        result = launch(
            "checkpoint_state",
            request,
            Access({}),
            choice.spark,
            summary=f"state of {checkpoint}",
            show=choice.show,
            seconds=seconds,
        )
        store = StateSparkStore.read(result)
        yield CheckpointState(
            f"{PREFIX}{checkpoint}", store, tuple(sorted(output.glob("*.parquet")))
        )


def shown(state: CheckpointState) -> list[StateShowRow]:
    """Return the entries as `state show` prints them: a struct as JSON."""
    return [
        StateShowRow(
            topic=state.address,
            partition=row["partition"],
            offset=state.store.batch,
            timestamp=None,
            key=base64.b64encode(_bytes(row, "key")).decode(),
            key_decoded=json.loads(row["key_struct"]),
            value=base64.b64encode(_bytes(row, "value")).decode(),
            value_decoded=json.loads(row["value_struct"]),
            extra={},
        )
        for rows in state.rows()
        for row in rows
    ]


def _bytes(row: Mapping[str, Any], name: str) -> bytes:
    held: bytes | None = row[f"{name}_bytes"]
    return as_text(json.loads(row[f"{name}_json"])) if held is None else held


def as_text(value: Any) -> bytes:
    """Return a value as the text that is compared: a string unchanged, all else as JSON.

    Names are sorted, fields that are null are left out, and 5.0 is 5.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    text = json.dumps(
        _plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
    )
    return text.encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, list) else value


class Spread:
    """Entries in parts by key hash, in files, so that one part fits into memory."""

    def __init__(self, folder: Path, parts: int) -> None:
        self._folder, self._parts = folder, parts
        self._writers: dict[int, Any] = {}
        self.rows = 0
        private.make_folder(folder)

    def add(self, rows: "pa.Table") -> None:
        """Add rows of `rows_schema`."""
        import pyarrow.parquet as pq

        self.rows += len(rows)
        for part in range(self._parts):
            if part not in self._writers:
                self._writers[part] = pq.ParquetWriter(self._folder / str(part), rows.schema)
            self._writers[part].write_table(part_of(rows, part, self._parts))

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()

    def part(self, number: int) -> "pa.Table":
        """Return a part. Call `close` before."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from recovery.formats.columns import rows_schema

        if number not in self._writers:
            return pa.Table.from_batches([], schema=rows_schema())
        return pq.ParquetFile(self._folder / str(number)).read().cast(rows_schema())


def check_comparable(left: StateRows) -> None:
    """Refuse a state whose entries are more than a key and a value."""
    manifest = left.manifest
    form = changelog_format(manifest.format, manifest.options)
    if form.needs_retention:
        raise RefusedError(
            f"a {manifest.format} state has windows or versions beside its keys, which Spark keeps "
            "in columns of its own: they cannot be compared",
        )


def spread_state(left: StateRows, keys: Text, values: Text, spread: Spread) -> None:
    """Add a rebuilt state's entries as texts. Raises UsageError for what a serde cannot read."""
    for partition in left.manifest.by_partition():
        left.check(partition)
        for table in left.columns(partition, ["offset", "key", "value"]):
            rows = []
            for row in table.to_pylist():
                where = f"{partition}, offset {row['offset']}"
                rows.append(
                    (
                        _read(keys, row["key"], "key", where),
                        _read(values, row["value"], "value", where),
                    )
                )
            spread.add(_table(rows))
    spread.close()


def spread_checkpoint(state: CheckpointState, keys: Text, values: Text, spread: Spread) -> None:
    """Add a checkpoint's entries as texts; bytes by the same serde. Raises UsageError."""
    for rows in state.rows():
        spread.add(_table([(_side(r, "key", keys), _side(r, "value", values)) for r in rows]))
    spread.close()


def text_by(name: str, where: str) -> Text:
    """Return a function that makes text of bytes with the serde of this name. Raises UsageError."""
    how = serde(name, where)
    return (lambda content: content) if name == "string" else lambda c: as_text(how.decode(c))


def _side(row: Mapping[str, Any], name: str, text: Text) -> bytes:
    held: bytes | None = row[f"{name}_bytes"]
    if held is None:
        return as_text(json.loads(row[f"{name}_json"]))
    return _read(text, held, name, "the checkpoint")


def _read(text: Text, content: bytes, what: str, where: str) -> bytes:
    try:
        return text(content)
    except ValueError as error:
        raise UsageError(
            f"its {what} is not what the serde expects: {error}",
            where=where,
            remedy=f"name another one with --{what}-serde",
        ) from None


def _table(rows: list[tuple[bytes, bytes]]) -> "pa.Table":
    import pyarrow as pa

    from recovery.formats.columns import rows_schema

    fields = [{"offset": 0, "timestamp": None, "key": key, "value": value} for key, value in rows]
    return pa.Table.from_pylist(fields, schema=rows_schema())
