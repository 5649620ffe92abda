"""Add topics, settings and producer ids to the metadata with which a new cluster begins.

`kafka-storage.sh format` leaves a snapshot, bootstrap.checkpoint, whose records the first
controller writes into the metadata log. Source: Kafka's class BootstrapDirectory.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from eoctl.lab.twin.encoding import NewBatch
from recovery.formats.batches import batch_headers

_PER_BATCH = 1000


def add_records(checkpoint: Path, records: Sequence[bytes], now: int) -> None:
    """Insert metadata records before the footer of bootstrap.checkpoint."""
    content = checkpoint.read_bytes()
    *_, footer = batch_headers(content)
    at = footer.base_offset
    inserted = b""
    for first in range(0, len(records), _PER_BATCH):
        part = [(None, record) for record in records[first : first + _PER_BATCH]]
        inserted += NewBatch(at, at + len(part) - 1, part, now, 0).encode()
        at += len(part)
    end = struct.pack(">q", at) + content[footer.position + 8 :]  # outside the checksum
    checkpoint.write_bytes(content[: footer.position] + inserted + end)
