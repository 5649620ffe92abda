"""Speak up when transactional ids are contested (a rule of `check`).

Their owners fence each other, or one restarts for ever: see `recovery.diagnose.contest`.
"""

from recovery.diagnose.contest import NAMED_WITHIN_MS, Contests
from recovery.quoting import some
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import check_row


def contested_ids(found: Contests, now: int, threshold: float) -> CheckRow:
    """Return the rule's row. now: epoch ms, our clock."""
    words = [some([c.transactional_id for c in found.contests]) or "none"]
    back = None if found.read_from is None else max(0, now - found.read_from)
    if back is not None:
        words.append(f"only the last {back // 1000} s were read")
    if found.missing:
        words.append("not all of __transaction_state was read")
    number = found.number
    return check_row(
        "contested_ids",
        threshold,
        number,
        "ids",
        "; ".join(words),
        finding=number is not None and number >= threshold,
        unsure=bool(found.missing) or (back is not None and back < NAMED_WITHIN_MS),
    )
