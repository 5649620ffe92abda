"""The rows of a finished state, and of a JSON-lines dump, some keys at a time.

A dump's line: {"key": base64, "value": base64, "timestamp": ms or null, "topic": ..., "partition":
...}; topic, partition and timestamp may be left out, and are not compared then.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.stores.state.files import StateFile, check_file
from eoctl.stores.storage import Storage
from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.arrays import int64_values, one_chunk
from recovery.formats.columns import int64_array, rows_schema
from recovery.plurals import count, counted
from recovery.state.latest import key_hash
from recovery.state.manifest import Manifest, ManifestFile
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ROWS_AT_ONCE = 1_000_000
BYTES_AT_ONCE = 128 << 20  # of rows in order


def parts_of(rows: int) -> int:
    """Return into how many parts, by key hash, so many rows are divided for comparing."""
    return max(1, -(-rows // ROWS_AT_ONCE))


class StateRows(Value):
    """A finished state's rows. Files are checked against the manifest when they are read."""

    storage: Storage
    manifest: Manifest

    def rows(self, partition: TopicPartition, part: int, parts: int) -> "pa.Table":
        """Return the rows of a partition with a key hash of `part` modulo `parts`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        if part == 0:
            self.check(partition)
        for listed in self.manifest.by_partition()[partition].files:
            file = pq.ParquetFile(self.storage.opened(listed.path, listed.size))
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=rows_schema().names)
                tables.append(part_of(table.cast(rows_schema()), part, parts))
        return pa.concat_tables(tables or [pa.Table.from_batches([], schema=rows_schema())])

    def all_rows(self, partition: TopicPartition) -> Iterator["pa.Table"]:
        """Yield all rows with all columns, a row group at a time."""
        import pyarrow.parquet as pq

        self._check_rows(partition)
        for listed in self.manifest.by_partition()[partition].files:
            check_file(self.storage, file_of(listed))
            file = pq.ParquetFile(self.storage.opened(listed.path, listed.size))
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)

    def offsets(self, partition: TopicPartition) -> "NDArray[np.int64]":
        """Return the offsets of a partition's rows, rising."""
        import numpy as np

        columns = [
            int64_values(one_chunk(group.column("offset")))
            for group in self._groups(partition, ["offset"])
        ]
        return np.sort(np.concatenate([np.empty(0, np.int64), *columns]))

    def columns(self, partition: TopicPartition, names: list[str]) -> Iterator["pa.Table"]:
        """Yield some columns of all rows, a row group at a time. Call `check` before."""
        return self._groups(partition, names)

    def in_order(
        self, partition: TopicPartition, first: int = 0, at_once: int | None = None
    ) -> Iterator["pa.Table"]:
        """Yield a partition's rows with all columns by ascending offset, from row `first` on.

        The tables have `at_once` rows, or as many as BYTES_AT_ONCE hold: each reads the files
        again, so memory is bounded. Call `check` before.
        """
        import numpy as np
        import pyarrow as pa

        offsets = self.offsets(partition)
        at_once = at_once or self._fit(partition)
        for begin in range(first, len(offsets), at_once):
            last = min(begin + at_once, len(offsets)) - 1
            parts = []
            for group in self._groups(partition, None, (int(offsets[begin]), int(offsets[last]))):
                here = int64_values(one_chunk(group.column("offset")))
                chosen = np.flatnonzero((here >= offsets[begin]) & (here <= offsets[last]))
                parts.append(group.take(int64_array(chosen)))
            rows = pa.concat_tables(parts)
            order = np.argsort(int64_values(one_chunk(rows.column("offset"))), kind="stable")
            yield rows.take(int64_array(order))

    def check(self, partition: TopicPartition) -> None:
        """Raise RefusedError if a file does not match the manifest, or its rows the digest."""
        self._check_rows(partition)
        for listed in self.manifest.by_partition()[partition].files:
            check_file(self.storage, file_of(listed))

    def _check_rows(self, partition: TopicPartition) -> None:
        part = self.manifest.by_partition()[partition]
        rows = sum(listed.rows for listed in part.files)
        if rows != part.digest.rows:
            raise RefusedError(
                f"the files of its manifest list {counted(rows, 'row')}, its digest is of "
                f"{count(part.digest.rows)}",
                where=f"{self.storage.address}, {partition}",
                remedy="rebuild the state",
            )

    def _fit(self, partition: TopicPartition) -> int:
        """Return how many rows fit into BYTES_AT_ONCE."""
        import pyarrow.parquet as pq

        rows, size = 0, 0
        for listed in self.manifest.by_partition()[partition].files:
            metadata = pq.ParquetFile(self.storage.opened(listed.path, listed.size)).metadata
            rows += metadata.num_rows
            size += sum(
                metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)
            )
        return max(1, rows * BYTES_AT_ONCE // max(1, size))

    def _groups(
        self,
        partition: TopicPartition,
        columns: list[str] | None,
        within: tuple[int, int] | None = None,
    ) -> Iterator["pa.Table"]:
        """Yield row groups, without those known to have no offset `within`."""
        import pyarrow.parquet as pq

        for listed in self.manifest.by_partition()[partition].files:
            file = pq.ParquetFile(self.storage.opened(listed.path, listed.size))
            at = file.schema_arrow.get_field_index("offset")
            for number in range(file.num_row_groups):
                statistics = file.metadata.row_group(number).column(at).statistics
                if within is not None and _outside(statistics, within):
                    continue
                yield file.read_row_group(number, columns=columns)


def _outside(statistics: Any, within: tuple[int, int]) -> bool:
    known = statistics is not None and statistics.has_min_max
    return known and (statistics.max < within[0] or statistics.min > within[1])


def file_of(listed: ManifestFile) -> StateFile:
    """Return a manifest's file as the file's reader expects it."""
    return StateFile(listed.path, listed.rows, listed.size, listed.sha256)


def part_of(rows: "pa.Table", part: int, parts: int) -> "pa.Table":
    """Return the rows with a key hash of `part` modulo `parts`."""
    import numpy as np

    if parts == 1:
        return rows
    hashes = key_hash(one_chunk(rows.column("key")))
    return rows.take(int64_array(np.flatnonzero(hashes % np.uint64(parts) == part)))


class Dump(Value):
    """A JSON-lines dump, all in memory. timestamps: every line has one."""

    rows: dict[tuple[str | None, int | None], "pa.Table"]
    timestamps: bool
    partitions: bool

    def of(self, topic_partition: TopicPartition) -> "pa.Table | None":
        """Return the rows of one partition; None if it has none."""
        return self.rows.get(topic_partition, self.rows.get((None, topic_partition[1])))


def read_dump(path: Path) -> Dump:
    """Return the dump in a file. Raises UsageError that names an invalid line."""
    grouped: dict[tuple[str | None, int | None], list[dict[str, Any]]] = {}
    timestamps = True
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                topic_partition, row = _dumped(line, f"{path}, line {number}")
                timestamps = timestamps and row["timestamp"] is not None
                grouped.setdefault(topic_partition, []).append(row)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot be read: {reason}", where=str(path)) from None
    partitions = {partition is not None for _, partition in grouped}
    if len(partitions) > 1:
        raise UsageError("some lines name a partition, some do not", where=str(path))
    if len({topic is not None for topic, _ in grouped}) > 1:
        raise UsageError("some lines name a topic, some do not", where=str(path))
    return Dump(
        {topic_partition: _table(rows) for topic_partition, rows in grouped.items()},
        timestamps,
        partitions != {False},
    )


def _dumped(line: str, where: str) -> tuple[tuple[str | None, int | None], dict[str, Any]]:
    try:
        fields = json.loads(line)
        key, value = fields["key"], fields.get("value")
        row = {
            "offset": 0,
            "timestamp": fields.get("timestamp"),
            "key": base64.b64decode(key, validate=True),
            "value": None if value is None else base64.b64decode(value, validate=True),
        }
        topic_partition = fields.get("topic"), fields.get("partition")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise UsageError(
            "not a line of a dump",
            where=where,
            remedy='write {"key": base64, "value": base64, "timestamp": ms, "partition": number}',
        ) from None
    time, (topic, partition) = row["timestamp"], topic_partition
    if not (
        (time is None or (type(time) is int and -(2**63) <= time < 2**63))
        and (topic is None or isinstance(topic, str))
        and (partition is None or type(partition) is int)
    ):
        raise UsageError("timestamp, topic or partition is not what it should be", where=where)
    return topic_partition, row


def _table(rows: list[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=rows_schema())
