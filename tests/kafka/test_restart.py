"""`restart plan|show|apply|verify|undo` on real brokers: what they do, and what they refuse."""

import asyncio
import json
import re
import threading
import time
from pathlib import Path

import jsonschema
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.breaks import break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.operations.restart.restart_verify import verify
from eoctl.stores import plan_files
from recovery.answers import Answer
from tests.docs.pages import ROOT, files, follows
from tests.kafka.command import Ran, environment, eoctl, unfinished
from tests.kafka.conftest import MakeTopic, known_everywhere
from tests.kafka.crashed import START, Scene, commit, committed, groups, producing, until, write
from tests.kafka.merging import transactional
from tests.kafka.reading import Reading
from tests.kafka.remedying import read_committed
from tests.kafka.restarting import PARTITIONS, begin, fill
from tests.share import only_here


@pytest.fixture
def scene(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Scene:
    """12 of 20 records are copied; the group says 5, with what the copies' end was then."""
    made = Scene.make(lab1, topic, tmp_path)
    made.commits(5, "kept as it is")
    made.describe()
    return made


@follows("docs/restart.md", "The five commands")
def test_the_script_of_the_page(it: Reading, scene: Scene) -> None:
    """It fences the dead process, then moves the group; run again, it finds all done."""
    owner = transactional(scene.lab, f"owner-{scene.group}")
    owner.begin_transaction()
    owner.produce(scene.output, b"of the dead")
    owner.flush(30)
    it.contexts({"prod": scene.lab})
    it.env["EOCTL_CONTEXT"] = "prod"
    [(_, script)] = files(ROOT / "docs" / "restart.md", "sh")
    assert all(line.text in script for line in it.taken(4))
    script = script.replace("orders-enricher-id", f"owner-{scene.group}")
    for _ in range(2):
        ran = it.shell(script)
        assert ran.status == 0, ran.stderr
        assert scene.holds == 12
    with pytest.raises(KafkaException, match="fenced"):
        owner.commit_transaction(30)


def test_there_and_back(scene: Scene) -> None:
    """A copy job whose group lags behind its output: skipped forward, and put back."""
    planned = scene.plan()
    assert planned.status == 0, planned.stderr
    first, second = planned.stdout.splitlines()[:2]
    assert first.split() == [
        "-",
        *["INPUT", "DIRECTION", "RECORDS", "FROM", "TO", "TIMES", "(UTC)"],
    ]
    assert second.split() == [
        ">>",
        f"{scene.input}:0",
        "SKIP",
        "7",
        "5",
        "12",
        time.strftime("%H:%M:%S", time.gmtime(START / 1000)),
        ">",
        time.strftime("%H:%M:%S", time.gmtime(START / 1000)),
    ]
    shown = scene("show", scene.plan_file, "-o", "json")
    row = shown.rows[0]
    assert (row["app"], row["strategy"], row["guarantee"]) == ("copy", "output-end", "exactly-once")
    assert [
        (i["current_offset"], i["restart_offset"], i["direction"], i["records"])
        for i in row["inputs"]
    ] == [(5, 12, "skip", 7)]
    assert [(o["from"], o["end_offset"], o["drop_first"]) for o in row["outputs"]] == [(12, 12, 0)]
    assert scene.holds == 5, "a plan changes nothing"
    dry = scene("apply", scene.plan_file)
    assert dry.status == 0, dry.stderr
    assert "nothing was sent" in dry.stdout
    assert scene.holds == 5
    done = scene.apply()
    assert done.status == 0, done.stderr
    assert scene.holds == 12
    again = scene.apply()
    assert again.status == 0, again.stderr
    assert "done already" in again.stderr
    verified = scene.verify()
    assert (verified.status, verified.rows) == (0, [])
    undone = scene.undo()
    assert undone.status == 0, undone.stderr
    assert scene.holds == 5
    kept = eoctl("offsets", "show", "--group", scene.group, "-o", "json", lab=scene.lab).rows[0]
    assert kept["metadata"].removesuffix("\0") == "kept as it is"
    assert scene.undo().status == 4


def test_a_copy_to_many_outputs(scene: Scene, topic: MakeTopic) -> None:
    """Each holds another number of copies: the one with least decides, the others drop more."""
    lengths = (12, 4, 5, 6, 7, 8, 9, 10)
    outputs = [scene.output, *(topic(scene.lab, name=f"out{n}") for n in lengths[1:])]
    for length, output in zip(lengths[1:], outputs[1:], strict=True):
        write(producing(scene.lab), output, [str(number) for number in range(length)])
    app = Path(scene.describe())
    app.write_text(app.read_text().replace(f'["{scene.output}"]', json.dumps(outputs)))
    assert scene.plan().status == 0
    row = scene("show", scene.plan_file, "-o", "json").rows[0]
    assert [i["restart_offset"] for i in row["inputs"]] == [4]
    assert {o["topic"]: (o["from"], o["drop_first"]) for o in row["outputs"]} == {
        output: (4, length - 4) for length, output in zip(lengths, outputs, strict=True)
    }


def test_a_pair_is_planned_with_the_outputs_to_drop(scene: Scene) -> None:
    """Input 7 was committed with output 7; five outputs came after it."""
    scene.commits(7, json.dumps({"output": {"topic": scene.output, "partition": 0, "offset": 7}}))
    scene.describe(strategy="commit-pair")
    planned = scene.plan()
    assert planned.status == 0, planned.stderr
    assert f"{scene.output}:0 ends at 12; 5 records before that is 7" in planned.text
    env = dict(line.split("=") for line in scene("show", scene.plan_file, "--env").stdout.split())
    topic = re.sub("[^A-Z0-9]", "_", scene.output.upper())
    source = re.sub("[^A-Z0-9]", "_", scene.input.upper())
    epoch = env.pop(f"EOCTL_DROP_{topic}_0_LEADER_EPOCH")
    assert int(epoch) >= 0
    assert env == {
        f"EOCTL_RESTART_{source}_0": "7",
        f"EOCTL_DROP_{topic}_0": "5",
        f"EOCTL_DROP_{topic}_0_FROM": "7",
        f"EOCTL_DROP_{topic}_0_END": "12",
    }
    told = json.loads(scene("show", scene.plan_file, "--env-json").stdout)
    assert told["restart"] == {scene.input: {"0": 7}}
    assert told["drop"][scene.output]["0"]["drop_first"] == 5
    exported = scene("show", scene.plan_file, "--export").stdout
    assert exported == f"{scene.input},0,7\n"
    assert scene.apply().status == 0
    assert scene.holds == 7


def test_names_that_collide_are_refused_as_variables(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(lab1, name="a.b")
    other = topic(lab1, name="x")
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab1.client_properties())
    twin = name.replace(".", "-")
    admin.create_topics([NewTopic(twin, 1, 1)], operation_timeout=10)[twin].result(20)
    app = tmp_path / "app.toml"
    app.write_text(
        f'[app]\nname = "twins"\nstrategy = "commit-pair"\ninputs = ["{name}", "{twin}"]\n'
        f'outputs = ["{other}"]\n[app.store]\nkind = "file"\npath = "none.json"\n'
    )
    words = ("restart", "plan", str(app), "--pause", "0.2s")
    refused = eoctl(*words, "--env", lab=lab1)
    assert refused.status == 4
    assert "--env-json" in refused.stderr
    told = json.loads(eoctl(*words, "--env-json", lab=lab1).stdout)
    assert set(told["restart"]) == {name, twin}


def test_what_apply_created_undo_deletes(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    scene = Scene.make(lab1, topic, tmp_path)
    scene.describe()
    assert scene.plan().status == 0
    assert scene.apply().status == 0
    assert scene.holds == 12
    assert scene.group in groups(lab1)
    assert scene.undo().status == 0
    assert scene.group not in groups(lab1)


def test_a_mirror_is_written_after_the_store_and_watched(scene: Scene) -> None:
    mirror = f"{scene.group}-mirror"
    scene.describe(more=f'[app.mirror]\nkind = "kafka-group"\ngroup = "{mirror}"')
    commit(scene.lab, mirror, {(scene.input, 0): 3})
    assert scene.plan().status == 0
    assert scene.apply().status == 0
    assert scene.holds == 12
    assert committed(scene.lab, mirror) == {(scene.input, 0): 12}
    commit(scene.lab, mirror, {(scene.input, 0): 4})
    found = scene.verify()
    assert (found.status, [r["finding"] for r in found.rows]) == (1, ["mirror-overwritten"])
    refused = scene.undo()
    assert refused.status == 4
    assert (scene.holds, committed(scene.lab, mirror)) == (12, {(scene.input, 0): 4})


# -- refusals ------------------------------------------------------------------------------------


def test_a_zombie_that_writes_after_n_was_taken(scene: Scene) -> None:
    assert scene.plan().status == 0
    write(scene.producer, scene.output, ["zombie"])
    refused = scene.apply()
    assert refused.status == 4
    assert "end_offset: was 12 when planned, is 13 now" in refused.stderr
    assert scene.holds == 5


def test_a_zombie_is_found_by_verify(scene: Scene) -> None:
    """It commits over the plan, and it writes behind the counted end."""
    scene.plan()
    assert scene.apply().status == 0
    scene.commits(6)
    found = scene.verify()
    assert (found.status, [r["finding"] for r in found.rows]) == (1, ["overwritten"])
    scene.commits(12)
    write(producing(scene.lab), scene.output, ["the application, started anew"])
    # at the planned offset again, but without the metadata that apply wrote: it was written over
    again = scene.verify()
    assert (again.status, {r["finding"] for r in again.rows}) == (1, {"overwritten"})
    write(scene.producer, scene.output, ["zombie"])
    found = scene.verify()
    assert found.status == 1
    [beyond] = [r for r in found.rows if r["finding"] == "written-beyond"]
    assert beyond["where"] == f"{scene.output}:0"
    assert beyond["producer_id"] is not None
    assert "with epoch 0:" in beyond["detail"]


def test_verify_looks_after_its_pause(scene: Scene) -> None:
    """What a zombie commits during the pause is found; a look at once would miss it."""
    assert scene.plan().status == 0
    assert scene.apply().status == 0
    planned = plan_files.read(Path(scene.plan_file))

    async def verified() -> Answer:
        settings = client_settings({"bootstrap.servers": scene.lab.bootstrap_servers})
        async with Cluster(settings, Deadline(60)) as cluster:
            looking = asyncio.create_task(verify(cluster, planned, pause=5))
            await asyncio.sleep(1)
            await asyncio.to_thread(scene.commits, 6)
            return await looking

    answer = asyncio.run(verified())
    assert [getattr(row, "finding", None) for row in answer.rows] == ["overwritten"]
    assert answer.exit_status == 1


def test_verify_of_an_output_that_is_gone_and_one_that_is_another(scene: Scene) -> None:
    """Neither is as the plan left it: the one is not known, the other a finding."""
    assert scene.plan().status == 0
    assert scene.apply().status == 0
    admin = AdminClient(scene.lab.client_properties())
    admin.delete_topics([scene.output], operation_timeout=20)[scene.output].result(30)
    until(lambda: scene.output not in admin.list_topics(timeout=10).topics)
    found = scene.verify()
    assert (found.status, found.rows) == (3, [])
    [error] = found.json["errors"]
    assert (error["error"], error["topic"]) == ("UNKNOWN_TOPIC_OR_PARTITION", scene.output)
    made = admin.create_topics([NewTopic(scene.output, 1, 1)], operation_timeout=10)
    made[scene.output].result(20)
    asyncio.run(known_everywhere(scene.lab, scene.output, 1))
    found = scene.verify()
    assert (found.status, [r["finding"] for r in found.rows]) == (1, ["another-topic"])


def test_undo_after_the_application_moved_on(scene: Scene) -> None:
    scene.plan()
    assert scene.apply().status == 0
    scene.commits(15)
    refused = scene.undo()
    assert refused.status == 4
    assert "moved on" in refused.stderr
    assert scene.holds == 15


def test_a_group_with_members(scene: Scene) -> None:
    from confluent_kafka import Consumer

    scene.plan()
    consumer = Consumer(scene.lab.client_properties() | {"group.id": scene.group})
    consumer.subscribe([scene.input])
    try:

        def joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        until(joined)
        for refused in (scene.apply(), scene.plan()):
            assert refused.status == 4
            assert " with 1 member;" in refused.stderr
    finally:
        consumer.close()
    assert scene.apply().status in (0, 4)


def test_partitions_added(scene: Scene) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    scene.commits(7, json.dumps({"output": {"topic": scene.output, "partition": 0, "offset": 7}}))
    scene.describe(strategy="commit-pair")
    assert scene.plan().status == 0
    admin = AdminClient(scene.lab.client_properties())
    for name in (scene.input, scene.output):
        admin.create_partitions([NewPartitions(name, 2)])[name].result(20)
    until(lambda: "partitions were added" in scene.plan().stderr)
    refused = scene.apply()
    assert refused.status == 4
    assert "partitions" in refused.stderr


def test_a_topic_made_anew(scene: Scene) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    assert scene.plan().status == 0
    admin = AdminClient(scene.lab.client_properties())
    admin.delete_topics([scene.input], operation_timeout=20)[scene.input].result(30)
    until(lambda: scene.input not in admin.list_topics(timeout=10).topics)
    new = NewTopic(scene.input, 1, 1)
    admin.create_topics([new], operation_timeout=10)[scene.input].result(20)
    asyncio.run(known_everywhere(scene.lab, scene.input, 1))
    write(producing(scene.lab), scene.input, [str(number) for number in range(20)])
    refused = scene.apply()
    assert refused.status == 4
    assert "topic_id" in refused.stderr


def test_a_topic_id_stored_beside_the_offset(scene: Scene) -> None:
    scene.pair(7, 7, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    refused = scene.plan()
    assert refused.status == 4
    assert "created again" in refused.stderr


def test_records_that_retention_took(scene: Scene) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    scene.pair(7, 7)
    assert scene.plan().status == 0
    admin = AdminClient(scene.lab.client_properties())
    partition = TopicPartition(scene.input, 0, 9)
    admin.delete_records([partition])[partition].result(20)
    for refused in (scene.plan(), scene.apply()):
        assert refused.status == 4
        assert "the offsets [7, 9) are gone" in refused.stderr


def test_a_position_above_the_end_is_not_clamped(scene: Scene) -> None:
    scene.pair(21, 12)
    refused = scene.plan()
    assert refused.status == 4
    assert "above the last stable offset 20" in refused.stderr
    scene.pair(12, 13)
    refused = scene.plan()
    assert refused.status == 4
    assert "the output offset 13 is above the end 12" in refused.stderr


def test_an_output_that_is_not_decided(scene: Scene) -> None:
    owner = producing(scene.lab, **{"transactional.id": scene.group})
    owner.init_transactions(30)
    owner.begin_transaction()
    write(owner, scene.output, ["open"])
    refused = scene.plan()
    assert refused.status == 4
    assert "its end is not final" in refused.stderr
    owner.abort_transaction(30)
    until(lambda: scene.plan().status == 0)


def test_outputs_without_a_producer_id(scene: Scene) -> None:
    scene.pair(7, 7)
    write(producing(scene.lab, **{"enable.idempotence": False}), scene.output, ["twice?"])
    refused = scene.plan()
    assert refused.status == 4
    assert "PID -1" in refused.stderr


def test_two_producers_at_the_same_time(scene: Scene) -> None:
    scene.pair(7, 7)
    write(producing(scene.lab), scene.output, ["second process"])
    write(scene.producer, scene.output, ["first again"])
    refused = scene.plan()
    assert refused.status == 4
    assert "two producers wrote at the same time" in refused.stderr


def test_an_offset_of_an_older_leader_epoch(scene: Scene) -> None:
    """Stored in an epoch that the leader never had."""
    scene.pair(7, 7, leader_epoch=99)
    refused = scene.plan()
    assert refused.status == 4
    assert "stored in leader epoch 99" in refused.stderr


def test_commits_that_a_transaction_holds(scene: Scene) -> None:
    """Refused with the ids and the command; `--fence` shows it, with --execute it ends them."""
    from confluent_kafka import Consumer, TopicPartition

    scene.commits(5)
    scene.describe(strategy="transactional")
    reader = Consumer(scene.lab.client_properties() | {"group.id": scene.group})
    owner = producing(scene.lab, **{"transactional.id": f"{scene.group}-id"})
    owner.init_transactions(30)
    owner.begin_transaction()
    write(owner, scene.output, ["open"])
    owner.send_offsets_to_transaction(
        [TopicPartition(scene.input, 0, 9)], reader.consumer_group_metadata(), 30
    )
    refused = scene.plan()
    assert refused.status == 4
    assert f"eoctl txn fence {scene.group}-id" in refused.stderr
    only_shown = scene.plan("--fence")
    assert only_shown.status == 4
    assert "EndTxn" in only_shown.stderr
    fenced = scene.plan("--fence", "--execute", "--yes", "-o", "json")
    # the copies before were written outside of transactions, which then are not taken back
    assert fenced.status == 4
    assert "outside of transactions" in fenced.stderr
    until(lambda: scene.holds == 5)
    reader.close()


def test_a_fence_hits_nobody_but_the_owner_of_the_groups_commits(scene: Scene) -> None:
    """The group is held by a batch of nobody, whose producer id lives on with another topic."""
    name = f"{scene.group}-id"
    (orphan,) = break_(
        scene.lab, "offsets-orphan", topic=scene.input, group=scene.group, transactional_id=name
    )
    scene.describe(strategy="transactional")

    async def scenario() -> None:
        async with Client.to(scene.lab.bootstrap_servers) as client:
            live = await Producer.init(client, name)
            assert live.producer_id == orphan.producer_id
            await live.send(scene.output, 0, [NewRecord(b"live")])
            refused = await asyncio.to_thread(scene.plan, "--fence", "--execute", "--yes")
            assert refused.status == 4, refused.stdout + refused.stderr
            assert f"producer id {orphan.producer_id} on {orphan.topic}:" in refused.stderr
            assert "EndTxn" not in refused.stderr
            await live.commit()
        # its id is at rest now: the way out is the abort of that batch
        refused = await asyncio.to_thread(scene.plan, "--fence", "--execute", "--yes")
        assert refused.status == 4, refused.stdout + refused.stderr
        assert f"eoctl txn abort {orphan.topic}:{orphan.partition}" in refused.stderr

    asyncio.run(scenario())
    assert b"live" in read_committed(scene.lab, scene.output, 0)


def test_an_edited_plan_and_another_cluster(scene: Scene) -> None:
    scene.plan()
    text = Path(scene.plan_file).read_text()
    Path(scene.plan_file).write_text(text.replace('"restart_offset": 12', '"restart_offset": 11'))
    refused = scene.apply()
    assert refused.status == 4
    assert "changed after it was made" in refused.stderr


# -- killed, and several at once -----------------------------------------------------------------

POINTS = [
    "locked",
    "read-again",
    "begun",
    "step-1-started",
    "step-1-performed",
    "step-1-done",
    "step-2-performed",
    "verified",
]


@pytest.mark.parametrize(
    "point", only_here(POINTS, "step-1-started", "step-1-performed", "step-2-performed")
)
def test_killed_anywhere_apply_and_undo_end_it(scene: Scene, point: str) -> None:
    """kill -9 at each step of the journal: before or after of each store; then apply, then undo."""
    mirror, before = f"{scene.group}-mirror", unfinished("restart")
    scene.describe(more=f'[app.mirror]\nkind = "kafka-group"\ngroup = "{mirror}"')
    commit(scene.lab, mirror, {(scene.input, 0): 3})
    scene.plan()
    killed = scene.apply(env=environment(EOCTL_TEST_KILL_AT=point))
    assert killed.status == -9, killed.stderr
    assert (scene.holds, committed(scene.lab, mirror)[scene.input, 0]) in (
        (5, 3),
        (12, 3),
        (12, 12),
    )
    if point in ("begun", "step-1-performed", "step-1-done"):
        undone = _undone(scene, by_journal=point == "step-1-performed")
        assert undone.status == 0, undone.stderr
        assert (scene.holds, committed(scene.lab, mirror)[scene.input, 0]) == (5, 3)
        return
    ended = _ended(scene, by_journal=point == "step-2-performed")
    assert ended.status == 0, ended.stderr
    assert (scene.holds, committed(scene.lab, mirror)[scene.input, 0]) == (12, 12)
    if point == "step-1-started":
        dead = scene.undo(env=environment(EOCTL_TEST_KILL_AT="step-1-performed"))
        assert dead.status == -9
        assert scene.undo().status == 0
        assert (scene.holds, committed(scene.lab, mirror)[scene.input, 0]) == (5, 3)
    assert unfinished("restart") == before  # of other tests


def _entry(scene: Scene) -> str:
    entries = eoctl("journal", "list", "--unfinished", "-o", "json").rows
    return next(str(e["id"]) for e in entries if e["scope"] == f"group {scene.group}")


def _undone(scene: Scene, *, by_journal: bool) -> Ran:
    if by_journal:
        return eoctl("journal", "undo", _entry(scene), "--execute", "--yes", lab=scene.lab)
    return scene.undo()


def _ended(scene: Scene, *, by_journal: bool) -> Ran:
    if by_journal:
        return eoctl("journal", "resume", _entry(scene), "--execute", "--yes", lab=scene.lab)
    return scene.apply()


def test_two_operators_at_once(scene: Scene) -> None:
    """Two apply the same plan, and one another: one change is made, the others are refused."""
    scene.plan()
    other = str(scene.folder / "other.json")
    words = ("plan", "--group", scene.group, "--topic", f"{scene.input}:0", "--to-offset", "9")
    assert scene(*words, "--out", other, "--pause", "0.2s").status == 0
    files = [scene.plan_file, scene.plan_file, other]
    ran = []

    def apply(file: str) -> None:
        ran.append((file, scene("apply", file, "--execute", "--yes")))

    threads = [threading.Thread(target=apply, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = {file for file, one in ran if one.status == 0}
    assert len(done) == 1, [(f, r.status, r.stderr) for f, r in ran]
    assert all(one.status in (0, 4) for _, one in ran)
    assert scene.holds == (12 if done == {scene.plan_file} else 9)


def test_a_second_crash_with_the_numbers_of_the_first(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Restarted by the plan, killed again, and started with the same numbers: it refuses."""
    name = topic(lab1, PARTITIONS)
    life = begin(lab1, topic, tmp_path, "commit-pair", "kafka-group", [fill(lab1, name, 2, 25)])
    assert life.run(12) == -9
    life.restart()
    assert life.run(14) == -9  # by then a flush was waited for
    with pytest.raises(AssertionError, match="its end moved"):
        life.run(None)


def test_rows_are_as_published(scene: Scene) -> None:
    schemas = Path(__file__).parents[2] / "docs" / "schemas"
    scene.plan()
    for words in (
        ("plan", str(scene.folder / "app.toml"), "--pause", "0.2s"),
        ("show", scene.plan_file),
        ("verify", scene.plan_file, "--pause", "0.1s"),
        ("apply", scene.plan_file, "--execute", "--yes"),
        ("undo", scene.plan_file, "--execute", "--yes"),
    ):
        ran = scene(*words, "-o", "json")
        published = json.loads((schemas / f"restart-{words[0]}.v1.json").read_text())
        jsonschema.validate(ran.json, published)
        assert ran.rows, words
