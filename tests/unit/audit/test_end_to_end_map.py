"""By a mirror map: what is proven of a source that cannot be asked, and what is not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.cli.commands.audit.end_to_end import end_to_end
from eoctl.cli.commands.dedup import RecordSource
from eoctl.cli.spark_options import SparkOptions
from eoctl.engine import end_to_end_task
from eoctl.engine.id_buckets import IdBuckets
from eoctl.engine.mirror_continuing import continued
from eoctl.engine.mirror_logs import Digested, OnProgress, Progress
from eoctl.operations.audit import end_to_end_map
from eoctl.operations.audit.end_to_end_map import MapAudit
from eoctl.operations.audit.engine import here
from eoctl.operations.audit.ranges import AuditOptions, Resolved
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer
from recovery.audit.audit_rows import AuditEndToEndRow
from recovery.audit.mirror_map import MapPartition
from recovery.errors import IncompleteError, UsageError
from recovery.facts import Missing
from recovery.formats.batches import TIMESTAMP_TYPE
from recovery.shared.record_digests import record_digests
from tests.unit.audit.test_end_to_end_proof import PRODUCER, Log, aborted, records
from tests.unit.audit.test_mirror_map import WHOLE
from tests.unit.formats_build import Item, batch, decoded

NEVER_ASKED: Any = None


class Bytes:
    """A log in memory."""

    def __init__(self, log: Log) -> None:
        self.log = b"".join(log)

    @property
    def end(self) -> int:
        scan = decoded(self.log, []).batches.scan
        return int(scan.last_offset[-1]) + 1 if len(scan) else 0

    def part(self, start: int, end: int) -> Any:
        return decoded(self.log, [(PRODUCER, 0)], start=start, end=end)

    async def read(self, r: Resolved, end: int, on_progress: OnProgress) -> Digested:
        part = self.part(r.start, end)
        part = part.select(~part.is_control)
        if len(part):
            yield part, record_digests(part)

    def range(self, topic: str, partition: int, start: int = 0) -> Resolved:
        return Resolved(topic, partition, start, self.end, start, self.end, self.end)


class Mirror:
    """source, then: the logs when the map was kept; since: batches that the mirror got later."""

    def __init__(self, source: Sequence[Log], then: Sequence[Log], since: Sequence[Log] = ()):
        parts = [self._mapped(p, Bytes(source[p]), Bytes(then[p])) for p in range(len(source))]
        self.kept = WHOLE.model_copy(
            update={"asked": tuple(range(len(source))), "partitions": tuple(parts)}
        )
        late = [*since, *[[]] * (len(then) - len(since))]
        self.logs = [Bytes([*a, *b]) for a, b in zip(then, late, strict=True)]
        self.starts = dict.fromkeys(range(len(then)), 0)
        self.missing: list[Missing] = []
        self.broken: set[int] = set()
        self.compacted: set[str] = set()

    def _mapped(self, number: int, source: Bytes, then: Bytes) -> MapPartition:
        mine, theirs = source.range("orders", number), then.range("orders", number)
        whole = continued(None, (source, mine), (then, theirs), Progress(None), timed=True)
        return asyncio.run(whole).model_copy(update={"looked_at": 1_000 + number})

    async def columns(
        self, _: object, r: Resolved, end: int, *__: object, **___: object
    ) -> AsyncIterator[Any]:
        yield self.logs[r.partition].part(r.start, end)
        if r.partition in self.broken:
            raise IncompleteError("its leader went away")

    def audit(self, monkeypatch: pytest.MonkeyPatch, *, everything: bool = True) -> Answer:
        async def gives(value: Any) -> Any:
            return value

        ranges = [log.range("orders", p, self.starts[p]) for p, log in enumerate(self.logs)]
        ranges = [r for r in ranges if not any(m.partition == r.partition for m in self.missing)]
        monkeypatch.setattr(end_to_end_task, "columns", self.columns)
        monkeypatch.setattr(mirror_maps, "read", lambda _: self.kept)
        for name, value in (
            ("refuse_other_mirror", None),
            ("refuse_cut_off", {}),
            ("refuse_changed", None),
            ("compacted_topics", self.compacted),
            ("readers", ((), True)),
            ("resolve", (ranges, list(self.missing))),
        ):
            monkeypatch.setattr(end_to_end_map, name, lambda *_, value=value: gives(value))
        asked = MapAudit("orders", "orders", Path("orders.map"), everything)
        cluster: Any = SimpleNamespace(cluster_id="B")
        return asyncio.run(here(cluster, asked, AuditOptions()))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))


def findings(answer: Answer) -> set[tuple[str, int, int, bool]]:
    """The finding, where its first input is, and if it is proven."""
    rows = [row for row in answer.rows if isinstance(row, AuditEndToEndRow)]
    return {(r.finding, r.inputs[0].partition, r.inputs[0].offset, r.proven) for r in rows}


def words(answer: Answer) -> str:
    return "\n".join(e.detail for e in answer.errors)


def many() -> Mirror:
    """Of partition 0: b is lost, c came twice, and aborted x came too; 1 is whole."""
    source = [[*records("a", "b", "c", "d"), *aborted("x", at=4)], records("e", "f")]
    then = [records("a", "c", "c", "x", "d"), records("e", "f")]
    return Mirror(source, then)


ALL = [("no-output", 1), ("repeated", 2), ("aborted-input", 4)]


def of_0(*, proven: bool) -> set[tuple[str, int, int, bool]]:
    return {(kind, 0, offset, proven) for kind, offset in ALL}


def test_where_all_was_read_and_nothing_is_in_doubt_all_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = many().audit(monkeypatch)
    assert findings(answer) == of_0(proven=True)
    assert (answer.exit_status, answer.errors, answer.extra["findings"]) == (1, [], 3)
    assert answer.extra["map_of"] == "1970-01-01T00:00:01.000Z"
    assert [p["log_start_offset"] for p in answer.extra["inputs"]] == [None, None]


def own_times(at: int) -> Log:
    """A copy of b that has the mirror's time."""
    item = Item(0, timestamp=9, value=b"b")
    return [batch(at, [item], attributes=TIMESTAMP_TYPE, max_timestamp=1_800_000_000_000)]


DOUBTS = {
    "ids": "has no topic id",
    "source compacted": "it is compacted, or its settings were hidden",
    "source hidden": "it is compacted, or its settings were hidden",
    "not to its end": "the map has not read it to its end",
    "mirror compacted": "repeated or of an aborted input, unless",
    "hole": "1 offset has no record (compacted?)",
    "broken": "its leader went away",
    "own times": "the mirror has its own times (LogAppendTime)",
}


@pytest.mark.parametrize("why", DOUBTS)
def test_a_doubt_leaves_nothing_of_the_partition_proven(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = many()
    if why == "ids":
        it.kept = it.kept.model_copy(update={"source_topic_id": None})
    elif why.startswith("source"):
        compacted = True if why.endswith("compacted") else None
        it.kept = it.kept.model_copy(update={"compacted": compacted})
    elif why == "not to its end":
        first = it.kept.partitions[0].model_copy(update={"looked_at": 0})
        parts = (first, *it.kept.partitions[1:])
        it.kept = it.kept.model_copy(update={"partitions": parts})
    elif why == "mirror compacted":
        it.compacted = {"orders"}
    elif why == "broken":
        it.broken = {0}
    else:
        more = records("-", at=5)
        if why == "own times":
            more = own_times(5)
        it.logs[0] = Bytes([*records("a", "c", "c", "x", "d"), *more])
    answer = it.audit(monkeypatch)
    found = of_0(proven=False)
    if why == "broken":  # what comes after the last record that was read is not judged
        found = {one for one in found if one[0] == "repeated"}
    assert {one for one in findings(answer) if one[1] == 0} == found
    assert (answer.exit_status, answer.extra["findings"]) == (3, 0)
    assert DOUBTS[why] in words(answer)
    assert (answer.extra["map_of"] is None) == (why == "not to its end")


def test_records_of_which_none_came_are_not_proven_to_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mirror changes records, or puts them elsewhere; an empty one is no proof either."""
    for then in (records("A", "B", "C"), []):
        for everything in (True, False):
            it = Mirror([records("a", "b", "c"), records("e")], [then, records("e")])
            answer = it.audit(monkeypatch, everything=everything)
            assert findings(answer) == {("no-output", 0, n, False) for n in range(3)}
            assert answer.exit_status == 3
            assert "none of its records has a copy in the mirror's partition" in words(answer)


def test_a_copy_may_be_in_another_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    source = [records("a", "b", "c", "d"), records("e", "f", "g")]
    it = Mirror(source, [records("a", "d"), [*records("e"), *records("g", "b", at=1)]])
    answer = it.audit(monkeypatch)
    assert findings(answer) == {
        ("no-output", 0, 1, False),
        ("no-output", 0, 2, False),
        ("no-output", 1, 1, True),
    }
    assert answer.exit_status == 3
    assert "the mirror has such records in other partitions" in words(answer)


@pytest.mark.parametrize("why", ["missing", "broken", "not in the map", "hole", "own times"])
def test_a_copy_may_be_in_a_partition_that_was_not_read(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = many()
    if why == "missing":
        it.missing = [Missing("partition", "LEADER_NOT_AVAILABLE", "no leader", None, "orders", 1)]
    it.broken = {1} if why == "broken" else set()
    if why == "not in the map":
        it.kept = it.kept.model_copy(update={"partitions": it.kept.partitions[:1]})
    if why in ("hole", "own times"):
        more = records("-", at=3) if why == "hole" else own_times(2)
        it.logs[1] = Bytes([*records("e", "f"), *more])
    answer = it.audit(monkeypatch)
    assert ("no-output", 0, 1, False) in findings(answer)
    assert ("repeated", 0, 2, True) in findings(answer), "another partition's are other records"
    assert answer.exit_status == 3


def test_copies_that_the_mirror_has_deleted_prove_no_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = many()
    it.starts[0] = 1
    answer = it.audit(monkeypatch)
    assert findings(answer) == {(k, 0, at, k == "no-output") for k, at in ALL}
    assert answer.exit_status == 3
    assert "4 records are taken for the map's on trust" in words(answer)
    it = Mirror([records("a", "b", "c")], [records("a")], [records("b", "c", at=1)])
    it.starts[0] = 2
    answer = it.audit(monkeypatch)
    assert findings(answer) == {("no-output", 0, 1, False)}, "copied since, and deleted"
    assert answer.exit_status == 3


@pytest.mark.parametrize("end", [5, 3])
def test_copies_that_came_and_were_deleted_between_two_looks_are_not_lost(
    monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """The first look found an empty mirror, the second what was left of it up to `end`; f never
    came, but of equal records a pair may be another's, so nothing proves that."""
    it = Mirror([records(*"abcdfe")], [[]])
    source, mirror = Bytes(records(*"abcdfe")), Bytes(records(*"abcde"))
    mine, theirs = source.range("orders", 0, 6), Resolved("orders", 0, 3, end, 3, end, end)
    [first] = it.kept.partitions
    second = continued(first, (source, mine), (mirror, theirs), Progress(None), timed=True)
    part = asyncio.run(second).model_copy(update={"looked_at": 2_000})
    it.kept = it.kept.model_copy(update={"partitions": (part,)})
    it.logs, it.starts = [mirror], {0: 3}
    missing = {("no-output", 0, n, False) for n in (0, 1, 2, 4)}
    assert findings(it.audit(monkeypatch)) == missing


def test_what_a_killed_run_left_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another map may have other pairs: the run begins again."""
    with monkeypatch.context() as killed:
        killed.setattr(IdBuckets, "remove", lambda _: None)
        first = many().audit(killed)
    again = many().audit(monkeypatch)
    assert (again.rows, again.extra) == (first.rows, first.extra)


def test_few_ids_end_the_run_and_hide_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoctl.engine.id_buckets.MOST", 2)
    with pytest.raises(IncompleteError, match="the same id"):
        many().audit(monkeypatch)


def test_a_run_that_begins_again_has_buckets_for_what_it_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The killed run may have expected fewer records."""
    monkeypatch.setattr("eoctl.engine.id_buckets.ROWS", 10)
    IdBuckets("a", 10).save({"began": 2**60})
    later = IdBuckets("a", 45)
    assert len(later.saved["sizes"] if later.saved else []) == 1
    later.restart()
    later.save({"began": 2**60})
    again = IdBuckets("a", 45)
    assert again.saved is not None
    assert len(again.saved["sizes"]) == 5


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"source": RecordSource(index_header="i")}, "goes with --end lso alone"),
        ({"source": RecordSource(partition_header="p")}, "goes with --end lso alone"),
        ({"group": "g"}, "goes with --end lso alone"),
        ({"start": "2h ago"}, "goes with --end lso alone"),
        ({"end": "2h ago"}, "with a map it is lso"),
        ({"given": "orders:1"}, "a copy may be in any of the mirror's"),
        ({"on": SparkOptions(asked_engine="spark")}, "one log is read, in this process"),
        ({"on": SparkOptions(master="local[2]")}, "one log is read, in this process"),
    ],
)
def test_what_does_not_go_with_a_map_is_said_before_anything_is_asked(
    changed: dict[str, Any], text: str
) -> None:
    given = {
        "on": SparkOptions(),
        "source": RecordSource(),
        "given": "orders",
        "made": "orders",
        "by": "map:orders.map",
    }
    with pytest.raises(UsageError, match=text):
        end_to_end(NEVER_ASKED, NEVER_ASKED, reads=NEVER_ASKED, **{**given, **changed})
