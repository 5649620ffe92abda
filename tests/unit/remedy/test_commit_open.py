"""A dead owner's transaction that is committed in its stead: who forbids it, how it ended.

What coordinators and leaders answer is given. On real brokers: tests/kafka/test_lost_markers.py,
tests/kafka/test_remedies_unharmed.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.change.steps import Effect
from eoctl.operations.diagnose.owner_traces import Owners
from eoctl.operations.remedy import commit
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy.marker import End
from recovery.change.plan import Step
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import (
    CoordinatorFacts,
    GroupFacts,
    Missing,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.observation import StartBatch
from recovery.values import replace
from tests.unit.check_facts import judged

NOBODY = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
PID = 7
PAY = TransactionFacts("pay-1", 1, PID, "Ongoing", 3, 60_000, 1)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
STILL: dict[TopicPartition, object] = {P0: (3, 5, 100), P1: None}

# -- who forbids it --------------------------------------------------------------------------------


def seen(*others: TransactionFacts, every_coordinator: bool = True, second: bool = True) -> Judged:
    """Its transaction. others, every_coordinator: of the second look, or the only one."""
    one = judged("open", PID)
    first = replace(
        one.first, transactions=Transactions((PAY,), (CoordinatorFacts(0, 1, seen=True),))
    )
    coordinators = (CoordinatorFacts(0, 1, seen=every_coordinator),)
    last = replace(first, transactions=Transactions((PAY, *others), coordinators))
    return replace(one, first=first if second else last, second=last if second else None)


def refusal(
    monkeypatch: pytest.MonkeyPatch,
    *mine: Judged,
    groups: Sequence[GroupFacts] = (),
    missing: Sequence[Missing] = (),
    after: dict[TopicPartition, object] = STILL,
) -> EoctlError | None:
    """Why it is not committed; None where only the groups whose offsets it holds are asked."""
    asked: list[object] = []

    async def look_for_life(*_: object) -> Owners:
        return Owners((), tuple(groups), tuple(missing))

    async def refuse_members(cluster: Cluster, those: Sequence[Judged], name: str) -> None:
        asked.append((those, name))

    monkeypatch.setattr(commit, "look_for_life", look_for_life)
    monkeypatch.setattr(remedy_fence, "refuse_members", refuse_members)
    try:
        asyncio.run(commit.refuse_life(NOBODY, PAY, mine, STILL, after))
    except EoctlError as error:
        assert asked == []
        return error
    assert asked == [(mine, "pay-1")]
    return None


def idle(name: str, state: str = "Empty", pid: int = PID) -> TransactionFacts:
    return TransactionFacts(name, 1, pid, state, 3)


def test_nothing_speaks_against_an_owner_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (
        GroupFacts("pay", "Empty", members=()),
        GroupFacts("x", "Stable", members=(("c", "h"),)),
    )
    others = (idle("other"), idle("another", "Ongoing", 8))
    assert refusal(monkeypatch, seen(*others), seen(second=False), groups=known) is None


@pytest.mark.parametrize("second", [True, False])
def test_whoever_else_may_own_it_forbids_it(monkeypatch: pytest.MonkeyPatch, second: bool) -> None:
    hidden = refusal(monkeypatch, seen(every_coordinator=False, second=second))
    assert isinstance(hidden, IncompleteError)
    assert "not every coordinator was seen" in hidden.what
    owned = refusal(monkeypatch, seen(), seen(idle("other", "PrepareCommit"), second=second))
    assert isinstance(owned, RefusedError)
    assert owned.what == "other is PrepareCommit with its producer id too"


@pytest.mark.parametrize("moved", [{P0: (3, 6, 100), P1: None}, {P0: (3, 5, 100), P1: (3, 0, 9)}])
def test_whoever_writes_is_not_gone(
    monkeypatch: pytest.MonkeyPatch, moved: dict[TopicPartition, object]
) -> None:
    """Also on a partition that it had not written to before."""
    error = refusal(monkeypatch, seen(), after=moved)
    assert error is not None
    assert "its owner wrote between two looks" in error.what


def test_whoever_has_a_group_with_members_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    living = refusal(
        monkeypatch, seen(), groups=[GroupFacts("pay", "Stable", members=(("c", "h"),))]
    )
    assert isinstance(living, RefusedError)
    assert "the group of its name has members (pay)" in living.what
    unknown = refusal(monkeypatch, seen(), groups=[GroupFacts("pay", None, members=None)])
    assert isinstance(unknown, IncompleteError)
    away = [Missing("broker", "X", "it is away", 2)]
    error = refusal(monkeypatch, seen(), missing=away)
    assert isinstance(error, IncompleteError)
    assert "broker 2: it is away" in error.what


# -- how it ended ----------------------------------------------------------------------------------

STEP = Step(
    action=commit.ACTION,
    target="pay-1",
    parameters={"producer_id": PID, "ends": {"t:0": 20, "t:1": 30}},
    does="",
    stands_on=(),
)
SHUT_OUT = {"used": [PID, 3], "at": [PID, 6]}
OVER = Effect(True, {"state": "Empty", "shut_out": SHUT_OUT}, "pay-1 is Empty")
COMMITTED = End(marker=20, outcome="commit")


def ended(monkeypatch: pytest.MonkeyPatch, effect: Effect, *ends: End) -> Effect:
    """What is seen, where its partitions ended so."""
    given = dict(zip(("t:0", "t:1"), ends, strict=False))

    async def of_coordinator(*_: object) -> Effect:
        return effect

    async def end_of(cluster: Cluster, name: str, producer_id: int, planned: int) -> End:
        assert (producer_id, planned) == (PID, STEP.parameters["ends"][name])
        return given[name]

    monkeypatch.setattr(remedy_fence, "ended", of_coordinator)
    monkeypatch.setattr(remedy_marker, "end_of", end_of)
    return asyncio.run(commit.ended(NOBODY, STEP, None))


def test_it_is_done_where_each_partition_has_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(monkeypatch, OVER, COMMITTED, End(marker=31, outcome="commit"))
    assert (done.done, done.beyond) == (True, None)
    assert done.saw == {"markers": {"t:0": 20, "t:1": 31}, "shut_out": SHUT_OUT}
    assert done.detail == ("pay-1 is Empty; its commit markers: t:0 at offset 20, t:1 at offset 31")
    for saw in ({"state": "Empty"}, None):
        done = ended(monkeypatch, replace(OVER, saw=saw), COMMITTED, COMMITTED)
        assert done.saw == {"markers": {"t:0": 20, "t:1": 20}}
    still_open = Effect(False, None, "pay-1 is still Ongoing")
    assert ended(monkeypatch, still_open) is still_open


@pytest.mark.parametrize(
    ("end", "beyond"),
    [
        (End(), "which marker ended it on t:1 was not found"),
        (
            End(marker=31, outcome="abort"),
            "another marker ended it first on t:1: abort at offset 31",
        ),
        (
            End(2, 30, 32, "commit"),
            "its producer wrote 2 more records to t:1, from offset 30 on, before its marker",
        ),
    ],
)
def test_what_the_plan_did_not_say_is_said(
    monkeypatch: pytest.MonkeyPatch, end: End, beyond: str
) -> None:
    done = ended(monkeypatch, OVER, COMMITTED, end)
    assert done.done is True
    assert done.beyond is not None
    assert done.beyond.startswith(beyond)


def test_what_it_delivers() -> None:
    stake: dict[str, Any] = {"records": 2, "first_offset": 4, "last_offset": 9, "whole": True}
    one = judged("open", PID)
    of = commit._delivered
    assert of(one, stake, apart=True) == (
        "t:0: delivers 2 records (offsets 4 to 9) that its owner wrote and never decided"
    )
    assert of(one, stake | {"whole": False}, apart=False) == (
        "t:0: delivers at least 2 records (offsets 4 to 9): those that were committed, and those "
        "that its owner wrote after and never decided"
    )
    held = replace(one, start=StartBatch(PID, 3, groups=("b", "a")))
    nothing = {"records": 0, "first_offset": None, "last_offset": None, "whole": True}
    assert of(held, nothing, apart=True) == (
        "t:0: delivers 0 records that its owner wrote and never decided; the offsets in them of "
        "a, b are committed"
    )
    bare = replace(one, start=StartBatch(PID, 3))
    assert "offsets in them" not in of(bare, stake, apart=True)
