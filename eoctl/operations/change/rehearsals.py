"""Which plans were rehearsed on a twin: a small file for each, named after the plan's hash.

A rehearsal is never older than its plan, which expires.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import write_whole
from recovery.change.plan import Plan
from recovery.errors import UsageError

REMEDIES = frozenset({"txn-abort", "txn-fence", "txn-resolve", "txn-commit", "txn-many"})
"""Plans whose steps rely on what every bundle holds and change nothing outside the cluster."""
RESTART = "restart"
MOST_COUNTED = 4_000_000
"""Offsets of outputs: their batches take at least 8 bytes each of a bundle's 32 MiB."""


def why_not(plan: Plan) -> str | None:
    """Return why a plan cannot be rehearsed; None: nothing speaks against it beforehand.

    A restart can be if it moves a group's offsets and stands on those and on records alone. Raises
    UsageError for a restart without the request that it was made from.
    """
    if plan.kind in REMEDIES:
        return None
    if plan.kind != RESTART:
        return f"a plan of kind {plan.kind} cannot be rehearsed"
    try:
        return _why_not_restart(plan.details["asked"], plan.details["decision"])
    except (TypeError, KeyError, AttributeError):
        raise UsageError("not a plan of `restart plan`", where=plan.scope) from None


def _why_not_restart(asked: Mapping[str, Any], decision: Mapping[str, Any]) -> str | None:
    if "origin" in asked:
        return "its offsets come from another cluster, and a twin is one cluster"
    app = asked.get("app")
    if app is None:
        asked["offsets"].items()  # else no request of a group
        return None
    if app["store"] is None or app["store"]["kind"] != "kafka-group" or app["mirror"] is not None:
        return "it writes to a store that is not a group, so not the twin's"
    if app["strategy"] != "commit-pair":
        return f"strategy {app['strategy']} stands on more of the logs than a bundle takes along"
    offsets = sum(o["end_offset"] - o["start"] for o in decision["outputs"])
    if offsets > MOST_COUNTED:
        return f"it counts {offsets} offsets of its outputs, and a bundle takes {MOST_COUNTED}"
    return None


def keep(plan_sha256: str) -> None:
    """Note that all of a plan was done and verified on an equal twin. Raises OSError."""
    private.make_folder(_folder())
    write_whole(_folder() / plan_sha256, plan_sha256.encode(), mode=0o600)


def find(plan_sha256: str) -> bool:
    """Return True if the plan of this hash was rehearsed; False also if its file is damaged."""
    try:
        return (_folder() / plan_sha256).read_bytes() == plan_sha256.encode()
    except OSError:
        return False


def _folder() -> Path:
    return state_dir() / "rehearsals"
