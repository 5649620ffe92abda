"""One attempt of a sink's task over its staged file: which rows, in which transactions, until when.

The file is real. The topic and the markers are kept in memory; each call of the writer can fail,
before or after it took effect, or find itself fenced.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eoctl.kafka.connection.access import Access
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import FencedError
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TopicPartition
from spark_jobs.sink import commit, markers, taking_over
from spark_jobs.sink.commit import Attempt, Work, judge
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.staging import StagedFile, _write
from tests.share import share

AT = markers.marker_partition("j", 2)
BEFORE = Marker(3, "earlier", 5, 5, 0)
ROWS = 5


@dataclass
class Kafka:
    """topic: what is committed in it. fails: at which call, and how (see `Writer`)."""

    marker: Marker | None = BEFORE
    topic: list[Any] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    fails: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    clock: float = 0.0
    seconds_per_row: float = 0.0
    others: Callable[[], None] = lambda: None  # at each look at the markers

    def committed(self, access: object, job: str, partitions: Sequence[int]) -> dict[int, Marker]:
        assert (job, list(partitions)) == ("j", [2])
        self.others()
        return {} if self.marker is None else {2: self.marker}


class Writer:
    def __init__(self, kafka: Kafka, *ids: str, timeout_ms: int) -> None:
        assert ids == ("j-eoctl-sink-2", "j-eoctl-sink")
        assert timeout_ms == 3_000
        self._kafka = kafka
        self._rows: list[Any] | None = None

    def _now(self, name: str, effect: Callable[[], None] = lambda: None) -> None:
        self._kafka.calls.append(name)
        assert len(self._kafka.calls) < 500, "it never ends"
        how = self._kafka.fails.get(len(self._kafka.calls), "")
        if how == "before":
            raise IncompleteError("no answer")
        if how == "fenced":
            raise FencedError("taken over")
        effect()
        if how == "after":
            raise UnverifiedError("not known")

    def open(self) -> None:
        self._now("open")

    def begin(self) -> None:
        self._rows = []
        self._now("begin")

    def send(self, topic: str, *record: Any, **more: Any) -> None:
        assert topic == "t"
        assert self._rows is not None
        self._kafka.clock += self._kafka.seconds_per_row
        self._rows.append((*record, more["headers"], more["timestamp"]))

    def commit(self, positions: dict[TopicPartition, CommittedPosition]) -> None:
        rows, self._rows = self._rows, None
        assert rows is not None
        [(at, position)] = positions.items()
        assert at == AT

        def done() -> None:
            self._kafka.topic += rows
            self._kafka.transactions.append(len(rows))
            self._kafka.marker = Marker.read(position, "")

        self._now("commit", done)

    def close(self) -> None:
        self._kafka.calls.append("close")


def record(n: int) -> tuple[Any, ...]:
    return 7, b"k", b"%d" % n, (), 1000 + n


def staged(folder: Path, rows: int = ROWS) -> StagedFile:
    import pyarrow as pa

    numbers = range(rows)
    columns = {
        "key": [b"k"] * rows,
        "value": [b"%d" % n for n in numbers],
        "partition": pa.array([7] * rows, pa.int32()),
        "timestamp": pa.array([1000 + n for n in numbers], pa.timestamp("ms")),
    }
    batches = iter([pa.RecordBatch.from_pydict(columns)] if rows else [])
    return StagedFile(**_write(str(folder), "token", 2, batches))


def work(folder: Path, file: StagedFile, **changed: Any) -> Work:
    given: dict[str, Any] = {
        "access": Access({"bootstrap.servers": "127.0.0.1:1"}),
        "job": "j",
        "topic": "t",
        "batch": 4,
        "manifest": "now",
        "partition": 2,
        "file": file,
        "folder": str(folder),
        "transaction_timeout_ms": 3_000,
        "rows_per_transaction": 2,
        "patience": 1.0,
    }
    return Work(**given | changed)


def ran(kafka: Kafka, asked: Work) -> Any:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(taking_over, "Writer", lambda _, *i, **n: Writer(kafka, *i, **n))
        monkeypatch.setattr(markers, "committed", kafka.committed)

        def sleep(seconds: float) -> None:
            kafka.clock += seconds

        clock = SimpleNamespace(monotonic=lambda: kafka.clock, sleep=sleep)
        monkeypatch.setattr(commit, "time", clock)
        monkeypatch.setattr(taking_over, "time", clock)
        return Attempt(asked).run()


def all_rows(kafka: Kafka) -> bool:
    return kafka.topic == [record(n) for n in range(ROWS)]


def test_a_batch_is_sent_in_transactions_with_its_marker(tmp_path: Path) -> None:
    kafka = Kafka(Marker(3, "earlier", 5, 5, 0, "r"))
    begun = time.time() * 1000 - 1
    answer = ran(kafka, work(tmp_path, staged(tmp_path), run="r"))
    assert answer == {"partition": 2, "sent": 5, "transactions": 3, "takeovers": 0}
    assert all_rows(kafka)
    assert kafka.transactions == [2, 2, 1]
    assert kafka.marker is not None
    assert kafka.marker.written >= begun
    assert kafka.marker == Marker(4, "now", 5, 5, kafka.marker.written, "r")
    assert kafka.calls[0] == "open"
    assert kafka.calls[-1] == "close"


@pytest.mark.parametrize(("most", "expected"), [(4, [4, 1]), (5, [5]), (9, [5])])
def test_how_many_rows_a_transaction_has(tmp_path: Path, most: int, expected: list[int]) -> None:
    kafka = Kafka()
    ran(kafka, work(tmp_path, staged(tmp_path), rows_per_transaction=most))
    assert kafka.transactions == expected


def test_rows_are_taken_in_portions_within_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "AT_ONCE", 2)
    kafka = Kafka()
    ran(kafka, work(tmp_path, staged(tmp_path), rows_per_transaction=3))
    assert all_rows(kafka)
    assert kafka.transactions == [3, 2]


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, [3, 2]), (0.4, [3, 2]), (1.1, [1] * 5)])
def test_a_transaction_ends_after_a_third_of_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: list[int]
) -> None:
    monkeypatch.setattr(commit, "AT_ONCE", 1)
    kafka = Kafka(seconds_per_row=seconds)
    ran(kafka, work(tmp_path, staged(tmp_path), rows_per_transaction=9))
    assert kafka.transactions == expected


@pytest.mark.parametrize("next_row", range(ROWS + 1))
def test_an_attempt_goes_on_where_the_marker_says(tmp_path: Path, next_row: int) -> None:
    kafka = Kafka(Marker(4, "now", next_row, 5, 0))
    answer = ran(kafka, work(tmp_path, staged(tmp_path)))
    assert kafka.topic == [record(n) for n in range(next_row, ROWS)]
    assert answer["sent"] == ROWS - next_row


def test_a_later_batch_was_sent_after_it(tmp_path: Path) -> None:
    kafka = Kafka(Marker(5, "later", 1, 2, 0))
    assert ran(kafka, work(tmp_path, staged(tmp_path)))["sent"] == 0
    assert kafka.topic == []


def test_a_file_without_rows_has_its_marker_committed(tmp_path: Path) -> None:
    kafka, file = Kafka(), staged(tmp_path, 0)
    answer = ran(kafka, work(tmp_path, file))
    assert answer == {"partition": 2, "sent": 0, "transactions": 1, "takeovers": 0}
    assert kafka.marker is not None
    assert (kafka.marker.batch, kafka.marker.complete) == (4, True)
    assert ran(kafka, work(tmp_path, file))["transactions"] == 0


def test_without_a_marker_nothing_is_sent(tmp_path: Path) -> None:
    kafka = Kafka(None)
    with pytest.raises(RefusedError, match="expired or was deleted") as refused:
        ran(kafka, work(tmp_path, staged(tmp_path)))
    assert refused.value.where == str(AT)
    assert kafka.topic == []


@pytest.mark.parametrize(
    ("marker", "run", "why"),
    [
        (Marker(4, "other", 2, 5, 0), None, "batch 4 was begun from another staging"),
        (Marker(4, "now", 2, 6, 0), None, "batch 4 was begun from another staging"),
        (Marker(3, "earlier", 4, 5, 0), None, "batch 3 is unfinished (4 of 5 rows)"),
        (Marker(3, "earlier", 5, 5, 0, "a"), "b", "belongs to run a, this is another run, b"),
        (Marker(3, "earlier", 5, 5, 0, "a"), None, "this is another run, without a run_id"),
        (Marker(3, "earlier", 5, 5, 0), "b", "belongs to a run that gave no run_id"),
        (Marker(5, "later", 1, 5, 0), None, None),
        (Marker(3, "earlier", 5, 5, 0, "a"), "a", None),
        (Marker(3, "earlier", 5, 5, 0), None, None),
        (Marker(4, "now", 2, 5, 0), None, None),
        (markers.first(0), "b", None),
    ],
)
def test_which_batch_may_follow(
    tmp_path: Path, marker: Marker, run: str | None, why: str | None
) -> None:
    asked = work(tmp_path, staged(tmp_path), run=run)
    if why is None:
        judge(marker, asked)
    else:
        with pytest.raises(RefusedError) as refused:
            judge(marker, asked)
        assert why in refused.value.what
        assert refused.value.where == str(AT)


@given(st.dictionaries(st.integers(1, 40), st.sampled_from(["before", "after"]), max_size=5))
@settings(
    max_examples=share(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_call_fails_each_row_is_there_once(tmp_path: Path, fails: dict[int, str]) -> None:
    kafka = Kafka(fails=fails)
    answer = ran(kafka, work(tmp_path, staged(tmp_path)))
    assert all_rows(kafka)
    assert answer["takeovers"] == kafka.calls.count("open") - 1
    assert answer["takeovers"] <= len(fails)


def test_a_cluster_that_keeps_failing_ends_it(tmp_path: Path) -> None:
    kafka = Kafka(fails=dict.fromkeys(range(1, 99), "before"))
    with pytest.raises(IncompleteError, match="not sent: no answer") as error:
        ran(kafka, work(tmp_path, staged(tmp_path)))
    assert error.value.where == "t, part 2"
    assert kafka.calls.count("open") == kafka.calls.count("close") == taking_over.TAKEOVERS
    assert kafka.clock == taking_over.POLL_SECONDS * (1 + 2 + 3 + 4 + 5 + 6)  # longer each time


@pytest.mark.parametrize("ends", [True, False])
def test_one_that_was_fenced_waits_while_the_other_goes_on(tmp_path: Path, *, ends: bool) -> None:
    """The other one needs longer than the patience, but sends; or it stops on the way."""
    kafka = Kafka(fails={2: "fenced"})
    looks = 0

    def others() -> None:
        nonlocal looks
        looks += 1
        row = min(looks - 1, ROWS if ends else 2)
        if looks > 1 and (ends or kafka.calls.count("open") == 1):
            kafka.topic = [record(n) for n in range(row)]
            kafka.marker = Marker(4, "now", row, 5, 0)

    kafka.others = others
    answer = ran(kafka, work(tmp_path, staged(tmp_path)))
    assert all_rows(kafka)
    assert answer["sent"] == (0 if ends else 3)
    assert kafka.calls.count("open") == (1 if ends else 2)
    assert kafka.clock > 1.0


def test_attempts_that_fence_one_another_for_ever_end(tmp_path: Path) -> None:
    kafka = Kafka(fails=dict.fromkeys(range(2, 99), "fenced"))
    with pytest.raises(IncompleteError, match="none of them ends"):
        ran(kafka, work(tmp_path, staged(tmp_path)))
    assert kafka.calls.count("open") == taking_over.TAKEOVERS
