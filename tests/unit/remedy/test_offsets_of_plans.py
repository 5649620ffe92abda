"""Which offsets of groups a plan's transactions hold: found, compared and counted.

What the cluster would say is scripted; the real one is asked in tests/kafka/test_group_offsets.py.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read import committed
from eoctl.kafka.read.count import Cuts
from eoctl.operations.remedy import group_offsets as reading
from eoctl.operations.remedy import raising
from recovery.change.plan import Plan, Step
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, PartitionFacts, TopicPartition
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS, OffsetKey, PendingOffset
from recovery.formats.counting import Counts
from recovery.inspect.observation import OpenTransaction
from recovery.remedy.repairs import MARKER_ACTION
from tests.unit.change.test_plan import make

NOBODY = cast("Cluster", None)
HOME, OTHER_HOME = TopicPartition(CONSUMER_OFFSETS, 7), TopicPartition(CONSUMER_OFFSETS, 8)
DATA = TopicPartition("out", 0)
IN = TopicPartition("in", 0)


def step(action: str = "fence", target: str = "x", pid: int = 4001, **more: Any) -> Step:
    rows = more.pop("rows", [str(DATA), str(HOME)])
    given = {"producer_id": pid, "described_epoch": 3, "partitions": [str(DATA), str(HOME)]} | more
    about = [{"partition": row} for row in rows]
    return Step(action=action, target=target, parameters=given, does="", stands_on=(), about=about)


def pending(
    group: str = "g",
    offset: int | None = 50,
    *,
    epoch: int = 3,
    at: TopicPartition = IN,
    **more: Any,
) -> PendingOffset:
    return PendingOffset(OffsetKey(group, *at), offset, 9, 4001, epoch, **more)


class Groups:
    """held: what open transactions hold, by partition and producer id. committed: by group."""

    def __init__(self) -> None:
        self.held: dict[OpenTransaction, tuple[PendingOffset, ...]] = {}
        self.gaps: list[Missing] = []
        self.committed: dict[tuple[str, TopicPartition], int | None] = {}
        self.silent: list[Missing] = []
        self.homes: Any = [PartitionFacts(*p) for p in (HOME, OTHER_HOME)]
        self.ends = {IN: (0, 60)}
        self.records = set(range(60))
        self.asked: list[Any] = []
        self.counted: list[tuple[int, ...]] = []

    def holds(self, *offsets: PendingOffset, at: TopicPartition = HOME, pid: int = 4001) -> None:
        self.held[OpenTransaction(*at, pid, 1)] = offsets


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    here = Groups()

    async def offsets_partitions(cluster: Any) -> Any:
        if isinstance(here.homes, Exception):
            raise here.homes
        return here.homes

    async def pending_in(cluster: Any, homes: Any, producer_ids: Any) -> Any:
        here.asked.append((sorted(str(p.topic_partition) for p in homes), producer_ids))
        return here.held, here.gaps

    async def with_offsets(
        cluster: Any, wanted: Any, partitions: Any, *, decided_only: bool
    ) -> Any:
        assert decided_only
        facts = []
        for group in wanted:
            rows = tuple(
                GroupOffsetFacts(group.group, p.topic, p.partition, here.committed[group.group, p])
                for p in partitions
                if (group.group, p) in here.committed
            )
            facts.append(GroupFacts(group.group, None, offsets=rows))
        return facts, here.silent

    async def at_partitions(cluster: Any, partitions: Any) -> Any:
        found = [
            PartitionFacts(*p, log_start_offset=low, last_stable_offset=stable)
            for p, (low, stable) in here.ends.items()
            if p in partitions
        ]
        return found, []

    async def count(cluster: Any, cuts: Iterable[Cuts]) -> Any:
        counts = {}
        for c in cuts:
            here.counted.append(c.offsets)
            pairs = zip(c.offsets, c.offsets[1:], strict=False)
            counts[c.topic_partition] = [
                Counts(data=sum(low <= at < high for at in here.records)) for low, high in pairs
            ]
        return counts, []

    monkeypatch.setattr(reading, "offsets_partitions", offsets_partitions)
    monkeypatch.setattr(reading, "pending_in", pending_in)
    monkeypatch.setattr(committed, "with_offsets", with_offsets)
    monkeypatch.setattr(reading, "at_partitions", at_partitions)
    monkeypatch.setattr(reading, "count", count)
    return here


def planned(*steps: Step) -> Plan:
    made = make().model_copy(update={"steps": steps})
    return asyncio.run(reading.with_group_offsets(NOBODY, made))


def rows(made: Step) -> list[dict[str, Any]]:
    return [o for row in made.about for o in row.get("group_offsets", ())]


def test_a_groups_only_offset_is_the_first_harm_of_an_abort(groups: Groups) -> None:
    """The group reads 50 records again, or skips 60."""
    groups.holds(pending())
    groups.committed = {("g", IN): None}
    [made] = planned(step()).steps
    assert "group_offsets" not in made.about[0]
    [offset] = made.about[1]["group_offsets"]
    assert (offset["group"], offset["on"], offset["ends"]) == ("g", str(HOME), True)
    commits = {"commit": {"offset": offset["pending_offset"], "known": True}}  # as it might yet
    assert offset["after"] == {"abort": {"offset": None, "known": True}} | commits
    assert (offset["log_start_offset"], offset["last_stable_offset"]) == (0, 60)
    assert (offset["records_before"], offset["records_after"]) == (50, 10)
    assert made.harms
    assert "g" in made.harms[0]
    assert groups.asked == [([str(HOME)], {4001})]
    assert groups.counted == [(0, 50, 60)]


@pytest.mark.parametrize(
    ("before", "harmed"), [({("g", IN): 20}, False), ({("g", IN): None}, True), ({}, True)]
)
def test_an_earlier_offset_stays(
    groups: Groups, before: dict[tuple[str, TopicPartition], int | None], *, harmed: bool
) -> None:
    groups.holds(pending())
    groups.committed = before
    [made] = planned(step()).steps
    [offset] = rows(made)
    assert offset["committed_offset"] == before.get(("g", IN))
    assert offset["committed_error"] is None
    assert bool(made.harms) is harmed


@pytest.mark.parametrize(
    ("missing", "known"),
    [
        (Missing("group", "SILENT", "it is silent", id="g"), False),
        (Missing("group", "SILENT", "it is silent"), False),  # of a broker's groups
        (Missing("group", "SILENT", "it is silent", id="h"), True),
        (Missing("partition", "SILENT", "it is silent", None, "in", 3, id="g"), True),
    ],
)
def test_a_group_that_gave_no_answer_is_not_without_an_offset(
    groups: Groups, missing: Missing, *, known: bool
) -> None:
    groups.holds(pending())
    groups.silent = [missing]
    [made] = planned(step()).steps
    [offset] = rows(made)
    assert offset["committed_error"] == (None if known else "SILENT")
    assert bool(made.harms) is known


def test_only_what_the_steps_transaction_holds_is_told(groups: Groups) -> None:
    """By its producer id, on the partitions that it names."""
    groups.holds(pending("mine"))
    groups.holds(pending("theirs"), pid=4002)
    groups.holds(pending("elsewhere"), at=OTHER_HOME)
    [made] = planned(step()).steps
    assert [o["group"] for o in rows(made)] == ["mine"]


@pytest.mark.parametrize(("epoch", "told"), [(3, True), (4, False)])
def test_a_marker_ends_one_partition_and_names_the_same_transaction_elsewhere(
    groups: Groups, epoch: int, *, told: bool
) -> None:
    """Where it stays open: of the same epoch, for another one is another transaction's."""
    groups.holds(pending("here", epoch=9))
    groups.holds(pending("there", epoch=epoch), at=OTHER_HOME)
    [made] = planned(step(MARKER_ACTION, str(HOME), rows=[str(HOME)])).steps
    found = {o["group"]: o["ends"] for o in rows(made)}
    assert found == {"here": True} | ({"there": False} if told else {})
    assert groups.asked == [([str(HOME), str(OTHER_HOME)], {4001})]
    assert all("there" not in harm for harm in made.harms)


def test_without_a_partition_of_offsets_nobody_is_asked(groups: Groups) -> None:
    made = planned(step(partitions=[str(DATA)], rows=[str(DATA)]))
    assert groups.asked == []
    assert made.steps[0].about == [{"partition": str(DATA)}]


def test_a_raise_and_a_step_without_rows_are_left_as_they_are(groups: Groups) -> None:
    groups.holds(pending())
    raised, bare = step(raising.ACTION), step(rows=[])
    made = planned(raised, bare, step(pid=4003))
    assert made.steps[:2] == (raised, bare)
    assert groups.asked == [([str(HOME)], {4003})]


@pytest.mark.parametrize("homes", [Missing("topic", "X", "hidden"), WireError("X", "hidden")])
def test_what_hides_the_offsets_is_named(groups: Groups, homes: Any) -> None:
    groups.homes = homes
    [made] = planned(step()).steps
    [unseen] = made.about[0]["group_offsets_unseen"]
    assert unseen["detail"] == "hidden"
    assert "group_offsets_unseen" not in made.about[1]


@pytest.mark.parametrize(
    ("gap", "of_marker", "of_fence"),
    [
        (None, True, True),
        (HOME, True, True),  # its own
        (OTHER_HOME, False, False),  # read, and only another's is open there
        (TopicPartition(CONSUMER_OFFSETS, 9), True, False),  # not read at all
    ],
)
def test_a_gap_concerns_who_is_open_there(
    groups: Groups, gap: TopicPartition | None, *, of_marker: bool, of_fence: bool
) -> None:
    groups.holds(pending())
    groups.holds(pending("h"), at=OTHER_HOME, pid=4002)
    place: Any = (None, None) if gap is None else gap
    groups.gaps = [Missing("partition", "X", "a gap", None, *place)] * 2
    for made, told in (
        (step(MARKER_ACTION, str(HOME), rows=[str(HOME)]), of_marker),
        (step(), of_fence),
        (step(partitions=[str(DATA)]), False),
    ):
        [seen] = planned(made, step(pid=4005)).steps[:1]
        unseen = seen.about[0].get("group_offsets_unseen", [])
        assert len(unseen) == int(told), made.parameters["partitions"]


def test_the_shortest_are_counted_first_and_not_more_than_a_plan_may_take(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_COUNTED", 30)
    places = [TopicPartition("in", p) for p in range(4)]
    groups.ends = {places[0]: (0, 20), places[1]: (5, 15), places[2]: (0, 1), places[3]: (7, 7)}
    groups.records = set(range(100))
    groups.holds(*(pending(offset=9, at=p) for p in places))
    [made] = planned(step()).steps
    counts = {o["partition"]: (o["records_before"], o["records_after"]) for o in rows(made)}
    assert counts == {0: (None, None), 1: (4, 6), 2: (1, 0), 3: (0, 0)}
    assert sorted(groups.counted) == [(0, 1), (5, 9, 15)]
    monkeypatch.setattr(reading, "MOST_COUNTED", 31)
    [made] = planned(step()).steps
    assert {o["partition"] for o in rows(made) if o["records_before"] is None} == set()


def test_positions_outside_of_the_log_are_counted_from_its_ends(groups: Groups) -> None:
    groups.ends, groups.records = {IN: (10, 60)}, {10, 30, 59}
    groups.holds(pending("low", 4), pending("high", 99), pending("at", 30))
    [made] = planned(step()).steps
    counts = {o["group"]: (o["records_before"], o["records_after"]) for o in rows(made)}
    assert counts == {"low": (0, 3), "high": (3, 0), "at": (1, 2)}
    assert groups.counted == [(10, 30, 60)]


def test_an_offset_on_a_partition_without_a_row_is_in_the_first(groups: Groups) -> None:
    groups.holds(pending())
    [made] = planned(step(rows=[str(DATA), "other:1"])).steps
    assert [len(row.get("group_offsets", ())) for row in made.about] == [1, 0]
