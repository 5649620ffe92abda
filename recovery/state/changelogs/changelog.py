"""The meaning of a changelog's records: the base of all formats, itself the format `plain`.

A format says which records count, what identifies an entry, and what is live at the end. The
formats of Kafka Streams, Samza and others override what differs; so may a small class of one's own,
named as `module:Class`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recovery.errors import UsageError
from recovery.formats.arrays import null_mask

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Summary = Mapping[str, Any]
"""What a format remembers of all records of a partition (maxima, say); JSON can hold it."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A partition's log in numbers. Times in milliseconds, None where there is no bound.

    now_ms: when the log start was read the last time.
    """

    log_start_offset: int
    cleanup_policy: frozenset[str]
    retention_ms: int | None
    retention_bytes: int | None
    now_ms: int


class ChangelogFormat:
    """Last value per key, a null value deletes, a null key is in no state: `plain`.

    rows are always record batches or tables of `recovery.formats.columns.rows_schema`. options: a
    JSON-able mapping; {"retention_ms": int} where `needs_retention`.
    """

    name = "plain"
    in_ranges = True  # False: one task reads the whole partition, in the order of offsets
    ignores = False  # a replay ignores some valid records because of others before them
    retention_config = "retention.ms"  # the topic's setting that tells it, with a day added
    needs_retention = False  # of windows and sessions, from --retention or the topic's own

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @property
    def extra(self) -> "pa.Schema":
        """The columns that `finish` adds."""
        import pyarrow as pa

        return pa.schema([])

    def valid(self, rows: "pa.RecordBatch") -> "NDArray[np.bool_]":
        """bool[n]: records that may be in a state; the others are counted as `invalid`."""
        return ~null_mask(rows.column("key"))

    def keep(self, rows: "pa.RecordBatch", summary: Summary) -> "NDArray[np.bool_] | None":
        """bool[n]: valid records that a replay would not ignore; None: all.

        summary: of the records before them.
        """
        return None

    def keep_after(self, rows: "pa.Table", summary: Summary) -> "NDArray[np.bool_] | None":
        """bool[n]: of what `keep` took in a range of its own, in any order, what it had taken after
        the records before that range; None: all.

        summary: of the records before the range.
        """
        return None

    def observe(self, rows: "pa.RecordBatch", summary: Summary) -> Summary:
        """Return what to remember of these records, by rising offset, tombstones included."""
        return summary

    def merge(self, first: Summary, second: Summary) -> Summary:
        """Join what two ranges of a partition have seen."""
        return {**first, **second}

    def identity(self, rows: "pa.RecordBatch | pa.Table") -> "pa.LargeBinaryArray":
        """Return the columns of which the last offset wins."""
        return rows.column("key")

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        """The live rows among the last of each identity, with the `extra` columns.

        All identities of a key come together, in no order, tombstones included. summary: of the
        partition.
        """
        return rows.filter(rows.column("value").is_valid())

    def proves(self, log: LogFacts, summary: Summary) -> str | None:
        """Return why nothing that is live can be missing although the log's beginning was deleted.

        None where that can't be said.
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
    """The format of a name, or of `module:Class` of one's own. Raises UsageError."""
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
