"""`state rebuild` against confluent-kafka and a dict, on logs as transactions and compaction leave
them."""

import asyncio
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from eoctl.engine import rebuild_task
from eoctl.engine.rebuild_task import Making, RangeTask, run_task
from eoctl.engine.resolve_cut import parse_at, resolve
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import columns as read_columns
from eoctl.lab.cluster import Lab
from eoctl.stores.state import files as state_files
from eoctl.stores.state import runs as state_runs
from recovery.shared.cut import Cut, dump
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, begin_small, dict_state, digest, fill, producer
from tests.share import share
from tests.started import started

SET = AlterConfigOpType.SET
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.9",
    "segment.ms": "3153600000000",
}
"""Never cleaned: the records are years older than the first marker, which would begin a segment."""


def rebuild(lab: Lab, folder: Path, *words: str, status: int = 0) -> tuple[Ran, Rebuilt]:
    ran = eoctl(
        "state", "rebuild", *words, "--output", str(folder), "-o", "json", lab=lab, timeout=120
    )
    assert ran.status == status, ran.stderr
    return ran, Rebuilt(folder)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_state_is_that_of_a_dict(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, codec: str
) -> None:
    """The rebuild, whole and in ranges, agrees with it, entry by entry and by digest."""
    name = topic(lab1, partitions=2, config={"cleanup.policy": "delete", "retention.ms": "-1"})
    fill(
        lab1,
        name,
        seed=len(codec),
        records=share(40_000),
        keys=700,
        partitions=2,
        codec=codec,
        null_keys=True,
    )
    ran, own = rebuild(lab1, tmp_path / "own", name, "--format", "plain", "--at", "lso")
    expected, counts = dict_state(lab1, name, own.ends)
    assert own.state() == expected
    assert own.digest == digest(expected)
    assert ran.json["digest"] == {"rows": len(expected), "sha256_sum": digest(expected)[1]}
    assert ran.json["complete"]
    found = {key: sum(p.counts[key] for p in own.manifest.partitions) for key in counts}
    assert found == counts
    for row in ran.rows:
        assert row["aborted_records"] > 0
        assert row["to"] - row["from"] == sum(
            row[f"{kind}"]
            for kind in ("data_records", "aborted_records", "control_records", "missing_offsets")
        )
    words = (name, "--format", "plain", "--at", "lso")
    begin_small(lab1, name, str(tmp_path / "divided"), 500, 20_000)
    _, divided = rebuild(lab1, tmp_path / "divided", *words, "--range-offsets", "500")
    assert divided.digest == own.digest
    assert divided.state() == expected
    assert all(len(p.files) > 2 for p in divided.manifest.partitions)
    assert sorted(p.name for p in (tmp_path / "divided").iterdir()) == [
        "cut.json",
        "data",
        "manifest.json",
    ]


@pytest.mark.long
def test_a_compacted_log(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Gaps, batches made sparse or empty, tombstones gone."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "100",
    }
    name = topic(lab1, config=config)
    fill(lab1, name, seed=5, records=3000, keys=50, partitions=1)
    writer = producer(lab1)
    deadline, missing = time.monotonic() + 60, 0
    while missing < 1000:
        assert time.monotonic() < deadline, "the log was not compacted"
        time.sleep(2)
        writer.begin_transaction()
        writer.produce(name, b"late", b"key-1")
        writer.commit_transaction(30)
        counted = eoctl("offsets", "count", name, "--end", "lso", "-o", "json", lab=lab1)
        missing = counted.rows[0]["missing_offsets"]
    # reading it takes longer than 100 ms, so its tombstones may have gone: said, and exit 3
    words = (name, "--format", "plain", "--at", "lso")
    ran, state = rebuild(lab1, tmp_path / "state", *words, status=3)
    assert "delete.retention.ms" in ran.json["errors"][0]["detail"]
    expected, _ = dict_state(lab1, name, state.ends)
    assert state.state() == expected
    assert state.digest == digest(expected)
    # what is written above a cut may take from what is below it: an old cut proves nothing then
    writer.begin_transaction()
    writer.produce(name, b"above", b"key-1")
    writer.commit_transaction(30)
    time.sleep(1)  # segment.ms
    words = (name, "--format", "plain", "--at", str(tmp_path / "state" / "cut.json"))
    ran, again = rebuild(lab1, tmp_path / "again", *words, status=3)
    assert any("offsets above its cut" in error["detail"] for error in ran.json["errors"])
    assert not again.manifest.complete


def test_a_secure_cluster(secure_lab: Lab, tmp_path: Path) -> None:
    """The password goes to the workers, and nowhere into what is written."""
    properties = secure_lab.client_properties()
    name = f"secure-{tmp_path.name}"
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(name, 2, 1, config=COMPACT)])[name].result(30)
    fill(secure_lab, name, seed=1, records=400, keys=30, partitions=2)
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    ran = eoctl(
        *("--command-config", str(config), "state", "rebuild", name, "--format", "plain"),
        *("--at", "hw", "--output", str(tmp_path / "state"), "-o", "json"),
        timeout=120,
    )
    assert ran.status == 0, ran.stderr
    state = Rebuilt(tmp_path / "state")
    assert state.digest == digest(dict_state(secure_lab, name, state.ends)[0])
    secret = properties["sasl.password"]
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


@pytest.mark.long
def test_one_cut_gives_one_state(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Also when what was open above it has been committed, and the log has grown."""
    name = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, name, seed=8, records=500, keys=40, partitions=2)
    late = producer(lab1)
    late.begin_transaction()
    late.produce(name, b"open", b"key-1", partition=1)
    late.flush(10)
    other = producer(lab1)
    other.begin_transaction()
    other.produce(name, b"decided, above", b"key-3", partition=1)
    other.commit_transaction(30)
    ran, first = rebuild(lab1, tmp_path / "a", name, "--format", "plain", "--at", "lso")
    assert [t["partition"] for t in ran.json["open"]] == [1]
    assert ran.json["consistent"] is True
    assert (1, b"key-1") not in first.state() or first.state()[1, b"key-1"][1] != b"open"
    waiting = eoctl(
        *("state", "rebuild", name, "--format", "plain", "--at", "hw", "--wait", "1s"),
        *("--output", str(tmp_path / "never")),
        lab=lab1,
    )
    assert waiting.status == 3
    assert "open below the high watermark" in waiting.stderr
    late.commit_transaction(30)
    fill(lab1, name, seed=9, records=500, keys=40, partitions=2)
    cut = str(tmp_path / "a" / "cut.json")
    _, again = rebuild(lab1, tmp_path / "b", name, "--format", "plain", "--at", cut)
    assert again.digest == first.digest
    assert again.state() == first.state()
    assert first.digest == digest(dict_state(lab1, name, first.ends)[0])
    _, now = rebuild(lab1, tmp_path / "c", name, "--format", "plain", "--at", "hw")
    assert now.digest != first.digest
    assert now.digest == digest(dict_state(lab1, name, now.ends)[0])


@pytest.mark.long
def test_only_what_came_since(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """The same as a full rebuild; and a full one where that is not sure, which says why."""
    name = topic(lab1, partitions=2, config=COMPACT)
    words = (name, "--format", "plain", "--at")
    fill(lab1, name, seed=1, records=600, keys=50, partitions=2)
    holder = producer(lab1)  # open across the first cut
    holder.begin_transaction()
    holder.produce(name, b"late", b"key-0", partition=0)
    holder.flush(10)
    _, first = rebuild(lab1, tmp_path / "first", *words, "lso")
    fill(lab1, name, seed=2, records=600, keys=60, partitions=2)
    holder.commit_transaction(30)
    ran, second = rebuild(
        lab1, tmp_path / "second", *words, "lso", "--since", str(tmp_path / "first")
    )
    expected, counts = dict_state(lab1, name, second.ends)
    assert second.state() == expected
    assert second.digest == digest(expected) != first.digest
    assert ran.json["notes"] == []
    found = {key: sum(p.counts[key] for p in second.manifest.partitions) for key in counts}
    assert found == counts
    read = [sum(p.bytes_read for p in s.manifest.partitions) for s in (first, second)]
    assert second.manifest.incremental_from == str(tmp_path / "first")
    cut = str(tmp_path / "second" / "cut.json")
    ran, third = rebuild(lab1, tmp_path / "third", *words, cut, "--since", str(tmp_path / "second"))
    assert third.digest == second.digest
    assert sum(p.bytes_read for p in third.manifest.partitions) < min(read)
    # tombstones kept for less than the earlier cut is old
    admin = AdminClient(lab1.client_properties())
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    resource.add_incremental_config(
        ConfigEntry("delete.retention.ms", "1", incremental_operation=SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(20)
    ran, fourth = rebuild(
        lab1, tmp_path / "fourth", *words, cut, "--since", str(tmp_path / "second"), status=3
    )
    assert "tombstones may go after 1ms" in ran.json["notes"][0]
    assert fourth.manifest.incremental_from is None
    assert fourth.digest == second.digest


@pytest.mark.long
def test_what_is_not_provably_complete(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Log start above 0 on a compact-only topic; a policy that deletes."""
    # a finite time, yet longer than the records are old: the broker deletes none meanwhile
    kept = {"cleanup.policy": "compact,delete", "retention.ms": "3153600000000"}
    name = topic(lab1, config=kept)
    fill(lab1, name, seed=3, records=400, keys=30, partitions=1)
    ran, _ = rebuild(lab1, tmp_path / "a", name, "--format", "plain", "--at", "lso", status=3)
    assert "cleanup policy" in ran.json["errors"][0]["detail"]
    admin = AdminClient(lab1.client_properties())
    admin.delete_records([TopicPartition(name, 0, 100)])[TopicPartition(name, 0)].result(20)
    ran, state = rebuild(lab1, tmp_path / "b", name, "--format", "plain", "--at", "lso", status=3)
    assert "log starts at 100" in ran.json["errors"][0]["detail"]
    assert ran.rows[0]["from"] == 100
    assert state.digest == digest(dict_state(lab1, name, state.ends)[0])
    assert not state.manifest.complete
    # a cut made before the log start moved means other records now
    refused = eoctl(
        *("state", "rebuild", name, "--format", "plain", "--at", str(tmp_path / "a" / "cut.json")),
        *("--output", str(tmp_path / "c")),
        lab=lab1,
    )
    assert refused.status == 4
    assert "log start moved from 0 to 100" in refused.stderr
    assert not (tmp_path / "c").exists()


def test_killed_midway(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Nothing that looks finished is left; the same command again finishes at the same cut."""
    name = topic(lab1, partitions=4, config=COMPACT)
    fill(lab1, name, seed=2, records=8000, keys=300, partitions=4)
    words = ["state", "rebuild", name, "--format", "plain", "--at", "lso"]
    folder = tmp_path / "state"
    with started(
        [
            *(*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words),
            *("--output", str(folder), "--max-rate", "300KiB", "--processes", "1"),
        ],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        deadline = time.monotonic() + 60
        while not list(folder.glob("tasks/*.json")):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    done = len(list(folder.glob("tasks/*.json")))
    assert 1 <= done < 4
    assert not (folder / "manifest.json").exists()
    shown = eoctl(
        "state",
        "rebuild",
        name,
        "--format",
        "streams-kv",
        "--at",
        "lso",
        "--output",
        str(folder),
        lab=lab1,
    )
    assert shown.status == 4
    assert "--clean" in shown.stderr
    kept = {path.name for path in folder.glob("data/*/*.parquet")}
    fill(lab1, name, seed=4, records=400, keys=300, partitions=4)  # above the first run's cut
    _, state = rebuild(lab1, folder, *words[2:])
    expected, _ = dict_state(lab1, name, state.ends)
    assert state.digest == digest(expected)
    assert state.state() == expected
    listed = {Path(f.path).name for p in state.manifest.partitions for f in p.files}
    assert {path.name for path in folder.glob("data/*/*.parquet")} == listed
    assert len(kept & listed) >= done
    # its workers ended with it
    time.sleep(1.5)
    left = subprocess.run(["pgrep", "-g", str(running.pid)], capture_output=True, check=False)
    assert left.stdout == b""
    again = eoctl(*words, "--output", str(folder), lab=lab1)
    assert again.status == 4
    assert "there is a state already" in again.stderr


def test_a_divided_transaction_is_named(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Two stores, one cut: a transaction is below the LSO in one and above it in the other."""
    first, second = topic(lab1, config=COMPACT), topic(lab1, config=COMPACT)
    holder, writer = producer(lab1), producer(lab1)
    for name in (first, second):
        writer.begin_transaction()
        writer.produce(name, b"1", b"before")
        writer.commit_transaction(30)
    holder.begin_transaction()
    holder.produce(second, b"held", b"h")
    holder.flush(10)
    writer.begin_transaction()
    for name in (first, second):
        writer.produce(name, b"2", b"together")
    writer.commit_transaction(30)
    words = (first, second, "--format", "streams-kv", "--at", "lso")
    ran, state = rebuild(lab1, tmp_path / "a", *words)
    assert ran.json["consistent"] is False
    (split,) = ran.json["split"]
    assert (split["topic"], split["partition"]) == (second, 0)
    assert f"counted in {first}-0" in split["why"]
    assert {r["key"] for r in state.rows()} == {b"before", b"together"}
    holder.abort_transaction(30)
    ran, state = rebuild(lab1, tmp_path / "b", *words)
    assert ran.json["consistent"] is True
    assert ran.json["split"] == []
    assert len(state.rows()) == 4
    assert json.loads((tmp_path / "b" / "cut.json").read_text())["consistent"] is True


def test_what_does_not_fit_is_spilt(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows in which its runs are merged are no row group each."""
    monkeypatch.setattr(read_columns, "PARTITION_BYTES", 60_000)
    monkeypatch.setattr(state_runs, "GROUP_BYTES", 2_000)
    monkeypatch.setattr(state_runs, "WINDOW_BYTES", 5_000)
    monkeypatch.setattr(rebuild_task, "MOST_RUNS", 2)
    monkeypatch.setattr(state_files, "GROUP_ROWS", 200)
    name = topic(lab1, config=COMPACT)
    fill(lab1, name, seed=6, records=3000, keys=900, partitions=1)
    counted = eoctl("offsets", "count", name, "--end", "lso", "-o", "json", lab=lab1)
    end = counted.rows[0]["to"]
    task = RangeTask(
        access=Access(lab1.client_properties()),
        topic=name,
        partition=0,
        start=0,
        end=end,
        how=Making("plain", {}, str(tmp_path), memory_bytes=60_000),
    )
    row = run_task(task)
    assert len(list(tmp_path.glob("runs/*/*.run"))) > 2
    assert (row.digest_rows, row.digest) == digest(dict_state(lab1, name, {0: end})[0])
    (file,) = row.files
    written = pq.ParquetFile(tmp_path / file.path).metadata
    groups = [written.row_group(i).num_rows for i in range(written.num_row_groups)]
    assert len(groups) > 1
    assert sum(groups) == row.digest_rows
    assert all(200 <= rows < 300 for rows in groups[:-1])


@pytest.mark.long
def test_a_cut_at_the_high_watermark_may_divide_too(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """One partition has settled, the other waits, and meanwhile a transaction writes to both."""
    name = topic(lab1, partitions=2, config=COMPACT)
    holder, writer = producer(lab1), producer(lab1)
    holder.begin_transaction()
    holder.produce(name, b"held", b"h", partition=1)
    holder.flush(10)

    async def settle() -> Cut:
        settings = client_settings(lab1.client_properties())
        async with Cluster(settings, Deadline(60)) as cluster:
            return await resolve(cluster, [name], parse_at("hw"), 40)

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(asyncio.run, settle())
        time.sleep(3)
        assert not waiting.done()
        writer.begin_transaction()
        for partition in (0, 1):
            writer.produce(name, b"both", b"b", partition=partition)
        writer.commit_transaction(30)
        holder.commit_transaction(30)
        cut = waiting.result(60)
    assert [p.end for p in cut.topics[0].partitions] == [0, 4]
    (tmp_path / "cut.json").write_text(dump(cut))
    ran, state = rebuild(
        lab1, tmp_path / "a", name, "--format", "plain", "--at", str(tmp_path / "cut.json")
    )
    assert {r["key"] for r in state.rows()} == {b"h", b"b"}
    assert ran.json["consistent"] is False
    assert [(t["partition"], t["first_offset"]) for t in ran.json["split"]] == [(0, 0)]


def test_wrong_words(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1)
    for words, status, sentence in (
        (("--format", "nothing", "--at", "lso"), 2, "no format"),
        (("--format", "plain", "--at", "17"), 2, "not one cut"),
        (("--format", "plain", "--at", "no.json"), 2, "cannot be read"),
        (("--format", "plain", "--at", "lso", "--retention", "1d"), 2, "has none"),
    ):
        ran = eoctl("state", "rebuild", name, *words, "--output", str(tmp_path / "x"), lab=lab1)
        assert (ran.status, sentence in ran.stderr) == (status, True), ran.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    rest = ("--format", "plain", "--at", "lso", "--output")
    assert eoctl("state", "rebuild", name, *rest, str(tmp_path / "full"), lab=lab1).status == 4
    for other, sentence in (
        ("no-such", "no-such: no such topic, or no permission to see it"),
        ("no/such", "no/such: Kafka does not allow a topic of this name"),
    ):
        ran = eoctl("state", "rebuild", other, *rest, str(tmp_path / "z"), lab=lab1)
        assert (ran.status, sentence in ran.stderr) == (3, True), ran.stderr
