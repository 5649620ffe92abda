"""`contested-id`: which initialisations count, in records of a model of the coordinator."""

from collections.abc import Callable

import pytest

from recovery.diagnose.contest import (
    LEAST,
    RETRIED_WITHIN_MS,
    WINDOW_MS,
    Contest,
    contests,
    goes_on,
)
from recovery.facts import TopicPartition
from recovery.inspect.history import StateRecord
from recovery.values import replace
from tests.unit.transaction_model import Id, World

T0 = TopicPartition("t", 0)
Life = Callable[[World], object]


def records(world: World, name: str = "a") -> list[StateRecord]:
    return [r for r in world.state[world.ids[name].home] if r.transactional_id == name]


def lived(life: Life, rounds: int) -> Contest | None:
    """What is said of an id after it lived so for some rounds."""
    world = World()
    for _ in range(rounds):
        life(world)
    return next(iter(contests(records(world))), None)


def work(
    world: World, version: int, outcome: str | None, ms: int = 500, timeout: int = 60_000
) -> Id:
    """An owner starts, writes, and ends its transaction, or is gone."""
    i = world.init("a", version, timeout)
    world.write(i, T0)
    world.tick(ms)
    if outcome is not None:
        world.end(i, outcome)
    return i


@pytest.mark.parametrize("version", [1, 2])
def test_who_is_fenced_in_an_open_transaction_again_and_again_is_contested(version: int) -> None:
    """Each owner but the last one was fenced: the last initialisation ended the one before."""
    rounds = 7
    found = lived(lambda w: work(w, version, None), rounds)
    assert found is not None
    assert found.aborted == len(found.initialisations) == rounds - 1
    assert found.causes == ("two-owners", "restarts", "raises-its-own-epoch")
    assert found.state == "Ongoing"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("rounds", range(1, LEAST + 1))
def test_a_rolling_restart_is_none(version: int, rounds: int) -> None:
    assert lived(lambda w: work(w, version, None), rounds) is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_for_each_transaction_is_none(version: int) -> None:
    """As Flink's: an initialisation after a transaction that has ended counts for nothing."""
    assert lived(lambda w: work(w, version, "commit"), 20) is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_pool_of_producers_that_write_nothing_is_none(version: int) -> None:
    assert lived(lambda w: w.init("a", version), 20) is None


def test_a_client_of_v1_that_aborts_and_starts_again_is_none() -> None:
    """Its own abort does not raise the epoch, and a fence does."""
    assert lived(lambda w: work(w, 1, "abort"), 20) is None


def aborts_and_returns(world: World, version: int, after: int) -> None:
    work(world, version, "abort")
    world.tick(after)


@pytest.mark.parametrize("version", [1, 2])
def test_a_client_that_aborts_and_starts_again_later_is_none(version: int) -> None:
    """Whoever fences retries at once: it does not come twelve seconds after the abort."""
    assert lived(lambda w: aborts_and_returns(w, version, 12_000), 20) is None


def test_a_client_of_v2_that_aborts_and_starts_again_at_once_looks_like_a_fence() -> None:
    found = lived(lambda w: aborts_and_returns(w, 2, RETRIED_WITHIN_MS // 2), 7)
    assert found is not None
    assert found.aborted == 6


def test_a_fence_counts_however_long_its_markers_take() -> None:
    """The one that fences is answered CONCURRENT_TRANSACTIONS until they are written."""

    def life(w: World) -> None:
        i = work(w, 2, None)
        w.server_abort(i, stalled=True)
        w.tick(20_000)
        w.finish(i)

    found = lived(life, 7)
    assert found is not None
    assert found.aborted == 6


@pytest.mark.parametrize("version", [1, 2])
def test_what_ran_past_its_timeout_does_not_count(version: int) -> None:
    """Its coordinator ends it then: the record says nothing of an initialisation."""

    def life(w: World) -> None:
        i = work(w, version, None, ms=70_000)
        w.server_abort(i)

    assert lived(life, 20) is None


@pytest.mark.parametrize("version", [1, 2])
def test_what_lies_far_apart_does_not_count_together(version: int) -> None:
    """A process that is killed every five minutes, with a timeout of ten."""
    apart = WINDOW_MS // 2
    assert lived(lambda w: work(w, version, None, ms=apart, timeout=WINDOW_MS), 20) is None


def test_timeouts_that_alternate_are_two_owners() -> None:
    turns = iter([60_000, 30_000] * 4)
    found = lived(lambda w: started_with(w, next(turns)), 8)
    assert found is not None
    assert found.causes == ("two-owners",)
    assert set(found.timeouts) == {30_000, 60_000}


@pytest.mark.parametrize(
    ("timeouts", "causes"),
    [
        ([60, 60, 45, 60], ("two-owners", "restarts")),
        ([60, 45, 60], ("two-owners", "restarts")),
        ([60, 45, 60, 45], ("two-owners",)),
        ([60, 45, 45, 60, 60, 45], ("two-owners",)),
        ([60, 45, 30, 60, 45, 30], ("two-owners",)),
        ([60, 45, 30, 60], ("two-owners", "restarts")),
        ([60, 45, 30, 20], ("two-owners", "restarts")),
    ],
)
def test_a_timeout_that_was_changed_and_changed_back_may_be_one_owner(
    timeouts: list[int], causes: tuple[str, ...]
) -> None:
    """The first of the owners is fenced by the one that has the first of these timeouts."""
    turns = iter([60, *timeouts])
    found = lived(lambda w: started_with(w, next(turns) * 1000), len(timeouts) + 1)
    assert found is not None
    assert [i.timeout_ms // 1000 for i in found.initialisations] == timeouts
    assert found.causes == causes


def started_with(world: World, timeout: int) -> None:
    i = world.init("a", 2)
    i.timeout = timeout
    last = world.state[i.home][-1]
    value = last.value._replace(timeout_ms=timeout)  # type: ignore[union-attr,call-arg]
    world.state[i.home][-1] = replace(last, value=value)
    world.write(i, T0)
    world.tick(500)


def test_a_contest_of_yesterday_is_over() -> None:
    found = lived(lambda w: work(w, 2, None), 7)
    assert found is not None
    last = found.initialisations[-1].at
    assert goes_on(last, last + WINDOW_MS)
    assert not goes_on(last, last + WINDOW_MS + 1)
    assert not goes_on(None, last)
