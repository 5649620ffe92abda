"""A task's attempts take over from one another here, so that each record is committed once.

The order is the rule: init_transactions first, which ends every earlier attempt's transaction and
fences its producer; only then the committed position is read. The other way round a live zombie
may commit between the two, and its records come twice. An attempt that is fenced does not fail:
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
    """One attempt: `run` ends when everything is committed, by it or by another attempt.

    name: what is sent, for errors. timeout_ms: of its transactions. patience: seconds without
    progress of whoever took over.
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
        """The transactional id, and the group that positions are committed in."""

    @abstractmethod
    def position(self) -> int | None:
        """Return where to begin, None when nothing is left to commit. Raises RefusedError."""

    @abstractmethod
    def _send_from(self, position: int) -> None:
        """Commit all from there on, by `writer`."""

    @abstractmethod
    def _answer(self, takeovers: int) -> Any:
        """Return what `run` gives in the end. takeovers: how often it began again."""

    def run(self) -> Any:
        """Raises RefusedError where the position forbids it, IncompleteError where Kafka fails."""
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
        """Fence every other attempt, then read how far they came: as `position`."""
        self.fence()
        return self.position()

    def fence(self) -> None:
        """init_transactions: open transactions of this id are ended before it returns."""
        self.writer = Writer(self.access.settings(), *self.ids, timeout_ms=self._timeout_ms)
        self.writer.open()

    def _wait_for_other(self) -> bool:
        """True if the attempt that took over ends the batch; waits while it makes progress."""
        last_row: int | None = None
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            try:
                row = self.position()
            except (IncompleteError, UnreachableError):  # it writes just now, or nobody can
                time.sleep(POLL_SECONDS)
                continue
            if row is None:
                return True
            if row != last_row:
                last_row, until = row, time.monotonic() + self._patience
            time.sleep(POLL_SECONDS)
        return False

    def _drop(self) -> None:
        """Forget the producer; what it left open is ended by the next init_transactions."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
