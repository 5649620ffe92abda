"""From a snapshot to what the screens show: rows of safe text, in the feed's thread.

A Frame is frozen; the app only draws it. Rows whose model did not change are the same objects as
in the frame before, so that nothing is made or drawn twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.words import age as age_words
from recovery.diagnosis import ORDER, mark
from recovery.rows import LsoRow, ProducerRow, TxnListRow
from recovery.rows_diagnosis import TxnHangingRow
from tui import views
from tui.overview import overview, stuck
from tui.tables import TableData, TableRow, table_data
from tui.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.snapshot import GroupOffsetRow, Snapshot
    from recovery.answers import Answer


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
        self.forget()

    def forget(self) -> None:
        """Begin anew: another cluster, or another place in a recording."""
        self.trend = Trend()
        self._before: dict[tuple[str, str], tuple[object, TableRow]] = {}
        self._last: Answer | None = None

    def frame(self, s: "Snapshot", position: tuple[int, int] | None = None) -> Frame:
        """The frame of a snapshot."""
        self.feed(s)
        kept: dict[tuple[str, str], tuple[object, TableRow]] = {}
        tables = {
            "partitions": self._partitions(s, kept),
            "transactions": _transactions(s),
            "producers": self._producers(s, kept),
            "groups": self._groups(s, kept),
        }
        self._before = kept
        says, tables["overview"] = overview(s, self.trend, self.text)
        return Frame(s, tables, says, position)

    def text(self, value: str) -> str:
        """Safe to draw."""
        return visible(value, spaces=True, ascii_only=self.ascii_only) or '""'

    def feed(self, s: "Snapshot") -> None:
        """Remember what is held, for the trend; a partition counts once per answer."""
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

    def _cached(
        self,
        kept: dict[tuple[str, str], tuple[object, TableRow]],
        table: str,
        key: str,
        source: object,
        make: Callable[[], TableRow],
    ) -> TableRow:
        known = self._before.get((table, key))
        row = known[1] if known is not None and known[0] == source else make()
        kept[table, key] = (source, row)
        return row

    def _partitions(
        self, s: "Snapshot", kept: dict[tuple[str, str], tuple[object, TableRow]]
    ) -> TableData:
        answer = s.partitions
        ceiling = self.trend.ceiling
        titles = {"trend": f"^{ceiling}"} if ceiling else {}
        verdicts = worst_verdicts(s.hanging)
        rows: list[TableRow] = []
        for r in answer.rows if answer else ():
            assert isinstance(r, LsoRow)
            name = f"{r.topic}:{r.partition}"
            verdict = verdicts.get(name) if r.held else None
            spark = self.trend.line(name, 30, ceiling, ascii_only=self.ascii_only)
            source = (r, verdict, spark)
            rows.append(
                self._cached(
                    kept,
                    "partitions",
                    name,
                    source,
                    lambda r=r, name=name, v=verdict, spark=spark: self._partition_row(  # type: ignore[misc]
                        r, name, v, spark
                    ),
                )
            )
        rows.sort(key=_held_first)
        return table_data(
            views.PARTITIONS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty="no partitions" if answer else _waiting(s),
            titles=titles,
        )

    def _partition_row(
        self, r: LsoRow, name: str, verdict: TxnHangingRow | None, spark: str
    ) -> TableRow:
        b = r.blocking
        if r.error:
            sign, held_by = "?", r.error
        elif verdict is not None:
            sign = mark(verdict.verdict) or ""
            held_by = verdict.transactional_id or f"pid {verdict.producer_id}, no owner"
        else:
            sign = "" if r.blocking_known else "?"
            held_by = (b.transactional_id or f"pid {b.producer_id}") if b else ""
            held_by = held_by if r.blocking_known else "not known"
        seconds = b.age_seconds if b else None
        return TableRow(
            name,
            (
                sign,
                self.text(name),
                _number(r.last_stable_offset),
                _number(r.high_watermark),
                _number(r.held),
                spark,
                _age(seconds, b.age_clock if b else None),
                self.text(held_by) if held_by else "",
                _number(r.leader),
            ),
            (
                None,
                (r.topic, r.partition),
                r.last_stable_offset,
                r.high_watermark,
                r.held,
                None,
                seconds,
                held_by or None,
                r.leader,
            ),
            sign,
            r,
            ("why", name),
            verdict,
        )

    def _producers(
        self, s: "Snapshot", kept: dict[tuple[str, str], tuple[object, TableRow]]
    ) -> TableData:
        answer = s.producers
        now = answer.collected_at if answer else 0
        rows: list[TableRow] = []
        for r in answer.rows if answer else ():
            assert isinstance(r, ProducerRow)
            rows.append(self._producer_row(r, now))
        rows.sort(key=_urgency)
        return table_data(
            views.PRODUCERS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty="no producer has written lately" if answer else _waiting(s),
        )

    def _producer_row(self, r: ProducerRow, now: int) -> TableRow:
        name = f"{r.topic}:{r.partition}"
        sign = "?" if r.error else "!" if r.stale_epoch else ""
        seconds = None if r.last_timestamp is None else (now - r.last_timestamp) / 1000
        opens = ("timeline", r.transactional_id) if r.transactional_id else ("why", name)
        return TableRow(
            f"{name}:{r.producer_id}",
            (
                sign,
                self.text(name),
                str(r.producer_id),
                str(r.producer_epoch),
                _number(r.last_sequence),
                _number(r.current_txn_start_offset),
                _age(seconds, "producer"),
                self.text(r.transactional_id) if r.transactional_id else "-",
                "zombie" if r.stale_epoch else "",
            ),
            (
                None,
                (r.topic, r.partition),
                r.producer_id,
                r.producer_epoch,
                r.last_sequence,
                r.current_txn_start_offset,
                seconds,
                r.transactional_id,
                r.stale_epoch,
            ),
            sign,
            r,
            opens,
        )

    def _groups(
        self, s: "Snapshot", kept: dict[tuple[str, str], tuple[object, TableRow]]
    ) -> TableData:
        answer = s.groups
        findings = [
            h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)
        ]
        rows = [
            self._cached(
                kept,
                "groups",
                f"{r.group}\0{r.topic}:{r.partition}",  # type: ignore[attr-defined]
                (r, held_up := stuck(r, findings)),  # type: ignore[arg-type]
                lambda r=r, held_up=held_up: self._group_row(r, held_up),  # type: ignore[misc]
            )
            for r in (answer.rows if answer else ())
        ]
        rows.sort(key=_urgency)
        return table_data(
            views.GROUPS.columns,
            rows,
            collected_at=answer.collected_at if answer else None,
            empty="no groups" if answer else _waiting(s),
        )

    def _group_row(self, r: "GroupOffsetRow", held_up: bool) -> TableRow:
        name = None if r.topic is None else f"{r.topic}:{r.partition}"
        sign = "?" if r.error else "!" if held_up else ""
        words = "yes" if r.pending else "-" if r.pending is None else "no"
        return TableRow(
            f"{r.group}\0{name}",
            (
                sign,
                self.text(r.group),
                self.text(name) if name else "-",
                _number(r.committed_offset),
                _number(r.last_stable_offset),
                _number(r.lag),
                _number(r.lag_hw),
                words,
                r.error or r.state or "-",
            ),
            (
                None,
                r.group,
                None if name is None else (r.topic, r.partition),
                r.committed_offset,
                r.last_stable_offset,
                r.lag,
                r.lag_hw,
                words,
                r.state,
            ),
            sign,
            r,
            ("why", name) if name else None,
        )


def worst_verdicts(answer: "Answer | None") -> dict[str, TxnHangingRow]:
    """Of each partition the worst judged transaction."""
    found: dict[str, TxnHangingRow] = {}
    for r in answer.rows if answer else ():
        assert isinstance(r, TxnHangingRow)
        found.setdefault(f"{r.topic}:{r.partition}", r)  # the answer has the worst first
    return found


def _transactions(s: "Snapshot") -> TableData:
    """Every transactional id, with the worst verdict on what it has open; strays without an id."""
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
        rows.append(_listed_row(key, t, judged.pop(key, [])))
    rows += [_stray_row(key, found) for key, found in judged.items()]
    rows.sort(key=_urgency)
    answer = s.transactions
    return table_data(
        views.TRANSACTIONS.columns,
        rows,
        collected_at=answer.collected_at if answer else None,
        empty="no transactional ids" if answer else _waiting(s),
    )


def _listed_row(key: str, t: TxnListRow, found: Sequence[TxnHangingRow]) -> TableRow:
    h = found[0] if found else None
    late = bool(t.age_seconds and t.timeout_ms and t.age_seconds * 1000 > t.timeout_ms)
    sign = "?" if t.error else (mark(h.verdict) or "") if h else "!" if late else ""
    verdict = h.verdict if h else "-"
    return TableRow(
        key,
        (
            sign,
            visible(t.transactional_id, spaces=True) or '""',
            verdict,
            t.error or t.state or "-",
            _age(t.age_seconds, "coordinator"),
            "-" if t.timeout_ms is None else age_words(t.timeout_ms / 1000),
            _number(t.partitions),
            _number(t.producer_id),
            _number(t.producer_epoch),
            _number(t.coordinator),
        ),
        (
            None,
            t.transactional_id,
            None if h is None else ORDER.index(h.verdict),
            t.state,
            t.age_seconds,
            t.timeout_ms,
            t.partitions,
            t.producer_id,
            t.producer_epoch,
            t.coordinator,
        ),
        sign,
        h or t,
        ("timeline", t.transactional_id),
        h,
    )


def _stray_row(key: str, found: Sequence[TxnHangingRow]) -> TableRow:
    h = found[0]
    name = h.transactional_id
    said = f"(was {visible(name, spaces=True)})" if name else "(no owner)"
    sign = mark(h.verdict) or ""
    return TableRow(
        key,
        (
            sign,
            said,
            h.verdict,
            h.state or "-",
            _age(h.age_seconds, h.age_clock),
            "-",
            str(len(found)),
            _number(h.producer_id),
            _number(h.producer_epoch),
            "-",
        ),
        (
            None,
            said,
            ORDER.index(h.verdict),
            h.state,
            h.age_seconds,
            None,
            len(found),
            h.producer_id,
            h.producer_epoch,
            None,
        ),
        sign,
        h,
        ("why", f"{h.topic}:{h.partition}"),
        h,
    )


_URGENCY = {"!!": 0, "!": 1, "?": 2}


def _urgency(row: TableRow) -> int:
    return _URGENCY.get(row.mark, 3)


def _held_first(row: TableRow) -> tuple[int, float, bool]:
    """The worst first, then the oldest, then what is held at all."""
    r = row.source
    assert isinstance(r, LsoRow)
    seconds = r.blocking.age_seconds if r.blocking else None
    return _urgency(row), -(seconds or 0.0), not r.held


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(seconds: float | None, clock: str | None) -> str:
    if seconds is None:
        return ""
    return age_words(max(seconds, 0.0), producer_clock=clock == "producer")


def _waiting(s: "Snapshot") -> str:
    return "no answer yet" if s.problem else "waiting for the first answer"
