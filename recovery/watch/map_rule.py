"""Warn when a mirror map is older than it may be (a rule of `check`)."""

from collections.abc import Sequence

from recovery.values import Reason, Value
from recovery.watch.check_rows import Judgement
from recovery.watch.check_rules import judgement

AHEAD_MS = 60_000


class KeptMap(Value):
    """A file of `audit mirror --keep`. looked_at: epoch ms; None: it is none, see `problem`."""

    path: str
    looked_at: int | None
    problem: str = ""


def mirror_map_age(maps: Sequence[KeptMap], now: int, threshold: float) -> Judgement:
    """Judge the oldest map; one that cannot be read is no map, and one of the future says nothing.

    The clock of the machine that keeps maps may be a little ahead of the brokers'.
    """
    unreadable = next((m for m in maps if m.looked_at is None), None)
    ahead = next((m for m in maps if (m.looked_at or 0) > now + AHEAD_MS), None)
    known = [
        (m.looked_at, m) for m in maps if m.looked_at is not None and m.looked_at <= now + AHEAD_MS
    ]
    looked_at, oldest = min(known, key=lambda one: one[0], default=(None, None))
    age = None if looked_at is None else max(0.0, (now - looked_at) / 1000)
    reason = Reason("no-map")
    if unreadable is not None:
        reason = Reason("map", {"path": unreadable.path, "problem": unreadable.problem})
    elif oldest is not None:
        reason = Reason("map-until", {"path": oldest.path, "at": looked_at})
    finding = unreadable is not None or (age is not None and age >= threshold)
    if ahead is not None and not finding:
        reason = Reason("map-of-later", {"path": ahead.path})
    unsure = not maps or ahead is not None
    return judgement(
        "mirror_map_age", threshold, age, "seconds", reason, finding=finding, unsure=unsure
    )
