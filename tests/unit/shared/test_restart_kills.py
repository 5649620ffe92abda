"""An application killed anywhere and restarted by the plan gives what an uninterrupted one gives.

The strategies under their conditions; input logs with aborted records and markers in them, outputs
with and without transactions, several kills in one life.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.restart.decision import PendingError
from recovery.restart.observed import PendingCommit
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.shared.app_file import App, MergeLog
from recovery.shared.store_tables import FileStore, KafkaGroupStore, TopicStore
from tests.share import share
from tests.unit.restart_model import ABORTED, DATA, OPEN, ModelLog, Start, World, run

FILE = FileStore(kind="file", path="p")
GROUP = KafkaGroupStore(kind="kafka-group", group="g")


def app(strategy: Any, **more: Any) -> App:
    return App(**{"name": "a", "strategy": strategy, "inputs": ("in",), "outputs": ("out",)} | more)


def fill(log: ModelLog, shape: str) -> None:
    """d: a data record, a: an aborted one, with its marker, c: a committed one with its marker."""
    for number, letter in enumerate(shape):
        log.write(f"{number}{letter}", 10 + number, transactional=letter != "d")
        if letter != "d":
            log.marker(10 + number, ABORTED if letter == "a" else DATA)


SHAPES = st.text("ddac", max_size=12)
KILLS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


def values(world: World, topic: str, partition: int = 0) -> list[Any]:
    return [value for _, value in world.log(topic, partition).visible()]


def outputs_of(value: str) -> list[str]:
    """0, 1 or 2 outputs, the same each time."""
    return [f"{value}.{n}" for n in range(int(value[:-1]) % 3)]


# output-end: a 1:1 copy, no store; to one topic or two


def seen(log: ModelLog, isolation: str, start: int = 0) -> list[Any]:
    """What the application reads."""
    if isolation == "read_committed":
        return [value for _, value in log.visible(start)]
    return [e.value for e in log.entries[start:] if e.kind in (DATA, ABORTED, OPEN)]


def copying(topics: tuple[str, ...], isolation: str) -> Any:
    def application(world: World, start: Start) -> Generator[None]:
        sends = {topic: start.drop(topic) for topic in topics}
        producer = world.new_producer()
        for value in seen(world.log("in"), isolation, start.offset("in")):
            for topic in topics:
                if sends[topic]():
                    world.log(topic).write(value, producer)
                    yield

    return application


@given(
    SHAPES,
    KILLS,
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(["read_committed", "read_uncommitted"]),
)
@settings(max_examples=share(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_output_end(
    shape: str, kills: list[int], copies: int, pinned: bool, isolation: Any
) -> None:
    """pinned: an open transaction holds the input's last stable offset back."""
    world, topics = World(), ("out", "out2")[:copies]
    fill(world.log("in"), shape)
    if pinned:
        world.log("in").write("open", 99, transactional=True)
        world.log("in").write("after", 98)
    for topic in topics:
        world.log(topic)
    described = app("output-end", outputs=topics, isolation=isolation)
    plans = run(world, described, copying(topics, isolation), kills)
    for topic in topics:
        assert values(world, topic) == seen(world.log("in"), isolation)
    assert all(p.guarantee == "exactly-once" for p in plans)


# commit-pair and checkpoint: (input, output) committed every `every` records


@dataclass
class Pair:
    """transactional: outputs of one interval are one transaction, its offsets are not in it.
    stateful: the output holds a running number, kept in the commit."""

    every: int
    transactional: bool
    stateful: bool
    partition: int = 0

    def __call__(self, world: World, start: Start) -> Generator[None]:
        log, out = world.log("in", self.partition), world.log("out", self.partition)
        sends = start.drop("out", self.partition)
        producer = world.new_producer()
        entry = world.observe().stored_at(TopicPartition("in", self.partition))
        state = int(entry.state) if entry is not None and entry.state else 0
        written = 0
        for read, (offset, value) in enumerate(log.visible(start.offset("in", self.partition)), 1):
            for made in outputs_of(value):
                state += 1
                if sends():
                    text = f"{made}#{state}" if self.stateful else made
                    out.write(text, producer, transactional=self.transactional)
                    written += 1
                    yield
            if read % self.every == 0:
                if self.transactional and written:
                    out.marker(producer, DATA)
                    written = 0
                    yield
                self.commit(world, offset + 1, out.end, state)
                yield
        if self.transactional and written:
            out.marker(producer, DATA)
            yield

    def commit(self, world: World, i: int, o: int, state: int) -> None:
        number = self.partition
        world.commit(
            StoredPartition(
                input=StoredOffset(topic="in", partition=number, offset=i),
                output=(StoredOutput(topic="out", partition=number, offset=o),),
                state=str(state).encode() if self.stateful else None,
            )
        )


def abort_open(world: World) -> None:
    """What fencing a dead process does to its transaction."""
    for log in world.logs.values():
        for producer in {e.producer_id for e in log.entries if e.kind == "open"}:
            log.marker(producer, ABORTED)
            world.fenced.add(producer)


@given(
    SHAPES,
    KILLS,
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["commit-pair", "checkpoint"]),
    st.sampled_from(["next", "last"]),
)
@settings(max_examples=share(1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_commit_pair_and_checkpoint(
    shape: str,
    kills: list[int],
    every: int,
    transactional: bool,
    strategy: str,
    position: Any,
) -> None:
    store = FileStore(kind="file", path="p", position=position)
    interrupted, whole = World(position=position), World(position=position)
    application = Pair(every, transactional, strategy == "checkpoint")
    for world in (interrupted, whole):
        fill(world.log("in"), shape)
        world.log("out")
    run(whole, app(strategy, store=store), application, [])
    plans = run(interrupted, app(strategy, store=store), application, kills, abort_open)
    assert values(interrupted, "out") == values(whole, "out")
    for plan in plans:
        assert plan.guarantee == "exactly-once"
        (out,) = plan.outputs
        assert out.fed_by == (("in", 0),)


def test_every_single_kill_of_a_pair() -> None:
    """Not by chance: each step of a life with all kinds of records, each interval."""
    for transactional in (False, True):
        for every in (1, 2, 3):
            application = Pair(every, transactional, stateful=True)
            whole = World()
            fill(whole.log("in"), "dadcddadcd")
            whole.log("out")
            steps = sum(1 for _ in application(whole, Start(whole)))
            assert steps > 8
            dropped = 0
            for kill in range(1, steps + 1):
                world = World()
                fill(world.log("in"), "dadcddadcd")
                world.log("out")
                plans = run(world, app("checkpoint", store=FILE), application, [kill], abort_open)
                assert values(world, "out") == values(whole, "out"), kill
                dropped += sum(o.drop_first for p in plans for o in p.outputs)
            assert dropped > 0


# changelog: every change of state carries (upstream, downstream)


def counting(world: World, start: Start) -> Generator[None]:
    out, changes = world.log("out"), world.log("changes")
    sends, producer = start.drop("out"), world.new_producer()
    state = changes.visible()[-1][1][2] if changes.visible() else 0
    for offset, value in world.log("in").visible(start.offset("in")):
        for made in outputs_of(value):
            if sends():
                out.write(f"{made}#{state}", producer)
                yield
        state += 1
        changes.write((offset + 1, out.end, state), producer)
        yield


@given(SHAPES, KILLS)
@settings(max_examples=share(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_changelog(shape: str, kills: list[int]) -> None:
    described = app("changelog", store=TopicStore(kind="topic", topic="changes"))
    worlds = [World(), World()]
    for world, stops in zip(worlds, ([], kills), strict=True):
        fill(world.log("in"), shape)
        world.log("out"), world.log("changes")
        for plan in run(world, described, counting, stops):
            ends = [s.end_offset for s in plan.state]
            assert len(ends) <= 1
            assert plan.store == ()
    assert values(worlds[0], "out") == values(worlds[1], "out")


# transactional: offsets in the transaction of the outputs


def in_transactions(every: int) -> Any:
    def application(world: World, start: Start) -> Generator[None]:
        out, producer = world.log("out"), world.new_producer()
        begin = start.offset("in")
        records = world.log("in").visible(begin)
        for number, (offset, value) in enumerate(records, 1):
            for made in outputs_of(value):
                out.write(made, producer, transactional=True)
                yield
            if number % every == 0 or number == len(records):
                world.pending.append(PendingCommit("in", 0, "tx", producer))
                yield
                # The coordinator's decision: markers and the group's offset in one.
                out.marker(producer, DATA)
                world.pending.clear()
                world.commit(
                    StoredPartition(input=StoredOffset(topic="in", partition=0, offset=offset + 1)),
                    producer=producer,
                )
                yield

    return application


def fence(world: World) -> None:
    """Plans are refused while commits are pending; a fence aborts them."""
    if world.pending:
        with pytest.raises(PendingError) as caught:
            world.plan(app("transactional", store=GROUP))
        assert caught.value.transactional_ids == ("tx",)
        world.pending.clear()
    abort_open(world)


@given(SHAPES, KILLS, st.integers(1, 4))
@settings(max_examples=share(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_transactional(shape: str, kills: list[int], every: int) -> None:
    described = app("transactional", store=GROUP)
    world, whole = World(), World()
    for each, stops in ((whole, []), (world, kills)):
        fill(each.log("in"), shape)
        each.log("out")
        for plan in run(each, described, in_transactions(every), stops, fence):
            assert [o.drop_first for o in plan.outputs] == [0]
            assert plan.guarantee == "exactly-once"
    assert values(world, "out") == values(whole, "out")


# sql: results and offset in one transaction of the database


def into_database(world: World, start: Start) -> Generator[None]:
    for offset, value in world.log("in").visible(start.offset("in")):
        made = outputs_of(value)
        yield  # computed, not written
        world.results += made
        world.commit(
            StoredPartition(input=StoredOffset(topic="in", partition=0, offset=offset + 1))
        )
        yield


@given(SHAPES, KILLS)
@settings(max_examples=share(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sql(shape: str, kills: list[int]) -> None:
    worlds = [World(), World()]
    for world, stops in zip(worlds, ([], kills), strict=True):
        fill(world.log("in"), shape)
        run(world, app("sql", outputs=(), store=FILE), into_database, stops)
    assert worlds[0].results == worlds[1].results


# spark-checkpoint: offsets/N, the batch into a sink that knows batch ids, commits/N


def batches(world: World, start: Start) -> Generator[None]:
    from recovery.formats.spark_checkpoint import Checkpoint, read

    log, partition = world.log("in"), TopicPartition("in", 0)
    files: dict[str, str] = world.results[0] if world.results else {}
    world.results[:] = [files]
    while True:
        found = read(files)
        world.spark = found
        if found.in_flight:
            assert found.batch is not None
            batch, begin, end = found.batch, found.start[partition], found.end[partition]
        else:
            batch = 0 if found.batch is None else found.batch + 1
            begin = found.end.get(partition, 0)
            end = min(begin + 3, log.end)
            if begin == end:
                return
            if batch == 0:
                files["sources/0/0"] = '\0v1\n{"in":{"0":0}}'
            files[f"offsets/{batch}"] = f'v1\n{{}}\n{{"in":{{"0":{end}}}}}'
            world.spark = read(files)
            yield
        if start.env is not None and found.in_flight:
            assert start.offset("in") == begin
        rows = [value for _, value in log.visible(begin, end)]
        if batch not in world.spark_sink:
            world.spark_sink[batch] = rows
            yield
        files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
        start = Start(world)
        world.spark = Checkpoint(None, batch, batch, {}, {partition: end})
        yield


@given(SHAPES.filter(bool), KILLS)
@settings(max_examples=share(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_spark_checkpoint(shape: str, kills: list[int]) -> None:
    from recovery.shared.store_tables import SparkCheckpointStore

    store = SparkCheckpointStore(kind="spark-checkpoint", path="/c", sink="batch-id")
    world = World()
    fill(world.log("in"), shape)
    described = app("spark-checkpoint", outputs=(), store=store)
    for plan in run(world, described, batches, kills):
        assert plan.store == ()
        assert plan.starting_offsets == f'{{"in":{{"0":{plan.inputs[0].restart_offset}}}}}'
    rows = [row for batch in sorted(world.spark_sink) for row in world.spark_sink[batch]]
    assert rows == values(world, "in")


# merge-log: two inputs, merged as they come; the order is recorded before its outputs


@dataclass
class Merging:
    """order: which input is read next, by chance; only the log makes it the same again."""

    order: list[int]
    every: int

    def __call__(self, world: World, start: Start) -> Generator[None]:
        merge, out, sends = world.log("merge"), world.log("out"), start.drop("out")
        producer = world.new_producer()
        topics = ("left", "right")
        read = {t: list(world.log(t).visible(start.offset(t))) for t in topics}
        at = start.offset("merge")
        entry = world.observe().stored_at(TopicPartition("left", 0))
        state = int(entry.state) if entry is not None and entry.state else 0
        recorded = [pair for _, pair in merge.visible(at)]
        position = {t: start.offset(t) for t in topics}
        while read["left"] or read["right"]:
            if recorded:
                (topic, _), offset = recorded.pop(0)
                assert read[topic][0][0] == offset, "the log's order is not that of the input"
            else:
                pick = topics[self.order.pop() if self.order else 0]
                topic = pick if read[pick] else topics[1 - topics.index(pick)]
                merge.write(((topic, 0), read[topic][0][0]), producer)
                yield
            offset, value = read[topic].pop(0)
            position[topic], at = offset + 1, at + 1
            state += 1
            for made in outputs_of(value):
                if sends():
                    out.write(f"{topic}{made}#{state}", producer)
                    yield
            if state % self.every == 0:
                world.commit(
                    *(
                        StoredPartition(
                            input=StoredOffset(topic=t, partition=0, offset=position[t]),
                            output=(StoredOutput(topic="out", partition=0, offset=out.end),),
                            state=str(state).encode(),
                            merge=at,
                        )
                        for t in topics
                    )
                )
                yield


@given(
    SHAPES,
    SHAPES,
    st.lists(st.integers(0, 1), max_size=60),
    KILLS,
    st.integers(1, 4),
)
@settings(max_examples=share(800), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_merge_log(left: str, right: str, order: list[int], kills: list[int], every: int) -> None:
    described = app(
        "merge-log",
        inputs=("left", "right"),
        store=FILE,
        merge=MergeLog(topic="merge", format="json"),
    )
    world = World()
    fill(world.log("left"), left)
    fill(world.log("right"), right)
    world.log("out"), world.log("merge")
    plans = run(world, described, Merging(list(order), every), kills)
    # The uninterrupted run that had met its inputs in the order which the log holds.
    expected, state = [], 0
    records = {t: dict(world.log(t).visible()) for t in ("left", "right")}
    for _, ((topic, _), offset) in world.log("merge").visible():
        state += 1
        expected += [f"{topic}{made}#{state}" for made in outputs_of(records[topic][offset])]
    assert values(world, "out") == expected
    assert state == len(records["left"]) + len(records["right"])
    for plan in plans:
        assert [o.fed_by for o in plan.outputs] == [(("left", 0), ("right", 0))]


# A second crash with the numbers of the first


def test_a_second_crash_with_a_stale_n_is_refused() -> None:
    world, application = World(), Pair(20, transactional=False, stateful=False)
    fill(world.log("in"), "dddddddd")
    world.log("out")
    running = application(world, Start(world))
    for _ in range(4):
        next(running)
    plan = world.plan(app("commit-pair", store=FILE))
    start = Start.by(world, plan)
    again = application(world, start)
    assert next(again) is None  # one new output, then killed before any commit
    with pytest.raises(RefusedError, match="its end moved"):
        next(application(world, start))
