"""Audits by Spark: what was planted is found, and told as the local engine tells it."""

import asyncio
import base64
import importlib
import json
import os
import random
import signal
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eoctl.lab.admin import delete_topic
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.audit.duplicates import DuplicatesAudit
from eoctl.operations.audit.engine import Audit, AuditedRanges
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.operations.audit.sequences import SequencesAudit
from eoctl.operations.audit.transactions import TransactionsAudit
from eoctl.operations.jobs.job_records import list_jobs, session_members
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.audit.audit_request import SequencesFound
from recovery.errors import Exit, IncompleteError
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from recovery.shared.record_ids import parse_record_id
from recovery.values import replace
from spark_jobs import audits
from spark_jobs.session import executors
from spark_jobs.session.progress import JobProgress
from tests.kafka.audit_faults import (
    PAIR,
    THREE,
    plant_duplicates,
    plant_sequences,
    plant_transactions,
    torn_of,
)
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import FORGETFUL, KEY, as_published, numbered, same, send, send_keyed
from tests.spark.sinking import members
from tests.started import connected, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

SPARK = ("--engine", "spark", "--master", "local[2]")
FIELDS = ("partition", "finding", "producer_id", "offset", "records")
ALL = (parse_bound("earliest", 0), parse_bound("hw", 0))


def duplicates(topic: str, by: str) -> DuplicatesAudit:
    """In pieces of 2 offsets, most of which begin within a batch."""
    wanted = parse_record_id(by)
    return DuplicatesAudit([parse_selector(topic)], *ALL, wanted, range_offsets=2)


def by_both(
    lab: Lab, spark: "SparkSession", audit: Audit[Any], most: int = 1000
) -> tuple[Answer, Answer]:
    """The local engine's answer, and that of the job in this session, of the same offsets."""

    async def read() -> tuple[AuditedRanges, Answer]:
        async with Client.to(lab.bootstrap_servers) as client:
            asked = await audit.look(client.cluster)
            found = await audit.read(client.cluster, asked, reading)
            return asked, audit.answer(asked, found)

    reading = AuditOptions(most=most)
    asked, local = asyncio.run(read())
    result = by_spark(lab, spark, audit, asked, reading)
    answer = audit.answer(asked, audit.answer_type.model_validate(result["found"]))
    assert result["findings"] == answer.extra["findings"]
    assert result["exit_status"] == answer.exit_status
    return replace(local, collected_at=0), replace(answer, collected_at=0)


def by_spark(
    lab: Lab,
    spark: "SparkSession",
    audit: Audit[Any],
    asked: AuditedRanges,
    reading: AuditOptions = AuditOptions(),
) -> dict[str, Any]:
    """The result of the job in this session."""
    request = json.loads(json.dumps(audit.request(asked, reading).model_dump(mode="json")))
    work = importlib.import_module(f"spark_jobs.{audit.job}").work
    access = audit.access(Context(None, {"bootstrap.servers": lab.bootstrap_servers}, ()))
    found: dict[str, Any] = json.loads(json.dumps(work(spark, request, access, JobProgress(None))))
    return found


async def plant_keys(lab: Lab, topic: str) -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Some keys stand twice, some thrice, in the same partition and the other one; what an aborted
    transaction repeats is nothing. In the order in which it is told."""
    rng = random.Random(5)
    logs = [[2 * i + partition for i in range(1_500)] for partition in range(2)]
    for log in logs:
        for _ in range(8):
            log[rng.randrange(1_500)] = rng.choice((*rng.sample(logs[0], 5), logs[1][7]))
    async with Client.to(lab.bootstrap_servers) as client:
        for partition, log in enumerate(logs):
            await send_keyed(client, topic, partition, log, 500)
    aborting = Producer({**lab.client_properties(), "transactional.id": topic})
    aborting.init_transactions(20)
    aborting.begin_transaction()
    for number in logs[0][:20]:
        aborting.produce(topic, b"value", KEY % number, partition=1)
    aborting.flush(20)
    aborting.abort_transaction(20)
    copies: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for partition, log in enumerate(logs):
        for offset, number in enumerate(log):
            copies[number].append((partition, offset))
    found = [(KEY % number, found) for number, found in copies.items() if len(found) > 1]
    return sorted(found, key=lambda pair: (-len(pair[1]), pair[1][0]))


async def plant_gaps(lab: Lab, topic: str) -> list[tuple[object, ...]]:
    """Producers that the broker does not know begin with another sequence than 0."""
    found: list[tuple[object, ...]] = []
    async with Client.to(lab.bootstrap_servers) as client:
        for partition in range(3):
            for pid in (9_000 + partition, 9_010, 9_020):
                first = pid % 7
                offset = await send(client, topic, partition, numbered(5, pid, 0, first))
                if first:
                    found.append((partition, "gap", pid, offset, first))
    return found


def told(answer: Answer) -> list[dict[str, Any]]:
    """The rows as JSON has them."""
    return [row.json_values() for row in answer.rows]


def test_the_engines_find_the_same_and_all_that_was_planted(
    lab1: Lab, topic: MakeTopic, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is counted; of what there is more than rows are wanted the first is told. Duplicates: the
    tests below."""
    monkeypatch.setattr(audits, "BUCKET_OFFSETS", 1_200)  # several tasks judge
    name = topic(lab1, THREE)
    torn = asyncio.run(plant_transactions(lab1, name, 4))
    local, answer = by_both(lab1, spark, TransactionsAudit([parse_selector(name)], 5_000), 2)
    assert answer == local
    assert answer.extra["findings"] == len(torn) == 3
    assert torn_of(told(answer)) == torn[:2]

    name = topic(lab1, 3)
    gaps = asyncio.run(plant_gaps(lab1, name))
    local, answer = by_both(lab1, spark, SequencesAudit([parse_selector(name)], *ALL), 4)
    assert answer == local
    assert answer.extra["findings"] == len(gaps) > 4
    assert same(told(answer), FIELDS) == gaps[:4]


def test_what_cannot_be_judged_is_missing_by_both(
    lab1: Lab, topic: MakeTopic, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition with a header that is no number; without records there is nothing to do."""
    monkeypatch.setattr(audits, "BUCKET_OFFSETS", 3)  # several tasks judge
    name, empty = topic(lab1, 3), topic(lab1, 2)
    producer = Producer(lab1.client_properties())
    for partition in range(3):
        for number in (b"4", b"5", b"no number" if partition == 1 else b"4"):
            headers = [("source.partition", b"%d" % partition), ("source.offset", number)]
            producer.produce(name, b"v", partition=partition, headers=headers)
    assert producer.flush(20) == 0
    local, answer = by_both(lab1, spark, duplicates(name, "source"))
    assert answer == local
    assert (answer.exit_status, len(answer.rows)) == (3, 2)
    assert [e.partition for e in answer.errors] == [1]
    for audit in (duplicates(empty, "key"), SequencesAudit([parse_selector(empty)], *ALL)):
        local, answer = by_both(lab1, spark, audit)
        assert answer == local
        assert (answer.exit_status, answer.rows) == (0, [])


def audits_of(name: str) -> list[Audit[Any]]:
    """The three audits of a topic."""
    wanted = [parse_selector(name)]
    return [
        duplicates(name, "key"),
        SequencesAudit(wanted, *ALL),
        TransactionsAudit(wanted, 5_000),
    ]


def ranges_of(lab: Lab, audit: Audit[Any]) -> AuditedRanges:
    """What an audit resolves before it reads."""

    async def look() -> AuditedRanges:
        async with Client.to(lab.bootstrap_servers) as client:
            return await audit.look(client.cluster)

    return asyncio.run(look())


class Attempts:
    """How many attempts of tasks failed in what this thread runs within it, by Spark's count."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context, self._group = spark.sparkContext, uuid.uuid4().hex

    def __enter__(self) -> "Attempts":
        self._context.setJobGroup(self._group, "a test")
        return self

    def __exit__(self, *_: object) -> None:
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    @property
    def failed(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = {stage for found in jobs if found for stage in found.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        return sum(info.numFailedTasks for info in infos if info)

    def wait(self, count: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.failed < count and time.monotonic() < until:
            time.sleep(0.1)


@pytest.mark.long
def test_what_no_try_can_read_is_missing_and_no_failed_job(
    lab1: Lab, topic: MakeTopic, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is gone once its offsets were asked is looked for again and again."""
    assert executors.tries(spark) == 8
    monkeypatch.setattr(executors, "tries", lambda spark: 3)
    name = topic(lab1, 1)
    producer = Producer(lab1.client_properties())
    producer.produce(name, b"v", b"k", partition=0)
    assert producer.flush(20) == 0
    asked = [(audit, ranges_of(lab1, audit)) for audit in audits_of(name)]

    async def delete() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            await delete_topic(client, name)

    asyncio.run(delete())
    for audit, ranges in asked:
        with Attempts(spark) as attempts:
            result = by_spark(lab1, spark, audit, ranges)
            attempts.wait(2, 10)
        assert result["exit_status"] == 3
        [failed] = audit.answer_type.model_validate(result["found"]).failed
        assert (failed.topic, failed.partition) == (name, 0)
        assert "no such topic or partition" in failed.detail
        assert attempts.failed == 2


@pytest.mark.long
def test_a_leader_that_comes_back_is_read_by_the_next_try(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, spark: "SparkSession"
) -> None:
    """A task waits 20 s for a leader; what it then could not read is nobody's answer yet."""
    lab = start_lab(LabSpec(name="comes-back", brokers=2))
    name = topic(lab, 2)
    producer = Producer(lab.client_properties())
    for number in range(100):
        producer.produce(name, b"v", b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    for audit in audits_of(name):
        asked = ranges_of(lab, audit)
        lab.kill(2)  # which leads one of them
        with Attempts(spark) as attempts, ThreadPoolExecutor(1) as beside:

            def restart(attempts: Attempts = attempts) -> None:
                attempts.wait(1, 120)
                lab.start(2)

            restarted = beside.submit(restart)
            result = by_spark(lab, spark, audit, asked)
            restarted.result()
        assert attempts.failed >= 1
        assert (result["exit_status"], result["findings"]) == (0, 0)
        assert audit.answer_type.model_validate(result["found"]).failed == ()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own: the jobs in it are this test's."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def record(state: Path) -> dict[str, Any]:
    """The newest job's record."""
    found: dict[str, Any] = json.loads(max(state.glob("jobs/*/job.json")).read_text())
    return found


@pytest.mark.long
def test_a_launched_audit(lab1: Lab, topic: MakeTopic, state: Path) -> None:
    """Its answer is that of the local engine; its job is recorded, without anybody's keys."""
    name = topic(lab1, 2)
    keys = asyncio.run(plant_keys(lab1, name))
    assert len({len(copies) for _, copies in keys}) > 1
    words = ("audit", "duplicates", name, "--by", "key", "-o", "json", "--limit", "8")
    answers = []
    for engine in ((), SPARK):
        ran = as_published(eoctl(*words, *engine, lab=lab1, timeout=300), "audit-duplicates")
        assert ran.status == 1, ran.stderr
        answers.append(ran.json)
    local, found = answers
    assert (local.pop("engine"), found.pop("engine")) == ("local", "spark")
    assert "offsets to read" in local.pop("engine_why")
    assert found.pop("engine_why") == "as asked"
    assert local.pop("collected_at") < found.pop("collected_at")
    assert found == local
    assert found["findings"] == len(keys) > 8
    assert [
        (base64.b64decode(row["id"]), [(p["partition"], p["offset"]) for p in row["places"]])
        for row in found["rows"]
    ] == keys[:8]
    told_of = record(state)
    assert (told_of["job"], told_of["exit_status"], told_of["error"]) == (
        "audit_duplicates",
        1,
        None,
    )
    assert told_of["result"] == {"findings": len(keys), "exit_status": 1}
    [listed] = list_jobs()
    assert listed.state == "succeeded"
    assert not [p for p in state.rglob("*") if p.is_file() and keys[0][0] in p.read_bytes()]


def auditing(lab: Lab, *words: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """An audit that runs; it is ended with the block."""
    return started(
        [*EOCTL, "--bootstrap-server", lab.bootstrap_servers, "audit", *words, "-o", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def reading_workers(lab: Lab, state: Path, running: "subprocess.Popen[str]") -> list[int]:
    """The job's Python workers, once one of them is connected to the broker, and their daemon."""
    port = int(lab.bootstrap_servers.rpartition(":")[2])
    until = time.monotonic() + 400
    while time.monotonic() < until:
        assert running.poll() is None, running.communicate()[1][-3000:]
        time.sleep(0.2)
        found = []
        for path in state.glob("jobs/*/job.json"):
            found += members(int(json.loads(path.read_text())["pid"]), b"pyspark.daemon")
        if any(connected(pid, port) for pid in found):
            return found
    raise AssertionError("no task has begun")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["duplicates", "sequences", "transactions"])
def test_more_of_it_with_workers_killed(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, state: Path, kind: str
) -> None:
    """Spark tries the tasks again: nothing is found twice, nothing is lost. Then Ctrl-C."""
    settings = FORGETFUL if kind == "sequences" else {}
    lab = start_lab(LabSpec(name=f"audit-{kind}", settings=settings))
    try:
        name = topic(lab, THREE if kind == "transactions" else PAIR)
        planted: Any
        if kind == "duplicates":
            planted = plant_duplicates(lab, name, 200_000)[0]["key"]
            words = [kind, name, "--by", "key"]
        elif kind == "sequences":
            planted = asyncio.run(plant_sequences(lab, name, 400_000))
            words = [kind, name]
        else:
            planted = asyncio.run(plant_transactions(lab, name, 600))
            words = [kind, name]
        words += ["--limit", "100000"]
        size = sum(f.stat().st_size for f in lab.folder.rglob(f"{name}-*/*.log"))
        slow = ["--max-rate", str(max(1, size // 10))]  # 10 s at least
        with auditing(lab, *words, *SPARK, *slow) as running:
            for pid in reading_workers(lab, state, running):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, said = running.communicate(timeout=600)
        assert running.returncode == 1, said
        found = json.loads(out)
        local = eoctl("audit", *words, "-o", "json", lab=lab, timeout=600).json
        differ = {"engine", "engine_why", "collected_at"}
        if kind == "transactions":  # meanwhile the coordinator may abort the one that is open
            differ |= {"covered", "transactions"}
        local, found = ({k: v for k, v in d.items() if k not in differ} for d in (local, found))
        assert found == local
        assert found["findings"] == len(planted)
        log = max(state.glob("jobs/*/log")).read_text()
        assert "Lost task" in log

        with auditing(lab, *words, *SPARK, *slow) as running:
            reading_workers(lab, state, running)
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=300)
        assert running.returncode == int(Exit.INTERRUPTED), said
        ended = record(state)
        assert ended["cancelled"] is True
        assert session_members(ended["pid"]) == []
    finally:
        lab.down()


def test_more_than_the_driver_takes_is_refused_in_a_sentence(spark: "SparkSession") -> None:
    limits = spark.sparkContext._jsc.sc().conf()
    rows = spark.range(0, 100_000, 1, 4).selectExpr(
        "0 as piece", "cast(null as string) as answer", "cast(string(rand()) as binary) as content"
    )
    limits.set("spark.driver.maxResultSize", "100k")
    refusals = executors.Refusals(spark)
    try:
        with pytest.raises(IncompleteError, match=r"more than spark\.driver\.max"):
            audits.answers(spark, rows, SequencesFound, "eoctl audit sequences", refusals)
    finally:
        limits.remove("spark.driver.maxResultSize")
