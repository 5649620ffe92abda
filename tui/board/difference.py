"""What changed between two moments: partitions, findings, transactions, groups.

Unknown on either side is said, not taken for 0 or for gone.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow
from recovery.plurals import counted
from recovery.times import rfc3339
from tui.board.headline import QUIET
from tui.widgets.lines import Line, clipped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

MOST = 200  # lines of one kind


def difference_page(one: "Snapshot", other: "Snapshot", width: int) -> list[Line]:
    """Return what differs between two snapshots, the earlier one first whatever their order."""
    before, after = sorted((one, other), key=lambda s: s.taken_at)
    seconds = (after.taken_at - before.taken_at) / 1000
    lines: list[Line] = [
        ((f" {_time(before)} to {_time(after)}, {age_words(seconds)}", "dim"),),
        *_section(
            "Findings", _answers(before, after, "hanging"), _findings(before), _findings(after)
        ),
        *_section("Held", _answers(before, after, "partitions"), _held(before), _held(after)),
        *_section("Lag to the HW", _answers(before, after, "groups"), _lags(before), _lags(after)),
    ]
    return [clipped(line, width) for line in lines]


def _time(s: "Snapshot") -> str:
    return f"{(rfc3339(s.taken_at) or '?')[11:19]}Z"


def _answers(before: "Snapshot", after: "Snapshot", part: str) -> "tuple[Answer | None, ...]":
    return getattr(before, part), getattr(after, part)


Values = Mapping[str, int | str | None]
"""What is compared, by name; None: not known. A missing name is 0, or none."""


def _findings(s: "Snapshot") -> Values:
    rows = [r for r in (s.hanging.rows if s.hanging else ()) if isinstance(r, TxnHangingRow)]
    return {r.where: r.verdict for r in reversed(rows) if r.verdict not in QUIET}


def _held(s: "Snapshot") -> Values:
    rows = [r for r in (s.partitions.rows if s.partitions else ()) if isinstance(r, LsoRow)]
    return {str(r.topic_partition): r.held for r in rows if r.held is None or r.held}


def _lags(s: "Snapshot") -> Values:
    rows = [r for r in (s.groups.rows if s.groups else ()) if isinstance(r, OffsetsShowRow)]
    return {f"{r.group} {r.topic_partition}": r.lag_hw for r in rows if r.lag_hw != 0}


def _section(
    title: str, answers: "tuple[Answer | None, ...]", before: Values, after: Values
) -> Iterable[Line]:
    """Yield a heading and a line for each name that differs, what got worse first."""
    yield ()
    if None in answers:
        yield ((f" {title}  ", "title"), ("not known at one of the two moments", "unknown"))
        return
    blind = any(a is not None and a.errors for a in answers)
    changed = [n for n in {**before, **after} if before.get(n, 0) != after.get(n, 0)]
    changed.sort(key=lambda n: (-_rise(before.get(n, 0), after.get(n, 0)), n))
    words = counted(len(changed), "difference") if changed else "no difference"
    yield ((f" {title}  ", "title"), (words, "dim"))
    if blind:
        yield ((" ? not all could be seen at both: what is gone may only be unseen", "unknown"),)
    for name in changed[:MOST]:
        old, new = before.get(name, 0), after.get(name, 0)
        role = "look" if _rise(old, new) > 0 else "good" if not blind else "text"
        yield ((f" {visible(name, spaces=True)}  ", "text"), (f"{_said(old)} > {_said(new)}", role))
    if len(changed) > MOST:
        yield ((f" and {counted(len(changed) - MOST, 'more')}", "dim"),)


def _rise(old: int | str | None, new: int | str | None) -> int:
    """Return by how much a number rose; a finding that came is 1, one that went -1."""
    one, two = (x if isinstance(x, int) else 1 if x else 0 for x in (old, new))
    return two - one


def _said(value: int | str | None) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else str(value)
