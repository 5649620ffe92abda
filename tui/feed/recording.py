"""Snapshots kept in a file and read back: JSON lines, one snapshot each, the first line a header.

Compact: rows are lists in the order of their model's fields, and a part that is the same as in
the line before is written as `=`. So a line is read after those before it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from eoctl.operations.dashboard.snapshot import PARTS, Snapshot
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.diagnosis import HistoryRow, TxnHangingRow
from recovery.rows.jobs import JobRow
from recovery.rows.journal import JournalEventRow, JournalRow
from recovery.rows.merge import MergePlanRow
from recovery.rows.offsets import OffsetsShowRow
from recovery.rows.plans import PlanFileRow
from recovery.rows.row import BrokerRow, ErrorRow, LsoRow, ProducerRow, Row, TxnListRow
from recovery.rows.strip import StripRow
from recovery.rows.why import WhyRow

SCHEMA = "eoctl.recording/v1"
MODELS: Mapping[str, type[Row]] = {
    "brokers": BrokerRow,
    "lso": LsoRow,
    "txn-list": TxnListRow,
    "offsets-show": OffsetsShowRow,
    "producers": ProducerRow,
    "txn-hanging": TxnHangingRow,
    "why": WhyRow,
    "txn-history": HistoryRow,
    "strip": StripRow,
    "plans": PlanFileRow,
    "merge-plan": MergePlanRow,
    "journal-list": JournalRow,
    "journal-show": JournalEventRow,
    "jobs-list": JobRow,
    "jobs-show": JobRow,
}
"""By the schema of the answer; one without rows needs none."""
_PLAIN = tuple(f.name for f in fields(Snapshot) if f.name not in PARTS)
SAME = "="


class Writer:
    """Appends snapshots to a new file. Raises UsageError where it cannot be made."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIO = path.open("x", encoding="ascii")
        except OSError as error:
            raise UsageError(
                f"cannot be written: {error.strerror}", where=str(path), remedy="name a new file"
            ) from None
        self._last: Snapshot | None = None
        self._write({"schema": SCHEMA})

    def add(self, snapshot: Snapshot) -> None:
        """Write one snapshot and flush it: what was seen must survive a crash."""
        self._write(packed(snapshot, self._last))
        self._last = snapshot

    def close(self) -> None:
        self._file.close()

    def _write(self, value: object) -> None:
        self._file.write(json.dumps(value, separators=(",", ":")) + "\n")
        self._file.flush()


def packed(s: Snapshot, before: Snapshot | None) -> dict[str, object]:
    """A snapshot as JSON values."""
    out: dict[str, object] = {name: getattr(s, name) for name in _PLAIN}
    for part in PARTS:
        answer: Answer | None = getattr(s, part)
        if before is not None and answer is getattr(before, part):
            out[part] = SAME
        elif answer is not None:
            out[part] = _packed_answer(answer)
    return out


def _packed_answer(a: Answer) -> dict[str, object]:
    return {
        "schema": a.schema,
        "cluster_id": a.cluster_id,
        "at": a.collected_at,
        "rows": [list(row.model_dump().values()) for row in a.rows],
        "fields": list(MODELS.get(a.schema, Row).model_fields),
        "errors": [row.model_dump(exclude_none=True) for row in a.errors],
        "extra": dict(a.extra),
        "finding": [a.judging, a.finding],
    }


def unpacked(line: dict[str, Any], before: Snapshot | None) -> Snapshot:
    """The snapshot of one line. Raises KeyError, TypeError or ValueError for what is none."""
    values: dict[str, Any] = {name: line[name] for name in _PLAIN if name in line}
    values["argv"] = tuple(values.get("argv", ()))
    for part in PARTS:
        content = line.get(part)
        if content == SAME:
            values[part] = getattr(before, part)
        elif content is not None:
            values[part] = _unpacked_answer(content)
    return Snapshot(**values)


def _unpacked_answer(fields: dict[str, Any]) -> Answer:
    names = fields["fields"]
    model = MODELS.get(fields["schema"], Row)
    return Answer(
        schema=fields["schema"],
        cluster_id=fields["cluster_id"],
        collected_at=fields["at"],
        rows=[model.model_validate(dict(zip(names, row, strict=True))) for row in fields["rows"]],
        errors=[ErrorRow(**row) for row in fields["errors"]],
        extra=fields["extra"],
        judging=fields["finding"][0],
        finding=fields["finding"][1],
    )


def read(path: Path) -> Iterator[Snapshot]:
    """The snapshots of a recording, one after the other. Raises UsageError.

    A last line that was cut off (the recorder was killed) ends it silently.
    """
    before: Snapshot | None = None
    try:
        with path.open(encoding="ascii") as file:
            first = file.readline()
            schema = str(_parsed(first).get("schema"))[:60]
            if schema != SCHEMA:
                if schema.startswith(SCHEMA.rpartition("/")[0]):
                    raise UsageError(
                        f"a recording of another version: {schema!r}",
                        where=str(path),
                        remedy=f"this eoctl reads {SCHEMA}",
                    )
                raise UsageError("not a recording of eoctl tui", where=str(path))
            for number, text in enumerate(file, 2):
                if not text.endswith("\n"):
                    return
                try:
                    before = unpacked(_parsed(text), before)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise UsageError(
                        f"line {number} is no snapshot: {type(error).__name__}", where=str(path)
                    ) from None
                yield before
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("not a recording of eoctl tui", where=str(path)) from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
