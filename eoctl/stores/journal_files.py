"""The journal: who changed what, when, on which evidence, in one file that only grows.

`STATE/journal/journal.jsonl` holds the lines of recovery.change.journal. `STATE/journal/open/ID`
exists while a change is under way and is locked by the process that carries it out: so eoctl sees
cheaply, at each start, which changes were left unfinished, and which still run.
"""

import errno
import fcntl
import getpass
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.property_names import SECRET_KEY
from eoctl.settings.folders import state_dir
from eoctl.stores import private
from recovery.change.journal import (
    Event,
    EventName,
    JournalEntry,
    JournalText,
    decode,
    encode,
    entries,
    read,
    unfinished,
)
from recovery.change.plan import Plan
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.values import Value


def who() -> dict[str, Any]:
    """Return the user, host and process that act."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a bare uid in a container
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "pid": os.getpid()}


def redacted(argv: Sequence[str]) -> list[str]:
    """Return a command line without the values of secret properties.

    Only `-X key=value` and the parameters of `--remote` (Spark Connect's token) hold any; a
    transactional id may look like one and is kept.
    """
    words: list[str] = []
    for word in argv:
        start = "-X" if word.startswith("-X") and len(word) > 2 else ""
        key, equals, value = word[len(start) :].partition("=")
        is_property = bool(start) or words[-1:] == ["-X"]
        told_elsewhere = value.startswith(("env:", "file:"))
        if is_property and equals and SECRET_KEY.search(key) and not told_elsewhere:
            word = f"{start}{key}=(hidden)"
        elif words[-1:] == ["--remote"] or word.startswith("--remote="):
            word = without_parameters(word)
        words.append(word)
    return words


def without_parameters(remote: str) -> str:
    """Return Spark Connect's sc://HOST:PORT/;KEY=VALUE;... without parameters (a token, say)."""
    address, parameters, _ = remote.partition(";")
    return address.removesuffix("/") if parameters else remote


class Writer:
    """Appends the events of one entry, which this process holds open."""

    def __init__(self, journal: "Journal", entry: str, marker: int) -> None:
        self._journal = journal
        self.entry = entry
        self._marker = marker

    def append(
        self, event: EventName, *, step: int | None = None, entry: str | None = None, **data: Any
    ) -> None:
        """Write and sync one event (of another entry: `undone`). Raises RefusedError."""
        self._journal.append(Event(entry or self.entry, event, now_ms(), step, data))

    def finished(self) -> None:
        """Mark the entry as ended: starts of eoctl no longer name it."""
        with suppress(OSError):
            self._journal.marker(self.entry).unlink()

    def close(self) -> None:
        """Release the entry, finished or not."""
        os.close(self._marker)


class JournalContent(Value):
    """Everything in the journal, and which parts of it cannot be read."""

    entries: Sequence[JournalEntry]
    running: frozenset[str]  # entries that a living process carries out right now
    damaged: Sequence[int]  # line numbers
    torn: int  # bytes at the end


_apart: ContextVar[Path | None] = ContextVar("_apart", default=None)


@contextmanager
def kept_apart() -> Iterator[None]:
    """Use a new journal in the block, which is deleted after it: of a cluster that is deleted."""
    with tempfile.TemporaryDirectory(prefix="eoctl-journal-") as folder:
        token = _apart.set(Path(folder))
        try:
            yield
        finally:
            _apart.reset(token)


class Journal:
    """The journal in a folder, by default the state folder's."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _apart.get() or state_dir() / "journal"
        self.path = self.folder / "journal.jsonl"

    def marker(self, entry: str) -> Path:
        return self.folder / "open" / entry

    def begin(self, plan: Plan, argv: Sequence[str], undoes: str | None = None) -> Writer:
        """Begin an entry: its `begun` is on disk when this returns. Raises RefusedError."""
        with self._errors():
            _make_folder(self.folder / "open")
            while True:
                stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
                entry = f"j-{stamp}-{os.urandom(2).hex()}"
                with suppress(FileExistsError):
                    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
                    descriptor = os.open(self.marker(entry), flags, 0o600)
                    break
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            writer = Writer(self, entry, descriptor)
        try:
            with self._errors():
                private.sync_folder(self.folder / "open")
            writer.append(
                "begun",
                plan=plan.model_dump(mode="json"),
                sha256=plan.sha256,
                who=who(),
                argv=redacted(argv),
                undoes=undoes,
            )
        except BaseException:
            writer.finished()
            writer.close()
            raise
        return writer

    def reopen(self, entry: str) -> Writer:
        """Continue an unfinished entry. Raises RefusedError while a process carries it out."""
        with self._errors():
            _make_folder(self.folder / "open")
            descriptor = os.open(self.marker(entry), os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise RefusedError("is being carried out right now", where=entry) from None
        return Writer(self, entry, descriptor)

    def abandon(self, entry: str, detail: str) -> None:
        """Close an unfinished entry. Raises RefusedError while a process carries it out."""
        writer = self.reopen(entry)
        try:
            writer.append("abandoned", detail=detail)
            writer.finished()
        finally:
            writer.close()

    def append(self, event: Event) -> None:
        """Add one line and sync it, completely or not at all. Raises RefusedError."""
        line = encode(event)
        with self._errors():
            _make_folder(self.folder)
            new = not self.path.exists()
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                end = self._set_torn_aside(descriptor)
                try:
                    written = os.write(descriptor, line)
                    if written != len(line):  # the disk took only a part
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(descriptor)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, end)
                    raise
            finally:
                os.close(descriptor)
            if new:
                private.sync_folder(self.folder)

    def _set_torn_aside(self, descriptor: int) -> int:
        """Move a line that a crash cut short to its own file; return where the next line begins."""
        size = os.fstat(descriptor).st_size
        if size == 0 or _last_line_whole(descriptor, size):
            return size
        reading = read(self.path.read_bytes())
        with (self.folder / "torn").open("ab") as file:
            file.write(reading.torn + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.ftruncate(descriptor, reading.whole)
        return reading.whole

    def read(self) -> JournalText:
        """Return the file's lines. No journal is an empty one. Raises IncompleteError."""
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return read(file.read())
        except FileNotFoundError:
            return read(b"")
        except OSError as error:
            raise IncompleteError(
                f"the journal cannot be read: {error.strerror}", where=str(self.path)
            ) from None

    def find(self) -> JournalContent:
        """Return all entries, oldest first. Raises IncompleteError for an unreadable journal."""
        reading = self.read()
        known_entries = entries(reading.events)
        running = frozenset(e.id for e in unfinished(known_entries) if _locked(self.marker(e.id)))
        return JournalContent(known_entries, running, reading.damaged, len(reading.torn))

    def forget_finished(self, content: JournalContent) -> None:
        """Remove markers that a crash left although their entry had ended."""
        keep = {entry.id for entry in unfinished(content.entries)}
        known = {entry.id for entry in content.entries}
        with suppress(OSError):
            for marker in (self.folder / "open").iterdir():
                # a marker without an entry may be about to get its `begun`
                old = time.time() - marker.stat().st_mtime > 60
                if marker.name not in keep and (marker.name in known or old):
                    marker.unlink()

    def get(self, entry: str) -> JournalEntry:
        """Return one entry by its id. Raises UsageError."""
        for one in self.find().entries:
            if one.id == entry:
                return one
        raise UsageError(f"no journal entry {entry!r}", remedy="see `eoctl journal list`")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RefusedError(
                f"the journal cannot be written: {error.strerror}",
                where=error.filename or str(self.path),
                remedy="nothing is changed without it; make room or set EOCTL_STATE_DIR",
            ) from None


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
    with suppress(OSError):  # the parent folder may be entered but not read
        private.sync_folder(folder.parent)


def _last_line_whole(descriptor: int, size: int) -> bool:
    length = 1 << 16
    while True:
        start = max(0, size - length)
        tail = os.pread(descriptor, size - start, start)
        if not tail.endswith(b"\n"):
            return False
        _, newline, line = tail[:-1].rpartition(b"\n")
        if newline or start == 0:
            return decode(line) is not None
        length *= 8  # a plan of thousands of partitions is a long line


def _locked(marker: Path) -> bool:
    try:
        descriptor = os.open(marker, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
