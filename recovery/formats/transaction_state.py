"""`__transaction_state`, the coordinators' memory: what one record says of a transactional id.

Key: the transactional id. Value: its producer id, epoch, state and partitions at that moment;
null (a tombstone) once the coordinator forgot the id.
Source: Kafka's TransactionLogKey.json, TransactionLogValue.json (versions 0 and 1), classes
TransactionLog and TransactionState; KIP-890 for the tagged fields.
"""

import struct
from enum import StrEnum
from typing import NamedTuple

from recovery.facts import TopicPartition
from recovery.formats.reader import Reader, UnknownVersion


class TransactionState(StrEnum):
    """A transactional id's state, with the names that Kafka's own tools print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"  # a state of a newer Kafka


MAX_EPOCH = 32_767
"""The last epoch of a producer id: then its transactional id gets another one."""
_HEAD = struct.Struct(">qhib")  # producer id and epoch, timeout, state
_TIMES = struct.Struct(">qq")  # last update, start
_I64 = struct.Struct(">q")
_I16 = struct.Struct(">h")
STATE_IDS = tuple(TransactionState)[:8]
"""By Kafka's number of a state, in the order of which they are declared."""


class TransactionValue(NamedTuple):
    """One state of a transactional id. Times in milliseconds since 1970 by the coordinator's clock.

    partitions: those in the transaction, in the order written; empty in Empty and Complete*.
    start_ms, previous_producer_id, next_producer_id: -1 = none. next_producer_epoch: -1 = none
    (since Kafka 4.3). client_transaction_version: 0 = the client does not use transactions version
    2. last_update_ms: when this state was prepared.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    client_transaction_version: int = 0


def decode_key(key: bytes) -> str | UnknownVersion:
    """Decode the transactional id. Raises CorruptError if the key is cut."""
    reader = Reader(key, "key of a __transaction_state record")
    version = reader.int16()
    return reader.string() if version == 0 else UnknownVersion(version)


def decode_value(value: bytes | None) -> TransactionValue | UnknownVersion | None:
    """Decode the state; None for a tombstone. Raises CorruptError if the value is cut."""
    if value is None:
        return None
    reader = Reader(value, "value of a __transaction_state record")
    version = reader.int16()
    if version not in (0, 1):
        return UnknownVersion(version)
    flexible = version == 1

    def topic() -> list[TopicPartition]:
        name = reader.string(compact=flexible)
        partitions = reader.int32s(compact=flexible)
        if flexible:
            reader.tags()
        return [TopicPartition(name, partition) for partition in partitions]

    producer_id, producer_epoch, timeout_ms, state_id = reader.unpack(_HEAD)
    topics = reader.array(topic, compact=flexible) or []
    last_update_ms, start_ms = reader.unpack(_TIMES)
    tags = reader.tags() if flexible else {}

    def tag(number: int, form: struct.Struct, default: int) -> int:
        if number not in tags:
            return default
        return Reader(tags[number], f"tagged field {number}").unpack(form)[0]

    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=STATE_IDS[state_id] if 0 <= state_id < len(STATE_IDS) else TransactionState.UNKNOWN,
        partitions=tuple(pair for pairs in topics for pair in pairs),
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=tag(0, _I64, -1),
        next_producer_id=tag(1, _I64, -1),
        client_transaction_version=tag(2, _I16, 0),
        next_producer_epoch=tag(3, _I16, -1),
    )
