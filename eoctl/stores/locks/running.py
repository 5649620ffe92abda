"""Run one command at a time: a lock on a file of the state folder that ends with its process."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from eoctl.settings.folders import state_dir
from recovery.errors import BusyError, UsageError


@contextmanager
def only_one(command: str, of: str, kind: str = "cluster") -> Iterator[None]:
    """Run unless another `command` works on the same object; else raise BusyError at once.

    kind: what the object is, for the error.
    """
    name = f"{command}-{hashlib.sha256(of.encode('utf-8', 'replace')).hexdigest()[:16]}.lock"
    path = state_dir() / "locks" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise UsageError(f"cannot be locked: {error.strerror}", where=str(path)) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another {command} for this {kind} is running", remedy="wait until it has ended"
            ) from None
        yield
    finally:
        os.close(descriptor)
