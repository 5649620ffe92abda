"""Where eoctl keeps its files. Asked at every start, so nothing heavy is loaded here."""

import os
from pathlib import Path

from recovery.errors import UsageError


def _folder(variable: str, xdg: str, fallback: str) -> Path:
    """$variable, else $xdg/eoctl, else ~/fallback/eoctl. Raises UsageError without a home."""
    if os.environ.get(variable):
        return Path(os.environ[variable])
    if os.environ.get(xdg):
        return Path(os.environ[xdg]) / "eoctl"
    home = os.environ.get("HOME")
    if not home:
        raise UsageError(
            "there is no HOME to keep files in", remedy=f"set HOME, {xdg} or {variable}"
        )
    return Path(home) / fallback / "eoctl"


def state_dir() -> Path:
    """Where journal, jobs, plans, locks and labs are kept."""
    return _folder("EOCTL_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Where jars and caches are kept; may be deleted at any time."""
    return _folder("EOCTL_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def config_path() -> Path | None:
    """The config file, which need not exist; None where there is no place to look."""
    if os.environ.get("EOCTL_CONFIG"):
        return Path(os.environ["EOCTL_CONFIG"])
    try:
        return _folder("", "XDG_CONFIG_HOME", ".config") / "config.toml"
    except UsageError:
        return None
