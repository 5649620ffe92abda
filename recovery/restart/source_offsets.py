"""Offsets of Kafka Connect's sources: maps of a source partition to a source offset, both JSON.

A source partition is represented as a topic name with partition 0: `{"table": "orders"}`. No real
topic has such a name.
"""

import json
from collections.abc import Mapping
from typing import Any

from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.quoting import quoted

_FORM = (
    'write {"offsets": [{"partition": {...}, "offset": {...}}]}, as GET /connectors/NAME/offsets '
    "gives it; an offset of null removes it"
)


def canonical(value: object) -> str:
    """Return JSON text that is equal for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def source_partition(partition: str) -> TopicPartition:
    """Return the key that represents a source partition in canonical JSON."""
    return TopicPartition(partition, 0)


def parse_offsets(text: str, where: str) -> dict[str, str | None]:
    """Return source partition → source offset, both canonical; None: it has no offset.

    Raises UsageError if the text is not the JSON of Connect's REST interface.
    """
    try:
        told = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}", where=where, remedy=_FORM) from None
    rows = told.get("offsets") if isinstance(told, dict) and len(told) == 1 else None
    if not isinstance(rows, list) or not rows:
        raise UsageError("no offsets in it", where=where, remedy=_FORM)
    offsets: dict[str, str | None] = {}
    for row in rows:
        if not isinstance(row, dict) or row.keys() != {"partition", "offset"}:
            raise UsageError(
                f"{quoted(canonical(row))} is not an offset", where=where, remedy=_FORM
            )
        partition, offset = row["partition"], row["offset"]
        if not isinstance(partition, dict) or not partition:
            raise UsageError("a partition is not a JSON object", where=where, remedy=_FORM)
        if offset is not None and (not isinstance(offset, dict) or not offset):
            raise UsageError("an offset is not a JSON object", where=where, remedy=_FORM)
        name = canonical(partition)
        if name in offsets:
            raise UsageError(f"{quoted(name)} is there twice", where=where)
        offsets[name] = None if offset is None else canonical(offset)
    return offsets


def with_number(offset: str | None, field: str, number: int) -> str:
    """Return the offset with another number in one field; the other fields do not change."""
    fields: dict[str, Any] = {} if offset is None else json.loads(offset)
    return canonical({**fields, field: number})


def number_in(offset: str, field: str) -> int | None:
    """Return the number that an offset holds in a field; None: it holds none."""
    fields = json.loads(offset)
    number = fields.get(field) if isinstance(fields, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key is there twice in one object")
    return dict(pairs)
