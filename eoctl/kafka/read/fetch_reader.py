"""The internals of `fetch.read`: a task per leader, answers cut into chunks, ranges that move on.

The next request is under way while an answer is passed on, and answers grow as long as they come
quickly. What one leader could not give is requested from the next one at the same offset.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping

from eoctl.kafka.connection import messages, raw_fetch
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.connection.raw_fetch import FetchAnswer, PartitionData
from eoctl.kafka.read import log_checks
from eoctl.kafka.read.chunks import ABOVE, ENOUGH, Chunk, Ended, Range
from eoctl.kafka.read.nearest import MOST_PARTITIONS, Followers, question
from recovery.facts import TopicPartition
from recovery.formats.batches import OldMessageFormatError, last_batch
from recovery.formats.reader import CorruptError
from recovery.values import replace

RESPONSE_BYTES = 4 << 20  # in transit at one time, from all leaders together
FIRST_BYTES = 1 << 20
LEAST_BYTES = 64 << 10
ANSWER_SECONDS = 10.0
QUICK_SECONDS = 1.0
SURE_EMPTY = 3  # answers without a record
MOST_EMPTY = 50
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
        "OFFSET_MOVED_TO_TIERED_STORAGE",
        "UNKNOWN_SERVER_ERROR",
    }
)
"""Asked again, of the leader as it is then; a remote store that fails is among them (KIP-405)."""
UNSUPPORTED = "UNSUPPORTED_VERSION"
NOT_GIVEN = ("OFFSET_MOVED_TO_TIERED_STORAGE", "UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR")


class Reader:
    """One reading of many ranges; all its results go into the queue, None at the end."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: int,
        partition_bytes: int,
        most_chunks: int | None,
        max_rate: float | None,
        queue: "asyncio.Queue[Chunk | Ended | BaseException | None]",
        rack: str = "",
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._partition_bytes = partition_bytes
        self._most_chunks = most_chunks
        self._max_rate = max_rate
        self._queue = queue
        self._chunks: dict[TopicPartition, int] = {}
        self._empty: dict[TopicPartition, int] = {}  # successive answers without any record
        self._epochs: dict[TopicPartition, int] = {}  # leader epoch of the last batch read
        self._moved: set[TopicPartition] = set()
        self._limits: dict[TopicPartition, int] = {}  # the highest reported, per partition
        self._passed: dict[TopicPartition, int] = {}  # the broker with nothing more below the limit
        self._unsure: set[TopicPartition] = set()  # wait for the leader's answer before reading on
        self._followers = Followers(cluster, rack)
        self._progress = time.monotonic()
        self._taken = False
        self._why: dict[TopicPartition, tuple[str, str]] = {}

    async def run(self, ranges: Mapping[TopicPartition, Range]) -> None:
        try:
            await self._run(dict(ranges))
            await self._queue.put(None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self._queue.put(error)

    def taken(self) -> None:
        """Note that the reader has a chunk now; its code may block the event loop meanwhile."""
        self._taken = True

    def back(self) -> None:
        """End the pause: its duration does not count against the cluster."""
        self._taken = False
        self._moved_on()

    async def _run(self, todo: dict[TopicPartition, Range]) -> None:
        """Read from the current leaders; what moved is tried again with new ones."""
        for key, r in list(todo.items()):
            if r.start >= r.end:
                await self._queue.put(Ended(r.topic, r.partition, r.start))
                del todo[key]
        before: dict[TopicPartition, tuple[int | None, int]] = {}
        while todo:
            if before:  # if others found a broker silent, this reader need not wait for it
                self._cluster.forgive()
            leaders, gone = await self._leaders(todo)
            self._moved |= {k for k in todo if before.get(k, leaders[k]) != leaders[k]}
            before = leaders
            gone |= await self._truncated(todo, leaders)
            for key, (error, detail) in gone.items():
                await self._end(todo.pop(key), error, detail)
            for key, r in list(todo.items()):
                if r.start >= r.end and key not in self._followers.unproven:
                    await self._end(todo.pop(key))
            sure = {k: r for k, r in todo.items() if k not in self._unsure}
            await self._followers.choose(sure, leaders, self._isolation)
            grouped: dict[int, dict[TopicPartition, Range]] = {}
            for key, r in todo.items():
                broker = self._followers.of.get(key, leaders[key][0])
                if broker is not None and key not in self._unsure:
                    grouped.setdefault(broker, {})[key] = r
            rest = {
                k: r for k, r in todo.items() if not any(k in mine for mine in grouped.values())
            }
            most = RESPONSE_BYTES // max(1, len(grouped))
            left = await asyncio.gather(
                *(self._from(broker, mine, leaders, most) for broker, mine in grouped.items())
            )
            todo = rest
            self._moved |= {k for k in todo if leaders[k][0] is None}
            todo |= {k: r for mine in left for k, r in mine.items()}
            if not todo:
                return
            if self._stands_still() or self._cluster.deadline.passed:
                for key, r in todo.items():
                    error, detail = self._why.get(
                        key, ("LEADER_NOT_AVAILABLE", "no broker leads this partition")
                    )
                    await self._end(r, error, await self._remote(r, error, leaders) or detail)
                return
            if not todo.keys() <= self._followers.of.keys():
                await asyncio.sleep(PAUSE_SECONDS)

    def _stands_still(self) -> bool:
        return not self._taken and time.monotonic() - self._progress > WITHOUT_PROGRESS_SECONDS

    def _moved_on(self, pause: float = 0.0) -> None:
        """Note progress. pause: seconds without requests."""
        self._progress = max(self._progress, time.monotonic() + pause)

    async def _end(self, r: Range, error: str | None = None, detail: str = "") -> None:
        broker = self._passed.get(r.topic_partition, -1)
        await self._queue.put(Ended(r.topic, r.partition, r.start, error, detail, broker))

    async def _remote(
        self,
        r: Range,
        error: str,
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
    ) -> str | None:
        """Return a sentence if remote storage failed, and not the leader's disk; else None."""
        leader = leaders[r.topic_partition][0]
        if error not in NOT_GIVEN or leader is None:
            return None
        if not await log_checks.is_remote(self._cluster, leader, r.topic_partition, r.start):
            return None
        return "it is in remote storage, and its leader could not read it there"

    async def _leaders(
        self, todo: Mapping[TopicPartition, Range]
    ) -> tuple[dict[TopicPartition, tuple[int | None, int]], dict[TopicPartition, tuple[str, str]]]:
        """Return leader and leader epoch of each partition, and why some have none for good."""
        metadata = await self._cluster.metadata(sorted({topic for topic, _ in todo}))
        leaders: dict[TopicPartition, tuple[int | None, int]] = {
            p.topic_partition: (
                p.leader,
                -1 if p.leader_epoch is None else p.leader_epoch,
            )
            for t in metadata.topics.values()
            for p in t.partitions
        }
        gone = {}
        for key, r in todo.items():
            error = metadata.topics[r.topic].error or "UNKNOWN_TOPIC_OR_PARTITION"
            if key not in leaders and error not in MOVED:
                gone[key] = (error, _problem(error, r.start))
        return {key: leaders.get(key, (None, -1)) for key in todo}, gone

    async def _truncated(
        self,
        todo: Mapping[TopicPartition, Range],
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
    ) -> dict[TopicPartition, tuple[str, str]]:
        """Return the partitions whose leader lacks records that another leader or a follower gave.

        Unanswered questions are repeated before anything more is read: about records that the
        leader itself has given it would only say that it has them. A new leader that always refuses
        the question, as old brokers do, is believed. A leader that answers with an earlier epoch
        has no record of the epoch that was read: after two unclean elections, say, the second back
        to the first leader.
        """
        epochs = {
            key: (leader, epoch, self._epochs[key])
            for key in todo
            for leader, epoch in [leaders[key]]
            if leader is not None
            and (key in self._followers.unproven or self._epochs.get(key, epoch) < epoch)
        }
        told, missing = await log_checks.told_epochs(self._cluster, epochs)
        errors = {
            partition: m
            for m in missing
            if (partition := m.topic_partition) is not None and m.error in MOVED
        }
        silent = {m.broker: m for m in missing if m.topic is None and m.error != UNSUPPORTED}
        errors |= {k: silent[leader] for k, (leader, _, _) in epochs.items() if leader in silent}
        self._unsure = {
            key
            for key in self._followers.unproven | errors.keys()
            if key in todo and key not in told
        }
        for key in self._unsure & errors.keys():
            self._why[key] = (errors[key].error, errors[key].detail)
        lacking = {}
        for key, latest in told.items():
            read, epoch = f"read up to {todo[key].start}", self._epochs[key]
            if latest is None:
                if key in self._followers.unproven:
                    lacking[key] = f"{read} from a follower; {_unknown(epoch)}"
            elif latest[1] < todo[key].start:
                lacking[key] = f"{read}; the leader has another log from {latest[1]} on"
            elif 0 <= latest[0] < epoch:
                lacking[key] = f"{read}; {_unknown(epoch)}"
        self._followers.unproven -= told.keys()
        return {key: ("LOG_TRUNCATED", detail) for key, detail in lacking.items()}

    async def _from(
        self,
        broker: int,
        mine: dict[TopicPartition, Range],
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
        most: int,
    ) -> dict[TopicPartition, Range]:
        """Read `mine` from one broker; return what it could not give, to try again.

        The next request is under way while an answer is passed on. Answers grow from FIRST_BYTES to
        `most`, as long as they come quickly: a slow line must not look like a silent broker.
        """
        moved: dict[TopicPartition, Range] = {}
        if self._max_rate is not None:
            most = min(most, max(LEAST_BYTES, int(self._max_rate / 4)))
        size = min(FIRST_BYTES, most)
        began = time.monotonic()
        pending = self._asking(broker, mine, leaders, size, 0.0)
        try:
            while mine:
                try:
                    answer: FetchAnswer = await pending
                except WireError as error:
                    for key in mine:
                        self._not_given(key, error.error, error.detail)
                    return moved | mine
                now = time.monotonic()
                received = sum(len(p.records) for p in answer.partitions)
                items = [
                    item for p in answer.partitions for item in self._sorted(p, broker, mine, moved)
                ]
                if not received:
                    await self._pass_gaps(broker, answer, mine, moved)
                if now - began < QUICK_SECONDS:
                    size = min(most, size * 2)
                pause = 0.0
                if self._max_rate is not None:
                    pause = max(0.0, began + received / self._max_rate - now)
                    self._moved_on(pause)  # a pause of our own is no silence of the leader
                began = now + pause
                if self._followers.are_due:
                    moved |= mine
                    mine.clear()
                if mine:
                    pending = self._asking(broker, mine, leaders, size, pause)
                del answer  # free its buffer: the chunks are copies
                for item in items:
                    await self._queue.put(item)
                    self._moved_on()  # its consumer may take long
            return moved
        finally:
            pending.cancel()

    def _asking(
        self,
        broker: int,
        mine: Mapping[TopicPartition, Range],
        leaders: Mapping[TopicPartition, tuple[int | None, int]],
        size: int,
        pause: float,
    ) -> "asyncio.Task[FetchAnswer]":
        asked = question(
            list(mine.values())[:MOST_PARTITIONS],
            leaders,
            self._isolation,
            most_bytes=size,
            partition_bytes=self._partition_bytes,
            max_wait_ms=MAX_WAIT_MS,
        )

        async def ask() -> FetchAnswer:
            await asyncio.sleep(pause)
            connection = await self._cluster.connection(broker)
            bound = self._cluster.deadline.within(ANSWER_SECONDS)
            try:
                answer: FetchAnswer = await connection.ask(
                    asked, bound, least=raw_fetch.LEAST, most=raw_fetch.MOST
                )
            except WireError as error:
                if error.error != UNSUPPORTED:
                    connection.close()
                raise
            return answer

        task = asyncio.create_task(ask())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _not_given(self, key: TopicPartition, error: str, detail: str) -> None:
        """Note what to ask again, from the leader at that time."""
        self._why[key] = (error, detail)
        if key in self._followers.of:
            self._followers.leave(key)
            self._moved_on()  # waiting for it asked no leader meanwhile
        else:
            self._moved.add(key)

    def _is_other(self, key: TopicPartition, epoch: int) -> bool:
        """Return True for records of another leader epoch than those before, which are not proven.

        A follower that truncates its log continues with the leader's: proving these says nothing
        about the earlier ones.
        """
        return key in self._followers.unproven and self._epochs.get(key, epoch) != epoch

    def _sorted(
        self,
        p: PartitionData,
        broker: int,
        mine: dict[TopicPartition, Range],
        moved: dict[TopicPartition, Range],
    ) -> Iterator[Chunk | Ended]:
        """Yield what to pass on from one partition's answer, and keep the rest in `mine`."""
        key = p.topic_partition
        r = mine.pop(key)
        follows = key in self._followers.of

        def not_given(error: str, detail: str) -> Iterator[Ended]:
            if follows or error in MOVED:
                self._not_given(key, error, detail)
                moved[key] = r
            else:
                yield Ended(*key, r.start, error, detail)

        if p.error_code:
            name = messages.error_name(p.error_code)
            yield from not_given(name, _problem(name, r.start))
            return
        try:
            last = last_batch(p.records)
            is_new = last is not None and last.last_offset >= r.start
            if last is not None and is_new:
                if 0 <= last.leader_epoch < (epoch := self._epochs.get(key, -1)):
                    detail = f"records of leader epoch {last.leader_epoch} follow those of {epoch}"
                    yield from not_given("LOG_TRUNCATED", detail)
                    return
                if self._is_other(key, last.leader_epoch):
                    moved[key] = r
                    return
                if follows:
                    self._followers.gave(p)
        except OldMessageFormatError as error:
            yield from not_given("UNSUPPORTED_FOR_MESSAGE_FORMAT", error.sentence)
            return
        except CorruptError as error:
            yield from not_given("CORRUPT_MESSAGE", error.sentence)
            return
        limit = p.last_stable_offset if self._isolation else p.high_watermark
        highest = self._limits[key] = max(limit, self._limits.get(key, limit))
        if last is None or not is_new:
            if follows:
                if self._followers.is_behind(key):
                    self._not_given(key, "NO_PROGRESS", "its follower gave no records")
                    moved[key] = r
                else:
                    mine[key] = r
                return
            # a new leader's high watermark lags the old one's: wait for it. The range may come from
            # an earlier answer than ours; read_committed, its end may lie above the LSO for long
            settled = key not in self._moved and limit >= highest
            settled = settled and not self._cluster.awaits(("shows", key), not self._isolation)
            if r.start >= limit and (settled or self._stands_still()):
                what = "last stable offset" if self._isolation else "high watermark"
                yield Ended(*key, r.start, ABOVE, f"the {what} is {limit}")
            elif self._empty.get(key, 0) > MOST_EMPTY and self._stands_still():
                yield Ended(*key, r.start, "NO_PROGRESS", "no records came")
            else:
                self._empty[key] = self._empty.get(key, 0) + 1
                mine[key] = r
            return
        self._empty.pop(key, None)
        self._moved.discard(key)
        self._moved_on()
        self._epochs[key] = last.leader_epoch
        next_offset = last.last_offset + 1
        yield Chunk(
            topic=r.topic,
            partition=r.partition,
            fetch_offset=r.start,
            next_offset=next_offset,
            records=bytes(p.records),
            aborted=p.aborted if self._isolation else None,
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            broker=broker,
            by_follower=follows,
        )
        self._chunks[key] = self._chunks.get(key, 0) + 1
        if next_offset >= r.end and key in self._followers.unproven:
            moved[key] = replace(r, start=next_offset)
        elif next_offset >= r.end:
            yield Ended(*key, next_offset)
        elif self._chunks[key] == self._most_chunks:
            yield Ended(*key, next_offset, ENOUGH)
        else:
            # to the end of the line: a broker fills an answer in the requested order
            mine[key] = replace(r, start=next_offset)

    async def _pass_gaps(
        self,
        broker: int,
        answer: FetchAnswer,
        mine: dict[TopicPartition, Range],
        moved: dict[TopicPartition, Range],
    ) -> None:
        """Continue at the limit if compaction left nothing up to it.

        An answer holds at least one batch of its first partition that has any (KIP-74): none in
        several answers means that there is none. That is sure only for the broker's own disk: for a
        tiered log it also answers so when the remote store is slow.
        """
        for p in answer.partitions:
            key = p.topic_partition
            r = mine.get(key)
            limit = p.last_stable_offset if self._isolation else p.high_watermark
            if r is None or p.error_code or r.start >= limit or key in self._followers.of:
                continue
            if self._empty[key] < SURE_EMPTY:
                continue
            if await log_checks.is_local(self._cluster, broker, key, r.start):
                mine[key] = replace(r, start=min(limit, r.end))
                self._passed[key] = broker
                if limit >= r.end and key in self._followers.unproven:
                    moved[key] = mine.pop(key)
                elif limit >= r.end:
                    await self._end(mine.pop(key))


def _unknown(epoch: int) -> str:
    return f"the leader does not know the leader epoch {epoch} of what is there"


def _problem(error: str, offset: int) -> str:
    if error == "TOPIC_AUTHORIZATION_FAILED":
        return "READ on the topic is not granted"
    if error == "OFFSET_OUT_OF_RANGE":
        return f"offset {offset} is no longer in the log, or not yet"
    if error == "UNKNOWN_TOPIC_OR_PARTITION":
        return "no such topic or partition, or no permission to see it"
    if error in NOT_GIVEN:
        return "its leader cannot read it"
    return "the leader moved" if error in MOVED else "the leader refused the read"
