"""A merge log, its inputs and its output compared record by record, all of them in memory."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from eoctl.operations.merge import merge_verify
from eoctl.operations.merge.planning import Merge
from recovery.answers import Answer
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.counting import Counts
from recovery.merge.replay import Base
from tests.unit.id_coordinator import nobody
from tests.unit.replay_world import (
    ALL,
    BASE,
    LEFT,
    LOG,
    OUT,
    RIGHT,
    Reader,
    Record,
    World,
    two_inputs,
)


@pytest.fixture
def world() -> World:
    made = World()
    two_inputs(made)
    made.write(OUT, *ALL)
    return made


def verified(
    world: World,
    *,
    output: str | None = "o",
    base: Base | Exception = BASE,
    copied: bool = True,
    told: list[tuple[int, int, int]] | None = None,
) -> Answer:
    """copied: a replay has committed. told: gets the progress."""

    async def look(*given: Any, twice: bool) -> Any:
        assert not twice
        return world.seen()

    async def bases(
        cluster: Any, request: Any, partitions: Any, logs: Any, *, certain: bool
    ) -> Any:
        assert (partitions, certain) == ([0], False)
        if isinstance(base, Exception):
            raise base
        return {0: base}

    async def committed(cluster: Any, group: str, partitions: Any) -> Any:
        assert (group, partitions) == ("eoctl-merge-m", [LOG])
        return {LOG: "there"} if copied else {}

    async def visible(
        cluster: Any, logs: Any, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Any:
        return {
            p: Counts(data=sum(low <= r.at < high for r in world.logs.get(p, ())))
            for p, (low, high) in ranges.items()
        }

    def read_log(settings: Any, p: TopicPartition, low: int, high: int, **options: Any) -> Any:
        there = [r for r in world.logs.get(p, ()) if low <= r.at < high]
        yield from ([*there[at : at + 2]] for at in range(0, len(there), 2))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(merge_verify, "look", look)
        monkeypatch.setattr(merge_verify, "bases", bases)
        monkeypatch.setattr(merge_verify, "committed", committed)
        monkeypatch.setattr(merge_verify, "visible", visible)
        monkeypatch.setattr(merge_verify, "read_log", read_log)
        monkeypatch.setattr(merge_verify, "Stream", lambda *given, **named: Reader(world))
        request = Merge("m", "json", ("a", "b"), output)
        progress = None if told is None else lambda *now: told.append(now)
        return asyncio.run(merge_verify.verify(nobody(), request, progress=progress))


def kinds(answer: Answer) -> list[str]:
    return [row.finding for row in answer.rows]  # type: ignore[attr-defined]


def test_a_true_log_and_its_output(world: World) -> None:
    told: list[tuple[int, int, int]] = []
    answer = verified(world, told=told)
    assert kinds(answer) == []
    assert not answer.errors
    assert answer.extra == {"entries": 5, "partitions": 1, "outputs_compared": 5}
    assert (answer.judging, answer.finding) == (True, False)
    assert told == [(0, 2, 7), (0, 5, 7), (0, 6, 7)]
    assert world.calls == ["closed"]


def test_without_an_output_nothing_is_compared(world: World) -> None:
    world.logs[OUT] = []
    answer = verified(world, output=None)
    assert answer.extra == {"entries": 5, "partitions": 1, "outputs_compared": 0}
    assert kinds(answer) == []


@pytest.mark.parametrize("at", range(5))
def test_an_output_that_is_another_record(world: World, at: int) -> None:
    world.logs[OUT][at] = world.logs[OUT][at]._replace(content=b"other")
    answer = verified(world)
    [found] = answer.rows
    assert (found.finding, found.records) == ("output-differs", 1)  # type: ignore[attr-defined]
    assert found.merge_offset == world.logs[LOG][at].at  # type: ignore[attr-defined]
    assert answer.finding


@pytest.mark.parametrize("copied", [True, False])
def test_a_copy_has_the_time_of_its_record(world: World, *, copied: bool) -> None:
    """An application that makes something else of every record is none that replays."""
    world.logs[OUT] = [r._replace(time=8) for r in world.logs[OUT]]
    answer = verified(world, copied=copied)
    assert [row.records for row in answer.rows] == ([5] if copied else [])  # type: ignore[attr-defined]


@pytest.mark.parametrize("start", [1, 3, 4])
def test_outputs_are_compared_from_their_base_on(world: World, start: int) -> None:
    """What is before it was written by others, as they may."""
    first = [entry.at for entry in world.logs[LOG]].index(start)
    world.logs[OUT] = [
        Record(OUT, r.at, r.content if number >= first else b"x")
        for number, r in enumerate(world.logs[OUT])
    ]
    answer = verified(world, base=Base(start, OUT, first))
    assert kinds(answer) == []
    assert answer.extra["outputs_compared"] == 5 - first


def test_outputs_that_no_entry_accounts_for(world: World) -> None:
    world.write(OUT, b"more")
    [found] = verified(world).rows
    assert (found.finding, found.records) == ("output-ahead", 1)  # type: ignore[attr-defined]
    assert found.merge_offset == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("entries", "findings"),
    [
        ([(LEFT, 0), (RIGHT, 0), (LEFT, 2), (LEFT, 1)], ["hole", "disorder"]),
        ([(LEFT, 0), (RIGHT, 0), (LEFT, 2)], ["hole"]),
        ([(LEFT, 0), (LEFT, 0)], ["repeat"]),
        ([(LEFT, 0), (LEFT, 1), (LEFT, 2), (LEFT, 3)], ["absent"]),  # a marker is there
        ([(LEFT, 0), (LEFT, 1), (RIGHT, 0), (LEFT, 2), (RIGHT, 1)], []),
        ([(LEFT, 0), (RIGHT, 0)], []),  # it is not complete yet
    ],
)
def test_entries_against_the_inputs(
    world: World, entries: list[tuple[TopicPartition, int]], findings: list[str]
) -> None:
    world.logs.pop(LOG)
    world.ends[LOG] = 0
    world.enter(*entries)
    answer = verified(world, output=None)
    assert kinds(answer) == findings
    assert answer.extra["entries"] == len(entries)


def test_a_record_that_is_no_entry(world: World) -> None:
    world.logs[LOG][2] = world.logs[LOG][2]._replace(content=b"{")
    assert kinds(verified(world, output=None)) == ["unreadable", "hole"]


def test_what_retention_took_is_not_proven(world: World) -> None:
    world.starts[LEFT] = 1
    world.logs[LEFT] = world.logs[LEFT][1:]
    answer = verified(world, output=None)
    assert kinds(answer) == []
    [error] = answer.errors
    assert "the records of 1 of 5 entries" in str(error)


@pytest.mark.parametrize("which", [LOG, OUT])
def test_outputs_whose_start_is_gone_are_not_compared(world: World, which: TopicPartition) -> None:
    world.starts[which] = 1
    answer = verified(world, base=Base(0, OUT, 0))
    assert answer.extra["outputs_compared"] == 0


def test_a_base_that_is_not_known(world: World) -> None:
    answer = verified(world, base=RefusedError("nothing says of which entries", where="o:0"))
    [error] = answer.errors
    assert "nothing says of which entries" in str(error)
    assert answer.extra == {"entries": 5, "partitions": 1, "outputs_compared": 0}


def test_an_input_that_gives_nothing_is_no_finding(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_verify, "_SILENT_READS", 3)
    reads = 0

    def read(reader: Reader, seconds: float) -> Any:
        nonlocal reads
        reads += 1
        assert reads < 50
        return iter(())

    monkeypatch.setattr(Reader, "read", read)
    answer = verified(world, output=None)
    [error] = answer.errors
    assert "nothing came" in str(error)
    assert kinds(answer) == []
    assert answer.extra["entries"] == 0
    assert reads == 4
