"""`merge replay` around its engines: what is refused before it acts, and what that leaves."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.main import run
from eoctl.cli.options import Format
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.change.acting import refuse_beside_running
from eoctl.operations.jobs.spark_launch import Spark
from eoctl.operations.jobs.spark_step import Launch, launched
from eoctl.operations.merge import planning as merge
from eoctl.operations.merge import replay_change as merge_acting
from eoctl.operations.merge import tail
from eoctl.operations.merge.killed_replay import own_ended
from eoctl.operations.merge.planning import Merge
from eoctl.operations.merge.replay_change import KIND, Replaying, Running, scope_of
from eoctl.operations.merge.replay_on_spark import SPARK_ENTRIES, check_engine, choose_engine
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from recovery.answers import Answer
from recovery.change.journal import unfinished
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import Exit, RefusedError, UnverifiedError, UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.merge.log_rows import MergeOutput, MergePlanRow
from recovery.merge.merge_request import MergePart, ReplayRequest
from recovery.merge.replay import Base, ReplayPosition
from spark_jobs.merge_replay import _refuse_other_rows
from spark_jobs.sink.staging import StagedFile

REQUEST = ReplayRequest(
    merge="m",
    format="json",
    inputs=("a",),
    output="o",
    isolation="read_committed",
    group="g",
    staging="/nowhere",
    cluster_id="c",
    created_at="",
    topic_ids={},
    logs=(),
    parts=(
        MergePart(
            partition=0, base=Base(0, TopicPartition("o", 0), 0), position=0, drop_left=2, tip=9
        ),
    ),
    range_offsets=5,
)


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return Journal()


def plan(base: int, action: str = "replay") -> Plan:
    now = now_ms()
    step = Step(
        action=action, target="m", parameters={"bases": {"0": [base, 0]}}, does="", stands_on=()
    )
    return Plan(
        kind=KIND,
        action=action,
        created_at=now,
        expires_at=now + VALID_MS,
        context="here",
        argv=(),
        cluster_id="c",
        scope="merge log m",
        summary="replays",
        lock="this host only",
        observed={},
        steps=(step,),
        details={"partitions": [], "max_rate": None},
    )


def test_without_java_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], journal: Journal
) -> None:
    """And nobody is asked: no broker is there."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    words = ["merge", "replay", "--merge-log", "m", "--format", "json", "--input", "a"]
    words += ["--output-topic", "o", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1s"]
    assert run([*words, "--engine", "spark", "--execute", "--yes"]) == Exit.USAGE
    assert "JAVA_HOME is /nowhere" in capsys.readouterr().err
    assert not journal.find().entries


def test_a_job_that_cannot_begin_has_sent_nothing() -> None:
    """So a step that performs it was refused: it is not one whose answer was lost."""
    spark = Spark(env={"JAVA_HOME": "/nowhere"})
    context = Context("here", {"bootstrap.servers": "127.0.0.1:1"}, ())
    job = Launch("merge_replay", REQUEST.model_dump(mode="json"), "", "c", "o")
    ending = launched(job, context, spark, lambda report: None, Running().cancel, lambda: None)
    with pytest.raises(RefusedError, match="JAVA_HOME is /nowhere"):
        asyncio.run(ending)


def test_other_rows_than_entries_are_refused() -> None:
    files = [StagedFile(0, "part", 5, 1, "")]
    _refuse_other_rows(REQUEST, files, [7])
    with pytest.raises(RefusedError, match="nothing was sent"):
        _refuse_other_rows(REQUEST, files, [8])


@pytest.mark.parametrize("how", ["declined", "read-only", "another plan"])
def test_an_unfinished_entry_stays_until_the_new_plan_is_agreed_to(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    writer = journal.begin(plan(0), ())
    writer.close()
    monkeypatch.setattr("eoctl.cli.dialog.acting.ask", lambda question, word: False)
    context = Context("here", {}, (), read_only=how == "read-only")
    sha = "0" * 64 if how == "another plan" else None
    said = Execute(execute=True, yes=how != "declined", plan_sha256=sha)
    in_the_way = merge_acting.in_the_way(plan(7))
    assert in_the_way == writer.entry
    change = CommandChange("merge-replay", plan(7), context, replaces=in_the_way)
    with pytest.raises(RefusedError) as refusal:
        change.run(said, Format(), 1)
    expected = {"declined": "not confirmed", "read-only": "read-only", "another plan": "sha256"}
    assert expected[how] in refusal.value.sentence
    assert [e.id for e in unfinished(journal.find().entries)] == [writer.entry]


def test_a_running_replay_is_not_waited_for(journal: Journal) -> None:
    """Neither of the same plan nor of another one; nor is one of another log in the way."""
    asked = Merge("m", "json", ("a",), "o")
    other = Merge("n", "json", ("a",), "o")
    writer = journal.begin(plan(0), ())
    refuse_beside_running("c", scope_of(other))
    refuse_beside_running("another", scope_of(asked))
    nobody = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
    nobody.cluster_id = "c"
    with pytest.raises(RefusedError, match=f"{writer.entry} is being carried out by"):
        asyncio.run(own_ended(nobody, asked, print))
    writer.close()
    refuse_beside_running("c", scope_of(asked))  # it was killed: its transaction is waited for


@pytest.mark.parametrize("grows", [False, True])
def test_what_a_replay_left_is_looked_at_twice(
    monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    """An end that moved between two looks is no end: one look would take it for one."""
    reads = 0

    class Topics(Cluster):
        async def metadata(self, topics: Any = None) -> ClusterMetadata:
            found = {
                name: TopicMetadata(
                    name, name, False, (PartitionMetadata(name, 0, 1, 0, (1,), None),), None
                )
                for name in topics
            }
            return ClusterMetadata("c", 1, {}, found)

    async def read_ends(cluster: Any, topics: Any, wanted: Any) -> Any:
        nonlocal reads
        reads += 1
        end = 5 + (reads if grows else 0)
        facts = [PartitionFacts(p.topic, 0, p.topic, 1, 0, (1,), 0, end, end) for p in wanted]
        return facts, {(p.topic, 0): end for p in wanted}, []

    async def reached(cluster: Any, asked: Merge, given: Any, seen: merge.MergeLook) -> Any:
        tip, end = seen.final(TopicPartition(asked.topic, 0)), seen.final(TopicPartition("o", 0))
        at = ReplayPosition(tip)
        return {0: merge.Reached(at, tip, end, tip, tip, at)}

    monkeypatch.setattr(merge, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(merge, "read_ends", read_ends)
    monkeypatch.setattr(merge_acting, "reached", reached)
    cluster = Topics(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    parameters = {
        "format": "json",
        "inputs": ["a"],
        "output": "o",
        "isolation": "read_committed",
        "follow": False,
        "bases": {"0": [0, 0]},
    }
    step = Step(action="replay", target="m", parameters=parameters, does="", stands_on=())
    seen = asyncio.run(Replaying(cluster, Running(), None).verify(step))
    assert seen.done is not grows
    if grows:
        assert "its end is not final: it moved from 6 to 7" in seen.detail


@pytest.mark.parametrize("committed", [False, True])
def test_a_refusal_beside_committed_records_does_not_say_that_nothing_changed(
    monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    class Partition:
        def __init__(self, job: Any, base: Base, number: int) -> None:
            self.partition, self.sent = number, 0
            self.committed = committed and number == 0

        def run(self) -> None:
            if self.partition:
                raise RefusedError("a wrong entry", where="m:1", remedy="mend it")

    async def look(*_: object, **__: object) -> Any:
        return SimpleNamespace(bounds=lambda *_: (0, 9))

    monkeypatch.setattr(merge_acting, "look", look)
    monkeypatch.setattr(merge_acting, "PartitionReplay", Partition)
    cluster: Any = SimpleNamespace(refuse_read_only=lambda: None, settings=None)
    parameters = {
        "format": "json",
        "inputs": ["a"],
        "output": "o",
        "isolation": "read_committed",
        "follow": False,
        "bases": {"0": [0, 0], "1": [0, 0]},
    }
    step = Step(action="replay", target="m", parameters=parameters, does="", stands_on=())
    with pytest.raises(UnverifiedError if committed else RefusedError) as refused:
        asyncio.run(Replaying(cluster, Running(), None).perform(step, lambda: None))
    error = refused.value
    assert (error.what, error.where, error.remedy) == ("a wrong entry", "m:1", "mend it")


def test_only_the_local_engine_follows() -> None:
    with pytest.raises(UsageError, match="cannot follow"):
        check_engine("spark", follow=True)
    check_engine("spark", follow=False)
    check_engine("local", follow=True)
    check_engine("auto", follow=True)
    big = plan(0).model_copy(update={"details": {"partitions": [{"from": 0, "to": SPARK_ENTRIES}]}})
    small = plan(0).model_copy(
        update={"details": {"partitions": [{"from": 1, "to": SPARK_ENTRIES}]}}
    )
    engines = [
        choose_engine("auto", job, spark_there, follow=follow)[0]
        for job, spark_there, follow in [
            (big, True, False),
            (big, True, True),
            (big, False, False),
            (small, True, False),
        ]
    ]
    assert engines == ["spark", "local", "local", "local"]
    assert choose_engine("local", big, True)[0] == "local"


@pytest.mark.parametrize(
    ("start", "tip", "expected"),
    [(0, 50, range(30, 50)), (35, 50, range(35, 50)), (0, 7, range(7)), (7, 7, ())],
)
def test_the_tail_of_a_log_is_its_newest_entries(
    monkeypatch: pytest.MonkeyPatch,
    start: int,
    tip: int,
    expected: Sequence[int],
) -> None:
    """Of a log whose entries are in the offsets from `start` to the tip; one is broken."""

    class Message(NamedTuple):
        at: int

        def offset(self) -> int:
            return self.at

        def key(self) -> bytes | None:
            return None

        def value(self) -> bytes:
            entry = {"topic": "a", "partition": 0, "offset": 2 * self.at}
            return b"{" if self.at == 36 else json.dumps(entry).encode()

    def read_log(settings: Any, topic_partition: Any, low: int, high: int) -> Any:
        assert topic_partition == ("m", 0)
        return [[Message(n)] for n in range(low, high)]

    async def planned(*given: Any) -> Answer:
        row = MergePlanRow(
            topic="m",
            partition=0,
            start=start,
            tip=tip,
            entries=tip - start,
            inputs=[],
            output=MergeOutput(topic="o", partition=0, start=0, end=0),
            drop_first=0,
            position=None,
            drop_left=None,
            transactional_id="x",
        )
        return Answer("s", "c", 0, (row,))

    monkeypatch.setattr(tail, "read_log", read_log)
    monkeypatch.setattr(merge, "plan", planned)
    monkeypatch.setattr(merge, "of_app", lambda *given: Merge("m", "json", ("a",), "o"))
    monkeypatch.setattr(tail, "read_app_file", lambda *given: SimpleNamespace(app=None))
    nobody = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
    found = asyncio.run(tail.merge_tail(nobody, Path("app.yaml"))).extra["entries"]
    assert [e["merge_offset"] for e in found] == list(expected)
    good = {e["merge_offset"]: e["offset"] for e in found if "error" not in e}
    assert good == {n: 2 * n for n in expected if n != 36}
