"""A lock on the files of one folder of the cache, held for as long as one of them is written."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.005


@contextmanager
def held(folder: Path, *, exclusive: bool) -> Iterator[bool]:
    """Hold the lock of this folder's logs. False: the lock could not be taken, so write nothing.

    A folder that cannot be written is read without a lock: nobody else writes there.
    """
    mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    ours, file = False, -1
    try:
        if exclusive:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(folder / "logs.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        end = time.monotonic() + LOCK_SECONDS
        while not ours:
            try:
                fcntl.flock(file, mode | fcntl.LOCK_NB)
                ours = True
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(_POLL_SECONDS)
    except OSError:
        ours = False
    try:
        yield ours
    finally:
        if file >= 0:
            os.close(file)
