"""Make files and folders that nobody else may read: they may hold keys, values and names.

Commands run with a umask of 077 as well; tasks on executors and programs that call the sink have
their own umask, which is left alone.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UMASK = 0o077


def make_folder(path: Path) -> None:
    """Make a folder with its parents, mode 700; an existing one is unchanged. Raises OSError."""
    for missing in reversed([p for p in (path, *path.parents) if not p.is_dir()]):
        with suppress(FileExistsError):
            missing.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def make_file(path: Path) -> Path:
    """Make an empty file, mode 600, to overwrite; return its path. Raises OSError if it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_held: dict[Path, int] = {}
"""Of each temporary folder of this process the descriptor that has its lock."""


@contextmanager
def temporary(kind: str) -> Iterator[Path]:
    """Yield what `make_temporary` makes, and remove it. Raises OSError."""
    folder = make_temporary(kind)
    try:
        yield folder
    finally:
        remove_temporary(folder)


def make_temporary(kind: str) -> Path:
    """Make a temporary folder that belongs to this process until `remove_temporary`.

    Removes those of the same kind whose process was killed: a folder is locked by its process, and
    the system drops the lock with the process. Raises OSError.
    """
    prefix = f"eoctl-{kind}-held-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_unheld(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):  # another took it for a killed one's before the lock
            descriptor = _opened(folder)
            with suppress(OSError):  # a file system without locks: nothing is removed there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                _held[folder] = descriptor
                return folder
            os.close(descriptor)


def remove_temporary(folder: Path) -> None:
    """Remove a folder that `make_temporary` made."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(_held.pop(folder))


def _remove_unheld(folder: Path) -> None:
    """Remove a folder of this user that no process has locked. Raises OSError for others."""
    descriptor = _opened(folder)
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
