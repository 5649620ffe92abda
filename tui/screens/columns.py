"""The columns of each screen: those of the tables in eoctl/render/columns, and how wide."""

from dataclasses import replace
from typing import Any

from eoctl.render.columns import change, inspect, jobs
from eoctl.render.columns.table import Table
from eoctl.render.tables import Column
from tui.screens.views import MARK


class _Of:
    """Takes columns of a command's table by their keys, with their widths, letter and grow."""

    def __init__(self, table: Table) -> None:
        self._known = {column.key: column for column in table.columns}

    def __call__(
        self, key: str, widths: tuple[int, int, int], letter: str, grow: int = 0, **other: Any
    ) -> Column:
        return replace(self._known[key], widths=widths, letter=letter, grow=grow, **other)


_lso, _txn, _producer = _Of(inspect.LSO), _Of(inspect.TXN_LIST), _Of(inspect.PRODUCERS)
_group, _entry, _job = _Of(inspect.OFFSETS), _Of(change.JOURNAL), _Of(jobs.JOBS)
_AGE = Column("age", "AGE", "age", widths=(6, 7, 7), letter="A")

COLUMNS: dict[str, tuple[Column, ...]] = {
    "partitions": (
        MARK,
        _lso("partition", (15, 20, 40), "P", 3),
        _lso("last_stable_offset", (6, 10, 14), "L"),
        _lso("high_watermark", (6, 10, 14), "W"),
        _lso("held", (6, 8, 10), "H"),
        Column("trend", "TREND", "spark", widths=(6, 10, 30)),
        _lso("age", (6, 7, 7), "A"),
        _lso("held_by", (10, 16, 30), "B", 5),
        _lso("leader", (0, 0, 6), "R"),
    ),
    "transactions": (
        MARK,
        _txn("transactional_id", (14, 18, 40), "I", 3),
        Column("verdict", "VERDICT", widths=(11, 12, 17), letter="V"),
        _txn("state", (14, 14, 17), "S"),
        _txn("age", (6, 7, 7), "A"),
        _txn("timeout", (7, 7, 7), "T"),
        _txn("partitions", (5, 5, 5), "P"),
        _txn("producer_id", (0, 7, 10), "D"),
        _txn("producer_epoch", (0, 5, 5), "E"),
        _txn("coordinator", (0, 0, 5), "O"),
    ),
    "producers": (
        MARK,
        _producer("partition", (16, 20, 40), "P", 2),
        _producer("producer_id", (7, 8, 12), "D"),
        _producer("producer_epoch", (5, 5, 5), "E"),
        _producer("last_sequence", (5, 8, 10), "Q"),
        _producer("current_txn_start_offset", (9, 10, 14), "T"),
        replace(_AGE, title="WROTE"),
        _producer("transactional_id", (12, 16, 36), "I", 3),
        _producer("stale", (0, 6, 6), "Z", title=""),
    ),
    "groups": (
        MARK,
        _group("group", (12, 18, 34), "R", 2),
        _group("partition", (15, 20, 36), "P", 2),
        _group("committed_offset", (9, 10, 14), "O"),
        _group("last_stable_offset", (0, 0, 14), "L"),
        _group("lag", (6, 7, 10), "N"),
        _group("lag_hw", (6, 7, 10), "H"),
        _group("pending", (7, 7, 7), "X"),
        Column("state", "STATE", widths=(7, 8, 12), letter="S"),
    ),
    "plans": (
        MARK,
        _entry("id", (16, 22, 26), "I", 1, title="PLAN OR ENTRY", kind="name"),
        _entry("state", (10, 10, 11), "S"),
        _entry("action", (7, 9, 12), "A"),
        _entry("context", (0, 10, 16), "X", 1),
        _entry("scope", (12, 16, 26), "W", 2),
        _entry("steps", (5, 5, 5), "E"),
        replace(_AGE, letter="O"),
        _entry("user", (0, 0, 16), "B"),
        _entry("summary", (0, 20, 40), "", 3),
    ),
    "jobs": (
        MARK,
        _job("id", (14, 20, 20), "I", 1, kind="name"),
        _job("state", (9, 9, 10), "S"),
        _job("job", (8, 8, 10), "D"),
        _job("stages", (12, 14, 22), "T", kind="text"),
        _job("records", (8, 10, 12), "R"),
        Column("rate", "REC/S", "number", widths=(6, 8, 10), letter="P"),
        _job("eta", (0, 6, 6), "L", title="LEFT"),
        replace(_AGE, widths=(6, 6, 6)),
        _job("what", (0, 14, 40), "", 3),
    ),
}
