"""Kafka Connect's offsets topic: where each source connector is in its source.

Key: JSON `["connector", {source partition}]`; value: JSON {source offset}, null if it was reset.
Source: Kafka's classes OffsetStorageWriter, KafkaOffsetBackingStore; KIP-875.
"""

import json
from typing import TYPE_CHECKING

from recovery.state.changelogs.changelog import ChangelogFormat, Summary

if TYPE_CHECKING:
    import pyarrow as pa


class ConnectOffsets(ChangelogFormat):
    """Last offset per connector and source partition, both as JSON text besides the raw bytes.

    connector and source_partition are null for a key that Connect does not write; the row stays.
    """

    name = "connect-offsets"

    @property
    def extra(self) -> "pa.Schema":
        import pyarrow as pa

        names = ("connector", "source_partition", "source_offset")
        return pa.schema([pa.field(name, pa.large_string()) for name in names])

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        import pyarrow as pa

        rows = super().finish(rows, summary)
        keys = [decode_key(key) for key in rows.column("key").to_pylist()]
        values = [_text(value) for value in rows.column("value").to_pylist()]
        columns = [[key[0] for key in keys], [key[1] for key in keys], values]
        for field, column in zip(self.extra, columns, strict=True):
            rows = rows.append_column(field, pa.array(column, field.type))
        return rows


def decode_key(key: bytes) -> tuple[str | None, str | None]:
    """Return (connector, source partition as JSON); (None, None) if Connect writes no such key."""
    try:
        fields = json.loads(key)
        if not (isinstance(fields, list) and len(fields) == 2 and isinstance(fields[0], str)):
            return None, None
        return _utf8(fields[0]), _utf8(json.dumps(fields[1], sort_keys=True, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None, None


def _text(value: bytes) -> str | None:
    try:
        return _utf8(json.dumps(json.loads(value), sort_keys=True, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _utf8(text: str) -> str:
    """Return the text. Raises ValueError for half a surrogate pair: JSON can have it, UTF-8 not."""
    text.encode("utf-8")
    return text
