"""`audit end-to-end` on Spark: what was planted and nothing else, as the local engine has it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.engine import id_buckets
from eoctl.lab.cluster import Lab
from eoctl.operations.audit.end_to_end import EndToEndAudit
from recovery.answers import Answer
from recovery.audit.audit_rows import AuditEndToEndRow, RecordPlace
from recovery.errors import IncompleteError
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from recovery.shared.record_ids import parse_record_id
from spark_jobs import audits
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.kafka.test_audit_end_to_end import INPUTS, OUTPUTS, Places, World, places, plant
from tests.share import fewer
from tests.spark.test_audit import SPARK, Attempts, by_both, by_spark, ranges_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def world(lab1: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Several buckets; pieces that begin within a batch and within a transaction."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(id_buckets, "ROWS", 3_000)
    return World(lab1, topic(lab1, INPUTS), topic(lab1, OUTPUTS))


def audit(world: World, by: str = "header:id", group: str | None = None) -> EndToEndAudit:
    return EndToEndAudit(
        parse_selector(world.source),
        parse_selector(world.output),
        parse_record_id(by),
        parse_bound("earliest", 0),
        group=group,
        range_offsets=1_500,
    )


def ids(records: list[RecordPlace], placed: Places) -> set[bytes]:
    at = {place: one for one, where in placed.items() for place in where}
    return {at[r.partition, r.offset] for r in records if (r.partition, r.offset) in at}


def found(answer: Answer, inputs: Places, outputs: Places) -> dict[str, set[bytes]]:
    """The ids of proven findings, by kind: one each."""
    named: dict[str, set[bytes]] = defaultdict(set)
    for row in answer.rows:
        assert isinstance(row, AuditEndToEndRow)
        (one,) = ids(row.inputs, inputs) | ids(row.outputs, outputs)
        assert one not in named[row.finding]
        if row.proven:
            named[row.finding].add(one)
    return named


def failing_once(frame: Callable[..., "DataFrame"]) -> Callable[..., "DataFrame"]:
    """The first task that reads fails after its first rows, and is tried again."""

    def framed(spark: "SparkSession", give: audits.Give, *rest: Any) -> "DataFrame":
        def given(piece: int) -> "Iterator[pa.RecordBatch]":
            from pyspark import TaskContext

            rows = give(piece)
            yield next(rows)
            task = TaskContext.get()
            if piece == 0 and task is not None and task.attemptNumber() == 0:
                raise RuntimeError("its executor was lost")
            yield from rows

        return frame(spark, given, *rest)

    return framed


def test_what_was_planted_is_found_and_nothing_else(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the value with a group's commits, by a header without; then where retention took outputs
    and fewer findings are shown than there are. A task is tried again."""
    plant(world, fewer(200_000, 4_000))
    inputs = places(world.lab, world.source, INPUTS)
    outputs = places(world.lab, world.output, OUTPUTS)
    ends = [max(at[1] for w in inputs.values() for at in w if at[0] == p) + 1 for p in range(3)]
    asked = [audit(world, "value", world.commit(ends)), audit(world)]
    for one in asked[: fewer(2, 1)]:
        with monkeypatch.context() as patch, Attempts(spark) as attempts:
            patch.setattr(audits, "frame", failing_once(audits.frame))
            local, answer = by_both(world.lab, spark, one, 100_000)
            attempts.wait(1, 10)
        assert attempts.failed == 1
        assert answer == local
        assert found(answer, inputs, outputs) == world.planted
        assert answer.extra["findings"] == sum(map(len, world.planted.values()))
        assert (answer.exit_status, answer.errors) == (1, [])
        assert sum(p["aborted"] for p in answer.extra["outputs"]) > 100

    cut = TopicPartition(world.output, 0, 500)
    admin = AdminClient(world.lab.client_properties())  # or it is gone before its answer comes
    admin.delete_records([cut])[cut].result(60)
    local, answer = by_both(world.lab, spark, audit(world), 10)
    assert answer == local
    assert (answer.exit_status, len(answer.rows)) == (3, 10)
    assert sum(p["unproven"] for p in answer.extra["inputs"]) > 100
    assert found(answer, inputs, outputs)["no-output"] < world.planted["no-output"]


@pytest.mark.long
def test_few_ids_and_no_records(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    local, answer = by_both(world.lab, spark, audit(world))
    assert answer == local
    assert (answer.exit_status, answer.rows) == (0, [])
    plant(world, 1_000)
    request = audit(world)
    monkeypatch.setattr(id_buckets, "MOST", 100)
    with pytest.raises(IncompleteError, match="the same id, or few ids"):
        by_spark(world.lab, spark, request, ranges_of(world.lab, request))


@pytest.mark.long
def test_a_launched_audit(world: World) -> None:
    """Its answer is that of the local engine, with the exit status of a finding."""
    plant(world, 2_000)
    answers = []
    for engine in ((), SPARK):
        words = ("audit", "end-to-end", world.source, world.output, "--by", "value", "-o", "json")
        ran = as_published(eoctl(*words, *engine, lab=world.lab, timeout=300), "audit-end-to-end")
        assert ran.status == 1, ran.text
        answers.append(ran.json)
    local, other = answers
    assert (local.pop("engine"), other.pop("engine")) == ("local", "spark")
    for answer in answers:
        del answer["engine_why"], answer["collected_at"]
    assert other == local
    assert other["findings"] == sum(map(len, world.planted.values()))
