"""`state deliver --into topic:` on Spark: each row once, whoever is killed, as the local engine."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.engine.topic_delivery import TopicDelivery
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.operations.jobs import spark_step
from recovery.facts import PartitionFacts
from recovery.shared.digest import Digest
from spark_jobs import deliver
from spark_jobs.session import executors
from spark_jobs.session.progress import JobProgress
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.test_state_deliver import ACT, COMPACT, Row, consumed
from tests.share import fewer
from tests.spark.test_audit import SPARK
from tests.spark.test_audit_mirror import failing_once
from tests.unit.state.test_state_compare import Entries, state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def made(folder: Path, count: int) -> tuple[str, dict[int, list[Row]]]:
    """A state of three partitions, one of them empty, and its rows in the order of offsets."""
    entries: Entries = {
        0: {b"k%d" % n: (1_000 + n, b"v%d" % n) for n in range(count)},
        1: {b"x%d" % n: (1_000 + n, b"w" * (n % 50)) for n in range(count // 3)},
        2: {},
    }
    rows: dict[int, list[Row]] = {
        p: [(k, v, t or 0) for k, (t, v) in e.items()] for p, e in entries.items()
    }
    return str(state(folder, entries)), rows


def delivered(lab: Lab, folder: str, new: str, *words: str, kill_at: str | None = None) -> Ran:
    into = ("state", "deliver", folder, "--into", f"topic:{new}", *ACT, *words)
    return eoctl(*into, lab=lab, env=environment(EOCTL_TEST_KILL_AT=kill_at), timeout=400)


def test_every_row_is_there_once_though_a_task_is_tried_again(
    lab1: Lab,
    topic: MakeTopic,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several transactions in a partition. What the tasks have read back is not read again."""
    folder, rows = made(tmp_path / "state", fewer(100_000, 1_500))
    new = topic(lab1, 3, config=COMPACT)
    requests: list[Mapping[str, Any]] = []
    results: list[Mapping[str, Any]] = []

    def launch(name: str, request: Mapping[str, Any], access: Access, *_: Any, **__: Any) -> Any:
        assert name == "deliver"
        requests.append(request)
        results.append(deliver.work(spark, request, access, JobProgress(None)))
        return results[-1]

    async def unread(self: TopicDelivery, facts: PartitionFacts) -> Digest:
        return self.read[
            facts.partition, facts.log_start_offset or 0, facts.last_stable_offset or 0
        ]

    monkeypatch.setattr(spark_step, "launch", launch)
    monkeypatch.setattr(executors, "run", failing_once(executors.run))
    with monkeypatch.context() as patch:
        patch.setattr(TopicDelivery, "digest", unread)  # of this process: not of the tasks
        ran = delivered(lab1, folder, new, "--master", "local[2]")
    assert ran.status == 0, ran.text
    assert {p: consumed(lab1, new, p) for p in rows} == rows
    assert [request["partitions"] for request in requests] == [[0, 1, 2]]
    told = {p: (one["sent"], one["rows"]) for p, one in results[0]["delivered"].items()}
    counts = [len(rows[p]) for p in range(3)]
    assert told == {"0": (0, counts[0]), "1": (counts[1], counts[1]), "2": (0, 0)}
    again = delivered(lab1, folder, new, "--master", "local[2]")
    assert (again.status, "there already" in again.text) == (0, True), again.text
    assert len(requests) == 1
    table = eoctl("state", "deliver", folder, "--into", "sql:sqlite:///t#x", "--master", "local[2]")
    assert (table.status, "tasks write into topics alone" in table.text) == (2, True)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_begun_here_killed_and_ended_on_spark(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first partition has its first transaction."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "home"))
    folder, rows = made(tmp_path / "state", 30_000)
    new = topic(lab1, 3, config=COMPACT)
    killed = delivered(lab1, folder, new, kill_at="deliver-committed-2")
    assert killed.status == -signal.SIGKILL
    there = len(consumed(lab1, new, 0))
    assert 0 < there < len(rows[0])
    ended = delivered(lab1, folder, new, *SPARK)
    assert ended.status == 0, ended.text
    assert {p: consumed(lab1, new, p) for p in rows} == rows
    [record] = [json.loads(p.read_text()) for p in (tmp_path / "home").glob("jobs/*/job.json")]
    sent = {p: one["sent"] for p, one in record["result"]["delivered"].items()}
    assert sent == {"0": len(rows[0]) - there, "1": len(rows[1]), "2": 0}
