"""Speak up when transactional ids are contested (a rule of `check`).

Their owners fence each other, or one restarts for ever: see `recovery.diagnose.contest`.
"""

from recovery.diagnose.contest import NAMED_WITHIN_MS, Contests
from recovery.values import Reason
from recovery.watch.check_rows import Judgement
from recovery.watch.check_rules import judgement, named


def contested_ids(found: Contests, now: int, threshold: float) -> Judgement:
    """Return what the rule says. now: epoch ms, our clock."""
    reasons = [named(c.transactional_id for c in found.contests)]
    back = None if found.read_from is None else max(0, now - found.read_from)
    if back is not None:
        reasons.append(Reason("only-the-last-read", {"seconds": back // 1000}))
    if found.missing:
        reasons.append(Reason("states-not-read"))
    number = found.number
    return judgement(
        "contested_ids",
        threshold,
        number,
        "ids",
        *reasons,
        finding=number is not None and number >= threshold,
        unsure=bool(found.missing) or (back is not None and back < NAMED_WITHIN_MS),
    )
