"""Sending one staged file exactly once: what each attempt of a sink's task does.

The order is the rule: init_transactions first, which ends every earlier attempt's transaction and
fences its producer; only then the marker is read. The other way round a live zombie may commit
between the two, and its rows come twice. An attempt that is fenced does not fail: another one has
taken over, so it waits for that one's marker.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from eoctl.kafka.access import Access
from eoctl.kafka.exactly_once import FencedError, Position, Writer
from recovery.errors import IncompleteError, RefusedError, UnreachableError, UnverifiedError
from recovery.facts import TopicPartition
from spark_jobs import markers, staging
from spark_jobs.markers import Marker

POLL_SECONDS = 0.5
TAKEOVERS = 6
SHARE_OF_TIMEOUT = 3  # a transaction is committed after this part of its timeout
AT_ONCE = 1000  # rows between two looks at the time


@dataclass(frozen=True, slots=True)
class Work:
    """One staged file of one batch. patience: seconds without progress of whoever took over."""

    access: Access
    job: str
    topic: str
    batch: int
    manifest: str
    partition: int
    file: staging.StagedFile
    folder: str
    transaction_timeout_ms: int
    rows_per_transaction: int
    patience: float = 60.0


class Attempt:
    """One attempt: `run` ends when the whole file is committed, by it or by another attempt.

    What is committed with the rows, and how it is understood, are `ids`, `position` and `mark`.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.writer: Writer | None = None
        self.sent = 0  # rows that this attempt committed
        self.transactions = 0

    @property
    def ids(self) -> tuple[str, str]:
        """The transactional id, and the group that positions are committed in."""
        work = self.work
        return markers.transactional_id(work.job, work.partition), markers.name(work.job)

    def position(self) -> int | None:
        """The row to begin with, None when nothing is left to commit. Raises RefusedError by the
        marker's rules.

        A file without rows begins at 0 too until its marker is committed.
        """
        work = self.work
        found = markers.committed(work.access, work.job, [work.partition])
        if work.partition not in found:
            raise expired(work.job, [work.partition])
        marker = found[work.partition]
        judge(marker, work)
        if marker.batch < work.batch:
            return 0
        return None if marker.batch > work.batch or marker.complete else marker.next_row

    def mark(self, row: int, last: staging.Row | None) -> Mapping[TopicPartition, Position]:
        """What is committed with the rows before `row`; last: the one right before it, None where
        the transaction has none."""
        work = self.work
        marker = Marker(work.batch, work.manifest, row, work.file.rows, markers.now_ms())
        return {markers.place(work.job, work.partition): marker.position}

    def run(self) -> dict[str, int]:
        """Raises RefusedError where the marker forbids it, IncompleteError where Kafka fails."""
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
        where = f"{self.work.topic}, part {self.work.partition}"
        raise IncompleteError(f"not sent: {why}", where=where)

    def _answer(self, takeovers: int) -> dict[str, int]:
        return {
            "partition": self.work.partition,
            "sent": self.sent,
            "transactions": self.transactions,
            "takeovers": takeovers,
        }

    def take_over(self) -> int | None:
        """Fence every other attempt, then read how far they came: as `position`."""
        self.fence()
        return self.position()

    def fence(self) -> None:
        """init_transactions: open transactions of this id are ended before it returns."""
        work = self.work
        self.writer = Writer(
            work.access.settings(), *self.ids, timeout_ms=work.transaction_timeout_ms
        )
        self.writer.open()

    def _send_from(self, row: int) -> None:
        rows = staging.rows_from(self.work.folder, self.work.file, row)
        row = self._transaction(rows, row)  # of a file without rows: the marker alone
        while row < self.work.file.rows:
            row = self._transaction(rows, row)

    def _transaction(self, rows: Iterator[staging.Row], row: int) -> int:
        """Send rows until the transaction is full or old enough; the next row, committed."""
        work, writer = self.work, self.writer
        assert writer is not None
        until = time.monotonic() + work.transaction_timeout_ms / 1000 / SHARE_OF_TIMEOUT
        begin, last = row, None
        writer.begin()
        while (most := min(AT_ONCE, begin + work.rows_per_transaction - row)) > 0:
            before = row
            for one in islice(rows, most):
                writer.send(
                    work.topic,
                    one.partition,
                    one.key,
                    one.value,
                    headers=one.headers or (),
                    timestamp=one.timestamp,
                )
                last, row = one, row + 1
            if row == before or time.monotonic() > until:
                break
        writer.commit(self.mark(row, last))
        self.sent += row - begin
        self.transactions += 1
        return row

    def _wait_for_other(self) -> bool:
        """Whether the attempt that took over ends the batch; waits while it makes progress."""
        seen: int | None = None
        until = time.monotonic() + self.work.patience
        while time.monotonic() < until:
            try:
                row = self.position()
            except (IncompleteError, UnreachableError):  # it writes just now, or nobody can
                time.sleep(POLL_SECONDS)
                continue
            if row is None:
                return True
            if row != seen:
                seen, until = row, time.monotonic() + self.work.patience
            time.sleep(POLL_SECONDS)
        return False

    def _drop(self) -> None:
        """Forget the producer; what it left open is ended by the next init_transactions."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def judge(marker: Marker, work: Work) -> None:
    """Whether this batch may follow what the marker says. Raises RefusedError."""
    where = f"{markers.name(work.job)}:{work.partition}"
    if marker.batch == work.batch and (marker.manifest, marker.rows) != (
        work.manifest,
        work.file.rows,
    ):
        raise RefusedError(
            f"batch {work.batch} was begun from another staging",
            where=where,
            remedy="run it with the staging folder it was begun with",
        )
    if marker.batch < work.batch and not marker.complete:
        raise RefusedError(
            f"batch {marker.batch} is unfinished ({marker.next_row} of {marker.rows} rows)",
            where=where,
            remedy=f"run batch {marker.batch} again first",
        )


def expired(job: str, partitions: list[int]) -> RefusedError:
    """An absent marker after marker 0: nobody can say what was sent."""
    return RefusedError(
        "the marker has expired or was deleted: how far the sink came is not known",
        where=", ".join(f"{markers.name(job)}:{p}" for p in partitions[:5]),
        remedy="compare the topic with the staged files, then go on under a new job name; "
        "offsets.retention.minutes must be longer than the job may rest",
    )
