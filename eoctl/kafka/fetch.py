"""Reading record batches: raw Fetch over the wire connection, many ranges at once.

The one reader: history, counting, audit, rebuild and the Spark source all use it. It gives the
bytes as the leader sent them; `recovery.formats` decodes. Leaders are read in parallel; when one
moves or dies, reading goes on at the same offset from the next one, its leader epoch checked.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eoctl.kafka import messages
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.failures import WireError
from recovery.facts import TopicPartition
from recovery.formats.batches import batch_headers

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
RESPONSE_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
MAX_PARTITION_BYTES = 256 << 20
WITHOUT_PROGRESS_SECONDS = 20.0  # a dead leader is replaced after 9 to 12 s
PAUSE_SECONDS = 0.2
MAX_WAIT_MS = 100

MOVED = frozenset(
    {
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_ID",
    }
)
ENOUGH = "ENOUGH"  # as many chunks as were asked for
ABOVE = "ABOVE_END"  # the range reaches beyond what this isolation level shows


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one response held of one partition.

    records: whole batches and perhaps a cut one at the end; the first may begin before
    `fetch_offset`, the last may reach beyond the range. next_offset: after the last whole batch.
    aborted: (producer id, first offset) as listed with this response; None at read_uncommitted.
    """

    topic: str
    partition: int
    fetch_offset: int
    next_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The last thing said of a range: read up to `position`.

    error None: the range was read to its end. ABOVE_END: it reaches beyond the LSO
    (read_committed) or the high watermark. Otherwise Kafka's error name.
    """

    topic: str
    partition: int
    position: int
    error: str | None = None
    detail: str = ""


async def read(
    cluster: Cluster,
    ranges: Iterable[Range],
    *,
    isolation: int = READ_UNCOMMITTED,
    partition_bytes: int = PARTITION_BYTES,
    most_chunks: int | None = None,
    max_rate: float | None = None,
) -> AsyncIterator[Chunk | Ended]:
    """Chunks of all ranges, each range's in offset order, and one Ended per range.

    most_chunks: so many of each range are enough (Ended ENOUGH). max_rate: bytes per second and
    broker. Ends early only by the cluster's deadline.
    """
    wanted = {r.key: r for r in ranges}
    queue: asyncio.Queue[Chunk | Ended | BaseException | None] = asyncio.Queue(maxsize=4)
    reader = _Reader(cluster, isolation, partition_bytes, most_chunks, max_rate, queue)
    task = asyncio.create_task(reader.run(wanted))
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Reader:
    def __init__(
        self,
        cluster: Cluster,
        isolation: int,
        partition_bytes: int,
        most_chunks: int | None,
        max_rate: float | None,
        queue: "asyncio.Queue[Chunk | Ended | BaseException | None]",
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._bytes = partition_bytes
        self._most_chunks = most_chunks
        self._chunks: dict[TopicPartition, int] = {}
        self._max_rate = max_rate
        self._queue = queue
        self._progress = time.monotonic()
        self._why: dict[TopicPartition, tuple[str, str]] = {}

    async def run(self, wanted: Mapping[TopicPartition, Range]) -> None:
        try:
            await self._run(dict(wanted))
            await self._queue.put(None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self._queue.put(error)

    async def _run(self, todo: dict[TopicPartition, Range]) -> None:
        """Read from the leaders as they are now; what moved is tried again with new ones."""
        for key, r in list(todo.items()):
            if r.start >= r.end:
                await self._queue.put(Ended(r.topic, r.partition, r.start))
                del todo[key]
        while todo:
            self._cluster.forgive()
            leaders = await self._leaders(todo)
            grouped: dict[int, dict[TopicPartition, Range]] = {}
            for key, r in todo.items():
                if (leader := leaders.get(key, (None, -1))[0]) is not None:
                    grouped.setdefault(leader, {})[key] = r
            leaderless = {k: r for k, r in todo.items() if leaders.get(k, (None, -1))[0] is None}
            left = await asyncio.gather(
                *(self._from(broker, mine, leaders) for broker, mine in grouped.items())
            )
            todo = leaderless | {k: r for mine in left for k, r in mine.items()}
            if not todo:
                return
            waited = time.monotonic() - self._progress
            if waited > WITHOUT_PROGRESS_SECONDS or self._cluster.deadline.passed:
                for key, r in todo.items():
                    error, detail = self._why.get(
                        key, ("LEADER_NOT_AVAILABLE", "no broker leads this partition")
                    )
                    await self._queue.put(Ended(r.topic, r.partition, r.start, error, detail))
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _leaders(
        self, todo: Mapping[TopicPartition, Range]
    ) -> dict[TopicPartition, tuple[int | None, int]]:
        metadata = await self._cluster.metadata(sorted({topic for topic, _ in todo}))
        return {
            (p.topic, p.partition): (p.leader, -1 if p.leader_epoch is None else p.leader_epoch)
            for t in metadata.topics.values()
            for p in t.partitions
        }

    async def _from(
        self,
        broker: int,
        mine: dict[TopicPartition, Range],
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
    ) -> dict[TopicPartition, Range]:
        """Read `mine` from one broker; what it could not give is returned, to be tried again."""
        moved: dict[TopicPartition, Range] = {}
        idle: dict[TopicPartition, int] = {}
        size = self._bytes
        while mine:
            began = time.monotonic()
            try:
                answer = await self._cluster.ask(
                    broker, self._question(mine, leaders, size), least=4, most=11
                )
            except WireError as error:
                self._why |= dict.fromkeys(mine, (error.error, error.detail))
                return moved | mine
            received, grow = 0, False
            for t in answer.responses:
                for p in t.partitions:
                    key = (t.topic, p.partition_index)
                    r = mine.pop(key)
                    records = bytes(p.records or b"")
                    received += len(records)
                    following = await self._take(r, p, records, idle)
                    if following == "moved":
                        moved[key] = r
                    elif isinstance(following, Range):
                        # to the end of the line: a broker fills a response in the order asked
                        mine[key] = following
                        grow = grow or (following.start == r.start and bool(records))
            size = min(size * 2, MAX_PARTITION_BYTES) if grow else self._bytes
            if self._max_rate is not None and received:
                spent = time.monotonic() - began
                await asyncio.sleep(max(0.0, received / self._max_rate - spent))
        return moved

    async def _take(
        self, r: Range, p: Any, records: bytes, idle: dict[TopicPartition, int]
    ) -> "Range | str | None":
        """Hand on what came of one range: the range that is left, None at its end, or moved."""
        if p.error_code:
            name = messages.error_name(p.error_code)
            if name in MOVED:
                self._why[r.key] = (name, "the leader moved")
                return "moved"
            await self._queue.put(
                Ended(r.topic, r.partition, r.start, name, _problem(name, r.start))
            )
            return None
        next_offset = r.start
        for header in batch_headers(records):
            next_offset = max(next_offset, header.last_offset + 1)
        limit = p.last_stable_offset if self._isolation else p.high_watermark
        if next_offset == r.start:
            if r.start >= limit:
                what = "last stable offset" if self._isolation else "high watermark"
                await self._queue.put(
                    Ended(r.topic, r.partition, r.start, ABOVE, f"the {what} is {limit}")
                )
                return None
            idle[r.key] = idle.get(r.key, 0) + 1
            if idle[r.key] > 50 and time.monotonic() - self._progress > WITHOUT_PROGRESS_SECONDS:
                await self._queue.put(
                    Ended(r.topic, r.partition, r.start, "NO_PROGRESS", "no records came")
                )
                return None
            return r
        idle.pop(r.key, None)
        self._progress = time.monotonic()
        aborted = None
        if self._isolation:
            aborted = tuple((a.producer_id, a.first_offset) for a in p.aborted_transactions or ())
        await self._queue.put(
            Chunk(
                topic=r.topic,
                partition=r.partition,
                fetch_offset=r.start,
                next_offset=next_offset,
                records=records,
                aborted=aborted,
                high_watermark=p.high_watermark,
                last_stable_offset=p.last_stable_offset,
                log_start_offset=p.log_start_offset,
            )
        )
        self._chunks[r.key] = self._chunks.get(r.key, 0) + 1
        if next_offset >= r.end:
            await self._queue.put(Ended(r.topic, r.partition, next_offset))
            return None
        if self._chunks[r.key] == self._most_chunks:
            await self._queue.put(Ended(r.topic, r.partition, next_offset, ENOUGH))
            return None
        return replace(r, start=next_offset)

    def _question(
        self,
        mine: Mapping[TopicPartition, Range],
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
        size: int,
    ) -> Any:
        request = messages.FetchRequest
        topic, partition = request.FetchTopic, request.FetchTopic.FetchPartition
        grouped: dict[str, list[Any]] = {}
        for r in mine.values():
            grouped.setdefault(r.topic, []).append(
                partition(
                    partition=r.partition,
                    current_leader_epoch=leaders[r.key][1],
                    fetch_offset=r.start,
                    log_start_offset=-1,
                    partition_max_bytes=size,
                )
            )
        return request(
            replica_id=-1,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max(RESPONSE_BYTES, size),
            isolation_level=self._isolation,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=name, partitions=rows) for name, rows in grouped.items()],
            forgotten_topics_data=[],
            rack_id="",
        )


def _problem(error: str, offset: int) -> str:
    if error == "TOPIC_AUTHORIZATION_FAILED":
        return "READ on the topic is not granted"
    if error == "OFFSET_OUT_OF_RANGE":
        return f"offset {offset} is not in the log any more, or not yet"
    if error == "UNKNOWN_TOPIC_OR_PARTITION":
        return "no such topic or partition"
    return "the leader refused to be read"


async def read_all(
    cluster: Cluster,
    ranges: Sequence[Range],
    *,
    isolation: int = READ_UNCOMMITTED,
    partition_bytes: int = PARTITION_BYTES,
    most_chunks: int | None = None,
) -> tuple[dict[TopicPartition, list[Chunk]], dict[TopicPartition, Ended]]:
    """All chunks of small ranges, in memory, and how each range ended."""
    chunks: dict[TopicPartition, list[Chunk]] = {r.key: [] for r in ranges}
    ended: dict[TopicPartition, Ended] = {}
    async for item in read(
        cluster,
        ranges,
        isolation=isolation,
        partition_bytes=partition_bytes,
        most_chunks=most_chunks,
    ):
        if isinstance(item, Chunk):
            chunks[item.topic, item.partition].append(item)
        else:
            ended[item.topic, item.partition] = item
    return chunks, ended
