"""Two looks at the owners of a plan's transactions, and one more before it is carried out.

What leaders and coordinators answer is given; what a plan then says is in test_life.py.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from eoctl.kafka.ask import collect, coordinators, groups
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.remedy.living import refuse_new_writes, with_life
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import GroupFacts, Missing, ProducerFacts, TopicPartition, TransactionFacts
from recovery.remedy.life import looks, unseen_looks
from tests.unit.change.test_plan import make

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PID = 4001
Looks = Sequence[Mapping[TopicPartition, Sequence[ProducerFacts]]]


def producer(place: TopicPartition, sequence: int, producer_id: int = PID) -> ProducerFacts:
    return ProducerFacts(*place, producer_id, 4, sequence, 1_000, 0, 9)


def idle(name: str, start: int) -> TransactionFacts:
    return TransactionFacts(name, 1, PID, "CompleteCommit", 4, 60_000, start, ())


class Brokers(Cluster):
    """They answer each look in turn; who answers nothing is left out.

    rows: producers of partitions. ids: transactional ids. groups: those that are listed.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        rows: Looks = (),
        ids: Sequence[Sequence[TransactionFacts]] = (),
        known: Sequence[GroupFacts] = (),
        missing: Sequence[Missing] = (),
        seconds: float = 5,
    ) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(seconds))
        looks_at_rows, looks_at_ids = list(rows), list(ids)
        self.asked: list[Collection[object]] = []

        async def producers(_: Cluster, partitions: Sequence[PartitionMetadata]) -> Any:
            places = [p.topic_partition for p in partitions]
            self.asked.append(places)
            answers = looks_at_rows.pop(0)
            return {place: answers[place] for place in places if place in answers}, []

        async def find(_: Cluster, names: Sequence[str]) -> Any:
            self.asked.append(names)
            return [t for t in looks_at_ids.pop(0) if t.transactional_id in names], []

        async def list_groups(_: Cluster) -> Any:
            return [GroupFacts(g.group, None) for g in known], list(missing)

        async def describe_groups(_: Cluster, mine: Sequence[GroupFacts]) -> Any:
            names = [g.group for g in mine]
            return [g for g in known if g.group in names], []

        monkeypatch.setattr(collect, "producers", producers)
        monkeypatch.setattr(coordinators, "find", find)
        monkeypatch.setattr(groups, "list_groups", list_groups)
        monkeypatch.setattr(groups, "describe_groups", describe_groups)

    async def metadata(self, topics: Any = None) -> ClusterMetadata:
        partitions = tuple(PartitionMetadata("orders", n, 1, 0, (1,), None) for n in range(3))
        return ClusterMetadata(
            "c", 1, {}, {"orders": TopicMetadata("orders", "i", False, partitions, None)}
        )


def row(place: TopicPartition | None, name: str | None = "pay-1", **more: Any) -> dict[str, Any]:
    """One transaction of a plan."""
    partition = None if place is None else str(place)
    return {"partition": partition, "producer_id": PID, "transactional_id": name, **more}


def plan(*about: dict[str, Any], hits: str | None = "pay-1", **parameters: Any) -> Plan:
    step = Step(
        action="fence",
        target="pay-1",
        parameters=parameters,
        does="",
        stands_on=(),
        about=list(about),
    )
    return make(steps=(step,), hits=hits)


def seen(cluster: Cluster, planned: Plan, interval: float = 0.0) -> list[dict[str, Any]]:
    """The rows of the plan with what was seen."""
    changed = asyncio.run(with_life(cluster, planned, interval))
    assert changed.sha256 == planned.sha256
    return [dict(about) for step in changed.steps for about in step.about]


QUIET = {P0: [producer(P0, 5), producer(P0, 1, producer_id=8)]}
WENT_ON = {P0: [producer(P0, 7), producer(P0, 1, producer_id=8)]}
ANOTHER = {P0: [producer(P0, 5), producer(P0, 2, producer_id=8)]}


@pytest.mark.parametrize(
    ("rows", "wrote"),
    [
        ((QUIET, QUIET), False),
        ((QUIET, WENT_ON), True),
        ((QUIET, ANOTHER), False),
        ((QUIET, {}), None),
        (({}, QUIET), None),
    ],
)
def test_a_partition_that_was_read_once_is_read_twice(
    monkeypatch: pytest.MonkeyPatch, rows: Looks, wrote: bool | None
) -> None:
    """And whoever writes has to be named in the typed word, as one who may."""
    brokers = Brokers(monkeypatch, rows=rows)
    [about] = seen(brokers, plan(row(P0)))
    assert brokers.asked == [[P0], [P0]]
    assert about["looks"]["wrote"] is wrote
    for hits in ("pay-1", None):
        again = Brokers(monkeypatch, rows=rows)
        changed = asyncio.run(with_life(again, plan(row(P0), hits=hits), 0.0))
        assert changed.hits == (hits if hits is None or wrote is False else "pay-1-which-writes")


def test_what_the_diagnosis_has_seen_twice_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = looks(producer(P1, 5), producer(P1, 6), 5_000)
    brokers = Brokers(monkeypatch, rows=(QUIET, QUIET))
    first, second = seen(brokers, plan(row(P0), row(P1, looks=twice)))
    assert brokers.asked == [[P0], [P0]]
    assert (first["looks"]["wrote"], second["looks"]) == (False, twice)
    bare = row(None, looks=twice)
    brokers = Brokers(monkeypatch)
    assert [about["looks"] for about in seen(brokers, plan(bare))] == [twice]
    assert brokers.asked == []


@pytest.mark.parametrize(
    ("ids", "wrote"),
    [
        (([idle("pay-1", 7)], [idle("pay-1", 7)]), False),
        (([idle("pay-1", 7)], [idle("pay-1", 9)]), True),
        (([idle("pay-1", 7)], []), None),
        (([], [idle("pay-1", 7)]), None),
    ],
)
def test_an_id_that_holds_no_partition_is_described_twice(
    monkeypatch: pytest.MonkeyPatch,
    ids: Sequence[Sequence[TransactionFacts]],
    wrote: bool | None,
) -> None:
    brokers = Brokers(monkeypatch, ids=ids)
    [about] = seen(brokers, plan(row(None)))
    assert brokers.asked == [["pay-1"], ["pay-1"]]
    assert about["looks"]["wrote"] is wrote


def test_the_looks_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the interval, as the plan says; where the time does not suffice, nothing is planned."""
    [about] = seen(Brokers(monkeypatch, rows=(QUIET, QUIET)), plan(row(P0)), 0.05)
    assert 50 <= about["looks"]["apart_ms"] < 5_000
    with pytest.raises(IncompleteError, match="at its producer"):
        seen(Brokers(monkeypatch, rows=(QUIET, QUIET), seconds=1), plan(row(P0)), 2.0)


def group(name: str, members: int | None) -> GroupFacts:
    clients = None if members is None else tuple((f"c{n}", f"/10.0.0.{n}") for n in range(members))
    return GroupFacts(name, "Stable", members=clients)


def members(
    monkeypatch: pytest.MonkeyPatch,
    *known: GroupFacts,
    name: str | None = "pay-1",
    missing: Sequence[Missing] = (),
    held: Sequence[str] = (),
) -> tuple[list[str], int, str | None]:
    """Groups and clients that a plan names, how many more there are, what was not seen."""
    brokers = Brokers(monkeypatch, rows=(QUIET, QUIET), known=known, missing=missing)
    more = {"groups_held": held} if held else {}
    [about] = seen(brokers, plan(row(P0, name, **more)))
    named = [f"{m['group']} {m['client']}{m['host']}" for m in about["members"]]
    return named, about["members_more"], about["members_unseen"]


def test_members_of_the_groups_of_its_name_and_of_those_whose_offsets_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = (group("pay", 1), group("other", 1), group("sales", 2))
    of_pay, of_sales = "pay c0/10.0.0.0", ["sales c0/10.0.0.0", "sales c1/10.0.0.1"]
    assert members(monkeypatch, *known) == ([of_pay], 0, None)
    assert members(monkeypatch, *known, held=["sales"]) == ([of_pay, *of_sales], 0, None)
    assert members(monkeypatch, *known, name=None, held=["sales"]) == (of_sales, 0, None)
    assert members(monkeypatch, *known, name=None) == ([], 0, None)
    assert members(monkeypatch, group("pay", 0)) == ([], 0, None)


def test_each_transaction_has_looks_and_members_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an id has a partition and, beside it, a row without one."""
    brokers = Brokers(
        monkeypatch,
        rows=(QUIET, QUIET),
        ids=([idle("sales-1", 7), idle("pay-1", 7)], [idle("sales-1", 8), idle("pay-1", 8)]),
        known=(group("pay", 1), group("sales", 1)),
    )
    found = seen(brokers, plan(row(P0), row(None), row(None, "sales-1")))
    assert [about["looks"]["wrote"] for about in found] == [False, True, True]
    of_each = [[m["group"] for m in about["members"]] for about in found]
    assert of_each == [["pay"], ["pay"], ["sales"]]


def test_few_members_are_named_and_who_was_not_seen_is(monkeypatch: pytest.MonkeyPatch) -> None:
    named, more, unseen = members(monkeypatch, group("pay", 7))
    assert (len(named), more, unseen) == (5, 2, None)
    assert members(monkeypatch, group("pay", 5))[1:] == (0, None)
    away = [Missing("group", "X", "broker 2 is away"), Missing("group", "X", "broker 3 is away")]
    assert members(monkeypatch, group("pay", None), missing=away) == ([], 0, "group pay")
    assert members(monkeypatch, group("pay", 0), missing=away) == ([], 0, "broker 2 is away")


# -- before it is carried out ----------------------------------------------------------------------


def still(place: TopicPartition, sequence: int = 5) -> dict[str, Any]:
    """A row of a plan whose owner was quiet at this sequence."""
    one = producer(place, sequence)
    return row(place, looks=looks(one, one, 300))


def refused(
    monkeypatch: pytest.MonkeyPatch, planned: Plan, now: Mapping[str, Any]
) -> tuple[bool, Sequence[Collection[object]]]:
    """Whether the plan is refused as its owner has written since, and what was read."""
    brokers = Brokers(monkeypatch, **now)
    try:
        asyncio.run(refuse_new_writes(brokers, planned.steps))
    except RefusedError:
        return True, brokers.asked
    return False, brokers.asked


GONE: dict[str, Any] = {"owner_is_gone": True}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ((QUIET,), False),
        ((WENT_ON,), True),
        ((ANOTHER,), False),
        (({P0: [producer(P0, 1, producer_id=8)]},), True),  # its state is no more what it was
        (({},), False),  # nobody answers: that is judged elsewhere
    ],
)
def test_an_owner_that_wrote_since_the_plan_lives(
    monkeypatch: pytest.MonkeyPatch, now: Looks, expected: bool
) -> None:
    found = refused(monkeypatch, plan(still(P0), **GONE), {"rows": now})
    assert found == (expected, [[P0]])
    if expected:
        brokers = Brokers(monkeypatch, rows=now)
        with pytest.raises(RefusedError, match="its owner has written since the plan was made"):
            asyncio.run(refuse_new_writes(brokers, plan(still(P0), **GONE).steps))


@pytest.mark.parametrize(
    ("now", "expected"),
    [(([idle("pay-1", 7)],), False), (([idle("pay-1", 8)],), True), (([],), False)],
)
def test_an_id_that_went_on_since_the_plan_lives(
    monkeypatch: pytest.MonkeyPatch, now: Sequence[Sequence[TransactionFacts]], expected: bool
) -> None:
    last = ["CompleteCommit", PID, 4, 7]
    at_rest = {"apart_ms": 300, "wrote": False, "records": 0, "last": last}
    found = refused(monkeypatch, plan(row(None, looks=at_rest), **GONE), {"ids": now})
    assert found == (expected, [["pay-1"]])


def test_only_quiet_owners_that_the_operator_vouched_for_are_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others stand on their positions, or were agreed to although they write."""
    wrote = row(P0, looks=looks(producer(P0, 5), producer(P0, 6), 300))
    nothing: tuple[bool, list[Any]] = (False, [])
    assert refused(monkeypatch, plan(still(P0)), {}) == nothing
    assert refused(monkeypatch, plan(still(P0), owner_is_gone=False), {}) == nothing
    assert refused(monkeypatch, plan(wrote, **GONE), {}) == nothing
    assert refused(monkeypatch, plan(row(P0, looks=unseen_looks()), **GONE), {}) == nothing
    of_earlier_versions = plan(row(P0, looks=None), row(P0), **GONE)
    assert refused(monkeypatch, of_earlier_versions, {}) == nothing
    without_last = {"apart_ms": 300, "wrote": False, "records": 0}
    assert refused(monkeypatch, plan(row(P0, looks=without_last), **GONE), {}) == nothing
