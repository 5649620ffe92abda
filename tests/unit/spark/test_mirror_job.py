"""What the jobs of a mirror and of two states say, and what is kept when they fail."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.ask import same_topic
from eoctl.kafka.connection.access import Access
from eoctl.operations.audit import engine, mirror_keep
from eoctl.operations.audit.engine import AuditedRanges, AuditEngine
from eoctl.operations.audit.mirror_keep import KeptMap, KeptRanges, MirrorKeep
from eoctl.operations.jobs.spark_launch import Spark
from eoctl.operations.state import state_comparison
from eoctl.operations.state.state_comparison import Comparison
from eoctl.stores.offsets import mirror_maps
from eoctl.stores.state import folder as state_folder
from recovery.answers import Answer
from recovery.audit.audit_request import (
    PART,
    MirrorKeepRequest,
    MirrorKept,
    MirrorPair,
    Resolved,
    TopicOf,
)
from recovery.audit.mirror_map import MapPartition
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.formats.columns import NONE
from recovery.state.state_jobs import CompareRequest
from recovery.values import replace
from spark_jobs import audit_mirror, audits, compare_states, deliver
from spark_jobs.session import executors, states
from spark_jobs.session.progress import JobProgress
from tests.unit.audit.test_mirror_map import WHOLE, keep
from tests.unit.state.test_state_compare import state

SOURCE = [(n, NONE) for n in range(10)]
FIRST = keep(None, SOURCE[:6], SOURCE[:5])
LATER = keep(FIRST, SOURCE, SOURCE)
GAP = keep(FIRST, SOURCE, SOURCE, cut=14)
PROGRESS = JobProgress(None)


def inline(_: object, function: Callable[[int], Any], count: int, *__: object) -> list[Any]:
    return [function(number) for number in range(count)]


class Accumulator:
    def __init__(self, *, heard: bool = True) -> None:
        self.value: list[Any] = []
        self._heard = heard

    def add(self, more: Any) -> None:
        if self._heard and isinstance(more, list):
            self.value += more


def session(*, heard: bool = True) -> Any:
    """A Spark that runs nothing. heard: what tasks add arrives."""
    context = SimpleNamespace(accumulator=lambda *_: Accumulator(heard=heard))
    context.setLocalProperty = context.addJobTag = context.removeJobTag = lambda *_: None
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=lambda *_: None))


def _resolved(topic: str) -> Resolved:
    return Resolved(topic, 0, 0, 20, 0, 20, 20)


def _request(path: Path) -> MirrorKeepRequest:
    pair = MirrorPair(_resolved("orders"), _resolved("copy"))
    of = (TopicOf("A", "one"), TopicOf("B", "two"))
    return MirrorKeepRequest(
        ranges=(), most=1, pairs=(pair,), topics=of, fields=WHOLE.compared, path=str(path)
    )


@pytest.mark.parametrize(
    ("part", "heard", "status"), [(LATER, True, 0), (GAP, True, 3), (LATER, False, 3)]
)
def test_the_status_of_a_job_is_that_of_the_command(
    part: MapPartition, heard: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new gap is not proven, and a part that does not arrive was not read."""
    mirror_maps.write(WHOLE.model_copy(update={"partitions": (FIRST,)}), tmp_path / "a.map")
    monkeypatch.setattr(executors, "run", inline)
    monkeypatch.setattr(audits, "ask_both", lambda *_: part)
    result = audit_mirror.keep(
        session(heard=heard), _request(tmp_path / "a.map"), Access({}), PROGRESS
    )
    assert result["exit_status"] == status
    failed = MirrorKept.model_validate(result["found"]).failed
    assert ["has not arrived" in m.detail for m in failed] == ([] if heard else [True])


def _ranges(path: Path) -> KeptRanges:
    pairs = [MirrorPair(_resolved("orders"), _resolved("copy"))]
    kept = KeptMap(path, WHOLE, 1, (), set(), True, pairs)
    return KeptRanges("A", [_resolved("orders"), _resolved("copy")], [], kept=kept)


def test_a_save_that_fails_is_tried_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def unreachable(_: object, seconds: float | None, __: object) -> None:
        tried.append(seconds)
        raise IncompleteError("the time was up")

    monkeypatch.setattr(mirror_keep, "with_cluster", unreachable)
    ranges, question = _ranges(tmp_path / "a.map"), SimpleNamespace(own=None)
    audit = MirrorKeep(question, tmp_path / "a.map")  # type: ignore[arg-type]
    ranges.kept.due = 0.0
    (tmp_path / f"0{PART}").write_text(LATER.model_dump_json())
    for _ in range(3):
        audit.take(ranges, tmp_path, last=False)
    assert tried == [mirror_keep.MOST_SECONDS]
    with pytest.raises(IncompleteError):
        audit.take(ranges, tmp_path, last=True)


def test_a_partition_without_a_part_and_without_an_error_was_not_read(tmp_path: Path) -> None:
    ranges = _ranges(tmp_path / "a.map")
    audit = MirrorKeep(SimpleNamespace(), tmp_path / "a.map")  # type: ignore[arg-type]
    [error] = audit.answer(ranges, MirrorKept()).errors
    assert (error.partition, error.error) == (0, "NOT_READ")
    ranges.kept.add(LATER)
    assert audit.answer(ranges, MirrorKept()).errors == []


def test_what_a_job_gave_before_it_failed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def fails(*_: object, **__: object) -> None:
        raise RefusedError("the first error")

    def take(_: object, __: object, *, last: bool) -> None:
        taken.append(last)
        raise IncompleteError("a second error")

    request = _request(Path("a.map"))
    audit: Any = SimpleNamespace(job="audit_mirror", access=lambda _: Access({}), take=take)
    monkeypatch.setattr(engine, "launch", fails)
    context: Any = SimpleNamespace(title="c")
    on = AuditEngine("spark", Spark("local[2]"))
    with pytest.raises(RefusedError, match="the first error"):
        engine._on_spark(context, None, audit, request, on, AuditedRanges("A", [], []))
    assert taken == [True]


@pytest.mark.parametrize(
    ("cluster_id", "ids", "why"),
    [
        ("A", {"one"}, None),
        ("B", {"one"}, "executors reach cluster B there, and not A"),
        ("A", {"two"}, "deleted and created again"),
        ("A", {None}, "does not say"),
    ],
)
def test_a_task_refuses_another_cluster_and_another_topic(
    cluster_id: str, ids: set[str | None], why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of_leaders(*_: object) -> dict[str, set[str | None]]:
        return {"t": ids}

    async def metadata(_: object) -> Any:
        return SimpleNamespace(topics={})

    monkeypatch.setattr(same_topic, "ids_of_leaders", of_leaders)
    cluster: Any = SimpleNamespace(metadata=metadata, cluster_id=cluster_id)
    asked = same_topic.refuse_other(cluster, "A", "one", TopicPartition("t", 0))
    if why is None:
        asyncio.run(asked)
    else:
        with pytest.raises((RefusedError, IncompleteError), match=why):
            asyncio.run(asked)


def test_rows_that_the_driver_does_not_take_are_a_sentence() -> None:
    class Frame:
        def collect(self) -> list[object]:
            raise RuntimeError("is bigger than spark.driver.maxResultSize (1024.0 MiB)")

    spark = session()
    with pytest.raises(IncompleteError, match=r"more than spark\.driver\.maxResultSize allows"):
        executors.collected(spark, Frame(), "x", executors.Refusals(spark))


def test_a_comparison_on_spark_is_of_the_states_that_were_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is replaced before the job is launched."""
    a, b = (state(tmp_path / name, {0: {b"k": (1, b"v")}}) for name in "ab")
    before = state_folder.read_bytes(b)[2]

    class On:
        def found(self, mine: Any, theirs: Any, *_: object, **__: object) -> Any:
            states.opened(mine)
            (b / state_folder.MANIFEST).write_bytes(before + b"\n")
            states.opened(theirs)
            return iter(())

    request: Any = Comparison(str(a), str(b))
    request = replace(request, on=On())
    with pytest.raises(RefusedError, match="another state there, or it was replaced"):
        state_comparison.compare(lambda: None, request, None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("complete", "status"), [(True, 0), (False, 3)])
def test_a_job_that_compares_an_incomplete_state_says_so(
    complete: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "run", inline)
    a = state(tmp_path / "a", {0: {b"k": (1, b"v")}})
    b = state(tmp_path / "b", {0: {b"k": (1, b"v")}}, complete=complete)
    _, mine = state_comparison._opened(str(a))
    _, theirs = state_comparison._opened(str(b))
    request = CompareRequest(a=mine, b=theirs, most=1).model_dump(mode="json")
    result = compare_states.work(session(), request, Access({}), PROGRESS)
    assert (result["differing"], result["exit_status"]) == (0, status)
    answer: Answer = state_comparison.compare(
        lambda: None,  # type: ignore[arg-type, return-value]
        Comparison(str(a), str(b)),
        None,
    )
    assert answer.exit_status == status


def test_tasks_ask_where_they_are_before_they_read_or_send(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def refuse(cluster: Any, *of: object) -> None:
        asked.append((cluster, *of))
        if len(asked) > 1:
            raise RefusedError("another one")

    def never(*_: object) -> Any:
        raise AssertionError("it was read or sent")

    mirror: Any = nullcontext("mirror")
    monkeypatch.setattr(audits, "refuse_other", refuse)
    monkeypatch.setattr(audits, "Cluster", lambda *_, **__: mirror)
    access: Any = SimpleNamespace(
        beside=None, settings=lambda: None, ask=lambda use, **_: asyncio.run(use("source"))
    )
    request = _request(Path("a.map"))
    with pytest.raises(RefusedError):
        audits.ask_both(access, request.topics, request.pairs[0], never)
    there = [("source", "A", "one", ("orders", 0)), ("mirror", "B", "two", ("copy", 0))]
    assert asked == there
    monkeypatch.setattr(deliver, "refuse_other", refuse)
    monkeypatch.setattr(deliver, "TopicDelivery", never)
    wish: Any = SimpleNamespace(cluster_id="C", topic_id="three", topic="new")
    with pytest.raises(RefusedError):
        asyncio.run(deliver._delivered("there", access, never, wish, 1))  # type: ignore[arg-type]
    assert asked == [*there, ("there", "C", "three", ("new", 1))]
