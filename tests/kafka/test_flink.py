"""`txn commit --checkpoint` on real Flink jobs, killed between a checkpoint and its commit.

What a number must be comes from Flink's own classes (the source offsets of the checkpoint, as they
load it) and from plain consumers of the sink's topic.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.flink_job import CHECKPOINT as WRITTEN
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.record import LabSpec
from tests.flink.job import CHECKPOINT_MS, PARTITIONS, VERSIONS, Job, Loaded, load, topics
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import SOON
from tests.kafka.crashed import commit as commit_offsets
from tests.kafka.crashed import committed, until
from tests.kafka.merging import consumed
from tests.kafka.offsets_oracle import consumed_number

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RECORDS = 10_000
CHECKPOINT = 2


KAFKA_4_0 = "4.0.1"
NEWEST = [pytest.param((KAFKA, version), id=f"transactions-v{version}") for version in (2, 1)]
WITH_4_0 = [
    *NEWEST,
    *(pytest.param((KAFKA_4_0, version), id=f"4.0-transactions-v{version}") for version in (2, 1)),
]
"""Kafka and its transaction.version, of the lab; 4.0 is the first that has version 2."""


@pytest.fixture(scope="module", params=NEWEST)
def lab(request: pytest.FixtureRequest, start_lab: Callable[[LabSpec], Lab]) -> Lab:
    kafka, version = request.param
    spec = LabSpec(
        name=f"flink-{kafka}-v{version}",
        kafka_version=kafka,
        transaction_version=version,
        settings=SOON,
    )
    return start_lab(spec)


def killed(
    lab: Lab, folder: Path, name: str, *, timeout_ms: int = 600_000, naming: str, version: str
) -> tuple[Job, Path, Loaded]:
    """A job killed between checkpoint and commit, the checkpoint, and what Flink reads from it."""
    source, sink = f"in-{name}", f"out-{name}"
    topics(lab, source, sink, RECORDS)
    job = Job(
        lab,
        folder,
        source=source,
        sink=sink,
        version=version,
        naming=naming,
        timeout_ms=timeout_ms,
    )
    checkpoint = job.killed_before_commit(CHECKPOINT)
    return job, checkpoint, load(version, checkpoint)


def fates(lab: Lab, checkpoint: Path) -> Ran:
    return eoctl("txn", "commit", "--checkpoint", str(checkpoint), "-o", "json", lab=lab)


def promised_fates(lab: Lab, checkpoint: Path) -> set[str]:
    """The fates of what the checkpoint promises."""
    return {r["fate"] for r in fates(lab, checkpoint).rows if r["checkpoint_id"] is not None}


def all_open(ran: Ran, loaded: Loaded, promised: int) -> list[dict[str, Any]]:
    """What is told of the checkpoint's own, which is what Flink reads from it, all of it open."""
    assert ran.status == 1, ran.text
    mine = [r for r in ran.rows if r["checkpoint_id"] is not None]
    assert [r["fate"] for r in mine] == ["open"] * len(loaded.committables)
    assert sorted(
        (r["transactional_id"], r["producer_id"], r["producer_epoch"], r["checkpoint_id"])
        for r in mine
    ) == [*loaded.committables]
    assert sum(r["records"] for r in mine) == promised
    return mine


def commit(lab: Lab, checkpoint: Path, *words: str) -> Ran:
    return eoctl("txn", "commit", "--checkpoint", str(checkpoint), *words, lab=lab)


def values(lab: Lab, job: Job) -> Counter[bytes | None]:
    """What a read_committed consumer sees in the sink's topic: each value and how often."""
    topic_partitions = [(job.sink, partition) for partition in range(PARTITIONS)]
    return Counter(
        copied[1] for rows in consumed(lab, topic_partitions).values() for _, copied in rows
    )


def written(lab: Lab, job: Job) -> int:
    """How many records the sink wrote, whatever became of them."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": "oracle", "isolation.level": "read_uncommitted"}
    consumer = Consumer(lab.client_properties() | config)
    topic_partitions = [(job.sink, partition) for partition in range(PARTITIONS)]
    ranges = {p: consumer.get_watermark_offsets(TopicPartition(*p), 10) for p in topic_partitions}
    consumer.close()
    return consumed_number(lab, "read_uncommitted", ranges)


def restored(lab: Lab, job: Job, checkpoint: Path) -> Counter[bytes | None]:
    """What is committed once Flink, started from a checkpoint, has committed all of its input."""
    job.start(restore=checkpoint)
    return at_its_end(lab, job)


def afresh(lab: Lab, job: Job, group: str) -> Counter[bytes | None]:
    """The same of a job that is not restored: its source begins where a group stands."""
    job.start(from_group=group)
    return at_its_end(lab, job)


def at_its_end(lab: Lab, job: Job) -> Counter[bytes | None]:
    """What is committed once a running job has committed all of its input."""
    job.until(lambda: values(lab, job).total() >= RECORDS, "not all is committed")
    time.sleep(2 * CHECKPOINT_MS / 1000)  # what it would write twice comes with another checkpoint
    job.kill()
    return values(lab, job)


def prepared(lab: Lab, job: Job, loaded: Loaded) -> int:
    """How many records the checkpoint promises beyond those that are committed."""
    return sum(offset for _, _, offset in loaded.offsets) - values(lab, job).total()


ALL = [(version, naming) for version in VERSIONS for naming in ("INCREMENTING", "POOLING")]


@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_a_healthy_job_is_no_finding(lab: Lab, tmp_path: Path, version: str, naming: str) -> None:
    """20 looks while it writes and commits a checkpoint each second."""
    source, sink = f"in-well-{version}", f"out-well-{version}"
    topics(lab, source, sink, RECORDS)
    job = Job(lab, tmp_path, source=source, sink=sink, version=version, naming=naming)
    job.start()
    try:
        job.until(lambda: values(lab, job).total() > 0, "nothing is committed")
        looks = [eoctl("status", *FAST, lab=lab) for _ in range(20)]
    finally:
        job.kill()
    assert [ran.status for ran in looks] == [0] * 20, looks[-1].text


@pytest.mark.parametrize(("version", "naming"), ALL)
def test_open_until_flink_restores(lab: Lab, tmp_path: Path, version: str, naming: str) -> None:
    name = f"open-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(lab, tmp_path, name, naming=naming, version=version)
    promised = prepared(lab, job, loaded)
    assert promised > 0

    ran = fates(lab, checkpoint)

    mine = all_open(ran, loaded, promised)
    assert all(0 < r["ends_in_seconds"] <= 600 for r in mine)
    others = [r for r in ran.rows if r["checkpoint_id"] is None]
    assert {r["fate"] for r in others} <= {"not-in-checkpoint"}
    behind = written(lab, job) - values(lab, job).total() - promised
    assert sum(r["records"] for r in others) == behind

    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))
    after = fates(lab, checkpoint)
    assert {r["fate"] for r in after.rows} == {"committed"}
    assert after.status == 0, after.text
    # Flink ends what its dead job left, of every id that it may have had: that is no contest
    seen = eoctl("status", *FAST, "-o", "json", lab=lab).json["contests"]
    assert not [c for c in seen if job.prefix in c["transactional_id"]]
    newer = after.json["newer_in_kafka"]
    assert bool(newer) == (naming == "INCREMENTING")
    assert after.json["newer_in_folder"] == []  # the restored job has a folder of its own


@pytest.mark.parametrize("lab", WITH_4_0, indirect=True, scope="module")
@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_lost_at_the_deadline(lab: Lab, tmp_path: Path, version: str, naming: str) -> None:
    name = f"lost-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(
        lab, tmp_path, name, timeout_ms=4_000, naming=naming, version=version
    )
    until(lambda: {r["fate"] for r in fates(lab, checkpoint).rows} == {"lost"}, 60)
    promised = prepared(lab, job, loaded)
    assert promised > 0

    ran = fates(lab, checkpoint)

    assert ran.status == 1, ran.text
    assert sum(r["records"] for r in ran.rows) == promised
    assert sum(w["records"] for r in ran.rows for w in r["written"]) == promised
    table = eoctl("txn", "commit", "--checkpoint", str(checkpoint), lab=lab)
    assert "lost: they are in the log, aborted, in out-" in table.text


@pytest.mark.parametrize("lab", WITH_4_0, indirect=True, scope="module")
@pytest.mark.parametrize(("version", "naming"), ALL)
def test_committed_in_a_dead_jobs_stead(
    lab: Lab, tmp_path: Path, version: str, naming: str
) -> None:
    name = f"commit-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(lab, tmp_path, name, naming=naming, version=version)
    words: tuple[str, ...] = ("--execute", "--yes", "--job-is-dead", *FAST)
    if naming == "POOLING":
        refused = commit(lab, checkpoint, *words)
        assert refused.status == 4
        assert "its ids carry no number of a checkpoint (POOLING)" in refused.text
        words = (*words, "--is-newest")
    beside = checkpoint.with_name("chk-9")
    shutil.copytree(checkpoint, beside)
    older = commit(lab, checkpoint, *words)
    assert older.status == 4
    assert "checkpoint 9 lies beside it" in older.text
    shutil.rmtree(beside)
    promised = prepared(lab, job, loaded)
    assert promised > 0  # nothing of it was sent

    ran = commit(lab, checkpoint, *words)

    assert ran.status == 0, ran.text
    assert f"Restore this job from checkpoint {CHECKPOINT} or a later one, or never" in ran.text
    assert promised_fates(lab, checkpoint) == {"committed"}
    assert prepared(lab, job, loaded) < promised  # some may wait behind what was begun after it
    assert set(values(lab, job).values()) == {1}
    again = commit(lab, checkpoint, *words)
    assert again.status == 0
    assert "there is nothing to commit" in again.text

    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))
    assert "already fenced" not in (tmp_path / "flink.log").read_text()


def test_what_is_no_checkpoint_is_refused(lab: Lab, tmp_path: Path) -> None:
    for path, status, words in [
        (str(tmp_path), 3, "_metadata: cannot be read: No such file"),
        ("hdfs://name/chk-4", 2, "is not on this host, and hdfs is not read here"),
    ]:
        ran = eoctl("txn", "commit", "--checkpoint", path, lab=lab)
        assert ran.status == status
        assert words in ran.text
    (tmp_path / "_metadata").write_bytes(b"no")
    ran = eoctl("txn", "commit", "--checkpoint", str(tmp_path), lab=lab)
    assert ran.status == 3
    assert "_metadata, byte 0: 4 bytes expected, 2 left" in ran.text


@pytest.mark.parametrize("lab", WITH_4_0, indirect=True, scope="module")
@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_salvaged_past_the_deadline(lab: Lab, tmp_path: Path, version: str, naming: str) -> None:
    """`lost` with the exact number; salvage brings it back, and Flink's restore writes the rest."""
    name = f"salvage-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(
        lab, tmp_path, name, timeout_ms=4_000, naming=naming, version=version
    )
    until(lambda: {r["fate"] for r in fates(lab, checkpoint).rows} == {"lost"}, 60)
    promised = prepared(lab, job, loaded)
    words = ("txn", "salvage", str(checkpoint), "-o", "json")

    looked = eoctl(*words, lab=lab)
    assert looked.status == 1, looked.text
    assert sum(r["records"] for r in looked.rows) == promised > 0
    done = eoctl(*words, "--execute", "--yes", lab=lab)

    assert done.status == 0, done.text
    assert prepared(lab, job, loaded) == 0
    again = eoctl(*words, "--execute", "--yes", lab=lab)
    assert (again.status, "there is nothing to salvage" in again.text) == (0, True), again.text
    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))


def set_to(lab: Lab, folder: Path, group: str, store: str, offsets: Loaded) -> None:
    """Set a group, which stands elsewhere, to what Flink's own classes read of a checkpoint."""
    wanted = {(topic, partition): offset for topic, partition, offset in offsets.offsets}
    commit_offsets(lab, group, dict.fromkeys(wanted, 1))
    plan = str(folder / "plan.json")
    words = ("--group", group, "--from-store", store, "--out", plan)
    planned = eoctl("restart", "plan", *words, lab=lab)
    assert planned.status == 0, planned.text
    applied = eoctl("restart", "apply", plan, "--execute", "--yes", lab=lab)
    assert applied.status == 0, applied.text
    assert committed(lab, group) == wanted


@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_the_rest_is_fenced_and_a_fresh_job_goes_on_from_its_group(
    lab: Lab, tmp_path: Path, version: str, naming: str
) -> None:
    """The job never comes back: all is ended, its group is set, and another begins there."""
    name = f"afresh-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(lab, tmp_path, name, naming=naming, version=version)
    words = ("--execute", "--yes", "--job-is-dead", "--is-newest", *FAST)
    ran = commit(lab, checkpoint, *words, "--rest", "fence", "--never-restored")
    assert ran.status == 0, ran.text
    assert {r["fate"] for r in fates(lab, checkpoint).rows} == {"committed"}
    assert prepared(lab, job, loaded) == 0

    group = f"flink-{job.sink}"
    set_to(lab, tmp_path, group, f"flink:{checkpoint}#from-kafka", loaded)

    assert afresh(lab, job, group) == Counter(b"%d" % n for n in range(RECORDS))


@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_a_savepoint_is_committed_by_the_operators_word_alone(
    lab: Lab, tmp_path: Path, version: str, naming: str
) -> None:
    """Flink commits a savepoint's transactions with its next checkpoint: it does not live so long.

    It has no checkpoint before, so that all that the savepoint promises is open.
    """
    name = f"savepoint-{version}-{naming.lower()}"
    source, sink = f"in-{name}", f"out-{name}"
    topics(lab, source, sink, RECORDS)
    usual = Job(lab, tmp_path, source=source, sink=sink, version=version, naming=naming)
    job = Job(
        lab,
        tmp_path,
        source=source,
        sink=sink,
        version=version,
        naming=naming,
        settings={"execution.checkpointing.interval": "365 d"},  # the first: at a random moment
    )
    job.start()
    job.until(lambda: written(lab, job) > 1000, "nothing is written")
    savepoint = job.savepoint()
    job.kill()
    loaded = load(version, savepoint)
    assert values(lab, job).total() == 0
    promised = prepared(lab, job, loaded)
    assert promised > 1000

    ran = fates(lab, savepoint)

    all_open(ran, loaded, promised)
    words = ("--execute", "--yes", "--job-is-dead", *FAST)
    refused = commit(lab, savepoint, *words)
    assert refused.status == 4, refused.text
    assert "it is a savepoint: Kafka cannot tell whether it is the newest" in refused.text
    assert promised_fates(lab, savepoint) == {"open"}

    ran = commit(lab, savepoint, *words, "--is-newest")

    assert ran.status == 0, ran.text
    assert promised_fates(lab, savepoint) == {"committed"}
    assert set(values(lab, job).values()) <= {1}  # some may wait behind what was begun after it
    assert restored(lab, usual, savepoint) == Counter(b"%d" % n for n in range(RECORDS))


def test_a_savepoint_that_a_later_checkpoint_committed(lab: Lab, tmp_path: Path) -> None:
    """The operator's word does not help against what Kafka proves."""
    topics(lab, "in-passed", "out-passed", RECORDS)
    job = Job(lab, tmp_path, source="in-passed", sink="out-passed")
    job.start()
    job.until(lambda: values(lab, job).total() > 0, "nothing is committed")
    savepoint = job.savepoint()
    loaded = load(VERSIONS[0], savepoint)
    promised = sum(offset for _, _, offset in loaded.offsets)
    job.until(lambda: values(lab, job).total() > promised, "no checkpoint came after it")
    job.kill()

    ran = fates(lab, savepoint)

    assert promised_fates(lab, savepoint) == {"committed"}
    assert max(ran.json["newer_in_kafka"]) > loaded.checkpoint
    words = ("--execute", "--yes", "--job-is-dead", "--is-newest", *FAST)
    again = commit(lab, savepoint, *words)
    assert (again.status, "there is nothing to commit" in again.text) == (0, True), again.text


@pytest.mark.parametrize(("version", "naming"), [ALL[0], ALL[3]])
def test_a_job_that_ended_with_a_savepoint_goes_on_from_its_offsets(
    lab: Lab, tmp_path: Path, version: str, naming: str
) -> None:
    """Flink commits what it promises as it ends; a fresh job begins where a new group is set."""
    name = f"ended-{version}-{naming.lower()}"
    source, sink = f"in-{name}", f"out-{name}"
    topics(lab, source, sink, RECORDS)
    job = Job(lab, tmp_path, source=source, sink=sink, version=version, naming=naming)
    job.start()
    job.until(lambda: values(lab, job).total() > 0, "nothing is committed")
    savepoint = job.savepoint(stop=True)
    loaded = load(version, savepoint)
    assert 0 < values(lab, job).total() < RECORDS
    assert prepared(lab, job, loaded) == 0
    ran = fates(lab, savepoint)
    assert (ran.status, {r["fate"] for r in ran.rows} <= {"committed"}) == (0, True), ran.text

    set_to(lab, tmp_path, f"new-{name}", f"flink:{savepoint}", loaded)

    assert afresh(lab, job, f"new-{name}") == Counter(b"%d" % n for n in range(RECORDS))


def test_a_frozen_job_that_wakes_doubles_nothing(lab: Lab, tmp_path: Path) -> None:
    """It is taken for dead, its transactions are committed, and it wakes with its epochs valid.

    Its tasks stay held, so that it neither writes nor commits: only its process and clients live.
    """
    source, sink = "in-frozen", "out-frozen"
    topics(lab, source, sink, RECORDS)
    job = Job(lab, tmp_path, source=source, sink=sink)
    checkpoint = job.frozen_before_commit(CHECKPOINT)
    try:
        loaded = load(VERSIONS[0], checkpoint)
        assert prepared(lab, job, loaded) > 0
        ran = commit(lab, checkpoint, "--execute", "--yes", "--job-is-dead", *FAST)
        assert ran.status == 0, ran.text
        assert promised_fates(lab, checkpoint) == {"committed"}
        job.thaw()
        time.sleep(2 * CHECKPOINT_MS / 1000)  # it might write, or commit once more, meanwhile
    finally:
        job.kill()
    assert set(values(lab, job).values()) == {1}
    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_on_older_brokers(start_lab: Callable[[LabSpec], Lab], tmp_path: Path, naming: str) -> None:
    old = start_lab(LabSpec(name=f"flink-{naming.lower()}", kafka_version="3.9.1", settings=SOON))
    job, checkpoint, loaded = killed(old, tmp_path, "old", naming=naming, version=VERSIONS[0])
    words = ("--execute", "--yes", "--job-is-dead", "--is-newest", "--rest", "fence", *FAST)
    ran = commit(old, checkpoint, *words)
    assert ran.status == 0, ran.text
    assert prepared(old, job, loaded) == 0
    assert restored(old, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))


def test_what_the_lab_writes_is_read_by_flink(lab: Lab) -> None:
    """`lab break checkpoint`: Flink's own classes read from its file what was opened."""
    truths = break_(lab, "checkpoint", count=2)
    folder = lab.folder / "checkpoints" / truths[0].topic / f"chk-{WRITTEN}"
    loaded = load(VERSIONS[0], folder)
    assert loaded.checkpoint == WRITTEN
    assert loaded.committables == [
        (t.transactional_id, t.producer_id, t.producer_epoch, WRITTEN) for t in truths[::2]
    ]
    assert [w[:2] for w in loaded.writers] == [(truths[0].topic, n) for n in range(2)]
