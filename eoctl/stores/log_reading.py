"""Read a partition of `__transaction_state` once: its kept batches, and the new ones.

New batches are appended to what is kept as they arrive, so memory does not grow with the log. If
nothing can be written (a full or read-only disk) they go to a temporary file.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eoctl.kafka.read.temporary_log import TemporaryLog
from eoctl.stores.kept_log import DamagedError, KeptLog, index_of
from eoctl.stores.locks.folder_lock import held
from eoctl.stores.log_pruning import is_due, prune
from recovery.formats.batches import BatchHeader
from recovery.formats.reader import CorruptError
from recovery.inspect.log_part import LogPart, Wholeness
from recovery.inspect.state_log import Extent, KeptBatches
from recovery.values import Value, replace

ASIDE = (".lost", ".damaged")


class _Both(Value):
    """The kept batches, and those that could not be kept."""

    kept: KeptLog
    spare: KeptBatches

    @property
    def extents(self) -> Sequence[Extent]:
        return [*self.kept.extents, *self.spare.extents]

    @property
    def wholeness(self) -> Wholeness:
        return self.spare.wholeness

    def cut(self, name: str) -> int:
        return self.kept.cut(name)


class LogReading:
    """A reading of the partition that is kept at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: BatchHeader | None = None  # the last kept batch when the reading began
        self.bytes_read = 0  # of kept batches, by queries
        self._end = 0
        self._begun = 0
        self._spare: TemporaryLog | None = None
        try:
            self._begin()
        except DamagedError:
            self.set_aside_damaged()

    def _begin(self) -> None:
        """Begin, or begin again, after the kept batches."""
        self.last, self._spare = None, None
        self._end = self._begun = 0
        with held(self.path.parent, exclusive=False), suppress(OSError), KeptLog(self.path) as log:
            self.last = log.last
            self._end = self._begun = log.wholeness.end

    def retire(self) -> None:
        """Set aside what the log no longer holds, unless another process has done so."""
        with held(self.path.parent, exclusive=True) as ours:
            if ours and self._last_now() == self.last:
                set_aside(self.path, ".lost")
        self._begin()

    def set_aside_damaged(self) -> None:
        """Set aside a file that cannot be read completely: its sound part is still read."""
        with held(self.path.parent, exclusive=True) as ours:
            if ours:
                set_aside(self.path, ".damaged")
        self._begin()

    def _last_now(self) -> BatchHeader | None:
        try:
            with KeptLog(self.path) as log:
                return log.last
        except (OSError, CorruptError):
            return None

    def add(self, part: LogPart) -> None:
        """Add the next batches, without known ones."""
        if self._spare is None and not self._append(part):
            with self._opened() as log:
                self._spare = TemporaryLog(replace(log.wholeness))
                if log.wholeness.end < self._end:  # another process has set the rest aside
                    self._begun = self._end
        if self._spare is not None:
            self._spare.add(part, self._begun)

    def _append(self, part: LogPart) -> bool:
        """Append to the kept batches; False if that fails."""
        try:
            with held(self.path.parent, exclusive=True) as ours:
                if not ours:
                    return False
                with KeptLog(self.path) as log:
                    if log.wholeness.end < self._end:
                        return False  # another process set aside the file
                    if log.wholeness.end > self._end:
                        self._begun = self._end = log.wholeness.end  # another process has read them
                    new = part.after(self._end - 1)
                    if new is not None:
                        log.append(new, self._begun)
                        self._end = log.wholeness.end
                    if is_due(log):
                        prune(log)
        except (OSError, CorruptError):
            return False
        return True

    def ended(self, end: int) -> None:
        """Note that the log was read to its high watermark."""
        if self._spare is not None:
            self._spare.wholeness.ended(end, self._begun)
            return
        if end <= self._end:
            return
        try:
            with held(self.path.parent, exclusive=True) as ours, KeptLog(self.path) as log:
                if ours and log.size and log.wholeness.end == self._end:
                    log.ended(end, self._begun)
        except (OSError, CorruptError):
            return

    @contextmanager
    def batches(self) -> Iterator[KeptBatches]:
        """Open what was read. Raises DamagedError."""
        with self._opened() as log:
            yield log if self._spare is None else _Both(log, self._spare)
            self.bytes_read += log.bytes_read

    @contextmanager
    def _opened(self) -> Iterator[KeptLog]:
        with ExitStack() as stack:
            with held(self.path.parent, exclusive=False):
                try:
                    log = stack.enter_context(KeptLog(self.path))
                except OSError:
                    log = KeptLog(self.path)
            yield log


def set_aside(path: Path, suffix: str) -> None:
    """Rename a file and its index to `NUMBER.N` and this suffix, N unused; under the lock."""
    number = path.name.split(".")[0]
    names = (path.with_name(f"{number}.{n}") for n in itertools.count())
    free = next(p for p in names if not any(Path(f"{p}{s}").exists() for s in ASIDE))
    target = Path(f"{free}{suffix}")
    with suppress(OSError):
        with suppress(FileNotFoundError):
            index_of(path).replace(index_of(target))
        path.replace(target)
