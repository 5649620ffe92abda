"""`restart plan --from-cluster MAP`: the cluster that the group left is gone, its map is not.

Against the ids in the records. The map knows what was there when it was kept; what came later is
only in the oracle.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.cli.commands.audit import mirror as command
from eoctl.kafka.connection.cluster import Cluster
from eoctl.lab import secure
from eoctl.lab.cluster import Lab
from eoctl.operations.audit.mirror_keep import KeptRanges, MirrorKeep
from eoctl.stores.offsets import mirror_maps
from recovery.errors import UnreachableError
from tests.docs.pages import follows
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit, committed
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading
from tests.kafka.rights import rights
from tests.kafka.test_failover import World, delete, ids_from, restarted, write
from tests.kafka.test_mirror_maker import visible


@pytest.fixture
def world(lab1: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path) -> World:
    return World(lab1, lab3, tmp_path, topic(lab1, 2), topic(lab3, 2))


def keep(world: World, file: Path, *, status: int = 0) -> Ran:
    words = ("audit", "mirror", world.topic, world.mirror, "--mirror-context", "b")
    ran = eoctl(*words, "--keep", str(file), "--context", "a", "-o", "json", env=world.env)
    assert ran.status == status, ran.text
    return as_published(ran, "audit-mirror-keep") if ran.stdout else ran


def alone(world: World) -> dict[str, str]:
    """The environment of a shell that does not know the cluster that is gone."""
    config = world.folder / "b-alone.toml"
    config.write_text(f'[contexts.b]\nbootstrap_servers = "{world.b.bootstrap_servers}"\n')
    return world.env | {"EOCTL_CONFIG": str(config)}


def plan(world: World, group: str, file: Path, *words: str) -> Ran:
    """In a shell that does not know the cluster that is gone."""
    named = ("--group", group, "--from-cluster", str(file))
    ran = eoctl(
        *("restart", "plan", *named, *words, "--context", "b", "--pause", "0.1s", "-o", "json"),
        env=alone(world),
    )
    return as_published(ran, "restart-plan") if ran.status == 0 else ran


def test_a_map_kept_twice_finds_what_groups_had_read(world: World) -> None:
    """The mirror is killed and copies again, before the map's last look and after it."""
    rng, began = random.Random(3), int(time.time() * 1000) - 3_600_000
    ids = [ids_from(1_000_000 * p, 900) for p in range(2)]
    copies = [restarted(ids[p], rng, 3) for p in range(2)]
    file = world.folder / "orders.map"
    write(world.a, world.topic, [values[:400] for values in ids], began)
    write(world.b, world.mirror, [copy[:300] for copy in copies], began, size=170)
    first = keep(world, file)
    assert [row["new_pairs"] for row in first.rows] == [len(set(copy[:300])) for copy in copies]
    write(world.a, world.topic, [values[400:700] for values in ids], began)
    write(world.b, world.mirror, [copy[300:500] for copy in copies], began, size=130)
    mine = [visible(world.a, world.topic, p) for p in range(2)]
    ends = [log[-1][0] + 2 for log in mine]
    positions = [{p: rng.randrange(ends[p]) for p in range(2)} for _ in range(6)]
    groups = [world.group(at) for at in positions]
    second = keep(world, file)
    assert [row["pairs"] for row in second.rows] == [len(set(copy[:500])) for copy in copies]
    assert second.json["commits"] == 2 * len(groups)
    # what nobody writes down: the source goes on, the mirror follows, and one group reads on
    write(world.a, world.topic, [values[700:] for values in ids], began)
    write(world.b, world.mirror, [copy[500:] for copy in copies], began, size=150)
    commit(world.a, groups[0], {(world.topic, p): ends[p] for p in range(2)})
    theirs = [visible(world.b, world.mirror, p) for p in range(2)]
    late = [{value for _, value in log[500:]} for log in theirs]
    exact = 0
    for group, at in zip(groups, positions, strict=True):
        ran = plan(world, group, file)
        if refused := ran.status == 4:
            assert "continues between" in ran.text
            ran = plan(world, group, file, "--at", "earliest")
        assert ran.status == 0, ran.text
        exact += not refused
        [planned] = ran.rows
        assert planned["guarantee"] == "at-least-once"
        assert "what the group has read in A since 20" in planned["because"]
        for i, origin in zip(planned["inputs"], planned["origins"], strict=True):
            p = i["partition"]
            assert origin["source_offset"] == at[p]
            unread = set(ids[p]) - {value for offset, value in mine[p] if offset < at[p]}
            onward = Counter(v for offset, v in theirs[p] if offset >= i["restart_offset"])
            assert set(onward) >= unread, "left out"
            if not refused:
                assert set(onward) - unread <= late[p], "read before, and known to be"
                assert origin["read_again"] == sum(onward.values()) - len(unread)
    assert exact, "all were refused"
    # nothing was new in between: nothing changes but the time
    assert [row["new_pairs"] for row in keep(world, file).rows] == [
        len(ids[p]) - len(set(copies[p][:500])) for p in range(2)
    ]
    assert [row["new_pairs"] for row in keep(world, file).rows] == [0, 0]


def test_a_map_that_is_followed_grows_until_it_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also past a round in which a cluster does not answer."""
    began, file = int(time.time() * 1000) - 3_600_000, world.folder / "orders.map"
    both = ((world.a, world.topic), (world.b, world.mirror))
    for lab, name in both:
        write(lab, name, [ids_from(0, 40)], began)
    rounds: list[int] = []

    def between(seconds: float) -> None:
        rounds.append(sum(p.pairs for p in mirror_maps.read(file).partitions))
        if len(rounds) == 1:
            for lab, name in both:
                write(lab, name, [ids_from(40, 30)], began)
        elif len(rounds) == 3:
            raise KeyboardInterrupt

    async def but_in_the_second_round(self: MirrorKeep, cluster: Cluster) -> KeptRanges:
        if len(rounds) == 1:
            raise UnreachableError("nobody answers")
        return await look(self, cluster)

    look = MirrorKeep.look
    monkeypatch.setattr(MirrorKeep, "look", but_in_the_second_round)
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=between))
    server = ("--mirror-bootstrap-server", world.b.bootstrap_servers)
    words = ("audit", "mirror", world.topic, world.mirror, *server)
    with pytest.raises(KeyboardInterrupt):
        eoctl(*words, "--keep", str(file), "--follow", lab=world.a)
    assert rounds == [40, 40, 70]
    ran = eoctl(*words, "--follow", lab=world.a)
    assert (ran.status, "goes with --keep" in ran.text) == (2, True)


def test_such_a_plan_is_applied_without_the_cluster_that_is_gone(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    write(world.a, world.topic, [ids_from(0, 300)], began)
    write(world.b, world.mirror, [ids_from(0, 250)], began, size=90)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    group = world.group({0: mine[200][0]})
    file, planned = world.folder / "orders.map", world.folder / "plan.json"
    keep(world, file)
    [row] = plan(world, group, file, "--out", str(planned)).rows
    expected = theirs[199][0] + 1
    assert [i["restart_offset"] for i in row["inputs"]] == [expected]
    # 50 records of the source did not come over in time
    assert (row["guarantee"], row["origins"][0]["skipped"]) == ("at-most-once", 50)
    assert f"{world.mirror}:0 lacks 50 records that the group has not read" in row["because"]
    env = world.env | {"EOCTL_CONFIG": str(world.folder / "b-alone.toml")}
    for words in (("apply", "--execute", "--yes"), ("verify", "--pause", "0.1s")):
        ran = eoctl("restart", words[0], str(planned), *words[1:], "--context", "b", env=env)
        assert ran.status == 0, ran.text
    assert committed(world.b, group) == {(world.mirror, 0): expected}


@follows("docs/failover.md", "When the cluster is gone")
def test_the_page(it: Reading, world: World) -> None:
    ids, began = [ids_from(0, 20)], int(time.time() * 1000) - 3_600_000
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, ids, began)
    it.contexts({"dc1": world.a, "dc2": world.b})
    file = world.folder / "orders.map"
    it.names |= {
        "orders": world.topic,
        "dc1.orders": world.mirror,
        "billing": world.group({0: 8}),
        "/var/lib/eoctl/orders.map": str(file),
    }
    assert "20 pairs, 20 of them new, and 1 commit of 1 group in" in it.run("audit mirror", 0).text
    it.contexts({"dc2": world.b})
    planned = it.run("restart plan", 0)
    assert "what the group has read in A since 20" in planned.text
    lacks = it.run("audit end-to-end", 0).text
    assert "0 findings in 20 inputs and 20 outputs, by map; the map of 20" in lacks
    config = Path(it.env["EOCTL_CONFIG"])
    for age, ok in (("1d", True), ("1ms", False)):
        rule = f'[check]\nmirror_map_age = "{age}"\nmirror_maps = ["{file}"]\n'
        config.write_text(config.read_text().partition("[check]")[0] + rule)
        ran = eoctl("check", "--context", "dc2", "-o", "json", env=environment(**it.env))
        [row] = [row for row in ran.json["rows"] if row["rule"] == "mirror_map_age"]
        assert row["ok"] is ok, row
        assert "'orders.map' knows its source up to 20" in row["detail"]


def test_a_map_is_of_these_logs_alone(world: World, topic: MakeTopic) -> None:
    began = int(time.time() * 1000) - 3_600_000
    write(world.a, world.topic, [ids_from(0, 60)], began)
    write(world.b, world.mirror, [ids_from(0, 60)], began)
    group, file = world.group({0: 30}), world.folder / "orders.map"
    keep(world, file)
    kept = file.read_text()
    edited = world.folder / "edited.map"
    edited.write_text(kept.replace('"offset": 30', '"offset": 31'))
    other = topic(world.b, 2)
    cases: list[tuple[Path, tuple[str, ...], int, str]] = [
        (edited, (), 4, "its seal does not fit"),
        (file, ("--map", f"{world.topic}={other}"), 4, "is of another mirror"),
        (world.folder / "config.toml", (), 2, "not a mirror map"),
        (world.folder / "nowhere.map", (), 2, "nowhere.map"),
    ]
    for path, words, status, text in cases:
        ran = plan(world, group, path, *words)
        assert (ran.status, text in ran.text) == (status, True), ran.text
    unknown = plan(world, "nobody", file)
    assert (unknown.status, "it has committed nothing" in unknown.text) == (4, True)
    # the mirror is made again with the same records: other offsets may be of other records
    _made_again(world.b, world.mirror)
    write(world.b, world.mirror, [ids_from(0, 60)], began)
    again = keep(world, file, status=4)
    assert "mirror topic id" in again.text
    assert "keep a new map" in again.text
    refused = plan(world, group, file)
    assert (refused.status, "is of another mirror" in refused.text) == (4, True)
    assert file.read_text() == kept, "the map of the records that are gone is untouched"


@pytest.mark.long
def test_what_retention_took_before_the_map_saw_it_is_refused(world: World) -> None:
    began = int(time.time() * 1000) - 3_600_000
    ids = ids_from(0, 300)
    write(world.a, world.topic, [ids], began)
    write(world.b, world.mirror, [ids[:150]], began)
    file = world.folder / "orders.map"
    groups = [world.group({0: visible(world.a, world.topic, 0)[n][0]}) for n in (20, 140)]
    keep(world, file)
    theirs = visible(world.b, world.mirror, 0)
    delete(world.b, world.mirror, theirs[100][0])  # 80 that the first group has not read
    [row] = plan(world, groups[0], file).rows
    assert (row["guarantee"], row["origins"][0]["skipped"]) == ("at-most-once", 230)
    [row] = plan(world, groups[1], file).rows
    assert [i["restart_offset"] for i in row["inputs"]] == [theirs[139][0] + 1]
    write(world.a, world.topic, [ids_from(1_000, 50)], began)
    delete(world.a, world.topic, visible(world.a, world.topic, 0)[-1][0])
    ran = keep(world, file, status=3)
    assert "before the map saw them" in json.dumps(ran.json["errors"])


def test_a_bundle_has_later_commits_than_the_map(world: World) -> None:
    """Inside the map they are exact, after it the true offset is in the range that is named."""
    began = int(time.time() * 1000) - 3_600_000
    ids = ids_from(0, 400)
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, [ids[:300]], began)
    mine = visible(world.a, world.topic, 0)
    inside, after = world.group({0: mine[100][0]}), world.group({0: mine[200][0]})
    file, bundle = world.folder / "orders.map", world.folder / "a.bundle"
    keep(world, file)
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, [ids[300:]], began, size=70)
    mine, theirs = visible(world.a, world.topic, 0), visible(world.b, world.mirror, 0)
    commit(world.a, inside, {(world.topic, 0): mine[150][0]})
    commit(world.a, after, {(world.topic, 0): mine[350][0]})
    ran = eoctl("bundle", "create", str(bundle), "--context", "a", env=world.env)
    assert ran.status in (0, 3), ran.text
    both = ("--from-cluster", str(bundle))
    [row] = plan(world, inside, file, *both).rows
    assert [i["restart_offset"] for i in row["inputs"]] == [theirs[149][0] + 1]
    assert row["guarantee"] == "at-least-once"
    refused = plan(world, after, file, *both)
    assert refused.status == 4
    assert "the group has read records that the map has not seen" in refused.text
    [row] = plan(world, after, file, *both, "--at", "earliest").rows
    [origin] = row["origins"]
    assert origin["earliest_offset"] <= theirs[349][0] + 1 <= origin["latest_offset"]
    assert (row["guarantee"], row["inputs"][0]["restart_offset"]) == (
        "at-least-once",
        origin["earliest_offset"],
    )
    onward = {value for offset, value in theirs if offset >= origin["earliest_offset"]}
    assert onward == set(ids[300:]), "all that the map has not seen"
    alone = plan(world, inside, bundle)
    assert (alone.status, "a bundle has commits and no records" in alone.text) == (2, True)
    other = plan(world, inside, file, "--from-cluster", str(world.folder / "config.toml"))
    assert (other.status, "not a mirror map" in other.text) == (2, True)


@pytest.mark.long
def test_a_right_that_is_missing_is_named(
    secure_lab: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """In the cluster that the group leaves: a group that is not seen is not in the map."""
    world = World(secure_lab, lab3, tmp_path, topic(secure_lab, 1), topic(lab3, 1))
    began = int(time.time() * 1000) - 3_600_000
    for lab, name in ((world.a, world.topic), (world.b, world.mirror)):
        write(lab, name, [ids_from(0, 40)], began)
    group = world.group({0: 20})
    as_viewer(world, a=secure_lab, b=lab3)
    names = ("--map", f"{world.topic}={world.mirror}")
    file = tmp_path / "whole.map"
    assert keep(world, file).json["commits"] == 1
    assert world.plan(group, *names).status == 0
    for operation in ("READ", "DESCRIBE"):
        new = tmp_path / f"{operation}.map"
        with rights(secure_lab, "viewer", ("TOPIC", world.topic, operation), deny=True):
            assert "TOPIC_AUTHORIZATION_FAILED" in keep(world, new, status=3).text
            ran = world.plan(group, *names, "--topic", world.topic)
            assert (ran.status, operation in ran.text) == (3, True), ran.text
        assert not new.exists(), "nothing of it was read"
    with rights(secure_lab, "viewer", ("GROUP", "*", "DESCRIBE"), deny=True):
        seen = tmp_path / "groups.map"
        ran = keep(world, seen, status=3)
        assert (ran.json["commits"], ran.rows[0]["pairs"]) == (0, 40)
        assert "GROUP_AUTHORIZATION_FAILED" in ran.text
        assert world.plan(group, *names).status == 3
        # what was seen of the group before stays in a map
        ran = keep(world, file, status=3)
        assert (ran.json["commits"], ran.rows[0]["new_pairs"]) == (1, 0)
    refused = plan(world, group, seen)
    assert (refused.status, "it has committed nothing" in refused.text) == (4, True)
    assert plan(world, group, file).status == 0


CLUSTER = ("CLUSTER", "kafka-cluster", "DESCRIBE")


def as_viewer(world: World, **labs: Lab) -> None:
    """Contexts a and b; those of a secure lab sign in as viewer."""
    text = ""
    for name, lab in labs.items():
        text += f"[contexts.{name}]\n"
        if lab.record.spec.secure:
            client = secure.client_file(lab.folder, "viewer", "SCRAM")
            text += f'command_config = "{client}"\n'
            text += f'bootstrap_servers = "{lab.record.bootstrap_servers("SCRAM")}"\n'
        else:
            text += f'bootstrap_servers = "{lab.bootstrap_servers}"\n'
    (world.folder / "config.toml").write_text(text)


@pytest.mark.long
def test_a_topic_that_the_user_may_not_see_is_unknown_and_not_absent(
    secure_lab: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """DESCRIBE is denied on one topic alone: a listing leaves it out without an error."""
    began, seen = int(time.time() * 1000) - 3_600_000, topic(secure_lab, 1)
    hidden = topic(secure_lab, 1)
    world = World(secure_lab, lab3, tmp_path, seen, f"dc1.{seen}")
    as_viewer(world, a=secure_lab, b=lab3)
    for name in (seen, hidden):
        _create(AdminClient(lab3.client_properties()), f"dc1.{name}")
    for lab, name in ((secure_lab, seen), (lab3, world.mirror)):
        write(lab, name, [ids_from(0, 40)], began)
    group = world.group({0: 20})
    commit(secure_lab, group, {(hidden, 0): 0})
    denied = ("TOPIC", hidden, "DESCRIBE")
    for others in ((), (CLUSTER,)):  # with the right to list the brokers' logs, and without
        with rights(secure_lab, "viewer", denied, *others, deny=True):
            ran = world.plan(group)
            assert (ran.status, f"DESCRIBE is not granted on {hidden}" in ran.text) == (3, True)
            ran = world.plan(group, "--topic", seen)
            assert ran.status == 0, ran.text
            [plan] = ran.rows
            assert [i["topic"] for i in plan["inputs"]] == [world.mirror]
    with rights(secure_lab, "viewer", CLUSTER, deny=True):
        [plan] = world.plan(world.group({0: 20})).rows
        assert "topics" in {c["name"] for c in plan["checks"]}, "what may be hidden is assumed"
    move = ("restart", "plan", "--context", "a", "--to-earliest", "--all-topics", "-o", "json")
    with rights(secure_lab, "viewer", denied, deny=True):
        ran = eoctl(*move, "--group", group, env=world.env)
        assert (ran.status, f"DESCRIBE is not granted on {hidden}" in ran.text) == (3, True)
    with rights(secure_lab, "viewer", denied, CLUSTER, deny=True):
        [plan] = eoctl(*move, "--group", group, env=world.env).rows
        assert [i["topic"] for i in plan["inputs"]] == [seen]
        assert "topics" in {c["name"] for c in plan["checks"]}, "what may be hidden is assumed"


def test_a_mirror_that_the_user_may_not_see_is_not_one_that_is_not_there(
    secure_lab: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    began, source = int(time.time() * 1000) - 3_600_000, topic(lab3, 1)
    world = World(lab3, secure_lab, tmp_path, source, f"{source}-dc.{source}")
    for name in (source, "heartbeats"):
        _create(AdminClient(secure_lab.client_properties()), f"{source}-dc.{name}")
    as_viewer(world, a=lab3, b=secure_lab)
    for lab, name in ((lab3, source), (secure_lab, world.mirror)):
        write(lab, name, [ids_from(0, 40)], began)
    group = world.group({0: 20})
    denied = ("TOPIC", world.mirror, "DESCRIBE")
    for others in ((), (CLUSTER,)):
        with rights(secure_lab, "viewer", denied, *others, deny=True):
            ran = world.plan(group)
            assert ran.status == 3, ran.text
            assert f"{world.mirror} may be its mirror" in ran.text
    assert world.plan(group).status == 0


def _made_again(lab: Lab, name: str) -> None:
    admin = AdminClient(lab.client_properties())
    for future in admin.delete_topics([name]).values():
        future.result(20)
    _create(admin, name)


def _create(admin: AdminClient, name: str) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
                future.result(20)
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return


def abort(lab: Lab, topic: str, ids: Sequence[bytes], began: int) -> None:
    """An id for each partition, in a transaction that is aborted for good."""
    producer = Producer({**lab.client_properties(), "transactional.id": f"{topic}-undone"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition, value in enumerate(ids):
        producer.produce(topic, value, b"k", partition, timestamp=began + int(value) // 7)
    assert producer.flush(20) == 0
    producer.abort_transaction(20)


def lacking(world: World, file: Path, *words: str) -> Ran:
    """`audit end-to-end --by map`, in a shell that does not know the cluster that is gone."""
    named = (world.topic, world.mirror, "--by", f"map:{file}")
    ran = eoctl(
        *("audit", "end-to-end", *named, *words, "--context", "b", "-o", "json"),
        env=alone(world),
    )
    return as_published(ran, "audit-end-to-end") if ran.stdout else ran


def at(row: dict[str, Any], side: str) -> list[tuple[int, int]]:
    return [(place["partition"], place["offset"]) for place in row[side]]


def test_what_the_mirror_lacks_of_a_source_that_is_gone(world: World) -> None:
    """Left out, copied twice, copied though aborted, before the map looked and after it."""
    rng, began = random.Random(5), int(time.time() * 1000) - 3_600_000
    ids = [ids_from(1_000_000 * p, 900) for p in range(2)]
    undone = [b"%d" % (1_000_000 * p + 950_000) for p in range(2)]
    abort(world.a, world.topic, undone, began)
    write(world.a, world.topic, [values[:600] for values in ids], began)
    left_out = [{*rng.sample(v[:450], 5), *rng.sample(v[460:480], 2)} for v in ids]
    copies = [
        [v for v in [*restarted(values[:450], rng, 2), *values[450:]] if v not in without]
        for values, without in zip(ids, left_out, strict=True)
    ]
    write(
        world.b,
        world.mirror,
        [[u, *copy[:440]] for u, copy in zip(undone, copies, strict=True)],
        began,
    )
    file = world.folder / "orders.map"
    keep(world, file)
    mine = {(p, at): v for p in range(2) for at, v in visible(world.a, world.topic, p)}
    seen = [visible(world.b, world.mirror, p)[-1][0] for p in range(2)]
    # what the map does not know: the mirror follows, repeats three, and the source goes on
    write(world.a, world.topic, [values[600:] for values in ids], began)
    late = [
        [*copy[440 : copy.index(values[560])], *values[490:493], *values[600:620]]
        for copy, values in zip(copies, ids, strict=True)
    ]
    write(world.b, world.mirror, late, began, size=90)
    theirs = {(p, at): v for p in range(2) for at, v in visible(world.b, world.mirror, p)}
    copied = Counter(theirs.values())
    known = Counter(v for (p, at), v in theirs.items() if at <= seen[p])
    lost = {v for v in mine.values() if not copied[v]}
    last = [max(at for (q, at), v in mine.items() if q == p and copied[v]) for p in range(2)]
    passed = {v for (p, at), v in mine.items() if v in lost and at < last[p]}
    twice = {v for v in mine.values() if copied[v] > 1}
    assert passed == set().union(*left_out)
    assert len(lost) > len(passed)
    for words, missing in (((), passed), (("--end", "lso"), lost)):
        ran = lacking(world, file, *words)
        assert ran.status == 3, ran.text
        assert "or has written one since it looked" in ran.text
        found: dict[tuple[str, bool], set[bytes]] = {}
        for row in ran.rows:
            place = at(row, "outputs")[0] if row["outputs"] else None
            one = mine[at(row, "inputs")[0]] if place is None else theirs[place]
            assert row["records"] == (copied[one] - 1 if row["finding"] == "repeated" else 1)
            found.setdefault((row["finding"], row["proven"]), set()).add(one)
        assert found == {
            ("no-output", True): missing,
            ("repeated", True): {v for v in twice if known[v] == copied[v]},
            ("repeated", False): {v for v in twice if known[v] != copied[v]},
            ("aborted-input", True): set(undone),
        }
        unknown = sum(v not in mine.values() and v not in undone for v in theirs.values())
        assert sum(p["without_input"] for p in ran.json["outputs"]) == unknown == 40
        assert ran.json["map_of"] is not None
    for words, text in (
        (("--engine", "spark"), "one log is read, in this process"),
        (("--group", "g"), "goes with --end lso alone"),
        (("--start", "1h ago"), "goes with --end lso alone"),
        (("--source-index", "i"), "goes with --end lso alone"),
    ):
        refused = lacking(world, file, *words)
        assert (refused.status, text in refused.text) == (2, True), refused.text
    # retention may have taken copies that were made since the map looked
    delete(world.b, world.mirror, seen[0] + 30)
    ran = lacking(world, file)
    proven = {(r["finding"], at(r, "inputs")[0][0]) for r in ran.rows if r["proven"]}
    assert ran.status == 3
    assert ("no-output", 0) not in proven
    assert ("no-output", 1) in proven
