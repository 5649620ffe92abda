"""A twin is its incident, by ground truth, librdkafka and verdicts; a plan does there as here.

A drill is made of it, too.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from eoctl.lab import cluster
from eoctl.lab.breaks import KINDS, break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.drills import running
from eoctl.lab.record import LabSpec
from eoctl.lab.twin.rows import RehearsalRow
from eoctl.operations import kinds  # noqa: F401 - plans are carried out here
from eoctl.operations.change import rehearsals
from eoctl.operations.dashboard import bundling, rehearsing, twins
from eoctl.operations.dashboard.rehearsing import twin_for
from eoctl.operations.dashboard.twins import Started
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from eoctl.stores import bundle_files
from recovery.facts import TopicPartition
from recovery.inspect.observation import Settings
from recovery.times import rfc3339
from tests.kafka.command import FAST, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene, commit, producing, write
from tests.kafka.crashed import committed as committed_by
from tests.kafka.planting import as_published
from tests.kafka.test_breaks import librdkafka_offsets
from tests.kafka.test_breaks_rare import committed
from tests.kafka.test_commit_history import now
from tests.share import only_here

PLANNED: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("orphan", {}),
    ("orphan", {"variant": "late"}),
    ("marker-lost", {}),
    ("overdue", {}),
    ("offsets-orphan", {}),
)
"""A plan of remedies ends all of these: the shared lab is left as it was."""

Kinds = tuple[int, int | None, Sequence[tuple[str, Mapping[str, Any]]]]
"""Brokers, transaction.version, kinds of break with their options."""

SCENES: dict[str, Kinds] = {
    "one-broker": (
        1,
        None,
        (
            ("orphan", {"variant": "marked"}),
            ("orphan", {"variant": "foreign"}),
            ("orphan", {"variant": "nameless"}),
            ("open", {}),
            ("long", {}),
            ("offsets-pending", {}),
            ("zombie", {}),
            ("two-phase", {}),
            ("checkpoint", {}),
            ("connect", {}),
            ("coordinator-fenced", {}),
            ("coordinator-fenced", {"ahead": 3}),
            ("coordinator-fenced", {"variant": "contradicted"}),
        ),
    ),
    "two-brokers": (
        2,
        None,
        (
            ("marker-lost", {"later": "open"}),
            ("marker-lost", {"outcome": "abort"}),
            ("offsets-marker-lost", {}),
            ("fence-storm", {}),
            ("mixed", {}),
        ),
    ),
    "version-one": (
        2,
        1,
        (
            ("marker-lost", {}),
            ("marker-twice", {}),
            ("topic-made-anew", {"variant": "open"}),
            ("topic-made-anew", {"variant": "orphan"}),
            ("holds-nothing", {}),
            ("holds-nothing", {"variant": "offsets"}),
            ("idle-owner", {}),
        ),
    ),
    "version-zero": (2, 0, (("marker-lost", {}), ("orphan", {}), ("offsets-pending", {}))),
    "grown-history": (2, None, (("grown-history", {}),)),
    "replaced-history": (2, None, (("replaced-history", {}),)),
    "clock-ahead": (1, None, (("clock-ahead", {}),)),
    "prepare-stuck": (2, None, (("prepare-stuck", {}),)),
    "prepare-holds-nothing": (3, None, (("prepare-holds-nothing", {}),)),
}
RESENT = frozenset({"prepare-stuck", "prepare-holds-nothing"})
"""Decisions that a coordinator sends again when it loads: told, not asserted."""


def made(lab: Lab, wanted: Sequence[tuple[str, Mapping[str, Any]]]) -> list[GroundTruth]:
    truths: list[GroundTruth] = []
    for kind, options in wanted:
        hold = {"hold": False} if "hold" in KINDS[kind].takes else {}
        truths += break_(lab, kind, **hold, **options)
    return truths


def bundled(lab: Lab, folder: Path, with_records: int = 0, plan_file: Path | None = None) -> Path:
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    path = folder / "incident.eoctl"
    plan = None if plan_file is None else rehearsing.read_plan(plan_file)
    bundle = with_cluster(
        context,
        120,
        lambda c: bundling.collect(
            c, context, Settings(), pause=0.3, history=False, with_records=with_records, plan=plan
        ),
    )
    bundle_files.write(bundle, path)
    return path


def records_of(lab: Lab, t: GroundTruth) -> dict[int, tuple[bytes | None, bool]]:
    """Key, and whether it is a control record, of each offset from the LSO on, by kafka-python."""

    async def read() -> dict[int, tuple[bytes | None, bool]]:
        async with Client.of(lab.client_properties()) as client:
            return await client.read(t.topic, t.partition)

    return {at: row for at, row in asyncio.run(read()).items() if at >= t.last_stable_offset}


def ends_of(lab: Lab, truths: Sequence[GroundTruth]) -> dict[TopicPartition, tuple[int, int]]:
    return {t.topic_partition: librdkafka_offsets(lab, *t.topic_partition) for t in truths}


def test_every_kind_is_told_or_asserted() -> None:
    tried = {kind for _, _, wanted in SCENES.values() for kind, _ in wanted}
    assert tried | {kind for kind, _ in PLANNED} == set(KINDS)


def moved_group(lab: Lab, topic: MakeTopic, plan_file: Path) -> tuple[str, str]:
    """A group that committed 40, then 90, and the plan of its return to what it had at first."""
    name, group = topic(lab, 1, name="moved"), f"moved-{uuid.uuid4().hex[:8]}"
    write(producing(lab), name, ["x"] * 100)
    commit(lab, group, {(name, 0): 40}, "of then")
    then = now()
    commit(lab, group, {(name, 0): 90}, "of now")
    words = ("--group", group, "--as-of", rfc3339(then) or "", "--topic", name)
    planned = eoctl("restart", "plan", *words, "--out", str(plan_file), lab=lab)
    assert planned.status == 0, planned.stderr
    return name, group


def kept_of(lab: Lab, group: str) -> dict[str, Any]:
    """The group's one commit, as its coordinator has it."""
    [row] = eoctl("offsets", "show", "--group", group, "-o", "json", lab=lab).rows
    return {name: row[name] for name in ("committed_offset", "leader_epoch", "metadata")}


def test_a_plan_does_on_the_twin_what_it_does_to_the_cluster(
    lab2: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """A restart as of a time, then remedies; the same incident is a drill, solved by them."""
    move_file = tmp_path / "move.json"
    name, group = moved_group(lab2, topic, move_file)
    truths = made(lab2, PLANNED)
    where = ["--bootstrap-server", lab2.bootstrap_servers]
    plan_file = tmp_path / "plan.json"
    planned = eoctl("txn", "hanging", "--plan", str(plan_file), *where, *FAST)
    assert planned.status == 1, planned.stderr
    bundle = bundled(lab2, tmp_path, 1000, move_file)
    plan, move = rehearsing.read(plan_file, bundle), rehearsing.read(move_file, bundle)
    assert len(plan.steps) >= len(PLANNED)
    with drilled(bundle, truths) as twin:
        assert kept_of(twin.lab, group) == kept_of(lab2, group)
        restarted = rehearsing.rehearse(move, twin)
        assert restarted.exit_status == 0, restarted.answer.extra
        [row] = [r for r in restarted.answer.rows if isinstance(r, RehearsalRow) and r.group]
        assert (row.group, row.topic, row.offset_before, row.offset_after) == (group, name, 90, 40)
        assert committed_by(twin.lab, group) == {(name, 0): 40}
        returned = kept_of(twin.lab, group)
        assert rehearsals.find(move.sha256)
        answer = twins.compared(twin)
        assert [row for row in answer.rows if not row.as_dict()["equal"]] == []
        assert {t.topic_partition for t in truths} == {
            TopicPartition(row.as_dict()["topic"], row.as_dict()["partition"])
            for row in answer.rows
        }
        for t in truths:
            ends = (t.last_stable_offset, t.high_watermark)
            assert librdkafka_offsets(twin.lab, t.topic, t.partition) == ends
            assert records_of(twin.lab, t) == records_of(lab2, t) != {}
        [offsets] = [t for t in truths if t.group is not None]
        assert committed(twin.lab, offsets, stable=False).offset == offsets.committed_offset
        [overdue] = [t for t in truths if str(t.verdict) == "overdue"]
        assert overdue.transactional_id is not None
        running.ask(twin.lab, overdue.transactional_id)
        rehearsed = rehearsing.rehearse(plan, twin)
        assert {s.status for s in rehearsed.outcome.steps} == {"done"}
        assert {row.as_dict()["verdict_after"] for row in rehearsed.answer.rows} == {None}
        there = ends_of(twin.lab, truths)
        of_group = committed(twin.lab, offsets, stable=True).offset
        assert rehearsals.find(plan.sha256)
        _, graded, unread = running.grade(twin.lab)
        assert (unread, {row.result for row in graded}) == ([], {"right"})
    applied = eoctl("txn", "apply", str(plan_file), *where, "--execute", "--yes")
    assert applied.status == 0, applied.stderr
    assert ends_of(lab2, truths) == there
    assert committed(lab2, offsets, stable=True).offset == of_group == offsets.committed_offset
    applied = eoctl("restart", "apply", str(move_file), *where, "--execute", "--yes")
    assert applied.status == 0, applied.stderr
    assert committed_by(lab2, group) == {(name, 0): 40}
    assert kept_of(lab2, group) == returned
    assert twin.lab.name not in cluster.lab_names()


ROLES = {"orphan": "orphan", "overdue": "dead", "marker-lost": "lost-"}


@contextmanager
def drilled(bundle: Path, truths: Sequence[GroundTruth]) -> Iterator[Started]:
    """The twin of a bundle as a drill of just these troubles, none of them solved yet."""
    twin, drill = twins.drill(bundle, "twin")
    try:
        cases = {(c.topic, c.partition, c.start_offset): c for c in drill.cases}
        assert cases.keys() == {(t.topic, t.partition, t.start_offset) for t in truths}
        for t in truths:
            role = cases[t.topic, t.partition, t.start_offset].role
            assert role.startswith(ROLES[str(t.verdict)]), t
            assert t.outcome is None or role == f"lost-{t.outcome}"
            assert t.topic in drill.story
        _, graded, unread = running.grade(twin.lab)
        assert (unread, {row.result for row in graded}) == ([], {"left"})
        yield twin
    finally:
        running.end(twin.lab)


@pytest.mark.long
def test_an_incident_of_ones_own_is_a_drill(
    start_lab: Callable[[LabSpec], Lab], tmp_path: Path
) -> None:
    """Who aborts the orphan is right, what its owner may end is left out; `--end` ends all."""
    lab = start_lab(LabSpec(name="own", settings=dict(KINDS["overdue"].settings)))
    [_, orphan] = made(lab, [("long", {}), ("orphan", {})])
    bundle = str(bundled(lab, tmp_path))
    lab.down()
    words = ("lab", "drill", "--name", "mine")
    began = eoctl(*words, bundle, "-o", "json", timeout=180)
    assert began.status == 0, began.stderr
    [row] = as_published(began, "lab-drill").rows
    assert (row["drill"], row["page"]) == ("twin", "readers-stuck")
    mine = cluster.load("mine")
    assert "The bundle holds 0 records with key and value" in began.stderr
    again = eoctl(*words, bundle, timeout=180)
    assert again.status == 4, again.text
    [asked] = eoctl(*words, "--ask", str(orphan.transactional_id), "-o", "json").rows
    assert asked["answer"] == "unknown"
    assert eoctl(*words, "--grade").status == 1
    act = ("--execute", "--yes", *FAST)
    pid, at = str(orphan.producer_id), str(orphan.start_offset)
    abort = ("txn", "abort", str(orphan.topic_partition), "--pid", pid, "--start-offset", at, *act)
    assert eoctl(*abort, lab=mine).status == 0
    graded = eoctl(*words, "--grade", "-o", "json")
    assert graded.status == 0, graded.text
    results = {r["subject"]: r["result"] for r in as_published(graded, "lab-drill-grade").rows}
    assert results == {str(orphan.topic_partition): "right"}
    assert eoctl(*words, "--end").status == 0
    assert "mine" not in cluster.lab_names()


def start_at(lab: Lab, topic: str, offset: int) -> None:
    """Delete the records below an offset."""
    admin = AdminClient(lab.client_properties())
    for done in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, offset)]).values():
        done.result(20)


@pytest.mark.long
def test_outputs_to_drop_are_counted_on_the_twin_as_here(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """A pair in a group: five outputs came after it. A bundle not made for the plan is refused."""
    scene = Scene.make(lab1, topic, tmp_path)
    scene.commits(7, json.dumps({"output": {"topic": scene.output, "partition": 0, "offset": 7}}))
    scene.describe(strategy="commit-pair")
    start_at(lab1, scene.output, 3)  # within the batch that holds what is counted
    assert scene.plan().status == 0
    plain, mine = str(bundled(lab1, tmp_path)), str(tmp_path / "mine.eoctl")
    refused = eoctl("lab", "rehearse", scene.plan_file, plain)
    assert (refused.status, "not made for this plan" in refused.stderr) == (4, True)
    made_for = eoctl("bundle", "create", mine, "--for", scene.plan_file, *FAST, lab=lab1)
    assert made_for.status in (0, 3), made_for.stderr
    assert "without keys and values" in made_for.text
    ran = eoctl("lab", "rehearse", scene.plan_file, mine, "-o", "json", timeout=180)
    assert ran.status == 0, ran.stderr
    [row] = [r for r in ran.rows if r["group"] == scene.group]
    assert (row["offset_before"], row["offset_after"]) == (7, 7)
    assert "kept as a rehearsal" in ran.json["outcome"]
    write(scene.producer, scene.output, ["one more"])
    other = str(tmp_path / "other.eoctl")
    eoctl("bundle", "create", other, "--for", scene.plan_file, *FAST, lab=lab1)
    changed = eoctl("lab", "rehearse", scene.plan_file, other, timeout=180)
    assert changed.status == 4
    # the bundle takes what the plan counted and the log's new end: the record between is not there
    assert "lacks 1 offset" in changed.stderr, changed.stderr


def remedied(lab: Lab, plan_file: Path) -> dict[str, str]:
    """What became of each step of the cluster's plan of remedies; {} if it has none."""
    where = ["--bootstrap-server", lab.bootstrap_servers]
    eoctl("txn", "hanging", "--plan", str(plan_file), *where, *FAST)
    if not plan_file.exists():
        return {}
    act = ("--execute", "--yes", "--although-it-writes", "-o", "json")
    ran = eoctl("txn", "apply", str(plan_file), *where, *act, timeout=180)
    return {step["target"]: step["status"] for step in ran.rows[0]["steps"]}


@pytest.mark.parametrize("name", only_here(SCENES))
def test_the_twin_answers_as_its_bundle_and_ends_as_the_cluster(
    start_lab: Callable[[LabSpec], Lab], tmp_path: Path, name: str
) -> None:
    brokers, version, wanted = SCENES[name]
    settings = {key: value for kind, _ in wanted for key, value in KINDS[kind].settings.items()}
    settings |= dict(KINDS["overdue"].settings)  # no abort cycle meanwhile
    lab = start_lab(
        LabSpec(name=name, brokers=brokers, transaction_version=version, settings=settings)
    )
    try:
        truths = made(lab, wanted)
        bundle = bundled(lab, tmp_path)
        plan_file = tmp_path / "plan.json"
        steps = {} if name in RESENT else remedied(lab, plan_file)
        ended = {} if name in RESENT else ends_of(lab, truths)
    finally:
        lab.down()
    with twin_for(bundle, "twin") as twin:
        answer = twins.compared(twin)
        rows = [row.as_dict() for row in answer.rows]
        assert rows
        assert not answer.errors
        differing = [row for row in rows if not row["equal"]]
        if name in RESENT:
            assert all(row["because"] for row in differing)
            assert any("Prepare" in sentence for sentence in answer.extra["twin_lacks"])
            return
        assert differing == []
        about = {(row["topic"], row["partition"], row["start_offset"]) for row in rows}
        for t in truths:
            if t.verdict is not None and t.start_offset is not None:
                assert (*TopicPartition(t.topic, t.partition), t.start_offset) in about
            ends = librdkafka_offsets(twin.lab, t.topic, t.partition)
            if t.kind != "coordinator-fenced":
                assert ends == (t.last_stable_offset, t.high_watermark)
            if t.committed_offset is not None:
                assert committed(twin.lab, t, stable=False).offset == t.committed_offset
        if not steps:
            return
        rehearsed = rehearsing.rehearse(rehearsing.read(plan_file, bundle), twin)
        assert {s.step.target: s.status for s in rehearsed.outcome.steps} == steps
        assert ends_of(twin.lab, truths) == ended
