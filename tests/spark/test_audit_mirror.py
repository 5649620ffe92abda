"""`audit mirror` and its map on Spark: as the local engine has them, and as it was planted."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.engine.mirror_continuing import AHEAD
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.audit.mirror import MirrorAudit, MirrorRequest
from eoctl.operations.audit.mirror_keep import KeptRanges, MirrorKeep
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer
from recovery.audit.audit_rows import MirrorKeptRow
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from spark_jobs.session import executors
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit
from tests.kafka.test_audit_mirror import PARTITIONS, mirrored, written
from tests.kafka.test_audit_mirror import told as told_of
from tests.kafka.test_failover import ids_from, write
from tests.share import fewer, share
from tests.spark.sinking import kill_members
from tests.spark.test_audit import SPARK, Attempts, by_both, by_spark, reading_workers, told
from tests.started import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


def question(lab: Lab, name: str, copy: str) -> MirrorRequest:
    """With a mirror that is reached by a way of its own."""
    here = Context(None, {"bootstrap.servers": lab.bootstrap_servers}, ())
    start = parse_bound("earliest", 0)
    return MirrorRequest(here, parse_selector(name), copy, here, start, offset_syncs="none")


def failing_once(run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The first task has done its work when its executor is lost; it is tried again."""

    def ran(
        spark: "SparkSession", function: Callable[[int], Any], count: int, *rest: Any, **more: Any
    ) -> list[Any]:
        def once(task: int) -> Any:
            from pyspark import TaskContext

            answer, context = function(task), TaskContext.get()
            if task == 0 and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("its executor was lost")
            return answer

        return run(spark, once, count, *rest, **more)

    return ran


def test_planted_differences_are_found_and_nothing_else(
    lab1: Lab, topic: MakeTopic, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where fewer rows are shown than there are; a task is tried again."""
    count = share(30_000)
    name, copy = topic(lab1, PARTITIONS), topic(lab1, PARTITIONS)
    source = written(lab1, name, count, 11)
    lag = count // 100
    made = [mirrored(lab1, copy, p, source[p], lag, p) for p in range(PARTITIONS)]
    monkeypatch.setattr(executors, "run", failing_once(executors.run))
    audit = MirrorAudit(question(lab1, name, copy))
    with Attempts(spark) as attempts:
        local, answer = by_both(lab1, spark, audit)
        attempts.wait(1, 10)
    assert attempts.failed == 1
    assert answer == local
    assert answer.exit_status == 1
    for partition, (planted, seen, _) in enumerate(made):
        assert sorted(map(str, told_of(told(answer), partition))) == sorted(map(str, planted))
        assert answer.extra["examined"][partition]["behind"] == lag
        assert answer.extra["examined"][partition]["source_records"] == len(seen)
    assert answer.extra["findings"] == sum(len(planted) for planted, *_ in made)
    most = len(made[0][0]) + 2
    local, less = by_both(lab1, spark, audit, most)
    assert (less, less.rows) == (local, answer.rows[:most])


def kept(lab: Lab, keep: MirrorKeep) -> Answer:
    """The map, brought up to date by the local engine."""

    async def run(cluster: Any) -> Answer:
        looked = await keep.look(cluster)
        return keep.answer(looked, await keep.read(cluster, looked, AuditOptions()))

    return with_cluster(keep.question.own, None, run)


def kept_on_spark(
    lab: Lab, spark: "SparkSession", keep: MirrorKeep, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Answer:
    """The map, brought up to date by a job in this session."""
    looked = with_cluster(keep.question.own, None, keep.look)
    assert isinstance(looked, KeptRanges)
    request = keep.request
    with monkeypatch.context() as patch:
        answer = str(folder / "found.json")
        patch.setattr(
            MirrorKeep,
            "request",
            lambda *given: request(*given[1:]).model_copy(update={"answer": answer}),
        )
        by_spark(lab, spark, keep, looked)
    assert len(list(folder.glob("*.part"))) > 0
    keep.take(looked, folder, last=True)
    found = json.loads(Path(answer).read_bytes())
    return keep.answer(looked, keep.answer_type.model_validate(found))


def content(path: Path) -> dict[str, Any]:
    """A map without the times at which it was made."""
    whole = mirror_maps.read(path).model_dump(mode="json")
    for part in whole["partitions"]:
        assert part.pop("looked_at") > 0
    for one in whole["commits"]:
        assert one.pop("seen_at") > 0
    return whole


def test_a_map_made_on_spark_is_that_of_the_local_engine(
    lab1: Lab,
    topic: MakeTopic,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In two runs, the mirror killed in between: it copies some records again. Then what the
    mirror deletes before a run sees it."""
    count = fewer(60_000, 900)
    name, copy, began = topic(lab1, 3), topic(lab1, 3), int(time.time() * 1000) - 3_600_000
    ids = [ids_from(1_000_000 * p, count) for p in range(3)]
    keeps = [MirrorKeep(question(lab1, name, copy), tmp_path / f"{n}.map") for n in ("a", "b")]
    half, again = count // 2, count // 10
    commit(lab1, f"{name}-group", {(name, p): 100 + p for p in range(3)})
    rounds = [
        ([values[:half] for values in ids], [values[: half - 50] for values in ids]),
        ([values[half:] for values in ids], [values[half - 50 - again : -20] for values in ids]),
    ]
    monkeypatch.setattr(executors, "run", failing_once(executors.run))
    for number, (source, mirror) in enumerate(rounds):
        write(lab1, name, source, began)
        write(lab1, copy, mirror, began, size=70)
        there = [half - 50, count - 20][number]
        local = kept(lab1, keeps[0])
        answer = kept_on_spark(lab1, spark, keeps[1], tmp_path, monkeypatch)
        assert told(answer) == told(local)
        assert content(tmp_path / "b.map") == content(tmp_path / "a.map")
        rows = [row for row in answer.rows if isinstance(row, MirrorKeptRow)]
        assert [(row.pairs, row.waiting) for row in rows] == [
            (there, 50 if number == 0 else 20)
        ] * 3
        assert (answer.exit_status, answer.extra["commits"]) == (0, 3)
    write(lab1, copy, [[value] for value in ids_from(5_000_000, 3)], began)
    cut = TopicPartition(copy, 1, -1)
    admin = AdminClient(lab1.client_properties())
    admin.delete_records([cut])[cut].result(20)
    local = kept(lab1, keeps[0])
    answer = kept_on_spark(lab1, spark, keeps[1], tmp_path, monkeypatch)
    assert (told(answer), answer.errors) == (told(local), local.errors)
    assert [e.partition for e in answer.errors] == [1]
    assert "the mirror deleted its records from" in answer.errors[0].detail
    assert content(tmp_path / "b.map") == content(tmp_path / "a.map")
    assert [row["unseen"] for row in told(answer)] == [0, 2, 0]  # a record and its marker
    assert count < AHEAD, "else the map would not reach the source's end"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_launched_map_with_workers_and_eoctl_killed(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, lab1: Lab, tmp_path: Path
) -> None:
    """Two clusters. Spark tries the tasks again; once some partitions are in the file, eoctl and
    its job are killed, and the next run reads the others alone."""
    other = start_lab(LabSpec(name="map-mirror"))
    state = tmp_path / "state"
    env = environment(EOCTL_STATE_DIR=str(state))
    counts, began = [400, 800, 60_000, 90_000], int(time.time() * 1000) - 3_600_000
    name, copy = topic(lab1, 4), topic(other, 4)
    ids = [ids_from(1_000_000 * p, count) for p, count in enumerate(counts)]
    write(lab1, name, ids, began)
    write(other, copy, [values[:-10] for values in ids], began, size=70)
    size = sum(f.stat().st_size for f in lab1.folder.rglob(f"{name}-*/*.log"))
    words = ["audit", "mirror", name, copy, "--mirror-bootstrap-server", other.bootstrap_servers]
    words += ["-o", "json", "--keep"]
    slow = ["--max-rate", str(max(1, size // 30))]
    local = eoctl(*words, str(tmp_path / "a.map"), lab=lab1, env=env, timeout=600)
    assert local.status == 0, local.text
    argv = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words, str(tmp_path / "b.map")]
    with started([*argv, *SPARK, *slow], env=env, start_new_session=True, text=True) as running:
        for pid in reading_workers(lab1, state, running):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 600
        while not (tmp_path / "b.map").exists():
            assert running.poll() is None, "it ended before a first save"
            assert time.monotonic() < until
            time.sleep(0.2)
        running.kill()
        leader = json.loads(max(state.glob("jobs/*/job.json")).read_text())["pid"]
        kill_members(int(leader), b"")
    there = {p.partition for p in mirror_maps.read(tmp_path / "b.map").partitions}
    assert {0, 1} <= there != {0, 1, 2, 3}
    ran = eoctl(*words, str(tmp_path / "b.map"), *SPARK, lab=lab1, env=env, timeout=600)
    assert ran.status == 0, ran.text
    assert (ran.json["engine"], local.json["engine"]) == ("spark", "local")
    assert [row["new_pairs"] for row in ran.rows] == [
        0 if p in there else count - 10 for p, count in enumerate(counts)
    ]
    assert content(tmp_path / "b.map") == content(tmp_path / "a.map")
    follow = eoctl(*words, str(tmp_path / "b.map"), *SPARK, "--follow", lab=lab1, env=env)
    assert (follow.status, "a round reads what is new" in follow.text) == (2, True)
