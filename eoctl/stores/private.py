"""Files and folders that nobody else may read: what eoctl keeps may hold keys, values and names.

Commands run with a umask of 077 as well; tasks on executors and programs that call the sink have
a umask of their own, which is not changed for them.
"""

import os
from contextlib import suppress
from pathlib import Path

UMASK = 0o077


def make_folder(path: Path) -> None:
    """Make a folder with its parents, mode 700; one that exists stays as it is. Raises OSError."""
    for missing in reversed([p for p in (path, *path.parents) if not p.is_dir()]):
        with suppress(FileExistsError):
            missing.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def make_file(path: Path) -> Path:
    """Make an empty file, mode 600, to be written over; its path. Raises OSError if it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path
