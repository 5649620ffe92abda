"""Read `__transaction_state`: new batches since an earlier reading, and what both say of ids.

Memory does not grow with the log: batches go to the cache as they arrive, and a question reads only
extents that may answer it, one at a time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Range, read
from eoctl.kafka.read.log_checks import record_epoch_ends
from eoctl.kafka.read.temporary_log import TemporaryLog
from recovery.formats.batches import BatchHeader, verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.history import StateLog
from recovery.inspect.log_part import LogPart, part_of
from recovery.inspect.state_log import Former, KeptBatches, state_log
from recovery.values import Value, replace


class Reading(Protocol):
    """One reading of a partition, which continues what an earlier one kept."""

    @property
    def last(self) -> BatchHeader | None:
        """Return the last batch that was kept before; None = none was."""
        ...

    def add(self, part: LogPart) -> None:
        """Add the next batches, without known ones."""
        ...

    def ended(self, end: int) -> None:
        """Note that the log was read to its high watermark."""
        ...

    def batches(self) -> AbstractContextManager[KeptBatches]:
        """Open what was read. Raises CorruptError."""
        ...

    def retire(self) -> None:
        """Set the kept batches aside, since the log no longer holds them, and begin again."""
        ...

    def set_aside_damaged(self) -> None:
        """Set the kept batches aside, since they are unreadable, and begin again."""
        ...


class Cache(Protocol):
    """Earlier readings of `__transaction_state`, kept (eoctl.stores.history_cache)."""

    def reading(self, partition: int) -> Reading:
        """Begin to read a partition."""
        ...

    @property
    def has_earlier(self) -> bool:
        """Return True if another topic than the present one was kept under this cluster id."""
        ...

    def former(self, present: Mapping[str, str]) -> Iterable[Former]:
        """Return all logs set aside, and those kept of earlier topics of this cluster.

        Each can be read until the next one is requested. present: topic → id now, of all topics:
        these distinguish this cluster from another one with its id.
        """
        ...

    async def sight(self, topics: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Note the ids of topics, and the ends of the logs that were read after them."""
        ...


class Unkept:
    """A reading without a cache."""

    last: BatchHeader | None = None

    def __init__(self) -> None:
        self._log = TemporaryLog()

    def add(self, part: LogPart) -> None:
        self._log.add(part, 0)

    def ended(self, end: int) -> None:
        self._log.wholeness.ended(end, 0)

    def batches(self) -> AbstractContextManager[KeptBatches]:
        return nullcontext(self._log)

    def retire(self) -> None:
        self._log = TemporaryLog()

    def set_aside_damaged(self) -> None:
        self._log = TemporaryLog()


class _Question(Value):
    """The requested records, as `state_log` takes them."""

    producer_ids: Collection[int]
    transactional_ids: Collection[str] | None
    newest: int | None

    def of(self, partition: int, log: KeptBatches, end: int) -> StateLog:
        """Return one log's answer. Raises CorruptError."""
        ids, newest = self.transactional_ids, self.newest
        return state_log(partition, log, end, self.producer_ids, ids, newest)


@dataclass
class _Partition:
    """One partition in one round: its reading, and its progress."""

    log: Range  # from log start to high watermark
    reading: Reading
    leader: PartitionMetadata
    goes_on: bool | None = None  # the log continues what is kept; None = not known
    answer: StateLog | None = None

    @property
    def is_open(self) -> bool:
        """Return True while the log may be read for an answer."""
        return self.answer is None and self.goes_on is not False

    def rest(self) -> Range:
        """Return the part of the log to read, and the last kept batch, to compare it."""
        last = self.reading.last
        if last is None:
            return self.log
        start = last.last_offset + 1 if self.goes_on else last.base_offset
        return replace(self.log, start=min(max(start, self.log.start), self.log.end))

    def compare(self, first: BatchHeader) -> None:
        """Compare the first batch read with the last one kept, if they are at the same offset.

        Compaction removes batches, and notes in a batch with a tombstone when that may be removed.
        """
        last = self.reading.last
        if last is None:
            self.goes_on = True
        elif first.base_offset == last.base_offset and not first.has_delete_horizon:
            self.goes_on = first.crc == last.crc

    def take(self, chunk: Chunk) -> None:
        """Add the batches of one response, if the log is known to continue."""
        try:
            part = part_of(chunk.records)
            verify_crcs(chunk.records, part.scan)
        except CorruptError as corrupt:
            self.fail(corrupt.sentence)
            return
        if self.goes_on is None and len(part.scan):
            self.compare(part.header(0))
        if self.goes_on:
            self.reading.add(part)

    def fail(self, error: str) -> None:
        """End without an answer."""
        self.answer = StateLog(self.log.partition, (), 0, error=error)

    def ask(self, question: _Question) -> None:
        """Answer from what was read; kept batches are read again if they turn out damaged."""
        number, last = self.log.partition, self.reading.last
        self.reading.ended(self.log.end)
        try:
            with self.reading.batches() as log:
                answer = question.of(number, log, self.log.end)
        except CorruptError as corrupt:
            if last is None:
                self.fail(corrupt.sentence)
            else:
                self.reading.set_aside_damaged()
            return
        cached_until = last.last_offset + 1 if last is not None else 0
        self.answer = replace(answer, cached_until=cached_until)


async def noted_state_logs(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None,
    cache: Cache | None,
    newest: int | None = None,
) -> list[StateLog]:
    """Read `state_logs` and record the topics then: they identify the logs' cluster later."""
    topics = await topic_ids(cluster) if cache is not None else {}
    logs = await state_logs(cluster, partitions, producer_ids, transactional_ids, cache, newest)
    if cache is not None:
        await cache.sight(topics, {log.partition: log.end for log in logs if log.end is not None})
    return logs


async def state_logs(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None = (),
    cache: Cache | None = None,
    newest: int | None = None,
) -> list[StateLog]:
    """Read these partitions of `__transaction_state` from log start to high watermark.

    With the records of these producer ids and transactional ids (None = of all), as `state_log`
    says. Of what the cache has, only the last batch is read again, and must be equal. If it is
    gone, the leader shows whether compaction removed it (the rest is kept with what is new) or the
    log diverged; then everything is read again, and what the cache knew is in `former`.
    """
    if not partitions:
        return []
    question = _Question(producer_ids, transactional_ids, newest)
    facts, _ = await collect.partition_offsets(cluster, (), partitions)
    metadata = {p.partition: p for p in partitions}
    logs: list[StateLog] = []
    reads: list[_Partition] = []
    for p in facts:
        if p.error is not None or p.high_watermark is None or p.log_start_offset is None:
            logs.append(StateLog(p.partition, (), 0, error=p.error or "NOT_SEEN"))
            continue
        reading = Unkept() if cache is None else cache.reading(p.partition)
        log = Range(p.topic, p.partition, p.log_start_offset, p.high_watermark)
        reads.append(_Partition(log, reading, metadata[p.partition]))
    await _read(cluster, [r for r in reads if _may_compare(r)], question)
    await _go_on(cluster, [r for r in reads if r.goes_on is None and r.answer is None])
    for r in reads:
        if r.goes_on is False:
            r.reading.retire()
            r.goes_on = r.reading.last is None or None
    # twice: the kept batches may turn out to be damaged
    for _ in range(2):
        await _read(cluster, [r for r in reads if r.answer is None], question)
    for r in reads:
        if r.answer is None:
            r.fail("NOT_SEEN")
    logs += [r.answer for r in reads if r.answer is not None]
    logs = [replace(log, leader_epoch=metadata[log.partition].leader_epoch) for log in logs]
    logs.sort(key=lambda log: log.partition)
    return await _with_former(cluster, cache, logs, question)


def _may_compare(r: _Partition) -> bool:
    """Return True if the last kept batch lies in the log's range, or none is kept."""
    last = r.reading.last
    if last is None:
        r.goes_on = True
    return last is None or r.log.start <= last.base_offset < r.log.end


async def _read(cluster: Cluster, reads: Sequence[_Partition], question: _Question) -> None:
    """Read the rest of these logs, and answer for each log that continues the kept one."""
    by_number = {r.log.partition: r for r in reads}
    ranges = {r.log.partition: r.rest() for r in reads}
    for r in reads:
        if ranges[r.log.partition].start == r.log.end:
            r.ask(question)
            del ranges[r.log.partition]
    async for item in read(cluster, list(ranges.values())):
        r = by_number[item.partition]
        if not r.is_open:
            continue
        if isinstance(item, Chunk):
            r.take(item)
        elif item.error is not None:
            r.fail(item.error)
        elif r.goes_on:
            r.ask(question)


async def _go_on(cluster: Cluster, doubted: Sequence[_Partition]) -> None:
    """Ask the leaders whether these logs continue what is kept of them."""
    epochs = {}
    for r in doubted:
        p, last = r.leader, r.reading.last
        if p.leader is not None and last is not None:
            present = -1 if p.leader_epoch is None else p.leader_epoch
            epochs[p.topic_partition] = p.leader, present, last.leader_epoch
    ends = await record_epoch_ends(cluster, epochs) if epochs else {}
    for r in doubted:
        last, partition = r.reading.last, r.leader.topic_partition
        if partition in ends and last is not None:
            end = ends[partition]
            r.goes_on = end is not None and end > last.last_offset
        else:
            r.fail("NOT_SEEN")


async def topic_ids(cluster: Cluster) -> dict[str, str]:
    """Return each visible topic's id; none from brokers below 2.8, which give no ids."""
    metadata = await cluster.metadata(None)
    return {t.name: t.topic_id for t in metadata.topics.values() if t.topic_id is not None}


async def _with_former(
    cluster: Cluster, cache: Cache | None, logs: Sequence[StateLog], question: _Question
) -> list[StateLog]:
    """Return the logs with what only the cache knows, by the partition's number.

    Topics are described only if there is an earlier log.
    """
    if cache is None:
        return list(logs)
    result = {log.partition: log for log in logs}
    present = await topic_ids(cluster) if cache.has_earlier else {}
    for old in cache.former(present) if result else ():
        number = old.partition if old.partition in result else min(result)
        try:
            former_log = question.of(old.partition, old.log, old.log.wholeness.end)
        except CorruptError:
            continue
        log = result[number]
        cut = log.cut_epoch
        if old.same_topic and number == old.partition:
            cut = max(-1 if cut is None else cut, old.leader_epoch)
        result[number] = replace(log, former=(*log.former, former_log), cut_epoch=cut)
    return list(result.values())
