"""Planted troubles, each solved from `status` by nothing but the next steps that are printed.

Each step's words come from the JSON of the one before: `next`, `remedy.argv`, the plan's `command`.
That a partition is free and what its readers get come from Kafka's own clients; where a group must
stand comes from what was planted.
"""

import shlex
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, eoctl
from tests.kafka.remedying import read_committed
from tests.share import only_here

VISIBLE = ("committed", "plain", "idempotent")
ONE_PLAN = "--yes", "--plan-sha256"


def with_options(argv: Sequence[str], *options: str) -> list[str]:
    """Return the words after `eoctl`, with options before the names that follow `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    return [*argv[1:end], *options, *argv[end:]]


def solved(lab: Lab, where: str) -> list[dict[str, Any]]:
    """Follow what is printed until the plan is carried out; what it says of each partition."""
    found = eoctl("status", *FAST, "-o", "json", lab=lab, timeout=120)
    assert found.status == 1, found.text
    [row] = [r for r in found.rows if r["worst"] == where]
    page = eoctl(*shlex.split(row["next"]), *FAST, "-o", "json", lab=lab, timeout=120)
    assert page.status == 1, page.text
    [held] = [r["held_by"] for r in page.rows if f"{r['topic']}:{r['partition']}" == where]
    words = with_options(held["remedy"]["argv"], *FAST, "-o", "json")
    planned = eoctl(*words, timeout=120)
    assert planned.status == 0, planned.text
    [plan] = planned.rows
    acting = with_options(shlex.split(plan["command"]), *ONE_PLAN, plan["sha256"])
    done = eoctl(*acting, timeout=120)
    assert done.status == 0, done.text
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


def position(lab: Lab, t: GroundTruth) -> int:
    """Where the group stands, of which no commit is pending."""
    admin = AdminClient(lab.client_properties())
    asked = ConsumerGroupTopicPartitions(
        t.group, [TopicPartition(str(t.group_topic), int(t.group_partition or 0))]
    )
    found = admin.list_consumer_group_offsets([asked], require_stable=True)
    [answer] = found[str(t.group)].result(20).topic_partitions
    return int(answer.offset)


KINDS = [
    ("orphan", "fresh"),
    ("orphan", "marked"),
    ("orphan", "late"),
    ("marker-lost", None),
    ("idle-owner", None),
    ("coordinator-fenced", "held"),
    ("overdue", None),
]


@pytest.mark.parametrize(
    ("kind", "variant"), only_here(KINDS, ("orphan", "marked"), ("marker-lost", None))
)
def test_solved_by_following_what_is_printed(lab2: Lab, kind: str, variant: str | None) -> None:
    topic = f"{kind}-{uuid.uuid4().hex[:6]}"
    more = {} if variant is None else {"variant": variant}
    truths = break_(lab2, kind, topic=topic, partition=0, **more)
    [t] = [t for t in truths if t.start_offset is not None and t.topic == topic]
    assert not is_free(lab2, topic, 0)
    judged = solved(lab2, f"{topic}:0")
    assert is_free(lab2, topic, 0)
    delivered = t.outcome == "commit"
    contents = [o.content for o in t.offsets]
    mine = contents.count("lost" if delivered else "open")
    told = [a for a in judged if a["partition"] == f"{topic}:0"]
    assert [a["dropped"] for a in told] == [0 if delivered else mine]
    visible = sum(c in VISIBLE for c in contents)
    assert len(read_committed(lab2, topic, 0)) == visible + (mine if delivered else 0)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["offsets-orphan", "offsets-marker-lost"])
def test_the_group_stands_where_its_outcome_puts_it(lab2: Lab, kind: str) -> None:
    [t] = [t for t in break_(lab2, kind) if t.start_offset is not None]
    judged = solved(lab2, f"{t.topic}:{t.partition}")
    assert is_free(lab2, t.topic, t.partition)
    stands = position(lab2, t)
    assert stands == (t.pending_offset if t.outcome == "commit" else t.committed_offset)
    told = [g for a in judged for g in a.get("group_offsets", ()) if g["group"] == t.group]
    assert [[after["offset"] for after in g["after"].values()] for g in told] == [[stands]]
