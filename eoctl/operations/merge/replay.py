"""Replay one partition of a merge log: read, match, write, one transaction at a time.

Each transaction holds outputs and the position after them, so wherever a replay dies, the next one
resumes exactly there. The last to open the transactional id fences all others. With `follow` the
log is extended first, in its own transaction, and the entries then read back are emitted.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer
from eoctl.operations.merge.planning import (
    Merge,
    MergeLook,
    Reached,
    decoded,
    first_to_read,
    look,
    reached,
    scan,
)
from eoctl.operations.merge.read import SILENT_SECONDS, Stream, silent
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnreachableError,
    UnverifiedError,
)
from recovery.facts import TopicPartition
from recovery.merge.log import MergeEntry, merge_format
from recovery.merge.reading import beyond, goes_back, no_record
from recovery.merge.replay import Base, Replay
from recovery.plurals import counted
from recovery.shared.app_file import named
from recovery.shared.log_position import EpochSteps
from recovery.values import Value

if TYPE_CHECKING:
    from confluent_kafka import Message

RECORDS, SECONDS = 100_000, 1.0  # per transaction
TIMEOUT_MS = 60_000  # for a transaction with a dead owner
BATCH = 5_000  # records between two checks of the time
LOGGED = 50_000  # entries that are read ahead
NEW = 50_000  # entries that are appended to the log in one transaction
TRIES = 3  # without a commit in between
MOST_BYTES = 1_000_000_000  # per record: the topic's own limit decides

ReplayProgress = Callable[[int, int, int], None]
"""Called with a partition, entries done and entries in all, now and then, from any thread."""


class ReplayRun(Value):
    """What all partitions of a replay share. ensure_held: raises once the lock is lost."""

    settings: ClientSettings
    merge: Merge
    follow: bool
    max_rate: float | None
    ensure_held: Callable[[], None]
    progress: ReplayProgress
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    read_only: bool = False


class _Copier(Writer):
    """Writes messages exactly as they were read."""

    def __init__(self, settings: ClientSettings, transactional_id: str, group: str) -> None:
        super().__init__(settings, transactional_id, group, timeout_ms=TIMEOUT_MS)
        self._config |= {"message.max.bytes": MOST_BYTES, "linger.ms": 50}

    # Without a callback per record: it costs as much as the record, and after a fence a callback
    # that librdkafka calls fails with a SystemError. Nothing is missed: a record that was not
    # accepted fails the transaction.

    def copy(self, topic: str, partition: int, messages: "list[Message]") -> None:
        """Write each one's key, value, headers and timestamp. `commit` reports a failed record."""
        from confluent_kafka import KafkaException

        produce = self._producer.produce
        message: Message
        try:
            for message in messages:
                timestamp = message.timestamp()[1]
                if not timestamp:
                    raise _not_the_same(message, "its timestamp is 0, which would be sent as now")
                value, key, headers = message.value(), message.key(), message.headers()
                while True:
                    try:
                        produce(topic, value, key, partition, None, None, timestamp, headers)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            self._producer.poll(0)
        except UnicodeDecodeError:
            raise _not_the_same(message, "the name of a header is not UTF-8") from None
        except KafkaException as failure:
            raise self._as_eoctl_error(failure, f"cannot write to {topic}:{partition}") from None


def add_epochs(epochs: EpochSteps, messages: "list[Message]") -> None:
    """Add the leader epochs of a log's next records."""
    few = messages if messages[0].leader_epoch() != messages[-1].leader_epoch() else messages[:1]
    for message in few:
        epochs.add(message.offset() or 0, message.leader_epoch())


def _not_the_same(m: "Message", why: str) -> RefusedError:
    return RefusedError(
        f"{why}: the record could not be written as it is",
        where=f"{m.topic()}:{m.partition()} at {m.offset()}",
    )


class PartitionReplay:
    """One partition's replay. `run` blocks; job.stop ends it after the open transaction."""

    def __init__(self, job: ReplayRun, base: Base, partition: int) -> None:
        self._job, self.base = job, base
        self._merge = TopicPartition(job.merge.topic, partition)
        self._commits = 0
        self.sent = 0  # committed

    @property
    def partition(self) -> int:
        return self._merge[1]

    @property
    def committed(self) -> bool:
        """Return True if a transaction of it was committed: records, or entries of the log."""
        return self._commits > 0

    def run(self) -> None:
        """Replay to the tip as of the start or, following, until stopped.

        Raises RefusedError (fenced, a false log, another's outputs), and IncompleteError or
        UnverifiedError if the cluster keeps failing: run the command again.
        """
        tries = 0
        while True:
            before = self._commits
            try:
                return self._attempt()
            except (IncompleteError, UnverifiedError, UnreachableError) as error:
                tries = 1 if self._commits > before else tries + 1
                if tries >= TRIES or self._job.stop.wait(0.5 * tries):
                    raise self._ended(error) from None
            except RefusedError as error:
                raise self._ended(error) from None

    def _ended(self, error: EoctlError) -> EoctlError:
        text = f"{error.what}; {counted(self.sent, 'record')} sent before and committed"
        return type(error)(
            text if self.sent else error.what,
            where=error.where,
            remedy=error.remedy or "the same command goes on from there",
        )

    def _attempt(self) -> None:
        job = self._job
        writer = _Copier(job.settings, job.merge.transactional_id(self.partition), job.merge.group)
        writer.open()  # first: nobody else can commit from now on
        attempt = None
        try:
            attempt = _Attempt(self, job, writer, *asyncio.run(self._start()))
            attempt.run()
        except BaseException:
            writer.abort()
            raise
        finally:
            if attempt is not None:
                attempt.close()
            writer.close()

    async def _start(self) -> tuple[MergeLook, Reached, dict[TopicPartition, int]]:
        """Return the entry to continue from, and the next offset of each input named before it."""
        job, p = self._job, self.partition
        async with Cluster(job.settings, Deadline(None), read_only=job.read_only) as cluster:
            logs = await look(cluster, job.merge, twice=True)
            [now] = (await reached(cluster, job.merge, {p: self.base}, logs)).values()
            begin = self.base.merge_offset
            if job.follow:  # records merged before must not be merged again
                begin, _ = logs.bounds(self._merge, "read_committed")
            span = (begin, now.position.merge_offset)
            before = await asyncio.to_thread(scan, cluster, job.merge, self._merge, *span)
        for partition, source in before.sources.items():
            if not source.rising:
                raise goes_back(self._merge, partition)
        return (
            logs,
            now,
            {partition: source.last + 1 for partition, source in before.sources.items()},
        )


class _Attempt:
    """One try, from the committed position on."""

    def __init__(
        self,
        owner: PartitionReplay,
        job: ReplayRun,
        writer: _Copier,
        logs: MergeLook,
        now: Reached,
        following: Mapping[TopicPartition, int],
    ) -> None:
        """following: the next offset of inputs that the log named before the position."""
        self._owner, self._job, self._writer = owner, job, writer
        self._merge = TopicPartition(job.merge.topic, owner.partition)
        self._output = owner.base.output
        self._tip = now.tip
        self._seen, self._next = logs, following
        self._reads: set[TopicPartition] = set()
        self._format = merge_format(job.merge.format)
        self._replay: Replay[Message] = Replay(self._merge, now.position)
        self._committed = now.at
        self._epochs = EpochSteps()
        if now.position.merge_offset:
            self._epochs.add(now.position.merge_offset - 1, now.leader_epoch)
        self._log = Stream(job.settings, isolation="read_committed")
        self._log.add({self._merge: now.position.merge_offset})
        self._inputs = Stream(job.settings, isolation=job.merge.isolation, max_rate=job.max_rate)
        self._log_done = False
        self._appended: deque[MergeEntry] = deque()  # written to the log, not read back yet
        self._open = 0  # records of the open transaction
        self._began = 0.0
        self._in_transaction = False
        self._heard = self._reported = time.monotonic()
        self._begins = owner.base.merge_offset

    def close(self) -> None:
        self._log.close()
        self._inputs.close()

    def run(self) -> None:
        while not self._job.stop.is_set():
            self._read_log()
            messages = self._replay.take(BATCH)
            if messages:
                self._send(messages)
            elif not self._step():
                break
            if self._in_transaction and (
                self._open >= RECORDS or time.monotonic() - self._began >= SECONDS
            ):
                self._commit()
            self._tell()
        if self._in_transaction or self._committed != self._replay.position:
            self._commit()

    def _send(self, messages: "list[Message]") -> None:
        self._begin()
        self._writer.copy(*self._output, messages)
        self._open += len(messages)
        self._heard = time.monotonic()

    def _begin(self) -> None:
        if not self._in_transaction:
            self._job.ensure_held()
            self._writer.begin()
            self._in_transaction, self._open, self._began = True, 0, time.monotonic()

    def _commit(self) -> None:
        """Commit the records sent and the position after them, together."""
        self._begin()
        self._job.ensure_held()
        position = self._replay.position
        epoch = self._epochs.of(position.merge_offset - 1)
        at = CommittedPosition(position.merge_offset, position.metadata, epoch)
        self._writer.commit({self._merge: at})
        self._in_transaction = False
        self._committed = position
        self._owner._commits += 1
        self._owner.sent += self._open

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._reported >= 0.25:
            self._reported = now
            done = self._replay.position.merge_offset - self._begins
            self._job.progress(self._merge[1], done, self._tip - self._begins)

    def _step(self) -> bool:
        """Read on, or extend the log, since no record can be sent now. False: all is done."""
        replay = self._replay
        entry = replay.waits_for
        if entry is None and self._log_done and not replay.logged:
            if not self._job.follow:
                return False
            if not self._appended and self._extend():
                return True
        idle = entry is not None or self._log_done or self._job.follow
        self._read_inputs(entry, 0.05 if idle else 0.0)
        if self._in_transaction and self._open and entry is None and self._job.follow:
            self._commit()  # nothing more to send: commit without waiting
        waits = entry is not None or not self._log_done or self._appended
        if waits and time.monotonic() - self._heard > SILENT_SECONDS:
            raise silent(entry.topic_partition if entry is not None else self._merge)
        return True

    def _read_log(self) -> None:
        if self._replay.position.merge_offset >= self._tip:
            self._come_to_tip()
        if self._replay.logged >= LOGGED or (self._log_done and not self._job.follow):
            return
        # librdkafka reads ahead: existing records arrive immediately
        wait = 0.05 if not self._replay.logged and not self._log_done else 0.0
        for _, messages in self._log.read(wait):
            self._heard = time.monotonic()
            offsets, (partitions, named_offsets) = decoded(self._format, self._merge, messages)
            add_epochs(self._epochs, messages)
            if not self._job.follow:
                below = bisect_left(offsets, self._tip)
                offsets, partitions = offsets[:below], partitions[:below]
                named_offsets = named_offsets[:below]
            elif self._log_done:
                for at, partition, offset in zip(offsets, partitions, named_offsets, strict=True):
                    self._refuse_foreign(at, MergeEntry(*partition, offset))
            for partition in set(partitions) - self._reads:
                self._read_from(partition, named_offsets[partitions.index(partition)])
            self._replay.log_all(offsets, (partitions, named_offsets))
            if messages[-1].offset() >= self._tip - 1:
                self._come_to_tip()
        if self._log.ends.get(self._merge, -1) >= self._tip:
            self._come_to_tip()

    def _read_from(self, partition: TopicPartition, offset: int) -> None:
        """Read an input from here on, or from where the log left it before: a record in between
        would be a hole."""
        first_to_read(self._job.merge, self._seen, self._merge, partition, offset)
        self._reads.add(partition)
        self._inputs.add({partition: min(offset, self._next.get(partition, offset))})

    def _come_to_tip(self) -> None:
        """End a replay that read the complete log; to follow, read the inputs it did not name."""
        if self._log_done:
            return
        self._log_done = True
        if not self._job.follow:
            return
        low, _ = self._seen.bounds(self._merge, "read_committed")
        for topic in self._job.merge.inputs:
            partition = TopicPartition(topic, self._merge[1])
            if partition in self._reads or partition not in self._seen.facts:
                continue
            first, _ = self._seen.bounds(partition, self._job.merge.isolation)
            offset = self._next.get(partition)
            if offset is None and (low > 0 or first > 0):
                raise RefusedError(
                    f"no entry of the merge log names it, the log starts at {low} and it at "
                    f"{first}: where to go on is unknown",
                    where=named(partition),
                )
            if (offset or 0) < first:
                raise RefusedError(
                    f"[{offset}, {first}) is gone and was never merged", where=named(partition)
                )
            self._reads.add(partition)
            self._inputs.add({partition: offset or 0})

    def _refuse_foreign(self, offset: int, entry: MergeEntry) -> None:
        """Refuse entries beyond the tip unless they were appended here, in this order."""
        if not self._appended or self._appended.popleft() != entry:
            raise RefusedError(
                f"at {offset} there is an entry for {named(entry.topic_partition)} at "
                f"{entry.offset} that somebody else wrote",
                where=named(self._merge),
                remedy="let one process alone extend a merge log",
            )

    def _read_inputs(self, entry: MergeEntry | None, seconds: float) -> None:
        job, replay = self._job, self._replay
        if not self._reads:
            job.stop.wait(seconds)
            return
        if self._inputs.owed:
            job.stop.wait(min(0.1, self._inputs.owed))
            self._heard = time.monotonic()
            return
        for partition, messages in self._inputs.read(seconds):
            self._heard = time.monotonic()
            replay.records(partition, [m.offset() for m in messages], messages)
            self._inputs.balance(replay.waiting, partition)
        self._inputs.resume_short(replay.waiting)
        if entry is not None and not replay.waiting(entry.topic_partition):
            _, there = self._seen.bounds(entry.topic_partition, job.merge.isolation)
            if entry.offset >= there:
                raise beyond(entry.topic_partition, entry.offset, there)
            if self._inputs.ends.get(entry.topic_partition, -1) > entry.offset:
                raise no_record(self._merge, entry)

    def _extend(self) -> bool:
        """Append what arrived to the log, in its own transaction. False: nothing arrived."""
        new = self._replay.extend(NEW)
        if not new:
            return False
        if self._in_transaction:
            self._commit()
        self._job.ensure_held()
        self._writer.begin()
        for key, value in map(self._format.encode, new):
            self._writer.send(*self._merge, key, value)
        self._writer.commit({})
        self._owner._commits += 1
        self._appended.extend(new)
        self._heard = time.monotonic()
        return True
