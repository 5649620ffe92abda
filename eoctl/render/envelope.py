"""Write rows for scripts: JSON, JSON lines, CSV or names. The contract is docs/interface.md.

Every function yields lines without newline; the caller writes them to stdout. No output holds a
control character: JSON is ASCII with `\\u` escapes, CSV and names go through `visible`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from eoctl.render.sanitise import visible
from recovery.answers import Answer
from recovery.row import Row
from recovery.times import rfc3339
from recovery.values import Value

_ENCODER = json.JSONEncoder(allow_nan=False)  # json.dumps would make one for each row


Fields = Mapping[str, object]


class Envelope(Value):
    """One answer from one cluster.

    name: the command's words joined by `-`. collected_at: epoch milliseconds. complete: false if
    any broker, partition or permission was missing; errors say which. extra: more fields of the
    answer, for example `scanned`; rows and lists of rows among them are written like the others.
    """

    name: str
    cluster_id: str | None
    collected_at: int
    complete: bool
    rows: Sequence[Row | Fields]
    errors: Sequence[Row | Fields] = ()
    extra: Mapping[str, object] = {}

    @classmethod
    def of(cls, answer: Answer, more: Mapping[str, object]) -> "Envelope":
        """Return the envelope of an answer. more: fields before its own, such as `context`."""
        return cls(
            name=answer.schema,
            cluster_id=answer.cluster_id,
            collected_at=answer.collected_at,
            complete=answer.complete,
            rows=answer.rows,
            errors=answer.errors,
            extra={**more, **answer.extra},
        )

    @property
    def schema(self) -> str:
        """Return `eoctl.<name>/v1`."""
        return f"eoctl.{self.name}/v1"

    def head(self) -> dict[str, object]:
        """Return all fields but rows and errors."""
        return {
            "schema": self.schema,
            "cluster_id": self.cluster_id,
            "collected_at": rfc3339(self.collected_at),
            "complete": self.complete,
            **{k: _extra(v) for k, v in self.extra.items()},
        }

    def document(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        rows, errors = ([*map(values, of)] for of in (self.rows, self.errors))
        return {**self.head(), "rows": rows, "errors": errors}


def _extra(value: object) -> object:
    if isinstance(value, list):
        return [_extra(item) for item in value]
    return values(value) if isinstance(value, Row) else value


def values(row: Row | Fields) -> Mapping[str, object]:
    """Return the row's fields as JSON values, under the names of the schema."""
    return row.json_values() if isinstance(row, Row) else row


def json_lines(envelope: Envelope) -> Iterator[str]:
    """Yield `-o json`: one object; each row has its own line, so that diff and grep help."""
    yield json_line(envelope.head())[:-1] + ","
    for name, rows in (("rows", envelope.rows), ("errors", envelope.errors)):
        last = name == "errors"
        if not rows:
            yield f'"{name}": []' + ("}" if last else ",")
            continue
        yield f'"{name}": ['
        for number, row in enumerate(rows, 1):
            yield " " + json_line(values(row)) + ("," if number < len(rows) else "")
        yield "]}" if last else "],"


def json_one_line(envelope: Envelope) -> str:
    """Return the JSON object on one line: per round of --watch and per cluster of --context a,b."""
    return json_line(envelope.document())


def jsonl_lines(envelope: Envelope) -> Iterator[str]:
    """Yield `-o jsonl`: one row per line, then the rest on one line, which has `complete`."""
    for row in envelope.rows:
        yield json_line(values(row))
    yield json_line({**envelope.head(), "errors": [values(row) for row in envelope.errors]})


def json_line(value: object) -> str:
    """Return one line of ASCII: everything else is escaped, so no control, bidi mark or half of a
    surrogate pair reaches a terminal. Raises ValueError for NaN and infinities."""
    return _ENCODER.encode(value)


_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also as full-width forms


def csv_lines(
    rows: Sequence[Row | Fields], fields: Sequence[str], *, headers: bool = True, safe: bool = False
) -> Iterator[str]:
    """Yield `-o csv`: RFC 4180 quoting; lines end with a newline alone, as in other Unix tools.

    null is an empty cell, the empty text `""`; true and false; lists and objects as JSON. Hidden
    characters in text are escaped as in tables (`visible`, which can be undone). Cells that a
    spreadsheet would take for a formula stay exact; safe: put a `'` before these.
    """
    if headers:
        yield ",".join(map(_csv_cell, fields))
    for row in rows:
        known = values(row)
        # Many readers would skip a blank line.
        yield ",".join(_csv_cell(known.get(name), safe=safe) for name in fields) or '""'


def _csv_cell(value: object, *, safe: bool = False) -> str:
    if value is None:
        return ""
    text = visible(value) if isinstance(value, str) else json_line(value)
    if safe and isinstance(value, str) and text.lstrip().startswith(_FORMULA):
        text = f"'{text}"
    if text and not any(character in text for character in ',"'):
        return text
    return '"' + text.replace('"', '""') + '"'


def name_lines(rows: Sequence[Row | Fields], keys: Sequence[str]) -> Iterator[str]:
    """Yield `-o name`: the values of keys joined by `:` (`orders:3`), one row per line, hidden
    characters escaped. A row with a null among these values has no name and is left out."""
    for row in rows:
        known = values(row)
        parts = [known.get(key) for key in keys]
        if None not in parts:
            yield ":".join(visible(str(part)) for part in parts)
