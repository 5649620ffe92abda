"""The meaning of a changelog's records: the base of all formats, and itself the format `plain`.

A format says which records count, what identifies an entry, and what is live at the end. The
formats of Kafka Streams, Samza and others override what differs; so can a small class of your own,
named as `module:Class`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recovery.errors import UsageError
from recovery.formats.arrays import null_mask
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Summary = Mapping[str, Any]
"""What a format remembers of all records of a partition (maxima, say); JSON can hold it."""


class LogFacts(Value):
    """A partition's log in numbers. Times in milliseconds, None = no bound.

    now_ms: when the log start was last read.
    """

    log_start_offset: int
    cleanup_policy: frozenset[str]
    retention_ms: int | None
    retention_bytes: int | None
    now_ms: int


class ChangelogFormat:
    """The format `plain`: last value per key; a null value deletes, a null key is in no state.

    rows are always record batches or tables of `recovery.formats.columns.rows_schema`. options: a
    mapping that JSON can hold; {"retention_ms": int} if `needs_retention`.
    """

    name = "plain"
    in_ranges = True  # False: one task reads the complete partition, in offset order
    ignores = False  # whether a replay ignores some valid records because of earlier ones
    retention_config = "retention.ms"  # the topic's setting with the retention plus a day
    needs_retention = False  # of windows and sessions, from --retention or the topic's own

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @property
    def extra(self) -> "pa.Schema":
        """Return the columns that `finish` adds."""
        import pyarrow as pa

        return pa.schema([])

    def valid(self, rows: "pa.RecordBatch") -> "NDArray[np.bool_]":
        """Return as bool[n] which records may be in a state; others are counted as `invalid`."""
        return ~null_mask(rows.column("key"))

    def keep(self, rows: "pa.RecordBatch", summary: Summary) -> "NDArray[np.bool_] | None":
        """Return as bool[n] which valid records a replay would not ignore; None: all.

        summary: of the records before them.
        """
        return None

    def keep_after(self, rows: "pa.Table", summary: Summary) -> "NDArray[np.bool_] | None":
        """Return as bool[n] which rows `keep` would take after earlier records too; None: all.

        rows: those that `keep` took from a range without knowing earlier records, in any order.
        summary: of the records before the range.
        """
        return None

    def observe(self, rows: "pa.RecordBatch", summary: Summary) -> Summary:
        """Return what to remember of these records, by rising offset, tombstones included."""
        return summary

    def merge(self, first: Summary, second: Summary) -> Summary:
        """Join what was remembered of two ranges of a partition."""
        return {**first, **second}

    def identity(self, rows: "pa.RecordBatch | pa.Table") -> "pa.LargeBinaryArray":
        """Return the identity of each row; of equal ones the last offset wins."""
        return rows.column("key")

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        """Return the live rows among the last of each identity, with the `extra` columns.

        All identities of a key come together, in no order, tombstones included. summary: of the
        partition.
        """
        return rows.filter(rows.column("value").is_valid())

    def proves(self, log: LogFacts, summary: Summary) -> str | None:
        """Return why nothing live can be missing although the log's beginning was deleted.

        None: that is not certain.
        """
        return None


FORMATS: dict[str, str] = {
    "plain": "recovery.state.changelogs.changelog:ChangelogFormat",
    "streams-kv": "recovery.state.changelogs.streams:StreamsKv",
    "streams-window": "recovery.state.changelogs.streams:StreamsWindow",
    "streams-session": "recovery.state.changelogs.streams:StreamsSession",
    "streams-versioned": "recovery.state.changelogs.streams:StreamsVersioned",
    "samza": "recovery.state.changelogs.samza:Samza",
    "coast": "recovery.state.changelogs.coast:Coast",
    "debezium": "recovery.state.changelogs.debezium:Debezium",
    "connect-offsets": "recovery.state.changelogs.connect_offsets:ConnectOffsets",
}
"""Name to `module:Class`."""


def changelog_format(name: str, options: Mapping[str, Any]) -> ChangelogFormat:
    """Return the format with a name, or your own as `module:Class`. Raises UsageError."""
    target = name if ":" in name else FORMATS.get(name)
    if target is None:
        known = ", ".join(FORMATS)
        raise UsageError(
            f"no format {name!r}", where="--format", remedy=f"one of {known}, or module:Class"
        )
    module, _, class_name = target.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), class_name]):
        raise UsageError(
            f"{target!r} names no class", where="--format", remedy="write module:Class, no path"
        )
    try:
        made = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{target} cannot be loaded: {error}",
            where="--format",
            remedy="its module must be on PYTHONPATH",
        ) from None
    if not (isinstance(made, type) and issubclass(made, ChangelogFormat)):
        raise UsageError(f"{target} is not a ChangelogFormat", where="--format")
    return made(options)
