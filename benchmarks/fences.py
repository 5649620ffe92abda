"""One plan of 300 fences against fences planned one by one, of which a few are taken.

The pause between two looks is in both: once in the plan of all, once in each of the others.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import EOCTL, Measured, command, lab, make_topics
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec

IDS, PARTITIONS, ONE_BY_ONE = 300, 24, 3
ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def measure() -> Iterator[Measured]:
    with lab(LabSpec("fences", settings={ABORT_CYCLE: "3600000"})) as one, _file() as folder:
        plan = Path(folder) / "plan.json"
        make_topics(one, ["fences"], PARTITIONS)
        asyncio.run(_leave_open(one))
        server = ("--bootstrap-server", one.bootstrap_servers)
        ours = _seconds([*EOCTL, *server, "txn", "hanging", "--plan", str(plan)], status=1)
        steps = json.loads(plan.read_text())["plan"]["steps"]
        if len(steps) != IDS:
            raise SystemExit(f"{len(steps)} fences were planned, not {IDS}")
        each = [_seconds([*EOCTL, *server, "txn", "fence", f"late-{n}"]) for n in range(ONE_BY_ONE)]
        yield Measured(
            f"{IDS} fences planned",
            [ours],
            [sum(each) / ONE_BY_ONE * IDS],
            f"{IDS} x one (of {ONE_BY_ONE})",
            "8 s or less, 30x or more",
        )


def _file() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="eoctl-fences-")


def _seconds(argv: list[str], status: int = 0) -> float:
    begin = time.perf_counter()
    command(argv, status)()
    return time.perf_counter() - begin


async def _leave_open(one: Lab) -> None:
    """Open a transaction of each id that is past its timeout within a second."""
    async with Client.to(one.bootstrap_servers) as client:
        for n in range(IDS):
            owner = await Producer.init(client, f"late-{n}", 1_000)
            await owner.send("fences", n % PARTITIONS, [NewRecord(b"x")])
    await asyncio.sleep(1.2)
