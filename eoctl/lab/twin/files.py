"""Write a partition's folder as a broker that ended cleanly leaves it, so that it loads at once.

Without the index files the broker would rebuild them, and with them the producer state, from the
log alone. Source: Kafka's classes LogSegment, ProducerStateManager, TransactionIndex,
LeaderEpochCheckpointFile, PartitionMetadataFile and CleanShutdownFileHandler.
"""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import crc32c

from eoctl.lab.twin.encoding import NewBatch, RawBatch
from recovery.facts import ProducerFacts, TopicPartition
from recovery.values import Value

SPAN = 2**31 - 1
"""Offsets of one segment: its indexes and batches count from its first offset in 32 bits."""
_PRODUCER = struct.Struct(">qhiqiqiq")
_ABORTED = struct.Struct(">hqqqq")


Batch = NewBatch | RawBatch


class Aborted(Value):
    """An aborted transaction, for readers of committed records. last_offset: its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class NewLog(Value):
    """One partition as it is written. batches: in order, each within SPAN of the one before.

    end: the log end offset. producers: as its leader described them. left_out: how many commits of
    groups had no room.
    """

    topic_partition: TopicPartition
    topic_id: str
    log_start_offset: int
    end: int
    batches: Sequence[Batch]
    producers: Sequence[ProducerFacts] = ()
    aborted: Sequence[Aborted] = ()
    left_out: int = 0


def write_log(data: Path, log: NewLog) -> None:
    """Write a partition below a broker's data folder."""
    topic, partition = log.topic_partition
    folder = data / f"{topic}-{partition}"
    folder.mkdir()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {log.topic_id}")
    for first, batches in _segments(log):
        _write_segment(folder, first, batches, log.aborted)
    _write_checkpoint(folder / "leader-epoch-checkpoint", _epochs(log.batches))
    (folder / f"{log.end:020}.snapshot").write_bytes(_snapshot(log))


def _segments(log: NewLog) -> list[tuple[int, list[Batch]]]:
    """Return the batches of each segment, by its first offset.

    A log starts where its first segment does, at the latest, also if a hole comes first, and may
    start within its first batch.
    """
    begin = min([log.log_start_offset, *(b.base_offset for b in log.batches[:1])])
    segments: list[tuple[int, list[Batch]]] = [(begin, [])]
    for b in log.batches:
        if b.last_offset - segments[-1][0] > SPAN:
            segments.append((b.base_offset, []))
        segments[-1][1].append(b)
    if log.end - segments[-1][0] > SPAN:
        segments.append((log.end, []))
    return segments


def _write_segment(
    folder: Path, first: int, batches: Sequence[Batch], aborted: Iterable[Aborted]
) -> None:
    name = folder / f"{first:020}"
    with name.with_suffix(".log").open("wb") as file:
        for b in batches:
            file.write(b.encode())
    name.with_suffix(".index").touch()
    filled = [b for b in batches if not isinstance(b, NewBatch) or b.records]
    newest = max(filled, key=lambda b: b.timestamp, default=None)
    with name.with_suffix(".timeindex").open("wb") as file:
        if newest is not None:
            file.write(struct.pack(">qi", newest.timestamp, newest.last_offset - first))
    last = batches[-1].last_offset if batches else first
    with name.with_suffix(".txnindex").open("wb") as file:
        for a in aborted:
            if first <= a.last_offset <= last:
                row = (0, a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset)
                file.write(_ABORTED.pack(*row))


def _epochs(batches: Iterable[Batch]) -> list[str]:
    """Return each leader epoch with the first offset written in it."""
    rows: list[str] = []
    newest = -1
    for b in batches:
        if b.leader_epoch > newest:
            newest = b.leader_epoch
            rows.append(f"{newest} {b.base_offset}")
    return rows


def _snapshot(log: NewLog) -> bytes:
    """Return the producer state at the log's end (ProducerStateManager, version 1)."""
    rows = b"".join(_PRODUCER.pack(*_state(p, log.end)) for p in log.producers)
    content = struct.pack(">i", len(log.producers)) + rows
    return struct.pack(">hI", 1, crc32c.crc32c(content)) + content


def _state(p: ProducerFacts, end: int) -> tuple[int, ...]:
    """Return a producer's entry. Its last offset is not in any answer: the log's last will do."""
    last_offset = -1 if p.last_sequence is None else max(0, end - 1)
    return (
        p.producer_id,
        p.producer_epoch,
        -1 if p.last_sequence is None else p.last_sequence,
        last_offset,
        0,
        -1 if p.last_timestamp is None else p.last_timestamp,
        -1 if p.coordinator_epoch is None else p.coordinator_epoch,
        -1 if p.current_txn_start_offset is None else p.current_txn_start_offset,
    )


def write_clean_end(data: Path, logs: Iterable[NewLog]) -> None:
    """Write what a broker leaves in its data folder when it ends cleanly."""
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    kept = list(logs)
    for name, offsets in (
        ("log-start-offset-checkpoint", [log.log_start_offset for log in kept]),
        ("recovery-point-offset-checkpoint", [log.end for log in kept]),
        ("replication-offset-checkpoint", [log.end for log in kept]),
    ):
        rows = [
            f"{log.topic_partition.topic} {log.topic_partition.partition} {offset}"
            for log, offset in zip(kept, offsets, strict=True)
        ]
        _write_checkpoint(data / name, rows)


def _write_checkpoint(path: Path, rows: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in ("0", str(len(rows)), *rows)))
