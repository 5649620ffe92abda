"""Record ids: two records are equal by their key, value, a header, a JSON field, or their source.

The operator names an id as text, `key`, `value`, `header:NAME`, `json:PATH` (of the value, with
dots between the names) or `source`. Ids are compared as 16-byte BLAKE2b digests, so two different
ids never collide, by chance or by intent. A record without an id (null key, no such header) is
nobody's duplicate.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.columns import ColumnBatch, Slices
from recovery.quoting import quoted
from recovery.shared.source_numbers import Number
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIGEST_SIZE = 16
_KINDS = ("key", "value", "header:NAME", "json:PATH", "source")


class SourceHeaders(Value):
    """The headers that say which source record a record was made from.

    numbers: `text` for decimal digits, `int` for big-endian signed integers of 4 or 8 bytes. topic:
    needed for several source topics; nth: needed if one source record gives several records.
    """

    partition: str = "source.partition"
    offset: str = "source.offset"
    nth: str | None = None
    topic: str | None = None
    numbers: Literal["text", "int"] = "text"

    def names(self) -> tuple[str, ...]:
        return tuple(n for n in (self.topic, self.partition, self.offset, self.nth) if n)


class RecordId(Value):
    """kind: key, value, header, json or source; name: the header, or the dotted path."""

    kind: Literal["key", "value", "header", "json", "source"]
    name: str = ""
    source: SourceHeaders = SourceHeaders()

    @property
    def text(self) -> str:
        """Return the kind of ids as the operator typed it."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


def parse_record_id(
    text: str, source: SourceHeaders | None = None, *, where: str | None = None
) -> RecordId:
    """Return the id that `text` names. where: the option, for the error. Raises UsageError."""
    kind, colon, name = text.partition(":")
    headers = source or SourceHeaders()
    if kind in ("key", "value", "source") and not colon:
        return RecordId(kind, source=headers)  # type: ignore[arg-type]
    if kind in ("header", "json") and name and not (kind == "json" and "" in name.split(".")):
        return RecordId(kind, name, headers)  # type: ignore[arg-type]
    raise UsageError(
        f"{quoted(text)} does not say what makes two records the same",
        where=where,
        remedy=f"write {', '.join(_KINDS[:-1])} or {_KINDS[-1]}",
    )


def id_bytes(record_id: RecordId, records: ColumnBatch) -> Iterator[bytes | None]:
    """Return the id of each record, in order; None for a record without one.

    JSON: a field's text as `json.dumps` writes it with sorted keys; null or a value that is not
    JSON is no id. Raises CorruptError for malformed headers, RefusedError as `source_numbers` does.
    """
    if record_id.kind == "key":
        return _strings(records.key)
    if record_id.kind == "value":
        return _strings(records.value)
    if record_id.kind == "json":
        return map(_json_field(record_id.name), _strings(records.value))
    if record_id.kind == "header":
        return (header_value(records, i, record_id.name) for i in range(len(records)))
    return (
        None if number is None else repr(tuple(number)).encode()
        for number in source_numbers(record_id.source, records)
    )


def digests(
    record_id: RecordId, records: ColumnBatch
) -> tuple["NDArray[np.uint64]", "NDArray[np.bool_]"]:
    """Return each record's digest as uint64[n, 2], and whether it has an id as bool[n]."""
    import numpy as np

    blake2b, none = hashlib.blake2b, bytes(DIGEST_SIZE)
    n = len(records)
    has = np.zeros(n, np.bool_)
    hashes = bytearray()
    for i, one in enumerate(id_bytes(record_id, records)):
        if one is None:
            hashes += none
        else:
            has[i] = True
            hashes += blake2b(one, digest_size=DIGEST_SIZE).digest()
    return np.frombuffer(bytes(hashes), np.uint64).reshape(n, 2), has


def place_digests(
    source: SourceHeaders, partition: TopicPartition, records: ColumnBatch
) -> "NDArray[np.uint64]":
    """Return the digests, uint64[n, 2], that ids of kind `source` have which name these records.

    Headers that name one of several records of a source cannot be followed from the source.
    """
    import numpy as np

    topic = partition.topic if source.topic else ""
    hashes = bytearray()
    for offset in records.offset.tolist():
        number = Number(topic, partition.partition, offset)
        hashes += hashlib.blake2b(repr(tuple(number)).encode(), digest_size=DIGEST_SIZE).digest()
    return np.frombuffer(bytes(hashes), np.uint64).reshape(len(records), 2)


def value_digests(records: ColumnBatch) -> "NDArray[np.uint64]":
    """Return digests of key and value together as uint64[n], to compare; null is not empty."""
    import numpy as np

    hashes = bytearray()
    for key, value in zip(_strings(records.key), _strings(records.value), strict=True):
        h = hashlib.blake2b(digest_size=8)
        for part in (key, value):
            h.update(b"-" if part is None else b"%d:" % len(part))
            h.update(part or b"")
        hashes += h.digest()
    return np.frombuffer(bytes(hashes), np.uint64)


def source_numbers(names: SourceHeaders, records: ColumnBatch) -> Iterator[Number | None]:
    """Yield each record's source from its headers; None if a header is missing.

    Raises RefusedError for a header that holds no number.
    """
    for i in range(len(records)):
        headers = dict(records.header_list(i))
        if any(headers.get(name) is None for name in names.names()):
            yield None
            continue
        numbers = [
            0 if name is None else _number(headers[name], name, names, int(records.offset[i]))
            for name in (names.partition, names.offset, names.nth)
        ]
        topic = (headers[names.topic] or b"") if names.topic else b""
        yield Number(topic.decode("utf-8", "surrogateescape"), *numbers)


def _number(content: bytes | None, name: str, names: SourceHeaders, offset: int) -> int:
    if content is not None:
        if names.numbers == "int" and len(content) in (4, 8):
            return int.from_bytes(content, "big", signed=True)
        if names.numbers == "text" and content.isdigit() and len(content) <= 19:
            return int(content)
    what = "decimal digits" if names.numbers == "text" else "an integer of 4 or 8 bytes"
    raise RefusedError(
        f"the header {quoted(name)} is not {what}",
        where=f"offset {offset}",
        remedy="say with --numbers text|int how numbers are written in the headers",
    )


def header_value(records: ColumnBatch, i: int, name: str) -> bytes | None:
    """Return the last header of that name, as Kafka's Headers.lastHeader; None: there is none."""
    value = None
    for header, content in records.header_list(i):
        if header == name:
            value = content
    return value


def _strings(slices: Slices) -> Iterator[bytes | None]:
    data = slices.data.data
    for start, length in zip(slices.start.tolist(), slices.length.tolist(), strict=True):
        yield None if length < 0 else bytes(data[start : start + length])


def _as_written(number: str) -> dict[str, str]:
    """Keep the digits of a number with a fraction: close numbers may become one float."""
    return {"\0": number}


def _json_field(path: str) -> Callable[[bytes | None], bytes | None]:
    names = path.split(".")

    def field(value: bytes | None) -> bytes | None:
        try:
            content: Any = json.loads(value or b"", parse_float=_as_written)
        except (ValueError, RecursionError):
            return None
        for name in names:
            if not isinstance(content, dict) or name not in content:
                return None
            content = content[name]
        return None if content is None else json.dumps(content, sort_keys=True).encode()

    return field
