"""`txn commit --checkpoint` on real Flink jobs, killed between a checkpoint and its commit.

What a number must be comes from Flink's own classes (the source offsets of the checkpoint, as they
load it) and from plain consumers of the sink's topic.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.flink.job import CHECKPOINT_MS, PARTITIONS, VERSIONS, Job, Loaded, load, topics
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import SOON
from tests.kafka.crashed import until
from tests.kafka.merging import consumed
from tests.kafka.offsets_oracle import consumed_number

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RECORDS = 10_000
CHECKPOINT = 2


@pytest.fixture(scope="module", params=[2, 1], ids=["transactions-v2", "transactions-v1"])
def lab(request: pytest.FixtureRequest, start_lab: Callable[[LabSpec], Lab]) -> Lab:
    version = request.param
    return start_lab(LabSpec(name=f"flink-v{version}", transaction_version=version, settings=SOON))


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


def commit(lab: Lab, checkpoint: Path, *words: str) -> Ran:
    return eoctl("txn", "commit", "--checkpoint", str(checkpoint), *words, lab=lab)


def values(lab: Lab, job: Job) -> Counter[bytes | None]:
    """What a read_committed consumer sees in the sink's topic: each value and how often."""
    places = [(job.sink, partition) for partition in range(PARTITIONS)]
    return Counter(copied[1] for rows in consumed(lab, places).values() for _, copied in rows)


def written(lab: Lab, job: Job) -> int:
    """How many records the sink wrote, whatever became of them."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": "oracle", "isolation.level": "read_uncommitted"}
    consumer = Consumer(lab.client_properties() | config)
    places = [(job.sink, partition) for partition in range(PARTITIONS)]
    ranges = {p: consumer.get_watermark_offsets(TopicPartition(*p), 10) for p in places}
    consumer.close()
    return consumed_number(lab, "read_uncommitted", ranges)


def restored(lab: Lab, job: Job, checkpoint: Path) -> Counter[bytes | None]:
    """What is committed once Flink, started from a checkpoint, has committed all of its input."""
    job.start(restore=checkpoint)
    job.until(lambda: values(lab, job).total() >= RECORDS, "not all is committed")
    time.sleep(2 * CHECKPOINT_MS / 1000)  # what it would write twice comes with another checkpoint
    job.kill()
    return values(lab, job)


def prepared(lab: Lab, job: Job, loaded: Loaded) -> int:
    """How many records the checkpoint promises beyond those that are committed."""
    return sum(offset for _, _, offset in loaded.offsets) - values(lab, job).total()


ALL = [(version, naming) for version in VERSIONS for naming in ("INCREMENTING", "POOLING")]


@pytest.mark.parametrize(("version", "naming"), ALL)
def test_open_until_flink_restores(lab: Lab, tmp_path: Path, version: str, naming: str) -> None:
    name = f"open-{version}-{naming.lower()}"
    job, checkpoint, loaded = killed(lab, tmp_path, name, naming=naming, version=version)
    promised = prepared(lab, job, loaded)
    assert promised > 0

    ran = fates(lab, checkpoint)

    assert ran.status == 1, ran.text
    mine = [r for r in ran.rows if r["checkpoint_id"] is not None]
    assert [r["fate"] for r in mine] == ["open"] * len(loaded.committables)
    assert sorted(
        (r["transactional_id"], r["producer_id"], r["producer_epoch"], r["checkpoint_id"])
        for r in mine
    ) == [*loaded.committables]
    assert sum(r["records"] for r in mine) == promised
    assert all(0 < r["ends_in_seconds"] <= 600 for r in mine)
    others = [r for r in ran.rows if r["checkpoint_id"] is None]
    assert {r["fate"] for r in others} <= {"not-in-checkpoint"}
    behind = written(lab, job) - values(lab, job).total() - promised
    assert sum(r["records"] for r in others) == behind

    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))
    after = fates(lab, checkpoint)
    assert {r["fate"] for r in after.rows} == {"committed"}
    assert after.status == 0, after.text
    newer = after.json["newer_in_kafka"]
    assert bool(newer) == (naming == "INCREMENTING")
    assert after.json["newer_in_folder"] == []  # the restored job has a folder of its own


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
    assert "lost: they lie, aborted, in out-" in table.text


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
    assert prepared(lab, job, loaded) > 0  # nothing of it was sent

    ran = commit(lab, checkpoint, *words)

    assert ran.status == 0, ran.text
    assert f"Restore this job from checkpoint {CHECKPOINT} or a later one, or never" in ran.text
    assert prepared(lab, job, loaded) == 0  # all that it promises, and nothing else
    assert set(values(lab, job).values()) == {1}
    again = commit(lab, checkpoint, *words)
    assert again.status == 0
    assert "there is nothing to commit" in again.text

    assert restored(lab, job, checkpoint) == Counter(b"%d" % n for n in range(RECORDS))
    assert "already fenced" not in (tmp_path / "flink.log").read_text()


def test_what_is_no_checkpoint_is_refused(lab: Lab, tmp_path: Path) -> None:
    for path, status, words in [
        (str(tmp_path), 3, "_metadata: cannot be read: No such file"),
        ("s3://bucket/chk-4", 2, "is not on this host, and s3 is not read here"),
    ]:
        ran = eoctl("txn", "commit", "--checkpoint", path, lab=lab)
        assert ran.status == status
        assert words in ran.text
    (tmp_path / "_metadata").write_bytes(b"no")
    ran = eoctl("txn", "commit", "--checkpoint", str(tmp_path), lab=lab)
    assert ran.status == 3
    assert "_metadata, byte 0: 4 bytes expected, 2 left" in ran.text
