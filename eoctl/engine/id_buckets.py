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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.settings.folders import state_dir
from eoctl.stores import private
from eoctl.stores.textfile import write_whole
from recovery.audit.end_to_end import FIELDS
from recovery.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 1_000_000
"""Rows that are kept in memory until they are written, and that a bucket holds by plan: 40 MB."""
MOST = 12 * ROWS
"""Rows that a bucket may hold: more have one id, or few."""
KEPT_SECONDS = 3 * 86_400
"""The age at which what a killed run left is removed."""


class IdBuckets:
    """expected: the maximum number of rows. request: what the run is about; the key of its folder.

    saved: what the last save of an earlier run of this request kept, None: there was none.
    """

    def __init__(self, request: str, expected: int) -> None:
        home = state_dir() / "audits"
        self.folder = home / hashlib.sha256(request.encode()).hexdigest()[:32]
        self._number = max(1, -(-expected // ROWS))
        self._waiting: list[NDArray[Any]] = []
        self._sizes = [0] * self._number
        try:
            _remove_old(home)
            private.make_folder(self.folder)
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", where=str(home)) from None
        self.saved = self._opened()

    def _opened(self) -> dict[str, Any] | None:
        try:
            kept: dict[str, Any] = json.loads((self.folder / "progress.json").read_bytes())
            self._number, self._sizes = len(kept["sizes"]), kept["sizes"]
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
        """Begin anew: what an earlier run kept is removed. Raises OSError."""
        self.remove()
        private.make_folder(self.folder)
        self._sizes = [0] * self._number

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.rows"

    def add(self, rows: "NDArray[Any]") -> bool:
        """Add rows. Return True once it is time to save: `save` keeps what was added so far."""
        self._waiting.append(rows)
        return sum(map(len, self._waiting)) >= ROWS

    def save(self, progress: dict[str, Any]) -> None:
        """Write the rows, and how far the run has come. Raises OSError, IncompleteError."""
        import numpy as np

        rows = np.concatenate(self._waiting or [np.zeros(0, FIELDS)])
        self._waiting = []
        bucket = (rows["id"][:, 0] >> np.uint64(32)) % np.uint64(self._number)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self._number + 1, dtype=np.uint64))
        for number, (begin, end) in enumerate(pairwise(ends.tolist())):
            if begin < end:
                self._append(number, rows[order[begin:end]])
        os.sync()  # once, not for each of hundreds of files
        write_whole(
            self.folder / "progress.json",
            json.dumps({**progress, "sizes": self._sizes}).encode(),
            mode=0o600,
        )

    def _append(self, number: int, rows: "NDArray[Any]") -> None:
        with self._file(number).open("ab") as file:
            file.write(rows.tobytes())
        self._sizes[number] += rows.nbytes
        if self._sizes[number] > MOST * rows.itemsize:
            raise IncompleteError(
                "too many records have the same id, or few ids",
                remedy="name an id that each input has of its own: --by",
            )

    def __iter__(self) -> "Iterator[NDArray[Any]]":
        """Yield the buckets, each read completely."""
        import numpy as np

        for number, size in enumerate(self._sizes):
            if size:
                yield np.fromfile(self._file(number), FIELDS)

    def remove(self) -> None:
        """Remove the files: the run has ended, or cannot be continued."""
        shutil.rmtree(self.folder, ignore_errors=True)


def rows_of(
    ids: "NDArray[Any]", offsets: "NDArray[Any]", times: "NDArray[Any]", number: int, kind: Any
) -> "NDArray[Any]":
    """Return rows of a range. kind: of all rows, or of each."""
    import numpy as np

    rows = np.zeros(len(ids), FIELDS)
    rows["id"], rows["offset"], rows["timestamp"] = ids, offsets, times
    rows["range"], rows["kind"] = number, kind
    return rows


def _remove_old(home: Path) -> None:
    for folder in home.glob("*") if home.exists() else ():
        if time.time() - folder.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def key_of(parts: Sequence[object]) -> str:
    """Return the key of a request: the run is continued only by one with equal parts."""
    return json.dumps(parts, default=str)
