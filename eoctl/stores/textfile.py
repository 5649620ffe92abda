"""Write files that others read at any moment: completely or not at all. Read those of a limit."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from recovery.errors import UsageError

LEFT_OVER_SECONDS = 600  # an older temporary file was left by a process that was killed


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace `path`: temporary file in its folder, fsync, rename. Raises UsageError.

    The temporary file begins with a dot and ends in `.tmp`: no collector takes it for a result.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        for old in path.parent.glob(f".{_plain(path.name)}.*.tmp"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > LEFT_OVER_SECONDS:
                    old.unlink()
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            Path(name).unlink()
        raise _not_written(path, error) from None


def read_whole(path: Path, most: int, what: str) -> str:
    """Return the text of a file of at most `most` bytes. what: such as `a plan file`, for errors.

    Raises UsageError.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UsageError(f"not {what}: it is too large", where=str(path))
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError(f"not {what}: it is not text", where=str(path)) from None


def _plain(name: str) -> str:
    """Return a name as a glob pattern that matches only itself."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _not_written(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot be written: {error.strerror or error}", where=str(path))
