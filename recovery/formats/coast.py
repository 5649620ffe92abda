"""coast's topics: merge logs, changelogs with offsets attached, and regrouped streams.

`coast.mg.<name>` holds the order in which inputs were merged. In `coast.cl.<store>` every record of
state carries the next input and output offset. Partition p of each belongs to task p.
Source: coast (Ben Kirwin), classes Messages, CoastStorageEngine, SafeBackend and wire.Protocol;
text is Java's modified UTF-8 (java.io.DataInput).
"""

import struct
from typing import NamedTuple

from recovery.formats.reader import CorruptError, Reader
from recovery.plurals import counted

MAX_TEXT = 65_535  # bytes

_MERGE = struct.Struct(">iq")
_ATTACHED = struct.Struct(">qq")


class MergeRecord(NamedTuple):
    """The next record of the merged stream, which is at `offset` of stream:partition."""

    stream: str
    partition: int
    offset: int


class ChangelogRecord(NamedTuple):
    """One update of state. upstream: the next input offset after the update; downstream: the next
    output offset after what was sent for it."""

    key: bytes
    upstream: int
    downstream: int
    state: bytes


def decode_merge(value: bytes | None) -> MergeRecord:
    """Decode a merge log's value, whose key is empty. Raises CorruptError."""
    reader = Reader(_not_null(value, "merge log"), "value of a merge log's record")
    stream = reader.java_text()
    partition, offset = reader.unpack(_MERGE)
    reader.ends()
    if partition < 0 or offset < 0:
        raise reader.corrupt(f"partition {partition}, offset {offset}")
    return MergeRecord(stream, partition, offset)


def encode_merge(record: MergeRecord) -> bytes:
    """Encode a merge log's value. Raises ValueError if the stream's name is too long."""
    name = _modified_utf8(record.stream)
    if len(name) > MAX_TEXT:
        raise ValueError(f"a name of {counted(len(name), 'byte')}")
    return struct.pack(">H", len(name)) + name + _MERGE.pack(record.partition, record.offset)


def decode_changelog(key: bytes | None, value: bytes | None) -> ChangelogRecord:
    """Decode a changelog's record. Raises CorruptError."""
    keys = Reader(_not_null(key, "changelog"), "key of a changelog's record")
    store_key = keys.take(keys.int32())
    keys.ends()
    values = Reader(_not_null(value, "changelog"), "value of a changelog's record")
    upstream, downstream = values.unpack(_ATTACHED)
    state = values.take(values.int32())
    values.ends()
    if upstream < 0 or downstream < 0:
        raise values.corrupt(f"upstream {upstream}, downstream {downstream}")
    return ChangelogRecord(store_key, upstream, downstream, state)


def _not_null(data: bytes | None, what: str) -> bytes:
    if data is None:
        raise CorruptError("it is null", where=f"record of a {what}")
    return data


def _modified_utf8(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    return "".join(pairs).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
