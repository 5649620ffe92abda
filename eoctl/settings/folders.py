"""The folders of eoctl's files. They are needed at every start: nothing heavy is loaded here."""

import errno
import os
import re
from pathlib import Path

from recovery.errors import IncompleteError, UsageError


def local_path(given: str | Path) -> Path:
    """Return a path on this machine. Raises UsageError for an address (`s3a://…`, `file:///…`).

    As a path an address is a folder named `s3a:` below this one; Path leaves one of its slashes.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", str(given)):
        raise UsageError(
            "an address, and only folders and files of this machine's file system can be used",
            where=re.sub(r":/+", "://", str(given), count=1),
            remedy="mount it, and give the path that all machines see it under",
        )
    return Path(given)


def full_disk(error: BaseException) -> IncompleteError | None:
    """Return the sentence for a disk that is full, None for any other error."""
    text = str(error)
    no_temporary = isinstance(error, FileNotFoundError) and "No usable temporary" in text
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not (no_temporary or full or "No space left on device" in text):
        return None
    where = getattr(error, "filename", None)
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - only named
    return IncompleteError(
        "a file cannot be written: no space is left on the device",
        where=str(where) if where else None,
        remedy=f"make space, also in the temporary folder (TMPDIR, {folder}), and run it again",
    )


def _folder(variable: str, xdg: str, fallback: str) -> Path:
    """$variable, else $xdg/eoctl, else ~/fallback/eoctl.

    Raises UsageError without a home, and for an address.
    """
    if os.environ.get(variable):
        return local_path(os.environ[variable])
    if os.environ.get(xdg):
        return local_path(os.environ[xdg]) / "eoctl"
    home = os.environ.get("HOME")
    if not home:
        raise UsageError(
            "there is no HOME to keep files in", remedy=f"set HOME, {xdg} or {variable}"
        )
    return Path(home) / fallback / "eoctl"


def state_dir() -> Path:
    """Return the folder of journal, jobs, plans, locks and labs."""
    return _folder("EOCTL_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Return the folder of jars and caches; it may be deleted at any time."""
    return _folder("EOCTL_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def config_path() -> Path | None:
    """Return the config file's path, which may not exist; None if there is no place to look."""
    if os.environ.get("EOCTL_CONFIG"):
        return Path(os.environ["EOCTL_CONFIG"])
    try:
        return _folder("", "XDG_CONFIG_HOME", ".config") / "config.toml"
    except UsageError:
        return None
