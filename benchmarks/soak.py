"""`make soak`: memory and open files of what runs all day, beside a busy cluster.

Transactional producers commit RATE transactions a second on a lab of one broker. A dashboard on a
terminal of its own, an exporter, and a `check` after another run beside them. Their memory, open
files and threads are read from /proc and printed. `python -m benchmarks.soak [MINUTES]`

It is not flat if one passes MOST_BYTES or ends before the others; if its open files or threads
grow; or if its memory grows from the third quarter of the run to the last, by medians:

- by more than GROWS, whatever the length of the run: less is caches and arenas that still fill;
- in a run of LONG minutes also if going on like that would pass MOST_BYTES within AHEAD, and the
  difference is more than the third quarter's own samples differ.

A check that gives no answer, and a cluster with less than a tenth of RATE, are faults as well.
So 2 minutes find what follows the log in memory, and no slow leak; 20 minutes find 2 MiB a minute.
"""

import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

from benchmarks.side_by_side import EOCTL, lab
from eoctl.lab.record import LabSpec
from recovery.errors import Exit

MINUTES = 20.0
RATE = 150  # transactions a second
IDS = 30
TOPIC = "soak"
PARTITIONS = 24
MOST_BYTES = 150 << 20
GROWS = 24 << 20  # bytes by which the end's median may pass the middle's: caches that still fill
LONG = 10.0  # minutes
AHEAD = 7200.0  # seconds
MORE = 3  # open files, or threads
ANSWERS = (Exit.OK, Exit.FINDING)


@dataclass(frozen=True)
class Sample:
    """One process at one moment. at: seconds since the start."""

    at: float
    rss: int  # bytes
    files: int
    threads: int


@dataclass
class Subject:
    """Something that is measured, and its samples."""

    name: str
    samples: list[Sample] = field(default_factory=list)

    def take(self, at: float, pid: int) -> None:
        """Sample the process; one that has ended is left out."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            rss, threads = int(fields["VmRSS"].split()[0]) << 10, int(fields["Threads"])
        except (OSError, KeyError):
            return
        self.samples.append(Sample(at, rss, files, threads))

    def faults(self) -> list[str]:
        """Return what is wrong with it, in words."""
        if len(self.samples) < 4:
            return [f"{self.name}: only {len(self.samples)} samples"]
        third = max(1, len(self.samples) // 4)
        middle = self.samples[len(self.samples) // 2 :][:third]
        end = self.samples[-third:]
        most = max(s.rss for s in self.samples)
        found = []
        if most > MOST_BYTES:
            found.append(f"{self.name}: {most >> 20} MiB")
        grown = _median([s.rss for s in end]) - _median([s.rss for s in middle])
        if grown > GROWS or self._goes_on(grown, middle, end):
            found.append(f"{self.name}: its memory grows")
        for what, before, after in (
            ("open files", [s.files for s in middle], [s.files for s in end]),
            ("threads", [s.threads for s in middle], [s.threads for s in end]),
        ):
            if _median(after) > _median(before) + MORE:
                found.append(f"{self.name}: its {what} grow")
        return found

    def _goes_on(self, grown: int, middle: Sequence[Sample], end: Sequence[Sample]) -> bool:
        """Tell whether growing like that passes MOST_BYTES. grown: bytes, between these samples."""
        if self.samples[-1].at - self.samples[0].at < 60 * LONG * 0.9:
            return False
        usual = [s.rss for s in middle]
        seconds = _median([int(s.at) for s in end]) - _median([int(s.at) for s in middle])
        ahead = _median([s.rss for s in end]) + grown / max(1, seconds) * AHEAD
        return grown > max(usual) - min(usual) and ahead > MOST_BYTES


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


@dataclass(frozen=True)
class Soaked:
    """What has run beside what. statuses: the exit status of each check."""

    seconds: float
    transactions: int
    statuses: Sequence[int]
    subjects: Sequence[Subject]

    def faults(self) -> list[str]:
        """Return what is wrong, in words; also what was not tried."""
        looks = len(self.statuses)
        found = [fault for s in self.subjects for fault in s.faults()]
        found += [f"{s.name}: it ended" for s in self.subjects if len(s.samples) < looks]
        if self.transactions < RATE * self.seconds / 10:
            found.append(f"the cluster was not busy: {self.transactions} transactions")
        if other := sorted(set(self.statuses) - set(ANSWERS)):
            found.append(f"check ended with {', '.join(map(str, other))}")
        return found


def load(servers: str, until: float, counts: list[int]) -> None:
    """Commit RATE transactions a second by IDS producers, one in ten of them aborted."""
    from confluent_kafka import KafkaException, Producer

    def one(number: int) -> None:
        while time.monotonic() < until:
            try:
                go_on(number)
            except KafkaException as error:  # fatal to this producer on a machine that is too slow
                print(f"soak-{number} begins again: {error}", flush=True)

    def go_on(number: int) -> None:
        settings = {"bootstrap.servers": servers, "transactional.id": f"soak-{number}"}
        producer = Producer({**settings, "linger.ms": 0, "log_level": 3})
        producer.init_transactions(60)
        due = time.monotonic()
        while time.monotonic() < until:
            producer.begin_transaction()
            for partition in {number % PARTITIONS, (number * 7 + 1) % PARTITIONS}:
                producer.produce(TOPIC, b"x" * 100, partition=partition)
            if counts[number] % 10 == 9:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
            counts[number] += 1
            due = max(due + IDS / RATE, time.monotonic() - 5)
            time.sleep(max(0.0, due - time.monotonic()))

    threads = [threading.Thread(target=one, args=(n,), daemon=True) for n in range(IDS)]
    for each in threads:
        each.start()


def _dashboard(servers: str, environment: dict[str, str]) -> tuple[int, Callable[[], None]]:
    """Start `eoctl tui` on a terminal whose output is thrown away. Return how it is ended."""
    pid, screen = pty.fork()
    if pid == 0:
        argv = [*EOCTL, "--bootstrap-server", servers, "tui"]
        os.execvpe(argv[0], argv, environment | {"TERM": "xterm-256color"})
    ioctl(screen, TIOCSWINSZ, pack("HHHH", 40, 140, 0, 0))

    def drain() -> None:
        try:
            while os.read(screen, 1 << 16):
                pass
        except OSError:
            return

    threading.Thread(target=drain, daemon=True).start()

    def end() -> None:
        os.write(screen, b"q")
        time.sleep(3)
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            return
        os.waitpid(pid, 0)

    return pid, end


def soak(minutes: float) -> Soaked:
    """Run it and print the samples."""
    with lab(LabSpec("soak")) as one, tempfile.TemporaryDirectory() as folder:
        from confluent_kafka.admin import AdminClient, NewTopic

        servers = one.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        environment = os.environ | {"EOCTL_CACHE_DIR": folder, "EOCTL_STATE_DIR": folder}
        begin = time.monotonic()
        until = begin + 60 * minutes
        counts = [0] * IDS
        # before the load: a fork inherits its sockets
        pid, end = _dashboard(servers, environment)
        load(servers, until + 5, counts)
        server = ("--bootstrap-server", servers)
        exporter = subprocess.Popen(
            [*EOCTL, *server, "exporter", "--listen", "127.0.0.1:0", "--interval", "5s"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        subjects = [Subject("dashboard"), Subject("exporter"), Subject("check")]
        statuses: list[int] = []
        print(f"{'seconds':>8}  {'what':<10} {'MiB':>6} {'files':>6} {'threads':>8}", flush=True)
        try:
            while time.monotonic() < until:
                _round(subjects, begin, pid, exporter.pid, [*EOCTL, *server, "check"],
                       environment, statuses)  # fmt: skip
                time.sleep(max(0.0, min(5 * minutes / 2, until - time.monotonic())))
        finally:
            end()
            exporter.kill()
            exporter.wait()
        kept = sum(p.stat().st_size for p in Path(folder).rglob("*.log"))
        ran = Soaked(time.monotonic() - begin, sum(counts), statuses, subjects)
        print(f"{ran.transactions} transactions in {ran.seconds:.0f} s")
        print(
            f"__transaction_state kept: {kept >> 20} MiB; check ended with {sorted(set(statuses))}"
        )
        return ran


def _round(
    subjects: Sequence[Subject],
    begin: float,
    dashboard: int,
    exporter: int,
    check: Sequence[str],
    environment: dict[str, str],
    statuses: list[int],
) -> None:
    """Sample the two that run, and a check at its largest."""
    at = time.monotonic() - begin
    subjects[0].take(at, dashboard)
    subjects[1].take(at, exporter)
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(check, env=environment, stdout=output, stderr=output)
        whole = Subject("check")
        while started.poll() is None:
            whole.take(at, started.pid)
            time.sleep(0.02)
        statuses.append(started.returncode)
        if started.returncode:
            output.seek(0)
            print(f"check ended with {started.returncode}:\n{output.read().decode()}", flush=True)
    if whole.samples:
        subjects[2].samples.append(max(whole.samples, key=lambda s: s.rss))
    for s in subjects:
        if s.samples and s.samples[-1].at == at:
            now = s.samples[-1]
            row = f"{at:8.0f}  {s.name:<10} {now.rss >> 20:6} {now.files:6} {now.threads:8}"
            print(row, flush=True)


def main() -> None:
    faults = soak(float(sys.argv[1]) if sys.argv[1:] else MINUTES).faults()
    if faults:
        raise SystemExit("not flat: " + "; ".join(faults))
    print("flat")


if __name__ == "__main__":
    main()
