"""What groups have committed: decided, pending, refused or nothing; where share groups stand."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read.committed import _committed, _decided, _share_offsets
from recovery.facts import GroupOffsetFacts, TopicPartition
from recovery.values import replace


def at(number: int, start: int, error: int = 0) -> Any:
    return SimpleNamespace(
        partition_index=number, start_offset=start, leader_epoch=0, error_code=error, lag=-1
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [(0, 0, None), (1, 7, None), (3, None, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ([TopicPartition("t", 1), TopicPartition("t", 2)], [(1, 7, None)]),
        ([TopicPartition("u", 1)], []),
    ],
)
def test_a_share_group_stands_where_it_has_begun(
    asked: list[TopicPartition] | None, expected: list[tuple[int, int | None, str | None]]
) -> None:
    partitions = [at(0, 0), at(1, 7), at(2, -1), at(3, -1, 3)]
    topic = SimpleNamespace(topic_name="t", partitions=partitions)
    group = SimpleNamespace(group_id="g", error_code=0, topics=[topic])

    class Answering:
        async def ask(self, _broker: int, _question: object) -> Any:
            return SimpleNamespace(groups=[group])

    found = asyncio.run(_share_offsets(cast("Cluster", Answering()), asked, 1, ["g"]))
    _, offsets = found["g"]
    assert [(o.partition, o.committed_offset, o.error) for o in offsets] == expected
    assert all(o.is_share and o.lag is None and o.leader_epoch is None for o in offsets)


PLACE, OTHER = TopicPartition("t", 1), TopicPartition("t", 2)
CODES = {"NONE": 0, "UNSTABLE_OFFSET_COMMIT": 88, "GROUP_ID_NOT_FOUND": 69, "REFUSED": 30}


class Coordinator:
    """Answers OffsetFetch up to a version. value, stable: group -> error, partition -> answer.

    An answer: (offset, leader epoch, error). Without `require_stable` a coordinator gives value.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.value: dict[str, tuple[str, dict[TopicPartition, tuple[int, int, str]]]] = {}
        self.stable: dict[str, tuple[str, dict[TopicPartition, tuple[int, int, str]]]] = {}
        self.asked: list[Any] = []

    async def connection(self, broker: int) -> Any:
        assert broker == 1
        return SimpleNamespace(supports=lambda question, least: least <= self.version)

    def _group(self, name: str, stable: bool) -> Any:
        found = self.stable if stable and self.version >= 7 else self.value
        error, rows = found[name]
        partitions = [
            SimpleNamespace(
                partition_index=p.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata="m",
                error_code=CODES[e],
            )
            for p, (offset, epoch, e) in rows.items()
        ]
        topics = [SimpleNamespace(name="t", partitions=partitions)]
        return SimpleNamespace(group_id=name, error_code=CODES[error], topics=topics)

    async def ask(self, broker: int, question: Any, *, least: int, most: int) -> Any:
        assert broker == 1
        several = self.version >= 8
        assert (least, most) == ((8, 9) if several else (2, 7))
        if not several:
            named = question.topics and [(t.name, t.partition_indexes) for t in question.topics]
            self.asked.append((question.group_id, named))
            return self._group(question.group_id, question.require_stable)
        for g in question.groups:
            named = g.topics and [(t.name, t.partition_indexes) for t in g.topics]
            self.asked.append((g.group_id, named))
        groups = [self._group(g.group_id, question.require_stable) for g in question.groups]
        return SimpleNamespace(groups=groups)


def both(coordinator: Coordinator, *given: tuple[int, int, str]) -> None:
    """Let group g have this without and with `require_stable`, on one partition."""
    value, stable = given if len(given) == 2 else (given[0], given[0])
    coordinator.value["g"] = ("NONE", {PLACE: value})
    coordinator.stable["g"] = ("NONE", {PLACE: stable})


def rows_of(
    coordinator: Coordinator, *, decided: bool = False, named: list[TopicPartition] | None = None
) -> Any:
    ask = _decided if decided else _committed
    return asyncio.run(ask(cast("Cluster", coordinator), 1, {"g": named}))["g"]


@pytest.mark.parametrize("version", [5, 7, 8, 9])
def test_a_decided_offset(version: int) -> None:
    coordinator = Coordinator(version)
    both(coordinator, (7, 3, "NONE"))
    pending = False if version >= 7 else None  # older ones do not say
    expected = GroupOffsetFacts("g", *PLACE, 7, 3, "m", pending)
    assert rows_of(coordinator) == ("NONE", [expected])
    decided = rows_of(coordinator, decided=True)
    assert decided == ("NONE", [replace(expected, pending=None)])
    both(coordinator, (0, -1, "NONE"))
    assert rows_of(coordinator)[1] == [GroupOffsetFacts("g", *PLACE, 0, None, "m", pending)]


@pytest.mark.parametrize(("value", "offset"), [((7, 3, "NONE"), 7), ((-1, -1, "NONE"), None)])
def test_a_pending_offset_stands_beside_the_last_stable_one(
    value: tuple[int, int, str], offset: int | None
) -> None:
    """Also a group's first, which has nothing before it."""
    coordinator = Coordinator(9)
    both(coordinator, value, (-1, -1, "UNSTABLE_OFFSET_COMMIT"))
    [row] = rows_of(coordinator)[1]
    assert (row.committed_offset, row.pending, row.error) == (offset, True, None)
    assert row.leader_epoch == (3 if offset is not None else None)
    assert row.metadata == ("m" if offset is not None else None)


def test_a_partition_without_a_commit_is_left_out_unless_it_is_refused() -> None:
    coordinator = Coordinator(9)
    both(coordinator, (-1, -1, "NONE"))
    assert rows_of(coordinator) == ("NONE", [])
    both(coordinator, (-1, -1, "REFUSED"))
    [row] = rows_of(coordinator)[1]
    assert (row.committed_offset, row.pending) == (None, False)
    assert row.error == "GROUP_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(
    ("error", "found"),
    [("GROUP_ID_NOT_FOUND", "NONE"), ("REFUSED", "GROUP_AUTHORIZATION_FAILED")],
)
def test_a_group_that_is_not_there_has_nothing(error: str, found: str, *, decided: bool) -> None:
    coordinator = Coordinator(9)
    coordinator.value["g"] = coordinator.stable["g"] = (error, {})
    assert rows_of(coordinator, decided=decided) == (found, [])
    coordinator.stable["g"] = ("NONE", {})  # one of two answers
    assert rows_of(coordinator)[0] == found


@pytest.mark.parametrize("version", [7, 9])
def test_what_was_asked_for_must_be_answered(version: int) -> None:
    coordinator = Coordinator(version)
    both(coordinator, (7, 3, "NONE"))
    assert rows_of(coordinator, named=[PLACE])[0] == "NONE"
    assert coordinator.asked == [("g", [("t", [1])])] * 2
    with pytest.raises(WireError, match="leaves out group 'g' on 't'-2"):
        rows_of(coordinator, named=[PLACE, OTHER])
    coordinator.value["g"] = coordinator.stable["g"] = ("REFUSED", {})
    assert rows_of(coordinator, named=[PLACE, OTHER])[0] == "GROUP_AUTHORIZATION_FAILED"
    coordinator.asked.clear()
    coordinator.value["g"] = coordinator.stable["g"] = ("NONE", {})
    rows_of(coordinator)
    assert coordinator.asked == [("g", None)] * 2  # all that it has
