"""A replay that follows: it extends the log first, and emits what it then reads back."""

from typing import Any

import pytest

from recovery.errors import RefusedError
from recovery.merge.replay import Base
from tests.unit.replay_world import (
    ALL,
    LEFT,
    LOG,
    OUT,
    RIGHT,
    Reader,
    World,
    Writer,
    prepared,
    run,
    two_inputs,
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return prepared(World(), monkeypatch)


def test_following_merges_what_the_log_does_not_name_and_emits_it_once(world: World) -> None:
    two_inputs(world)
    world.write(LEFT, b"a4", b"a5")
    world.write(RIGHT, b"b3")
    world.stops_at = 8
    assert run(world, follow=True) == 8
    assert world.outputs[:5] == ALL
    assert sorted(world.outputs[5:]) == [b"a4", b"a5", b"b3"]
    assert world.named() == world.outputs
    world.stop.clear()
    world.write(RIGHT, b"b5")
    world.stops_at = 9
    assert run(world, follow=True) == 1
    assert world.outputs[-1] == b"b5"
    assert world.named() == world.outputs


def test_following_names_an_input_from_its_start_if_no_entry_named_it(world: World) -> None:
    world.write(LEFT, b"a0")
    world.write(RIGHT, b"b0", b"b1")
    world.enter((LEFT, 0))
    world.stops_at = 3
    run(world, follow=True)
    assert world.outputs == [b"a0", b"b0", b"b1"]


def test_what_was_appended_is_read_back_before_more_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader gets it late: until then the same records are still unnamed."""
    read = Reader.read

    def late(reader: Reader, seconds: float) -> Any:
        if LOG in reader.reads and world.reads % 5:
            world.reads += 1
            return iter(())
        return read(reader, seconds)

    monkeypatch.setattr(Reader, "read", late)
    two_inputs(world)
    world.write(LEFT, b"a4", b"a5")
    world.stops_at = 7
    run(world, follow=True)
    assert world.outputs == [*ALL, b"a4", b"a5"]
    assert world.named() == world.outputs


@pytest.mark.parametrize(("low", "first"), [(1, 0), (0, 1)])
def test_where_an_unnamed_input_goes_on_is_unknown_once_anything_is_gone(
    world: World, low: int, first: int
) -> None:
    world.write(LEFT, b"a0", b"a1")
    world.write(RIGHT, b"b0", b"b1")
    world.enter((LEFT, 0), (LEFT, 1))
    world.starts = {LOG: low, RIGHT: first}
    with pytest.raises(RefusedError, match=f"starts at {low} and it at {first}: where to go"):
        run(world, Base(low, OUT, 0), follow=True)


@pytest.mark.parametrize("first", [2, 3, 4])
def test_records_that_were_deleted_before_they_were_merged(world: World, first: int) -> None:
    """The log names RIGHT up to 1; its marker is at 2."""
    two_inputs(world)
    world.write(RIGHT, b"b3", b"b4")
    run(world)
    world.starts[RIGHT] = first
    world.logs[RIGHT] = [r for r in world.logs[RIGHT] if r.at >= first]
    world.stops_at = 7
    if first > 2:
        with pytest.raises(RefusedError, match=rf"\[2, {first}\) is gone and was never merged"):
            run(world, follow=True)
    else:
        run(world, follow=True)
        assert world.outputs[5:] == [b"b3", b"b4"]


def test_an_entry_that_another_process_appended_ends_following(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_inputs(world)
    world.write(LEFT, b"a4", b"a5")
    commit = Writer.commit

    def meanwhile(writer: Writer, positions: Any) -> None:
        if not positions:
            world.enter((LEFT, 5))
        commit(writer, positions)

    monkeypatch.setattr(Writer, "commit", meanwhile)
    with pytest.raises(RefusedError, match="at 7 there is an entry for a:0 at 5 that somebody"):
        run(world, follow=True)
    assert world.outputs == ALL
