"""`state rebuild` of a log that a real cleaner works on: between two runs, and during one."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.admin import BROKER, TOPIC, set_config
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, producer
from tests.started import started

CLEANED: dict[str, Any] = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1000",
}


def configure(lab: Lab, kind: int, name: str, values: dict[str, str | None]) -> None:
    async def run() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await set_config(client, kind, name, values)

    asyncio.run(run())


@contextmanager
def eager_cleaner(lab: Lab) -> Iterator[None]:
    configure(lab, BROKER, "1", {"log.cleaner.backoff.ms": "100"})
    try:
        yield
    finally:
        configure(lab, BROKER, "1", {"log.cleaner.backoff.ms": None})


def write(lab: Lab, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    writer = producer(lab)
    writer.begin_transaction()
    for key, value in records:
        writer.produce(topic, value, key)
    writer.commit_transaction(30)


def keys_in_log(lab: Lab, topic: str) -> set[bytes | None]:
    """Of all records there are, tombstones too."""

    async def look() -> set[bytes | None]:
        async with Client.to(lab.bootstrap_servers) as client:
            return {
                record.key
                for batch in await client.batches(topic, 0)
                if not batch.is_control_batch
                for record in batch
            }

    return asyncio.run(look())


def rebuilding(lab: Lab, topic: str, folder: Path, *words: str) -> list[str]:
    return [
        *(*EOCTL, "--bootstrap-server", lab.bootstrap_servers, "state", "rebuild", topic),
        *("--format", "plain", "--output", str(folder), "-o", "json", "--engine", "local", *words),
    ]


@pytest.mark.long
def test_a_tombstone_that_came_and_went_between_two_runs(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """To carry the earlier state on would keep the deleted key: so all is read, and it is said."""
    name = topic(lab1, config=CLEANED | {"delete.retention.ms": "600000"})
    write(lab1, name, [(b"stays", b"1"), (b"goes", b"2"), (b"changes", b"3")])
    words = (name, "--format", "plain", "--at", "lso", "--engine", "local", "-o", "json")
    first = eoctl("state", "rebuild", *words, "--output", str(tmp_path / "first"), lab=lab1)
    assert first.status == 0, first.stderr
    assert {row["key"] for row in Rebuilt(tmp_path / "first").rows()} == {
        *(b"stays", b"goes", b"changes")
    }
    configure(lab1, TOPIC, name, {"delete.retention.ms": "100"})
    write(lab1, name, [(b"goes", None), (b"changes", b"4")])
    with eager_cleaner(lab1):
        until = time.monotonic() + 90
        while b"goes" in keys_in_log(lab1, name):
            assert time.monotonic() < until, "the cleaner did not take the tombstone"
            time.sleep(1.1)  # segment.ms
            write(lab1, name, [(b"later", b"x")])
    ran = eoctl(
        *("state", "rebuild", *words, "--output", str(tmp_path / "second")),
        *("--since", str(tmp_path / "first")),
        lab=lab1,
    )
    assert "everything was read" in ran.json["notes"][0]
    assert "tombstones may go after" in ran.json["notes"][0]
    second = Rebuilt(tmp_path / "second")
    expected, _ = dict_state(lab1, name, second.ends)
    assert {key for _, key in expected} == {b"stays", b"changes", b"later"}
    assert second.state() == expected
    assert second.digest == digest(expected)
    assert second.manifest.incremental_from is None


@pytest.mark.long
def test_a_log_that_is_compacted_while_it_is_read(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """What comes above the cut takes records below it: no state of this cut, and exit 3."""
    name = topic(lab1, config=CLEANED | {"delete.retention.ms": "600000"})
    for part in range(8):
        write(lab1, name, [(b"%d-%d" % (part, n), os.urandom(1_200)) for n in range(100)])
    end = eoctl("offsets", "count", name, "--end", "lso", "-o", "json", lab=lab1).rows[0]["to"]
    expected, _ = dict_state(lab1, name, {0: end})
    folder = tmp_path / "state"
    command = rebuilding(lab1, name, folder, "--at", "lso", "--max-rate", "80k")
    with (
        eager_cleaner(lab1),
        started(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        while not (folder / "request.json").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        while running.poll() is None:
            write(lab1, name, [(b"7-%d" % n, b"above") for n in range(100)])
            time.sleep(1.1)  # segment.ms
        _, stderr = running.communicate()
    state = Rebuilt(folder)
    assert state.ends == {0: end}
    assert state.state() != expected, "the cleaner was too slow, nothing was lost"
    assert running.returncode == 3, stderr
    assert not state.manifest.complete
    assert any("offsets above its cut" in why for why in state.manifest.incomplete)


def test_a_log_that_is_only_compacted_and_starts_above_0(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Its beginning was deleted under an earlier policy."""
    name = topic(lab1, config={"cleanup.policy": "delete", "retention.ms": "-1"})
    write(lab1, name, [(b"below", b"1"), (b"both", b"2")])
    write(lab1, name, [(b"both", b"3")])
    partition = TopicPartition(name, 0, 3)
    admin = AdminClient(lab1.client_properties())
    admin.delete_records([partition])[partition].result(20)
    configure(lab1, TOPIC, name, {"cleanup.policy": "compact"})
    ran = eoctl(
        *("state", "rebuild", name, "--format", "streams-kv", "--at", "lso", "-o", "json"),
        *("--output", str(tmp_path / "state"), "--engine", "local"),
        lab=lab1,
    )
    assert ran.status == 3, ran.stderr
    (why,) = [error["detail"] for error in ran.json["errors"]]
    assert "log starts at 3" in why
    state = Rebuilt(tmp_path / "state")
    assert state.state() == dict_state(lab1, name, state.ends)[0]
    assert [row["value"] for row in state.rows()] == [b"3"]


DAY_MS = 86_400_000


def test_a_cut_at_an_instant_before_the_cleaner_came(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """What stood at the instant is gone for the sake of what came after: no state of then, exit 3.

    Nor of its cut file.
    """
    hour = {"min.compaction.lag.ms": "3600000", "max.compaction.lag.ms": "7200000"}
    name = topic(lab1, config=CLEANED | hour)
    now = int(time.time() * 1000)
    writer = Producer(lab1.client_properties())
    # segment.ms rolls by these times
    ages = ((72, b"K", b"old"), (71, b"stays", b"1"), (47, b"other", b"2"), (24, b"K", b"new"))
    for hours, key, value in (*ages, (0, b"last", b"3")):
        writer.produce(name, value, key, timestamp=now - hours * DAY_MS // 24)
        assert writer.flush(20) == 0

    def offsets() -> set[int]:
        async def look() -> set[int]:
            async with Client.to(lab1.bootstrap_servers) as client:
                return {r.offset for batch in await client.batches(name, 0) for r in batch}

        return asyncio.run(look())

    with eager_cleaner(lab1):
        until = time.monotonic() + 90
        while 0 in offsets():
            assert time.monotonic() < until, "the cleaner did not take the old record"
            time.sleep(0.5)
    assert offsets() == {1, 2, 3, 4}
    configure(lab1, TOPIC, name, {"segment.ms": str(30 * DAY_MS)})
    folder = tmp_path / "state"
    for cut in ("2d ago", str(folder / "cut.json")):
        made = folder if cut == "2d ago" else tmp_path / "again"
        ran = eoctl(
            *("state", "rebuild", name, "--format", "plain", "--at", cut, "-o", "json"),
            *("--output", str(made), "--engine", "local"),
            lab=lab1,
        )
        state = Rebuilt(made)
        assert state.ends == {0: 2}
        assert {row["key"] for row in state.rows()} == {b"stays"}  # K is missing
        assert ran.status == 3, ran.stderr
        assert not state.manifest.complete
        assert any("offsets above its cut" in why for why in state.manifest.incomplete)
