"""Show the log around the LSO, batch by batch, from the headers alone. Pure.

Below the LSO, the aborted list of a read_committed fetch decides (see AbortedTransactions); above
it no such list exists, so the marker that follows a transaction decides, if one was read.
Source: KIP-98, Kafka's class CompletedFetch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recovery.facts import TopicPartition
from recovery.formats.batches import NO_PRODUCER_ID, BatchHeader, batch_headers
from recovery.formats.counting import Aborted, AbortedTransactions
from recovery.formats.records import ControlType, marker
from recovery.inspect.cluster_rows import StripKind, StripRow
from recovery.inspect.history import Marker
from recovery.values import replace

Response = tuple[bytes, Sequence[Aborted]]
"""The batches of one Fetch response and its aborted transactions (none above the LSO)."""

_WORDS: dict[ControlType, Literal["commit", "abort"]] = {
    ControlType.COMMIT: "commit",
    ControlType.ABORT: "abort",
}


@dataclass(slots=True)
class _Stretch:
    """[first, end) of one kind and producer; a marker is alone in its stretch."""

    first: int
    end: int
    kind: StripKind
    outcome: ControlType | None = None
    producer_id: int | None = None
    batches: int = 1
    records: int = 0
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None
    timestamp: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None

    def joins(self, other: "_Stretch") -> bool:
        if self.end != other.first or self.kind != other.kind or self.kind == "control":
            return False
        return (self.producer_id, self.producer_epoch) == (other.producer_id, other.producer_epoch)

    def join(self, other: "_Stretch") -> None:
        """Add a stretch that joins."""
        self.end = other.end
        self.batches += 1
        self.records += other.records
        self.first_timestamp = self.first_timestamp or other.first_timestamp
        self.last_timestamp = max(self.last_timestamp or 0, other.last_timestamp or 0) or None


def strip_rows(
    topic_partition: TopicPartition,
    window: tuple[int, int],
    below: Iterable[Response],
    above: Iterable[Response],
    *,
    lso: int,
    read_to: tuple[int, int],
    high_watermark: int,
) -> list[StripRow]:
    """Return the stretches of [window), by offset, without overlap or gap.

    below: read_committed responses that end at the LSO; above: read_uncommitted ones from the LSO
    on. read_to: the offset up to which each of the two was read. Raises CorruptError for an
    unreadable marker.
    """
    stretches = [s for data, aborted in below for s in _decided(data, aborted) if s.first < lso]
    if read_to[0] < lso:
        stretches.append(_Stretch(read_to[0], lso, "unread", batches=0))
    stretches += _waiting(above, lso, read_to[1] >= high_watermark)
    if read_to[1] < window[1]:
        stretches.append(_Stretch(read_to[1], window[1], "unread", batches=0))
    return [
        StripRow.of(
            s,
            topic=topic_partition[0],
            partition=topic_partition[1],
            first_offset=s.first,
            end_offset=s.end,
            outcome=None if s.outcome is None else _WORDS.get(s.outcome),
            origin=None,
        )
        for s in _merged(stretches, *window)
    ]


def markers_of(rows: Iterable[StripRow]) -> dict[int, list[Marker]]:
    """Return the markers in a strip by producer id, in the order of offsets."""
    markers: dict[int, list[Marker]] = {}
    wrote: dict[int, int | None] = {}  # the epoch of each id's data since its marker
    for r in rows:
        if r.kind in ("missing", "unread"):
            wrote.clear()
        elif r.producer_id is None:
            continue
        elif r.kind != "control":
            wrote[r.producer_id] = r.producer_epoch
        elif r.outcome and r.producer_epoch is not None and r.coordinator_epoch is not None:
            markers.setdefault(r.producer_id, []).append(
                Marker(
                    offset=r.first_offset,
                    outcome=r.outcome,
                    producer_epoch=r.producer_epoch,
                    coordinator_epoch=r.coordinator_epoch,
                    timestamp=r.timestamp or 0,
                    data=True if r.producer_id in wrote else None,
                    data_epoch=wrote.pop(r.producer_id, None),
                )
            )
    return markers


def told(rows: Iterable[StripRow], markers: Mapping[int, Iterable[Marker]]) -> list[StripRow]:
    """Return the rows of a strip with the origins of its markers. markers: by producer id."""
    origins = {m.offset: m.origin for of_producer in markers.values() for m in of_producer}
    return [
        replace(r, origin=origins[r.first_offset])
        if r.kind == "control" and r.first_offset in origins
        else r
        for r in rows
    ]


def _decided(data: bytes, aborted: Sequence[Aborted]) -> Iterable[_Stretch]:
    tracker = AbortedTransactions(aborted)
    for header in batch_headers(data):
        skipped = tracker.is_aborted(data, header)
        kind: StripKind = "aborted" if skipped else "committed"
        yield _stretch(data, header, kind if header.is_transactional else "plain")


def _waiting(above: Iterable[Response], lso: int, whole: bool) -> list[_Stretch]:
    stretches = [
        _stretch(data, header, "open" if header.is_transactional else "plain")
        for data, _ in above
        for header in batch_headers(data)
        if header.base_offset >= lso
    ]
    decided: dict[int | None, ControlType] = {}
    for s in reversed(stretches):
        if s.outcome is not None:
            decided[s.producer_id] = s.outcome
        elif s.kind == "open":
            outcome = decided.get(s.producer_id)
            if outcome is not None:
                s.kind = "committed" if outcome is ControlType.COMMIT else "aborted"
            elif not whole:
                s.kind = "undecided"
    return stretches


def _stretch(data: bytes, header: BatchHeader, kind: StripKind) -> _Stretch:
    known = header.producer_id != NO_PRODUCER_ID
    stretch = _Stretch(
        header.base_offset,
        header.last_offset + 1,
        kind,
        producer_id=header.producer_id if known else None,
        records=header.records_count,
        producer_epoch=header.producer_epoch if known else None,
    )
    if header.is_control:
        end_marker = marker(data, header)
        stretch.kind, stretch.timestamp = "control", header.max_timestamp
        if end_marker is not None:
            stretch.outcome = end_marker.type
            stretch.coordinator_epoch = end_marker.coordinator_epoch
    elif header.max_timestamp > 0 and not header.has_delete_horizon:
        stretch.first_timestamp = min(header.base_timestamp, header.max_timestamp)
        stretch.last_timestamp = header.max_timestamp
    return stretch


def _merged(stretches: Sequence[_Stretch], start: int, end: int) -> Iterable[_Stretch]:
    """Cut stretches to the window, name the holes and join neighbours of one kind."""
    merged: list[_Stretch] = []
    at = start
    for s in stretches:
        first, last = max(s.first, at), min(s.end, end)
        if first >= last:
            continue
        if first > at:
            merged.append(_Stretch(at, first, "missing", batches=0))
        s = replace(s, first=first, end=last)
        if merged and merged[-1].joins(s):
            merged[-1].join(s)
        else:
            merged.append(s)
        at = last
    if at < end:
        merged.append(_Stretch(at, end, "missing", batches=0))
    return merged
