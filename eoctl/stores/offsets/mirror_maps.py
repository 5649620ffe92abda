"""Mirror maps as files: written completely or not at all, refused if they were edited."""

import os
from pathlib import Path

from eoctl.stores.textfile import read_whole, write_whole
from recovery.audit.mirror_map import MirrorMap, dump, load
from recovery.errors import UsageError

MAX_BYTES = 1 << 30


def write(kept: MirrorMap, path: Path) -> int:
    """Replace the file, mode 600, and return its bytes. Raises UsageError."""
    data = dump(kept).encode()
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{len(data):,} bytes are larger than a map may be: it is as it was",
            where=str(path),
            remedy="keep a map of some partitions in each file: TOPIC:0-5",
        )
    write_whole(path, data, mode=0o600)
    return len(data)


def read(path: Path) -> MirrorMap:
    """Return the map in a file. Raises UsageError (missing, no map) or RefusedError (edited)."""
    return load(read_whole(path, MAX_BYTES, "a mirror map"), str(path))


def known(path: Path) -> MirrorMap | None:
    """Return the map in a file that will be written; None: there is none yet. Raises what `read`
    raises, and UsageError if nothing can be written there."""
    try:
        if path.exists():
            return read(path)
        there = os.access(path.parent, os.W_OK | os.X_OK)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not there:
        raise UsageError("there is no such folder, or no right to write there", where=str(path))
    return None
