"""Make the pictures of the samples: which lines they have, in which colours, with which marks."""

from collections.abc import Callable, Collection, Iterable, Sequence

from recovery.change.journal_rows import JournalRow
from recovery.diagnose.decided import STEP_MS
from recovery.plurals import counted
from recovery.times import rfc3339
from recovery.values import Value
from tui.board.samples import Ended, Sample
from tui.widgets.charts import LEAST_SAMPLES, Picture, Series
from tui.widgets.text import safe

COLOURS = ("series1", "series2", "series3", "series4")
OTHERS = "dim"
MINUTE_MS = 60_000
LATE_MS = 30_000  # between two counts of decisions: longer is a gap
AT_ONCE_MS = 600_000  # so far back decisions are drawn from the first judgement on
MOVED = "c"

Points = list[tuple[int, tuple[float | None, ...]]]
Marks = tuple[tuple[int, str], ...]


class Colours:
    """Gives each topic a colour, which it keeps as long as it is drawn."""

    def __init__(self) -> None:
        self._roles: dict[str, str] = {}

    def of(self, names: Sequence[str]) -> dict[str, str]:
        """Return the roles of these names, at most as many as there are colours."""
        kept = {name: role for name, role in self._roles.items() if name in names}
        free = [role for role in COLOURS if role not in kept.values()]
        for name in names:
            if name not in kept:
                kept[name] = free.pop(0)
        self._roles = kept
        return kept


class Drawing(Value, eq=False):
    """What all pictures of a frame share."""

    samples: tuple[Sample, ...]
    marks: Marks
    ascii_only: bool

    def picture(
        self,
        title: str,
        points: Points,
        names: Sequence[tuple[str, str]],
        few: str,
        *,
        seconds: bool = False,
    ) -> Picture:
        """Return a picture. points: per time a value of each line; names: the lines, with roles."""
        times = tuple(at for at, _ in points)
        lines = zip(*(values for _, values in points), strict=True) if points else ()
        series = tuple(
            Series(safe(name, ascii_only=self.ascii_only), role, values)
            for (name, role), values in zip(names, lines, strict=False)
        )
        return Picture(title, times, series, few, self.marks, seconds, self.ascii_only)


def marks_of(samples: Iterable[Sample], changes: Iterable[JournalRow]) -> Marks:
    """Return when leaders or coordinators moved, and when changes began: their first letters."""
    moved = [(s.at, MOVED) for s in samples if s.moved]
    begun = [(e.started, e.action[:1]) for e in changes if e.started is not None]
    return tuple(sorted(moved + begun))


def held_picture(d: Drawing, first: Collection[str], colours: Colours) -> Picture:
    """Return the records held by topic. first: topics that get a line before all others."""
    peaks: dict[str, int] = {}
    for s in d.samples:
        for name, held in s.held.items():
            if held > peaks.get(name, 0):
                peaks[name] = held
    order = sorted(peaks, key=lambda name: (name not in first, -peaks[name], name))
    topics = order[: len(COLOURS)]
    roles = colours.of(topics)
    names = [(name, roles[name]) for name in topics]
    if len(order) > len(topics):
        names.append(("others", OTHERS))

    def values(s: Sample) -> tuple[float | None, ...]:
        own = [s.held_of(name) for name in topics]
        return (*own, s.total - sum(held or 0 for held in own))

    few = _few(d.samples, "" if peaks else "nothing was held")
    return d.picture("Records held, by topic", _points(d.samples, values), names, few)


def age_picture(d: Drawing) -> Picture:
    """Return how old the oldest finding was."""
    seen = [s for s in d.samples if s.oldest is not None]
    few = _few(seen, "" if any(s.oldest for s in seen) else "there was no finding")
    names = [("oldest", "look")] if any(s.oldest for s in seen) else []
    points = _points(d.samples, lambda s: (s.oldest,))
    return d.picture("Oldest finding", points, names, few, seconds=True)


def lag_picture(d: Drawing, group: str) -> Picture:
    """Return a group's offsets up to the high watermark, over all its partitions."""
    points = _points(d.samples, lambda s: (s.lags.get(group),))
    few = _few([s for s in d.samples if group in s.lags], "")
    return d.picture("Lag to the HW", points, [(group, "spark")], few)


def ended_picture(d: Drawing, ended: Sequence[Ended], unknown: str) -> Picture:
    """Return commits and aborts a minute, from the first that was seen on, but at most ten minutes
    before the first look. unknown: what to say without any count."""
    if ended:
        looked = d.samples[0].at if d.samples else ended[-1].until
        first = next((e.at for e in ended if e.commits or e.aborts), looked)
        begin = min(looked, max(first - STEP_MS, ended[-1].until - AT_ONCE_MS))
        ended = [e for e in ended if e.until > begin]
    points: Points = []
    for number, e in enumerate(ended):
        if points and e.at - points[-1][0] > LATE_MS:
            points.append((e.until - 1, (None, None)))
        points.append((e.until, _a_minute(ended, number)))
    few = "a line needs three counts of decisions" if ended else unknown
    names = [("committed", "good"), ("aborted", "aborted")]
    return d.picture("Transactions a minute", points, names, few)


def _a_minute(ended: Sequence[Ended], number: int) -> tuple[float, float]:
    """Return commits and aborts in the minute before a stretch ended, as far as it was counted."""
    until = ended[number].until
    mine = [e for e in ended[max(0, number - 7) : number + 1] if e.at >= until - MINUTE_MS]
    mine = mine or [ended[number]]
    rate = MINUTE_MS / sum(e.until - e.at for e in mine)
    return sum(e.commits for e in mine) * rate, sum(e.aborts for e in mine) * rate


def _points(
    samples: Iterable[Sample], values: Callable[[Sample], tuple[float | None, ...]]
) -> Points:
    """Return the values of each sample; between two that no line may join there are none."""
    points: Points = []
    for s in samples:
        mine = values(s)
        if points and not s.joined:
            points.append((s.at - 1, (None,) * len(mine)))
        points.append((s.at, mine))
    return points


def _few(samples: Sequence[Sample], nothing: str) -> str:
    """Return the sentence in place of lines. nothing: what the samples say if they have none."""
    if len(samples) < LEAST_SAMPLES:
        return f"drawn from the third look on: {counted(len(samples), 'look')} so far"
    since = (rfc3339(samples[0].at) or "?")[11:16]
    return f"{nothing or 'drawn from the third look on'}, since {since}Z"
