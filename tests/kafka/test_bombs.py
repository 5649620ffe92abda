"""Small batches that expand to hundreds of MiB, on a real broker, met by real commands.

Each process stays below 1 GiB, and the sentence says where the batch stands and how large it is.
"""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from recovery.formats.records import EXPANDED_PROPERTY
from tests.kafka.command import EOCTL, environment
from tests.kafka.conftest import MakeTopic
from tests.share import only_here

PEAK_KIB = 1 << 20
"""Of any process, in KiB: 1 GiB."""
ORDINARY, BOMBS = 5, 2

PRODUCED = """
import sys
from confluent_kafka import Producer
servers, topic, codec, ordinary, bombs = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 1_000_000_000,
                     "compression.type": codec, "linger.ms": 0})
for number in range(int(ordinary)):
    producer.produce(topic, b"v", key=b"k%d" % number, partition=0)
producer.flush()
for number in range(int(bombs)):
    said = []
    size = (150 if codec == "snappy" else 300) << 20  # of snappy's more would not be taken
    producer.produce(topic, bytes(size), key=b"bomb", partition=0,
                     on_delivery=lambda error, message: said.append(error))
    assert producer.flush(120) == 0
    assert said == [None], said
"""


@pytest.mark.trust
@pytest.mark.timeout(400)
@pytest.mark.parametrize("codec", only_here(("gzip", "snappy", "lz4", "zstd"), "zstd"))
@pytest.mark.parametrize("engine", only_here(("local", "spark"), "local"))
def test_a_command_that_meets_a_bomb_says_where_and_stays_small(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, codec: str, engine: str
) -> None:
    """Written by an ordinary client, whose batches brokers take: they limit what is sent."""
    name = topic(lab1, config={"max.message.bytes": "33554432", "retention.ms": "-1"})
    counts = str(ORDINARY), str(BOMBS)
    subprocess.run(
        [sys.executable, "-c", PRODUCED, lab1.bootstrap_servers, name, codec, *counts],
        check=True,
        timeout=200,
    )
    on = ("--engine", engine, *(("--master", "local[2]") if engine == "spark" else ()))
    rebuild = ("state", "rebuild", name, "--format", "plain", "--at", "lso")
    commands: list[tuple[str, ...]] = [
        (*rebuild, "--output", str(tmp_path / "state"), *on),
        ("audit", "duplicates", name, "--by", "key", *on),
        ("-X", f"{EXPANDED_PROPERTY}=64MiB", "audit", "duplicates", name, "--by", "key", *on),
    ]
    if engine == "local":
        commands.append(("dedup", name, topic(lab1), "--by", "key"))
        log, output = merge_log_of(lab1, topic(lab1), name), topic(lab1)
        topics = ("--input", name, "--output-topic", output)
        merge = ("--merge-log", log, "--format", "json", *topics)
        commit = ("--from-merge-offset", "0:0", "--output-offset", "0:0")
        replay: tuple[str, ...] = ("merge", "replay", *merge, *commit, "--execute", "--yes")
        for words, ended in ((("merge", "verify", *merge), 3), (replay, 6)):  # five are sent
            # librdkafka reads those, and bounds what a batch may expand to by itself
            status, stderr, peak = measured(lab1, tmp_path, words)
            assert (status, "_BAD_COMPRESSION" in stderr) == (ended, True), (words, stderr)
            assert peak < PEAK_KIB, (words, peak)
    for told in commands:
        status, stderr, peak = measured(lab1, tmp_path, told)
        assert status == 3, (told, stderr)
        bound = "64 MiB" if "-X" in told else "128 MiB"
        said = [line for line in stderr.splitlines() if f"expands to more than {bound}" in line]
        assert len(said) == 1, (told, stderr)
        assert name in said[0]
        assert f"offset {ORDINARY}" in said[0]
        assert f"({codec})" in said[0]
        assert "a batch of " in said[0]
        assert EXPANDED_PROPERTY in said[0]
        assert peak < PEAK_KIB, (told, peak)
    counted = measured(lab1, tmp_path, ("offsets", "count", f"{name}:0", "earliest", "lso"))
    assert (counted[0], counted[2] < PEAK_KIB) == (0, True)  # headers say it


def merge_log_of(lab: Lab, log: str, source: str) -> str:
    """Entries that name each record of the source, the bombs too; the log's topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for offset in range(ORDINARY + BOMBS):
        entry = {"topic": source, "partition": 0, "offset": offset}
        producer.produce(log, json.dumps(entry).encode(), partition=0)
    assert producer.flush(30) == 0
    return log


def measured(lab: Lab, folder: Path, words: tuple[str, ...]) -> tuple[int, str, int]:
    """Run eoctl: its status, stderr, and the most memory that a process of it had, KiB."""
    errors = folder / "stderr"
    peaks = [0]
    ended = threading.Event()
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*EOCTL, "--bootstrap-server", lab.bootstrap_servers, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment(EOCTL_STATE_DIR=str(folder / "eoctl")),
        )

    def watch() -> None:  # Python workers of Spark's, which nobody here waits for
        while not ended.wait(0.05):
            for record in (folder / "eoctl" / "jobs").glob("*/job.json"):
                with suppress(OSError, ValueError, IndexError):
                    leader = int(record.read_text().split('"pid": ')[1].split(",")[0])
                    peaks.extend(map(python_peak, session_members(leader)))

    watching = threading.Thread(target=watch)
    watching.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watching.join()
    return process.returncode, errors.read_text(), max(*peaks, usage.ru_maxrss)


def python_peak(pid: int) -> int:
    """VmHWM of a Python process, KiB; 0 of others, and of one that has ended."""
    with suppress(OSError, StopIteration):
        if "python" not in Path(f"/proc/{pid}/exe").readlink().name:
            return 0
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0
