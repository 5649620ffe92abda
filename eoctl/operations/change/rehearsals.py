"""Which plans were rehearsed on a twin: a small file for each, named after the plan's hash."""

import json
from pathlib import Path

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import write_whole
from recovery.values import Value

KINDS = frozenset({"txn-abort", "txn-fence", "txn-resolve", "txn-commit", "txn-many"})
"""Plans whose steps stand on what a bundle holds and change nothing outside the cluster."""


class Rehearsal(Value):
    """A plan that was carried out on a twin and whose outcome was verified there.

    at: epoch ms, our clock. bundle_sha256: of the bundle that the twin was made from.
    """

    plan_sha256: str
    bundle_sha256: str
    at: int


def can_be(kind: str) -> bool:
    """Return True if plans of this kind can be rehearsed."""
    return kind in KINDS


def keep(rehearsal: Rehearsal) -> None:
    """Note a rehearsal, in the state folder. Raises OSError."""
    folder = _folder()
    private.make_folder(folder)
    content = json.dumps(rehearsal.as_dict(), indent=1).encode()
    write_whole(folder / f"{rehearsal.plan_sha256}.json", content, mode=0o600)


def find(plan_sha256: str) -> Rehearsal | None:
    """Return the last rehearsal of this very plan; None: there was none, or its file is damaged."""
    try:
        content = json.loads((_folder() / f"{plan_sha256}.json").read_bytes())
        found = Rehearsal(**{name: content[name] for name in Rehearsal.__struct_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.plan_sha256 == plan_sha256 else None


def _folder() -> Path:
    return state_dir() / "rehearsals"
