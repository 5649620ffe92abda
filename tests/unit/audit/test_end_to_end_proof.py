"""End to end: what is not proven, as not everything was there or was read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.engine import end_to_end_task
from eoctl.engine.id_buckets import IdBuckets
from eoctl.kafka.read import positions
from eoctl.operations.audit.end_to_end import LocalRun
from eoctl.operations.audit.ranges import AuditOptions, Resolved
from recovery.audit.end_to_end_request import (
    EndToEndFound,
    EndToEndRequest,
    EndToEndScope,
    Tally,
    unproven_parts,
)
from recovery.errors import IncompleteError
from recovery.facts import Missing, TopicPartition
from recovery.shared.log_position import LogPosition, Standing
from recovery.shared.record_ids import parse_record_id
from tests.unit.formats_build import ABORT, Item, batch, decoded, marker

PRODUCER = 7
Log = list[bytes]
"""A partition's batches."""


def records(*ids: str, at: int = 0) -> Log:
    """A record for each id; `-`: compaction took it; `?`: it has no id."""
    items = [
        Item(n, value=None if one == "?" else one.encode())
        for n, one in enumerate(ids)
        if one != "-"
    ]
    return [batch(at, items, last_offset=at + len(ids) - 1)]


def aborted(*ids: str, at: int = 0) -> Log:
    """The same in a transaction that was aborted, and its marker."""
    items = [Item(n, value=one.encode()) for n, one in enumerate(ids)]
    data = batch(at, items, producer=(PRODUCER, 0, 0), transactional=True)
    return [data, marker(at + len(ids), PRODUCER, ABORT)]


class Clusters:
    """Logs by partition, and what could not be seen of them."""

    def __init__(self, inputs: Sequence[Log], outputs: Sequence[Log]) -> None:
        self.logs = {
            TopicPartition(topic, p): log
            for topic, logs in (("in", inputs), ("out", outputs))
            for p, log in enumerate(logs)
        }
        self.starts: dict[TopicPartition, int] = {}
        self.missing: list[Missing] = []
        self.doubts: list[Missing] = []
        self.cut: int | None = None
        self.broken: set[TopicPartition] = set()

    def ranges(self, topic: str) -> tuple[Resolved, ...]:
        found = []
        for (name, p), log in self.logs.items():
            if name == topic and log:
                end = int(decoded(b"".join(log), []).batches.scan.last_offset[-1]) + 1
                start = self.starts.get(TopicPartition(name, p), 0)
                found.append(Resolved(name, p, start, end, start, end, end))
        return tuple(found)

    async def columns(
        self, _: object, r: Resolved, end: int, *__: object, **___: object
    ) -> AsyncIterator[Any]:
        whole = decoded(
            b"".join(self.logs[r.topic_partition]), [(PRODUCER, 0)], start=r.start, end=end
        )
        yield whole
        if r.topic_partition in self.broken:
            raise IncompleteError("its leader went away")

    def audit(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        all_inputs: bool = True,
        compacted: Sequence[str] = (),
    ) -> EndToEndFound:
        monkeypatch.setattr(end_to_end_task, "columns", self.columns)
        inputs, outputs = self.ranges("in"), self.ranges("out")
        cuts = tuple(self.cut for _ in inputs)
        scope = EndToEndScope(inputs, outputs, cuts, tuple(self.missing), tuple(self.doubts), 0)
        request = EndToEndRequest(
            ranges=scope.ranges,
            most=1000,
            scope=scope,
            topics=("in", "out"),
            topic_ids=(None, None),
            by=parse_record_id("value"),
            all_inputs=all_inputs,
            range_offsets=100,
        )
        run = LocalRun(None, request, AuditOptions(), IdBuckets("a", 100))  # type: ignore[arg-type]
        asyncio.run(run.read())
        return run.judge(compacted)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))


def findings(result: EndToEndFound) -> set[tuple[str, bool]]:
    return {(f.kind, f.proven) for f in result.verdicts.found}


def words(result: EndToEndFound) -> str:
    return "\n".join(m.detail for m in unproven_parts(result))


LOST = ([records("a", "b", "c")], [records("a", "c")])


def test_a_missing_output_is_proven_where_all_outputs_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = Clusters(*LOST).audit(monkeypatch)
    assert findings(result) == {("no-output", True)}
    assert (result.verdicts.findings, words(result)) == (1, "")
    with_marker = Clusters(LOST[0], [[*aborted("b"), *records("a", "c", at=2)]])
    result = with_marker.audit(monkeypatch)
    assert findings(result) == {("no-output", True)}, "a marker is no record that was compacted"
    assert words(result) == ""


@pytest.mark.parametrize(
    "why", ["leaderless", "broken", "no id", "hole", "hole at the end", "compacted"]
)
def test_an_output_may_be_where_nobody_looked(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {
        "no id": records("?"),
        "hole": records("x", "-", "y"),
        "hole at the end": records("x", "-"),
        "broken": records("x"),
    }
    case = Clusters(LOST[0], [*LOST[1], more.get(why, [])])
    if why == "leaderless":
        case.missing = [Missing("partition", "LEADER_NOT_AVAILABLE", "no leader", None, "out", 1)]
    case.broken = {TopicPartition("out", 1)} if why == "broken" else set()
    result = case.audit(monkeypatch, compacted=["out"] if why == "compacted" else [])
    assert findings(result) == {("no-output", False)}
    assert result.verdicts.findings == 0
    assert "1 input has no output, or one that was deleted" in words(result)
    sentence = {"no id": "1 output has no such id", "hole": "1 offset has no record (compacted?)"}
    assert sentence.get(why, "") in words(result)


@pytest.mark.parametrize(
    "why", ["leaderless", "broken", "left out", "hole", "retention", "compacted"]
)
def test_an_input_that_was_not_read_may_have_the_id(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry: aborted in the first partition, committed in the one that nobody sees."""
    given = [*aborted("a"), *records("b", "-" if why == "hole" else "c", "d", at=2)]
    case = Clusters([given, records("e")], [records("a", "b", "b", "d")])
    if why == "leaderless":
        case.missing = [Missing("partition", "LEADER_NOT_AVAILABLE", "no leader", None, "in", 2)]
    case.broken = {TopicPartition("in", 1)} if why == "broken" else set()
    case.starts = {TopicPartition("in", 1): 1} if why == "retention" else {}
    compacted = ["in"] if why == "compacted" else []
    result = case.audit(monkeypatch, all_inputs=why != "left out", compacted=compacted)
    doubtful = {("repeated", False), ("aborted-input", False)}
    assert {one for one in findings(result) if one[0] != "no-output"} == doubtful
    assert "2 outputs are repeated or of an aborted input, unless an input" in words(result)
    assert result.verdicts.findings == (0 if why == "hole" else 1), "no-output of c"
    case = Clusters([[*aborted("a"), *records("b", "d", at=2)]], [records("a", "b", "b", "d")])
    result = case.audit(monkeypatch)
    assert findings(result) == {("repeated", True), ("aborted-input", True)}
    assert (result.verdicts.findings, words(result)) == (2, "")


def test_a_cut_that_is_not_proven_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Clusters(*LOST)
    case.cut = 3
    case.doubts = [Missing("partition", "UNPROVEN", "not of this log", None, "in", 0)]
    result = case.audit(monkeypatch)
    assert findings(result) == {("no-output", False)}
    assert "not of this log" in words(result)


def test_inputs_that_compaction_took_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no finding, and not passed over either; what is there is judged."""
    result = Clusters([records("a", "-", "c", "d")], [records("a", "d")]).audit(monkeypatch)
    assert findings(result) == {("no-output", True)}
    assert words(result).startswith("1 offset has no record (compacted?): if these inputs had an")


def test_too_few_ids_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no partition that could not be read."""
    monkeypatch.setattr("eoctl.engine.id_buckets.MOST", 2)
    with pytest.raises(IncompleteError, match="the same id"):
        Clusters(*LOST).audit(monkeypatch)


@pytest.mark.parametrize(
    ("tally", "held", "ids", "text"),
    [
        (Tally(30, epoch=2), True, {"one"}, None),
        (Tally(30, epoch=2), None, {"one"}, None),
        (Tally(30, epoch=2), False, {"one"}, "its log was cut off at offset 20 while it was read"),
        (Tally(30, epoch=2, holes=1), False, {"one"}, None),
        (Tally(12, epoch=2), False, {"other"}, None),  # it could not be read: that is told
        (Tally(30, epoch=2), True, {"one", "other"}, "it was deleted and created again while"),
        (Tally(30, epoch=2), True, {"one", None}, "a leader does not answer"),
        (Tally(30, epoch=2), True, {None}, "a leader does not answer, or it was deleted"),
    ],
)
def test_a_log_that_is_another_one_at_the_end_judges_nothing(
    tally: Tally,
    held: bool | None,
    ids: set[str | None],
    text: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an epoch after offsets without a record nobody knows, and nothing is proven there."""

    async def standings(_: object, read: dict[TopicPartition, LogPosition]) -> Any:
        return dict.fromkeys(read, Standing(held, "", 20))

    async def of_leaders(*_: object) -> dict[str, set[str | None]]:
        return {"in": ids}

    async def metadata(_: object) -> Any:
        return SimpleNamespace(topics={})

    monkeypatch.setattr(positions, "standings", standings)
    monkeypatch.setattr(end_to_end_task, "ids_of_leaders", of_leaders)
    ranges = [Resolved("in", 0, 0, 30, 0, 30, 30)]
    cluster: Any = SimpleNamespace(metadata=metadata)
    asked = end_to_end_task.refuse_changed(cluster, {"in": "one"}, ranges, [tally])
    with nullcontext() if text is None else pytest.raises(IncompleteError, match=text):
        asyncio.run(asked)
