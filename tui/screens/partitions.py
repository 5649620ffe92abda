"""The Partitions screen: what readers see of each partition, and what holds it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from eoctl.render.columns import inspect
from eoctl.render.tables import Column
from recovery.diagnose.diagnosis import mark
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow
from tui.widgets.shared_rows import Cell, Picked, Text, cells_of, nothing, table_row
from tui.widgets.tables import MARK, TableData, TableRow, table_data, urgency
from tui.widgets.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer


_lso = Picked(inspect.LSO)
COLUMNS = (
    MARK,
    _lso("partition", 20, "P", 3),
    _lso("last_stable_offset", 10, "L", worth=1),
    _lso("high_watermark", 10, "W", worth=1),
    _lso("held", 8, "H", worth=3),
    Column("trend", "TREND", "spark", usual=10, worth=-2),
    _lso("age", 7, "A", worth=2),
    _lso("held_by", 16, "B", 5, worth=2),
    _lso("leader", 6, "R", worth=-1),
)
SPARK = next(i for i, c in enumerate(COLUMNS) if c.kind == "spark")


def partitions_table(
    s: "Snapshot", trend: Trend, before: Mapping[str, TableRow], text: Text, *, ascii_only: bool
) -> TableData:
    """Return the table: what is held first, the worst before the others."""
    answer = s.partitions
    ceiling = trend.ceiling
    verdicts = worst_verdicts(s.hanging)
    first: list[TableRow] = []
    rest: list[TableRow] = []
    for r in cast("list[LsoRow]", answer.rows if answer else ()):
        name = str(r.topic_partition)
        verdict = verdicts.get(name) if r.held else None
        spark = trend.line(name, 30, ceiling, ascii_only=ascii_only)
        row = before.get(name)
        if row is None or row.cells[SPARK] != spark or row.judged != verdict or row.source != r:
            row = partition_row(r, name, verdict, spark, text)
        (first if r.held or row.mark else rest).append(row)
    first.sort(key=_held_first)
    return table_data(
        COLUMNS,
        [*first, *rest],
        collected_at=answer.collected_at if answer else None,
        empty=nothing("topics that this user may see", answer, s),
        titles={"trend": f"^{ceiling}"} if ceiling else {},
    )


def partition_row(
    r: LsoRow, name: str, verdict: TxnHangingRow | None, spark: str, text: Text
) -> TableRow:
    """Return a partition's row; verdict: the worst judged transaction that holds it."""
    given: dict[str, Cell] = {"trend": (spark, None)}
    if verdict is not None and not r.error:
        held_by = verdict.transactional_id or f"pid {verdict.producer_id}, no owner"
        given["held_by"] = text(held_by), held_by
    elif r.blocking is None and r.blocking_known and not r.error:
        given["held_by"] = "", None
    unknown = r.error or (verdict is None and not r.blocking_known)
    sign = "?" if unknown else mark(verdict.verdict) or "" if verdict else ""
    cells = cells_of(COLUMNS, r, text, **given)
    return table_row(name, sign, cells, r, ("why", name), verdict)


def worst_verdicts(answer: "Answer | None") -> dict[str, TxnHangingRow]:
    """Return the worst judged transaction of each partition."""
    by_partition: dict[str, TxnHangingRow] = {}
    for r in answer.rows if answer else ():
        assert isinstance(r, TxnHangingRow)
        by_partition.setdefault(r.where, r)  # the answer has the worst first
    return by_partition


def _held_first(row: TableRow) -> tuple[int, float, bool]:
    """Return a sort key: the worst first, then the oldest, then any other held partition."""
    r = row.source
    assert isinstance(r, LsoRow)
    seconds = r.blocking.age_seconds if r.blocking else None
    return urgency(row), -(seconds or 0.0), not r.held
