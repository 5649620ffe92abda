"""Describe, for a cell, when a thing ends on its own. Unknown is not shown as never."""

from typing import TYPE_CHECKING

from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.prospect import Prospect

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

Ends = tuple[str, float | None]
"""The words of a cell, and the seconds left; None where it has no time."""

ENDINGS = {"never": "never", "markers": "markers", "its-system": "owner", "not-known": "?"}
DELETIONS = {"never": "never", "compacted": "never", "not-known": "?", "nothing-known-to-wait": "?"}


def ends_in(s: "Snapshot", h: TxnHangingRow) -> Ends:
    """Return when a transaction's coordinator aborts it, or what else ends it."""
    ending = _known(s, h)[0]
    if isinstance(ending, str) and ending in ENDINGS:
        return ENDINGS[ending], None
    if h.ends_in_seconds is None:
        return "-" if ending is None else "?", None
    return _left(h.ends_in_seconds)


def deleted_in(s: "Snapshot", h: TxnHangingRow) -> Ends:
    """Return when retention deletes the oldest record that waits after the transaction."""
    _, deletion, at = _known(s, h)
    if isinstance(at, int):
        return _left((at - s.taken_at) / 1000)
    return DELETIONS.get(str(deletion), "-"), None


def known_prospect(s: "Snapshot", h: TxnHangingRow) -> Prospect | None:
    """Return what waiting for a transaction leads to; None where the snapshot does not know."""
    ending, deletion, at = _known(s, h)
    if ending is None:
        return None
    left = None if h.ends_in_seconds is None else int(h.ends_in_seconds * 1000)
    return Prospect(ending, h.ends_at, left, deletion, at)  # type: ignore[arg-type]


def _known(s: "Snapshot", h: TxnHangingRow) -> tuple[object, object, object]:
    """Return ending, deletion and deleted_at, from eoctl.operations.dashboard.prospects."""
    by_key = s.hanging.extra.get("prospects") if s.hanging else None
    known = by_key.get(f"{h.where} {h.producer_id}") if isinstance(by_key, dict) else None
    ending, deletion, at = known or (None, None, None)
    return ending, deletion, at


def _left(seconds: float) -> Ends:
    return age_words(seconds) if seconds >= 1 else "due", seconds
