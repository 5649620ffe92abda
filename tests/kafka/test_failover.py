"""`restart plan --from-cluster` between two real clusters, against the ids in the records.

The oracle reads both logs with a consumer of its own: what the group had not read in the source
must come from the planned offset on, each once.
"""

import random
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.cluster import Lab
from tests.docs.pages import follows
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit, committed
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading
from tests.kafka.test_mirror_maker import visible
from tests.mirror_maker.maker import SOURCE, MirrorMaker
from tests.share import fewer

Log = list[tuple[int, bytes]]
"""Offset and id of each visible record."""


@dataclass
class World:
    """Two clusters as contexts a and b, and a topic with its mirror."""

    a: Lab
    b: Lab
    folder: Path
    topic: str
    mirror: str
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        file = self.folder / "config.toml"
        file.write_text(
            "".join(
                f'[contexts.{name}]\nbootstrap_servers = "{lab.bootstrap_servers}"\n'
                for name, lab in (("a", self.a), ("b", self.b))
            )
        )
        self.env = environment(EOCTL_CONFIG=str(file))

    def eoctl(self, *words: str) -> Ran:
        return eoctl(*words, "--context", "b", env=self.env, timeout=600)

    def plan(self, group: str, *words: str) -> Ran:
        found = ("--group", group, "--from-cluster", "a", "--pause", "0.1s", "-o", "json")
        ran = self.eoctl("restart", "plan", *found, *words)
        return as_published(ran, "restart-plan") if ran.status == 0 else ran

    def group(self, offsets: dict[int, int]) -> str:
        """A group that has committed these offsets of the source."""
        name = f"{self.topic}-{uuid.uuid4().hex[:8]}"
        commit(self.a, name, {(self.topic, p): offset for p, offset in offsets.items()})
        return name


def write(
    lab: Lab, topic: str, ids: Sequence[Sequence[bytes]], began: int, size: int = 100
) -> None:
    """The ids of each partition, in transactions of `size`; every third one is aborted and comes
    again. The id is a number and gives the timestamp."""
    producer = Producer({**lab.client_properties(), "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions(20)
    for number, at in enumerate(range(0, max(map(len, ids)), size)):
        for end in ("abort", "commit") if number % 3 == 2 else ("commit",):
            producer.begin_transaction()
            for partition, values in enumerate(ids):
                for value in values[at : at + size]:
                    stamp = began + int(value) // 7
                    producer.produce(topic, value, b"k", partition, timestamp=stamp)
                    producer.poll(0)
            assert producer.flush(30) == 0
            getattr(producer, f"{end}_transaction")(20)


def unread_and_read_on(mine: Log, theirs: Log, at: int, onward: int) -> tuple[Any, Any]:
    """What the group had not read, and what it reads in the mirror, each with its count."""
    return (
        Counter(value for offset, value in mine if offset >= at),
        Counter(value for offset, value in theirs if offset >= onward),
    )


@pytest.fixture
def world(lab1: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path) -> World:
    return World(lab1, lab3, tmp_path, topic(lab1, 2), topic(lab3, 2))


def ids_from(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def restarted(whole: Sequence[bytes], rng: random.Random, kills: int) -> list[bytes]:
    """A copy by a mirror that was killed: it goes back, and copies again up to the end."""
    copy: list[bytes] = []
    at = 0
    for end in sorted(rng.sample(range(100, len(whole)), kills)):
        copy += whole[at:end]
        at = max(0, end - rng.randrange(1, 60))
    return [*copy, *whole[at:]]


def test_groups_continue_where_they_were(world: World) -> None:
    """Groups at random positions; the mirror has repeats, and other markers."""
    rng, began = random.Random(7), int(time.time() * 1000) - 3_600_000
    ids = [ids_from(1_000_000 * p, 1_500) for p in range(2)]
    write(world.a, world.topic, ids, began)
    copies = [restarted(ids[p], rng, 3) for p in range(2)]
    write(world.b, world.mirror, copies, began, size=170)
    logs = [(visible(world.a, world.topic, p), visible(world.b, world.mirror, p)) for p in range(2)]
    assert [len(mine) for mine, _ in logs] == [1_500, 1_500]
    exact = 0
    for number in range(12):
        # also behind markers and in the middle of what was aborted
        ends = [mine[-1][0] + 2 for mine, _ in logs]
        at = {p: rng.randrange(ends[p]) if number else ends[p] for p in range(2)}
        ran = world.plan(world.group(at), "--map", f"{world.topic}={world.mirror}")
        assert ran.status == 0, ran.stderr
        [plan] = ran.rows
        again = 0
        for i, origin in zip(plan["inputs"], plan["origins"], strict=True):
            partition = i["partition"]
            assert origin["source_offset"] == at[partition]
            mine, theirs = logs[partition]
            unread, onward = unread_and_read_on(mine, theirs, at[partition], i["restart_offset"])
            assert unread - onward == Counter(), "something is left out"
            assert set(onward) == set(unread), "something comes again that was read"
            assert origin["read_again"] == sum((onward - unread).values())
            again += origin["read_again"]
        assert plan["guarantee"] == ("at-least-once" if again else "exactly-once")
        exact += not again
    assert exact > 0


def test_a_plan_is_applied_verified_and_undone_as_any_other(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    ids = [ids_from(0, 300), ids_from(10_000, 300)]
    write(world.a, world.topic, ids, began)
    write(world.b, world.mirror, ids, began, size=90)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    group, file = world.group({0: mine[200][0]}), world.folder / "plan.json"
    words = ("--map", f"{world.topic}={world.mirror}", "--out", str(file))
    [plan] = world.plan(group, *words).rows
    expected = theirs[199][0] + 1
    assert [i["restart_offset"] for i in plan["inputs"]] == [expected]
    assert plan["guarantee"] == "exactly-once"
    assert {c["name"]: c["where"] for c in plan["checks"]}["no-commit"] == f"{world.mirror}:1"
    act = ("--execute", "--yes")
    assert world.eoctl("restart", "apply", str(file), *act).status == 0
    assert committed(world.b, group) == {(world.mirror, 0): expected}
    assert world.eoctl("restart", "verify", str(file), "--pause", "0.1s").status == 0
    assert world.eoctl("restart", "undo", str(file), *act).status == 0
    assert committed(world.b, group) == {}
    # the group reads on in the cluster that it was to leave
    [plan] = world.plan(group, *words).rows
    commit(world.a, group, {(world.topic, 0): mine[210][0]})
    refused = world.eoctl("restart", "apply", str(file), *act)
    assert refused.status == 4
    assert "it has committed since" in refused.text


@follows("docs/failover.md", "Over to another cluster, exactly")
def test_the_page(it: Reading, world: World) -> None:
    ids, began = [ids_from(0, 20)], int(time.time() * 1000) - 3_600_000
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, ids, began)
    it.contexts({"dc1": world.a, "dc2": world.b})
    it.names |= {"billing": world.group({0: 8})}
    planned = it.run("restart plan", 0, None, "--map", f"{world.topic}={world.mirror}")
    assert "exactly-once: 20 records of both clusters pair" in planned.text
    it.run("restart show", 0)
    it.run("restart apply", 0)
    it.run("restart verify", 0)


def test_what_the_mirror_has_not_copied_yet_is_named(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    ids = ids_from(0, 300)
    write(world.a, world.topic, [ids], began)
    write(world.b, world.mirror, [ids[:250]], began)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    name = ("--map", f"{world.topic}={world.mirror}")
    [plan] = world.plan(world.group({0: mine[240][0]}), *name).rows
    assert plan["guarantee"] == "exactly-once"
    assert plan["origins"][0]["not_mirrored"] == 50
    [plan] = world.plan(world.group({0: mine[280][0]}), *name).rows
    assert [i["restart_offset"] for i in plan["inputs"]] == [theirs[-1][0] + 1]
    assert (plan["guarantee"], plan["origins"][0]["read_again"]) == ("at-least-once", 30)
    assert any(c["name"] == "mirrored" and c["held"] is False for c in plan["checks"])


def test_the_way_back_with_what_was_written_meanwhile(world: World) -> None:
    """The same topic on both sides: 50 records never came over, 40 are written after the move."""
    began = int(time.time() * 1000) - 3_600_000
    ids, new = ids_from(0, 300), ids_from(1_000, 40)
    write(world.a, world.topic, [ids], began)
    write(world.b, world.mirror, [[*ids[:250], *new]], began, size=90)
    there = visible(world.b, world.mirror, 0)

    def back(read: int) -> dict[str, Any]:
        """The plan of a group that has read so many of B's records."""
        group = f"{world.topic}-{uuid.uuid4().hex[:8]}"
        commit(world.b, group, {(world.mirror, 0): there[read - 1][0] + 1})
        found = ("--group", group, "--from-cluster", "b", "--map", f"{world.mirror}={world.topic}")
        ran = eoctl(
            *("restart", "plan", *found, "--context", "a", "--pause", "0.1s", "-o", "json"),
            env=world.env,
        )
        assert ran.status == 0, ran.text
        [plan] = as_published(ran, "restart-plan").rows
        return plan

    here = visible(world.a, world.topic, 0)
    plan = back(260)  # before anything of it is copied back
    assert [i["restart_offset"] for i in plan["inputs"]] == [here[249][0] + 1]
    assert (plan["guarantee"], plan["origins"][0]["read_again"]) == ("at-least-once", 10)
    write(world.a, world.topic, [new], began)  # the mirror of the way back
    here = visible(world.a, world.topic, 0)
    plan = back(200)  # also what had not come over is read now
    assert [i["restart_offset"] for i in plan["inputs"]] == [here[199][0] + 1]
    assert plan["guarantee"] == "exactly-once"
    assert any(
        "50 records after the new offset are only in B" in c["detail"] for c in plan["checks"]
    )
    plan = back(260)
    assert [i["restart_offset"] for i in plan["inputs"]] == [here[309][0] + 1]
    assert (plan["guarantee"], plan["origins"][0]["skipped"]) == ("at-most-once", 50)
    assert "50 records before" in plan["because"]


@follows("docs/failover.md", "The way back")
def test_the_page_of_the_way_back(it: Reading, world: World) -> None:
    ids, began = [ids_from(0, 20)], int(time.time() * 1000) - 3_600_000
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, ids, began)
    group = f"{world.topic}-{uuid.uuid4().hex[:8]}"
    commit(world.b, group, {(world.mirror, 0): 8})
    it.contexts({"dc1": world.a, "dc2": world.b})
    it.names |= {"billing": group}
    planned = it.run("restart plan", 0, None, "--map", f"{world.mirror}={world.topic}")
    assert "exactly-once: 20 records of both clusters pair" in planned.text


@follows("docs/failover.md", "Transactions that were cut")
def test_the_page_of_what_was_cut(it: Reading, world: World, topic: MakeTopic) -> None:
    ids, began = [ids_from(0, 20)], int(time.time() * 1000) - 3_600_000
    others = topic(world.a), topic(world.b)
    names = dict([(world.topic, world.mirror), others])
    for source, copy in names.items():
        write(world.a, source, ids, began)
        write(world.b, copy, ids, began)
    it.contexts({"dc1": world.a, "dc2": world.b})
    it.names |= {"orders": world.topic, "payments": others[0]}
    more = [word for pair in names.items() for word in ("--map", "=".join(pair))]
    assert "0 transactions are only partly" in it.run("audit mirror-tr", 0, None, *more).text


@pytest.mark.parametrize("lengths", [(250, 230), (300, 200), (200, 200)])
def test_transactions_that_the_failover_cut_are_named(
    world: World, lengths: tuple[int, int]
) -> None:
    """Three transactions over both partitions; the mirror came to other places in each."""
    began = int(time.time() * 1000) - 3_600_000
    ids = [ids_from(0, 300), ids_from(10_000, 300)]
    write(world.a, world.topic, ids, began)
    copies = [values[:count] for values, count in zip(ids, lengths, strict=True)]
    write(world.b, world.mirror, copies, began, size=70)
    mine = [visible(world.a, world.topic, p) for p in range(2)]
    found = ("--map", f"{world.topic}={world.mirror}", "--mirror-context", "b", "--context", "a")
    words = ("audit", "mirror-transactions", world.topic, *found, "-o", "json")
    ran = as_published(eoctl(*words, env=world.env), "audit-mirror-transactions")
    itself = eoctl(*words[:3], "--context", "a", "--mirror-context", "a", env=world.env)
    assert (itself.status, "would be compared with itself" in itself.text) == (2, True)
    is_cut = lengths != (200, 200)
    assert (ran.status, len(ran.rows)) == (int(is_cut), int(is_cut)), ran.text
    for row in ran.rows:
        assert row["transactional_id"] == world.topic
        assert [
            (p["partition"], p["first_offset"], p["last_offset"], p["missing_from"])
            for p in row["partitions"]
        ] == [
            (p, log[200][0], log[299][0], None if lengths[p] == 300 else log[lengths[p]][0])
            for p, log in enumerate(mine)
        ]


def test_a_range_needs_a_choice_and_each_end_has_its_cost(world: World) -> None:
    """Records 100 to 119 are in the mirror after those up to 139: no offset is both."""
    began = int(time.time() * 1000) - 3_600_000
    ids = ids_from(0, 300)
    write(world.a, world.topic, [ids], began)
    write(world.b, world.mirror, [[*ids[:100], *ids[120:140], *ids[100:120], *ids[140:]]], began)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    group = world.group({0: mine[120][0]})
    name = ("--map", f"{world.topic}={world.mirror}")
    refused = world.plan(group, *name)
    first, last = theirs[100][0], theirs[139][0] + 1
    assert refused.status == 4
    assert (
        f"from {first} 20 records come again, from {last} 20 records are left out" in refused.text
    )
    costs = {}
    for end in ("earliest", "latest"):
        [plan] = world.plan(group, *name, "--at", end).rows
        [origin] = plan["origins"]
        [offset] = [i["restart_offset"] for i in plan["inputs"]]
        costs[end] = offset, plan["guarantee"], origin["read_again"], origin["skipped"]
    assert costs == {
        "earliest": (first, "at-least-once", 20, 0),
        "latest": (last, "at-most-once", 0, 20),
    }


@pytest.mark.long
def test_what_one_side_has_deleted_is_named(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    ids = ids_from(0, 300)
    write(world.a, world.topic, [ids], began)
    write(world.b, world.mirror, [ids], began)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    name = ("--map", f"{world.topic}={world.mirror}")
    groups = [world.group({0: mine[n][0]}) for n in (50, 150)]
    delete(world.b, world.mirror, theirs[100][0])
    [plan] = world.plan(groups[0], *name).rows  # 50 that it has not read are gone
    assert (plan["guarantee"], plan["origins"][0]["skipped"]) == ("at-most-once", 50)
    delete(world.a, world.topic, mine[120][0])
    [plan] = world.plan(groups[1], *name).rows
    assert [i["restart_offset"] for i in plan["inputs"]] == [theirs[149][0] + 1]
    assert plan["guarantee"] == "exactly-once"
    refused = world.plan(groups[0], *name)
    assert refused.status == 4
    assert "what it has not read is deleted" in refused.text


@pytest.mark.long
def test_a_mirror_with_its_own_times_one_made_again_and_one_with_fewer_partitions(
    world: World, topic: MakeTopic
) -> None:
    began = int(time.time() * 1000) - 3_600_000
    ids = [ids_from(0, 300), ids_from(10_000, 20)]
    write(world.a, world.topic, ids, began)
    stamped = topic(world.b, 2, 1, {"message.timestamp.type": "LogAppendTime"})
    write(world.b, stamped, ids, began)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, stamped, 0)
    group = world.group({0: mine[200][0]})
    [plan] = world.plan(group, "--map", f"{world.topic}={stamped}").rows
    assert [i["restart_offset"] for i in plan["inputs"]] == [theirs[199][0] + 1]
    assert plan["guarantee"] == "exactly-once"
    assert "300 records of both clusters are equal in key, value and headers" in {
        c["detail"] for c in plan["checks"]
    }
    # its topic was deleted: the mirror goes on in a new one, from record 220 on
    write(world.b, world.mirror, [ids[0][220:]], began)
    [plan] = world.plan(group, "--map", f"{world.topic}={world.mirror}").rows
    assert [i["restart_offset"] for i in plan["inputs"]] == [0]
    assert (plan["guarantee"], plan["origins"][0]["skipped"]) == ("at-most-once", 20)
    both = world.group({0: 10, 1: 10})
    refused = world.plan(both, "--map", f"{world.topic}={topic(world.b)}")
    assert (refused.status, "it has 1 partition" in refused.text) == (4, True)


def delete(lab: Lab, topic: str, before: int) -> None:
    admin, where = AdminClient(lab.client_properties()), TopicPartition(topic, 0, before)
    admin.delete_records([where])[where].result(20)


def test_refusals_say_what_to_do(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    write(world.a, world.topic, [ids_from(0, 50)], began)
    write(world.b, world.mirror, [ids_from(1_000, 50)], began)
    group = world.group({0: 20})
    cases = [
        (("--map", f"{world.topic}={world.mirror}"), 4, "it is not its mirror"),
        ((), 4, "no topic of its name"),
        (("--map", f"other={world.mirror}"), 2, "has committed nothing of other"),
        (("--map", f"{world.topic}=nowhere"), 3, "no such topic"),
        (("--at", "middle"), 2, "must be earliest or latest"),
        (("--to-earliest",), 2, "goes with --group, --topic, --map and --at alone"),
    ]
    for words, status, text in cases:
        ran = world.plan(group, *words)
        assert ran.status == status, ran.text
        assert text in ran.text
    unknown = world.plan("nobody")
    assert (unknown.status, "it has committed nothing" in unknown.text) == (4, True)
    same = eoctl(
        "restart", "plan", "--group", group, "--from-cluster", "a", "--context", "a", env=world.env
    )
    assert same.status == 2


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_real_mirror_maker(
    lab1: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path, exactly_once: bool
) -> None:
    """200,000 records in 12 partitions, aborted ones, MirrorMaker killed twice; 50 groups."""
    count, partitions = fewer(200_000, 12_000), 12
    name, rng = topic(lab1, partitions), random.Random(11)
    world = World(lab1, lab3, tmp_path, name, f"{SOURCE}.{name}")
    settings = {
        f"{SOURCE}.consumer.isolation.level": "read_committed",
        "b.exactly.once.source.support": "enabled" if exactly_once else "disabled",
    }
    maker = MirrorMaker(lab1, lab3, name, settings)
    began = int(time.time() * 1000) - 3_600_000
    size = count // partitions
    ids = [ids_from(1_000_000 * p, size) for p in range(partitions)]
    half = [values[: size // 2] for values in ids]
    map_words = ("audit", "mirror", name, world.mirror, "--context", "a", "--mirror-context", "b")
    kept, earlier = tmp_path / "orders.map", tmp_path / "earlier.map"
    early: list[tuple[str, dict[int, int]]] = []

    def keep() -> None:
        ran = eoctl(*map_words, "--keep", str(kept), env=world.env, timeout=1200)
        assert ran.status == 0, ran.text

    def grouped(logs: Sequence[Log], number: int) -> list[tuple[str, dict[int, int]]]:
        positions = [
            {p: rng.randrange(logs[p][-1][0] + 2) for p in range(partitions)} for _ in range(number)
        ]
        return [(world.group(at), at) for at in positions]

    try:
        write(lab1, name, half, began)
        early = grouped([visible(lab1, name, p) for p in range(partitions)], fewer(10, 2))
        for few in (count // 10, count // 4):
            # killed: it saves its positions late, and copies again
            maker.start(offset_flush_interval_ms="600000")
            maker.until(lambda few=few: _ends(lab3, world.mirror) > few, "nothing is mirrored")  # type: ignore[misc]
            maker.kill()
            keep()
        shutil.copy(kept, earlier)
        write(lab1, name, [values[size // 2 :] for values in ids], began)
        mine = [visible(lab1, name, p) for p in range(partitions)]
        maker.start(offset_flush_interval_ms="2000")

        def mirrored() -> bool:
            time.sleep(2)
            return all(
                {value for _, value in visible(lab3, world.mirror, p)} >= {v for _, v in mine[p]}
                for p in range(partitions)
            )

        maker.until(lambda: _ends(lab3, world.mirror) >= count and mirrored(), "not mirrored")
    finally:
        maker.kill()
    theirs = [visible(lab3, world.mirror, p) for p in range(partitions)]
    repeats = sum(map(len, theirs)) - count
    assert (repeats > 0) is not exactly_once
    groups = grouped(mine, fewer(50, 5))
    keep()
    plans = [(group, at, ("--from-cluster", "a")) for group, at in groups]
    plans += [(group, at, ("--from-cluster", str(kept))) for group, at in groups]
    plans += [(group, at, ("--from-cluster", str(earlier))) for group, at in early]
    exact = 0
    for group, at, source in plans:
        found = ("--group", group, *source, "--pause", "0.1s", "-o", "json")
        ran = world.eoctl("restart", "plan", *found)
        # of a copy that came after the map, the map cannot say that it is a repeat
        is_later = source[1] == str(earlier) and not exactly_once
        if refused := is_later and ran.status == 4:
            assert "continues between" in ran.stderr
            ran = world.eoctl("restart", "plan", *found, "--at", "earliest")
        assert ran.status == 0, ran.stderr
        [plan] = ran.rows
        again = 0
        for i, origin in zip(plan["inputs"], plan["origins"], strict=True):
            p = i["partition"]
            unread, onward = unread_and_read_on(mine[p], theirs[p], at[p], i["restart_offset"])
            assert unread - onward == Counter()
            assert is_later or set(onward) == set(unread)
            assert refused or origin["read_again"] == sum((onward - unread).values())
            again += sum((onward - unread).values())
        gone = source[1] != "a"
        assert plan["guarantee"] == ("at-least-once" if again or gone else "exactly-once")
        exact += not again
    assert exact == len(plans) or not exactly_once


def _ends(lab: Lab, topic: str) -> int:
    consumer = Consumer({**lab.client_properties(), "group.id": "ends"})
    known = consumer.list_topics(timeout=10).topics
    ends = 0
    with suppress(KafkaException):  # a new partition has no leader yet
        for partition in known[topic].partitions if topic in known else ():
            ends += consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1]
    consumer.close()
    return ends
