"""`restart plan` for an application of 1,000 partitions with small tails: its own time.

Own is what is left of the whole process without the pause between its two looks.
"""

import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.side_by_side import EOCTL, command, lab
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec

PARTITIONS = int(os.environ.get("EOCTL_BENCH_PARTITIONS", "1000"))
TAIL = 5
ROUNDS = 3
PAUSE = 0.5
GOAL_SECONDS = 5.0


@dataclass(frozen=True)
class Took:
    """Seconds of each round, without the pause; and of processor time."""

    what: str
    seconds: list[float]
    cpu: list[float]

    def lines(self) -> list[str]:
        low, high = min(self.seconds), max(self.seconds)
        return [
            self.what,
            f"  own time  min {low:.2f} s  max {high:.2f} s   goal: {GOAL_SECONDS} s",
        ]


def measure() -> Iterator[Took]:
    with lab(LabSpec("restart")) as one, tempfile.TemporaryDirectory() as folder:
        for strategy in ("commit-pair", "output-end"):
            app = _fill(one, Path(folder), strategy)
            argv = [*EOCTL, "--bootstrap-server", one.bootstrap_servers, "restart", "plan", app]
            run = command([*argv, "--pause", f"{PAUSE}s", "--timeout", "120s"], least=PARTITIONS)
            run()
            seconds, cpu = [], [_cpu()]
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - begin - PAUSE)
                cpu.append(_cpu())
            used = [after - before for before, after in pairwise(cpu)]
            yield Took(f"restart plan, {strategy}, {PARTITIONS:,} partitions", seconds, used)


def _cpu() -> float:
    """Seconds of processor time of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _fill(one: Lab, folder: Path, strategy: str) -> str:
    """Topics with records, a file store that lags TAIL behind; the application file."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(one.client_properties())
    names = [f"{strategy}-in", f"{strategy}-out"]
    new = [NewTopic(name, PARTITIONS, 1) for name in names]
    for made in admin.create_topics(new, operation_timeout=60).values():
        made.result(120)
    producer = Producer(one.client_properties() | {"enable.idempotence": True, "linger.ms": 50})
    for name in names:
        for number in range(2 * TAIL):
            for partition in range(PARTITIONS):
                producer.produce(name, b"%d" % number, partition=partition)
                producer.poll(0)
    assert producer.flush(120) == 0
    stored = [
        {
            "input": {"topic": names[0], "partition": p, "offset": TAIL},
            "output": {"topic": names[1], "partition": p, "offset": TAIL},
        }
        for p in range(PARTITIONS)
    ]
    (folder / "offsets.json").write_text(json.dumps({"partitions": stored}))
    app = folder / f"{strategy}.toml"
    app.write_text(
        f'[app]\nname = "wide"\nstrategy = "{strategy}"\ninputs = ["{names[0]}"]\n'
        f'outputs = ["{names[1]}"]\n[app.store]\nkind = "file"\npath = "offsets.json"\n'
    )
    return str(app)
