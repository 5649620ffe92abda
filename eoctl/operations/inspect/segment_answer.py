"""`producers --segment`: show a partition's producers from its broker's files. Reads only.

Reads what the broker reads at its start: the newest complete producer snapshot, then the log after
it. What a crash can leave (a cut last batch, preallocated zeros, a snapshot beyond the end) is
skipped with a note; a wrong CRC ends the reading, and the answer is incomplete.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.stores.segment_files import (
    checkpoint,
    contents,
    mapped,
    partition_of,
    property_in,
    segments_in,
)
from recovery.answers import Answer, error_rows
from recovery.errors import EoctlError, UsageError
from recovery.facts import Facts, Missing, ProducerFacts, TopicPartition
from recovery.formats.batches import batch_headers, crc_matches
from recovery.formats.broker_files import read_snapshot, read_transaction_index
from recovery.formats.reader import CorruptError
from recovery.inspect.cluster_rows import SegmentRow
from recovery.inspect.inspection import producer_rows
from recovery.inspect.producer_state import ProducerTable
from recovery.plurals import counted


@dataclass(slots=True)
class Findings:
    """The parts that were skipped, and those that make the answer incomplete."""

    topic: str
    partition: int
    notes: list[str] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def broken(self, file: Path, error: EoctlError) -> None:
        detail = f"{file.name}: {error.sentence}; nothing after it was read"
        self.missing.append(
            Missing("partition", "CORRUPT_MESSAGE", detail, None, self.topic, self.partition)
        )


def producers(folders: Sequence[Path], producer_ids: Sequence[int]) -> Answer:
    """Return the producers of partition folders, with rows as in the live `producers`.

    Raises UsageError for a folder that is not a partition's, IncompleteError if files disappear.
    """
    states: dict[TopicPartition, tuple[ProducerFacts, ...]] = {}
    segments: list[SegmentRow] = []
    missing: list[Missing] = []
    cluster_id: str | None = None
    for folder in folders:
        row, rows, more = _read_partition(folder)
        if row.topic_partition in states:
            raise UsageError("the same partition twice", where=str(folder))
        segments.append(row)
        missing += more
        states[row.topic_partition] = tuple(
            r for r in rows if not producer_ids or r.producer_id in producer_ids
        )
        cluster_id = cluster_id or property_in(folder.parent / "meta.properties", "cluster.id")
    facts = Facts(
        cluster_id,
        now_ms(),
        scanned=len(folders),
        producers=states,
        missing=tuple(missing),
    )
    return Answer(
        schema="producers",
        cluster_id=cluster_id,
        collected_at=facts.collected_at,
        rows=producer_rows(facts, resolve=False),
        errors=error_rows(missing),
        extra={
            "scanned": facts.scanned,
            "segments": [row.json_values() for row in segments],
        },
    )


def _read_partition(
    folder: Path,
) -> tuple[SegmentRow, tuple[ProducerFacts, ...], list[Missing]]:
    topic, partition = partition_of(folder)
    logs = segments_in(folder)
    findings = Findings(topic, partition)
    table, snapshot = _snapshot(folder, _end(logs[-1]), findings)
    # records between a snapshot and the first segment were deleted: the broker knows no more
    table.end = max(table.end, int(logs[0].stem))
    _replay(logs, table, findings)
    start = checkpoint(folder.parent / "log-start-offset-checkpoint", topic, partition)
    open_from = table.first_open
    row = SegmentRow(
        folder=str(folder),
        topic=topic,
        topic_id=property_in(folder / "partition.metadata", "topic_id", separator=":"),
        partition=partition,
        segments=len(logs),
        snapshot_offset=snapshot,
        log_start_offset=max(int(logs[0].stem), start or 0),
        log_end_offset=table.end,
        last_stable_offset=table.end if open_from is None else open_from,
        high_watermark=checkpoint(
            folder.parent / "replication-offset-checkpoint", topic, partition
        ),
        aborted_transactions=_aborted(folder, findings),
        clean_shutdown=(folder.parent / ".kafka_cleanshutdown").exists(),
        notes=findings.notes,
    )
    return row, table.facts(topic, partition), findings.missing


def _snapshot(folder: Path, end: int, findings: Findings) -> tuple[ProducerTable, int | None]:
    """Return the newest complete producer snapshot that is not beyond the log's end."""
    for path in sorted(folder.glob("[0-9]*.snapshot"), reverse=True):
        if not path.stem.isdigit():
            continue
        offset = int(path.stem)
        if offset > end:
            findings.notes.append(f"{path.name} is beyond the log's end {end}: skipped")
            continue
        try:
            return ProducerTable.from_snapshot(offset, read_snapshot(contents(path))), offset
        except CorruptError as error:
            findings.notes.append(f"{path.name}: {error.sentence}: skipped")
    return ProducerTable(), None


def _end(log: Path) -> int:
    """Return the offset after a segment's last complete batch; `_replay` reports damage."""
    end = int(log.stem)
    with suppress(CorruptError):
        for header in batch_headers(mapped(log)):
            end = header.last_offset + 1
    return end


def _replay(logs: Sequence[Path], table: ProducerTable, findings: Findings) -> None:
    """Apply every batch from the table's end on; stops at the first that is broken."""
    later = [i for i, log in enumerate(logs) if int(log.stem) <= table.end]
    for log in logs[max(later, default=0) :]:
        data = mapped(log)
        whole = 0
        try:
            for header in batch_headers(data):
                whole = header.position + header.size
                if header.last_offset < table.end:
                    continue
                if not crc_matches(data, header):
                    raise CorruptError("the CRC is wrong", where=f"offset {header.base_offset}")
                table.apply(data, header)
        except CorruptError as error:
            findings.broken(log, error)
            return
        if whole == len(data):
            continue
        octets = counted(len(data) - whole, "byte")
        cut = f"no complete batch in the {octets} after offset {table.end - 1}"
        if log is not logs[-1]:
            findings.broken(log, CorruptError(cut))
            return
        findings.notes.append(
            f"{log.name}: {cut}: a broker cuts the log there when it starts after a crash"
        )


def _aborted(folder: Path, findings: Findings) -> int:
    count = 0
    for path in sorted(folder.glob("[0-9]*.txnindex")):
        try:
            count += len(read_transaction_index(contents(path)))
        except CorruptError as error:
            findings.notes.append(f"{path.name}: {error.sentence}: skipped")
    return count
