"""Locks that allow one change at a time per cluster and scope, and the lock on this host.

A held lock may be lost (a session expires, a server freezes, somebody deletes a file): call
`ensure_held` right before each write and stop if it raises.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from eoctl.settings.folders import state_dir
from recovery.errors import RefusedError
from recovery.times import rfc3339

FILE_LOCK = "this host only"
WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.1


class Lock(Protocol):
    """A lock that this process holds."""

    def ensure_held(self) -> None:
        """Raise RefusedError as soon as the lock is no longer provably ours."""
        ...

    def release(self) -> None:
        """Release the lock, even a lost one; never raises."""
        ...


class FileLock:
    """flock on a file of the state folder; it ends with the process, however that ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def ensure_held(self) -> None:
        try:
            ours, there = os.fstat(self._descriptor), self._path.stat()
        except OSError:
            ours, there = None, None
        if (
            ours is None
            or there is None
            or (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
        ):
            raise RefusedError("the lock file was taken away", where=str(self._path))

    def release(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


def lock_name(cluster_id: str, scope: str) -> str:
    """Return a name for files and znodes: readable, and unique per (cluster, scope)."""
    exact = hashlib.sha256(json.dumps([cluster_id, scope]).encode()).hexdigest()[:16]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{cluster_id}-{scope}")[:80] + "-" + exact


def held_by(holder: Any) -> str:
    """Return the holder that a lock or a journal entry names, in words."""
    try:
        text = f"{holder['user']} on {holder['host']} (pid {holder['pid']})"
        return f"{text} since {rfc3339(holder['since'])}" if "since" in holder else text
    except (KeyError, TypeError):
        return "somebody who did not say"


def refused(scope: str, holder: Any) -> RefusedError:
    """Return the refusal that names who is at work."""
    return RefusedError(
        f"locked by {held_by(holder)}", where=scope, remedy="wait until that change has ended"
    )


def _take_file(path: Path, holder: dict[str, Any]) -> FileLock | None:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock = FileLock(path, descriptor)
        lock.ensure_held()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except (BlockingIOError, RefusedError):
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return lock


def _holder_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


async def take_file_lock(
    cluster_id: str, scope: str, holder: dict[str, Any], wait: float = WAIT_SECONDS
) -> FileLock:
    """Take this host's lock within `wait` seconds. Raises RefusedError."""
    path = state_dir() / "locks" / lock_name(cluster_id, scope)
    return await lock_file(path, scope, holder, wait)


async def lock_file(path: Path, scope: str, holder: dict[str, Any], wait: float) -> FileLock:
    """Lock this file within `wait` seconds; create its folder. Raises RefusedError."""
    end = time.monotonic() + wait
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while (lock := _take_file(path, holder)) is None:
            if time.monotonic() >= end:
                raise refused(scope, _holder_of(path))
            await asyncio.sleep(_POLL_SECONDS)
    except OSError as error:
        raise RefusedError(f"cannot be locked: {error.strerror}", where=str(path)) from None
    return lock


def lock_words(zookeeper: str | None) -> str:
    """Return the place of a plan's lock, in words: `this host only` or ZooKeeper's hosts."""
    if zookeeper is None:
        return FILE_LOCK
    from eoctl.stores.locks.zookeeper_session import without_password

    return f"ZooKeeper {without_password(zookeeper)}"
