"""Plan drills on work rather than transactions: a dead job, a lost state, duplicates.

Each judges a topic by reading it completely, against independently known content.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.host.processes import spawn, wait_ended
from eoctl.lab import admin
from eoctl.lab.client import NewRecord
from eoctl.lab.drills import judge
from eoctl.lab.drills.drill_state import Case
from eoctl.lab.drills.planting import Scene
from eoctl.lab.job import (
    CHANGELOG,
    GROUP,
    INPUT,
    OUTPUT,
    PARTITIONS,
    LabJob,
    expected_outputs,
    expected_totals,
    records,
)
from eoctl.lab.lab_tables import DrillGradeRow
from recovery.errors import RefusedError, UnverifiedError

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

TOTALS = "sales-totals"
DOUBLED, CLEAN = "orders-enriched", "orders-clean"
JOB_SECONDS = 120
KEYS, COPIES, PRICES = 400, 60, 7


async def job(scene: Scene) -> None:
    """Plant the practice job, killed between two commits."""
    written = scene.rng.randrange(1101, 2899)
    await _job_ran(scene, "--die-after", str(written))
    scene.cases.append(Case("job", OUTPUT, OUTPUT))


async def store(scene: Scene) -> None:
    """Plant the practice job, run to its end, with its state store lost afterwards."""
    await _job_ran(scene)
    await asyncio.to_thread(_lose_store, scene.lab)
    await admin.create_topic(
        scene.client, TOTALS, PARTITIONS, configs={"cleanup.policy": "compact"}
    )
    scene.topics.append(TOTALS)
    scene.cases.append(Case("store", TOTALS, TOTALS))


def _lose_store(lab: "Lab") -> None:
    LabJob(lab, {}).lose_store().unlink()  # no dump is at hand at night


async def _job_ran(scene: Scene, *options: str) -> None:
    """Run `lab job` in its own process, which may kill itself."""
    for topic in (INPUT, OUTPUT, CHANGELOG):
        if topic in await scene.client.topics():
            raise RefusedError(
                f"the lab has run its practice job already: there is a topic {topic!r}",
                remedy="eoctl lab down, then a new lab",
            )
    argv = [sys.executable, "-m", "eoctl", "lab", "job", "--name", scene.lab.name, *options]
    log = scene.lab.folder / "job.log"
    process = await asyncio.to_thread(spawn, argv, log)
    left = await asyncio.to_thread(wait_ended, [process], JOB_SECONDS)
    if left or OUTPUT not in await scene.client.topics():
        raise UnverifiedError("the practice job did not run", where=str(log))
    scene.topics += [INPUT, OUTPUT, CHANGELOG]
    scene.groups.append(GROUP)


async def duplicates(scene: Scene) -> None:
    """Plant a topic in which a restart wrote some records twice; many share a value."""
    numbers = list(range(KEYS))
    at = scene.rng.randrange(100, KEYS - COPIES)
    numbers[at + COPIES : at + COPIES] = numbers[at : at + COPIES]
    for topic in (DOUBLED, CLEAN):
        await admin.create_topic(scene.client, topic, 1)
        scene.topics.append(topic)
    for start in range(0, len(numbers), 50):
        part = numbers[start : start + 50]
        new = [NewRecord(b"price %d" % (n % PRICES), b"order-%d" % n) for n in part]
        await scene.client.plain(DOUBLED, 0, new)
    scene.cases.append(Case("copy", CLEAN, CLEAN))


def grade(lab: "Lab", case: Case) -> DrillGradeRow:
    """Read a case's topic and mark it."""
    return {"job": _grade_job, "store": _grade_store, "copy": _grade_copy}[case.role](lab, case)


def _grade_job(lab: "Lab", case: Case) -> DrillGradeRow:
    """Mark as missing only records before the last output: the job may not be finished yet."""
    lost = doubled = present = 0
    whole = True
    for actual, expected in zip(LabJob(lab, {}).outputs(), expected_outputs(), strict=True):
        number = {value: n for n, value in enumerate(expected)}
        counts = Counter(number[value] for value in actual)
        last = max(counts, default=-1)
        lost += last + 1 - len(counts)
        doubled += counts.total() - len(counts)
        present += counts.total()
        whole &= last + 1 == len(expected)
    return judge.records(
        case, present=present, lost=lost, doubled=doubled, whole=whole, done="finished"
    )


def _grade_store(lab: "Lab", case: Case) -> DrillGradeRow:
    lost = present = 0
    for p, expected in enumerate(expected_totals()):
        latest = {r.key: r.value for r in records(lab, TOTALS, p)}
        present += len(latest)
        lost += sum(latest.get(name) != str(total) for name, total in expected.items())
    whole = present > 0
    return judge.records(
        case, present=present, lost=lost if whole else 0, doubled=0, whole=whole, done="delivered"
    )


def _grade_copy(lab: "Lab", case: Case) -> DrillGradeRow:
    counts = Counter(r.key for r in records(lab, CLEAN, 0))
    lost = KEYS - len(counts) if counts else 0
    doubled = counts.total() - len(counts)
    return judge.records(
        case,
        present=counts.total(),
        lost=lost,
        doubled=doubled,
        whole=bool(counts),
        done="copied",
    )


def job_files(lab: "Lab") -> Path:
    """Return the folder in which the practice job keeps its files."""
    return LabJob(lab, {}).app_file.parent
