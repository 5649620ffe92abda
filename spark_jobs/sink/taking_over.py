"""Let a task's attempts take over from one another, so that each record is committed once.

The order matters: init_transactions first, which ends every earlier attempt's transaction and
fences its producer; only then is the committed position read. In the opposite order a live zombie
may commit between the two, and its records are sent twice. An attempt that is fenced does not fail:
another one has taken over, so it waits for that one's position.
"""

import time
from abc import ABC, abstractmethod
from typing import Any

from eoctl.kafka.connection.access import Access
from eoctl.kafka.write.exactly_once import FencedError, Writer
from recovery.errors import IncompleteError, UnreachableError, UnverifiedError

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
TAKEOVERS = 6


class TakingOver(ABC):
    """One attempt: `run` ends when everything is committed, by this attempt or another.

    name: what is sent, for errors. timeout_ms: of its transactions. patience: seconds to wait,
    without progress, for the attempt that took over.
    """

    def __init__(
        self, access: Access, name: str, timeout_ms: int, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.access, self._name = access, name
        self._timeout_ms, self._patience = timeout_ms, patience
        self.writer: Writer | None = None

    @property
    @abstractmethod
    def ids(self) -> tuple[str, str]:
        """Return the transactional id, and the group that positions are committed in."""

    @abstractmethod
    def position(self) -> int | None:
        """Return where to begin, None if nothing remains to commit. Raises RefusedError."""

    @abstractmethod
    def _send_from(self, position: int) -> None:
        """Commit everything from a position on, with `writer`."""

    @abstractmethod
    def _answer(self, takeovers: int) -> Any:
        """Return what `run` returns in the end. takeovers: how often the attempt began again."""

    def run(self) -> Any:
        """Raise RefusedError as the position requires, IncompleteError if Kafka fails."""
        why = ""
        for takeover in range(TAKEOVERS):
            try:
                row = self.take_over()
                if row is not None:
                    self._send_from(row)
                return self._answer(takeover)
            except FencedError:
                if self._wait_for_other():
                    return self._answer(takeover)
                why = "other attempts take over again and again and none of them ends"
            except (
                IncompleteError,
                UnreachableError,
                UnverifiedError,
            ) as error:  # begin again with `open`
                why = error.sentence
                time.sleep(POLL_SECONDS * (takeover + 1))
            finally:
                self._drop()
        raise IncompleteError(f"not sent: {why}", where=self._name)

    def take_over(self) -> int | None:
        """Fence every other attempt, then read how far they came: see `position`."""
        self.fence()
        return self.position()

    def fence(self) -> None:
        """Call init_transactions: it ends this id's open transactions before it returns."""
        self.writer = Writer(self.access.settings(), *self.ids, timeout_ms=self._timeout_ms)
        self.writer.open()

    def _wait_for_other(self) -> bool:
        """Wait while the attempt that took over progresses; return True if it ends the batch."""
        last_row: int | None = None
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            try:
                row = self.position()
            except (IncompleteError, UnreachableError):  # that one writes just now, or nobody can
                time.sleep(POLL_SECONDS)
                continue
            if row is None:
                return True
            if row != last_row:
                last_row, until = row, time.monotonic() + self._patience
            time.sleep(POLL_SECONDS)
        return False

    def _drop(self) -> None:
        """Forget the producer; the next init_transactions ends what it left open."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
