"""Send a delivery's transactions into one partition of a topic, with the number of rows.

The number is committed with the rows: a later reader knows the next row to send.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer
from recovery.facts import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

TRANSACTION_SECONDS = 5.0
TRANSACTION_RECORDS = 20_000


class Sending:
    """The transactions of one partition; used in a thread. rows: those committed, first: before
    this attempt. at: called with the points at which a test may kill the process."""

    def __init__(
        self,
        writer: Writer,
        partition: TopicPartition,
        metadata: str,
        ensure_held: Callable[[], None],
        at: Callable[[str], None],
    ) -> None:
        self._writer, self._partition, self._metadata = writer, partition, metadata
        self._ensure_held, self._at = ensure_held, at
        self._until: float | None = None  # of the open transaction
        self._open = 0  # its rows
        self.first = self.rows = self.commits = 0

    def send(self, rows: "pa.Table") -> None:
        """Send the next rows, in their order."""
        columns = (rows.column(name).to_pylist() for name in ("key", "value", "timestamp"))
        for key, value, timestamp in zip(*columns, strict=True):
            if self._until is None:
                self._ensure_held()
                self._writer.begin()
                self._until = time.monotonic() + TRANSACTION_SECONDS
            self._writer.send(*self._partition, key, value, timestamp=timestamp)
            self._open += 1
        self._at("sent")
        if self._open >= TRANSACTION_RECORDS or time.monotonic() > (self._until or 0):
            self.commit(self.rows + self._open)

    def end(self) -> None:
        """Commit the open transaction."""
        if self._until is not None:
            self.commit(self.rows + self._open)

    def commit(self, rows: int) -> None:
        """Commit the rows sent, and with them the total number of rows written."""
        self._ensure_held()
        if self._until is None:
            self._writer.begin()
        self._writer.commit({self._partition: CommittedPosition(rows, self._metadata)})
        self.commits += 1
        self.rows, self._open, self._until = rows, 0, None
        self._at(f"committed-{self.commits}")
