"""Keep snapshots in a file: a recording, which recording.py reads."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from msgspec import to_builtins

from eoctl.operations.dashboard.snapshot import PARTS, Snapshot
from eoctl.render.words import size as words_of
from recovery.answers import Answer
from recovery.errors import IncompleteError, UsageError
from recovery.plurals import counted
from recovery.row import Row
from tui.feed.recording import MODELS, PLAIN, SAME, SCHEMA

RESERVE = 256 * 2**20
"""Bytes that a recording leaves free on its disk: others write there, too."""
ENDED, NEW = "the recording ended", "record into a new file"


class Writer:
    """Appends snapshots to a new file.

    Raises UsageError if the file cannot be created, IncompleteError if its disk is nearly full; it
    leaves no file then.

    size: bytes written. snapshots: how many; answered: of these, those with the cluster's newest
    answer. recording: False before the first snapshot, and once it failed or was closed. ended: why
    nothing more is written; None while it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.snapshots = self.answered = 0
        self.recording = False
        self.ended: IncompleteError | None = None
        try:
            self._file: TextIO = path.open("x", encoding="ascii")
        except OSError as error:
            raise self._unusable(error) from None
        self._created = os.fstat(self._file.fileno())
        self._last: Snapshot | None = None
        try:
            self._check("cannot record")
            self._write({"schema": SCHEMA})
        except (OSError, IncompleteError) as error:
            if self.is_there:
                path.unlink(missing_ok=True)
            self.close()
            raise self._unusable(error) if isinstance(error, OSError) else error from None

    def _unusable(self, error: OSError) -> UsageError:
        says = f"cannot be written: {error.strerror}"
        return UsageError(says, where=str(self.path), remedy="name a new file")

    def add(self, snapshot: Snapshot) -> None:
        """Write one snapshot and flush it: what was seen must survive a crash.

        Raises IncompleteError if the file is no longer at its path, the disk is nearly full, or the
        file cannot be written any more; `ended` then says so.
        """
        self.recording = False
        try:
            self._check(ENDED)
            self._write(packed(snapshot, self._last))
        except OSError as error:
            raise self._end(f"{ENDED}: {error.strerror}", NEW) from None
        self._last = snapshot
        self.snapshots += 1
        self.answered += snapshot.partitions is not None and not snapshot.silent
        self.recording = True

    def close(self) -> None:
        self.recording = False
        with suppress(OSError):  # `add` has raised it: each snapshot is flushed there
            self._file.close()

    @property
    def kept(self) -> str:
        """Return in words how much is in the file, or was written into one that is gone."""
        if not self.is_there:
            written = counted(self.snapshots, "snapshot was", "snapshots were")
            return f"{self.path}: {written} written; the file at this path is another, or none"
        words = f"{counted(self.snapshots, 'snapshot')}, {self.answered} with an answer"
        return f"{self.path}: {words} of the cluster"

    @property
    def is_there(self) -> bool:
        """Return False if it was deleted, moved or replaced. It can be asked after `close`."""
        try:
            return os.path.samestat(self.path.stat(), self._created)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # a path that cannot be looked up is not gone; a write that fails says so

    def _check(self, prefix: str) -> None:
        """Raise IncompleteError, whose sentence has this prefix, if no more can be written."""
        if not self.is_there:
            raise self._end(f"{prefix}: its file was deleted, moved or replaced", NEW)
        disk = os.fstatvfs(self._file.fileno())
        if disk.f_bavail * disk.f_frsize < RESERVE:
            says = f"{prefix}: less than {words_of(RESERVE)} are free on its disk"
            raise self._end(says, f"make space, and {NEW}")

    def _end(self, says: str, remedy: str) -> IncompleteError:
        self.ended = IncompleteError(says, where=str(self.path), remedy=remedy)
        return self.ended

    def _write(self, value: object) -> None:
        line = json.dumps(value, separators=(",", ":")) + "\n"
        self._file.write(line)
        self._file.flush()
        self.size += len(line)


def packed(s: Snapshot, before: Snapshot | None) -> dict[str, object]:
    """Return a snapshot as JSON values."""
    out: dict[str, object] = {name: getattr(s, name) for name in PLAIN}
    for part in PARTS:
        answer: Answer | None = getattr(s, part)
        if before is not None and answer is getattr(before, part):
            out[part] = SAME
        elif answer is not None:
            out[part] = _packed_answer(answer)
    return out


def _packed_answer(a: Answer) -> dict[str, object]:
    return {
        "schema": a.schema,
        "cluster_id": a.cluster_id,
        "at": a.collected_at,
        "rows": [list(to_builtins(row).values()) for row in a.rows],
        "fields": list(MODELS.get(a.schema, Row).__struct_fields__),
        "errors": [
            {name: value for name, value in to_builtins(row).items() if value is not None}
            for row in a.errors
        ],
        "extra": to_builtins(dict(a.extra)),
        "finding": [a.judging, a.finding],
    }
