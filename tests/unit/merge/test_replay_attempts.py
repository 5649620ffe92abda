"""A partition's replay, call by call: what is written, which position, and what ends it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eoctl.kafka.write.commit import CommittedPosition
from eoctl.operations.merge import replay
from eoctl.operations.merge.replay import PartitionReplay
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TopicPartition
from recovery.merge.replay import Base, ReplayPosition
from tests.share import share
from tests.unit.replay_world import (
    ALL,
    BASE,
    LEFT,
    LOG,
    OUT,
    RIGHT,
    Reader,
    World,
    Writer,
    job,
    prepared,
    run,
    two_inputs,
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return prepared(World(), monkeypatch)


def test_a_replay_ends_at_the_tip_and_holds_every_entry_once(world: World) -> None:
    two_inputs(world)
    assert run(world) == 5
    assert world.outputs == ALL
    [commit] = world.commits
    assert ReplayPosition.committed(commit.offset, commit.metadata) == ReplayPosition(6, 0, BASE)
    assert commit.leader_epoch == 3
    assert world.calls == ["open", "begin", "copy", "commit", "closed", "closed", "close"]
    assert run(world) == 0  # nothing is left, and nothing is committed again
    assert len(world.commits) == 1


def test_each_position_has_the_leader_epoch_of_the_entry_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "RECORDS", 1)
    monkeypatch.setattr(replay, "BATCH", 1)
    two_inputs(world)
    run(world)
    found = [(c.offset, c.leader_epoch) for c in world.commits]
    assert found == [(1, 0), (2, 0), (4, 3), (5, 3), (6, 3)]
    assert world.outputs == ALL


def test_a_transaction_ends_after_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Writer.copy

    def slow(writer: Writer, *given: Any) -> None:
        world.clock += replay.SECONDS / 2
        copy(writer, *given)

    monkeypatch.setattr(replay, "BATCH", 1)
    monkeypatch.setattr(replay, "LOGGED", 9)
    monkeypatch.setattr(Writer, "copy", slow)
    two_inputs(world)
    run(world)
    assert [c.offset for c in world.commits] == [2, 5, 6]


def test_outputs_that_were_written_before_are_left_out(world: World) -> None:
    two_inputs(world)
    world.write(OUT, b"x", b"a0", b"b0")
    assert run(world, Base(0, OUT, 1)) == 3
    assert world.outputs == [b"x", *ALL]


def test_a_replay_from_a_later_entry(world: World) -> None:
    two_inputs(world)
    base = Base(3, OUT, 0)
    assert run(world, base) == 3
    assert world.outputs == [b"a1", b"a2", b"b1"]


def test_where_nothing_is_left_the_position_is_committed_once(world: World) -> None:
    two_inputs(world)
    base = Base(7, OUT, 0)
    assert world.ends[LOG] == 7
    assert run(world, base) == 0
    assert [(c.offset, c.leader_epoch) for c in world.commits] == [(7, 99)]
    assert run(world, base) == 0
    assert len(world.commits) == 1


def test_what_others_append_beyond_the_tip_is_not_replayed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_inputs(world)
    begin = Writer.begin

    def meanwhile(writer: Writer) -> None:
        if len(world.entries) == 5:
            world.enter((LEFT, 0), (RIGHT, 0))
        begin(writer)

    monkeypatch.setattr(Writer, "begin", meanwhile)
    monkeypatch.setattr(replay, "LOGGED", 1)
    monkeypatch.setattr(replay, "BATCH", 1)
    assert run(world) == 5
    assert world.outputs == ALL


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ((LEFT, 4), "names offset 4, the log ends at 4"),
        ((LEFT, 3), "it names a:0 at 3, where there is no record"),
        ((LEFT, 2), "the record at 1 comes before it"),
        ((TopicPartition("c", 0), 0), "it names c:0, which is no input"),
    ],
)
def test_a_false_entry_is_where_a_replay_ends(
    world: World, named: tuple[TopicPartition, int], why: str
) -> None:
    world.write(LEFT, b"a0", b"a1", b"a2")
    world.enter((LEFT, 0))
    run(world)
    more = [(LEFT, 1), (LEFT, 2)] if named == (LEFT, 3) else []
    world.enter(*more, named)
    with pytest.raises(RefusedError, match=why):
        run(world)
    assert world.outputs == [b"a0"]


def test_a_log_that_went_back_before_the_position_is_refused(world: World) -> None:
    world.write(LEFT, b"a0", b"a1", b"a2")
    world.enter((LEFT, 1), (LEFT, 0), (LEFT, 2))
    world.commits = [CommittedPosition(2, ReplayPosition(2, 0, BASE).metadata, 0)]
    with pytest.raises(RefusedError, match="its entries for a:0 go back"):
        run(world)


def test_a_lost_lock_sends_nothing_more(world: World) -> None:
    two_inputs(world)
    with pytest.raises(RefusedError, match="the lock is lost"):
        run(world, lost=1)
    assert "begin" not in world.calls
    with pytest.raises(RefusedError, match="the lock is lost"):
        run(world, lost=2)
    assert world.calls[-4:] == ["abort", "closed", "closed", "close"]
    assert world.outputs == []
    assert world.commits == []


def test_what_was_committed_before_a_refusal_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "RECORDS", 1)
    monkeypatch.setattr(replay, "BATCH", 1)
    two_inputs(world)
    for lost, committed in ((1, False), (2, False), (3, True)):
        one = PartitionReplay(job(world, lost=lost), BASE, 0)
        with pytest.raises(RefusedError, match="the lock is lost"):
            one.run()
        assert (one.committed, bool(world.commits)) == (committed, committed)


@pytest.mark.parametrize("partition", [LEFT, LOG])
def test_records_that_do_not_come_end_it(world: World, partition: TopicPartition) -> None:
    """They are there, as their leader says; the reader never gets them."""
    two_inputs(world)
    world.logs[partition] = world.logs[partition][:1]
    read = Reader.read

    def unfinished(reader: Reader, seconds: float) -> Any:
        yield from read(reader, seconds)
        reader.ends.pop(partition, None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Reader, "read", unfinished)
        with pytest.raises(IncompleteError, match="nothing came for 60 s") as error:
            run(world)
    assert error.value.where == str(partition)
    assert error.value.remedy == "the same command goes on from there"
    assert 180 < world.clock < 200  # three tries


@pytest.mark.parametrize("seconds", [0.3, 0.1])
def test_progress_is_told_from_where_it_began_to_the_tip(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    copy = Writer.copy

    def slow(writer: Writer, *given: Any) -> None:
        world.clock += seconds
        copy(writer, *given)

    monkeypatch.setattr(Writer, "copy", slow)
    monkeypatch.setattr(replay, "BATCH", 1)
    two_inputs(world)
    run(world, Base(1, OUT, 0))
    assert {(p, tip) for p, _, tip in world.told} == {(0, 6)}
    assert [done for _, done, _ in world.told] == sorted(done for _, done, _ in world.told)
    assert 0 < len(world.told) <= world.clock / 0.25
    assert world.told[-1][1] == 5 or seconds < 0.25


@pytest.mark.parametrize("commits", [0, 1])
def test_a_cluster_that_keeps_failing_is_tried_three_times_without_a_commit(
    world: World, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr(replay, "RECORDS", 1)
    monkeypatch.setattr(replay, "BATCH", 1)
    two_inputs(world)
    copy, copied = Writer.copy, 0

    def failing(writer: Writer, *given: Any) -> None:
        nonlocal copied
        copied += 1
        if copied > commits:
            raise IncompleteError("no answer", where="there", remedy="start the broker")
        copy(writer, *given)

    monkeypatch.setattr(Writer, "copy", failing)
    with pytest.raises(IncompleteError, match="no answer") as error:
        run(world)
    assert world.calls.count("open") == 3
    before = "; 1 record sent before and committed"
    assert error.value.what == f"no answer{before if commits else ''}"
    assert (error.value.where, error.value.remedy) == ("there", "start the broker")
    assert world.outputs == ALL[:commits]


def test_one_that_is_stopped_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_inputs(world)

    def failing(writer: Writer, *given: Any) -> None:
        world.stop.set()
        raise IncompleteError("no answer")

    monkeypatch.setattr(Writer, "copy", failing)
    with pytest.raises(IncompleteError, match="no answer"):
        run(world)
    assert world.calls.count("open") == 1


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=6),
    st.lists(st.sampled_from([LEFT, RIGHT]), max_size=7),
    st.integers(0, 3),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 2),
)
@settings(
    max_examples=share(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_whatever_call_fails_each_record_is_there_once(
    fails: list[tuple[int, bool]],
    order: list[TopicPartition],
    unnamed: int,
    follow: bool,
    batch: int,
    written: int,
) -> None:
    """And at each moment the output holds just what the committed position says."""
    world = World(fails=dict(fails))
    for partition in order:
        world.write(partition, f"{partition}{world.ends.get(partition, 0)}".encode())
    for number in range(len(order)):
        at = order[:number].count(order[number])
        world.enter((order[number], world.logs[order[number]][at].at))
    for _ in range(unnamed):
        world.write(RIGHT, b"later%d" % world.ends.get(RIGHT, 0))
    expected = world.named()
    written = min(written, len(expected))
    if written:
        world.write(OUT, *expected[:written])
    if follow:
        expected += [r.content for r in world.logs.get(RIGHT, ())][order.count(RIGHT) :]
        world.stops_at = len(expected)
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepared(world, monkeypatch)
        monkeypatch.setattr(replay, "RECORDS", batch)
        monkeypatch.setattr(replay, "BATCH", batch)
        monkeypatch.setattr(replay, "NEW", 2)
        monkeypatch.setattr(replay, "LOGGED", 2)
        if len(world.outputs) != world.stops_at:
            run_to_the_end(world, follow=follow)
    assert world.outputs == expected
    if follow:
        assert world.named() == expected
    for commit in world.commits:
        before = [r for r in world.logs.get(LOG, ()) if r.at < commit.offset]
        position = ReplayPosition.committed(commit.offset, commit.metadata)
        assert commit.offset == 0 or position.base == BASE
        assert position.drop_left == max(0, written - len(before))


def run_to_the_end(world: World, *, follow: bool) -> None:
    for _ in range(6):
        try:
            run(world, follow=follow)
            return
        except (IncompleteError, UnverifiedError):
            if world.stop.is_set():
                return
    raise AssertionError("each try failed")
