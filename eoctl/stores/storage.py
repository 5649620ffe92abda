"""The place of a state's files: a folder of this machine, or a prefix in object storage.

Names are relative to that place, with slashes. In any storage, a file exists completely or not at
all, `put_new` never overwrites another file, and nobody else may read what is written.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from eoctl.stores import private
from recovery.errors import EoctlError, IncompleteError, RefusedError, UsageError

LOCK, PROBE = ".lock", ".probe-"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # of file systems without hard links


class NewFile(Protocol):
    """A file that is being written.

    sink: pyarrow writes into it. Each use of sink, and `finish`, must be within a `writing` of the
    storage.
    """

    @property
    def sink(self) -> Any: ...

    def finish(self, *, hashed: bool = True) -> tuple[int, str]:
        """Close the file, which is then durable. Return its bytes and its SHA-256, hexadecimal.

        hashed: if false, the SHA-256 is not needed, and empty.
        """
        ...


class Storage(Protocol):
    """A place for files. Every method raises UnreachableError if the place does not answer.

    address: absolute; `storage_at` turns it into the storage again (storage_address.py). exclusive:
    `held` keeps others out, so that unlisted files may be deleted before a result exists.
    read_bytes: read at once what is read from one end to the other. requests: this process's so
    far to all storages of the kind, without those that were tried again; 0 for folders.
    """

    @property
    def address(self) -> str: ...

    @property
    def exclusive(self) -> bool: ...

    @property
    def read_bytes(self) -> int: ...

    @property
    def requests(self) -> int: ...

    def shown(self, name: str) -> str:
        """Return where a file is, for a sentence."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keep other processes out, if the storage can. Raises RefusedError if one is at work."""
        ...

    def prove(self) -> None:
        """Raise RefusedError if `put_new` would overwrite another file."""
        ...

    def top(self) -> list[str]:
        """Return the names of files and folders directly in the storage, sorted."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, none if the folder does not exist."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of all files below a folder, by their names."""
        ...

    def size(self, name: str) -> int:
        """Return a file's bytes. Raises OSError if it does not exist."""
        ...

    def sha256(self, name: str, size: int) -> str:
        """Return the SHA-256 of a file's content, hexadecimal; "" if it has another size. Raises
        OSError."""
        ...

    def get(self, name: str) -> bytes:
        """Return a file's content. Raises OSError."""
        ...

    def get_range(self, name: str, start: int, size: int) -> bytes:
        """Return some bytes of a file that is at least so long. Raises OSError."""
        ...

    def opened(self, name: str, size: int | None = None) -> Any:
        """Return a file as pyarrow reads it, at any position. size: None if it is not known. Raises
        OSError."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a file, replacing one of that name. Raises UsageError, IncompleteError."""
        ...

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists; return False if it exists with other content.

        A writer recognises its own file by the content: data must contain the writer's identity.
        Raises UsageError, IncompleteError.
        """
        ...

    def new_file(self, name: str) -> NewFile:
        """Begin a file with a unique name. See `writing`."""
        ...

    def writing(self, name: str) -> AbstractContextManager[None]:
        """Translate errors of writing into a sentence, and remove an incomplete file."""
        ...

    def settle(self, folder: str) -> None:
        """Make the names in a folder of the storage survive a power failure."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are no error."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if it exists."""
        ...


def not_written(path: Path, error: OSError) -> EoctlError:
    """Return the error for a file that cannot be written."""
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno not in _FULL:
        return UsageError(f"cannot be written: {why}", where=str(path))
    return IncompleteError(
        f"cannot be written: {why}",
        where=str(path),
        remedy="make space there, and run the same command again: it continues",
    )


class LocalFolder:
    """A folder, created when something is written into it."""

    exclusive, read_bytes, requests = True, 1 << 20, 0

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def address(self) -> str:
        return str(self.path.absolute())

    def shown(self, name: str) -> str:
        return str(self.path / name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """See Storage. Raises UsageError; IncompleteError: disk full.

        The lock ends with this process, however that ends; its file is removed after the work.
        """
        path = self.path / LOCK
        try:
            private.make_folder(self.path)
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise not_written(path, error) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(descriptor), path.stat())
            except (BlockingIOError, FileNotFoundError):  # the latter: another has just ended
                ours = False
            except OSError as error:
                raise UsageError(f"cannot be locked: {error.strerror}", where=str(path)) from None
            if not ours:
                raise RefusedError(
                    "another rebuild is at work there",
                    where=str(self.path),
                    remedy="wait until it has ended, or give another --output",
                )
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(descriptor)

    def prove(self) -> None:
        """See Storage: a file system's links and locks are trusted."""

    def top(self) -> list[str]:
        if not self.path.exists():
            return []
        if not self.path.is_dir():
            raise UsageError("is not a folder", where=str(self.path))
        return sorted(path.name for path in self.path.iterdir())

    def names(self, folder: str) -> list[str]:
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See Storage: files that vanish meanwhile are no error."""

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | PermissionError):
                raise error

        walked = os.walk(self.path / folder, onerror=failed)
        found: dict[str, int] = {}
        for path in (Path(where, name) for where, _, names in walked for name in names):
            with suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    found[path.relative_to(self.path).as_posix()] = status.st_size
        return found

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def sha256(self, name: str, size: int) -> str:
        with (self.path / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()

    def get(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def get_range(self, name: str, start: int, size: int) -> bytes:
        with (self.path / name).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def opened(self, name: str, size: int | None = None) -> Any:
        import pyarrow as pa

        return pa.OSFile(str(self.path / name), "rb")

    def put(self, name: str, data: bytes) -> None:
        """See Storage: temporary file, fsync, rename."""
        self._put(name, data, new=False)

    def put_new(self, name: str, data: bytes) -> bool:
        """See Storage: temporary file, fsync, hard link; a file of that name is never ours."""
        return self._put(name, data, new=True)

    def _put(self, name: str, data: bytes, *, new: bool) -> bool:
        path, written = self.path / name, None
        try:
            private.make_folder(path.parent)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            written = Path(temporary)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            if new and not _linked(written, path):
                return False
            if not new:
                written.replace(path)
            private.sync_folder(path.parent)
        except OSError as error:
            if written is not None:
                with suppress(OSError):
                    written.unlink()
            raise not_written(path, error) from None
        return True

    def new_file(self, name: str) -> NewFile:
        return _NewLocalFile(self.path / name)

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """See Storage: an incomplete file must not fill the disk further."""
        path = self.path / name
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            if error.errno in _FULL:
                raise not_written(path, error) from None
            raise

    def settle(self, folder: str) -> None:
        private.sync_folder(self.path / folder)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self.path / folder, ignore_errors=True)


def _linked(written: Path, path: Path) -> bool:
    """Rename, unless a file of that name exists: return False then."""
    try:
        os.link(written, path)
    except OSError as error:
        no_links = error.errno in _NO_LINKS
        if no_links and _claimed(path):
            written.replace(path)
            return True
        written.unlink()
        if no_links or isinstance(error, FileExistsError):
            return False
        raise
    written.unlink()
    return True


def _claimed(path: Path) -> bool:
    """Make an empty file, which the content replaces; False if one exists, no matter whose."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


class _NewLocalFile:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        private.make_folder(path.parent)
        self._path = path
        self.sink = pa.OSFile(str(private.make_file(path)), "wb")

    def finish(self, *, hashed: bool = True) -> tuple[int, str]:
        self.sink.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if not hashed:
            return size, ""
        with self._path.open("rb") as file:
            return size, hashlib.file_digest(file, "sha256").hexdigest()
