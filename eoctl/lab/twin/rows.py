"""What `lab twin` and `lab rehearse` print: verdicts side by side, and their columns."""

from eoctl.render.columns.table import TRANSACTIONAL_ID, Table, marked, plain
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.plurals import counted
from recovery.row import Row


class TwinRow(Row):
    """One open transaction, or one id that holds no partition: its verdicts in bundle and twin.

    partition: null of such an id. bundle, twin: verdict and rule; null: there is no such
    transaction. because: why they differ where that was to be expected, else null.
    """

    topic: str | None
    partition: int | None
    transactional_id: str | None
    producer_id: int | None
    start_offset: int | None
    bundle: str | None
    twin: str | None
    equal: bool
    because: str | None


class RehearsalRow(Row):
    """One open transaction, or one partition of a group that a restart moves, before and after.

    verdict_before, verdict_after: with the rule; null: no such transaction. held_before,
    held_after: offsets of its partition from the LSO to the high watermark; null: not seen, or an
    id without a partition. group, offset_before, offset_after: of a restart's plan, what the group
    had and has committed; null: nothing, or a row of a transaction.
    """

    topic: str | None
    partition: int | None
    transactional_id: str | None = None
    producer_id: int | None = None
    start_offset: int | None = None
    verdict_before: str | None = None
    verdict_after: str | None = None
    held_before: int | None = None
    held_after: int | None = None
    group: str | None = None
    offset_before: int | None = None
    offset_after: int | None = None


def _equal(answer: Answer) -> str:
    rows = [row for row in answer.rows if isinstance(row, TwinRow)]
    differing = sum(not row.equal for row in rows)
    return f"{counted(len(rows), 'verdict')}, {len(rows) - differing} as in the bundle"


_ABOUT = (
    Column("topic", "TOPIC", "name"),
    Column("partition", "P", "number"),
    Column("producer_id", "PID", "number"),
    Column("start_offset", "FROM", "number"),
    TRANSACTIONAL_ID,
)

TWIN = Table(
    TwinRow,
    (
        marked(lambda row: None if row.equal else "!"),
        *_ABOUT,
        *plain("text", bundle="IN THE BUNDLE", twin="ON THE TWIN", because="BECAUSE"),
    ),
    names=("topic", "partition", "transactional_id"),
    summary=_equal,
)


def _after(row: RehearsalRow) -> str | None:
    """The verdict afterwards; ended only where the partition was seen without the transaction."""
    if row.group is not None:
        return None
    unseen = row.partition is not None and row.held_after is None
    return row.verdict_after or (None if unseen else "ended")


REHEARSAL = Table(
    RehearsalRow,
    (
        *_ABOUT,
        Column("verdict_before", "VERDICT BEFORE", "text"),
        Column("verdict_after", "VERDICT AFTER", "text", _after),
        *plain("number", held_before="HELD", held_after="HELD AFTER"),
        Column("group", "GROUP", "name"),
        *plain("number", offset_before="OFFSET", offset_after="OFFSET AFTER"),
    ),
    names=("topic", "partition", "transactional_id"),
    summary=lambda answer: str(answer.extra["outcome"]),
)
