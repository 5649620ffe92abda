"""Apache Samza: changelogs, and the checkpoints that say how far a restore reads them.

A changelog holds keys and values as the store has them; a null value deletes. Under transactional
state what lies above the checkpoint's marker is trimmed at a restore, so a rebuild that is to equal
it ends there.
Source: Samza's classes KafkaCheckpointLogKeySerde, CheckpointV1Serde, CheckpointV2Serde,
KafkaChangelogSSPOffset, TransactionalStateTaskRestoreManager.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from recovery.formats.reader import CorruptError
from recovery.state.changelogs.changelog import ChangelogFormat

CHECKPOINT_PREFIX = "__samza_checkpoint_ver_"


class Samza(ChangelogFormat):
    """Last value per key; keys and values in the store's own serialisation."""

    name = "samza"


class CheckpointKey(NamedTuple):
    """The task whose checkpoint a record is. type: `checkpoint` (V1) or `checkpoint-v2`."""

    grouper: str
    task: str
    type: str


class SamzaPosition(NamedTuple):
    """A task's position in a stream's partition: the last offset it has processed."""

    system: str
    stream: str
    partition: int
    offset: int | None


class ChangelogMarker(NamedTuple):
    """A changelog's last offset of a checkpoint, itself included; None: it was empty then."""

    checkpoint_id: str
    offset: int | None

    @property
    def end(self) -> int:
        """The offset at which a rebuild ends, not included."""
        return 0 if self.offset is None else self.offset + 1


def decode_key(key: bytes | None) -> CheckpointKey:
    """The key of a checkpoint topic's record. Raises CorruptError."""
    found = _object(key, "key of a Samza checkpoint")
    try:
        grouper = found["systemstreampartition-grouper-factory"]
        return CheckpointKey(str(grouper), str(found["taskName"]), str(found["type"]))
    except KeyError as error:
        raise CorruptError(f"it has no {error}", where="key of a Samza checkpoint") from None


def decode_positions(value: bytes | None) -> tuple[SamzaPosition, ...]:
    """The inputs of a checkpoint, V1 or V2, sorted. Raises CorruptError."""
    where = "value of a Samza checkpoint"
    found = _object(value, where)
    entries = found.get("input-offsets", found)
    try:
        return tuple(
            sorted(
                SamzaPosition(
                    str(entry["system"]),
                    str(entry["stream"]),
                    int(entry["partition"]),
                    None if entry["offset"] is None else int(entry["offset"]),
                )
                for entry in entries.values()
            )
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"an entry is not an offset ({error})", where=where) from None


def parse_marker(text: str) -> ChangelogMarker:
    """`<checkpoint id>:<offset|null>`, as a checkpoint keeps a changelog's. Raises CorruptError."""
    identity, colon, offset = text.rpartition(":")
    if not colon or not (offset == "null" or offset.isdecimal()):
        raise CorruptError(f"{text!r} is no changelog offset", where="a Samza checkpoint")
    return ChangelogMarker(identity, None if offset == "null" else int(offset))


def _object(data: bytes | None, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"it is no JSON: {error}", where=where) from None
    if not isinstance(found, dict):
        raise CorruptError("it is no JSON object", where=where)
    return found
