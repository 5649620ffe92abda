"""Turn a snapshot into what the screens show: rows of safe text, in the feed's thread.

A Frame is frozen; the app only draws it. Rows whose model did not change are the same objects as in
the frame before, so nothing is made or drawn twice.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow
from recovery.values import Value, replace
from tui.board import STALE_INTERVALS
from tui.board.headline import group_rows
from tui.board.history import Board, History
from tui.board.samples import Sample, sample_of
from tui.screens import plan_and_job_lists
from tui.screens.doctor import doctor_table
from tui.screens.groups import groups_table
from tui.screens.overview import overview
from tui.screens.partitions import partitions_table
from tui.screens.producers import counts_table, prefixes_table, producers_table
from tui.screens.transactions import transactions_table
from tui.widgets.heat import mapped
from tui.widgets.tables import TableData, TableRow
from tui.widgets.text import safe
from tui.widgets.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer
    from recovery.change.job_rows import JobRow


class Frame(Value, eq=False):
    """One snapshot and its tables by view name. says: the overview's sentences with their roles.

    groups: what was committed on partitions with an open transaction, by TOPIC:P.
    """

    snapshot: "Snapshot"
    tables: Mapping[str, TableData]
    says: tuple[tuple[tuple[str, str], ...], ...]
    board: Board
    groups: Mapping[str, Sequence[OffsetsShowRow]]
    position: tuple[int, int] | None = None  # in a recording: number of the frame and of all
    mapped: tuple[TableRow, ...] = ()  # held partitions, if they are many
    troubled: tuple[bool, ...] = ()  # in a recording: whether each of all has a finding
    times: tuple[int, ...] = ()  # and when each was taken, epoch ms


class Builder:
    """Makes frames; remembers the trend and the previous frame's rows."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self.ascii_only = ascii_only
        # the app drops the frame before the last: kept until then, its many rows die in the
        # feed's thread and not between a key and its repaint
        self._recent: deque[Frame] = deque(maxlen=3)
        self.forget()

    def forget(self) -> None:
        """Start over, for another cluster or another place in a recording."""
        self.trend = Trend()
        self.history = History()
        self._held: dict[str, LsoRow] = {}
        self._last: Answer | None = None
        self._earlier: Snapshot | None = None
        self._recent.clear()
        self._reports: dict[str, tuple[int, int, float | None]] = {}

    def frame(
        self,
        s: "Snapshot",
        position: tuple[int, int] | None = None,
        sample: Sample | None = None,
    ) -> Frame:
        """Return the frame of a snapshot. position, sample: in a recording (see `feed`)."""
        self.feed(s, sample)
        tables = {
            "partitions": partitions_table(
                s, self.trend, self._before("partitions"), self.text, ascii_only=self.ascii_only
            ),
            "transactions": transactions_table(s, self.text),
            "producers": producers_table(s, self.text),
            "counts": counts_table(s, self.text, replay=position is not None),
            "prefixes": prefixes_table(s, self.text, replay=position is not None),
            "groups": groups_table(s, self._before("groups"), self.text),
            "plans": plan_and_job_lists.plans_table(s, self.text),
            "jobs": plan_and_job_lists.jobs_table(
                s, self._rate, self.text, ascii_only=self.ascii_only
            ),
            "doctor": doctor_table(s, self.text, replay=position is not None),
        }
        hanging = cast("Sequence[TxnHangingRow]", s.hanging.rows if s.hanging else ())
        says, tables["overview"] = overview(
            s, self._held, hanging, self.trend, self.text, ascii_only=self.ascii_only
        )
        board = self.history.board(s, hanging, self.text, ascii_only=self.ascii_only)
        known = self._recent[-1].mapped if self._recent else ()
        held = mapped(tables["partitions"].rows, known)
        frame = Frame(s, tables, says, board, _groups(s, hanging), position, held)
        self._recent.append(frame)
        return frame

    def of_viewer(self, frame: Frame, s: "Snapshot") -> Frame:
        """Return a frame with one viewer's pages. s: the frame's snapshot with these."""
        own = {
            "counts": counts_table(s, self.text, replay=False),
            "prefixes": prefixes_table(s, self.text, replay=False),
            "doctor": doctor_table(s, self.text, replay=False),
        }
        return replace(frame, snapshot=s, tables={**frame.tables, **own})

    def text(self, value: str) -> str:
        """Return text that is safe to draw."""
        return safe(value, ascii_only=self.ascii_only)

    def feed(self, s: "Snapshot", sample: Sample | None = None) -> None:
        """Remember what is held, for the trend, and the jobs' progress; an answer counts once.

        sample: what the snapshot adds to the pictures, if a recording knows it already.
        """
        for job in s.jobs.rows if s.jobs else ():
            self._rate(cast("JobRow", job))
        answer = s.partitions
        if answer is not None and answer is not self._last:
            self._last = answer
            self._held = {
                str(r.topic_partition): r for r in cast("Sequence[LsoRow]", answer.rows) if r.held
            }
            held = {name: r.held or 0 for name, r in self._held.items()}
            joins_ms = int(STALE_INTERVALS * s.intervals.get("look", 0) * 1000)
            self.trend.add(answer.collected_at, held, joins_ms=joins_ms)
        self.history.add(s, sample or sample_of(s, self._earlier))
        self._earlier = s

    def recall(self, sample: Sample | None, brief: "Snapshot | None") -> None:
        """Remember an earlier snapshot of a recording. brief: as `Recording` keeps it, if near."""
        if brief is not None:
            self.feed(brief, sample)
        elif sample is not None:
            self.history.samples.add(sample)

    def _rate(self, job: "JobRow") -> float | None:
        """Return records a second between the last two reports of a running job."""
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


def _groups(
    s: "Snapshot", hanging: Sequence[TxnHangingRow]
) -> Mapping[str, Sequence[OffsetsShowRow]]:
    """Return what groups have committed where a transaction is open."""
    found: dict[str, list[OffsetsShowRow]] = {h.where: [] for h in hanging}
    for g in group_rows(s):
        if (rows := found.get(str(g.topic_partition))) is not None:
            rows.append(g)
    return found
