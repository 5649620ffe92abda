"""Plan files: written completely or not at all, readable only by their owner, refused if edited."""

from pathlib import Path

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import read_whole, write_whole
from recovery.change.plan import Plan, dump, load
from recovery.errors import UsageError

MAX_BYTES = 256 * 1024 * 1024


def plans_folder() -> Path:
    """Return the folder where eoctl keeps plans by itself, and the dashboard looks for them."""
    return state_dir() / "plans"


def keep(plan: Plan) -> Path:
    """Write a plan to the folder of plans, named after its hash. Raises UsageError."""
    folder = plans_folder()
    try:
        private.make_folder(folder)
    except OSError as error:
        raise UsageError(f"cannot be made: {error.strerror}", where=str(folder)) from None
    path = folder / f"{plan.sha256}.json"
    write(plan, path)
    return path


def write(plan: Plan, path: Path) -> None:
    """Write atomically, mode 600. Raises UsageError."""
    write_whole(path, dump(plan).encode("ascii"), mode=0o600)


def read(path: Path) -> Plan:
    """Return the plan in a file. Raises UsageError (missing, no plan) or RefusedError (edited)."""
    return load(read_whole(path, MAX_BYTES, "a plan file"), str(path))
