"""Plan files: written completely or not at all, readable only by their owner, refused if edited."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import read_whole
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
    """Write atomically (temporary file, fsync, rename), mode 600. Raises UsageError."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(path)) from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(dump(plan))
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
        private.sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            Path(name).unlink()
        raise UsageError(f"cannot be written: {error.strerror}", where=str(path)) from None


def read(path: Path) -> Plan:
    """Return the plan in a file. Raises UsageError (missing, no plan) or RefusedError (edited)."""
    return load(read_whole(path, MAX_BYTES, "a plan file"), str(path))
