"""From a snapshot to what the screens show: rows of safe text, in the feed's thread.

A Frame is frozen; the app only draws it. Rows whose model did not change are the same objects as
in the frame before, so that nothing is made or drawn twice.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eoctl.render.sanitise import visible
from recovery.rows.diagnosis import TxnHangingRow
from recovery.rows.offsets import OffsetsShowRow
from recovery.rows.row import LsoRow, ProducerRow, Row, TxnListRow
from tui.screens import kept, views
from tui.screens import rows as make
from tui.screens.headline import stuck
from tui.screens.overview import overview
from tui.widgets.tables import TableData, TableRow, table_data, urgency
from tui.widgets.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.rows.answers import Answer
    from recovery.rows.jobs import JobRow


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One snapshot and its tables by view name. says: the overview's sentences with their roles."""

    snapshot: "Snapshot"
    tables: Mapping[str, TableData]
    says: tuple[tuple[tuple[str, str], ...], ...]
    position: tuple[int, int] | None = None  # of a recording: which of how many


class Builder:
    """Makes frames; remembers the trend and the rows of the frame before."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self.ascii_only = ascii_only
        # the app drops the frame before the last: kept here so long, its many rows die in the
        # feed's thread and not between a key and its repaint
        self._recent: deque[Frame] = deque(maxlen=3)
        self.forget()

    def forget(self) -> None:
        """Begin anew: another cluster, or another place in a recording."""
        self.trend = Trend()
        self._last: Answer | None = None
        self._recent.clear()
        self._reports: dict[str, tuple[int, int, float | None]] = {}

    def frame(self, s: "Snapshot", position: tuple[int, int] | None = None) -> Frame:
        """The frame of a snapshot."""
        self.feed(s)
        tables = {
            "partitions": self._partitions(s),
            "transactions": self._transactions(s),
            "producers": self._producers(s),
            "groups": self._groups(s),
            "plans": kept.plans_table(s, self.text),
            "jobs": kept.jobs_table(s, self._rate, self.text, ascii_only=self.ascii_only),
        }
        says, tables["overview"] = overview(s, self.trend, self.text)
        frame = Frame(s, tables, says, position)
        self._recent.append(frame)
        return frame

    def text(self, value: str) -> str:
        """Safe to draw."""
        return visible(value, spaces=True, ascii_only=self.ascii_only) or '""'

    def feed(self, s: "Snapshot") -> None:
        """Remember what is held, for the trend, and how far jobs are; an answer counts once."""
        for job in s.jobs.rows if s.jobs else ():
            self._rate(cast("JobRow", job))
        answer = s.partitions
        if answer is None or answer is self._last:
            return
        self._last = answer
        held = {
            f"{r.topic}:{r.partition}": r.held
            for r in answer.rows
            if isinstance(r, LsoRow) and r.held
        }
        self.trend.add(answer.collected_at, held)

    def _rate(self, job: "JobRow") -> float | None:
        """Records a second between the last two reports of a job that runs."""
        known = self._reports.get(job.id)
        if job.state != "running" or job.records is None or job.reported is None:
            return None
        if known is None or known[0] != job.reported:
            before = known or (job.reported, job.records, None)
            seconds = (job.reported - before[0]) / 1000
            pace = (job.records - before[1]) / seconds if seconds > 0 else None
            known = self._reports[job.id] = (job.reported, job.records, pace)
        return known[2]

    def _before(self, table: str) -> Mapping[str, TableRow]:
        return self._recent[-1].tables[table].by_key if self._recent else {}

    def _partitions(self, s: "Snapshot") -> TableData:
        answer = s.partitions
        ceiling = self.trend.ceiling
        verdicts = worst_verdicts(s.hanging)
        before = self._before("partitions")
        first: list[TableRow] = []
        rest: list[TableRow] = []
        for r in cast("list[LsoRow]", answer.rows if answer else ()):
            name = f"{r.topic}:{r.partition}"
            verdict = verdicts.get(name) if r.held else None
            spark = self.trend.line(name, 30, ceiling, ascii_only=self.ascii_only)
            row = before.get(name)
            if (
                row is None
                or row.cells[SPARK] != spark
                or not same(row.judged, verdict)
                or not same(row.source, r)
            ):
                row = make.partition_row(r, name, verdict, spark, self.text)
            (first if r.held or row.mark else rest).append(row)
        first.sort(key=_held_first)
        return table_data(
            views.PARTITIONS.columns,
            [*first, *rest],
            collected_at=answer.collected_at if answer else None,
            empty=_none("topics that this user may see", answer, s),
            titles={"trend": f"^{ceiling}"} if ceiling else {},
        )

    def _producers(self, s: "Snapshot") -> TableData:
        answer = s.producers
        now = answer.collected_at if answer else 0
        rows: list[TableRow] = []
        for r in answer.rows if answer else ():
            assert isinstance(r, ProducerRow)
            rows.append(make.producer_row(r, now, self.text))
        rows.sort(key=urgency)
        return table_data(
            views.PRODUCERS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty=_none("producers", answer, s),
        )

    def _groups(self, s: "Snapshot") -> TableData:
        answer = s.groups
        findings = [
            h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)
        ]
        listed = cast(
            "list[dict[str, str | None]]", answer.extra.get("groups", ()) if answer else ()
        )
        states = {str(g["group"]): g["state"] for g in listed}
        bare = set(states)
        before = self._before("groups")
        rows: list[TableRow] = []
        for g in answer.rows if answer else ():
            assert isinstance(g, OffsetsShowRow)
            state = states.get(g.group)
            bare.discard(g.group)
            sign = "?" if g.error else "!" if stuck(g, findings) else ""
            row = before.get(f"{g.group}\0{g.topic}:{g.partition}")
            if row is None or row.mark != sign or row.sort[-1] != state or not same(row.source, g):
                row = make.group_row(g, state, sign, self.text)
            rows.append(row)
        rows += [
            make.bare_group_row(name, state, self.text)
            for name, state in states.items()
            if name in bare
        ]
        rows.sort(key=urgency)
        return table_data(
            views.GROUPS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty=_none("groups", answer, s),
        )

    def _transactions(self, s: "Snapshot") -> TableData:
        """Every transactional id, with the worst verdict on what it has open; then the strays."""
        judged: dict[str, list[TxnHangingRow]] = {}
        for h in s.hanging.rows if s.hanging else ():
            assert isinstance(h, TxnHangingRow)
            owner = h.transactional_id if h.verdict not in ("orphan", "marker-lost") else None
            key = f"id\0{owner}" if owner is not None else f"pid\0{h.producer_id}"
            judged.setdefault(key, []).append(h)
        rows: list[TableRow] = []
        for t in s.transactions.rows if s.transactions else ():
            assert isinstance(t, TxnListRow)
            key = f"id\0{t.transactional_id}"
            rows.append(make.listed_row(key, t, judged.pop(key, []), self.text))
        rows += [make.stray_row(key, found) for key, found in judged.items()]
        rows.sort(key=urgency)
        answer = s.transactions
        return table_data(
            views.TRANSACTIONS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty=_none("ids", answer, s),
        )


SPARK = next(i for i, c in enumerate(views.PARTITIONS.columns) if c.kind == "spark")


def same(a: object, b: object) -> bool:
    """Return True if two models hold equal values, three times as fast as pydantic's own way."""
    if a is b:
        return True
    return isinstance(a, Row) and isinstance(b, Row) and a.__dict__ == b.__dict__


def worst_verdicts(answer: "Answer | None") -> dict[str, TxnHangingRow]:
    """The worst judged transaction of each partition."""
    by_place: dict[str, TxnHangingRow] = {}
    for r in answer.rows if answer else ():
        assert isinstance(r, TxnHangingRow)
        by_place.setdefault(r.where, r)  # the answer has the worst first
    return by_place


def _held_first(row: TableRow) -> tuple[int, float, bool]:
    """The worst first, then the oldest, then what is held at all."""
    r = row.source
    assert isinstance(r, LsoRow)
    seconds = r.blocking.age_seconds if r.blocking else None
    return urgency(row), -(seconds or 0.0), not r.held


def _none(what: str, answer: "Answer | None", s: "Snapshot") -> str:
    """The sentence instead of rows: what could not be seen is not called absent."""
    if answer is None:
        return "no answer yet" if s.problem else "waiting for the first answer"
    if answer.errors:
        first = answer.errors[0]
        place = visible(first.topic or first.id or first.scope)
        return f"? no {what} could be seen: {first.error} on {place}"
    return f"no {what}"
