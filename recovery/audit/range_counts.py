"""Count what becomes of each offset of a range, and keep each producer's last transaction.

The view is a read_committed reader's, as defined in `recovery.formats.counting`. With what follows
the range, the producers show which transactions the end of the range divides.
"""

from typing import TYPE_CHECKING, Any

from recovery.formats.batches import CONTROL, TRANSACTIONAL
from recovery.formats.columns import ABORTED, OPEN, OUTCOMES, Batches, ColumnBatch

if TYPE_CHECKING:
    import pyarrow as pa


class RangeCounts:
    """Counts of the range [start, end). Add every record once, in ascending order of offset."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._records = {"aborted": 0, "control": 0, "open": 0}
        self._data = self._tombstones = self._invalid = self._ignored = 0
        self._non_transactional = self._with_headers = 0
        self._producers: dict[str, dict[str, Any]] = {}

    def visible(self, records: ColumnBatch) -> ColumnBatch:
        """Count what a read_committed reader does not get, and return what it does get."""
        outcome, control = records.outcome, records.is_control
        aborted, undecided = outcome == ABORTED, outcome == OPEN
        self._records["control"] += int(control.sum())
        self._records["aborted"] += int(aborted.sum())
        self._records["open"] += int(undecided.sum())
        # a response continues after the range; what follows does not belong to the range
        last_transactions(records.batches.reaching(self._start, self._end), self._producers)
        hidden = control | aborted | undecided
        data = records.select(~hidden) if hidden.any() else records
        self._data += len(data)
        self._non_transactional += int((data.outcome == 0).sum())
        self._with_headers += int((data.headers.length > 1).sum())  # a single byte means no headers
        return data

    def add_rows(self, rows: "pa.RecordBatch", *, invalid: int) -> None:
        """Add `rows`, the visible records of a format, and the number of `invalid` ones."""
        self._tombstones += rows.column("value").null_count
        self._invalid += invalid

    def add_ignored(self, records: int) -> None:
        """Count visible records that the format does not accept."""
        self._ignored += records

    def counts(self) -> dict[str, int | None]:
        """Return counts with data + aborted + control + open + missing = end - start.

        tombstones, invalid (no key, or not in the format) and ignored (too late when replayed) are
        part of data. non_transactional: data records outside transactions. with_headers: data
        records with headers, which no state store keeps.
        """
        missing = self._end - self._start - self._data - sum(self._records.values())
        return {
            "data": self._data,
            **self._records,
            "missing": missing,
            "tombstones": self._tombstones,
            "invalid": self._invalid,
            "ignored": self._ignored,
            "non_transactional": self._non_transactional,
            "with_headers": self._with_headers,
        }

    def producers(self) -> dict[str, dict[str, Any]]:
        """Return what `last_transactions` collected."""
        return self._producers


def last_transactions(batches: Batches, known: dict[str, dict[str, Any]]) -> None:
    """Update, by producer id, the epoch, last_offset and outcome of the last transactional batch,
    and the offset and epoch of the last marker (None if none was seen)."""
    import numpy as np

    scan = batches.scan
    control, transactional = scan.has(CONTROL), scan.has(TRANSACTIONAL)
    producer, epoch = scan.column("producer_id"), scan.column("producer_epoch")
    last = scan.last_offset
    for marker, rows_of_kind in (
        (False, transactional & ~control),
        (True, control & transactional),
    ):
        rows = np.flatnonzero(rows_of_kind)[::-1]
        _, first = np.unique(producer[rows], return_index=True)
        for row in rows[first].tolist():
            entry = known.setdefault(
                str(producer[row]),
                dict.fromkeys(("epoch", "last_offset", "outcome", "marker", "marker_epoch")),
            )
            if marker:
                entry |= {"marker": int(last[row]), "marker_epoch": int(epoch[row])}
            else:
                entry |= {
                    "epoch": int(epoch[row]),
                    "last_offset": int(last[row]),
                    "outcome": OUTCOMES[int(batches.outcome[row])],
                }


def merged(
    first: dict[str, dict[str, Any]], second: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the last transactions of two ranges; the second follows the first."""
    union = {key: dict(value) for key, value in first.items()}
    for key, later in second.items():
        known = {k: v for k, v in later.items() if v is not None}
        union[key] = {**union.get(key, later), **known}
    return union
