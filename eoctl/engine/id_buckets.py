"""Spread records by their ids over files, so that those of one id can be judged together.

Only digests, places and times are written: no keys, no values. The files and how far the logs were
read are saved together, so that a run that was killed is continued.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl import __version__
from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import write_whole
from recovery.audit.end_to_end import FIELDS
from recovery.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 1_000_000
"""Rows that are kept in memory until they are written, and that a bucket holds by plan: 40 MB."""
MOST = 3 * ROWS
"""Rows that a bucket may hold: more have one id, or few. Judging them takes 600 MB."""
KEPT_SECONDS = 3 * 86_400
"""The age at which what a killed run left is removed."""


class IdBuckets:
    """expected: the maximum number of rows. request: what the run is about; the key of its folder.

    saved: what the last save of an earlier run of this request kept, None: there was none.
    """

    def __init__(self, request: str, expected: int) -> None:
        home = state_dir() / "audits"
        self.folder = home / hashlib.sha256(request.encode()).hexdigest()[:32]
        self._planned = max(1, -(-expected // ROWS))
        self._waiting: list[NDArray[Any]] = []
        self._sizes = [0] * self._planned
        with _writing(home):
            _remove_old(home)
            private.make_folder(self.folder)
        self.saved = self._opened()

    def _opened(self) -> dict[str, Any] | None:
        try:
            kept: dict[str, Any] = json.loads((self.folder / "progress.json").read_bytes())
            if kept["began"] < (time.time() - KEPT_SECONDS) * 1000:
                raise ValueError
            self._sizes = kept["sizes"]
            for number, size in enumerate(self._sizes):
                if size:
                    if self._file(number).stat().st_size < size:
                        raise ValueError
                    os.truncate(self._file(number), size)
        except (OSError, ValueError, KeyError):
            self.restart()
            return None
        return kept

    def restart(self) -> None:
        """Remove what an earlier run kept. Raises UsageError."""
        self.remove()
        with _writing(self.folder):
            private.make_folder(self.folder)
        self._sizes = [0] * self._planned  # the killed run may have expected fewer

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.rows"

    def add(self, rows: "NDArray[Any]") -> bool:
        """Add rows. Return True once it is time to save: `save` keeps what was added so far."""
        self._waiting.append(rows)
        return sum(map(len, self._waiting)) >= ROWS

    def save(self, progress: dict[str, Any]) -> None:
        """Write the rows, and how far the run has come.

        progress: as JSON; `began`: epoch ms, when the run that is continued began. Raises
        UsageError if the folder cannot be written, IncompleteError for too many rows of one id:
        then the files are removed.
        """
        import numpy as np

        rows = np.concatenate(self._waiting or [np.zeros(0, FIELDS)])
        self._waiting = []
        count = len(self._sizes)
        bucket = (rows["id"][:, 0] >> np.uint64(32)) % np.uint64(count)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(count + 1, dtype=np.uint64))
        self._refuse_few_ids(np.diff(ends) * rows.itemsize, MOST * rows.itemsize)
        with _writing(self.folder):
            for number, (begin, end) in enumerate(pairwise(ends.tolist())):
                if begin < end:
                    with self._file(number).open("ab") as file:
                        file.write(rows[order[begin:end]].tobytes())
                    self._sizes[number] += (end - begin) * rows.itemsize
            os.sync()  # once, not for each of hundreds of files
        write_whole(
            self.folder / "progress.json",
            json.dumps({**progress, "sizes": self._sizes}).encode(),
            mode=0o600,
        )

    def _refuse_few_ids(self, more: "NDArray[Any]", most: int) -> None:
        """Refuse before anything is written. more: by bucket; bytes. Raises IncompleteError."""
        if int((more + self._sizes).max()) > most:
            self.remove()
            raise few_ids()

    def __iter__(self) -> "Iterator[NDArray[Any]]":
        """Yield the buckets, each read completely."""
        import numpy as np

        for number, size in enumerate(self._sizes):
            if size:
                with _writing(self.folder):
                    rows = np.fromfile(self._file(number), FIELDS)
                yield rows

    def remove(self) -> None:
        """Remove the files: the run has ended, or cannot be continued."""
        shutil.rmtree(self.folder, ignore_errors=True)


def few_ids() -> IncompleteError:
    """Return the error for a bucket that would have more than MOST rows."""
    return IncompleteError(
        "too many records have the same id, or few ids",
        remedy="name an id that each input has of its own: --by",
    )


def rows_of(
    ids: "NDArray[Any]", offsets: "NDArray[Any]", times: "NDArray[Any]", number: Any, kind: Any
) -> "NDArray[Any]":
    """Return rows. number, kind: range and kind of all rows, or of each."""
    import numpy as np

    rows = np.zeros(len(ids), FIELDS)
    rows["id"], rows["offset"], rows["timestamp"] = ids, offsets, times
    rows["range"], rows["kind"] = number, kind
    return rows


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise UsageError, which names the folder, for an OSError: a full disk, no permission."""
    try:
        yield
    except OSError as error:
        text = f"cannot be written or read: {error.strerror}"
        raise UsageError(text, where=str(folder), remedy="set EOCTL_STATE_DIR") from None


def _remove_old(home: Path) -> None:
    for folder in home.glob("*") if home.exists() else ():
        if time.time() - folder.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def key_of(parts: Sequence[object]) -> str:
    """Return the key of a request: a run is continued by one of equal parts, and of this eoctl."""
    return json.dumps([__version__, *parts], default=str)
