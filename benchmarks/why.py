"""`why` on a busy cluster: a million records of `__transaction_state`, some of them in the way.

An orphan needs all of that history, since nobody knows its id; an open transaction needs the
partition of its id. There is no peer: the goals are absolute, the load stands at the top. The
records are written by a real broker and then multiplied in its files while it is down.
"""

import asyncio
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from benchmarks.side_by_side import EOCTL, lab
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.formats.coordinator import coordinator_partition

RECORDS = 1_000_000
IDS = 5_000
WAITING = 20_000
ROUNDS = 5
NAME = "application-{:08d}"
INDEX_BYTES = 4096  # of a log between two entries of its offset index


@dataclass(frozen=True)
class Took:
    """Seconds of each round; cpu: of the process itself, user and system."""

    what: str
    seconds: list[float]
    goal: str
    cpu: list[float] | None = None
    records: int | None = None

    def lines(self) -> list[str]:
        text = f"  min {min(self.seconds):.3f} s  median {sorted(self.seconds)[ROUNDS // 2]:.3f} s"
        if self.cpu is not None:
            text += f"  of its own: min {min(self.cpu):.3f} s"
        if self.records is not None:
            text += f"  {self.records / min(self.seconds) / 1e6:.2f} M records/s"
        return [self.what, f"{text}   goal: {self.goal}"]


def measure() -> Iterator[Took]:
    with lab(LabSpec("why")) as one:
        from confluent_kafka import Producer

        [held] = break_(one, "orphan", hold=False)
        one_transaction(one)
        one.kill(1)
        written = multiply(one.data_folder(1))
        one.start(1)
        until_loaded(one)
        [live] = break_(one, "open", hold=False)
        producer = Producer(one.client_properties())
        for truth in (held, live):
            for number in range(WAITING):
                producer.produce(truth.topic, b"waits", partition=truth.partition)
                if number % 1000 == 0:
                    producer.poll(0)
            assert producer.flush(60) == 0
        words = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "why"]
        words += ["--sample-interval", "0s", "--timeout", "60s"]
        with tempfile.TemporaryDirectory() as cache:

            def explained(topic: str, status: int, fresh: bool) -> tuple[list[float], list[float]]:
                def run(number: int) -> tuple[float, float]:
                    folder = Path(cache, str(number) if fresh else "kept")
                    return process([*words, topic], status, folder)

                if not fresh:
                    run(0)
                rounds = [run(number) for number in range(ROUNDS)]
                return [wall for wall, _ in rounds], [cpu for _, cpu in rounds]

            wall, cpu = explained(live.topic, 0, fresh=True)
            yield Took(f"why, open, {WAITING:,} records wait, no cache", wall, "1 s", cpu)
            wall, cpu = explained(held.topic, 1, fresh=False)
            what = f"why, orphan, {written:,} records of history kept from the last run"
            yield Took(what, wall, "1 s", cpu)
        yield _read(one, written, held.producer_id or 0)


def until_loaded(one: Lab) -> None:
    """Until the coordinator has read its million records."""
    words = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "txn", "list"]
    end = time.monotonic() + 120
    while subprocess.run(words, capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            raise SystemExit("the coordinator does not finish loading")
        time.sleep(1)


def process(argv: list[str], status: int, cache: Path | None = None) -> tuple[float, float]:
    """(wall, its own) seconds of one run."""
    begin = time.perf_counter()
    environ = {**os.environ, **({"EOCTL_CACHE_DIR": str(cache)} if cache else {})}
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ)
    assert child.stderr is not None
    said = child.stderr.read().decode()
    _, ended, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(ended)
    if child.returncode != status:
        raise SystemExit(f"{argv[-1]} ended with {child.returncode}: {said}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime


def _read(one: Lab, written: int, producer_id: int) -> Took:
    """All of it over the wire, for one producer id, without a cache."""
    from eoctl.kafka.ask import coordinators
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.kafka.read.state_logs import state_logs
    from eoctl.operations.session.session import with_cluster
    from eoctl.settings.context import Connect, resolve
    from recovery.facts import Missing

    async def read(cluster: Cluster) -> float:
        partitions = await coordinators.state_partitions(cluster)
        assert not isinstance(partitions, Missing)
        begin = time.perf_counter()
        logs = await state_logs(cluster, partitions, {producer_id})
        took = time.perf_counter() - begin
        assert all(log.error is None and log.whole_from == 0 for log in logs)
        return took

    context = resolve(Connect(bootstrap_server=one.bootstrap_servers))
    rounds = [with_cluster(context, 120.0, read) for _ in range(ROUNDS)]
    what = "__transaction_state read over the wire, one producer id looked for"
    return Took(what, rounds, "0.5 M records/s", records=written)


def one_transaction(one: Lab) -> None:
    """What a coordinator writes of one transaction: the pattern of all."""
    from eoctl.lab.client import Client, NewRecord
    from eoctl.lab.producer import Producer

    async def run() -> None:
        async with Client.to(one.bootstrap_servers) as client:
            producer = await Producer.init(client, NAME.format(0))
            await producer.send("pattern", 0, [NewRecord(b"x")])
            await producer.commit()

    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(one.client_properties())
    admin.create_topics([NewTopic("pattern", 1, 1)], operation_timeout=30)["pattern"].result(60)
    asyncio.run(run())


def multiply(data: Path, records: int = RECORDS) -> int:
    """Append the pattern to the files of a broker that is down, for many ids; records in all.

    The offset index is written too: a broker that was shut down cleanly then reads no batch before
    it is ready.
    """
    folders = {int(f.name.rpartition("-")[2]): f for f in data.glob("__transaction_state-*")}
    home = folders[coordinator_partition(NAME.format(0), len(folders))]
    (log,) = home.glob("*.log")
    pattern = [b for b in _batches(log.read_bytes()) if NAME.format(0).encode() in b]
    ids: dict[int, list[int]] = {}
    for number in range(1, IDS + 1):
        partition = coordinator_partition(NAME.format(number), len(folders))
        ids.setdefault(partition, []).append(number)
    total = 0
    for partition, folder in folders.items():
        (log,) = folder.glob("*.log")
        offset = sum(1 for _ in _batches(log.read_bytes()))
        made = [_patched(batch, number) for number in ids.get(partition, ()) for batch in pattern]
        positions = list(accumulate(map(len, made), initial=0))
        again = bytearray(b"".join(made))
        for path in folder.iterdir():
            if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
                path.unlink()
        with log.open("ab") as file, log.with_suffix(".index").open("wb") as index:
            indexed = 0
            for _ in range(records // IDS // len(pattern)):
                for position in positions[:-1]:
                    struct.pack_into(">q", again, position, offset)  # its CRC leaves out the offset
                    if file.tell() + position - indexed > INDEX_BYTES:
                        indexed = file.tell() + position
                        index.write(struct.pack(">ii", offset, indexed))
                    offset += 1
                file.write(again)
        total += offset
    return total


def _batches(log: bytes) -> Iterator[bytes]:
    """Each record batch of a segment; a coordinator writes one record in each."""
    position = 0
    while position + 12 <= len(log):
        (length,) = struct.unpack_from(">i", log, position + 8)
        yield log[position : position + 12 + length]
        position += 12 + length


def _patched(batch: bytes, number: int) -> bytes:
    """The batch of another id with another producer id; its CRC is right."""
    from crc32c import crc32c

    name = batch.index(NAME.format(0).encode())
    value = name + len(NAME.format(0)) + 1
    while struct.unpack_from(">h", batch, value)[0] not in (0, 1):  # after the value's length
        value += 1
    copy = bytearray(batch)
    copy[name : name + len(NAME.format(0))] = NAME.format(number).encode()
    struct.pack_into(">q", copy, value + 2, 10_000_000 + number)
    struct.pack_into(">I", copy, 17, crc32c(bytes(copy[21:])))
    return bytes(copy)
