"""What a record costs `state rebuild` from 1 M to 20 M records, and the most memory a process had.

Whole commands in turn, smallest to largest and again; the digests are those of a dict. Every topic
has five records a key, so that the live keys grow with it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rebuild
from benchmarks.side_by_side import EOCTL, command, lab
from eoctl.lab.record import LabSpec
from eoctl.stores.state import folder as state_folder

MILLIONS = tuple(map(float, os.environ.get("EOCTL_BENCH_MILLIONS", "1,5,20").split(",")))
ROUNDS = 2
GOAL_MIB = 1024


@dataclass(frozen=True)
class Scale:
    """Seconds of each round and the highest peak of a process in bytes, by the records read."""

    seconds: Mapping[int, Sequence[float]]
    peaks: Mapping[int, int]

    def lines(self) -> list[str]:
        found = ["rebuild, cost of a record as the log grows   goal: flat; memory bounded"]
        for records, times in self.seconds.items():
            cost = min(times) / records * 1e6
            found.append(
                f"  {records:>12,} records  min {min(times):.2f} s  {cost:.2f} us a record  "
                f"peak of a process {self.peaks[records] >> 20} MiB (goal: at most {GOAL_MIB})"
            )
        small, large = min(self.seconds), max(self.seconds)
        added = (min(self.seconds[large]) - min(self.seconds[small])) / (large - small) * 1e6
        return [*found, f"  each record beyond the smallest log: {added:.2f} us"]


def measure() -> Iterator[Scale]:
    sizes = [round(m * 1e6) for m in MILLIONS]
    with lab(LabSpec("scale")) as one, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "keep.py"
        script.write_text(rebuild.DICT, encoding="utf-8")
        seconds: dict[int, list[float]] = {records: [] for records in sizes}
        peaks = dict.fromkeys(sizes, 0)
        for records in sizes:
            rebuild.fill(one, f"scale-{records}", "none", records)
        for number in range(ROUNDS):
            for records in sizes:
                topic, state = f"scale-{records}", folder / f"{records}-{number}"
                words = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "state", "rebuild"]
                words += [topic, "--format", "plain", "--at", "lso", "--output", str(state)]
                words += ["--engine", "local", "--processes", str(rebuild.PROCESSES)]
                began = time.perf_counter()
                command(words)()
                seconds[records].append(time.perf_counter() - began)
                peaks[records] = max(peaks[records], state_folder.read(state).peak_bytes)
                if number == 0:
                    keep = [sys.executable, str(script), one.bootstrap_servers, topic, "digest"]
                    rebuild.check(state, [*keep, *rebuild.ends_of(state)])
    yield Scale(seconds, peaks)
