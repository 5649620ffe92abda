"""Stores that keep all partitions in one JSON object: a file, a record, a node of ZooKeeper."""

import json
from collections.abc import Sequence
from typing import Any

from eoctl.stores.offsets.store import StoredValues, StoreEntry, Write
from recovery.restart.stored import (
    StoredPartition,
    StoredPosition,
    as_kept,
    dump_stored,
    next_positions,
    parse_stored,
)


def entries_of(text: str, position: StoredPosition, where: str) -> tuple[StoreEntry, ...]:
    """Return the object's entries, sorted. Raises CorruptError."""
    kept = sorted(parse_stored(text, where), key=lambda p: p.input.topic_partition)
    return tuple(
        StoreEntry(at, _plain(p))
        for at, p in zip(next_positions(kept, position), kept, strict=True)
    )


def kept_of(at: StoredPartition, position: StoredPosition) -> StoredValues:
    """Return a position as the object keeps it."""
    return _plain(as_kept([at], position)[0])


def written(text: str | None, writes: Sequence[Write], where: str) -> str | None:
    """Return the object after these writes, in its old order; None if nothing is left in it."""
    after = {w.topic_partition: w.after for w in writes}
    there = (
        []
        if text is None
        else [(p.input.topic_partition, _plain(p)) for p in parse_stored(text, where)]
    )
    rows = [after.pop(partition, kept) for partition, kept in there]
    left = [row for row in (*rows, *after.values()) if row is not None]
    if not left:
        return None
    return json.dumps({"partitions": left}, indent=1) + "\n"


EMPTY = dump_stored(()) + "\n"


def _plain(p: StoredPartition) -> dict[str, Any]:
    [row] = json.loads(dump_stored([p]))["partitions"]
    return dict(row)
