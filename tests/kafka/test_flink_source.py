"""The source offsets of a Flink checkpoint as a store: shown, and a group that is set to them.

The checkpoint was written by a real job; what it holds is what Flink's own classes read of it.
"""

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.docs.pages import follows
from tests.flink.kept import CHECKPOINT, KEPT, TOPIC, source_topic
from tests.kafka.command import environment, eoctl
from tests.kafka.crashed import committed, groups
from tests.kafka.reading import Reading
from tests.object_store import environment as store_environment
from tests.object_store import make_bucket, put_object, s3_server

SHOWN = "/data/checkpoints/9f2c/chk-42"
"""The pages' checkpoint."""


@pytest.fixture(scope="module")
def offsets(lab1: Lab) -> dict[tuple[str, int], int]:
    return source_topic(lab1)


@follows("docs/flink.md", "The source's offsets")
def test_the_page(it: Reading, lab1: Lab, offsets: dict[tuple[str, int], int]) -> None:
    """Without `--execute` the plan is looked at, and the group stays as it is."""
    it.lab = lab1
    it.names |= {SHOWN: str(CHECKPOINT), "orders-source": "from-kafka", "etl": "of-the-page"}
    rows = it.run("offsets show", 0, None, "-o", "json").rows
    assert {(r["topic"], r["partition"]): r["committed_offset"] for r in rows} == offsets
    it.run("restart plan", 0)
    it.run("restart apply", 0)
    assert "of-the-page" not in groups(lab1)


@follows("docs/restart.md", "Plans without an application file")
def test_the_page_on_plans(it: Reading, lab1: Lab, offsets: dict[tuple[str, int], int]) -> None:
    it.lab = lab1
    it.names |= {SHOWN: str(CHECKPOINT), "etl": "of-the-plans"}
    it.run("restart plan", 0)
    applied = eoctl("restart", "apply", "afresh.json", "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.text
    assert committed(lab1, "of-the-plans") == offsets
    then = datetime.now(UTC) + timedelta(milliseconds=1)  # commits count to the millisecond
    time.sleep(0.01)
    it.names["2026-11-21T02:45"] = then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    it.run("restart plan", 0)


def test_a_group_is_set_to_the_checkpoints_offsets(
    lab1: Lab, tmp_path: Path, offsets: dict[tuple[str, int], int]
) -> None:
    shown = eoctl("offsets", "show", "--store", f"flink:{CHECKPOINT}", "-o", "json", lab=lab1)
    assert shown.status == 0, shown.text
    assert {(r["topic"], r["partition"]): r["committed_offset"] for r in shown.rows} == offsets
    assert shown.json["stores"][0]["kind"] == "flink-checkpoint"

    group, plan = "afresh", tmp_path / "plan.json"
    words = ("--group", group, "--from-store", f"flink:{CHECKPOINT}#from-kafka")
    planned = eoctl("restart", "plan", *words, "--out", str(plan), "-o", "json", lab=lab1)
    assert planned.status == 0, planned.text
    [row] = planned.rows
    assert row["strategy"] == "from-store"
    said = [c["detail"] for c in row["checks"] if c["name"] == "source"]
    assert said == ["all that was read before these offsets has its results where they belong"]
    applied = eoctl("restart", "apply", str(plan), "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.text
    assert committed(lab1, group) == offsets

    one = ("--group", "one", "--from-store", f"flink:{CHECKPOINT}", "--topic", f"{TOPIC}:1")
    planned = eoctl("restart", "plan", *one, "-o", "json", lab=lab1)
    assert [i["restart_offset"] for i in planned.rows[0]["inputs"]] == [offsets[TOPIC, 1]]


def described(folder: Path, *store: str, path: Path | str = CHECKPOINT, topic: str = TOPIC) -> str:
    """An application file whose store is a checkpoint. store: more lines of its table."""
    lines = ["[app]", 'name = "etl"', 'strategy = "flink-checkpoint"', f'inputs = ["{topic}"]']
    lines += ["[app.store]", 'kind = "flink-checkpoint"', f'path = "{path}"', *store]
    file = folder / "app.toml"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def test_an_application_file_is_planned_and_the_checkpoint_stays(
    lab1: Lab, tmp_path: Path, offsets: dict[tuple[str, int], int]
) -> None:
    """Its path is that of Flink's own log, a URI with one slash, or relative to the file."""
    copy = shutil.copytree(CHECKPOINT, tmp_path / "chk-2")
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    promised = len(json.loads((KEPT / "loaded.json").read_text())["committables"])
    plan = str(tmp_path / "plan.json")
    quick = ("--pause", "100ms")
    for path in (f"file:{copy}", "chk-2"):
        file = described(tmp_path, 'uid = "from-kafka"', path=path)
        words = (file, *quick, "--out", plan, "-o", "json")
        planned = eoctl("restart", "plan", *words, lab=lab1)
        assert planned.status == 0, planned.text
        [row] = planned.rows
        assert {(i["topic"], i["partition"]): i["restart_offset"] for i in row["inputs"]} == offsets
        assert (row["guarantee"], row["outputs"]) == ("at-most-once", [])
        assert f"the checkpoint promises {promised} of Kafka's sink" in row["because"]
    assert f"EOCTL_RESTART_IN_INCREMENTING_2_2_0={offsets[TOPIC, 0]}" in (
        eoctl("restart", "plan", file, *quick, "--env", lab=lab1).stdout
    )
    later = shutil.copytree(copy, tmp_path / "chk-3")
    late = eoctl("restart", "apply", plan, "--execute", "--yes", lab=lab1)
    assert late.status == 4, late.text
    assert "checkpoint 3 lies beside it: what was committed since would come twice" in late.text
    shutil.rmtree(later)
    applied = eoctl("restart", "apply", plan, "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.text
    assert "nothing is written" in applied.text
    verified = eoctl("restart", "verify", plan, *quick, lab=lab1)
    assert verified.status == 0, verified.text
    undone = eoctl("restart", "undo", plan, "--execute", "--yes", lab=lab1)
    assert (undone.status, "it wrote nothing: there is nothing to undo" in undone.text) == (4, True)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_an_application_file_that_cannot_be_planned(
    lab1: Lab, tmp_path: Path, topic: Callable[..., str], offsets: dict[tuple[str, int], int]
) -> None:
    other = topic(lab1, 1)
    for (words, given), status, what in [
        ((('uid = "nobody"',), {}), 4, "it has no source nobody; name one of from-kafka"),
        (((), {"path": "hdfs://name/chk-2"}), 2, "hdfs is not read here"),
        (((), {"path": "chk-2"}), 3, "_metadata: cannot be read"),
        (((), {"topic": other}), 4, "its source reads other partitions, or it was added later"),
        ((('position = "last"',), {}), 2, "flink-checkpoint keeps the next one"),
    ]:
        ran = eoctl("restart", "plan", described(tmp_path, *words, **given), lab=lab1)
        assert (ran.status, what in ran.text) == (status, True), ran.text


@pytest.mark.long
def test_a_checkpoint_in_object_storage(
    lab1: Lab, tmp_path: Path, offsets: dict[tuple[str, int], int]
) -> None:
    with s3_server() as port:
        make_bucket(port, "flink")
        put_object(port, "flink/job/chk-2/_metadata", (CHECKPOINT / "_metadata").read_bytes())
        env = environment(**store_environment(port))
        store = "flink:s3://flink/job/chk-2#from-kafka"
        shown = eoctl("offsets", "show", "--store", store, "-o", "json", lab=lab1, env=env)
        assert shown.status == 0, shown.text
        assert {(r["topic"], r["partition"]): r["committed_offset"] for r in shown.rows} == offsets
        file = described(tmp_path, 'uid = "from-kafka"', path="s3://flink/job/chk-2")
        planned = eoctl(
            "restart", "plan", file, "--pause", "100ms", "-o", "json", lab=lab1, env=env
        )
        assert planned.status == 0, planned.text
        inputs = planned.rows[0]["inputs"]
        assert {(i["topic"], i["partition"]): i["restart_offset"] for i in inputs} == offsets
        gone = eoctl("offsets", "show", "--store", "flink:s3://flink/chk-3", lab=lab1, env=env)
        assert gone.status == 3
        assert "chk-3/_metadata: cannot be read: there is no such object" in gone.text


def test_what_cannot_be_meant_is_refused(lab1: Lab, tmp_path: Path) -> None:
    cases = [
        (f"flink:{CHECKPOINT}#nobody", 4, "it has no source nobody; name one of from-kafka"),
        (f"flink:{tmp_path}", 3, "_metadata: cannot be read"),
        ("chk-2", 2, "is not a store"),
    ]
    for store, status, words in cases:
        ran = eoctl("restart", "plan", "--group", "g", "--from-store", store, lab=lab1)
        assert (ran.status, words in ran.text) == (status, True), ran.text
    both = ("--group", "g", "--from-store", f"flink:{CHECKPOINT}", "--to-earliest")
    ran = eoctl("restart", "plan", *both, lab=lab1)
    assert (ran.status, "goes with --group and --topic alone" in ran.text) == (2, True)
