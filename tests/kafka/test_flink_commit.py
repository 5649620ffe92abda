"""`txn commit --checkpoint --execute` on what a dead Flink job leaves, made by a lab without Flink.

Real jobs: test_flink.py. What readers get comes from librdkafka's consumers, what ended a
transaction from Kafka's own log dump.
"""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.flink_job import CHECKPOINT
from eoctl.lab.breaks.stage import batch
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.facts import TransactionFacts
from tests.docs.pages import follows
from tests.kafka.command import FAST, Ran, environment, eoctl, unfinished
from tests.kafka.reading import Reading
from tests.kafka.remedying import markers_of, read_committed
from tests.object_store import environment as store_environment
from tests.object_store import make_bucket, put_object, s3_server
from tests.share import only_here

RECORDS = 3
ACT = ("--execute", "--yes", "--job-is-dead", *FAST)
POINTS = (
    "begun",
    "step-1-started",
    "step-1-performed",
    "step-1-done",
    "step-2-performed",
    "step-3-started",
    "step-4-performed",
    "verified",
)


@pytest.fixture(scope="module", params=only_here([1, 2], 2))
def lab(request: pytest.FixtureRequest, lab1: Lab, start_lab: Callable[[LabSpec], Lab]) -> Lab:
    if request.param == 2:
        return lab1
    return start_lab(LabSpec(name="checkpoint-v1", transaction_version=1))


def left(lab: Lab, subtasks: int = 2) -> tuple[Path, list[GroundTruth], list[GroundTruth]]:
    """A dead job's checkpoint, what it promises, and what its sinks began after it."""
    truths = break_(lab, "checkpoint", count=subtasks, records=RECORDS)
    path = lab.folder / "checkpoints" / truths[0].topic / f"chk-{CHECKPOINT}"
    return path, truths[::2], truths[1::2]


def commit(lab: Lab, path: Path, *words: str, kill_at: str | None = None) -> Ran:
    env = environment(EOCTL_TEST_KILL_AT=kill_at)
    return eoctl("txn", "commit", "--checkpoint", str(path), *words, lab=lab, env=env)


def visible(lab: Lab, truths: list[GroundTruth]) -> list[list[bytes | None]]:
    return [read_committed(lab, t.topic, t.partition) for t in truths]


def promised_values() -> list[bytes | None]:
    return [b"value %d of of-%d" % (n, CHECKPOINT) for n in range(RECORDS)]


def described(lab: Lab, truth: GroundTruth) -> TransactionFacts:
    async def ask() -> TransactionFacts:
        async with Client.of(lab.client_properties()) as client:
            row = await client.transaction(truth.transactional_id or "")
            assert row is not None
            return row

    return asyncio.run(ask())


def aborted_by_another(lab: Lab, truth: GroundTruth) -> None:
    """Somebody initialises the id: its open transaction is aborted."""

    async def act() -> None:
        async with Client.of(lab.client_properties()) as client:
            await Producer.init(client, truth.transactional_id)

    asyncio.run(act())


@follows("docs/flink.md", "What became of them")
def test_the_page(it: Reading, lab: Lab) -> None:
    path, promised, others = left(lab)
    it.lab = lab
    it.names["/data/checkpoints/9f2c/chk-42"] = str(path)
    rows = it.run("txn commit", 1, None, "-o", "json").rows
    fates = {row["transactional_id"]: row["fate"] for row in rows}
    assert fates == {t.transactional_id: "open" for t in promised} | {
        t.transactional_id: "not-in-checkpoint" for t in others
    }


@pytest.mark.parametrize("point", only_here(POINTS, "step-2-performed"))
def test_killed_anywhere_the_next_run_goes_on(lab: Lab, point: str) -> None:
    path, promised, others = left(lab)
    words, before = (*ACT, "--rest", "fence"), unfinished("txn")

    killed = commit(lab, path, *words, kill_at=point)

    assert killed.status == -signal.SIGKILL
    ended = commit(lab, path, *words)
    assert ended.status == 0, ended.text
    assert visible(lab, promised) == [promised_values()] * 2
    assert [markers_of(lab, t) for t in promised] == [["commit"]] * 2, "one each"
    assert [markers_of(lab, t) for t in others] == [["abort"]] * 2
    assert unfinished("txn") == before
    again = commit(lab, path, *words)
    assert (again.status, "there is nothing to commit" in again.text) == (0, True)


@pytest.mark.long
def test_a_checkpoint_in_object_storage(lab: Lab) -> None:
    path, promised, _ = left(lab)
    with s3_server() as port:
        make_bucket(port, "flink")
        for file in path.iterdir():
            put_object(port, f"flink/job/{path.name}/{file.name}", file.read_bytes())
        env = environment(**store_environment(port))
        words = ("txn", "commit", "--checkpoint", f"s3://flink/job/{path.name}")
        looked = eoctl(*words, "-o", "json", lab=lab, env=env)
        assert looked.status == 1, looked.text
        assert Counter(row["fate"] for row in looked.rows)["open"] == len(promised)
        ran = eoctl(*words, *ACT, lab=lab, env=env)
    assert visible(lab, promised) == [promised_values()] * len(promised), ran.text


@pytest.mark.long
def test_one_that_is_refused_midway_does_not_keep_the_others(lab: Lab) -> None:
    """And its plan names a group that has read records of the third."""
    path, promised, _ = left(lab, 3)
    last = max(promised, key=lambda t: t.transactional_id or "")
    past, at = f"{last.topic}-past", (last.start_offset or 0) + 1
    consumer = Consumer(lab.client_properties() | {"group.id": past})
    reached = TopicPartition(last.topic, last.partition, at)
    consumer.commit(offsets=[reached], asynchronous=False)
    consumer.close()
    killed = commit(lab, path, *ACT, kill_at="step-1-done")
    assert killed.status == -signal.SIGKILL
    first, second, third = sorted(promised, key=lambda t: t.transactional_id or "")
    assert markers_of(lab, first) == ["commit"]
    aborted_by_another(lab, second)

    ran = commit(lab, path, *ACT, "-o", "json")

    assert ran.status == 4, ran.text
    assert f"{second.transactional_id}: refused: " in ran.text
    assert "changed since the plan: id " in ran.text
    assert [markers_of(lab, t) for t in (first, second, third)] == [
        ["commit"],
        ["abort"],
        ["commit"],
    ]
    fates = {r["transactional_id"]: r["fate"] for r in ran.rows if r["checkpoint_id"]}
    assert sorted(fates.values()) == ["committed", "committed", "lost"]
    assert fates[second.transactional_id or ""] == "lost"
    entry = ran.stderr.split("journal entry ")[-1].split()[0]
    shown = eoctl("journal", "show", entry, "-o", "json").json
    assert "step-refused" in json.dumps(shown["rows"])
    about = [row for step in shown["plan"]["steps"] for row in step["about"]]
    assert [(a["partition"], a["also_holds"]) for a in about] == [
        (f"{t.topic}:{t.partition}", []) for t in (first, second, third)
    ]
    beyond = [{"group": past, "committed_offset": at}]
    assert [a["groups_beyond"] for a in about] == [[], [], beyond]
    assert entry not in unfinished("txn")


@pytest.mark.long
def test_none_is_begun_unless_all_may_be(lab: Lab) -> None:
    path, promised, _ = left(lab)
    killed = commit(lab, path, *ACT, kill_at="begun")
    assert killed.status == -signal.SIGKILL
    aborted_by_another(lab, promised[1])

    refused = commit(lab, path, *ACT)

    assert refused.status == 4, refused.text
    assert "changed since the plan" in refused.text
    assert "nothing of" in refused.text
    assert described(lab, promised[0]).state == "Ongoing"
    ran = commit(lab, path, *ACT)  # what is lost is lost, and told; the rest is planned anew
    assert ran.status == 0, ran.text
    assert "1 other of this checkpoint can no longer be committed" in ran.text
    assert visible(lab, promised) == [promised_values(), []]
    assert described(lab, promised[0]).state == "CompleteCommit"


@pytest.mark.long
def test_a_job_that_never_comes_back_is_shut_out(lab: Lab) -> None:
    path, promised, others = left(lab, 1)
    words = (*ACT, "--rest", "fence", "--never-restored")

    ran = commit(lab, path, *words)

    assert ran.status == 0, ran.text
    assert "This job is never restored" in ran.text
    assert visible(lab, promised) == [promised_values()]
    for truth in (*promised, *others):
        row = described(lab, truth)
        assert (row.producer_epoch or 0) > (truth.producer_epoch or 0), "its epoch is raised"


@pytest.mark.long
def test_a_live_sink_is_refused(lab: Lab) -> None:
    """A transaction that grows between the two looks, or since the plan: the job lives."""
    path, promised, others = left(lab, 1)
    refused = commit(lab, path, "--rest", "fence")
    assert (refused.status, "is for --execute" in refused.text) == (2, True)
    killed = commit(lab, path, *ACT, kill_at="locked")
    assert killed.status == -signal.SIGKILL
    killed = commit(lab, path, *ACT, kill_at="begun")
    assert killed.status == -signal.SIGKILL
    append(lab, others[0])

    ran = commit(lab, path, *ACT)

    assert ran.status == 4, ran.text
    assert "others of its sinks" in ran.text
    assert described(lab, promised[0]).state == "Ongoing"


def append(lab: Lab, truth: GroundTruth) -> None:
    """The owner of an open transaction writes once more."""

    async def act() -> None:
        async with Client.of(lab.client_properties()) as client:
            producer = Producer(
                client,
                truth.producer_id or 0,
                truth.producer_epoch or 0,
                truth.transactional_id,
            )
            producer.sequences[truth.topic_partition] = RECORDS
            await producer.send(truth.topic, truth.partition, batch(1, "more"))

    asyncio.run(act())
