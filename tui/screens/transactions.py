"""The Transactions screen: every transactional id, with a verdict on its open transaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoctl.render.columns import inspect
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from recovery.diagnose.diagnosis import ORDER, mark
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import TxnListRow
from tui.widgets.shared_rows import Picked, Text, aged, answer_table, cells_of, numbered, table_row
from tui.widgets.tables import MARK, TableData, TableRow

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


_txn = Picked(inspect.TXN_LIST)
COLUMNS = (
    MARK,
    _txn("transactional_id", 24, "I", 3),
    Column("verdict", "VERDICT", "word", usual=12, worth=1, letter="V"),
    _txn("state", 14, "S", worth=1),
    _txn("age", 7, "A", worth=1),
    _txn("timeout", 7, "T"),
    _txn("partitions", 5, "P"),
    _txn("producer_id", 7, "D"),
    _txn("producer_epoch", 5, "E"),
    _txn("coordinator", 5, "O"),
)


def transactions_table(s: "Snapshot", text: Text) -> TableData:
    """Return all transactional ids with their worst verdict, then transactions without an id."""
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
        rows.append(listed_row(key, t, judged.pop(key, []), text))
    rows += [stray_row(key, found) for key, found in judged.items()]
    answer = s.transactions
    return answer_table(COLUMNS, rows, "ids", answer, s)


def listed_row(key: str, t: TxnListRow, found: Sequence[TxnHangingRow], text: Text) -> TableRow:
    """Return the row of a transactional id, with the worst verdict on its open transactions."""
    h = found[0] if found else None
    late = bool(t.age_seconds and t.timeout_ms and t.age_seconds * 1000 > t.timeout_ms)
    sign = "?" if t.error else (mark(h.verdict) or "") if h else "!" if late else ""
    verdict = (h.verdict, ORDER.index(h.verdict)) if h else ("-", None)
    state = (t.error or t.state or "-", t.state)
    cells = cells_of(COLUMNS, t, text, verdict=verdict, state=state)
    return table_row(key, sign, cells, h or t, ("timeline", t.transactional_id), h)


def stray_row(key: str, found: Sequence[TxnHangingRow]) -> TableRow:
    """Return the row of an open transaction that no transactional id owns."""
    h = found[0]
    name = h.transactional_id
    said = f"(was {visible(name, spaces=True)})" if name else f"pid {h.producer_id}, no owner"
    cells = cells_of(
        COLUMNS,
        h,
        str,
        transactional_id=(said, said),
        verdict=(h.verdict, ORDER.index(h.verdict)),
        state=(h.state or "-", h.state),
        age=aged(h.age_seconds, h.age_clock == "producer"),
        timeout=("-", None),
        partitions=numbered(len(found)),
        coordinator=("-", None),
    )
    return table_row(key, mark(h.verdict) or "", cells, h, ("why", h.where), h)
