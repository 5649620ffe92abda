"""What the pictures show, remembered: a sample per look, bounded, for as long as the app runs.

Each is of one moment, so that lines drawn together were true together. Where more samples come than
are kept, the one of a stretch in which most was held stays: a short peak remains visible.
"""

from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import TYPE_CHECKING, cast

from recovery.diagnose.decided import STEP_MS
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow, TxnListRow
from recovery.values import Value, replace
from tui.board import STALE_INTERVALS
from tui.board.headline import QUIET

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

MOST = 600  # samples
LONGEST_STEP_MS = 32_000  # 600 of them are five hours
MOST_NAMES = 40  # topics and groups of one sample: those with the highest values


class Ended(Value, gc=False):
    """Transactions that were decided from `at` to before `until` (epoch ms)."""

    at: int
    until: int
    commits: int
    aborts: int


class Sample(Value, gc=False):
    """One look. at: epoch ms. held: offsets, of topics with the most; total: of all topics.

    oldest: age in seconds of the oldest finding; None: not judged. lags: offsets up to the HW, of
    the groups with the longest; None: of a partition it is not known. joined: the look before is
    so recent that a line may join both. moved: leaders and coordinators that are others than there.
    ended: what was decided lately, by itself.
    """

    at: int
    held: Mapping[str, int]
    total: int
    oldest: float | None = None
    lags: Mapping[str, int | None] = {}
    joined: bool = True
    moved: int = 0
    ended: tuple[Ended, ...] = ()

    def held_of(self, topic: str) -> int | None:
        """Return what is held of a topic; None: less than of the topics that were kept."""
        return self.held.get(topic, 0 if len(self.held) < MOST_NAMES else None)


def sample_of(s: "Snapshot", before: "Snapshot | None") -> Sample | None:
    """Return what one snapshot adds; None before the first look. before: the previous snapshot."""
    if s.partitions is None:
        return None
    rows = cast("Sequence[LsoRow]", s.partitions.rows)
    held: dict[str, int] = {}
    for r in rows:
        if r.held:
            held[r.topic] = held.get(r.topic, 0) + r.held
    then = before.partitions if before is not None else None
    late = STALE_INTERVALS * s.intervals.get("look", 0) * 1000
    return Sample(
        s.partitions.collected_at,
        _most(held),
        sum(held.values()),
        _oldest(s.hanging),
        _most(_lags(s.groups)),
        joined=then is None or s.partitions.collected_at - then.collected_at <= late,
        moved=_moved(s, before),
        ended=_ended(s, before),
    )


def _most(values: Mapping[str, int | None]) -> dict[str, int]:
    """Return the highest values; the unknown ones are among them."""
    if len(values) > MOST_NAMES:
        chosen = sorted(values, key=lambda n: (values[n] is not None, -(values[n] or 0), n))
        values = {name: values[name] for name in chosen[:MOST_NAMES]}
    # a name that many samples have is in memory once
    return cast("dict[str, int]", {intern(name): value for name, value in values.items()})


def _oldest(judged: "Answer | None") -> float | None:
    """Return the age of the oldest finding, 0 without one; None: nothing is judged yet."""
    if judged is None:
        return None
    rows = cast("Sequence[TxnHangingRow]", judged.rows)
    return max((r.age_seconds or 0.0 for r in rows if r.verdict not in QUIET), default=0.0)


def _lags(groups: "Answer | None") -> dict[str, int | None]:
    lags: dict[str, int | None] = {}
    for r in cast("Sequence[OffsetsShowRow]", groups.rows if groups else ()):
        known = lags.get(r.group, 0)
        lag = None if r.lag_hw is None and r.committed_offset is not None else r.lag_hw or 0
        lags[r.group] = None if known is None or lag is None else known + max(lag, 0)
    return lags


def _moved(s: "Snapshot", before: "Snapshot | None") -> int:
    """Count leaders and coordinators that changed since the snapshot before."""
    if before is None:
        return 0
    return sum(
        new is not old and _elsewhere(old, new)
        for now, then in ((s.partitions, before.partitions), (s.transactions, before.transactions))
        if now is not None and then is not None and now is not then
        for old, new in zip(then.rows, now.rows, strict=False)
    )


def _elsewhere(old: object, new: object) -> bool:
    """Return True if this is one partition or one id, and another broker has it now."""
    if isinstance(old, LsoRow) and isinstance(new, LsoRow):
        there, here = old.leader, new.leader
        known = old.partition == new.partition and old.topic == new.topic
    elif isinstance(old, TxnListRow) and isinstance(new, TxnListRow):
        there, here = old.coordinator, new.coordinator
        known = old.transactional_id == new.transactional_id
    else:
        return False
    return known and there is not None and here is not None and there != here


def _ended(s: "Snapshot", before: "Snapshot | None") -> tuple[Ended, ...]:
    """Return the stretches of the newest judgement that the one before did not have."""
    if s.hanging is None or (before is not None and before.hanging is s.hanging):
        return ()
    known = set(_stretches(before.hanging)) if before is not None else set()
    return tuple(e for e in _stretches(s.hanging) if e not in known)


def _stretches(judged: "Answer | None") -> Iterable[Ended]:
    """Yield what `recovery.diagnose.decided` counted, without the first moments of a stretch."""
    counted = judged.extra.get("decided") if judged is not None else None
    if not isinstance(counted, dict):
        return
    at, end = counted["begin"], counted["end"]
    for commits, aborts in zip(counted["commits"], counted["aborts"], strict=True):
        until = min((at // STEP_MS + 1) * STEP_MS, end)
        if 2 * (until - at) >= STEP_MS or end - counted["begin"] < STEP_MS:
            yield Ended(at, until, commits, aborts)
        at = until


class Samples:
    """Takes samples in order, keeps at most MOST, and returns them."""

    def __init__(self) -> None:
        self._step = 1_000
        self._kept: list[Sample] = []
        self._ended: dict[int, Ended] = {}

    def add(self, sample: Sample) -> None:
        """Add a sample, or replace the last one if it is of the same look."""
        last = self._kept[-1] if self._kept else None
        if last is None or sample.at > last.at:
            self._kept.append(sample)
        elif sample.at == last.at:
            self._kept[-1] = replace(sample, joined=last.joined, moved=last.moved + sample.moved)
        self._keep_to_step()
        for ended in sample.ended:
            number = ended.at // STEP_MS
            self._ended[number] = _fuller(self._ended.get(number, ended), ended)
        while len(self._ended) > MOST:
            del self._ended[min(self._ended)]

    def _keep_to_step(self) -> None:
        """Merge the last two if they are of one step; while it is too much, take longer steps."""
        if len(self._kept) > 1 and self._same_step(*self._kept[-2:]):
            new = self._kept.pop()
            self._kept[-1] = merged(self._kept[-1], new)
        while len(self._kept) > MOST and self._step < LONGEST_STEP_MS:
            self._step *= 2
            kept, self._kept = self._kept, []
            for sample in kept:
                if self._kept and self._same_step(self._kept[-1], sample):
                    sample = merged(self._kept.pop(), sample)
                self._kept.append(sample)
        del self._kept[:-MOST]

    def _same_step(self, one: Sample, other: Sample) -> bool:
        return one.at // self._step == other.at // self._step

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Return what is kept, the oldest first."""
        return tuple(self._kept)

    @property
    def ended(self) -> tuple[Ended, ...]:
        """Return the decisions of each stretch, the oldest first."""
        return tuple(self._ended[number] for number in sorted(self._ended))


def _fuller(one: Ended, other: Ended) -> Ended:
    """Return the count of a stretch that covers more of it, or of which compaction took less."""
    return max(one, other, key=lambda e: (e.until - e.at, e.commits + e.aborts))


def merged(one: Sample, other: Sample) -> Sample:
    """Return one sample of two looks: of that in which more was held."""
    kept = max(one, other, key=lambda s: s.total)
    ages = [s.oldest for s in (one, other) if s.oldest is not None]
    return replace(
        kept,
        oldest=max(ages, default=None),
        joined=one.joined,
        moved=one.moved + other.moved,
        ended=(),
    )
