"""Mirror maps as files: written completely or not at all, refused if they were edited."""

from pathlib import Path

from eoctl.stores.textfile import read_whole, write_whole
from recovery.audit.mirror_map import MirrorMap, dump, load

MAX_BYTES = 1 << 30


def write(kept: MirrorMap, path: Path) -> int:
    """Replace the file, mode 600, and return its bytes. Raises UsageError."""
    data = dump(kept).encode()
    write_whole(path, data, mode=0o600)
    return len(data)


def read(path: Path) -> MirrorMap:
    """Return the map in a file. Raises UsageError (missing, no map) or RefusedError (edited)."""
    return load(read_whole(path, MAX_BYTES, "a mirror map"), str(path))
