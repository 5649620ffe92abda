"""A checkpoint as a store of offsets: read-only, because only its engine writes it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from eoctl.stores.offsets.bounded import SilentError, bounded
from eoctl.stores.offsets.store import Contents, EnsureHeld, StoredValues, Write
from recovery.errors import IncompleteError, RefusedError
from recovery.restart.stored import StoredPartition


class CheckpointOffsets(ABC):
    """What the stores of checkpoints share. instead: what to do instead of writing one."""

    compares = False
    engine: ClassVar[str]
    instead: ClassVar[str]

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self.name = f"{self.engine} checkpoint {path}"

    async def read(self) -> Contents:
        """Return entries: where a job restored from this checkpoint begins to read."""
        try:
            return await bounded(lambda job: self._read(), self._seconds)
        except SilentError as error:
            raise IncompleteError(f"cannot be read: {error}", where=self.name) from None

    @abstractmethod
    def _read(self) -> Contents:
        """Read the checkpoint's files; the caller limits the time."""

    def kept(self, position: StoredPartition) -> StoredValues:
        raise RefusedError(f"a checkpoint is {self.engine}'s: never written", where=self.name)

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        raise RefusedError(
            f"a checkpoint is {self.engine}'s: never written", where=self.name, remedy=self.instead
        )
