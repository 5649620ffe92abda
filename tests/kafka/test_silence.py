"""Transactional ids that hold no partition, and coordinators that cannot write their markers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from eoctl.kafka.write import markers as repairs
from eoctl.lab import admin
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.owned import ABORT_CYCLE
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.diagnosis import Diagnosis, JudgedId
from recovery.facts import ProducerFacts
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.observation import Settings
from recovery.remedy.repairs import MarkerRequest
from recovery.values import replace
from tests.kafka.command import eoctl
from tests.kafka.conftest import STATE_PARTITIONS, MakeTopic
from tests.kafka.diagnosing import judged, rule_of, rule_of_id
from tests.kafka.planting import as_published

AT_ONCE = Settings(long_after=1, stuck_after=1, clock_skew=1)
SOON = ("--long-after", "1s", "--stuck-after", "1s", "--clock-skew", "1ms")
QUICKLY = ("--sample-interval", "0.5s")
STATE = "__transaction_state"
T = TypeVar("T")


@pytest.fixture(scope="module")
def quiet(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers; an overdue transaction is left alone."""
    lab = start_lab(LabSpec(name="quiet", brokers=2, settings={ABORT_CYCLE: "3600000"}))
    yield lab
    lab.down()


def done_by(lab: Lab, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` gives, with a client of the lab."""

    async def use() -> T:
        async with Client.to(lab.bootstrap_servers) as client:
            return await work(client)

    return asyncio.run(use())


def of_id(found: Diagnosis, name: str) -> JudgedId:
    """The verdict on an id that holds no partition."""
    [mine] = [j for j in found.ids if j.name == name]
    assert not [j for j in found.judged if j.verdict.owner and j.verdict.owner == mine.first.row]
    return mine


async def join(client: Client, topic: str, name: str, timeout_ms: int = 60_000) -> Producer:
    """An id that is Ongoing with a partition to which it has written nothing (v1 clients can)."""
    producer = await Producer.init(client, name, timeout_ms, version=1)
    await producer.add_partition(topic, 0)
    return producer


async def home(client: Client, name: str) -> int:
    """The partition of `__transaction_state` in which the id lives."""
    await client.until(lambda: client.coordinator(name))
    return coordinator_partition(name, len(await client.partitions(STATE)))


def test_ids_that_hold_no_partition_are_judged(quiet: Lab, topic: MakeTopic) -> None:
    """Ongoing with nothing written, or with offsets only: open is no finding, past a limit is."""
    where = topic(quiet)

    async def plant(client: Client) -> None:
        await join(client, where, "idle.young")
        await join(client, where, "idle.overdue", timeout_ms=1000)
        offsets = await Producer.init(client, "idle.offsets", version=1)
        await offsets.add_group("idle-group")

    done_by(quiet, plant)
    healthy = eoctl("txn", "hanging", "--all", "-o", "json", *QUICKLY, lab=quiet)
    young = [r for r in healthy.rows if r["transactional_id"] == "idle.young"]
    assert [(r["verdict"], r["rule"], r["topic"], r["partition"]) for r in young] == [
        ("open", "within-limits", None, None)
    ]
    time.sleep(1.1)
    found = judged(quiet)
    assert not found.missing
    rules = {j.name: (j.verdict.name, j.verdict.rule) for j in found.ids}
    assert rules["idle.young"] == rules["idle.offsets"] == ("open", "within-limits")
    assert rules["idle.overdue"] == ("overdue", "past-timeout")
    overdue = of_id(found, "idle.overdue").verdict
    assert overdue.remedy.action == "fence"
    assert {"idle.young", "idle.offsets"}.isdisjoint(j.name for j in found.findings)  # type: ignore[union-attr]
    long = judged(quiet, settings=AT_ONCE)
    for name in ("idle.young", "idle.offsets"):
        verdict = of_id(long, name).verdict
        assert (verdict.name, verdict.rule) == ("long", "past-long")
    assert any(
        "__consumer_offsets" in evidence_words(e)
        for e in of_id(long, "idle.offsets").verdict.evidence
    )
    _told_everywhere(quiet, "idle.overdue", "overdue", "past-timeout")
    # what its row says to do works, and the id is at rest then
    [row] = [r for r in _hanging(quiet) if r["transactional_id"] == "idle.overdue"]
    argv = row["remedy"]["argv"][1:]
    fenced = eoctl(*argv[:-2], "--execute", "--yes", *QUICKLY, *argv[-2:])
    assert fenced.status == 0, fenced.stderr
    assert "idle.overdue" not in {j.name for j in judged(quiet).ids}
    listed = eoctl("journal", "list", "-o", "json").rows
    [entry] = [row["id"] for row in listed if "idle.overdue" in row["scope"]]
    [step] = eoctl("journal", "show", entry, "-o", "json").json["plan"]["steps"]
    [about] = step["about"]
    assert (about["partition"], about["verdict"]) == (None, "overdue")
    assert about["rule"] == "past-timeout"
    assert any("idle.overdue" in e["text"] for e in about["evidence"])

    async def end(client: Client) -> None:
        for name in ("idle.young", "idle.offsets"):
            await Producer.init(client, name)

    done_by(quiet, end)


def _hanging(lab: Lab) -> list[dict[str, Any]]:
    ran = eoctl("txn", "hanging", "-o", "json", "--stuck-after", "1s", *QUICKLY, lab=lab)
    assert ran.status == 1, ran.stderr
    return as_published(ran, "txn-hanging").rows


def _told_everywhere(lab: Lab, name: str, verdict: str, rule: str) -> None:
    """`txn hanging`, `status`, `check`, `why` and `why --transactional-id` say it, exit 1."""
    [row] = [r for r in _hanging(lab) if r["transactional_id"] == name]
    assert (row["verdict"], row["rule"]) == (verdict, rule)
    assert (row["topic"], row["partition"], row["start_offset"]) == (None, None, None)
    limits = ("--stuck-after", "1s", *QUICKLY, "-o", "json")
    status = eoctl("status", *limits, lab=lab)
    assert status.status == 1
    assert verdict in {r["verdict"] for r in as_published(status, "status").rows}
    check = eoctl("check", *limits, lab=lab)
    assert check.status == 1
    [told] = [r for r in check.rows if r["rule"] == f"verdicts.{verdict}"]
    assert told["ok"] is False
    assert name in told["detail"]
    asked = eoctl("why", "--transactional-id", name, *limits, lab=lab)
    assert asked.status == 1, asked.stderr
    [story] = as_published(asked, "why").rows
    assert (story["topic"], story["transactional_id"]) == (None, name)
    assert story["held_by"]["rule"] == rule
    worst = eoctl("why", *limits, lab=lab)
    assert worst.status == 1
    page = eoctl("why", "--transactional-id", name, *limits[:-2], lab=lab)
    assert page.stdout.startswith(f"id {name}  STUCK  {verdict}"), page.stdout


@pytest.mark.long
def test_a_decided_id_whose_log_takes_no_record_says_what_to_restore(lab3: Lab) -> None:
    """All markers are written; its last record cannot be: fewer in sync than must be."""
    [truth] = break_(lab3, "prepare-holds-nothing")
    name = truth.transactional_id or ""
    assert truth.stopped_broker is not None
    try:
        seen = _eventually(lab3, name, "markers-all-written")
        _what_it_is_without_a_look(seen)
        verdict = seen.verdict
        assert (verdict.name, verdict.rule) == (truth.verdict, truth.rule)
        assert verdict.proven_outcome == "commit"
        assert verdict.remedy.action == "restore-leader"
        home = coordinator_partition(name, STATE_PARTITIONS)
        assert verdict.remedy.partitions == (f"{STATE}:{home}",)
        assert dict(verdict.remedy.refused)["restart-coordinator"]
        page = eoctl("why", "--transactional-id", name, "--stuck-after", "1s", *QUICKLY, lab=lab3)
        assert page.status == 1, page.stderr
        assert page.stdout.startswith(f"id {name}  STUCK  prepare-stuck")
        young = judged(lab3, settings=Settings(stuck_after=3_600_000))
        assert of_id(young, name).verdict.name == "prepare"
    finally:
        lab3.start(truth.stopped_broker)
    # restored, its coordinator finishes by itself
    deadline = time.monotonic() + 60
    while name in {j.name for j in judged(lab3).ids}:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    done_by(lab3, lambda client: admin.set_config(client, 2, STATE, {"min.insync.replicas": None}))


def _eventually(lab: Lab, name: str, rule: str) -> JudgedId:
    """The id judged once it is by this rule."""
    deadline = time.monotonic() + 20
    while True:
        found = judged(lab, settings=AT_ONCE, sample_interval=0.5)
        mine = [j for j in found.ids if j.name == name]
        if mine and mine[0].verdict.rule == rule:
            return mine[0]
        assert time.monotonic() < deadline, [(j.name, j.verdict) for j in found.ids]
        time.sleep(0.3)


def _what_it_is_without_a_look(j: JudgedId) -> None:
    """Decided, all its markers written; each of these looks could have failed on its own."""
    first = j.first
    assert first.named

    def rule(**other: Any) -> str:
        return rule_of_id(j, AT_ONCE, **other)

    assert rule(second=None) == "written-seen-once"
    assert rule(record=None) == "prepare-record-not-read"
    no_age = replace(first, decided_long_ago=None)
    assert rule(first=no_age, second=no_age) == "prepare-age-not-known"
    undescribed = replace(first, row=replace(first.row, error="COORDINATOR_LOAD_IN_PROGRESS"))
    assert rule(first=undescribed, second=undescribed) == "id-not-described"
    [*others, last] = first.named
    unseen = replace(first, named=(*others, replace(last, seen=False, producer=None)))
    assert rule(first=unseen) == "named-not-seen"
    # as its own leader would answer before the marker is there: v2 raises the epoch at the end
    row = first.row
    began = (row.producer_epoch or 0) - 1
    open_yet = ProducerFacts(*last.topic_partition, row.producer_id, began, 0, 0, None, 0)
    waiting = replace(first, named=(*others, replace(last, producer=open_yet)))
    assert rule(first=waiting) == "markers-on-their-way"


async def _marker(
    client: Client, producer: Producer, topic: str, *, above: int, outcome: str = "abort"
) -> None:
    """A marker that no coordinator sent, `above` its coordinator's epoch; epoch as version 0."""
    assert producer.transactional_id is not None
    log = (await client.partitions(STATE))[await home(client, producer.transactional_id)]
    marker = MarkerRequest(
        topic,
        0,
        producer.producer_id,
        producer.epoch,
        outcome,
        (log.leader_epoch or 0) + above,
        0,
    )
    leader = await client.leader(topic, 0)
    assert await repairs.write_marker(client.cluster, leader, marker) == "NONE"


async def _prepared(client: Client, name: str) -> None:
    seen = await client.until(lambda: client.transaction(name))
    assert seen is not None
    assert seen.state == "PrepareCommit"


@pytest.mark.parametrize("above", [1, 1000])
def test_a_fenced_coordinator_is_told_from_a_slow_one(
    quiet: Lab, topic: MakeTopic, above: int
) -> None:
    """A foreign coordinator epoch before the transaction: its marker is refused for ever."""
    where, name = topic(quiet, replicas=1), f"fenced.by.{above}"

    async def plant(client: Client) -> None:
        producer = await Producer.init(client, name)
        await producer.send(where, 0, [NewRecord(b"first")])
        await producer.commit()
        await _marker(client, producer, where, above=above)
        await producer.send(where, 0, [NewRecord(b"second")])
        await producer.end(commit=True)
        await _prepared(client, name)

    done_by(quiet, plant)
    [mine] = judged(quiet, where, sample_interval=0.5).judged
    verdict = mine.verdict
    assert (verdict.name, verdict.rule) == ("coordinator-fenced", "coordinator-fenced")
    assert verdict.proven_outcome == "commit"
    assert rule_of(mine, second=None) == "refused-seen-once"
    [refused] = [e.data for e in verdict.evidence if e.code == "marker-refused"]
    assert refused["above"] == above
    asked = eoctl("txn", "hanging", where, "-o", "json", *QUICKLY, lab=quiet)
    assert asked.status == 1
    assert [r["verdict"] for r in as_published(asked, "txn-hanging").rows] == ["coordinator-fenced"]
    if above > 1:
        assert verdict.remedy.action == "write-prepared-marker"
        argv = asked.rows[0]["remedy"]["argv"][1:]
        written = eoctl(*argv, "--execute", "--yes", *QUICKLY)
        assert written.status == 0, written.stderr
        assert not judged(quiet, where, sample_interval=0.5).judged
        left = of_id(judged(quiet, sample_interval=0.5), name).verdict
        assert (left.name, left.remedy.action) == ("coordinator-fenced", "none")
        assert not any("LOSS" in evidence_words(e) for e in left.evidence)
        return
    assert verdict.remedy.action == "restart-coordinator"
    assert "once" in remedy_words(verdict.remedy.does)

    async def move(client: Client) -> None:
        log = (await client.partitions(STATE))[await home(client, name)]
        await admin.set_replicas(
            client, STATE, log.partition, [b for b in log.replicas if b != log.leader]
        )

    done_by(quiet, move)
    deadline = time.monotonic() + 30
    while judged(quiet, where, sample_interval=0.5).judged:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_a_foreign_marker_that_contradicts_is_told_as_loss(quiet: Lab, topic: MakeTopic) -> None:
    """Aborted by a tool while its owner commits: nothing is held, its id never comes to rest."""
    where, name = topic(quiet), "fenced.lost"

    async def plant(client: Client) -> None:
        producer = await Producer.init(client, name)
        await producer.send(where, 0, [NewRecord(b"dropped")])
        await _marker(client, producer, where, above=1000)
        await producer.end(commit=True)
        await _prepared(client, name)

    done_by(quiet, plant)
    verdict = of_id(judged(quiet, sample_interval=0.5), name).verdict
    assert (verdict.name, verdict.rule) == ("coordinator-fenced", "coordinator-fenced")
    assert verdict.remedy.action == "none"
    [refused] = [e for e in verdict.evidence if e.code == "marker-refused"]
    assert "LOSS" in evidence_words(refused)
    assert refused.data["ended_by"] == ["abort", 1]


def test_a_producer_epoch_above_the_prepared_one_fences_its_marker(
    quiet: Lab, topic: MakeTopic
) -> None:
    """A foreign marker of a later producer epoch: moving the leader would not help."""
    where, name = topic(quiet), "fenced.epoch"

    async def plant(client: Client) -> None:
        producer = await Producer.init(client, name)
        await producer.send(where, 0, [NewRecord(b"dropped")])
        epoch = producer.epoch
        producer.epoch += 5
        await _marker(client, producer, where, above=0)
        producer.epoch = epoch
        await producer.end(commit=True)
        await _prepared(client, name)

    done_by(quiet, plant)
    # decided lately: an id that completes and goes on looks the same for a moment
    young = of_id(judged(quiet, sample_interval=0.5), name)
    assert (young.verdict.rule, young.second) == ("markers-being-written", None)
    verdict = of_id(judged(quiet, settings=AT_ONCE, sample_interval=0.5), name).verdict
    assert (verdict.name, verdict.rule) == ("coordinator-fenced", "producer-epoch-above")
    assert verdict.remedy.action == "none"


def test_a_partition_without_leader_gets_its_second_look(quiet: Lab) -> None:
    """Its id is refused elsewhere: bring the leader back first, then move the coordinator."""
    where, name = {1: "fenced.coordinators", 2: "fenced.leaderless"}, "fenced.twice"

    async def plant(both: Client) -> None:
        async with both.without(2) as client:
            for broker, topic in where.items():
                await admin.create_topic(client, topic, 1, 1, replicas=[[broker]])
            # with a frozen replica in its ISR the decision could not be written
            await admin.set_replicas(client, STATE, await home(client, name), [1])
            producer = await Producer.init(client, name, version=1)
            await producer.send(where[1], 0, [NewRecord(b"first")])
            await producer.commit()
            await _marker(client, producer, where[1], above=1)
            for topic in where.values():
                await producer.send(topic, 0, [NewRecord(b"second")])
            quiet.freeze(2)
            await producer.end(commit=True)
            await _prepared(client, name)

    try:
        done_by(quiet, plant)
        found = judged(
            quiet,
            *where.values(),
            properties={"request.timeout.ms": "1000"},
            sample_interval=0.5,
        )
    finally:
        quiet.thaw(2)
    rules = {j.about.topic: (j.verdict.rule, j.verdict.remedy.action) for j in found.judged}
    assert rules == dict.fromkeys(where.values(), ("coordinator-fenced", "restore-leader"))


@pytest.mark.parametrize("kind", ["offsets-orphan", "offsets-pending"])
def test_why_of_a_group_follows_its_own_partition(lab1: Lab, kind: str) -> None:
    """Its newest commit waits there, and no partition that it reads is held."""
    [truth] = break_(lab1, kind, hold=False) if kind == "offsets-pending" else break_(lab1, kind)
    group = truth.group or ""
    asked = eoctl("why", "--group", group, "-o", "json", *QUICKLY, lab=lab1)
    assert asked.status == (1 if kind == "offsets-orphan" else 0), asked.stderr
    [row] = as_published(asked, "why").rows
    assert (row["topic"], row["partition"]) == (truth.topic, truth.partition)
    held = row["held_by"]
    assert (held["producer_id"], held["start_offset"]) == (truth.producer_id, truth.start_offset)
    assert (held["verdict"], held["groups"]) == (truth.verdict, [group])
    assert held["offsets_pending"]
    assert group in row["groups_said"]
    story = asked.json["group_story"]
    stuck = kind == "offsets-orphan"
    assert story["verdict"] == ("held" if stuck else "catching-up")  # it committed just now
    where = f"{truth.topic}:{truth.partition}"
    assert (story["own_partition"], story["own_verdict"]) == (where, truth.verdict)
    steps = [(s["action"], s["partition"]) for s in story["next"]]
    assert steps == ([("why", where)] if stuck else [("watch", None)])
    page = eoctl("why", "--group", group, *QUICKLY, lab=lab1).stdout
    assert "NOT HELD" not in page
    assert f"{where}  " in page  # its own story stands below the group's
    assert ("HELD  its newest commit waits" in page) is stuck
    # another group is not held by it, be it of the same partition or not
    other = eoctl("why", "--group", f"{group}-other", "-o", "json", *QUICKLY, lab=lab1)
    assert not [r for r in other.rows if r["held_by"]]


def test_why_of_a_group_whose_commit_lost_its_marker(quiet: Lab) -> None:
    [truth] = break_(quiet, "offsets-marker-lost")
    asked = eoctl("why", "--group", truth.group or "", "-o", "json", *QUICKLY, lab=quiet)
    assert asked.status == 1, asked.stderr
    [held] = [r["held_by"] for r in asked.rows]
    assert (held["verdict"], held["rule"]) == ("marker-lost", "marker-not-written")
    assert (held["proven_outcome"], held["groups"]) == ("commit", [truth.group])
