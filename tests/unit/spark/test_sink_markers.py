"""Before a batch is published, each partition of the sink has had its first marker."""

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import PartitionMetadata, TopicMetadata
from eoctl.kafka.write.commit import CommittedPosition
from recovery.errors import RefusedError
from spark_jobs.session import executors
from spark_jobs.sink import markers, staging
from spark_jobs.sink import write as sink
from spark_jobs.sink.markers import Marker, first
from spark_jobs.sink.staging import StagedFile

NAME = markers.name("j")


class PublishedError(Exception):
    """The markers are ready: what follows is no matter of these tests."""


def topic(name: str, *replicas: int) -> TopicMetadata:
    """A topic with a partition for each number, which has so many replicas."""
    partitions = tuple(
        PartitionMetadata(name, p, 1, 0, tuple(range(count)), None)
        for p, count in enumerate(replicas)
    )
    return TopicMetadata(name, name, False, partitions, None)


class Kafka:
    """The markers of a cluster. once: partitions that had a first one; late: held by an open
    transaction, which commits it."""

    def __init__(
        self, markers_of: Collection[int], once: Collection[int] = (), late: Collection[int] = ()
    ) -> None:
        self.standing = dict.fromkeys(markers_of, Marker(3, "earlier", 1, 1, now_ms(), run="mine"))
        self.once, self.late = set(once), set(late)
        self.created: tuple[int, int] | None = None
        self.written: list[int] = []

    def last_committed(self, access: Access, job: str, partitions: Sequence[int]) -> Any:
        return {p: m for p, m in self.standing.items() if p in partitions}

    def committed(self, access: Access, job: str, partitions: Sequence[int], *given: Any) -> Any:
        self.standing |= dict.fromkeys(self.late, first(now_ms()))
        return self.last_committed(access, job, partitions)


def ready(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    kafka: Kafka,
    *,
    files: int = 3,
    marker_topic: TopicMetadata | None = None,
) -> None:
    """Write a batch of so many files up to where it is published."""
    topics = {"t": topic("t", 3, 2)} | ({NAME: marker_topic} if marker_topic else {})

    def create(access: Access, job: str, partitions: int, replicas: int) -> None:
        kafka.created = partitions, replicas
        topics[NAME] = topic(NAME, *[replicas] * partitions)

    class Writer:
        def __init__(self, settings: Any, transactional_id: str, *given: Any, **named: Any) -> None:
            self.number = int(transactional_id.rsplit("-", 1)[1])

        def send(self, name: str, partition: int, *given: Any) -> None:
            assert (name, partition) == (NAME, self.number)

        def commit(self, positions: dict[tuple[str, int], CommittedPosition]) -> None:
            [(topic_partition, position)] = positions.items()
            kafka.standing[topic_partition[1]] = Marker.read(position, "")
            kafka.written.append(topic_partition[1])

        open = begin = close = lambda self: None

    def publish(*given: Any) -> Any:
        raise PublishedError

    staged = [StagedFile(p, f"part-{p}.parquet", 3, 9, "") for p in range(files)]
    monkeypatch.setattr(sink, "Writer", Writer)
    monkeypatch.setattr(executors, "check_storage", lambda *given: None)
    monkeypatch.setattr(staging, "stage", lambda *given: staged)
    monkeypatch.setattr(staging, "publish", publish)
    monkeypatch.setattr(markers, "topics", lambda *given: topics)
    monkeypatch.setattr(markers, "create_topic", create)
    monkeypatch.setattr(markers, "initialised", lambda *given: kafka.once)
    monkeypatch.setattr(markers, "last_committed", kafka.last_committed)
    monkeypatch.setattr(markers, "committed", kafka.committed)
    frame: Any = SimpleNamespace(sparkSession=None, coalesce=lambda count: None)
    sink.write_exactly_once(
        frame,
        topic="t",
        job="j",
        batch=4,
        staging_folder=folder,
        access=Access({"bootstrap.servers": "127.0.0.1:1"}),
        run_id="mine",
        allow_speculation=True,
    )


def test_a_new_sink_gets_a_topic_and_a_first_marker_in_each_partition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As many replicas as every partition of the output has."""
    kafka = Kafka([])
    with pytest.raises(PublishedError):
        ready(monkeypatch, tmp_path, kafka)
    assert kafka.created == (3, 2)
    assert kafka.written == [0, 1, 2]
    assert {m.batch for m in kafka.standing.values()} == {first(0).batch}


@pytest.mark.parametrize(
    ("standing", "once", "late", "written"),
    [
        ([0, 1, 2], [0, 1, 2], [], []),
        ([0], [], [], [1, 2]),  # the run that began it was killed
        ([0], [0], [], [1, 2]),
        ([0], [0, 2], [2], [1]),  # another run is committing it
    ],
)
def test_a_marker_that_never_was_is_written(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    standing: list[int],
    once: list[int],
    late: list[int],
    written: list[int],
) -> None:
    kafka = Kafka(standing, once, late)
    with pytest.raises(PublishedError):
        ready(monkeypatch, tmp_path, kafka, marker_topic=topic(NAME, 2, 2, 2))
    assert kafka.created is None
    assert kafka.written == written


@pytest.mark.parametrize(("standing", "once", "late"), [([0], [1], []), ([], [0, 1], [0])])
def test_a_marker_that_is_gone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    standing: list[int],
    once: list[int],
    late: list[int],
) -> None:
    """How far the sink came is not known: to begin again would send rows twice."""
    kafka = Kafka(standing, once, late)
    with pytest.raises(RefusedError, match="expired or was deleted") as refused:
        ready(monkeypatch, tmp_path, kafka, marker_topic=topic(NAME, 2, 2, 2))
    assert refused.value.where == f"{NAME}:1"
    assert kafka.written == []


def test_another_number_of_partitions_than_markers_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kafka = Kafka([])
    with pytest.raises(RefusedError, match="3 partitions, the DataFrame 2"):
        ready(monkeypatch, tmp_path, kafka, files=2, marker_topic=topic(NAME, 2, 2, 2))
    assert kafka.written == []
