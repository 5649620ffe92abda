"""Each command of each runbook runs, in the page's order, with a lab's names instead of its own.

Where a drill has the page's trouble, it is solved by following the page. What a page says to do to
the cluster is done; its plans are looked at before.
"""

import base64
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.job import expected_totals
from tests.docs.pages import COPIED, HERE, ROOT
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.reading import Reading
from tests.kafka.trainee import ACT, Trainee, page
from tests.share import only_here

QUICK = ("--pause", "0.5s")
GROUP = "orders-enricher"


@pytest.fixture
def night(lab2: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainee]:
    """Somebody in an empty folder."""
    monkeypatch.chdir(tmp_path)
    trainee = Trainee(lab2, tmp_path)
    yield trainee
    trainee.end()


def readers_stuck(night: Trainee) -> None:
    [orphan] = break_(night.lab, "orphan", hold=False)
    [lost] = break_(night.lab, "marker-lost")
    [late] = break_(night.lab, "overdue")
    [pending] = break_(night.lab, "offsets-pending", hold=False)
    first = {
        "orders:3": f"{orphan.topic}:{orphan.partition}",
        "4001": str(orphan.producer_id),
        "42": str(orphan.start_offset),
        "order-sender-0": str(late.transactional_id),
        GROUP: str(pending.group),
    }
    decided = {
        "orders:3": f"{lost.topic}:{lost.partition}",
        "4001": str(lost.producer_id),
        "42": str(lost.start_offset),
        "commit": str(lost.outcome),
    }
    with night.reading("readers-stuck", first) as it:
        assert "orphan" in it.run("status", 1, None, *FAST).stdout
        it.run("why --group", 0, None, *FAST)
        assert "orphan" in it.run("why orders:3", 1, None, *FAST).stdout
        assert first["orders:3"] in it.run("lso", 0).stdout
        it.run("txn abort", 0, None, *FAST, *ACT)
        it.run("txn resolve", 0, decided, *FAST, *ACT)
        it.run("txn fence order-sender-0", 0, None, *FAST, *ACT)
        other = {"order-sender-0": str(pending.transactional_id)}
        it.run("txn fence order-sender-0 --owner-is-gone", 0, other, *FAST, *ACT)
        break_(night.lab, "orphan", hold=False)
        it.run("txn hanging --plan", 1, None, *FAST)
        it.run("txn apply", 0, None, *ACT)
        [row] = it.run("lso orders:3", 0, None, "-o", "json").rows
        assert row["held"] == 0
        it.run("why --group", 0, None, *FAST)
        assert "abort" in it.run("journal list", 0).stdout


def coordinator_unavailable(night: Trainee) -> None:
    break_(night.lab, "open", hold=False)
    night.lab.kill(2)
    with night.reading("coordinator-unavailable", {}) as it:
        assert "coordinator partitions answered" in it.run("txn list", 3).stderr
        rows = it.run("context test", 0, None, "-o", "json").rows
        rights = {row["check"]: row["sees"] for row in rows}
        assert rights["transactional ids: DESCRIBE"] is None  # an outage is no missing right
        it.run("lso __transaction_state", 3)
        [back] = it.taken(1)
        assert back.text == "eoctl lab up"
        night.up()
        it.run("txn hanging", 0, None, *FAST)
        it.run("txn list", 0)
        assert "coordinators_unavailable" in it.next("check", None, *FAST).stdout


def crashed_job(night: Trainee) -> None:
    night.begin("crashed-job")
    shutil.copy(night.app_file(), "app.toml")
    [pending] = break_(night.lab, "offsets-pending", hold=False)
    Path("transactional.toml").write_text(
        f'[app]\nname = "pending"\nstrategy = "transactional"\ninputs = ["{pending.group_topic}"]\n'
        f'outputs = ["{pending.topic}"]\n[app.store]\nkind = "kafka-group"\n'
        f'group = "{pending.group}"\n',
        encoding="utf-8",
    )
    with night.reading("crashed-job", {GROUP: "sales-pricer"}) as it:
        it.run("restart plan app.toml --out", 0, None, *QUICK)
        it.run("restart apply", 0, None, "--yes")
        it.run("restart verify", 0, None, *QUICK)
        numbers = it.run("restart plan app.toml --env", 0, None, *QUICK).stdout
        it.run("restart plan app.toml --fence", 0, {"app.toml": "transactional.toml"}, *QUICK, *ACT)
        way_back = {"plan.json": "back.json", "orders": "sales"}
        it.run("restart plan --group", 0, way_back, *QUICK)
        it.run("restart verify", 0, None, *QUICK)
        assert "nothing" in it.run("restart undo", 0).text
    Path("env").write_text(numbers, encoding="utf-8")
    assert set(night.results().values()) == {"left"}  # the positions alone finish nothing
    night.finish(Path("env"))
    night.full_marks()


def cron_recovery(night: Trainee) -> None:
    night.begin("crashed-job")
    shutil.copy(night.app_file(), "app.toml")
    text = (ROOT / "docs" / "runbooks" / "cron-recovery.md").read_text(encoding="utf-8")
    [script] = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    state = environment()["EOCTL_STATE_DIR"]
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    env = environment(EOCTL_CONTEXT=night.lab.context_name, PATH=path)
    with night.reading("cron-recovery", {"/var/lib/node_exporter": str(night.folder)}) as it:
        it.run("restart plan", 0, None, *QUICK)
        assert all(shown.text in script for shown in it.taken(4))
        done = subprocess.run(
            ["bash", "-c", script.replace("/var/lib/eoctl", state)],
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        it.run("check --textfile", 0, None, *FAST)
        assert "eoctl_" in Path("eoctl.prom").read_text(encoding="utf-8")
        assert it.run("journal list --since", 0, None, "-o", "json").rows
        it.run("journal list --unfinished", 0)
        it.run("restart undo", 0)
    night.finish(Path("restart.env"))
    night.full_marks()


def lost_store(night: Trainee) -> None:
    night.begin("lost-store")

    def coded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    rows = [
        {"partition": p, "key": coded(name), "value": coded(str(total))}
        for p, totals in enumerate(expected_totals())
        for name, total in totals.items()
    ]
    Path("dump.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows), encoding="utf-8")
    names = {
        "totals-changelog": "sales-totals-changelog",
        "streams-kv": "plain",
        "user-17": "customer-17",
        "topic:totals": "topic:sales-totals",
        "sql:env:DATABASE": f"sql:sqlite:///{night.folder}/db",
    }
    with sqlite3.connect("db") as database:
        database.execute(
            'CREATE TABLE totals ("partition" int, "offset" bigint, "timestamp" bigint, '
            '"key" blob, "value" blob, PRIMARY KEY ("partition", "key"))'
        )
        database.execute(
            'CREATE TABLE offsets (topic text, "partition" int, "offset" bigint, '
            'PRIMARY KEY (topic, "partition"))'
        )
    database.close()
    with night.reading("lost-store", names) as it:
        it.run("state rebuild", 0)
        it.run("state compare rebuilt dump.jsonl", 0)
        it.run("state compare rebuilt live", 0)
        assert "customer-17" in it.run("state show", 0).stdout
        it.run("state deliver rebuilt --into topic", 0, None, *ACT)
        it.run("state deliver rebuilt --into sql", 0)
        refused = it.run("state deliver rebuilt --into streams-dir", 4)  # no store of Streams
        assert "streams-kv" in refused.stderr
        it.run("state rebuild", 0)
        it.run("state compare", 0)
    night.full_marks()


def duplicates(night: Trainee) -> None:
    night.begin("duplicates")
    with night.reading("duplicates", {}) as it:
        it.run("audit duplicates", 1)
        it.run("audit sequences", 0)
        it.run("producers", 0)
        it.run("dedup", 0)
        it.run("dedup", 0, None, "--yes")
        it.run("audit duplicates orders-clean", 0)
    night.full_marks()


def flink_checkpoint(night: Trainee) -> None:
    before = set(night.held())
    [folder] = re.findall(r"/\S+/chk-\d+", night.begin("flink-checkpoint")["story"])
    topic = (set(night.held()) - before).pop().partition(":")[0]
    names = {"/data/checkpoints/9f2c/chk-42": folder}
    with night.reading("flink-checkpoint", names) as it:
        rows = it.run("txn commit", 1, None, "-o", "json", *FAST).rows
        opened = [row["transactional_id"] for row in rows]
        assert {night.ask(name) for name in opened} == {"dead"}
        prefix = opened[0].rpartition("-")[0].rpartition("-")[0]
        after = {"orders-sink-0-7": opened[-1], "orders-sink-": f"{prefix}-"}
        listed = it.run("txn list", 0, after | {"orders-sink": prefix}, "-o", "json").rows
        assert {row["transactional_id"] for row in listed} == set(opened)
        assert "looks like a Flink sink" in it.run("why", 0, after, *FAST).stdout
        it.run("txn fence", 0, after, *FAST)
        assert it.next("txn commit", None, "--yes", *FAST).status in (0, 1)
        assert it.next("txn commit", None, *FAST).status in (0, 1)
        assert opened[-1] in it.run("txn history", 0, after).stdout
        it.run("lso", 0, {"orders-enriched": topic})
    night.full_marks()


def fence_storm(night: Trainee) -> None:
    """The owners are asked, and nothing is done to the id."""
    known = eoctl("status", *FAST, "-o", "json", lab=night.lab).json["contests"]
    night.begin("fence-storm")
    found = eoctl("status", *FAST, "-o", "json", lab=night.lab).json["contests"]
    [name] = {c["transactional_id"] for c in found} - {c["transactional_id"] for c in known}
    with night.reading("fence-storm", {"order-sender-0": name}) as it:
        assert "two owners that fence each other" in it.run("why", 1, None, *FAST).stdout
        assert it.run("txn history", 0).stdout.count("Empty") > 3
        it.run("status", 1, None, *FAST)
        assert night.ask(name) == "alive"
        assert "CompleteCommit" in it.run("txn history", 0).stdout
        assert "contested_ids" in it.next("check", None, *FAST).stdout
    assert list(night.results().values()).count("right") == 1  # the orphan beside it is left


def zombie(night: Trainee) -> None:
    """Of two ids the one whose newest producer is the right one is left, the other is fenced."""
    before = set(night.held())
    night.begin("zombie")
    owners = {}
    for topic_partition in set(night.held()) - before:
        [row] = eoctl("why", topic_partition, *FAST, "-o", "json", lab=night.lab).rows
        name = row["held_by"]["transactional_id"]
        owners[night.ask(name)] = name, topic_partition.partition(":")[0]
    name, topic = owners["dead"]  # the zombie's process is dead, the right one waits
    group = Consumer({**night.lab.client_properties(), "group.id": GROUP})
    group.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    group.close()
    lines = [shown for shown in page("crashed-job") if "--by-duration" in shown.text]
    plan = Reading(lines, {"orders": topic}, night.lab)
    plan.run("restart plan --group", 0, None, *QUICK)
    names = {"orders-enriched": topic, "order-sender-0": name}
    with night.reading("zombie", names) as it:
        assert name in it.run("producers", 0).stdout
        it.run("audit sequences", 0)
        it.run("why --group", 0, None, *FAST)
        it.run("txn fence", 0, None, *ACT, *FAST)
        it.next("restart verify", None, *QUICK)
        assert name in it.run("producers", 0).stdout
    night.full_marks()


def spark_checkpoint(night: Trainee) -> None:
    inputs, doubled, clean = (f"spark-{name}" for name in ("orders", "enriched", "clean"))
    for topic in (inputs, doubled, clean):
        words = ("lab", "topic", topic, "--partitions", "1", "--name", night.lab.name)
        assert eoctl(*words).status == 0
    producer = Producer({**night.lab.client_properties(), "enable.idempotence": True})
    for number in (*range(10), *range(5, 15)):  # a restart went back by five
        headers = [("source.partition", "0"), ("source.offset", str(number))]
        producer.produce(doubled, b"priced", b"order-%d" % number, headers=headers)
        producer.produce(inputs, b"order", b"order-%d" % number, partition=0)
    assert producer.flush(20) == 0
    folder = night.folder / "checkpoint"
    ends = {"offsets/4": {inputs: {"0": 5}}, "offsets/5": {inputs: {"0": 15}}}
    files = {name: f"v1\n{{}}\n{json.dumps(end)}" for name, end in ends.items()}
    files |= {"metadata": '{"id":"a1-b2"}', "commits/4": 'v1\n{"nextBatchWatermarkMs":0}'}
    files |= {"sources/0/0": "\0v1\n" + json.dumps({inputs: {"0": 0}})}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    Path("app.toml").write_text(
        f'[app]\nname = "priced"\nstrategy = "spark-checkpoint"\ninputs = ["{inputs}"]\n'
        f'[app.store]\nkind = "spark-checkpoint"\npath = "{folder}"\nsink = "batch-id"\n',
        encoding="utf-8",
    )
    names = {
        "/data/checkpoint": str(folder),
        "orders-enriched": doubled,
        "orders-clean": clean,
        "orders:3": f"{inputs}:0",
    }
    with night.reading("spark-checkpoint", names) as it:
        it.run("offsets show", 0)
        assert "batch 5 is the last, in flight" in it.run("restart checkpoint", 0).text
        assert "startingOffsets" in it.run("restart plan", 0, None, *QUICK).text
        it.run("dedup", 0, None, *ACT)
        [row] = it.run("offsets count", 0, None, "-o", "json").rows
        assert row["data_records"] == 20
        assert it.run("audit duplicates", 0, None, "-o", "json").rows == []
        it.run("audit sequences", 0)


def runbooks(night: Trainee) -> None:
    with night.reading("README", {}) as it:
        it.next("runbook", None, *FAST)
        assert Path("runbook.md").read_text(encoding="utf-8").startswith("# ")
        assert it.run("runbook readers-stuck", 0).stdout.startswith("READERS STUCK")
        it.next("bundle create", None, *FAST)
        assert Path("incident.eoctl").stat().st_size


FOLLOWED: dict[str, Callable[[Trainee], None]] = {
    "README": runbooks,
    "readers-stuck": readers_stuck,
    "coordinator-unavailable": coordinator_unavailable,
    "crashed-job": crashed_job,
    "cron-recovery": cron_recovery,
    "lost-store": lost_store,
    "duplicates": duplicates,
    "flink-checkpoint": flink_checkpoint,
    "fence-storm": fence_storm,
    "zombie": zombie,
    "spark-checkpoint": spark_checkpoint,
}


@pytest.mark.parametrize("name", only_here([p.stem for p in COPIED], *(Path(p).stem for p in HERE)))
def test_each_command_of_a_runbook_runs(name: str, night: Trainee) -> None:
    FOLLOWED[name](night)
