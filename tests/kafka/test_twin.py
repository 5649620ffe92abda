"""A twin is its incident, by ground truth, librdkafka and verdicts; a plan does there as here."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab import cluster
from eoctl.lab.breaks import KINDS, break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations import kinds  # noqa: F401 - plans are carried out here
from eoctl.operations.change import rehearsals
from eoctl.operations.dashboard import bundling, rehearsing, twins
from eoctl.operations.dashboard.rehearsing import twin_for
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from eoctl.stores import bundle_files
from recovery.facts import TopicPartition
from recovery.inspect.observation import Settings
from tests.kafka.command import FAST, eoctl
from tests.kafka.test_breaks import librdkafka_offsets
from tests.kafka.test_breaks_rare import committed
from tests.share import only_here

PLANNED: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("orphan", {}),
    ("orphan", {"variant": "late"}),
    ("marker-lost", {}),
    ("overdue", {}),
    ("offsets-orphan", {}),
)
"""A plan of remedies ends all of these: the shared lab is left as it was."""

Scene = tuple[int, int | None, Sequence[tuple[str, Mapping[str, Any]]]]
"""Brokers, transaction.version, kinds of break with their options."""

SCENES: dict[str, Scene] = {
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


def bundled(lab: Lab, folder: Path, with_records: int = 0) -> Path:
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    path = folder / "incident.eoctl"
    bundle = with_cluster(
        context,
        120,
        lambda c: bundling.collect(
            c, context, Settings(), pause=0.3, history=False, with_records=with_records
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


def test_a_plan_does_on_the_twin_what_it_does_to_the_cluster(lab2: Lab, tmp_path: Path) -> None:
    truths = made(lab2, PLANNED)
    where = ["--bootstrap-server", lab2.bootstrap_servers]
    plan_file = tmp_path / "plan.json"
    planned = eoctl("txn", "hanging", "--plan", str(plan_file), *where, *FAST)
    assert planned.status == 1, planned.stderr
    bundle = bundled(lab2, tmp_path, with_records=1000)
    plan = rehearsing.read(plan_file, bundle)
    assert len(plan.steps) >= len(PLANNED)
    with twin_for(bundle, "twin") as twin:
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
        rehearsed = rehearsing.rehearse(plan, twin)
        assert {s.status for s in rehearsed.outcome.steps} == {"done"}
        assert {row.as_dict()["verdict_after"] for row in rehearsed.answer.rows} == {None}
        there = ends_of(twin.lab, truths)
        group = committed(twin.lab, offsets, stable=True).offset
        assert rehearsals.find(plan.sha256)
    applied = eoctl("txn", "apply", str(plan_file), *where, "--execute", "--yes")
    assert applied.status == 0, applied.stderr
    assert ends_of(lab2, truths) == there
    assert committed(lab2, offsets, stable=True).offset == group == offsets.committed_offset
    assert twin.lab.name not in cluster.lab_names()


@pytest.mark.parametrize("name", only_here(SCENES))
def test_the_twin_answers_as_its_bundle(
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
