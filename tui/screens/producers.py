"""The Producers screen: ids, epochs and sequences, partition by partition; and what grows.

What is counted are the rows of `producers --summary` and `txn list --summary`.
"""

from typing import TYPE_CHECKING

from eoctl.render.columns import inspect
from eoctl.render.columns.growth import PRODUCERS_SUMMARY, TXN_SUMMARY
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from eoctl.render.watch_words import growth_line, internal_topic_line
from recovery.inspect.cluster_rows import ProducerRow
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
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
    unseen_by_error,
    unseen_lines,
)
from tui.widgets.tables import MARK, TableData, TableRow, table_data

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer


_producer = Picked(inspect.PRODUCERS)
COLUMNS = (
    MARK,
    _producer("partition", 20, "P", 2),
    _producer("producer_id", 8, "D"),
    _producer("producer_epoch", 5, "E"),
    _producer("last_sequence", 8, "Q", worth=-1),
    _producer("current_txn_start_offset", 10, "T", worth=-1),
    replace(AGE, title="WROTE", worth=-1),
    _producer("transactional_id", 20, "I", 3, worth=1),
    _producer("stale", 6, "Z", title=""),
)


_count = Picked(PRODUCERS_SUMMARY)
COUNTS = (
    MARK,
    _count("by", 9, "B"),
    _count("name", 24, "N", 3, worth=1),
    _count("producer_states", 8, "S"),
    _count("producer_ids", 8, "D"),
    _count("partitions", 10, "P", worth=-1),
    _count("open", 6, "O"),
    _count("new_states", 6, "W"),
    _count("new_per_hour", 8, "H"),
)
_id = Picked(TXN_SUMMARY)
PREFIXES = (
    MARK,
    _id("prefix", 22, "P", 2),
    _id("transactional_ids", 7, "I"),
    _id("open", 6, "O"),
    _id("idle", 6, "L"),
    _id("oldest_idle", 11, "A"),
    _id("new_ids", 6, "W"),
    _id("new_per_hour", 8, "H"),
    _id("states", 20, "S", 3, worth=1),
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


def counts_table(s: "Snapshot", text: Text, *, replay: bool) -> TableData:
    """Return producers by broker, topic, partition and prefix, the most of each kind first."""
    answer = _counted(s, "producers-summary")
    rows: list[TableRow] = []
    for r in answer.rows if answer else ():
        assert isinstance(r, ProducersSummaryRow)
        opens = ("why", f"{r.topic}:{r.partition}") if r.by == "partition" else None
        sign = "?" if r.partitions_unseen or r.owner_known is False else ""
        key = f"{r.by}\0{r.broker}\0{r.topic}\0{r.partition}\0{r.prefix}\0{r.owner_known}"
        rows.append(table_row(key, sign, cells_of(COUNTS, r, text), r, opens))
    return _growth_table(COUNTS, rows, answer, replay=replay)


def prefixes_table(s: "Snapshot", text: Text, *, replay: bool) -> TableData:
    """Return ids by prefix, the most first; above these what grows and should not, below the
    internal topics."""
    answer = _counted(s, "txn-list-summary")
    extra = answer.extra if answer else {}
    rows = [
        _line(f"growth\0{number}", "!", found["topic"], growth_line(found), text)
        for number, found in enumerate(extra.get("growth") or ())
    ]
    for r in answer.rows if answer else ():
        assert isinstance(r, TxnSummaryRow)
        opens = None if r.oldest_idle_id is None else ("timeline", r.oldest_idle_id)
        cells = cells_of(PREFIXES, r, text)
        rows.append(table_row(f"prefix\0{r.prefix}", "", cells, r, opens))
    rows += [
        _line(f"topic\0{found['topic']}", "", found["topic"], internal_topic_line(found), text)
        for found in extra.get("internal_topics") or ()
    ]
    return _growth_table(PREFIXES, rows, answer, replay=replay)


def _counted(s: "Snapshot", schema: str) -> "Answer | None":
    return s.growth if s.growth is not None and s.growth.schema == schema else None


def _line(key: str, sign: str, name: str, says: str, text: Text) -> TableRow:
    """Return a row that says a sentence about a topic."""
    told = says.removeprefix(f"{name}: ")
    given = {"prefix": (text(name), name), "states": (text(told), told)}
    return table_row(key, sign, [given.get(c.key, ("", None)) for c in PREFIXES[1:]])


def _growth_table(
    columns: tuple[Column, ...], rows: list[TableRow], answer: "Answer | None", *, replay: bool
) -> TableData:
    """Return the table, and what could not be seen at its end."""
    for key, shown, e in unseen_lines(unseen_by_error(answer.errors if answer else ())):
        name = columns[1].key if columns is PREFIXES else columns[2].key
        given = {name: (visible(f"not seen: {shown} ({e.error})"), shown)}
        cells = [given.get(c.key, ("", None)) for c in columns[1:]]
        rows.append(table_row(key, "?", cells, e))
    at = answer.collected_at if answer else None
    waits = "this was not counted in the recording" if replay else "counting, in two snapshots"
    empty = waits if answer is None else "there is none"
    return table_data(columns, rows, collected_at=at, empty=empty)
