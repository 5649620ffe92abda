"""How far earlier replays of a merge log came, and when their commits account for the output.

Which offsets hold visible records is written down; what the cluster would say of them is scripted.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import positions
from eoctl.kafka.read.count import Cuts
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.operations.merge import planning
from eoctl.operations.merge.planning import Merge, MergeLook, Reached, visible
from recovery.errors import EoctlError, IncompleteError, RefusedError, UsageError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.counting import Counts
from recovery.merge.replay import Base, ReplayPosition
from recovery.restart.observed import Log, LogEnd
from recovery.shared.log_position import Standing
from tests.unit.formats_build import Item, batch

LOG, OUT = TopicPartition("m", 0), TopicPartition("o", 0)
BASE = Base(2, OUT, 5)
MERGE = Merge("m", "json", ("a",), "o")


class World:
    """logs: the offsets with a visible record; the others are markers. ends: of each log."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Collection[int]] = {
            LOG: {0, 1, 2, 3, 5, 6, 8},
            OUT: {4, 5, 6, 8},
        }
        self.ends = {LOG: 9, OUT: 10}
        self.starts = {LOG: 0, OUT: 0}
        self.later: dict[TopicPartition, int] = {}  # the end of a second look
        self.commits: dict[TopicPartition, CommittedPosition] = {}
        self.held: bool | None = True
        self.producer = 7
        self.holes: dict[TopicPartition, Counts] = {}
        self.uncounted: list[Missing] = []

    def commit(self, at: ReplayPosition, epoch: int | None = 3) -> None:
        self.commits = {LOG: CommittedPosition(at.merge_offset, at.metadata, epoch)}

    def seen(self) -> MergeLook:
        facts = {
            p: PartitionFacts(*p, p.topic, 1, 3, (1,), self.starts[p], end, end)
            for p, end in self.ends.items()
        }
        ends = {
            p: Log(*p, p.topic, 3, self.starts[p], (LogEnd(end, end, end),) * 2)
            for p, end in self.ends.items()
        }
        return MergeLook(facts, (), ends)

    async def count(self, cluster: object, cuts: Iterable[Cuts]) -> Any:
        counts = {}
        for c in cuts:
            low, high = c.offsets
            assert low < high
            assert (c.log_start_offset, c.last_stable_offset) == (
                self.starts[c.topic_partition],
                self.ends[c.topic_partition],
            )
            if c.producers is not None:
                for number, offset in enumerate(sorted(self.logs[c.topic_partition])):
                    c.producers.add(header(offset, self.producer, number), visible=True)
            data = sum(low <= offset < high for offset in self.logs[c.topic_partition])
            counts[c.topic_partition] = [
                self.holes.get(c.topic_partition, Counts(data=data, control=high - low - data))
            ]
        for missing in self.uncounted:
            assert missing.topic_partition is not None
            counts.pop(missing.topic_partition)
        return counts, self.uncounted


def header(offset: int, producer_id: int, sequence: int) -> BatchHeader:
    producer = producer_id, 0, sequence
    return next(iter(batch_headers(batch(offset, [Item(0)], producer=producer))))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    async def committed(cluster: object, group: str, partitions: Any) -> Any:
        assert (group, partitions) == ("eoctl-merge-m", [LOG])
        return made.commits

    async def standings(cluster: object, at: Any) -> Any:
        assert all(p == LOG for p in at)
        return {p: Standing(made.held, "because", 4) for p in at}

    async def record_epochs(cluster: object, begins: Any) -> Any:
        return {p: 100 + offset for p, offset in begins.items()}

    async def look(cluster: object, merge: Merge, *, twice: bool) -> MergeLook:
        assert twice
        made.ends |= made.later
        return made.seen()

    monkeypatch.setattr(planning, "committed", committed)
    monkeypatch.setattr(planning, "count", made.count)
    monkeypatch.setattr(planning, "look", look)
    monkeypatch.setattr(positions, "standings", standings)
    monkeypatch.setattr(positions, "record_epochs", record_epochs)
    return made


def nobody() -> Cluster:
    return Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))


def reached(world: World, base: Base = BASE) -> Reached:
    return asyncio.run(planning.reached(nobody(), MERGE, {0: base}, world.seen()))[0]


def refused(world: World, base: Base = BASE, kind: type[EoctlError] = RefusedError) -> EoctlError:
    with pytest.raises(kind) as error:
        reached(world, base)
    return error.value


def test_outputs_of_an_application_that_died_are_left_out(world: World) -> None:
    """Three outputs from the base on: the first three entries from it on."""
    assert reached(world) == Reached(
        None, 9, 10, 5, 3, ReplayPosition(2, 3, BASE), leader_epoch=102
    )


def test_a_replay_goes_on_where_its_commit_says(world: World) -> None:
    at = ReplayPosition(6, 0, BASE)
    world.commit(at)
    assert reached(world) == Reached(at, 9, 10, 5, 3, at, leader_epoch=3)
    half = ReplayPosition(3, 2, BASE)  # two of those before it are still to be left out
    world.commit(half, None)
    assert reached(world) == Reached(half, 9, 10, 5, 3, half)


def test_a_commit_from_another_base_says_nothing(world: World) -> None:
    world.commit(ReplayPosition(6, 0, Base(1, OUT, 5)))
    assert reached(world).position == ReplayPosition(2, 3, BASE)


@pytest.mark.parametrize("position", [(5, 0), (6, 1), (3, 0), (8, 0)])
def test_outputs_that_a_commit_does_not_account_for(
    world: World, position: tuple[int, int]
) -> None:
    world.commit(ReplayPosition(*position, BASE))
    error = refused(world)
    assert "it holds 3 records from 5 on" in error.what
    assert "somebody else wrote" in error.what
    assert error.where == "o:0"


def test_more_outputs_than_entries(world: World) -> None:
    world.logs[LOG] = {2, 3}
    error = refused(world)
    assert "the merge log 2 entries from 2 on: outputs in an order" in error.what
    world.logs[LOG] = {2, 3, 8}
    assert reached(world).entries == 3


def test_a_base_beyond_the_log(world: World) -> None:
    assert "it ends at 9, before 10" in refused(world, Base(10, OUT, 10)).what
    assert reached(world, Base(9, OUT, 10)) == Reached(
        None, 9, 10, 0, 0, ReplayPosition(9, 0, Base(9, OUT, 10)), leader_epoch=109
    )
    error = refused(world, Base(2, OUT, 11))
    assert (error.what, error.where) == ("11 is above its end 10", "o:0")


def test_a_log_that_was_cut_off_below_the_position(world: World) -> None:
    world.commit(ReplayPosition(6, 0, BASE))
    world.held = False
    error = refused(world)
    assert "cut off at offset 4" in error.what
    assert "below offset 4 of the log: --to, --from-merge-offset 0:M" in str(error.remedy)
    world.held = None
    assert "position 6 of m:0 is not proven" in str(reached(world).unproven)


def test_outputs_without_a_producer_id_are_refused_until_a_replay_counted_them(
    world: World,
) -> None:
    world.producer = -1
    assert "a producer without an id wrote" in refused(world).what
    world.commit(ReplayPosition(6, 0, BASE))
    assert reached(world).outputs == 3


@pytest.mark.parametrize("which", [LOG, OUT])
def test_what_retention_took_since_the_base(world: World, which: TopicPartition) -> None:
    """Whoever is sure that nobody else wrote goes on with the commit that was reached."""
    at = ReplayPosition(6, 0, BASE)
    world.commit(at)
    world.starts[which] = {LOG: 3, OUT: 6}[which]
    error = refused(world)
    begin = {LOG: 2, OUT: 5}[which]
    assert f"[{begin}, {world.starts[which]}) is gone: whether somebody else wrote" in error.what
    assert error.where == {LOG: "m:0", OUT: "o:0"}[which]
    assert "--from-merge-offset 0:6 --output-offset 0:10" in str(error.remedy)
    world.later = {OUT: 11}
    assert "it moved from 10 to 11 meanwhile" in refused(world).what


@pytest.mark.parametrize("drop_left", [0, 2])
def test_what_retention_took_beyond_the_position_is_only_gone(world: World, drop_left: int) -> None:
    """Or while outputs are still to be left out: no commit to go on with can be named."""
    world.commit(ReplayPosition(6 if not drop_left else 3, drop_left, BASE))
    world.starts[LOG] = 7 if not drop_left else 3
    error = refused(world)
    assert f"[2, {world.starts[LOG]}) is gone: it starts at {world.starts[LOG]}" in error.what
    assert "name a commit whose offsets still exist" in str(error.remedy)


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (Counts(data=2, missing=1), "lacks 1 offset and holds 0 open records"),
        (Counts(data=2, open=2), "lacks 0 offsets and holds 2 open records"),
    ],
)
def test_a_range_that_is_not_whole(world: World, counts: Counts, why: str) -> None:
    world.holes = {OUT: counts}
    error = refused(world)
    assert f"[5, 10) {why}" in error.what
    assert error.where == "o:0"


def test_a_range_that_could_not_be_counted(world: World) -> None:
    world.uncounted = [Missing("partition", "X", "it is silent", None, *OUT)]
    error = refused(world, kind=IncompleteError)
    assert error.what == "it could not be counted: it is silent"
    assert error.where == "o:0"


def test_an_empty_range_is_not_read(world: World) -> None:
    ranges = {LOG: (9, 9), OUT: (5, 10)}
    found = asyncio.run(visible(nobody(), world.seen(), ranges))
    assert found == {LOG: Counts(), OUT: Counts(data=3, control=2)}


def test_ends_that_are_not_known(world: World) -> None:
    seen = world.seen()
    assert (seen.final(LOG), seen.bounds(OUT, "read_committed")) == (9, (0, 10))
    with pytest.raises(UsageError, match="no such partition"):
        seen.of(TopicPartition("m", 1))
    silent = MergeLook({}, (Missing("partition", "X", "it is silent", None, *LOG),), {})
    with pytest.raises(IncompleteError, match="it is silent"):
        silent.of(LOG)
    with pytest.raises(IncompleteError, match="its end could not be read"):
        MergeLook(seen.facts, (), {}).final(LOG)


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 4), ("read_uncommitted", 6)])
def test_where_a_reader_of_its_isolation_ends(isolation: str, end: int) -> None:
    facts = PartitionFacts(*LOG, "m", 1, 3, (1,), 1, 4, 6)
    assert MergeLook({LOG: facts}, (), {}).bounds(LOG, isolation) == (1, end)


def test_which_partitions_are_replayed(world: World) -> None:
    facts = {TopicPartition("m", p): PartitionFacts("m", p) for p in (2, 0, 1)}
    seen = MergeLook(facts | {OUT: PartitionFacts(*OUT)}, (), {})

    def chosen(*partitions: int, **bases: tuple[int, int]) -> list[int]:
        given = {int(p[1:]): at for p, at in bases.items()}
        return planning.partitions_of(planning.chosen(MERGE, partitions, given), seen)

    assert chosen() == [0, 1, 2]
    assert chosen(2, 1) == [1, 2]
    assert chosen(p1=(0, 0)) == [0, 1, 2]
    for partitions, bases in [((3,), {}), ((), {"p3": (0, 0)}), ((1,), {"p3": (0, 0)})]:
        with pytest.raises(UsageError, match="no such partition") as error:
            chosen(*partitions, **bases)
        assert error.value.where == "m:3"


def test_a_topic_is_one_thing_in_a_merge() -> None:
    twice: list[tuple[tuple[str, ...], str]] = [
        (("m",), "o"),
        (("a", "a"), "o"),
        (("a",), "m"),
        (("a",), "a"),
    ]
    for inputs, output in twice:
        with pytest.raises(UsageError, match="is named twice"):
            Merge("m", "json", inputs, output)
    assert Merge("m", "json", ("a",), None).topics == ("m", "a")


def test_a_partition_whose_offsets_are_not_known_says_why() -> None:
    unknown = PartitionFacts(*LOG, "id", 1, 3, (1,), error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(IncompleteError, match="its offsets could not be read"):
        MergeLook({LOG: unknown}, (), {}).of(LOG)
    told = Missing("partition", "NOT_LEADER_OR_FOLLOWER", "its leader moves", *(None, *LOG))
    with pytest.raises(IncompleteError, match="its leader moves"):
        MergeLook({LOG: unknown}, (told,), {}).of(LOG)
    with pytest.raises(UsageError, match="no such partition"):
        MergeLook({LOG: unknown}, (told,), {}).of(OUT)
