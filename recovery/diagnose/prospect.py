"""Predict what happens to a held partition if nobody acts: its end and what retention deletes."""

from collections.abc import Mapping
from typing import Literal

from recovery.diagnose.verdicts import Verdict
from recovery.values import Value

Ending = Literal[
    "never", "markers", "its-system", "brokers", "timeout", "timeout-ignored", "not-known"
]
Deletion = Literal["at", "may-be-now", "never", "compacted", "not-known", "nothing-known-to-wait"]

NEVER_ENDS = frozenset({"orphan", "marker-lost"})


class Prospect(Value):
    """What waiting leads to.

    ending: how the transaction ends. `never`; `markers`: once they are written; `its-system`:
    another system ends it (two-phase); `brokers`: not before more brokers are back; `timeout`: its
    coordinator aborts it; `timeout-ignored`: overdue so long that the coordinator seems inactive.
    ends_at: when its coordinator aborts it (ms, by the coordinator's clock); ends_in: ms until
    then, negative once overdue. Both are None for other endings and if unknown.
    deletion: what retention does to the waiting records; deleted_at: when, for `at` and
    `may-be-now` (ms, by the clock of the oldest waiting record).
    loses: the end loses records that look pre-committed, or that were committed before (mixed).
    """

    ending: Ending
    ends_at: int | None
    ends_in: int | None
    deletion: Deletion
    deleted_at: int | None
    loses: Literal["pre-committed", "committed"] | None = None


def prospect(
    verdict: Verdict, oldest: int | None, config: Mapping[str, str | None], now: int
) -> Prospect:
    """Return what waiting leads to.

    oldest: timestamp of the oldest waiting record (ms), None if no record is known to wait.
    config: the topic's effective cleanup.policy and retention.ms. now: ms, by our clock.
    """
    ending = _ending(verdict)
    timed = ending.startswith("timeout")
    deletion, deleted_at = _deletion(oldest, config, now)
    loses: Literal["pre-committed", "committed"] | None = None
    if timed and verdict.mixed and verdict.proven_outcome == "commit":
        loses = "committed"
    elif timed and any(e.code == "looks-precommitted" for e in verdict.evidence):
        loses = "pre-committed"
    return Prospect(
        ending,
        verdict.deadline if timed else None,
        verdict.deadline_in if timed else None,
        deletion,
        deleted_at,
        loses,
    )


def _ending(v: Verdict) -> Ending:
    if v.name in NEVER_ENDS and not v.mixed:
        return "never"
    if v.name == "coordinator-fenced":
        return "never"
    if v.name in ("prepare", "prepare-stuck"):
        return "markers"
    if v.short_log is not None:
        return "brokers"
    if v.name == "two-phase":
        return "its-system"
    if v.deadline is None:
        return "not-known"
    return "timeout" if v.cycles_missed is None else "timeout-ignored"


def _deletion(
    oldest: int | None, config: Mapping[str, str | None], now: int
) -> tuple[Deletion, int | None]:
    policy, retention = config.get("cleanup.policy"), config.get("retention.ms")
    if policy is not None and "delete" not in policy:
        return "compacted", None
    if retention is None:
        return "not-known", None
    if int(retention) < 0:
        return "never", None
    if oldest is None:
        return "nothing-known-to-wait", None
    at = oldest + int(retention)
    return ("at" if at > now else "may-be-now"), at
