"""`check` on a transaction log of 1 GB: the first time, and when it has been read before.

The records are written by a real broker and then multiplied in its files while it is down, as in
`benchmarks.why`; OPEN ids then have a transaction open. There is no peer: the goals are absolute.
"""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import why
from benchmarks.side_by_side import EOCTL, lab, settled
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec

MEGABYTES = int(os.environ.get("EOCTL_BENCH_STATE_LOG_MB", "1000"))
RECORD_BYTES = 148  # of a batch on average
OPEN = 200
ROUNDS = 3
MOST_BYTES = 150 << 20
AT_ONCE = 16


@dataclass(frozen=True)
class Run:
    """One process. wall, cpu: seconds; peak: bytes of memory."""

    wall: float
    cpu: float
    peak: int


@dataclass(frozen=True)
class Checked:
    """Runs of `check`. goal: in words."""

    what: str
    runs: list[Run]
    goal: str

    def lines(self) -> list[str]:
        wall, cpu = min(r.wall for r in self.runs), min(r.cpu for r in self.runs)
        peak = max(r.peak for r in self.runs)
        text = f"  wall {wall:.2f} s  of its own {cpu:.2f} s  peak {peak >> 20} MiB"
        return [self.what, f"{text}   goal: {self.goal}, {MOST_BYTES >> 20} MiB"]


def measure() -> Iterator[Checked]:
    with lab(LabSpec("state-log")) as one:
        why.one_transaction(one)
        one.terminate(1)
        written = why.multiply(one.data_folder(1), MEGABYTES * 1_000_000 // RECORD_BYTES)
        size = sum(p.stat().st_size for p in one.data_folder(1).glob("__transaction_state-*/*.log"))
        one.start(1)
        why.until_loaded(one)
        asyncio.run(_open(one.bootstrap_servers))
        words = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "--timeout", "120s", "check"]
        what = f"check, {size >> 20} MiB of __transaction_state ({written:,} records), {OPEN} open"
        with tempfile.TemporaryDirectory() as folder:
            # a broker that has just loaded all that answers late
            settled(["env", f"EOCTL_CACHE_DIR={folder}/settling", *words])
            yield Checked(
                f"{what}, never read before", [_run(words, f"{folder}/kept")], "no time limit"
            )
            runs = [_run(words, f"{folder}/kept") for _ in range(ROUNDS)]
            yield Checked(f"{what}, read before", runs, "1.5 s")


def _run(words: list[str], cache: str) -> Run:
    begin = time.perf_counter()
    child = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"EOCTL_CACHE_DIR": str(Path(cache))},
    )
    assert child.stdout is not None
    said = child.stdout.read().decode()
    _, ended, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(ended)
    if child.returncode:
        raise SystemExit(f"check ended with {child.returncode}: {said}")
    wall = time.perf_counter() - begin
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)


async def _open(servers: str) -> None:
    """Begin a transaction of ids with a long past, each with a record in the same partition."""
    numbers = iter(range(1, OPEN + 1))

    async def some(client: Client) -> None:
        for number in numbers:
            producer = await Producer.init(client, why.NAME.format(number), 900_000)
            await producer.send("pattern", 0, [NewRecord(b"waits")])

    async with Client.to(servers) as client:
        await asyncio.gather(*(some(client) for _ in range(AT_ONCE)))
