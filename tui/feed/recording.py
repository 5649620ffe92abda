"""Read a recording: JSON lines, a header and then one snapshot each, as writer.py writes them.

Compact: rows are lists in the order of their model's fields, and a part that equals the one in the
line before is written as `=`. So reading a line requires the lines before it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json.decoder import JSONArray  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import astuple

from eoctl.operations.dashboard.snapshot import PARTS, Snapshot
from recovery.answers import Answer
from recovery.change.job_rows import JobRow
from recovery.change.journal_rows import JournalEventRow, JournalRow, PlanFileRow
from recovery.diagnose.diagnosis_rows import ContestRow, TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.doctor.doctor_rows import DoctorRow
from recovery.errors import UsageError
from recovery.inspect.cluster_rows import (
    BrokerRow,
    HistoryRow,
    LsoRow,
    OffsetsShowRow,
    ProducerRow,
    StripRow,
    TxnListRow,
)
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
from recovery.merge.log_rows import MergePlanRow
from recovery.remedy.checkpoint_rows import CommittableRow
from recovery.row import ErrorRow, Row
from recovery.values import Value, replace
from tui.board.samples import Sample, sample_of

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
    "txn-commit": CommittableRow,
    "journal-list": JournalRow,
    "journal-show": JournalEventRow,
    "jobs-list": JobRow,
    "jobs-show": JobRow,
    "doctor": DoctorRow,
    "offsets-history": OffsetsHistoryRow,
    "producers-summary": ProducersSummaryRow,
    "txn-list-summary": TxnSummaryRow,
}
"""By the schema of the answer; one without rows needs none."""
PLAIN = tuple(name for name in Snapshot.__struct_fields__ if name not in PARTS)
SAME = "="


def unpacked(line: dict[str, Any], before: Snapshot | None) -> Snapshot:
    """Return the snapshot of one line. Raises KeyError, TypeError or ValueError if it is none."""
    values: dict[str, Any] = {name: line[name] for name in PLAIN if name in line}
    values["argv"] = tuple(values.get("argv", ()))
    for part in PARTS:
        content = line.get(part)
        if content == SAME:
            values[part] = getattr(before, part)
        elif content is not None:
            values[part] = _unpacked_answer(content, getattr(before, part, None))
    return Snapshot(**values)


def _unpacked_answer(fields: dict[str, Any], before: Answer | None) -> Answer:
    return Answer(
        schema=fields["schema"],
        cluster_id=fields["cluster_id"],
        collected_at=fields["at"],
        rows=_unpacked_rows(fields, before),
        errors=[ErrorRow(**row) for row in fields["errors"]],
        extra=_unpacked_extra(fields["extra"]),
        judging=fields["finding"][0],
        finding=fields["finding"][1],
    )


def _unpacked_extra(extra: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer has beside its rows; contested ids are rows. Raises ValueError."""
    contests = extra.get("contests")
    if contests is None:
        return extra
    return {**extra, "contests": [ContestRow.read(c) for c in contests]}


def _unpacked_rows(fields: dict[str, Any], before: Answer | None) -> list[Row]:
    """Return the rows; an unchanged one is the object of the previous answer."""
    model = MODELS.get(fields["schema"], Row)
    names: list[str] = fields["fields"]
    alike = before is not None and before.schema == fields["schema"]
    known = before.rows if before and alike and names == list(model.__struct_fields__) else ()
    rows: list[Row] = []
    for number, values in enumerate(fields["rows"]):
        row = known[number] if number < len(known) else None
        if row is None or list(astuple(row)) != values:
            row = model.read(dict(zip(names, values, strict=True)))
        rows.append(row)
    return rows


class _Kept(Value):
    """What is kept of a snapshot that is not shown.

    begins: the position of its line. lines: for each part, the number of the line that has it;
    absent if unknown. brief: what the trend and the jobs' rates need; sample: what pictures need.
    """

    begins: int
    lines: Mapping[str, int]
    brief: Snapshot
    sample: Sample | None


class Recording(Sequence[Snapshot]):
    """The snapshots of a file, read when they are shown: with many partitions few fit into memory.

    Raises UsageError for a file that is not a recording. A last line that was cut off (the recorder
    was killed) ends the recording silently.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: list[_Kept] = []
        self._last: tuple[int, Snapshot] | None = None  # the last one shown
        first = earlier = None
        for begins, line, snapshot in _lines(path):
            number = len(self._kept)
            before = self._kept[-1] if self._kept else None
            there = before.lines if before is not None else {}
            own = {part: number for part in PARTS if line.get(part, SAME) != SAME}
            lines = own | {p: n for p, n in there.items() if line.get(p) == SAME}
            known = before.brief.partitions if before and "partitions" not in own else None
            sample = sample_of(snapshot, earlier)
            self._kept.append(_Kept(begins, lines, _brief(snapshot, known), sample))
            first, earlier = first or snapshot, snapshot
        if first is not None:
            self._last = 0, first

    def __len__(self) -> int:
        return len(self._kept)

    def brief(self, number: int) -> Snapshot:
        """Return a snapshot's held partitions, its jobs, and how many transactions ended."""
        return self._kept[number].brief

    def sample(self, number: int) -> Sample | None:
        """Return what a snapshot adds to the pictures; None before the first look."""
        return self._kept[number].sample

    def __getitem__(self, number: int) -> Snapshot:  # type: ignore[override]
        """Return a complete snapshot. Raises UsageError if the file changed meanwhile."""
        if not 0 <= number < len(self._kept):
            raise IndexError(number)
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        try:
            with self._path.open("rb") as file:
                snapshot = self._read(file, number)
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"changed while it was shown: {error}", where=str(self._path)
            ) from None
        self._last = number, snapshot
        return snapshot

    def _read(self, file: BinaryIO, number: int) -> Snapshot:
        """Return a snapshot; parts that are in an earlier line are read from there."""
        lines = self._kept[number].lines
        shown, known = self._last if self._last is not None else (-1, None)
        there = self._kept[shown].lines if known is not None else {}

        def parsed(of: int) -> dict[str, Any]:
            file.seek(self._kept[of].begins)
            return _parsed(file.readline().decode("ascii"))

        own = {k: v for k, v in parsed(number).items() if k in lines or k not in PARTS}
        elsewhere: dict[int, list[str]] = {}
        for part, line in lines.items():
            if line != number and there.get(part) == line:
                own[part] = SAME
            elif line != number:
                elsewhere.setdefault(line, []).append(part)
        for line, parts in elsewhere.items():
            earlier = parsed(line)
            own.update({part: earlier[part] for part in parts})
        return unpacked(own, known)


def _brief(s: Snapshot, partitions: Answer | None) -> Snapshot:
    """Return what a trend needs of a snapshot. partitions: the previous snapshot's, if equal."""
    if partitions is None and s.partitions is not None:
        held = [row for row in s.partitions.rows if isinstance(row, LsoRow) and row.held]
        partitions = replace(s.partitions, rows=held)
    listed = replace(s.transactions, rows=[], errors=[]) if s.transactions else None
    return Snapshot(
        s.title,
        s.taken_at,
        partitions=partitions,
        transactions=listed,
        jobs=s.jobs,
        intervals=s.intervals,
    )


def read(path: Path) -> Iterator[Snapshot]:
    """Yield the snapshots of a recording, one after the other. Raises as Recording does."""
    for _, _, snapshot in _lines(path):
        yield snapshot


def check(path: Path) -> None:
    """Raise UsageError for a file that does not begin as a recording does, or cannot be read."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a recording after its first line. Raises UsageError as Recording does."""
    try:
        with path.open("rb") as file:
            schema = str(_parsed(file.readline().decode("ascii")).get("schema"))[:60]
            if schema.startswith(SCHEMA.rpartition("/")[0]) and schema != SCHEMA:
                raise UsageError(
                    f"a recording of another version: {schema!r}",
                    where=str(path),
                    remedy=f"this eoctl reads {SCHEMA}",
                )
            if schema != SCHEMA:
                raise _not_one(path)
            yield file
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise _not_one(path) from None


def _not_one(path: Path) -> UsageError:
    return UsageError(
        "not a recording of eoctl tui, and no bundle",
        where=str(path),
        remedy="of a report open the bundle that it was made of",
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any], Snapshot]]:
    """Yield each line's position, JSON value and snapshot."""
    before: Snapshot | None = None
    with _opened(path) as file:
        begins = file.tell()
        for number, text in enumerate(file, 2):
            if not text.endswith(b"\n"):
                return
            line = _parsed(text.decode("ascii"))
            try:
                before = unpacked(line, before)
            except (KeyError, TypeError, ValueError, AttributeError):
                raise UsageError(
                    f"line {number} is not a snapshot that this version can read",
                    where=str(path),
                    remedy="open it with the version that recorded it",
                ) from None
            yield begins, line, before
            begins += len(text)


class _Decoder(json.JSONDecoder):
    """Decodes the elements of the outermost lists one by one.

    With 100,000 rows json.loads blocks every other thread for 0.1 s, and a key press with them.
    """

    def __init__(self) -> None:
        super().__init__()
        element: Callable[[str, int], tuple[Any, int]] = self.scan_once  # type: ignore[has-type]
        self.parse_array = lambda begin, _: JSONArray(begin, element)
        self.scan_once = py_make_scanner(self)


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = _Decoder().decode(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
