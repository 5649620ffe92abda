"""The sink and merges on Spark, staged in object storage, and how far a rebuild into it is: moto's
server, a fake, which fails."""

import io
import json
import os
import random
import threading
import urllib.parse
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.engine.rebuild import rebuild
from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.operations.state.rebuild_answer import rebuild_state
from recovery.errors import EoctlError, RefusedError
from spark_jobs.rebuild import SparkEngine
from spark_jobs.session.progress import JobProgress
from spark_jobs.sink.write import write_exactly_once
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import World
from tests.kafka.state_oracle import fill
from tests.kafka.test_state_objects import BUCKET, Objects
from tests.object_store import Fault, Faulty, environment, make_bucket, s3_server
from tests.share import kills
from tests.spark.rebuilding import context
from tests.spark.sinking import kill_one, values, watched
from tests.spark.test_merge import KEPT, SPARK, WHOLE, words
from tests.spark.test_sink import access

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eoctl.engine.rebuild import RebuildJob
    from recovery.state.manifest import Manifest

pytestmark = pytest.mark.timeout(1200)


@dataclass
class Store:
    """A bucket behind a proxy. fault: what befalls requests."""

    port: int
    fault: Callable[[str], Fault] = lambda line: None
    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> Fault:
        self.lines.append(line)
        return self.fault(line)

    def batch(self, root: str, job: str, number: int) -> Objects:
        return Objects(self.port, f"{root}/{job}/batch-{number}")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with s3_server() as port:
        make_bucket(port, BUCKET)
        there = Store(port)
        with closing(Faulty(port, there)) as proxy:
            for name, value in environment(proxy.port).items():
                monkeypatch.setenv(name, value)
            yield there


@pytest.fixture
def executors_see(store: Store, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Python workers of the tests' own session get the storage's variables too."""
    for name in environment(0):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])


def staged_values(batch: Objects) -> Counter[bytes]:
    """The values that a batch's manifest lists, by pyarrow and plain HTTP."""
    import pyarrow.parquet as pq

    found: Counter[bytes] = Counter()
    for one in batch.manifest["files"]:
        table = pq.read_table(io.BytesIO(batch.read(one["file"])))
        found.update(table.column("value").to_pylist())
    return found


def sent(
    frame: "DataFrame", lab: Lab, name: str, root: str, batch: int = 0, **options: Any
) -> dict[str, Any]:
    """Send a batch to a topic, staged below a prefix of the bucket."""
    where = {"staging_folder": f"s3://{BUCKET}/{root}", "access": access(lab)}
    return write_exactly_once(frame, topic=name, batch=batch, **{"job": name, **where, **options})


@pytest.mark.long
def test_batches_staged_in_a_storage_that_fails(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, store: Store, executors_see: None
) -> None:
    """Rows that differ at each evaluation: those that the first manifest lists, each once."""
    name, root, chance = topic(lab1, 2), f"of sink/{uuid.uuid4().hex}", random.Random(7)
    store.fault = lambda line: chance.choice(["503", "cut", "lost"] + [None] * 15)

    def write(batch: int, **options: Any) -> dict[str, Any]:
        frame = spark.range(0, 900, 1, 3).selectExpr("uuid() key", "uuid() value")
        return sent(frame, lab1, name, root, batch, rows_per_transaction=200, **options)

    assert write(0)["rows_sent_now"] == 900
    first, second = store.batch(root, name, 0), store.batch(root, name, 1)
    rows = staged_values(first)
    assert (rows.total(), values(lab1, name)) == (900, rows)
    assert write(0)["rows_sent_now"] == 0
    assert write(1, keep_batches=1)["rows_sent_now"] == 900
    assert values(lab1, name) == rows + staged_values(second)
    assert first.names() == []
    listed = [one["file"] for one in second.manifest["files"]]
    assert sorted(second.names()) == sorted(["done.json", "manifest.json", *listed])


@pytest.mark.long
def test_what_cannot_be_removed_stays_for_the_next_batch(
    spark: "SparkSession",
    lab1: Lab,
    topic: MakeTopic,
    store: Store,
    executors_see: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A batch that was sent has not failed, though its clean-up has."""
    name, root = topic(lab1, 1), uuid.uuid4().hex

    def write(batch: int) -> list[str]:
        sent(spark.range(3).selectExpr("uuid() value"), lab1, name, root, batch, keep_batches=1)
        return [r.getMessage() for r in caplog.records if r.name == "eoctl.sink"]

    assert write(0) == []
    store.fault = lambda line: "403" if line.startswith(("DELETE ", "POST ")) else None
    [told] = write(1)
    assert "the next batch removes them" in told
    assert store.batch(root, name, 0).names() != []
    store.fault = lambda line: None
    assert write(2) == [told]
    assert store.batch(root, name, 0).names() == store.batch(root, name, 1).names() == []
    assert values(lab1, name).total() == 9


@pytest.mark.long
def test_workers_killed_while_the_storage_fails(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, store: Store, executors_see: None
) -> None:
    """Killed while they stage and while they send, in each of the runs."""
    name, root, killed = topic(lab1, 2), f"kills/{uuid.uuid4().hex}", 0
    rows: Counter[bytes] = Counter()
    for seed in range(kills(10)):
        chance, job, ended = random.Random(seed), f"{name}-{seed}", threading.Event()
        store.fault = lambda line, c=chance: c.choice(["503", "cut", "lost"] + [None] * 30)  # type: ignore[misc]

        def kill(draw: random.Random = random.Random(seed), ended: threading.Event = ended) -> None:
            nonlocal killed
            seen = len(store.lines)
            while len(store.lines) < seen + draw.randrange(1, 30) and not ended.wait(0.01):
                pass
            with watched(lab1, name) as written:
                begin = written()
                for more in (0, draw.randrange(1, 4000)):
                    while written() < begin + more and not ended.wait(0.005):
                        pass
                    if not ended.is_set():
                        killed += kill_one(spark, draw)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            for attempt in range(5):
                frame = spark.range(0, 6000, 1, 3).selectExpr("uuid() key", "uuid() value")
                try:
                    sent(frame, lab1, name, root, job=job, rows_per_transaction=700)
                    break
                except EoctlError:
                    assert attempt < 4
        finally:
            ended.set()
            thread.join()
        staged = staged_values(store.batch(root, job, 0))
        assert staged.total() == 6000
        rows += staged
    assert killed >= kills(10)
    assert values(lab1, name) == rows


@pytest.mark.long
def test_a_rebuild_there_tells_how_far_it_is(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, store: Store, executors_see: None
) -> None:
    """By the ranges that have ended, each once, and what was done before is not counted again."""
    log, root = topic(lab1, config={"cleanup.policy": "compact"}), f"told/{uuid.uuid4().hex}"
    fill(lab1, log, seed=8, records=1200, keys=90, partitions=1)
    seen: list[tuple[int, int, int]] = []
    engines: list[SparkEngine] = []

    class Watched(JobProgress):
        def watch(self, look: Callable[[], Any]) -> None:
            super().watch(look)
            self.look = look

        def see(self) -> None:
            report = self.look()
            if report["stage"] == "read ranges":
                seen.append((report["records"], report["records_total"], report["bytes"]))

    def run(rebuild_job: "RebuildJob", access: Access) -> "Manifest":
        progress = Watched(None)
        engine = SparkEngine(spark, rebuild_job.how.storage, progress)
        engines.append(engine)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.05):
                with suppress(AttributeError):
                    progress.see()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            return rebuild(rebuild_job, access, engine, "spark")
        finally:
            ended.set()
            thread.join()

    making = Making("plain", {}, f"s3://{BUCKET}/{root}", range_offsets=200)
    request = RebuildRequest((log,), "lso", making, "spark")
    rebuild_state(context(lab1), request, 120, spark=run)
    (cut,) = json.loads(Objects(store.port, root).read("cut.json"))["topics"]
    end = cut["partitions"][0]["end"]
    assert {total for _, total, _ in seen} == {end}
    records = [done for done, _, _ in seen]
    assert records == sorted(records)
    assert len(set(records)) > 2, "it rose while it ran"
    assert max(records) == end
    assert engines[0].counters.offsets == end
    assert engines[0].counters.bytes == max(size for _, _, size in seen) > 0


@pytest.mark.long
def test_a_storage_that_writes_over_what_may_only_be_created_is_refused(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, store: Store, executors_see: None
) -> None:
    name, root = topic(lab1, 1), uuid.uuid4().hex
    store.fault = lambda line: "overwrite" if line.startswith("PUT ") else None
    with pytest.raises(RefusedError, match="writes over an object that may only be created"):
        sent(spark.range(3).selectExpr("uuid() value"), lab1, name, root)
    assert Objects(store.port, root).names() == []
    assert values(lab1, name).total() == 0


@pytest.mark.long
def test_a_merge_is_staged_there_and_nothing_is_left(
    lab1: Lab, topic: MakeTopic, store: Store, tmp_path: Path
) -> None:
    world, root = World(lab1, topic, "json", partitions=2), f"merges/{uuid.uuid4().hex}"
    world.output = topic(lab1, 2, 1, KEPT)
    world.write_logs()
    chance = random.Random(3)
    store.fault = lambda line: chance.choice(["503", "cut", "lost"] + [None] * 15)
    more = ["--staging", f"s3://{BUCKET}/{root}", *WHOLE, *SPARK]
    more += ["--from-merge-offset=1:0", "--output-offset=1:0"]
    there = {name: os.environ[name] for name in environment(0)}
    there["EOCTL_STATE_DIR"] = str(tmp_path)
    ran = eoctl(*words(world, *more), lab=lab1, env=there, timeout=300)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
    put = [urllib.parse.unquote(line.split()[1]) for line in store.lines if "PUT" in line]
    assert any(".parquet" in one for one in put), "it was staged there"
    assert Objects(store.port, root).names() == []
