"""Decide which records of a topic go to its clean copy, and which repeat an earlier record.

One input partition is judged in offset order. The memory holds one number per source if records
name their source record, else ids within a horizon. A range always gives the same answer, however
it is divided into batches, so a run that was killed resumes at its position.
"""

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from recovery.dedup.seen_ids import SeenIds
from recovery.errors import RefusedError
from recovery.formats.columns import ABORTED, OPEN, ColumnBatch
from recovery.formats.records import is_utf8
from recovery.shared.record_ids import RecordId, digests, source_numbers, value_digests
from recovery.shared.source_numbers import Scattered, SourceNumbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Tally:
    """Counts of what became of the records of a range.

    records = copied + duplicates. without_id: copied, since they cannot be duplicates. differs:
    copied although their source number was seen, since their content differs. unchecked: duplicates
    by their number alone, since they are too old for a comparison of content.
    """

    records: int = 0
    copied: int = 0
    duplicates: int = 0
    without_id: int = 0
    differs: int = 0
    unchecked: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return self._each(other, 1)

    def since(self, before: "Tally") -> "Tally":
        """Return the counts added after `before`."""
        return self._each(before, -1)

    def _each(self, other: "Tally", sign: int) -> "Tally":
        both = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Tally(*(a + sign * b for a, b in both))


class Deduplicator:
    """The memory of one input partition. `judge` its visible records batch by batch, in order."""

    def __init__(
        self,
        topic: str,
        partition: int,
        record_id: RecordId,
        horizon_ms: int | None = None,
        horizon_offsets: int | None = None,
    ) -> None:
        self._where = f"{topic}:{partition}"
        self._partition, self._wanted = partition, record_id
        self._numbers = SourceNumbers()
        self._ids = SeenIds(horizon_ms, horizon_offsets)
        self._scattered: Scattered | None = None
        self.tally = Tally()

    def share(self, scattered: Scattered | None) -> None:
        """From now on, record in `scattered` the source records with outputs in this partition."""
        self._scattered = scattered

    @property
    def forgotten(self) -> int:
        """Return how many ids are beyond the horizon: their repeats are copied."""
        return self._ids.forgotten

    def judge(self, records: ColumnBatch) -> "NDArray[np.bool_]":
        """Return bool[n], the records to copy. Raises RefusedError if the rule does not hold."""
        by_number = self._wanted.kind == "source"
        copied = self._by_number(records) if by_number else self._by_id(records)
        count = int(copied.sum())
        self.tally.records += len(records)
        self.tally.copied += count
        self.tally.duplicates += len(records) - count
        return copied

    def _by_id(self, records: ColumnBatch) -> "NDArray[np.bool_]":
        import numpy as np

        ids, has = digests(self._wanted, records)
        copied = np.ones(len(records), np.bool_)
        first_offsets = self._ids.first_seen(ids[has], records.offset[has], records.timestamp[has])
        copied[np.flatnonzero(has)[first_offsets >= 0]] = False
        self.tally.without_id += int((~has).sum())
        return copied

    def _by_number(self, records: ColumnBatch) -> "NDArray[np.bool_]":
        import numpy as np

        copied = np.ones(len(records), np.bool_)
        content = value_digests(records).tolist()
        before = self._numbers.unchecked
        for i, number in enumerate(source_numbers(self._wanted.source, records)):
            if number is None:
                self.tally.without_id += 1
                continue
            where = f"{self._where} offset {int(records.offset[i])}"
            judged = self._numbers.judge(number, content[i], where)
            copied[i] = judged != "repeated"
            self.tally.differs += judged == "differs"
            if self._scattered is not None:
                self._scattered.add(number, self._partition)
        self.tally.unchecked += self._numbers.unchecked - before
        return copied

    def dump(self) -> dict[str, Any]:
        """Return the memory as JSON values."""
        return {
            "numbers": self._numbers.dump(),
            "ids": self._ids.dump(),
            "tally": asdict(self.tally),
        }

    def load(self, content: dict[str, Any]) -> None:
        """Restore the memory. Raises ValueError, TypeError or KeyError unless `dump` wrote it."""
        self._numbers = SourceNumbers.load(content["numbers"])
        self._ids.load(content["ids"])
        self.tally = Tally(**{f.name: int(content["tally"][f.name]) for f in fields(Tally)})


def visible(records: ColumnBatch) -> ColumnBatch:
    """Return what a read_committed reader sees, if every record can be written unchanged.

    Raises RefusedError for a record of an open transaction, and for one that a copy would change.
    """
    outcome = records.outcome
    if (outcome == OPEN).any():
        offset = int(records.offset[outcome == OPEN][0])
        raise RefusedError(
            "its transaction is open: what becomes of it is not known", where=f"offset {offset}"
        )
    is_visible = (outcome != ABORTED) & ~records.is_control
    data = records if is_visible.all() else records.select(is_visible)
    _refuse_changed(data)
    return data


def _refuse_changed(records: ColumnBatch) -> None:
    import numpy as np

    for i in np.flatnonzero(records.timestamp == 0).tolist():
        raise RefusedError(
            "its timestamp is 1970-01-01T00:00:00Z, which librdkafka takes for none: the copy "
            "would have the present time",
            where=f"offset {int(records.offset[i])}",
        )
    for i in np.flatnonzero(records.headers.length > 1).tolist():
        if not all(is_utf8(name) for name, _ in records.header_list(i)):
            raise RefusedError(
                "the name of one of its headers is not UTF-8: the copy's would differ",
                where=f"offset {int(records.offset[i])}",
            )
