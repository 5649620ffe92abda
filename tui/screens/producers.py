"""The Producers screen: ids, epochs and sequences, partition by partition."""

from typing import TYPE_CHECKING

from eoctl.render.columns import inspect
from recovery.inspect.cluster_rows import ProducerRow
from recovery.values import replace
from tui.widgets.shared_rows import (
    AGE,
    Picked,
    Text,
    aged,
    answer_table,
    cells_of,
    since,
    table_row,
)
from tui.widgets.tables import MARK, TableData, TableRow

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


_producer = Picked(inspect.PRODUCERS)
COLUMNS = (
    MARK,
    _producer("partition", (16, 20, 40), "P", 2),
    _producer("producer_id", (7, 8, 12), "D"),
    _producer("producer_epoch", (5, 5, 5), "E"),
    _producer("last_sequence", (5, 8, 10), "Q"),
    _producer("current_txn_start_offset", (9, 10, 14), "T"),
    replace(AGE, title="WROTE"),
    _producer("transactional_id", (12, 16, 36), "I", 3),
    _producer("stale", (0, 6, 6), "Z", title=""),
)


def producers_table(s: "Snapshot", text: Text) -> TableData:
    """Return the table: zombies first."""
    answer = s.producers
    now = answer.collected_at if answer else 0
    rows: list[TableRow] = []
    for r in answer.rows if answer else ():
        assert isinstance(r, ProducerRow)
        rows.append(producer_row(r, now, text))
    return answer_table(COLUMNS, rows, "producers", answer, s)


def producer_row(r: ProducerRow, now: int, text: Text) -> TableRow:
    """Return the row of a producer on a partition."""
    name = str(r.topic_partition)
    sign = "?" if r.error else "!" if r.wrote_after_fence else ""
    age = aged(since(r.last_timestamp, now), producer_clock=True)
    opens = ("timeline", r.transactional_id) if r.transactional_id else ("why", name)
    cells = cells_of(COLUMNS, r, text, age=age)
    return table_row(f"{name}:{r.producer_id}", sign, cells, r, opens)
