"""What a map's commits prove of what a group has read."""

import asyncio
from collections.abc import Mapping

import pytest

from eoctl.kafka.read import positions
from eoctl.operations.audit.failover_map import MapSource
from eoctl.operations.audit.map_commits import commits_of, compared_with_log
from recovery.audit.mirror_map import MapCommit, MapPartition
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import GroupFacts, GroupOffsetFacts, TopicPartition
from recovery.formats.columns import NONE
from recovery.shared.log_position import LogPosition, Standing
from tests.unit.audit.test_mirror_map import WHOLE, keep

P = TopicPartition("orders", 0)


def _group(name: str, offset: int | None, epoch: int | None = 4, **more: bool | None) -> GroupFacts:
    offsets = (GroupOffsetFacts(name, "orders", 0, offset, epoch, **more),)  # type: ignore[arg-type]
    return GroupFacts(name, "Empty", offsets=offsets)


def test_a_pending_commit_is_kept_as_it_is_known() -> None:
    groups = [
        _group("held", 7, pending=True),
        _group("unknown", 7),
        _group("first", None, pending=True),
        _group("none", None, pending=False),
    ]
    assert [(c.group, c.offset, c.pending) for c in commits_of(groups, 1)] == [
        ("held", 7, True),
        ("unknown", 7, None),
        ("first", None, True),
    ]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[LogPosition]:
    """A log of epoch 4 up to 50 and 5 after it, in which nobody knows epoch 3; what was asked."""
    asked: list[LogPosition] = []

    async def standings(
        cluster: object, places: Mapping[TopicPartition, LogPosition]
    ) -> dict[TopicPartition, Standing]:
        asked.extend(places.values())
        if any(at.offset == 99 for at in places.values()):
            raise IncompleteError("no leader")
        return {p: Standing(_held(at), f"epoch {at.leader_epoch}") for p, at in places.items()}

    monkeypatch.setattr(positions, "standings", standings)
    return asked


def _held(at: LogPosition) -> bool | None:
    return None if at.leader_epoch in (None, 3) else at.leader_epoch == 5 or at.offset <= 50


def test_each_commit_is_compared_with_the_log(log: list[LogPosition]) -> None:
    commits = commits_of(
        [
            _group("a", 10),
            _group("b", 20),
            _group("c", 60),
            _group("d", 70, 5),
            _group("e", 80, 5),
            _group("f", 5, 3),
            _group("g", 6, None),
        ],
        1,
    )
    found = asyncio.run(compared_with_log(None, commits))  # type: ignore[arg-type]
    assert {c.group: c.held for c in found} == {
        "a": True,
        "b": True,
        "c": False,
        "d": True,
        "e": True,
        "f": None,
        "g": None,
    }
    assert [at.offset for at in log] == [80, 60, 20, 5, 6], "one question proves those before it"
    unseen = asyncio.run(compared_with_log(None, commits_of([_group("x", 99)], 1)))  # type: ignore[arg-type]
    assert [(c.held, c.because) for c in unseen] == [(None, "no leader")]


def _planned(commit: MapCommit, *parts: MapPartition) -> dict[TopicPartition, str]:
    async def run() -> dict[TopicPartition, str]:
        kept = WHOLE.model_copy(update={"partitions": parts})
        source = MapSource("m", {"orders": kept}, [commit])
        commits = await source.commits("g", (), ())
        return await source.not_proven({p: e.position.input for p, e in commits.items()})

    return asyncio.run(run())


def test_a_plan_names_a_mirror_that_deleted_what_no_run_saw() -> None:
    [commit] = commits_of([_group("g", 10, pending=False)], 1)
    commit = commit.model_copy(update={"held": True})
    source = [(n, NONE) for n in range(10)]
    cut = keep(None, source, source, cut=8)
    old = cut.model_copy(update={"unseen": None})
    assert _planned(commit, keep(None, source, source)) == {}
    assert "no run saw what the mirror deleted below 8" in _planned(commit, cut)[P]
    assert "not known whether a run saw what the mirror deleted" in _planned(commit, old)[P]


def test_a_plan_refuses_a_commit_of_another_log_and_names_one_that_is_not_proven() -> None:
    [commit] = commits_of([_group("g", 10, pending=False)], 1, "no epoch")
    assert _planned(commit.model_copy(update={"held": True})) == {}
    assert "another log: no epoch" in _planned(commit)[P]
    with pytest.raises(RefusedError, match="offset 10 is of a log that was cut off"):
        _planned(commit.model_copy(update={"held": False}))
    with pytest.raises(RefusedError, match="held the group's first commit here"):
        _planned(commit.model_copy(update={"offset": None, "pending": True}))
