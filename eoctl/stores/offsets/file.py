"""Positions in a JSON file, replaced completely: temporary file, fsync, rename, under a lock file.

The lock excludes other runs of eoctl, not the application: so the file is read again right before
it is replaced.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from eoctl.stores import private
from eoctl.stores.offsets.bounded import BlockingCall, SilentError, bounded
from eoctl.stores.offsets.json_object import EMPTY, entries_of, kept_of, written
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    Write,
    held_before,
    refuse_differences,
    unsent,
)
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.formats.reader import CorruptError
from recovery.restart.stored import StoredPartition
from recovery.shared.store_tables import FileStore

MOST_BYTES = 64 << 20


class FileOffsets:
    """The store of [app.store] kind = "file"."""

    compares = False

    def __init__(self, described: FileStore, seconds: float) -> None:
        self._described = described
        self._path = Path(described.path)
        self._seconds = seconds
        self.name = f"file {described.path}"

    async def read(self) -> Contents:
        try:
            text = await bounded(lambda job: self._text(), self._seconds)
        except SilentError as error:
            raise IncompleteError(f"cannot be read: {error}", where=self.name) from None
        return self._contents(text)

    def kept(self, position: StoredPartition) -> StoredValues:
        return kept_of(position, self._described.position)

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        def work(job: BlockingCall) -> None:
            self._write(job, writes, ensure_held, dissolve=dissolve)

        try:
            await bounded(work, self._seconds)
        except SilentError as error:
            if error.sent:
                raise UnverifiedError(f"replacing it: {error}", where=self.name) from None
            raise RefusedError(f"{error}, nothing was written", where=self.name) from None

    def _contents(self, text: str | None) -> Contents:
        if text is None:
            return Contents(exists=False)
        return Contents(True, entries_of(text, self._described.position, self.name))

    def _text(self) -> str | None:
        """Return the text; None if the file does not exist. Raises IncompleteError."""
        try:
            with self._path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IncompleteError(f"cannot be read: {error.strerror}", where=self.name) from None
        if len(data) > MOST_BYTES:
            raise CorruptError(f"larger than {MOST_BYTES >> 20} MiB", where=self.name)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptError("it is not text", where=self.name) from None

    def _write(
        self, job: BlockingCall, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool
    ) -> None:
        try:
            path = self._path.resolve()  # a link remains a link
            with _locked(path):
                with unsent():
                    text = self._text()
                    refuse_differences(self._contents(text), writes, self.name)
                after = written(text, writes, self.name)
                held_before(ensure_held, written=False)
                if after is None and dissolve:
                    self._refuse_changed(text)
                    job.writing()
                    path.unlink(missing_ok=True)
                else:
                    with _prepared(path, EMPTY if after is None else after) as temporary:
                        self._refuse_changed(text)
                        job.writing()
                        temporary.replace(path)
                private.sync_folder(path.parent)
        except OSError as error:
            if job.sent:
                raise UnverifiedError(
                    f"replacing it failed: {error.strerror}", where=self.name
                ) from None
            raise RefusedError(f"cannot be written: {error.strerror}", where=self.name) from None

    def _refuse_changed(self, text: str | None) -> None:
        with unsent():
            now = self._text()
        if now != text:
            raise RefusedError(
                "another process changed the file just now", where=self.name, remedy="plan again"
            )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold `PATH.lock`, which is removed afterwards. Raises RefusedError if another run has it."""
    lock_file = path.with_name(path.name + ".lock")
    while True:
        descriptor = os.open(lock_file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, there = os.fstat(descriptor), lock_file.stat()
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                break
        except BlockingIOError:
            os.close(descriptor)
            raise RefusedError("another run of eoctl is writing it", where=str(path)) from None
        except FileNotFoundError:
            pass  # its last holder removed it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    try:
        yield
    finally:
        with suppress(OSError):
            lock_file.unlink()
        os.close(descriptor)


@contextmanager
def _prepared(path: Path, text: str) -> Iterator[Path]:
    """Yield a synced file next to `path` with its mode and owner; remove it unless it replaced it.

    One name, since the lock is ours: the next run removes what a killed run left.
    """
    temporary = path.with_name(f".{path.name}.eoctl")
    try:
        like = path.stat()
    except FileNotFoundError:
        like = None
    with suppress(FileNotFoundError):
        temporary.unlink()
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600 if like else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if like is not None:
                ours = os.fstat(descriptor)
                if (ours.st_uid, ours.st_gid) != (like.st_uid, like.st_gid):
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, like.st_mode & 0o7777)
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
