"""Which plans were rehearsed on a twin: a small file for each, named after the plan's hash.

A rehearsal is never older than its plan, which expires.
"""

from pathlib import Path

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import write_whole

KINDS = frozenset({"txn-abort", "txn-fence", "txn-resolve", "txn-commit", "txn-many"})
"""Plans whose steps rely on what a bundle holds and change nothing outside the cluster."""


def can_be(kind: str) -> bool:
    """Return True if plans of this kind can be rehearsed."""
    return kind in KINDS


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
