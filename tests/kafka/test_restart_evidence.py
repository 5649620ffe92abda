"""What the guarantee of a restart stands on, on real brokers: how the group's offset was committed,
who wrote the outputs, and what the journal says of a plan."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import group_commits
from eoctl.lab.admin import TOPIC
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import TopicPartition
from recovery.restart.commits import GroupCommit, OutputEvidence, written_with
from tests.kafka.command import Ran
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene, producing, until, write
from tests.kafka.test_state_compaction import CLEANED, configure, eager_cleaner
from tests.kafka.tools import kafka_tool


@pytest.fixture
def scene(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Scene:
    """20 inputs, and no output yet."""
    return Scene.make(lab1, topic, tmp_path, there=0)


def owner(scene: Scene, name: str = "id") -> Any:
    """A transactional producer (librdkafka speaks transactions v1)."""
    made = producing(scene.lab, **{"transactional.id": f"{scene.group}-{name}"})
    made.init_transactions(30)
    return made


def transaction(
    scene: Scene, producer: Any, *, outputs: int = 0, offset: int | None = None, end: str = "commit"
) -> None:
    """One transaction with so many outputs, and with the group's offset if one is given."""
    from confluent_kafka import Consumer, TopicPartition

    producer.begin_transaction()
    write(producer, scene.output, [str(number) for number in range(outputs)])
    if offset is not None:
        reader = Consumer(scene.lab.client_properties() | {"group.id": scene.group})
        at = [TopicPartition(scene.input, 0, offset)]
        producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 30)
        reader.close()
    (producer.commit_transaction if end == "commit" else producer.abort_transaction)(30)


def planned(scene: Scene) -> tuple[Ran, dict[str, Any]]:
    """A plan once the markers of the last transaction are everywhere, and its row."""
    scene.describe(strategy="transactional")
    found: list[Ran] = []

    def settled() -> bool:
        found[:] = [scene.plan("-o", "json")]
        unsettled = ("its end is not final", "commits of the group that are not decided")
        return not any(text in found[0].stderr for text in unsettled)

    until(settled)
    return found[0], found[0].rows[0] if found[0].status == 0 else {}


def check(row: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [c for c in row["checks"] if c["name"] == name]
    return dict(found)


def test_a_commit_in_the_transaction_of_the_outputs(scene: Scene) -> None:
    """One transaction with both: the commit's batch, its marker and the decision are read."""
    transaction(scene, owner(scene), outputs=8, offset=8)
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert (row["guarantee"], row["inputs"][0]["restart_offset"]) == ("exactly-once", 8)
    commit = check(row, "commit-in-transaction")
    assert commit["held"] is True
    assert "COMMIT marker" in commit["detail"]
    together = check(row, "outputs-in-commit")
    assert together["held"] is True
    assert "decision" in together["detail"]


def test_a_java_client_with_an_epoch_for_each_transaction(scene: Scene) -> None:
    """Kafka's own copier, of transactions v2: its last commit's epoch names one transaction, and
    the output's batches alone show them together (as where the decision is compacted away)."""
    done = kafka_tool(
        scene.lab,
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", scene.lab.bootstrap_servers, "--consumer-group", scene.group),
        *("--input-topic", scene.input, "--input-partition", "0", "--output-topic", scene.output),
        *("--transactional-id", f"{scene.group}-id", "--transaction-size", "4"),
        *("--max-messages", "8"),
    )
    assert done.returncode == 0, done.stderr
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert (row["guarantee"], row["inputs"][0]["restart_offset"]) == ("exactly-once", 8)
    together = check(row, "outputs-in-commit")
    assert (together["held"], "decision" in together["detail"]) == (True, True)

    async def look() -> tuple[GroupCommit, OutputEvidence]:
        settings = client_settings(scene.lab.client_properties())
        async with Cluster(settings, Deadline(30)) as cluster:
            found, why = await group_commits.last_commits(cluster, scene.group)
            assert why is None
            commit, partition = (
                found[TopicPartition(scene.input, 0)],
                TopicPartition(scene.output, 0),
            )
            ends = {partition: (0, row["outputs"][0]["end_offset"])}
            tails, failed = await group_commits.tails(cluster, ends)
            assert not failed
            return commit, written_with(commit, tails[partition])

    commit, shown = asyncio.run(look())
    assert (commit.offset, commit.is_v2, shown) == (8, True, OutputEvidence.MARKERS)


def test_an_output_that_compaction_emptied_is_no_beginning(scene: Scene) -> None:
    """A value and its tombstone were committed and are gone: the markers and the gaps stay.

    What a crash in the very first transaction leaves is aborted, and says nothing."""
    configure(scene.lab, TOPIC, scene.output, CLEANED | {"delete.retention.ms": "100"})
    one = owner(scene)

    def transaction_of(value: bytes | None, end: str = "commit") -> None:
        one.begin_transaction()
        one.produce(scene.output, value, b"key", partition=0)
        one.flush(30)
        (one.commit_transaction if end == "commit" else one.abort_transaction)(30)

    transaction_of(b"aborted", "abort")
    ran, row = planned(scene)
    assert (ran.status, row["guarantee"]) == (0, "exactly-once"), ran.stderr
    transaction_of(b"value")
    transaction_of(None)

    async def left() -> int:
        async with Client.to(scene.lab.bootstrap_servers) as client:
            batches = await client.batches(scene.output, 0)
            return sum(1 for b in batches if not b.is_control_batch for r in b if r.key == b"key")

    with eager_cleaner(scene.lab):
        until_gone = time.monotonic() + 90
        while True:
            time.sleep(1.1)  # segment.ms
            transaction_of(b"aborted", "abort")
            if asyncio.run(left()) <= 1:  # of the active segment, aborted
                break
            assert time.monotonic() < until_gone, "the cleaner did not take the tombstone"
    ran, _ = planned(scene)
    assert ran.status == 4, ran.text
    assert f"{scene.output}:0 lacks" in ran.stderr
    assert "its offsets are gone" in ran.stderr


def test_a_commit_marker_without_records_is_no_beginning(scene: Scene) -> None:
    """The group's offset was committed in a transaction that wrote nothing to this output, and is
    gone since. Nothing is missing there, and what else the output holds is aborted."""

    async def ends(*outcomes: str) -> None:
        async with Client.to(scene.lab.bootstrap_servers) as client:
            owner = await Producer.init(client, f"{scene.group}-id", version=1)
            for outcome in outcomes:
                await owner.add_partition(scene.output, 0)
                if outcome == "commit":
                    await owner.send_offsets(scene.group, {TopicPartition(scene.input, 0): 8})
                await owner.end(commit=outcome == "commit")
                await owner.completed()

    transaction(scene, owner(scene), outputs=3, end="abort")
    asyncio.run(ends("abort"))
    ran, row = planned(scene)
    assert (ran.status, row["guarantee"]) == (0, "exactly-once"), ran.stderr
    asyncio.run(ends("commit"))
    until(lambda: scene.holds == 8)
    delete_group(scene)
    [segment] = (scene.lab.data_folder(1) / f"{scene.output}-0").glob("*.log")
    tool = "org.apache.kafka.tools.DumpLogSegments"
    dumped = kafka_tool(scene.lab, tool, "--print-data-log", "--files", str(segment))
    [at] = re.findall(r"^\| offset: (\d+) .*endTxnMarker: COMMIT", dumped.stdout, re.MULTILINE)
    ran, _ = planned(scene)
    assert ran.status == 4, ran.text
    assert f"{scene.output}:0 holds a COMMIT marker at offset {at}: its offsets" in ran.stderr
    for base, guarantee in ((0, "at-least-once"), (int(at) + 1, "exactly-once")):
        more = f'[app.base]\n"{scene.input}:0" = 0\n"{scene.output}:0" = {base}'
        scene.describe(strategy="transactional", more=more)
        based = scene.plan("-o", "json")
        assert (based.status, based.rows[0]["guarantee"]) == (0, guarantee), based.stderr


def delete_group(scene: Scene) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(scene.lab.client_properties())
    admin.delete_consumer_groups([scene.group])[scene.group].result(20)
    until(lambda: scene.holds is None)


def test_an_offset_committed_outside_of_the_transaction(scene: Scene) -> None:
    """As Flink does it: outputs in transactions, offsets later and elsewhere. In between, a crash.

    The job had written 12 outputs when its last checkpoint's offset 8 reached the group.
    """
    producer = owner(scene)
    transaction(scene, producer, outputs=8)
    scene.commits(8)
    transaction(scene, producer, outputs=4)
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert row["guarantee"] == "at-least-once"
    assert "outside of a transaction" in row["because"]
    assert check(row, "commit-in-transaction")["held"] is False
    shown = scene("show", scene.plan_file)
    assert "at-least-once" in shown.stdout
    applied = scene.apply()
    assert applied.status == 0, applied.stderr
    assert "exactly-once" not in applied.stdout + applied.stderr
    assert "at-least-once" in applied.stderr
    verified = scene.verify()
    assert (verified.status, verified.json["guarantee"]) == (0, "at-least-once")


@pytest.mark.long
def test_a_later_commit_outside_of_a_transaction_takes_its_place(scene: Scene) -> None:
    """The newest commit decides, also where it names the offset of the one before."""
    transaction(scene, owner(scene), outputs=8, offset=8)
    until(lambda: scene.holds == 8)
    scene.commits(8)
    ran, row = planned(scene)
    assert (ran.status, row["guarantee"]) == (0, "at-least-once"), ran.stderr


@pytest.mark.long
def test_a_commit_between_plan_and_apply_is_a_change(scene: Scene) -> None:
    """The same offset, but no longer from the transaction: the plan promised more."""
    transaction(scene, owner(scene), outputs=8, offset=8)
    ran, row = planned(scene)
    assert row["guarantee"] == "exactly-once", ran.stderr
    scene.commits(8)
    refused = scene.apply()
    assert refused.status == 4
    assert "changed since the plan" in refused.stderr or "was" in refused.stderr


@pytest.mark.long
def test_an_aborted_commit_does_not_count(scene: Scene) -> None:
    producer = owner(scene)
    transaction(scene, producer, outputs=8, offset=8)
    transaction(scene, producer, outputs=3, offset=11, end="abort")
    ran, row = planned(scene)
    assert (ran.status, row["guarantee"]) == (0, "exactly-once"), ran.stderr
    assert row["inputs"][0]["restart_offset"] == 8


def test_offsets_in_a_transaction_without_the_outputs(scene: Scene) -> None:
    """Outputs in one transaction, offsets in another one of the same id, outputs again."""
    producer = owner(scene)
    transaction(scene, producer, outputs=4)
    transaction(scene, producer, offset=4)
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert check(row, "outputs-in-commit")["held"] is None
    assert "assumed" in row["because"]
    transaction(scene, producer, outputs=4)
    ran, row = planned(scene)
    assert (ran.status, row["guarantee"]) == (0, "at-least-once"), ran.stderr
    assert check(row, "outputs-in-commit")["held"] is False


def test_a_group_whose_offsets_are_gone(scene: Scene) -> None:
    """Its outputs stand in committed transactions: it did commit once, and must not begin anew."""
    transaction(scene, owner(scene), outputs=8, offset=8)
    until(lambda: scene.holds == 8)
    delete_group(scene)
    ran, _ = planned(scene)
    assert ran.status == 4
    for text in ("are gone", "8 records", "[app.base]", "--to-datetime"):
        assert text in ran.stderr
    scene.describe(strategy="transactional", more=f'[app.base]\n"{scene.input}:0" = 8')
    said = scene.plan("-o", "json")
    assert said.status == 0, said.stderr
    assert said.rows[0]["guarantee"] == "at-least-once"
    assert said.rows[0]["inputs"][0]["restart_offset"] == 8


def test_a_group_that_never_committed(scene: Scene) -> None:
    """Nothing but an aborted transaction in the output: it begins at 0, and again after a crash."""
    transaction(scene, owner(scene), outputs=8, offset=8, end="abort")
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert (row["guarantee"], row["inputs"][0]["restart_offset"]) == ("exactly-once", 0)
    assert scene.apply().status == 0
    assert scene.holds == 0
    ran, row = planned(scene)
    assert (row["guarantee"], row["inputs"][0]["restart_offset"]) == ("exactly-once", 0), ran


def test_two_transactional_ids_in_the_range(scene: Scene) -> None:
    """`exclusive = true` is checked: two ids wrote what n would be counted from."""
    write(scene.producer, scene.output, ["0", "1"])
    for name in ("one", "two"):
        transaction(scene, owner(scene, name), outputs=3)
    app = Path(scene.pair(2, 2))
    found: list[Ran] = []

    def settled() -> bool:
        found[:] = [scene.plan()]
        return "its end is not final" not in found[0].stderr

    until(settled)
    assert found[0].status == 4
    for text in (f"{scene.group}-one", f"{scene.group}-two", "exclusive = false"):
        assert text in found[0].stderr
    app.write_text(app.read_text().replace("[app.store]", "exclusive = false\n[app.store]"))
    said = scene.plan("-o", "json")
    assert said.status == 0, said.stderr
    assert said.rows[0]["outputs"][0]["drop_first"] == 6


def test_show_says_what_became_of_the_plan(scene: Scene) -> None:
    transaction(scene, owner(scene), end="abort")
    write(scene.producer, scene.output, ["0", "1", "2"])
    scene.commits(1)
    scene.describe()
    assert scene.plan().status == 0
    assert scene("show", scene.plan_file, "-o", "json").json["applied"] is None
    applied = scene.apply()
    entry = applied.stderr.split("journal entry ")[1].split()[0]
    shown = scene("show", scene.plan_file)
    assert f"applied      by journal entry {entry}, " in shown.stdout
    assert "nothing was sent yet" not in shown.stdout
    undone = scene.undo()
    back = undone.stderr.split("journal entry ")[1].split()[0]
    told = scene("show", scene.plan_file, "-o", "json").json
    assert (told["applied"]["entry"], told["undone"]["entry"]) == (entry, back)
