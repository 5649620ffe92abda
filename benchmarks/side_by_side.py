"""Two commands, run in turn in one go, whole processes: their times and the ratio between them.

A noisy machine hits both alike; the minimum says what is possible, the median what is usual.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eoctl.lab.cluster import Lab, up
from eoctl.lab.record import LabSpec

EOCTL = (sys.executable, "-m", "eoctl")

Run = Callable[[], None]


@dataclass(frozen=True)
class Measured:
    """Seconds of each round. goal: what the ratio is held against, in words."""

    what: str
    ours: Sequence[float]
    peer: Sequence[float]
    peer_name: str
    goal: str

    def lines(self) -> list[str]:
        """For people: both times, and how many times faster we are."""

        def both(times: Sequence[float]) -> str:
            return f"min {min(times):.3f} s  median {statistics.median(times):.3f} s"

        low = min(self.peer) / min(self.ours)
        usual = statistics.median(self.peer) / statistics.median(self.ours)
        return [
            self.what,
            f"  {'eoctl':<20} {both(self.ours)}",
            f"  {self.peer_name:<20} {both(self.peer)}",
            f"  {'peer / eoctl':<20} min {low:.2f}x  median {usual:.2f}x   goal: {self.goal}",
        ]


@dataclass(frozen=True)
class Size:
    """Bytes of something, against what they may be."""

    what: str
    bytes: int
    most: int

    def lines(self) -> list[str]:
        """For people: what it takes, against what it may."""
        return [self.what, f"  {self.bytes >> 20} MiB   goal: {self.most >> 20} MiB or less"]


def alternate(ours: Run, peer: Run, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of `rounds` runs of each, one after the other; one run of each before is lost."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for run, found in zip((ours, peer), times, strict=True):
            begin = time.perf_counter()
            run()
            if number:
                found.append(time.perf_counter() - begin)
    return times


def tree_cpu() -> float:
    """Seconds of CPU of this process and of all below it but brokers, those that ended included."""
    stats: dict[int, list[str]] = {}
    brokers = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "stat").read_text().rpartition(")")[2].split()
            stats[int(path.name)] = words
            if b"kafka.Kafka" in (path / "cmdline").read_bytes():
                brokers.add(int(path.name))
    ticks, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        ticks += sum(map(int, stats[pid][11:15]))  # utime, stime, and those of ended children
        todo += [p for p, words in stats.items() if int(words[1]) == pid and p not in brokers]
    return ticks / os.sysconf("SC_CLK_TCK")


def command(
    argv: Sequence[str], status: int = 0, env: Mapping[str, str] | None = None, least: int = 0
) -> Run:
    """Run argv as a process; it must end with `status` and print `least` lines at least."""

    def run() -> None:
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
        if done.returncode != status or len(done.stdout.splitlines()) < least:
            raise SystemExit(f"{' '.join(argv)[-200:]} ended with {done.returncode}: {done.stderr}")

    return run


def settled(argv: Sequence[str], seconds: float = 300) -> None:
    """Run argv until it ends with 0: on a busy machine brokers are not ready for all at once."""
    end = time.monotonic() + seconds
    while subprocess.run(argv, capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            raise SystemExit(f"{' '.join(argv)[-200:]} does not end with 0")
        time.sleep(1)


def tool(lab: Lab, name: str, *words: str) -> list[str]:
    """The command line of one of Kafka's tools, started as kafka-run-class.sh starts it."""
    server = ("--bootstrap-server", lab.bootstrap_servers)
    return lab.runtime().tool_argv(f"org.apache.kafka.tools.{name}", *server, *words)


@contextmanager
def lab(spec: LabSpec) -> Iterator[Lab]:
    """A lab of its own, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as folder:
        before = os.environ.get("EOCTL_STATE_DIR")
        os.environ["EOCTL_STATE_DIR"] = str(Path(folder))
        found = up(spec)
        try:
            yield found
        finally:
            found.down()
            if before is None:
                del os.environ["EOCTL_STATE_DIR"]
            else:
                os.environ["EOCTL_STATE_DIR"] = before


def make_topics(found: Lab, names: Sequence[str], partitions: int) -> None:
    """Topics of one replica each; one request each, as a controller takes only so many at once."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(found.client_properties())
    for name in names:
        new = NewTopic(name, partitions, 1)
        admin.create_topics([new], operation_timeout=60)[name].result(120)
    end = time.monotonic() + 300
    while sum(len(t.partitions) for t in admin.list_topics(timeout=60).topics.values()) < (
        len(names) * partitions
    ):
        if time.monotonic() > end:
            raise SystemExit("the topics were not made in five minutes")
        time.sleep(1)
    time.sleep(5)  # the brokers make the last logs
