"""Situations beside those that are written down elsewhere, as somebody tries who trusts no remedy.

What is expected is what was done to the records: never an abort of what was committed, never a
commit of what was not.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoctl.lab import admin
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.markers import stoppable, stopped, write_marker
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.stage import BreakTarget, Options, Stage, batch
from eoctl.lab.breaks.truth import STRAY_NOT_YET
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.diagnose.verdicts import Verdict
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.command import FAST, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.remedying import read_committed
from tests.kafka.test_history_evidence import STATE, verdicts
from tests.kafka.test_rule_names import compacted

pytestmark = pytest.mark.long

SOON = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
ACT = (*FAST, "--execute", "--yes")


@pytest.fixture(scope="module")
def pair(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="distrust", brokers=2, settings=SOON))
    yield lab
    lab.down()


REPEATS = ("C C' A-", "C C' A C-", "A A' C-", "C A A' C-", "C A- C'", "C A C'-")
"""Ends of one epoch of v1 on a partition each: ' = its marker once more, - = its marker lost.

The sixth cannot be: a marker that is lost has none that could be repeated.
"""


async def plant_repeats(lab: Lab, topic: str) -> dict[int, str]:
    """Partition → the outcome of what is open there."""
    async with Client.of(lab.client_properties()) as to_all:
        stage = Stage("distrust", Options(), to_all, lab)
        async with stoppable(stage) as victim:
            client, lost = stage.client, []
            sequences = REPEATS[:4]
            await client.until(lambda: client.coordinator("lab"))
            await admin.create_topic(
                client, topic, len(sequences), 1, replicas=[[victim]] * len(sequences)
            )
            for number, ends in enumerate(sequences):
                name = f"{topic}.{number}"
                producer = await Producer.init(client, name, 600_000, version=1)
                for word in ends.split():
                    commit = word[0] == "C"
                    if word.endswith("'"):
                        rows = await client.producers(topic, number)
                        epoch = rows[producer.producer_id].coordinator_epoch or 0
                        target = BreakTarget(topic, number, name)
                        await write_marker(
                            client, target, producer, commit=commit, coordinator_epoch=epoch
                        )
                        continue
                    await producer.send(topic, number, batch(1, word))
                    if word.endswith("-"):
                        lost.append((producer, commit))
                        continue
                    await producer.end(commit=commit)
                    await producer.completed()
            async with stopped(stage, victim):
                for producer, commit in lost:
                    await producer.end(commit=commit)
                    await producer.completed()
    return {n: "commit" if ends[-2] == "C" else "abort" for n, ends in enumerate(sequences)}


def test_markers_that_stand_twice_with_an_abort_among_the_commits(
    pair: Lab, tmp_path: Path
) -> None:
    truth = asyncio.run(plant_repeats(pair, "repeated"))
    told = verdicts(pair, {"repeated"}, tmp_path)
    assert {number for _, number in told} == truth.keys()
    for (_, number), verdict in told.items():
        assert verdict.name in ("marker-lost", "unknown"), (REPEATS[number], verdict)
        assert verdict.proven_outcome in (truth[number], None), (REPEATS[number], verdict)
        if verdict.name == "unknown":
            assert verdict.rule == "order-unclear"
    # another outcome than the last one's before it: only one order is left
    assert told["repeated", 0].proven_outcome == "abort"
    assert told["repeated", 2].proven_outcome == "commit"


@pytest.mark.parametrize("version", [1, 2])
def test_two_topics_of_one_name_and_a_write_of_nobody(
    pair: Lab, topic: MakeTopic, tmp_path: Path, version: int
) -> None:
    """Commits on the first two, a stray on the third: under v2 an orphan, under v1 not known.

    Who saw the third topic's id after the last commit knows under v1 too.
    """
    name = topic(pair, 1)

    async def plant() -> None:
        async with Client.of(pair.client_properties()) as client:
            producer = await Producer.init(client, f"{name}.id", version=version)
            for _ in range(2):
                await producer.send(name, 0, batch(1, "committed"))
                await producer.commit()
                await producer.completed()
                await admin.delete_topic(client, name)
                await admin.create_topic(client, name, 1, 1)
                producer.sequences.clear()
            stray = Producer(
                client, producer.producer_id, producer.epoch, producer.transactional_id
            )
            async with unverified(client):
                await client.until(
                    lambda: stray.write(name, 0, batch(1, "stray")),
                    also=STRAY_NOT_YET | {"INVALID_PRODUCER_EPOCH"},
                )

    asyncio.run(plant())
    verdict = verdicts(pair, {name}, tmp_path)[name, 0]
    expected = ("unknown", "topic-identity") if version == 1 else ("orphan", "nobody-owns-it")
    assert (verdict.name, verdict.rule) == expected
    refused = eoctl(*resolving(name, verdict), "commit", *ACT, lab=pair)
    assert refused.status == (3 if version == 1 else 4), refused.stdout + refused.stderr
    assert read_committed(pair, name, 0) == []


def resolving(topic: str, verdict: Verdict) -> tuple[str, ...]:
    pid, start = str(verdict.about.producer_id), str(verdict.about.start_offset)
    return ("txn", "resolve", f"{topic}:0", "--pid", pid, "--start-offset", start, "--outcome")


def test_a_plan_of_many_of_which_some_cannot_be_acted_on_any_more(
    pair: Lab, tmp_path: Path
) -> None:
    """One was ended by hand, one's topic is gone: each is told, and the third is carried out."""
    orphans = [break_(pair, "orphan", hold=False)[0] for _ in range(3)]
    ended, gone, left = orphans
    topics = [t.topic for t in orphans]
    file = str(tmp_path / "plan.json")
    planned = eoctl("txn", "hanging", *topics, *FAST, "--plan", file, lab=pair)
    assert planned.status == 1, planned.stderr
    which = ("--pid", str(ended.producer_id), "--start-offset", str(ended.start_offset))
    by_hand = eoctl("txn", "abort", f"{ended.topic}:{ended.partition}", *which, *ACT, lab=pair)
    assert by_hand.status == 0, by_hand.stderr

    async def delete() -> None:
        async with Client.of(pair.client_properties()) as client:
            await admin.delete_topic(client, gone.topic)

    asyncio.run(delete())
    applied = eoctl("txn", "apply", file, "--execute", "--yes", "-o", "json", lab=pair)
    assert applied.stdout, applied.stderr
    steps = {s["target"]: s for s in applied.rows[0]["steps"]}
    assert steps.keys() == {f"{t.topic}:{t.partition}" for t in orphans}
    told = {name: s["status"] for name, s in steps.items()}
    assert told[f"{left.topic}:0"] == "done", applied.stdout
    assert told[f"{gone.topic}:0"] == "refused", applied.stdout
    assert told[f"{ended.topic}:0"] in ("done", "refused"), applied.stdout
    assert applied.status != 0
    assert all(s.get("detail") for s in steps.values() if s["status"] == "refused"), steps


def test_clocks_three_hours_apart_and_then_compaction(pair: Lab, tmp_path: Path) -> None:
    """v1: of a committed transaction without marker compaction leaves the Complete* alone.

    By the coordinator's clock that was three hours after the data leader's next marker could be.
    """
    where = "hours-apart"

    async def plant() -> int:
        async with Client.of(pair.client_properties()) as to_all:
            stage = Stage("distrust", Options(), to_all, pair)
            async with stoppable(stage) as victim:
                keeper = next(b for b in pair.broker_ids if b != victim)
                await asyncio.to_thread(pair.set_clock, keeper, 3 * 3_600_000)
                client = stage.client
                client.cluster.forgive()
                await admin.create_topic(client, where, 1, 1, replicas=[[victim]])
                size = len(await client.partitions(STATE))
                home = 0
                await admin.set_replicas(client, STATE, home, [keeper])
                names = [n for i in range(99) if coordinator_partition(n := f"h-{i}", size) == home]
                producer = await Producer.init(client, names[0], 600_000, version=1)
                await producer.send(where, 0, batch(1, "first"))
                await producer.commit()
                await producer.completed()
                await producer.send(where, 0, batch(1, "lost"))
                async with stopped(stage, victim):
                    await producer.end(commit=True)
                    await producer.completed()
                other = await Producer.init(client, names[1], 600_000, version=1)
                await compacted(client, home, other, where)
                return keeper

    keeper = asyncio.run(plant())
    try:
        verdict = verdicts(pair, {where}, tmp_path)[where, 0]
        assert verdict.name == "unknown", verdict
        assert verdict.rule in ("history-compacted", "earlier-decision-compacted")
        assert verdict.remedy.action == "none"
    finally:
        pair.set_clock(keeper, 0)
