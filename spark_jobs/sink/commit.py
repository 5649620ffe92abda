"""Send one staged file exactly once: what each attempt of a sink's task does.

A marker of the staging, committed with the rows, says how far they came. `taking_over` describes
how attempts take over from one another.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import islice

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.stores.storage_address import storage_at
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.values import Value
from spark_jobs.sink import markers, staging
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.taking_over import TakingOver

SHARE_OF_TIMEOUT = 3  # a transaction is committed after this fraction of its timeout
AT_ONCE = 1000  # rows between two checks of the time


class Work(Value):
    """One staged file of one batch. folder: the batch's folder, or its address in object storage.
    patience: seconds to wait, without progress, for the attempt that took over."""

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
    run: str | None = None


class Attempt(TakingOver):
    """One attempt: `run` ends when this attempt or another one has committed the complete file.

    `ids`, `position` and `mark` define what is committed with the rows and how it is understood.
    """

    def __init__(self, work: Work) -> None:
        name = f"{work.topic}, part {work.partition}"
        super().__init__(work.access, name, work.transaction_timeout_ms, work.patience)
        self.work = work
        self.sent = 0  # rows that this attempt committed
        self.transactions = 0

    @property
    def ids(self) -> tuple[str, str]:
        work = self.work
        return markers.transactional_id(work.job, work.partition), markers.name(work.job)

    def position(self) -> int | None:
        """Return the row to begin with. Raises RefusedError as the marker's rules require.

        A file without rows also begins at 0 until its marker is committed.
        """
        work = self.work
        by_partition = markers.committed(work.access, work.job, [work.partition])
        if work.partition not in by_partition:
            raise expired(work.job, [work.partition])
        marker = by_partition[work.partition]
        judge(marker, work)
        if marker.batch < work.batch:
            return 0
        return None if marker.batch > work.batch or marker.complete else marker.next_row

    def mark(
        self, row: int, last: staging.Row | None
    ) -> Mapping[TopicPartition, CommittedPosition]:
        """Return the commit's metadata for rows before `row`.

        last: the row right before it, None if the transaction has no rows.
        """
        work = self.work
        values = work.batch, work.manifest, row, work.file.rows, now_ms(), work.run
        marker = Marker(*values)
        return {markers.marker_partition(work.job, work.partition): marker.position}

    def _answer(self, takeovers: int) -> dict[str, int]:
        return {
            "partition": self.work.partition,
            "sent": self.sent,
            "transactions": self.transactions,
            "takeovers": takeovers,
        }

    def _send_from(self, row: int) -> None:
        rows = staging.rows_from(storage_at(self.work.folder), self.work.file, row)
        row = self._transaction(rows, row)  # for a file without rows: only the marker
        while row < self.work.file.rows:
            row = self._transaction(rows, row)

    def _transaction(self, rows: Iterator[staging.Row], row: int) -> int:
        """Send rows until the transaction is full or old enough; return the next row, committed."""
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


def judge(marker: Marker, work: Work) -> None:
    """Refuse a batch that may not follow what the marker says. Raises RefusedError."""
    where = str(markers.marker_partition(work.job, work.partition))
    refuse_other_run(marker, work.run, where)
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
            f"batch {marker.batch} is unfinished ({marker.next_row:,} of "
            f"{counted(marker.rows, 'row')})",
            where=where,
            remedy=f"run batch {marker.batch} again first",
        )


def refuse_other_run(marked: Marker | staging.Manifest, run: str | None, where: str) -> None:
    """Refuse a run other than the marked one: its numbers say nothing about these rows.

    Raises RefusedError.
    """
    if marked.batch == markers.NO_BATCH or marked.run == run:
        return
    owner = "a run that gave no run_id" if marked.run is None else f"run {marked.run}"
    this = "another run, without a run_id" if run is None else f"another run, {run}"
    keep = "" if marked.run is None else f", or run_id={marked.run!r} if this run goes on with it"
    raise RefusedError(
        f"batch {marked.batch} here belongs to {owner}, this is {this}: its rows would be taken "
        "for rows that were sent",
        where=where,
        remedy=f"give another job name{keep}; rows that the other run sent are then sent again "
        "if this one reads them again",
    )


def expired(job: str, partitions: list[int]) -> RefusedError:
    """Return the refusal for a marker that is absent after marker 0: what was sent is unknown."""
    return RefusedError(
        "the marker has expired or was deleted: how far the sink came is not known",
        where=", ".join(str(markers.marker_partition(job, p)) for p in partitions[:5]),
        remedy="compare the topic with the staged files, then go on under a new job name; "
        "offsets.retention.minutes must be longer than the job may rest",
    )
