"""The story beside a list: what the snapshot knows of the cursor's row, then what its page does.

It is the page of `why` in another order: what decides comes first, and its evidence last.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eoctl.render.diagnose_words import lag_words, stuck_words, wait_words
from eoctl.render.why import judged_parts, seen_parts
from recovery.change.job_rows import JobRow
from recovery.change.journal_rows import JournalRow, PlanFileRow
from recovery.diagnose.diagnosis_rows import ContestRow, TxnHangingRow
from recovery.diagnose.prospect import Prospect
from recovery.diagnose.why_rows import WaitRow, WhyRow
from recovery.doctor.doctor_rows import DoctorRow
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow
from recovery.values import Value
from tui.board.headline import QUIET
from tui.board.prospects import known_prospect
from tui.screens import plan_and_job_pages
from tui.screens.doctor import finding_lines
from tui.screens.pages import closing_lines, contest_lines, headline, labelled_lines
from tui.screens.plan_and_job_lists import rate_of
from tui.widgets.lines import Line
from tui.widgets.strip import strip_page
from tui.widgets.tables import TableData, TableRow, title_of

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


class Known(Value, eq=False):
    """What stories are made of.

    partitions, groups: by TOPIC:P; groups only where one is open. jobs: by their ids.
    """

    s: "Snapshot"
    partitions: Mapping[str, TableRow]
    groups: Mapping[str, Sequence[OffsetsShowRow]]
    jobs: Mapping[str, TableRow] = {}


SHORT = {"topic:partition": "partition", "transactional id": "id"}
"""Labels for titles that are longer than a label may be."""

DECIDES = frozenset(
    {
        "error",
        "do",
        "readers see",
        "id",
        "held by",
        "groups",
        "if you wait",
        "at stake",
        "remedy",
        "but",
    }
)
"""The labels of what comes first, in the order of `why`."""


def page_of(row: TableRow | None) -> str | None:
    """Return what the story's page of `why` is about; None if the snapshot says everything."""
    if row is None or row.opens is None:
        return None
    kind, about = row.opens
    judged = row.judged
    if judged is not None:
        return None if judged.verdict in QUIET else judged.where
    return about if kind == "why" and row.mark else None


def log_of(row: TableRow | None) -> str | None:
    """Return the partition whose log is drawn in the story."""
    if row is None:
        return None
    if row.judged is not None:
        return row.judged.where if row.judged.topic is not None else None
    return str(row.source.topic_partition) if isinstance(row.source, LsoRow) else None


def answered(s: "Snapshot", row: TableRow) -> WhyRow | None:
    """Return the page of the row's transaction; None until it has answered about this one."""
    return recorded_why(s, row) if s.why_about == page_of(row) else None


def recorded_why(s: "Snapshot", row: TableRow) -> WhyRow | None:
    """Return what the newest page of why says of the row's transaction, whatever was asked."""
    for found in s.why.rows if s.why is not None else ():
        if isinstance(found, WhyRow) and _same(found.held_by, row.judged):
            return found
    return None


def _same(one: TxnHangingRow | None, other: TxnHangingRow | None) -> bool:
    """Return True if both are one transaction, judged alike."""
    if one is None or other is None:
        return one is other
    return (one.where, one.producer_id, one.start_offset, one.verdict) == (
        other.where,
        other.producer_id,
        other.start_offset,
        other.verdict,
    )


def story_lines(known: Known, data: TableData, row: TableRow, width: int) -> list[Line]:
    """Return the story of a row. data: its table; its titles name the facts of what has none."""
    s, source, judged = known.s, row.source, row.judged
    if isinstance(source, ContestRow):
        return contest_lines(source, s.taken_at, width)
    if isinstance(source, (JournalRow, PlanFileRow, JobRow)):
        rate = rate_of(known.jobs, source.id) if isinstance(source, JobRow) else None
        return plan_and_job_pages.beside(source, width, rate)
    if isinstance(source, DoctorRow):
        return finding_lines(source, width)
    log = _log(s, log_of(row), width)
    if judged is None:
        return [*_facts(data, row, width), *log]
    return _told(s, answered(s, row) or seen_story(known, judged), log, width)


def gone_lines(data: TableData, row: TableRow, width: int) -> list[Line]:
    """Return what a row was that is no longer in its list."""
    return [
        ((" no longer in the list; the last that was seen:", "dim"),),
        *_facts(data, row, width),
    ]


def _told(s: "Snapshot", row: WhyRow, log: Sequence[Line], width: int) -> list[Line]:
    """Return a story: what decides, the log where it was read, what to run, then the rest."""
    first: list[tuple[str, str]] = []
    rest: list[tuple[str, str]] = []
    block = rest
    for label, text in (*seen_parts(row, s.taken_at), *judged_parts(row, s.taken_at)):
        if label:  # a part without a label continues the one before
            block = first if label in DECIDES else rest
        block.append((label, text))
    return [
        headline(row, row.headline),
        *labelled_lines(first, width),
        *log,
        *(closing_lines(row, width) if row.samples else ()),
        *labelled_lines(rest, width),
    ]


def _log(s: "Snapshot", log: str | None, width: int) -> list[Line]:
    """Return the drawing of a partition's log, once it was read."""
    if log is None or s.strip is None or s.strip_about != log:
        return []
    return strip_page(s, log, width, listed=False)


def _facts(data: TableData, row: TableRow, width: int) -> list[Line]:
    """Return the cells of a row without cutting any."""
    found = []
    for number, column in enumerate(data.columns):
        text, title = row.cells[number].strip(), title_of(data, number).lower() or column.key
        if column.kind not in ("mark", "spark") and text not in ("", "-"):
            found.append((SHORT.get(title, title), text))
    return labelled_lines(found, width, safe=True)


def seen_story(known: Known, h: TxnHangingRow) -> WhyRow:
    """Return what the snapshot knows of a transaction, as a page of `why` without its counts.

    samples is 0: it is no page yet.
    """
    prospect = known_prospect(known.s, h)
    place = known.partitions.get(h.where)
    lso = place.source if place is not None and isinstance(place.source, LsoRow) else None
    return WhyRow(
        topic=h.topic,
        topic_id=h.topic_id,
        partition=h.partition,
        leader=h.leader,
        stuck=None if h.verdict == "unknown" else h.verdict not in QUIET,
        headline=stuck_words("marker-lost, mixed" if h.mixed else h.verdict),
        log_start_offset=lso.log_start_offset if lso else None,
        last_stable_offset=lso.last_stable_offset if lso else None,
        high_watermark=lso.high_watermark if lso else None,
        held=lso.held if lso else None,
        waiting=None,
        held_by=h,
        others=[],
        owner=None,
        history=[],
        groups=None,
        groups_said=_groups_said(h, known.groups.get(h.where, ())),
        if_you_wait=None if prospect is None else _waits(prospect, known.s.taken_at),
        samples=0,
        brokers_up=0,
        brokers_known=0,
        transactional_id=h.transactional_id,
        error=h.error,
    )


def _waits(p: Prospect, now: int) -> WaitRow:
    left = None if p.ends_in is None else p.ends_in / 1000
    return WaitRow(
        said=wait_words(p, now),
        ends_at=p.ends_at,
        deleted_at=p.deleted_at,
        ending=p.ending,
        ends_in_seconds=left,
    )


def _groups_said(h: TxnHangingRow, rows: Sequence[OffsetsShowRow]) -> str:
    words = [
        f"{g.group} ({lag_words(g.lag, g.lag_hw)}{', commit pending' if g.pending else ''})"
        for g in rows
    ]
    named = {g.group for g in rows}
    words += [f"{name} (its commit is pending)" for name in h.groups if name not in named]
    if h.topic is None:
        return "none: it holds no partition, so no reader waits for it"
    return ", ".join(words) or "none is known to have committed an offset here"
