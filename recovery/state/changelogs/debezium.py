"""Debezium's change events in JSON: the current row of a table, from its last event.

Key: the row's key as Debezium writes it; value: `{"before": ..., "after": ..., "op": ..., ...}`, or
that as `payload` next to its `schema`. Source: Debezium's class io.debezium.data.Envelope; its
documentation of the PostgreSQL connector ("Change events", "Toasted values").
"""

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from recovery.errors import RefusedError
from recovery.formats.arrays import null_mask
from recovery.state.changelogs.changelog import ChangelogFormat, Summary

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_PLAIN = "rebuild flattened or other records with --format plain, which keeps values as they are"
_ABSENT = b"__debezium_unavailable_value"
_ABSENT_FORMS = (
    _ABSENT.decode(),
    b64encode(_ABSENT).decode(),  # of a bytes column
    ",".join(map(str, _ABSENT)),  # of an array of numbers
)
"""What stands for a large column that the change did not touch and the database did not log."""

_decode = json.JSONDecoder().raw_decode


class Debezium(ChangelogFormat):
    """Last event per key, with `after`: the row as JSON text, byte for byte as Debezium wrote it.

    A delete event ends its row, with or without the tombstone after it. Raises RefusedError for a
    value that is no such event, for an emptied table (op `t`, which names no rows) and for a row
    with a column that its last event does not hold.
    """

    name = "debezium"

    @property
    def extra(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([pa.field("after", pa.large_string())])

    def valid(self, rows: "pa.RecordBatch") -> "NDArray[np.bool_]":
        """Return which records have a key. Raises RefusedError if one without empties the table."""
        keyed = super().valid(rows)
        unkeyed = ~keyed & ~null_mask(rows.column("value"))
        for number in unkeyed.nonzero()[0].tolist():
            offset, value = (
                rows.column("offset")[number].as_py(),
                rows.column("value")[number].as_py(),
            )
            if _op(_envelope(value, offset)) == "t":
                raise RefusedError(
                    "the table was emptied there (TRUNCATE), which row events do not show",
                    where=f"offset {offset}",
                    remedy="begin after it: a new topic, after a new snapshot",
                )
        return keyed

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        import pyarrow as pa

        rows = super().finish(rows, summary)
        after = [
            _row(value, offset)
            for value, offset in zip(
                rows.column("value").to_pylist(), rows.column("offset").to_pylist(), strict=True
            )
        ]
        rows = rows.append_column(self.extra[0], pa.array(after, pa.large_string()))
        return rows.filter(rows.column("after").is_valid())


def _row(value: bytes, offset: int) -> str | None:
    """Return the text of `after`; None for a deleted row."""
    event = _envelope(value, offset)
    after = event["after"]
    if after == "null":
        return None
    if any(form in after for form in _ABSENT_FORMS):
        raise RefusedError(
            "the event does not hold the complete row: a large column that did not change is "
            "not in it",
            where=f"offset {offset}",
            remedy="ALTER TABLE ... REPLICA IDENTITY FULL, and a new snapshot",
        )
    return after


def _op(event: dict[str, str]) -> Any:
    return json.loads(event["op"])


def _envelope(value: bytes, offset: int) -> dict[str, str]:
    """Return the fields of an event, each as its JSON text."""
    try:
        text = value.decode()
        fields = _members(text)
        if "schema" in fields and "payload" in fields:
            fields = _members(fields["payload"])
        if "op" in fields and ("after" in fields or _op(fields) == "t"):
            return fields
        found = "JSON without `op` and `after`"
    except UnicodeDecodeError:
        found = "no JSON"
    except (ValueError, IndexError, RecursionError):
        found = "no JSON object"
    if value[:1] == b"\0":
        found = "written with a schema registry, and only JSON is read"
    raise RefusedError(
        f"the value is not a Debezium event: {found}", where=f"offset {offset}", remedy=_PLAIN
    )


def _members(text: str) -> dict[str, str]:
    """Return the members of a JSON object by name, as text. Raises ValueError, IndexError."""
    at = _past_space(text, 0)
    if text[at] != "{":
        raise ValueError
    fields: dict[str, str] = {}
    at = _past_space(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise ValueError
        name, at = _decode(text, at)
        at = _past_space(text, at)
        if text[at] != ":":
            raise ValueError
        begin = _past_space(text, at + 1)
        _, end = _decode(text, begin)
        fields[name] = text[begin:end]
        at = _past_space(text, end)
        if text[at] == ",":
            at = _past_space(text, at + 1)
            if text[at] != '"':
                raise ValueError
        elif text[at] != "}":
            raise ValueError
    if text[at + 1 :].strip(_SPACE):
        raise ValueError
    return fields


_SPACE = " \t\n\r"


def _past_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
