"""The first screen: what is wrong in words, and below it the list of problems, the worst first."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from eoctl.render.diagnose_words import contest_words, contests_of
from eoctl.render.words import age as age_words
from recovery.change.job_rows import JobRow
from recovery.change.journal_rows import JournalRow
from recovery.diagnose.diagnosis import ORDER, mark
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import BrokerRow, LsoRow, OffsetsShowRow
from recovery.plurals import counted
from tui.board.headline import (
    QUIET,
    at_the_lso,
    group_rows,
    running_jobs,
    sentences,
    stuck,
)
from tui.board.prospects import deleted_in, ends_in
from tui.screens import views
from tui.widgets.lines import Line
from tui.widgets.shared_rows import (
    Cell,
    Text,
    UnseenByError,
    aged,
    numbered,
    since,
    table_row,
    unseen_by_error,
    unseen_lines,
)
from tui.widgets.tables import TableData, TableRow, table_data, urgency
from tui.widgets.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

MOST_QUIET = 200  # healthy rows of the list; the Partitions screen has them all


NOTHING: Cell = ("-", None)
NO_TREND: Cell = ("", None)
ENDS = next(i for i, c in enumerate(views.OVERVIEW.columns[1:]) if c.key == "ends")
NO_END: tuple[Cell, Cell] = (("", None), ("", None))


def overview(
    s: "Snapshot",
    held: Mapping[str, LsoRow],
    hanging: Sequence[TxnHangingRow],
    trend: Trend,
    text: Text,
    *,
    ascii_only: bool,
) -> tuple[tuple[Line, ...], TableData]:
    """Return the sentences and the list. held: the held partitions by name."""

    ceiling = trend.ceiling

    def judged(h: TxnHangingRow) -> TableRow:
        spark = trend.line(h.where, 30, ceiling, ascii_only=ascii_only)
        return _judged(s, h, held.get(h.where), spark, text)

    rows = [judged(h) for h in hanging if h.verdict not in QUIET]
    rows += [_broker(b) for b in (s.brokers.rows if s.brokers else ()) if not _up(b)]
    unseen = _unseen(s)
    rows += _unseen_rows(unseen, text)
    rows += _contested(s, text)
    rows += _groups(s, hanging, text)
    rows += _unfinished(s, text)
    rows.sort(key=urgency)
    rows += [_job(j, s.taken_at, text) for j in running_jobs(s)]
    quiet = [h for h in hanging if h.verdict in QUIET]
    rows += map(judged, quiet[:MOST_QUIET])
    age = s.partitions.collected_at if s.partitions else None
    nothing = "nothing is held back and nothing is missing" if s.hanging else "judging"
    data = table_data(
        views.OVERVIEW.columns,
        rows,
        collected_at=age,
        empty=nothing if s.partitions else "waiting for the first answer",
        titles={"trend": f"^{ceiling}"} if ceiling else {},
    )
    return sentences(s, held, hanging, sum(map(len, unseen.values()))), data


def _acts(h: TxnHangingRow) -> str:
    if h.remedy.action != "none":
        return f"; {h.remedy.action}"
    left = None if h.ends is None else h.ends.otherwise.code
    return {"look-again": ", not known: look again", "wait-for-id": ", its id comes first"}.get(
        left or "", ", no safe remedy: ask"
    )


def _judged(
    s: "Snapshot", h: TxnHangingRow, row: LsoRow | None, spark: str, text: Text
) -> TableRow:
    name = h.where
    owner = h.transactional_id or f"pid {h.producer_id}, no owner"
    says = owner if h.verdict in QUIET else f"{owner}{_acts(h)}"
    amount = row.held if row else None
    seconds = h.age_seconds
    by_producer = h.age_clock == "producer"
    cells: list[Cell] = [
        ("marker-lost mixed" if h.mixed else h.verdict, ORDER.index(h.verdict)),
        (text(name), (h.topic or name, h.partition or 0)),
        numbered(amount),
        (spark, None),
        ("" if seconds is None else age_words(seconds, producer_clock=by_producer), seconds),
        ends_in(s, h),
        deleted_in(s, h),
        (text(says), says),
    ]
    key = f"txn\0{name}\0{h.producer_id}"
    return table_row(key, mark(h.verdict) or "", cells, h, ("why", name), h)


def _plain(what: Cell, where: str, age: Cell, says: Cell, text: Text) -> list[Cell]:
    """Return the cells of a row that is about no open transaction: it holds nothing."""
    return [what, (text(where), (where, 0)), NOTHING, NO_TREND, age, *NO_END, says]


def _contested(s: "Snapshot", text: Text) -> list[TableRow]:
    """Return a line for each id whose owners fence each other, or whose owner restarts for ever."""
    rows = []
    for c in contests_of(s.hanging):
        says = contest_words(c, s.taken_at)
        what = ("contested-id", -1)
        age = aged(since(c.since, s.taken_at))
        cells = _plain(what, c.transactional_id, age, (text(says), says), text)
        key = f"contest\0{c.transactional_id}"
        rows.append(table_row(key, "!!", cells, c, ("why", f"id {c.transactional_id}")))
    return rows


def _job(j: JobRow, now: int, text: Text) -> TableRow:
    done = f"{j.records / j.records_total:.0%}" if j.records is not None and j.records_total else ""
    says = ", ".join(filter(None, (done, j.stage, j.summary)))
    what = ("job running", len(ORDER) + 4)
    cells = _plain(what, j.id, aged(since(j.started, now)), (text(says), says), text)
    if j.eta_seconds is not None:
        left = max(j.eta_seconds, 0.0)
        cells[ENDS] = age_words(left), left
    return table_row(f"job\0{j.id}", "", cells, j, ("job", f"job {j.id}"))


def _unfinished(s: "Snapshot", text: Text) -> list[TableRow]:
    """Return changes that were begun and not ended: the journal resumes or undoes them."""
    rows = []
    for e in s.journal.rows if s.journal else ():
        if not isinstance(e, JournalRow) or e.state != "unfinished":
            continue
        age = aged(since(e.started, s.taken_at))
        what = ("unfinished", len(ORDER) + 3)
        cells = _plain(what, e.id, age, (text(e.summary), e.summary), text)
        rows.append(table_row(f"entry\0{e.id}", "!", cells, e, ("change", e.id)))
    return rows


def _up(b: object) -> bool:
    return isinstance(b, BrokerRow) and bool(b.up)


def _broker(b: object) -> TableRow:
    assert isinstance(b, BrokerRow)
    says = f"{b.host}:{b.port} does not answer" if b.port else "named by partitions, not listed"
    name = f"broker {b.broker}"
    cells = _plain(("broker down", len(ORDER)), name, aged(None), (says, says), str)
    return table_row(f"broker\0{b.broker}", "!!", cells, b)


def _unseen(s: "Snapshot") -> UnseenByError:
    """Return what no answer could see: by kind and error, then by name."""
    answers = (s.partitions, s.transactions, s.groups, s.producers, s.hanging)
    errors = [e for answer in answers for e in (answer.errors if answer else ())]
    # the transaction of an unknown verdict is in the list already
    return unseen_by_error(e for e in errors if e.error != "UNKNOWN_VERDICT")


def _unseen_rows(unseen: UnseenByError, text: Text) -> Iterable[TableRow]:
    for key, shown, e in unseen_lines(unseen):
        what = ("not seen", len(ORDER) + 1)
        says = (text(f"{e.detail} ({e.error})"), e.detail)
        cells = _plain(what, shown, aged(None), says, text)
        yield table_row(key, "?", cells, e)


def _groups(s: "Snapshot", hanging: Sequence[TxnHangingRow], text: Text) -> list[TableRow]:
    """Return the groups that are at an LSO, one line each, for their worst partition."""
    worst: dict[str, OffsetsShowRow] = {}
    more: dict[str, int] = {}
    for g in group_rows(s):
        if not stuck(g, hanging):
            continue
        more[g.group] = more.get(g.group, 0) + 1
        known = worst.get(g.group)
        if known is None or (g.lag_hw or 0) > (known.lag_hw or 0):
            worst[g.group] = g
    rows = []
    for name, g in worst.items():
        partition = str(g.topic_partition)
        says = (
            f"is at the LSO of {partition}"
            if at_the_lso(g)
            else f"a commit for {partition} is pending"
        )
        if more[name] > 1:
            says += f" and {counted(more[name] - 1, 'other')}"
        cells: list[Cell] = [
            ("group held up" if at_the_lso(g) else "group pending", len(ORDER) + 2),
            (text(name), (name, 0)),
            numbered(g.lag_hw),
            NO_TREND,
            aged(None),
            *NO_END,
            (text(says), says),
        ]
        rows.append(table_row(f"group\0{name}", "!", cells, g, ("why", partition)))
    return sorted(rows, key=lambda r: -(r.sort[3] or 0))  # type: ignore[operator]
