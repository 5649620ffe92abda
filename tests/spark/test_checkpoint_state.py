"""The state of real Structured Streaming queries, read from their checkpoints, beside real states.

What is expected is summed here, from what the queries were given.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.operations.state import spark_state
from eoctl.operations.state.rebuild_answer import rebuild_state
from eoctl.operations.state.spark_state import CheckpointState
from eoctl.operations.state.state_comparison import Comparison, against_checkpoint
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import StateRows
from recovery.errors import Exit, IncompleteError, RefusedError, UsageError
from recovery.state.state_rows import StateCompareRow, StateSparkStore
from spark_jobs import checkpoint_state
from spark_jobs.session.progress import JobProgress
from tests.docs.pages import follows
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import producer
from tests.share import only_here
from tests.spark.rebuilding import context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPACT = {"cleanup.policy": "compact"}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
STATE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS = {"hdfs": "HDFSBackedStateStoreProvider", "rocksdb": "RocksDBStateStoreProvider"}


@contextmanager
def provider(spark: "SparkSession", name: str) -> Iterator[None]:
    """Let queries of the session keep their state by a provider."""
    kind, _, changelog = name.partition("-")
    spark.conf.set(PROVIDER, f"{STATE}.{PROVIDERS[kind]}")
    spark.conf.set(CHANGELOG, "true" if changelog else "false")
    try:
        yield
    finally:
        spark.conf.unset(PROVIDER)
        spark.conf.unset(CHANGELOG)


def give(folder: Path, number: int) -> Counter[str]:
    """One file of input, and its sums."""
    folder.mkdir(exist_ok=True)
    rows = [{"k": f"käse {i % 5}", "v": number * 100 + i} for i in range(12)]
    fresh = folder / f".{number}"
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(fresh, (number, number))  # the source takes the oldest first
    fresh.rename(folder / f"{number}.json")
    sums: Counter[str] = Counter()
    for row in rows:
        sums[str(row["k"])] += int(str(row["v"]))
    return sums


def source(spark: "SparkSession", folder: Path) -> "DataFrame":
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


def run(frame: "DataFrame", checkpoint: Path, mode: str = "update") -> None:
    writer = frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()


def sums(spark: "SparkSession", folder: Path, checkpoint: Path) -> None:
    """The query: sums of each key, the key as a string."""
    run(source(spark, folder).groupBy("k").sum("v"), checkpoint)


@pytest.fixture(scope="module", params=only_here(PROVIDERS, "rocksdb"))
def summed(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, list[Counter[str]]]:
    """A checkpoint after three batches, and the sums after each."""
    folder = tmp_path_factory.mktemp("query")
    after: list[Counter[str]] = [Counter()]
    for number in range(3):
        after.append(after[-1] + give(folder / "in", number))
    with provider(spark, request.param):
        sums(spark, folder / "in", folder / "checkpoint")
    return folder / "checkpoint", after[1:]


def read(spark: "SparkSession", checkpoint: Path, output: Path, **choice: Any) -> CheckpointState:
    """The job's work, on this session."""
    fields = ("operator", "store", "join_side", "batch", "key_column", "value_column")
    request: dict[str, Any] = dict.fromkeys((*fields, "key", "most"))
    request |= {"checkpoint": str(checkpoint), "output": output.as_uri(), **choice}
    result = checkpoint_state.work(spark, request, Access({}), JobProgress(None))
    files = tuple(sorted(output.glob("*.parquet")))
    return CheckpointState("spark:x", StateSparkStore.read(result), files)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"")
        for p in folder.rglob("*")
    }


def test_reads_keys_and_values(
    spark: "SparkSession", summed: tuple[Path, list[Counter[str]]], tmp_path: Path
) -> None:
    checkpoint, after = summed
    before = everything(checkpoint)
    state = read(spark, checkpoint, tmp_path / "last")
    assert (state.store.batch, state.store.operator_name) == (2, "stateStoreSave")
    rows = spark_state.shown(state)
    assert {r.key_decoded["k"]: r.value_decoded["sum"] for r in rows} == after[2]  # type: ignore[index]
    earlier = read(spark, checkpoint, tmp_path / "earlier", batch=0)
    held = {r["key_json"]: r["value_json"] for rows in earlier.rows() for r in rows}
    assert {json.loads(k): int(v) for k, v in held.items()} == after[0]
    key = {"text": "käse 3", "hex": "käse 3".encode().hex()}
    [one] = spark_state.shown(read(spark, checkpoint, tmp_path / "one", key=key))
    assert one.value_decoded == {"sum": after[2]["käse 3"]}
    assert everything(checkpoint) == before


@pytest.mark.long
def test_refuses_what_is_not_all_there(
    spark: "SparkSession", summed: tuple[Path, list[Counter[str]]], tmp_path: Path
) -> None:
    """Spark itself reads on without the last partition's folder, and gives fewer entries."""
    checkpoint = Path(shutil.copytree(summed[0], tmp_path / "checkpoint"))
    with pytest.raises(UsageError, match=r"the key has no column 'x': it is struct<k:string>"):
        read(spark, checkpoint, tmp_path / "none", key_column="x")
    with pytest.raises(UsageError, match=r"none of its stores is meant; it has operator 0 \(state"):
        read(spark, checkpoint, tmp_path / "none", operator=4)
    shutil.rmtree(checkpoint / "state" / "0" / "1")
    assert spark.read.format("statestore").load(str(checkpoint)).count() < len(summed[1][2])
    with pytest.raises(IncompleteError, match="1 of 2 partitions of its state found"):
        read(spark, checkpoint, tmp_path / "none")
    for path in (checkpoint / "state" / "0" / "0").glob("3.*"):
        path.unlink()
    (checkpoint / "state" / "0" / "1").mkdir()
    with pytest.raises(IncompleteError, match=r"Spark cannot read its state: \[CANNOT_LOAD_STATE"):
        read(spark, checkpoint, tmp_path / "gone")


@pytest.mark.long
def test_compares_with_a_changelogs_state(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Keys are bytes on both sides; values are a struct there, and JSON in the changelog."""
    name = topic(lab1, 2, config=COMPACT)
    summed = give(tmp_path / "in", 0) + give(tmp_path / "in", 1)
    lines = [line for f in (tmp_path / "in").iterdir() for line in f.read_text().splitlines()]
    counted = Counter(json.loads(line)["k"] for line in lines)
    values = {k: {"sum": float(v), "count": counted[k]} for k, v in summed.items()}
    writer = producer(lab1)
    writer.begin_transaction()
    for key, value in values.items():
        writer.produce(name, json.dumps(value, indent=1), key.encode())
    writer.commit_transaction(30)
    frame = source(spark, tmp_path / "in").selectExpr("cast(k as binary) k", "v").groupBy("k")
    with provider(spark, "rocksdb"):
        run(frame.agg({"v": "sum", "*": "count"}), tmp_path / "checkpoint")
    state = read(spark, tmp_path / "checkpoint", tmp_path / "rows")

    def compared(folder: str, **how: Any) -> Any:
        left = StateRows(*state_folder.opened(tmp_path / folder))
        return against_checkpoint(left, Comparison(folder, "spark:b", **how), state)

    def rebuilt(folder: str, form: str = "plain") -> None:
        made = Making(form, {}, str(tmp_path / folder))
        rebuild_state(context(lab1), RebuildRequest((name,), "lso", made, "local"), 60)

    rebuilt("first")
    answer = compared("first", value_serde="json")
    assert answer.extra["equal"], answer.rows
    assert [(r.rows_a, r.rows_b) for r in answer.rows] == [(5, 5)]
    assert answer.extra["spark"]["operator_name"] == "stateStoreSave"
    assert answer.exit_status == Exit.OK
    with pytest.raises(UsageError, match="its value is not what the serde expects"):
        compared("first", value_serde="long")
    only = read(spark, tmp_path / "checkpoint", tmp_path / "sums", value_column="sum")
    left = StateRows(*state_folder.opened(tmp_path / "first"))
    [whole, *_] = against_checkpoint(left, Comparison("a", "b"), only).rows
    assert isinstance(whole, StateCompareRow)
    assert whole.different == 5

    writer.begin_transaction()
    for key, changed in (("new", b"{}"), ("käse 1", b'{"sum": 1}'), ("käse 2", None)):
        writer.produce(name, changed, key.encode())
    writer.commit_transaction(30)
    rebuilt("second")
    answer = compared("second", value_serde="json")
    assert answer.exit_status == Exit.FINDING
    kinds = {r.key_text: r.difference for r in answer.rows if r.key}
    assert kinds == {"new": "only_a", "käse 2": "only_b", "käse 1": "different"}


@pytest.mark.long
def test_names_a_join_s_sides(spark: "SparkSession", tmp_path: Path) -> None:
    """A join keeps several values of a key, in four stores: shown, not compared."""
    for side in ("left", "right"):
        give(tmp_path / side, 0)
    left = source(spark, tmp_path / "left")
    right = source(spark, tmp_path / "right").selectExpr("k as r", "v as w")
    run(left.join(right, left.k == right.r), tmp_path / "checkpoint", "append")
    with pytest.raises(
        UsageError, match=r"more than one of its stores is meant; it has operator 0"
    ):
        read(spark, tmp_path / "checkpoint", tmp_path / "none")
    state = read(spark, tmp_path / "checkpoint", tmp_path / "rows", join_side="right")
    rows = spark_state.shown(state)
    assert sorted(r.value_decoded["w"] for r in rows) == list(range(12))  # type: ignore[index]
    assert state.store.store == "right"
    folder = tmp_path / "spread"
    spread = spark_state.Spread(folder, 3)
    spark_state.spread_checkpoint(state, bytes, bytes, spread)
    assert sum(len(spread.part(n)) for n in range(3)) == spread.rows == 12


def logged(lab: Lab, topic: MakeTopic, summed: Mapping[str, Any]) -> str:
    """A changelog of these sums, committed in one transaction."""
    name = topic(lab, config=COMPACT)
    writer = producer(lab)
    writer.begin_transaction()
    for key, value in summed.items():
        writer.produce(name, str(value), key)
    writer.commit_transaction(30)
    return name


@follows("docs/state.md", "Spark's own state")
@pytest.mark.timeout(900)
def test_the_page(
    it: Reading, spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """A query with a sum, one with two stateful operators, a join."""
    summed = give(tmp_path / "in", 0) + give(tmp_path / "in", 1)
    sums(spark, tmp_path / "in", tmp_path / "sums")
    frame = source(spark, tmp_path / "in")
    twice = frame.dropDuplicates(["v"]).groupBy("k").sum("v")
    run(twice, tmp_path / "twice")
    right = frame.selectExpr("k as r", "v as w")
    run(frame.join(right, frame.k == right.r), tmp_path / "join", "append")
    name = logged(lab1, topic, summed)
    made = Making("plain", {}, str(tmp_path / "rebuilt"))
    rebuild_state(context(lab1), RebuildRequest((name,), "lso", made, "local"), 60)

    def rows(begins: str, checkpoint: str, **names: str) -> list[dict[str, Any]]:
        there = {"/data/checkpoint": str(tmp_path / checkpoint), **names}
        return it.run(begins, 0, there, "-o", "json").rows

    [one] = rows("state show", "sums", **{"customer-27": "'käse 2'"})
    assert one["value_decoded"] == {"sum": summed["käse 2"]}
    operators = spark.read.format("state-metadata").load(str(tmp_path / "twice")).collect()
    ids = {row["operatorName"]: row["operatorId"] for row in operators}
    found = rows("state show", "twice", **{"1": str(ids["stateStoreSave"]), "41": "1"})
    assert {r["key_decoded"]["k"]: r["value_decoded"]["sum"] for r in found} == summed
    assert len(rows("state show", "join")) == 24
    rows("state compare", "sums")
    rows("state compare", "sums")


@pytest.mark.long
def test_as_commands(spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    summed = give(tmp_path / "in", 0)
    with provider(spark, "rocksdb"):
        sums(spark, tmp_path / "in", tmp_path / "checkpoint")
    shown = eoctl("state", "show", f"spark:{tmp_path}/checkpoint", "käse 2", "-o", "json")
    assert shown.status == Exit.OK, shown.stderr
    [row] = shown.json["rows"]
    assert row["value_decoded"] == {"sum": summed["käse 2"]}
    none = eoctl("state", "show", f"spark:{tmp_path}/checkpoint", "other")
    assert none.status == Exit.FINDING
    name = logged(lab1, topic, summed)
    made = Making("plain", {}, str(tmp_path / "state"))
    rebuild_state(context(lab1), RebuildRequest((name,), "lso", made, "local"), 60)
    words = ("state", "compare", str(tmp_path / "state"), f"spark:{tmp_path}/checkpoint")
    compared = eoctl(*words)
    assert compared.status == Exit.OK, compared.stderr
    assert "equal: 5 entries; B is operator 0 (stateStoreSave)" in compared.stderr
    windows = Making("streams-window", {}, str(tmp_path / "windows"))
    request = RebuildRequest((name,), "lso", windows, "local", retention_ms=10**12)
    rebuild_state(context(lab1), request, 60)
    left = StateRows(*state_folder.opened(tmp_path / "windows"))
    with pytest.raises(RefusedError, match="a streams-window state has windows or versions"):
        spark_state.check_comparable(left)
