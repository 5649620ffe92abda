"""A sink's batch around its attempts: what is refused before, renewed meanwhile, reported after."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import PartitionMetadata, TopicMetadata
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import FencedError
from eoctl.stores.storage import LocalFolder
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.values import replace
from spark_jobs.session import executors
from spark_jobs.sink import commit, markers
from spark_jobs.sink import write as sink
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.staging import Manifest, StagedFile

NAME = markers.name("j")
ACCESS = Access({"bootstrap.servers": "127.0.0.1:1"})
MANIFEST = Manifest(
    job="j",
    batch=4,
    topic="t",
    topic_id="id",
    marker_topic_id="m",
    files=tuple(StagedFile(p, f"part-{p}.parquet", 3 + p, 9, "") for p in range(3)),
    created=0,
)
EARLIER = Marker(3, "earlier", 1, 1, now_ms())


def done(p: int) -> Marker:
    return Marker(4, MANIFEST.sha256, 3 + p, 3 + p, now_ms())


class Tasks:
    """The markers of three partitions, and tasks that move them to the end of the batch."""

    def __init__(self, *before: Marker) -> None:
        self.now = dict(enumerate(before))
        self.pending: dict[int, Marker] = {}
        self.ran: list[str] = []
        self.works: list[int] = []

    def run(self, spark: object, task: Any, count: int, name: str, *, sends: bool) -> list[Any]:
        assert (count, sends) == (3, True)
        self.ran.append(name)
        self.pending = {}
        answers = []
        for p in range(count):
            answers.append(task(p))
            self.now[p] = done(p)
        return answers

    def committed(self, access: object, job: str, partitions: Sequence[int], *given: Any) -> Any:
        self.now |= self.pending
        return {p: m for p, m in self.now.items() if p in list(partitions)}

    def last_committed(self, access: object, job: str, partitions: Sequence[int]) -> Any:
        return {p: m for p, m in self.now.items() if p in list(partitions)}


def sent(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tasks: Tasks, *, in_query: bool = False
) -> Any:
    class Attempt:
        def __init__(self, work: commit.Work) -> None:
            tasks.works.append(work.partition)
            assert (work.file, work.manifest) == (MANIFEST.files[work.partition], MANIFEST.sha256)
            assert (work.transaction_timeout_ms, work.rows_per_transaction) == (60_000, 10)

        def run(self) -> Any:
            return {"sent": 2, "transactions": 3, "takeovers": 1}

    monkeypatch.setattr(commit, "Attempt", Attempt)
    monkeypatch.setattr(executors, "run", tasks.run)
    monkeypatch.setattr(markers, "committed", tasks.committed)
    monkeypatch.setattr(markers, "last_committed", tasks.last_committed)
    monkeypatch.setattr(markers, "retention_ms", lambda access: 86_400_000)
    spark: Any = None
    storage = LocalFolder(folder)
    return sink._send(spark, MANIFEST, storage, ACCESS, 60_000, 10, in_query=in_query)


def test_a_batch_is_reported_and_what_did_not_count_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("part-0.parquet", "part-old.parquet", "manifest.json", "other"):
        (tmp_path / name).write_text("")
    tasks = Tasks(EARLIER, EARLIER, EARLIER)
    report = sent(monkeypatch, tmp_path, tasks)
    assert report.pop("seconds") >= 0
    assert report == {
        "job": "j",
        "batch": 4,
        "topic": "t",
        "manifest_sha256": MANIFEST.sha256,
        "partitions": 3,
        "rows": 3 + 4 + 5,
        "rows_sent_now": 6,
        "transactions": 9,
        "takeovers": 3,
        "atomic": False,
    }
    assert tasks.works == [0, 1, 2]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"part-0.parquet", "manifest.json", "other", "done.json"}
    assert json.loads((tmp_path / "done.json").read_text())["rows_sent_now"] == 6


def test_a_report_of_an_earlier_run_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "done.json").write_text("{}")
    (tmp_path / "part-old.parquet").write_text("")
    sent(monkeypatch, tmp_path, Tasks(*map(done, range(3))))
    assert (tmp_path / "done.json").read_text() == "{}"
    assert (tmp_path / "part-old.parquet").exists()


def test_a_marker_that_an_open_transaction_holds_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tasks = Tasks(EARLIER, EARLIER)
    with pytest.raises(RefusedError, match="expired or was deleted") as refused:
        sent(monkeypatch, tmp_path, tasks)
    assert refused.value.where == f"{NAME}:2"
    assert not tasks.ran
    tasks.pending = {2: EARLIER}
    assert sent(monkeypatch, tmp_path, tasks)["rows_sent_now"] == 6


@pytest.mark.parametrize("was_done", [False, True])
@pytest.mark.parametrize("at", [0, 2])
def test_a_batch_that_a_later_one_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int, *, was_done: bool
) -> None:
    """Only the report in its folder proves that it was sent completely."""
    tasks = Tasks(*(Marker(6, "later", 1, 1, 0) if p == at else done(p) for p in range(3)))
    if was_done:
        (tmp_path / "done.json").write_text("{}")
        assert sent(monkeypatch, tmp_path, tasks)["rows_sent_now"] == 0
    else:
        with pytest.raises(RefusedError, match="batch 6 was sent after it, and nothing") as refused:
            sent(monkeypatch, tmp_path, tasks)
        assert refused.value.where == f"{NAME}:{at}"
    assert not tasks.ran


class Writer:
    """taken: what the next `open` finds; log: what is written and committed."""

    log: list[Any] = []  # noqa: RUF012
    fenced = False

    def __init__(
        self, settings: Any, transactional_id: str, group: str, *, timeout_ms: int
    ) -> None:
        assert (group, timeout_ms) == (NAME, 60_000)
        self._id = transactional_id

    def open(self) -> None:
        if Writer.fenced:
            raise FencedError("taken over")
        Writer.log.append(f"open {self._id}")

    def begin(self) -> None:
        Writer.log.append("begin")

    def send(self, topic: str, partition: int, key: None, value: bytes) -> None:
        Writer.log.append((topic, partition, json.loads(value)["marker"]))

    def commit(self, positions: dict[TopicPartition, CommittedPosition]) -> None:
        [(at, position)] = positions.items()
        Writer.log.append((at, Marker.read(position, "")))

    def close(self) -> None:
        Writer.log.append("close")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(sink, "Writer", Writer)
    monkeypatch.setattr(Writer, "log", [])
    monkeypatch.setattr(Writer, "fenced", False)
    return Writer.log


def now_is(monkeypatch: pytest.MonkeyPatch, **by_partition: Marker) -> None:
    found = {int(p[1:]): marker for p, marker in by_partition.items()}
    monkeypatch.setattr(markers, "committed", lambda *given: dict(found))
    monkeypatch.setattr(sink, "now_ms", lambda: 10_000)


def test_a_first_marker_and_its_record_are_one_transaction(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    now_is(monkeypatch)
    assert sink._take_over(ACCESS, "j", 1, None) == {}
    at = TopicPartition(NAME, 1)
    first = Marker(markers.NO_BATCH, "", 0, 0, 10_000)
    assert log == [f"open {NAME}-1", "begin", (NAME, 1, 0), (at, first), "close"]
    with pytest.raises(IncompleteError, match="its first marker was not committed"):
        sink._first_marker(ACCESS, "j", 1)


def test_a_marker_is_renewed_as_the_fence_finds_it(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    """Not as it was read before: an attempt may have moved it."""
    stands = Marker(4, "now", 2, 5, 7, "r")
    now_is(monkeypatch, p1=stands)
    sink._take_over(ACCESS, "j", 1, EARLIER)
    assert log[2] == (TopicPartition(NAME, 1), replace(stands, written=10_000))
    del log[:]
    assert sink._take_over(ACCESS, "j", 1, None) == {1: stands}  # it has one
    assert log == [f"open {NAME}-1", "close"]
    now_is(monkeypatch)
    with pytest.raises(RefusedError, match="expired or was deleted"):
        sink._take_over(ACCESS, "j", 1, EARLIER)
    assert log[-1] == "close"
    monkeypatch.setattr(Writer, "fenced", True)
    sink._first_marker(ACCESS, "j", 1)  # another run does the same


@pytest.mark.parametrize(
    ("retention", "half"), [(8_000, 4_000), (None, sink.UNKNOWN_RETENTION_MS // 2)]
)
def test_markers_are_renewed_at_half_of_their_time(
    monkeypatch: pytest.MonkeyPatch, retention: int | None, half: int
) -> None:
    renewed: list[int] = []
    monkeypatch.setattr(markers, "retention_ms", lambda access: retention)
    monkeypatch.setattr(sink, "now_ms", lambda: 10_000_000)
    monkeypatch.setattr(sink, "_take_over", lambda access, job, p, marker: renewed.append(p))
    works: Any = [SimpleNamespace(job="j", batch=4)] * 5
    limit = 10_000_000 - half
    before = {
        0: replace(EARLIER, written=limit - 1),
        1: replace(EARLIER, written=limit),
        2: replace(done(2), written=limit - 1),  # finished
        3: replace(done(3), next_row=1, written=limit - 1),
        4: replace(EARLIER, written=limit - 1),
    }
    renewal = sink._Renewal(ACCESS, works, before)
    with renewal:
        assert renewed == [0, 3, 4]
    renewal._renew(before)
    assert renewed == [0, 3, 4]  # it is over


@pytest.mark.parametrize(
    ("job", "batch"),
    [("", 0), ("a/b", 0), (".", 0), ("..", 0), ("a" * 201, 0), ("j", -1), ("j", True), ("j", 1.0)],
)
def test_words_that_name_no_batch(job: str, batch: Any) -> None:
    with pytest.raises(UsageError, match=r"cannot name a job|a batch is a number"):
        sink._refuse_words(job, batch)
    sink._refuse_words("a.B_-" * 40, 0)


def folder_of(root: Path, *sent: int, unsent: Sequence[int] = ()) -> LocalFolder:
    for number in (*sent, *unsent):
        folder = root / f"batch-{number}"
        folder.mkdir()
        (folder / "part-0.parquet").write_text("")
        if number in sent:
            (folder / "done.json").write_text("{}")
    return LocalFolder(root)


@pytest.mark.parametrize(("kept", "left"), [(1, [5, 9]), (2, [4, 5, 9]), (3, [2, 4, 5, 9])])
def test_staged_files_of_the_last_batches_are_kept(
    tmp_path: Path, kept: int, left: list[int]
) -> None:
    """And those of a later one, and of one that was not sent."""
    storage = folder_of(tmp_path, 1, 2, 4, 5, 9, unsent=[3])
    sink._remove_older(storage, 5, kept)
    there = sorted(int(p.name[6:]) for p in tmp_path.iterdir() if list(p.iterdir()))
    assert there == sorted([*left, 3])


def topic(name: str, topic_id: str, partitions: int = 3) -> TopicMetadata:
    members = tuple(PartitionMetadata(name, p, 1, 0, (1,), None) for p in range(partitions))
    return TopicMetadata(name, topic_id, False, members, None)


@pytest.mark.parametrize(
    ("asked", "output", "marked", "why"),
    [
        ("t", "id", topic(NAME, "m"), None),
        ("u", "id", topic(NAME, "m"), "was staged for topic t"),
        ("t", "new", topic(NAME, "m"), "the topic was recreated"),
        ("t", "id", topic(NAME, "n"), "the marker topic was deleted"),
        ("t", "id", None, "the marker topic was deleted"),
        ("t", "id", topic(NAME, "m", 4), "the sink has 4 partitions, the DataFrame 3"),
    ],
)
def test_topics_that_changed_since_the_staging(
    asked: str, output: str, marked: TopicMetadata | None, why: str | None
) -> None:
    if why is None:
        sink._refuse_changes(MANIFEST, asked, topic("t", output), marked)
    else:
        with pytest.raises(RefusedError, match=why):
            sink._refuse_changes(MANIFEST, asked, topic("t", output), marked)


@pytest.mark.parametrize(("setting", "refused"), [("true", True), ("TRUE", True), ("false", False)])
def test_speculation_is_refused(setting: str, *, refused: bool) -> None:
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: setting))
    if refused:
        with pytest.raises(RefusedError, match=r"spark\.speculation is on"):
            sink.refuse_speculation(spark)
    else:
        sink.refuse_speculation(spark)


@pytest.mark.parametrize("leaders", [[(None, 1), (1, 1)], [(1, 1)]])
def test_a_topic_that_was_just_created_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, leaders: list[tuple[int | None, int]]
) -> None:
    asked = 0

    def topics(access: object, names: list[str]) -> dict[str, TopicMetadata]:
        nonlocal asked
        asked += 1
        if asked == 1:
            return {}
        now = leaders[min(asked - 2, len(leaders) - 1)]
        members = tuple(PartitionMetadata(NAME, p, at, 0, (1,), None) for p, at in enumerate(now))
        return {NAME: TopicMetadata(NAME, "m", False, members, None)}

    monkeypatch.setattr(markers, "topics", topics)
    monkeypatch.setattr(markers, "PAUSE_SECONDS", 0)
    assert [p.leader for p in sink._created(ACCESS, "j").partitions] == [1, 1]
    assert asked == 1 + len(leaders)
    monkeypatch.setattr(markers, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(markers, "topics", lambda *given: {})
    with pytest.raises(IncompleteError, match="is not seen yet"):
        sink._created(ACCESS, "j")
