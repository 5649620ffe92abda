"""Decode Fetch answers of versions 4 to 11 without copies: envelope and records in the frame.

kafka-python's decoder copies every answer twice, which costs as much as reading it. Its schema
still encodes the request: `messages.RawFetchRequest` is a FetchRequest answered by this class.
Source: Kafka's FetchResponse.json; KIP-98, KIP-227, KIP-392.
"""

import struct

from recovery.facts import HasPartition
from recovery.plurals import counted
from recovery.values import Value

_PARTITION = struct.Struct(">ihqq")  # partition, error, high watermark, LSO
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

LEAST, MOST = 4, 11  # LSO and aborted transactions; names instead of topic ids, not flexible


class PartitionData(HasPartition, Value):
    """One partition's part of an answer. log_start_offset: -1 below version 5.

    aborted: (producer id, first offset); empty at read_uncommitted. records: a view of the frame,
    which it keeps alive. preferred_replica: the broker that the leader prefers us to read from
    (KIP-392, version 11), -1: none.
    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview
    preferred_replica: int = -1


class FetchAnswer(Value):
    """error_code: of the complete answer (version 7 and above)."""

    error_code: int
    partitions: tuple[PartitionData, ...]


class RawFetchResponse:
    """Decodes one version, as kafka-python's classes do: `RawFetchResponse[11].decode(frame)`."""

    def __init__(self, version: int) -> None:
        self._version = version

    def __class_getitem__(cls, version: int) -> "RawFetchResponse":
        return cls(version)

    def decode(self, frame: memoryview, *, header: bool = True) -> FetchAnswer:
        """Return a frame's answer. Raises struct.error or ValueError if the bytes end early."""
        at = (4 if header else 0) + 4  # correlation id; throttle time
        error = 0
        if self._version >= 7:
            (error,) = _I16.unpack_from(frame, at)
            at += 6  # and the session id
        contents: list[PartitionData] = []
        (topics,) = _I32.unpack_from(frame, at)
        at += 4
        for _ in range(topics):
            (length,) = _I16.unpack_from(frame, at)
            topic = str(frame[at + 2 : at + 2 + length], "utf-8")
            at += 2 + length
            (partitions,) = _I32.unpack_from(frame, at)
            at += 4
            for _ in range(partitions):
                data, at = self._partition(frame, at, topic)
                contents.append(data)
        return FetchAnswer(error, tuple(contents))

    def _partition(self, frame: memoryview, at: int, topic: str) -> tuple[PartitionData, int]:
        partition, error, high_watermark, stable = _PARTITION.unpack_from(frame, at)
        at += _PARTITION.size
        log_start = -1
        if self._version >= 5:
            (log_start,) = _I64.unpack_from(frame, at)
            at += 8
        (count,) = _I32.unpack_from(frame, at)
        at += 4
        behind = at + max(count, 0) * _ABORTED.size
        aborted = tuple(_ABORTED.iter_unpack(frame[at:behind]))
        at = behind
        preferred = -1
        if self._version >= 11:
            (preferred,) = _I32.unpack_from(frame, at)
            at += 4
        (length,) = _I32.unpack_from(frame, at)
        at += 4
        records = frame[at : at + max(length, 0)]
        if len(records) < length:
            raise ValueError(
                f"{counted(length, 'byte')} of records expected, {len(records):,} came"
            )
        return (
            PartitionData(
                topic,
                partition,
                error,
                high_watermark,
                stable,
                log_start,
                aborted,
                records,
                preferred,
            ),
            at + len(records),
        )
