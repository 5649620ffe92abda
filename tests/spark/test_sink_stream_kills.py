"""Streams through foreach_batch, killed, with checkpoints deleted, set back and queries changed.

Nothing is lost and nothing doubled, or the batch is refused and nothing of it sent. The oracle is a
plain consumer, which counts each value of both topics.
"""

import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from tests.kafka.command import environment
from tests.kafka.conftest import MakeTopic
from tests.spark.sinking import python_workers, values, watched
from tests.spark.stream_killed import Asked, start
from tests.spark.test_source_stream import KEPT, send
from tests.started import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

REFUSED = re.compile(
    r"belongs to run [0-9a-f-]{36}, this is another run"
    r"|its checkpoint was set back"
    r"|the marker says|was begun from another staging"
)
QUERIES = [
    ("key", "value"),
    ("cast(null as string) key", "value"),
    ("key", "value", "timestamp"),
]


class World:
    """A topic that is filled, a query from it, and the checkpoint's copies."""

    def __init__(self, lab: Lab, topic: str, folder: Path, seed: int) -> None:
        self.lab, self.topic, self.folder = lab, topic, folder
        self.draw, self.steps = random.Random(seed), 0
        self.checkpoint, self.staging = folder / "checkpoint", folder / "staging" / topic
        self.copies: list[Path] = []
        self.kills = 0  # processes

    def fill(self) -> None:
        """Rows that count, and an aborted transaction, which must not."""
        self.steps += 1
        for how in self.draw.sample(["plain", "commit", "abort"], 3):
            send(self.lab, self.topic, f"{how}-{self.steps}", self.draw.randrange(50, 500), how=how)

    def asked(self) -> Asked:
        """The query, changed in what may change."""
        selects = self.draw.choice(
            [{"subscribe": self.topic}, {"subscribePattern": f"^{self.topic}$"}]
        )
        return Asked(
            server=self.lab.bootstrap_servers,
            topic=self.topic,
            folder=str(self.folder),
            options={
                **selects,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(self.draw.randrange(200, 1200)),
                "maxRecordsPerPartition": str(self.draw.choice([90, 100_000])),
            },
            query=self.draw.choice(QUERIES),
        )

    def keep(self) -> Path | None:
        """A copy of the checkpoint; nobody writes into it now."""
        if not self.checkpoint.exists():
            return None
        copy = self.folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.checkpoint, copy)
        self.copies.append(copy)
        return copy

    def restore(self, copy: Path | None) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        if copy is not None:
            shutil.copytree(copy, self.checkpoint)

    def damage(self) -> str:
        """Something that happens to checkpoints; what."""
        what = self.draw.choice(["nothing", "deleted", "set back", "commit lost", "plan lost"])
        if what == "deleted":
            self.restore(None)
        elif what == "set back" and self.copies:
            self.restore(self.draw.choice(self.copies))
        elif what in ("commit lost", "plan lost"):
            for log in ("commits", "offsets")[: 1 if what == "commit lost" else 2]:
                numbers = [int(p.name) for p in (self.checkpoint / log).glob("[0-9]*")]
                for path in (self.checkpoint / log).glob(f"*{max(numbers)}*" if numbers else "-"):
                    path.unlink()
        return what

    def moment(self) -> Callable[[Callable[[], int]], bool]:
        """When to kill, given what tells how much is written: at the plan, the staging, the
        sending."""
        planned = len(list((self.checkpoint / "offsets").glob("[0-9]*")))
        more, begin = self.draw.randrange(1, 150), -1

        def sent(written: Callable[[], int]) -> bool:
            nonlocal begin
            begin = written() if begin < 0 else begin
            return written() >= begin + more

        staged = set(self.staging.glob("*/part-*"))
        return self.draw.choice(
            [
                lambda _: len(list((self.checkpoint / "offsets").glob("[0-9]*"))) > planned,
                lambda _: bool(set(self.staging.glob("*/part-*")) - staged),
                sent,
                sent,
            ]
        )


def killing(
    world: World, ended: threading.Event, victims: Callable[[], list[int]]
) -> threading.Thread:
    """Kills once, at a moment that is drawn."""
    moment = world.moment()

    def watch() -> None:
        with watched(world.lab, f"{world.topic}-out") as written:
            while not moment(written):
                if ended.wait(0.005):
                    return
        for pid in victims():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                world.kills += 1

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def run_here(world: World, spark: "SparkSession", *, kill: bool) -> str | None:
    """In this process, whose driver lives on: a Python worker is killed. The error."""
    ended = threading.Event()

    def victims() -> list[int]:
        workers = python_workers(spark)
        return world.draw.sample(workers, min(len(workers), world.draw.randrange(1, 3)))

    thread = killing(world, ended, victims) if kill else None
    try:
        start(spark, world.asked()).awaitTermination()
    except Exception as error:
        return str(error)
    finally:
        ended.set()
        if thread is not None:
            thread.join()
    return None


def run_there(world: World, *, kill: bool) -> str | None:
    """As a driver of its own, which is killed with all that it started. The error."""
    words = [sys.executable, "-m", "tests.spark.stream_killed", world.asked().text()]
    env = environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    log, ended = world.folder / "log", threading.Event()
    with (
        log.open("wb") as output,
        started(words, env=env, stdout=output, stderr=output, start_new_session=True) as driver,
    ):
        pid = driver.pid
        thread = killing(world, ended, lambda: session_members(pid)) if kill else None
        status = driver.wait(300)
        ended.set()
        if thread is not None:
            thread.join()
        until = time.monotonic() + 30
        while session_members(pid) and time.monotonic() < until:
            time.sleep(0.05)
    return None if status == 0 else log.read_text(errors="replace") or f"status {status}"


def survive(world: World, run: Callable[[bool], str | None]) -> Counter[str]:
    """Twice: a run that is killed, damage, and runs until one goes through; what happened."""
    seen: Counter[str] = Counter()
    for _ in range(2):
        before = world.kills
        for _ in range(5):
            world.fill()
            seen["failed" if run(True) else "went on"] += 1
            if world.kills > before:  # else it ended before the moment that was drawn
                break
        assert world.kills > before
        newest, what = world.keep(), world.damage()
        seen[what] += 1
        world.fill()
        for _ in range(3):
            error = run(False)
            if error is None:
                break
            assert REFUSED.search(error), error
            assert what != "nothing", error
            seen[f"refused: {what}"] += 1
            world.restore(newest)  # as the refusal says
            what = "nothing"
        else:
            raise AssertionError(error)
        world.keep()
    return seen


SEEDS = 30


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_and_nothing_doubled(
    request: pytest.FixtureRequest, lab1: Lab, topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    """Every third seed kills drivers, the others Python workers in the tests' own session."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic(lab1, 2, 1, KEPT)
    admin = AdminClient(lab1.client_properties())
    out = f"{name}-out"
    admin.create_topics([NewTopic(out, 2, 1)], operation_timeout=10)[out].result(20)
    world = World(lab1, name, tmp_path, seed)
    if seed % 3 == 2:
        seen = survive(world, lambda kill: run_there(world, kill=kill))
    else:
        spark = request.getfixturevalue("spark")
        seen = survive(world, lambda kill: run_here(world, spark, kill=kill))
    given = values(lab1, name)
    assert given.total() > 300
    assert values(lab1, out) == given, dict(seen)
    print(f"seed {seed}: {world.kills} processes killed, {dict(seen)}")  # with -s
