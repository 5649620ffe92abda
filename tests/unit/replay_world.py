"""A merge log, its inputs, its output and a replay's transactional id, kept in memory.

What they hold is known offset by offset. The real ones are in tests/kafka/test_merge*.py; here each
call of the writer can fail, before or after it took effect, which no broker does at a command.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from eoctl.kafka.write.commit import CommittedPosition
from eoctl.operations.merge import planning, replay
from eoctl.operations.merge.planning import Merge, MergeLook, Reached
from eoctl.operations.merge.replay import PartitionReplay, ReplayRun
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.merge.replay import Base, ReplayPosition

LOG, OUT = TopicPartition("m", 0), TopicPartition("o", 0)
LEFT, RIGHT = TopicPartition("a", 0), TopicPartition("b", 0)
READS = 10_000  # far more than any of these needs: it went round in circles


class Record(NamedTuple):
    """As librdkafka gives it."""

    of: TopicPartition
    at: int
    content: bytes
    epoch: int = 0

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int:
        return self.epoch

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.content


class Event(threading.Event):
    """Waits for nothing. It is asked for at each turn of a replay."""

    turns = 0

    def is_set(self) -> bool:
        self.turns += 1
        assert self.turns < READS, "it never ends"
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@dataclass
class World:
    """Logs by partition: what a reader sees, and the end after it. commits: of the log's group.

    fails: at which calls of a writer (counted over all), and whether after their effect. lost:
    from which call of ensure_held on the lock is lost.
    """

    logs: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    commits: list[CommittedPosition] = field(default_factory=list)
    fails: dict[int, bool] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    told: list[tuple[int, int, int]] = field(default_factory=list)
    stop: Event = field(default_factory=Event)
    clock: float = 0.0
    reads: int = 0
    epoch: int = 0
    stops_at: int | None = None  # outputs

    def write(self, to: TopicPartition, *contents: bytes) -> None:
        """Write a transaction: its marker takes an offset too."""
        here = self.logs.setdefault(to, [])
        for content in contents:
            here.append(Record(to, self.ends.get(to, 0), content, self.epoch))
            self.ends[to] = self.ends.get(to, 0) + 1
        self.ends[to] = self.ends.get(to, 0) + 1

    def enter(self, *entries: tuple[TopicPartition, int]) -> None:
        self.write(LOG, *(entry(*each) for each in entries))

    @property
    def outputs(self) -> list[bytes]:
        return [r.content for r in self.logs.get(OUT, ())]

    @property
    def entries(self) -> list[tuple[TopicPartition, int]]:
        """What the log names, in its order."""
        found = [json.loads(r.content) for r in self.logs.get(LOG, ())]
        return [(TopicPartition(e["topic"], e["partition"]), e["offset"]) for e in found]

    def named(self) -> list[bytes]:
        """The records that the log names, in its order."""
        by_place = {(p, r.at): r.content for p, log in self.logs.items() for r in log}
        return [by_place[e] for e in self.entries]

    def seen(self) -> MergeLook:
        facts = {
            p: PartitionFacts(*p, p.topic, 1, self.epoch, (1,), self.starts.get(p, 0), end, end)
            for p, end in ((p, self.ends.get(p, 0)) for p in (LOG, LEFT, RIGHT, OUT))
        }
        return MergeLook(facts, (), {})


def entry(partition: TopicPartition, offset: int) -> bytes:
    named = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    return json.dumps(named, separators=(",", ":")).encode()


class Reader:
    """Reads what a reader sees, three records at a time, and takes the time that it may."""

    def __init__(self, world: World) -> None:
        self._world, self.reads = world, dict[TopicPartition, int]()
        self.ends: dict[TopicPartition, int] = {}
        self.owed = 0.0

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        assert not starts.keys() & self.reads.keys(), "read twice"
        self.reads.update(starts)

    def read(self, seconds: float) -> Iterator[tuple[TopicPartition, list[Record]]]:
        self._world.reads += 1
        assert self._world.reads < READS, "it never ends"
        self._world.clock += seconds
        for partition, offset in list(self.reads.items()):
            here = [r for r in self._world.logs.get(partition, ()) if r.at >= offset][:3]
            if here:
                self.reads[partition] = here[-1].at + 1
                yield partition, here
            else:
                self.ends[partition] = self._world.ends.get(partition, 0)

    def balance(self, waiting: Callable[[TopicPartition], int], partition: TopicPartition) -> None:
        assert waiting(partition) >= 0

    def resume_short(self, waiting: object) -> None:
        pass

    def close(self) -> None:
        self._world.calls.append("closed")


class Writer:
    """A transactional id: what it wrote is there, with its position, once it is committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[tuple[TopicPartition, bytes]] | None = None

    def _now(self, name: str, effect: Callable[[], None] = lambda: None) -> None:
        self._world.calls.append(name)
        fails = self._world.fails.pop(len(self._world.calls), None)
        if fails is False:
            raise IncompleteError("no answer")
        effect()
        if fails:
            raise UnverifiedError("not known")

    def open(self) -> None:
        self._now("open")

    def begin(self) -> None:
        assert self._open is None
        self._open = []
        self._now("begin")

    def copy(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        assert self._open is not None
        self._open += [(TopicPartition(topic, partition), r.content) for r in records]
        self._now("copy")

    def send(self, topic: str, partition: int, key: None, value: bytes) -> None:
        assert self._open is not None
        self._open.append((TopicPartition(topic, partition), value))

    def commit(self, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
        sent, self._open = self._open, None
        assert sent is not None
        assert set(positions) <= {LOG}

        def done() -> None:
            for to in dict.fromkeys(to for to, _ in sent):
                self._world.write(to, *(content for at, content in sent if at == to))
            self._world.commits += positions.values()
            if self._world.stops_at is not None and (
                len(self._world.outputs) >= self._world.stops_at
            ):
                self._world.stop.set()

        self._now("commit", done)

    def abort(self) -> None:
        self._open = None
        self._world.calls.append("abort")

    def close(self) -> None:
        assert not self._open, "dropped without an abort"
        self._world.calls.append("close")


BASE = Base(0, OUT, 0)


def prepared(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    class Nobody:
        def __init__(self, *given: Any, **named: Any) -> None:
            self.settings = None

        async def __aenter__(self) -> "Nobody":
            return self

        async def __aexit__(self, *error: object) -> None:
            pass

    async def look(*given: Any, twice: bool) -> MergeLook:
        assert twice
        return world.seen()

    async def reached(
        cluster: Any, merge: Merge, given: Mapping[int, Base], logs: MergeLook
    ) -> dict[int, Reached]:
        [(p, base)] = given.items()
        at = None
        position = ReplayPosition(base.merge_offset, len(world.outputs) - base.output_offset, base)
        epoch = 99 if base.merge_offset else None
        if world.commits:
            last = world.commits[-1]
            at = position = ReplayPosition.committed(last.offset, last.metadata)
            epoch = last.leader_epoch
        return {p: Reached(at, world.ends.get(LOG, 0), 0, 0, 0, position, epoch)}

    def read_log(settings: Any, partition: TopicPartition, start: int, end: int) -> Any:
        yield from ([r] for r in world.logs.get(partition, ()) if start <= r.at < end)

    monkeypatch.setattr(replay, "Cluster", Nobody)
    monkeypatch.setattr(replay, "look", look)
    monkeypatch.setattr(replay, "reached", reached)
    monkeypatch.setattr(planning, "read_log", read_log)
    monkeypatch.setattr(replay, "Stream", lambda *given, **named: Reader(world))
    monkeypatch.setattr(replay, "_Copier", lambda *given: Writer(world))
    monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=lambda: world.clock))
    return world


def job(world: World, *, follow: bool = False, lost: int | None = None) -> ReplayRun:
    held = 0

    def ensure_held() -> None:
        nonlocal held
        held += 1
        if held == lost:
            raise RefusedError("the lock is lost")

    merge = Merge("m", "json", ("a", "b"), "o")
    settings: Any = None
    progress: Any = lambda *told: world.told.append(told)  # noqa: E731
    return ReplayRun(settings, merge, follow, None, ensure_held, progress, world.stop)


def run(world: World, base: Base = BASE, *, follow: bool = False, lost: int | None = None) -> int:
    """Return how many records were sent and committed."""
    one = PartitionReplay(job(world, follow=follow, lost=lost), base, 0)
    one.run()
    return one.sent


def two_inputs(world: World) -> None:
    world.write(LEFT, b"a0", b"a1", b"a2")
    world.write(RIGHT, b"b0", b"b1")
    world.enter((LEFT, 0), (RIGHT, 0))
    world.epoch = 3
    world.enter((LEFT, 1), (LEFT, 2), (RIGHT, 1))


ALL = [b"a0", b"b0", b"a1", b"a2", b"b1"]
