"""Incidents of a trial, each solved from `status` by nothing but the next steps that are printed.

Each step's words come from the JSON of the one before: `next`, `remedy.argv`, the plan's `command`,
the command in its harm. That a partition is free, what its readers get and where a group is come
from Kafka's own clients; where the group must be comes from what was planted.
"""

import asyncio
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.stage import batch
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import TopicPartition as Partition
from tests.kafka.command import FAST, eoctl
from tests.kafka.test_group_offsets import committed, consumed
from tests.kafka.test_groups import commit
from tests.share import only_here

VISIBLE = ("committed", "plain", "idempotent")
ONE_PLAN = "--yes", "--plan-sha256"


def with_options(argv: Sequence[str], *options: str) -> list[str]:
    """Return the words after `eoctl`, with options before the names that follow `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    return [*argv[1:end], *options, *argv[end:]]


def solved(lab: Lab, *places: str, knows: str | None = None) -> dict[str, Any]:
    """Follow what is printed from `status` on until the plan is carried out; return the plan.

    places: the partitions of the incident; `status` names one of them. knows: what the operator
    knows, where the page has no command for now.
    """
    found = eoctl("status", *FAST, "-o", "json", lab=lab, timeout=120)
    assert found.status == 1, found.text
    [row] = [r for r in found.rows if r["worst"] in places]
    page = eoctl(*shlex.split(row["next"]), *FAST, "-o", "json", lab=lab, timeout=120)
    assert page.status == 1, page.text
    [held] = [r["held_by"] for r in page.rows if f"{r['topic']}:{r['partition']}" == row["worst"]]
    ends = held["ends"]
    assert (ends["next"] is None) == (knows is not None)
    [way] = [w for w in (ends["next"], *ends["if_you_know"]) if w and w["knows"] == knows]
    words = with_options(way["argv"], *FAST, "-o", "json")
    planned = eoctl(*words, timeout=120)
    assert planned.status == 0, planned.text
    [plan] = planned.rows
    acting = with_options(shlex.split(plan["command"]), *ONE_PLAN, plan["sha256"])
    done = eoctl(*acting, timeout=120)
    assert done.status == 0, done.text
    return dict(plan)


def judged(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the plan says of each partition."""
    return [about for step in plan["steps"] for about in step["about"]]


def is_free(lab: Lab, topic: str, partition: int) -> bool:
    """Return True if a read_committed reader may read to the end, by librdkafka's ListOffsets."""
    admin = AdminClient(lab.client_properties())
    where = TopicPartition(topic, partition)
    ends = [
        admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=level)[where].result(20)
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    return bool(ends[0].offset == ends[1].offset)


def story(lab: Lab, group: str) -> dict[str, Any]:
    """Return what `why --group` says."""
    found: dict[str, Any] = eoctl(
        "why", "--group", group, *FAST, "-o", "json", lab=lab, timeout=120
    ).json["group_story"]
    return found


def said_of(plan: Mapping[str, Any], group: str) -> list[int | None]:
    """Return the offsets that the plan says the group has after its outcome, which is the first."""
    found = [g for a in judged(plan) for g in a.get("group_offsets", ()) if g["group"] == group]
    return [next(iter(g["after"].values()))["offset"] for g in found]


INCIDENTS = [
    ("offsets-orphan", {}),
    ("orphan", {"variant": "marked"}),
    ("offsets-marker-lost", {}),
    ("marker-lost", {}),
    ("marker-lost", {"outcome": "abort"}),
    ("idle-owner", {}),
    ("coordinator-fenced", {"variant": "held"}),
    ("overdue", {}),
]
"""The first and the third hold the group's own commit."""


@pytest.mark.parametrize(("kind", "options"), only_here(INCIDENTS, INCIDENTS[1]))
def test_solved_by_following_what_is_printed(
    lab2: Lab, kind: str, options: Mapping[str, Any]
) -> None:
    topic = f"{kind}-{uuid.uuid4().hex[:6]}"
    truths = break_(lab2, kind, topic=topic, partition=0, **options)
    [t] = [t for t in truths if t.start_offset is not None and topic in (t.topic, t.group_topic)]
    where = f"{t.topic}:{t.partition}"
    group, at = t.group, t.committed_offset
    if group is None:
        group, at = f"{topic}-readers", t.start_offset
        assert at is not None
        commit(lab2, group, topic, at)
    assert not is_free(lab2, t.topic, t.partition)
    before = story(lab2, group)
    [row] = before["partitions"]
    assert (row["committed_offset"], row["pending_offset"]) == (at, t.pending_offset)
    assert (before["verdict"], before["about"]) == ("held", [] if t.group else [where])
    assert [step["argv"][-2:] for step in before["next"]] == [["--", where]]
    plan = solved(lab2, where)
    assert is_free(lab2, t.topic, t.partition)
    if t.group is not None and t.outcome == "commit":
        at = t.pending_offset
    assert said_of(plan, group) == ([] if t.group is None else [at])
    assert committed(lab2, group, topic) == at
    offsets = consumed(lab2, topic, 0)
    if t.group is None:
        delivered_as_planned(plan, t, len(offsets))
    waiting = sum(offset >= (at or 0) for offset in offsets)
    after = story(lab2, group)
    # nobody ever joined it: what commits for it may be at work
    assert after["verdict"] == ("catching-up" if waiting else "up-to-date")
    assert [here["records"] for here in after["partitions"]] == [waiting]


def delivered_as_planned(plan: Mapping[str, Any], t: GroundTruth, delivered: int) -> None:
    """Check what the plan drops, and how many records readers get, against what was planted."""
    contents = [o.content for o in t.offsets]
    mine = contents.count("lost" if t.outcome is not None else "open")
    visible = sum(c in VISIBLE for c in contents)
    told = [a["dropped"] for a in judged(plan) if a["partition"] == f"{t.topic}:{t.partition}"]
    assert told == [0 if t.outcome == "commit" else mine]
    assert delivered == visible + (mine if t.outcome == "commit" else 0)


async def only_commit(lab: Lab, topic: str, group: str) -> str:
    """Leave an id past its timeout with a record and a group's only commit; return its home."""
    async with Client.of(lab.client_properties()) as client:
        await client.plain(topic, 0, batch(10, "input"))
        owner = await Producer.init(client, f"{topic}-id", timeout_ms=1000)
        await owner.send(topic, 0, batch(3, "open"))
        await owner.send_offsets(group, {Partition(topic, 0): 5})
        found = await client.transaction(f"{topic}-id")
        assert found is not None
        assert found.partitions is not None
        [home] = [p for p in found.partitions if p.topic != topic]
        await asyncio.sleep(1.1)
    return str(home)


@pytest.mark.long
def test_a_group_that_is_left_without_an_offset_gets_one_by_what_the_plan_says(
    lab2: Lab, tmp_path: Path
) -> None:
    """The fence drops its only commit: that is the first harm, with the command for a new one."""
    topic = f"only-{uuid.uuid4().hex[:6]}"
    group = f"{topic}-group"
    assert eoctl("lab", "topic", topic, "--partitions", "1", "--name", lab2.name).status == 0
    home = asyncio.run(only_commit(lab2, topic, group))
    [row] = story(lab2, group)["partitions"]
    assert (row["committed_offset"], row["pending_offset"]) == (None, 5)
    plan = solved(lab2, f"{topic}:0", home)
    assert plan["action"] == "fence"
    assert said_of(plan, group) == [None]
    assert committed(lab2, group, topic) is None
    first = plan["steps"][-1]["harms"][0]
    assert first.startswith(f"group {group} has NO offset of {topic}:0 after the abort")
    line = first.split("To set one afterwards: ")[1].removesuffix(" (or --to-offset N)")
    file = str(tmp_path / "plan.json")
    planned = eoctl(*shlex.split(line)[1:], "--out", file)
    assert planned.status == 0, planned.text
    applied = eoctl("restart", "apply", file, "--execute", "--yes", lab=lab2)
    assert applied.status == 0, applied.text
    assert committed(lab2, group, topic) == 0
    assert is_free(lab2, topic, 0)
