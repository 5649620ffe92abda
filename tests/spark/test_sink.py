"""The exactly-once sink on real Spark and real Kafka, with its workers killed."""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.write.exactly_once import FencedError
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.stores.storage import LocalFolder
from recovery.errors import EoctlError, RefusedError, UnverifiedError, UsageError
from recovery.values import replace
from spark_jobs.session import executors
from spark_jobs.sink import markers, staging
from spark_jobs.sink import write as sink
from spark_jobs.sink.commit import Attempt, Work
from spark_jobs.sink.staging import StagedFile
from spark_jobs.sink.write import write_exactly_once
from tests.kafka.conftest import MakeTopic
from tests.kafka.dedup_world import left_pending
from tests.share import share
from tests.spark.sinking import kill_one, staged_values, values, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def access(lab: Lab) -> Access:
    return Access(lab.client_properties())


def numbers(spark: "SparkSession", first: int, count: int, partitions: int = 4) -> "DataFrame":
    frame = spark.range(first, first + count, 1, partitions)
    return frame.selectExpr("cast(id as string) key", "cast(id as string) value")


def expected(first: int, count: int) -> Counter[bytes]:
    return Counter(str(n).encode() for n in range(first, first + count))


def test_rerun_of_a_batch_sends_nothing_and_the_next_batch_follows(
    spark: "SparkSession",
    lab1: Lab,
    topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic(lab1, 3)
    options: dict[str, Any] = {
        "topic": name,
        "job": name,
        "staging_folder": tmp_path,
        "access": access(lab1),
        "rows_per_transaction": 300,
    }
    first = write_exactly_once(numbers(spark, 0, 2000), batch=0, **options)
    assert (first["rows"], first["rows_sent_now"], first["partitions"]) == (2000, 2000, 4)
    assert first["transactions"] == 4 * 2  # 500 rows of each, 300 at a time
    again = write_exactly_once(numbers(spark, 0, 2000), batch=0, **options)
    assert again["rows_sent_now"] == 0
    write_exactly_once(numbers(spark, 2000, 500), batch=1, **options)
    assert values(lab1, name) == expected(0, 2500)
    older = write_exactly_once(numbers(spark, 0, 2000), batch=0, **options)  # it was sent whole
    assert older["rows_sent_now"] == 0
    assert values(lab1, name) == expected(0, 2500)
    with monkeypatch.context() as patch:  # tasks that say that they sent, and did not
        patch.setattr(executors, "run", lambda *_, **__: [{"sent": 100, "transactions": 4}])
        with pytest.raises(UnverifiedError, match="the marker says batch 1"):
            write_exactly_once(numbers(spark, 2500, 100), batch=2, **options)
    assert write_exactly_once(numbers(spark, 2500, 100), batch=2, **options)["rows_sent_now"] == 100
    assert values(lab1, name) == expected(0, 2600)


@pytest.mark.long
def test_a_marker_that_a_killed_run_left_pending_is_not_waited_for(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Killed between marker and commit: open for ten minutes if nobody ends it."""
    name = topic(lab1, 3)
    options: dict[str, Any] = {"topic": name, "job": name, "access": access(lab1)}
    options |= {"staging_folder": tmp_path}
    write_exactly_once(numbers(spark, 0, 100, 2), batch=0, **options)
    group = markers.name(name)
    left = left_pending(lab1, f"{group}-1", group, (group, 1), (name, 1))
    report = write_exactly_once(numbers(spark, 100, 100, 2), batch=1, **options)
    assert report["rows_sent_now"] == 100
    assert values(lab1, name) == expected(0, 200)
    assert left  # lived until here: what it left open was not ended by its own end


@pytest.mark.long
def test_batches_with_an_empty_partition_end(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Its marker goes on with the others': the next batch may follow, this one be run again."""
    name = topic(lab1, 2)

    def write(batch: int, whole: "DataFrame") -> tuple[int, int]:
        report = write_exactly_once(
            whole.where("key >= 500"),
            topic=name,
            job=name,
            batch=batch,
            staging_folder=tmp_path,
            access=access(lab1),
        )
        return report["rows_sent_now"], report["transactions"]

    # 4 partitions of 250 rows, and a fifth that the filter leaves empty
    full = numbers(spark, 500, 1000)
    empty = numbers(spark, 250, 250, 1)
    assert write(0, full.union(empty)) == (1000, 5)
    assert write(0, full.union(empty)) == (0, 0)
    assert write(1, numbers(spark, 1500, 1000).union(empty)) == (1000, 5)
    assert values(lab1, name) == expected(500, 2000)
    stand = markers.committed(access(lab1), name, range(5))
    assert [(stand[p].batch, stand[p].next_row, stand[p].rows) for p in range(5)] == [
        *[(1, 250, 250)] * 4,
        (1, 0, 0),
    ]


@pytest.mark.long
def test_frames_that_spark_knows_to_be_empty(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """They have no partitions. The sink has those that it had, or as many as are asked for."""
    name = topic(lab1, 2)
    empty = numbers(spark, 0, 10).where("false")
    assert empty.rdd.getNumPartitions() == 0

    def write(frame: "DataFrame", batch: int, partitions: int | None = None) -> tuple[int, int]:
        report = write_exactly_once(
            frame,
            topic=name,
            job=name,
            batch=batch,
            staging_folder=tmp_path,
            access=access(lab1),
            partitions=partitions,
        )
        return report["partitions"], report["rows_sent_now"]

    with pytest.raises(UsageError, match="how many partitions"):
        write(empty, 0)
    assert write(empty, 0, 3) == (3, 0)
    assert write(numbers(spark, 0, 10, 3), 1) == (3, 10)
    assert write(empty, 2) == (3, 0)
    assert write(numbers(spark, 10, 10, 3), 3) == (3, 10)
    assert values(lab1, name) == expected(0, 20)
    stand = markers.committed(access(lab1), name, range(3))
    assert {(stand[p].batch, stand[p].complete) for p in range(3)} == {(3, True)}
    # as adaptive execution gives now fewer, now more: in as many as the sink has
    assert write(numbers(spark, 20, 10, 4), 4) == (3, 10)
    assert write(numbers(spark, 30, 10, 1), 5) == (3, 10)
    assert values(lab1, name) == expected(0, 40)
    with pytest.raises(RefusedError, match="the sink has 3 partitions, the DataFrame 4"):
        write(numbers(spark, 40, 10), 6, 4)


def test_records_keep_their_parts(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    name = topic(lab1, 2)
    frame = spark.sql(
        "select cast(null as string) key, cast(null as binary) value, 1 partition, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers, "
        "timestamp '2026-01-02T03:04:05.678Z' timestamp"
    )
    write_exactly_once(
        frame, topic=name, job=name, batch=7, staging_folder=tmp_path, access=access(lab1)
    )
    consumer = Consumer({**lab1.client_properties(), "group.id": "oracle"})
    consumer.assign([TopicPartition(name, 1, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert (message.key(), message.value()) == (None, None)
    assert message.headers() == [("h", b"x")]
    assert message.timestamp()[1] == 1767323045678


@pytest.mark.long
def test_workers_killed_while_they_write(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """0 duplicates, 0 lost against what was staged, for a DataFrame that differs each time."""
    name = topic(lab1, 3)
    rows, killed = 12_000, 0
    sent: Counter[bytes] = Counter()
    for seed in range(share(30)):
        random_ = random.Random(seed)
        job = f"{name}-{seed}"
        frame = spark.range(0, rows, 1, 4).selectExpr("uuid() key", "uuid() value")

        def run(frame: "DataFrame" = frame, job: str = job) -> dict[str, Any]:
            return write_exactly_once(
                frame,
                topic=name,
                job=job,
                batch=0,
                staging_folder=tmp_path,
                access=access(lab1),
                rows_per_transaction=2500,
            )

        with watched(lab1, name) as end:
            killed += _run_and_kill(spark, random_, tmp_path / job / "batch-0", run, end)
        staged = staged_values(tmp_path / job / "batch-0")
        assert staged.total() == rows
        sent += staged
    assert killed >= share(30)
    assert values(lab1, name) == sent
    # some were killed within a transaction: the test did what it says; a few runs may meet none
    if share(30) == 30:
        assert values(lab1, name, "read_uncommitted").total() > sent.total()


def _run_and_kill(
    spark: "SparkSession",
    random_: random.Random,
    folder: Path,
    run: Callable[[], dict[str, Any]],
    written: Callable[[], int],
) -> int:
    """Run until it succeeds; kill random workers while they write. How many were killed."""
    ended = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        while not (folder / "manifest.json").exists() and not ended.wait(0.02):
            pass
        for _ in range(2):
            begin = written()
            while written() < begin + random_.randrange(1, 3000):  # in the midst of writing
                if ended.wait(0.005):
                    return
            kills += kill_one(spark, random_)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        for _ in range(5):
            with suppress(EoctlError):
                run()
                return kills
        raise AssertionError("it never succeeded")
    finally:
        ended.set()
        thread.join()


@pytest.mark.long
def test_two_runs_of_one_batch_at_once(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(lab1, 2)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            frame = spark.range(0, 3000, 1, 2).selectExpr("uuid() value")
            write_exactly_once(
                frame,
                topic=name,
                job=name,
                batch=0,
                staging_folder=tmp_path,
                access=access(lab1),
                rows_per_transaction=400,
            )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # one that loses its place may say so, but nothing comes twice and nothing is missing
    assert all(isinstance(f, EoctlError) for f in failures), failures
    if failures:
        run()
    assert values(lab1, name) == staged_values(tmp_path / name / "batch-0")


@pytest.fixture
def work(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Work:
    return staged(lab1, topic(lab1, 1), tmp_path)


def staged(lab: Lab, name: str, folder: Path) -> Work:
    """One staged partition of 1000 rows whose markers stand at 0, without Spark."""
    import hashlib

    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "part-0.parquet"
    pq.write_table(pa.table({"value": [str(n).encode() for n in range(1000)]}), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file = StagedFile(0, path.name, 1000, path.stat().st_size, digest)
    until = time.monotonic() + 30
    while name not in (found := markers.topics(access(lab), [name])):  # it was made just now
        assert time.monotonic() < until
        time.sleep(0.1)
    sink._markers_ready(access(lab), name, 1, found[name], None)
    return Work(access(lab), name, name, 0, "m", 0, file, str(folder), 30_000, 10_000, 5.0)


class Zombie(Attempt):
    """Has fenced and read its marker, and goes on only when it is told to."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.standing, self.go = threading.Event(), threading.Event()

    def _send_from(self, row: int) -> None:
        self.standing.set()
        assert self.go.wait(60)
        super()._send_from(row)


class Rival(Attempt):
    """Takes over from a zombie that wakes up between the two halves of taking over.

    Which half is the first is the product's own doing: `take_over` is not touched.
    """

    def __init__(self, work: Work, zombie: Zombie, thread: threading.Thread) -> None:
        super().__init__(work)
        self.zombie, self.thread = zombie, thread

    def fence(self) -> None:
        super().fence()
        self._wake(2)  # a fenced one waits for this one

    def position(self) -> int | None:
        row = super().position()
        self._wake(30)  # another one sends all it has
        return row

    def _wake(self, seconds: float) -> None:
        if not self.zombie.go.is_set():
            self.zombie.go.set()
            self.thread.join(seconds)


class CommittedFirst(Rival):
    """The wrong order."""

    def take_over(self) -> int | None:
        row = self.position()
        self.fence()
        return row


@pytest.mark.long
@pytest.mark.parametrize(("order", "times"), [(Rival, 1), (CommittedFirst, 2)])
def test_init_before_committed_and_the_other_way_round(
    lab1: Lab, work: Work, order: type[Rival], times: int
) -> None:
    """The rule's order keeps a live zombie out; swapped, every row comes twice."""
    work = replace(work, patience=120.0)
    zombie = Zombie(work)
    answers: list[dict[str, int]] = []
    thread = threading.Thread(target=lambda: answers.append(zombie.run()))
    thread.start()
    assert zombie.standing.wait(60)
    answer = order(work, zombie, thread).run()
    thread.join(60)
    assert answer["sent"] == 1000
    # the fenced one ends as done and has sent nothing
    assert [a["sent"] for a in answers] == [0 if times == 1 else 1000]
    assert values(lab1, work.topic) == Counter({str(n).encode(): times for n in range(1000)})


@pytest.mark.long
def test_fenced_attempt_takes_over_when_nobody_ends_the_batch(lab1: Lab, work: Work) -> None:
    zombie = Zombie(work)
    answers: list[dict[str, int]] = []
    thread = threading.Thread(target=lambda: answers.append(zombie.run()))
    thread.start()
    assert zombie.standing.wait(60)
    rival = Attempt(work)
    rival.take_over()  # and then it dies
    begin = time.monotonic()
    zombie.go.set()
    thread.join(60)
    assert answers == [{"partition": 0, "sent": 1000, "transactions": 1, "takeovers": 1}]
    assert time.monotonic() - begin >= work.patience
    assert values(lab1, work.topic) == expected(0, 1000)


class Half(Attempt):
    """Commits 400 rows, and ends as if it had sent all."""

    def _send_from(self, row: int) -> None:
        rows = staging.rows_from(LocalFolder(Path(self.work.folder)), self.work.file, row)
        self._transaction(iter([next(rows) for _ in range(400)]), row)


def forget_markers(lab: Lab, job: str) -> None:
    """What offset retention does, at once."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(lab.client_properties())
    for future in admin.delete_consumer_groups([markers.name(job)]).values():
        future.result(20)


@pytest.mark.long
def test_refusals(spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1, 1)

    def write(batch: int, folder: str = "a", partitions: int = 2) -> dict[str, Any]:
        return write_exactly_once(
            numbers(spark, batch * 100, 100, partitions),
            topic=name,
            job=name,
            batch=batch,
            staging_folder=tmp_path / folder,
            access=access(lab1),
        )

    write(1)
    with pytest.raises(RefusedError, match="the sink has 2 partitions, the DataFrame 5"):
        write_exactly_once(
            numbers(spark, 0, 100),
            topic=name,
            job=name,
            batch=2,
            staging_folder=tmp_path / "a",
            access=access(lab1),
            partitions=5,
        )
    with pytest.raises(RefusedError, match="batch 1 was begun from another staging"):
        write(1, "b")
    with pytest.raises(RefusedError, match=r"nothing proves that batch 0 was sent completely"):
        write(0)
    staged = next((tmp_path / "a" / name / "batch-1").glob("part-*.parquet"))
    staged.write_bytes(staged.read_bytes()[:-1] + b"x")
    write(1)  # sent already: its files are not needed any more
    with pytest.raises(UsageError, match="no such topic"):
        write_exactly_once(
            numbers(spark, 0, 1),
            topic="absent",
            job=name,
            batch=9,
            staging_folder=tmp_path,
            access=access(lab1),
        )
    with pytest.raises(UsageError, match="column id of type bigint is not a part of a record"):
        write_exactly_once(
            spark.range(3),
            topic=name,
            job=f"{name}-x",
            batch=0,
            staging_folder=tmp_path,
            access=access(lab1),
        )
    forget_markers(lab1, name)
    for batch in (1, 3):
        with pytest.raises(RefusedError, match="the marker has expired or was deleted"):
            write(batch)
    assert values(lab1, name) == expected(100, 100)


@pytest.mark.long
def test_a_marker_that_kafka_has_expired(
    spark: "SparkSession",
    start_lab: Callable[[LabSpec], Lab],
    topic: MakeTopic,
    tmp_path: Path,
) -> None:
    """By the broker's own retention of offsets, one minute: what was sent is not known any more.

    Of a batch that was sent and of one that was not sent whole; not of one that is being sent.
    """
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    lab = start_lab(LabSpec(name="expiring", settings=settings))
    name = topic(lab, 2)

    def write(batch: int) -> dict[str, Any]:
        return write_exactly_once(
            numbers(spark, batch * 100, 100, 2),
            topic=name,
            job=name,
            batch=batch,
            staging_folder=tmp_path,
            access=access(lab),
        )

    half, alive = (staged(lab, topic(lab, 1), tmp_path) for _ in range(2))
    assert markers.retention_ms(half.access) == 60_000
    assert write(0)["rows_sent_now"] == 100
    Half(half).run()
    alive_before = markers.committed(alive.access, alive.job, [0])
    with sink._Renewal(alive.access, [alive], alive_before):  # as while it waits for its turn
        until = time.monotonic() + 240
        while markers.committed(access(lab), name, [0, 1]) or markers.committed(
            half.access, half.job, [0]
        ):
            assert time.monotonic() < until
            time.sleep(1)
    for batch in (0, 1):
        with pytest.raises(RefusedError, match="the marker has expired or was deleted") as refused:
            write(batch)
        assert refused.value.exit_status == 4
    for batch in (0, 1):
        with pytest.raises(RefusedError, match="the marker has expired or was deleted"):
            Attempt(replace(half, batch=batch)).run()
    assert values(lab, name) == expected(0, 100)
    assert values(lab, half.topic) == expected(0, 400)
    kept = markers.committed(alive.access, alive.job, [0])[0]
    assert now_ms() > alive_before[0].written + 60_000  # else it proves nothing
    assert kept.written >= alive_before[0].written + 30_000
    assert Attempt(alive).run()["sent"] == 1000
    assert values(lab, alive.topic) == expected(0, 1000)
    lab.down()


def test_a_timestamp_that_librdkafka_cannot_send_is_refused(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(lab1, 1)
    frame = spark.sql("select 'v' value, timestamp '1970-01-01T00:00:00.0004Z' timestamp")
    with pytest.raises(RefusedError, match=r"1970-01-01T00:00:00Z, which would be sent as now"):
        write_exactly_once(
            frame, topic=name, job=name, batch=0, staging_folder=tmp_path, access=access(lab1)
        )
    assert values(lab1, name) == Counter()


def test_speculation_must_be_allowed(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(lab1, 1)
    spark.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    spark.conf.set("spark.speculation", "true")
    try:
        with pytest.raises(RefusedError, match=r"spark\.speculation is on"):
            write_exactly_once(
                numbers(spark, 0, 1),
                topic=name,
                job=name,
                batch=0,
                staging_folder=tmp_path,
                access=access(lab1),
            )
    finally:
        spark.conf.unset("spark.speculation")
        spark.conf.unset("spark.sql.legacy.setCommandRejectsSparkCoreConfs")
    assert values(lab1, name) == Counter()


def test_changed_staged_file_is_not_sent(lab1: Lab, work: Work, tmp_path: Path) -> None:
    path = tmp_path / work.file.file
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RefusedError, match="not what the manifest says"):
        Attempt(work).run()
    assert values(lab1, work.topic) == Counter()


def test_unfinished_batch_must_be_finished_first(lab1: Lab, work: Work) -> None:
    Half(work).run()
    following = replace(work, batch=1)
    with pytest.raises(RefusedError, match=r"batch 0 is unfinished \(400 of 1,000 rows\)"):
        Attempt(following).run()
    assert Attempt(work).run()["sent"] == 600
    assert values(lab1, work.topic) == expected(0, 1000)


def test_old_markers_are_committed_again(lab1: Lab, work: Work) -> None:
    before = markers.committed(work.access, work.job, [0])
    renewal = sink._Renewal(work.access, [work], before)
    assert renewal.half == 7 * 24 * 3_600_000 // 2  # Kafka's default retention of offsets
    renewal.half = -1000  # everything is older than that
    renewal._renew(before)
    after = markers.committed(work.access, work.job, [0])[0]
    assert after.written > before[0].written
    assert (after.batch, after.next_row, after.rows) == (markers.NO_BATCH, 0, 0)


def test_another_driver_may_fence_the_renewal(
    lab1: Lab, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find the marker old; the one that is fenced goes on, its tasks tell what is wrong."""
    found = markers.committed(work.access, work.job, [0])[0]
    old = {0: replace(found, written=0)}
    real, rivals = markers.committed, [Attempt(work)]

    def fenced_meanwhile(*given: Any) -> dict[int, markers.Marker]:
        found = real(*given)
        while rivals:
            rivals.pop().fence()
        return found

    monkeypatch.setattr(markers, "committed", fenced_meanwhile)
    with pytest.raises(FencedError):
        sink._take_over(work.access, work.job, 0, old[0])
    rivals.append(Attempt(work))
    with sink._Renewal(work.access, [work], old):
        assert rivals == []  # fenced, as before


@pytest.mark.long
def test_batch_numbers_that_come_again_in_another_run_are_refused(
    spark: "SparkSession",
    lab1: Lab,
    topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A streaming query whose checkpoint was deleted begins again at batch 0, with other rows, and
    one that was set back by a batch repeats the last number. Spark's own repeat of it is no other.

    And what is done once for all batches of an application is done once.
    """
    name = topic(lab1, 1)
    probed: list[Path] = []
    check = executors.check

    def probing(session: "SparkSession", folder: Path, tasks: int) -> None:
        probed.append(folder)
        check(session, folder, tasks)

    monkeypatch.setattr(executors, "check", probing)
    served = list(executors._served)
    given = tmp_path / "given"
    given.mkdir()

    def stream(first: int, checkpoint: str, run_id: str | None = None) -> list[int]:
        """One micro-batch of 100 rows; what was sent of it."""
        (given / f"{first}.txt").write_text("".join(f"{n}\n" for n in range(first, first + 100)))
        sent: list[int] = []

        def write(frame: "DataFrame", batch: int) -> None:
            report = write_exactly_once(
                frame,
                topic=name,
                job=name,
                batch=batch,
                staging_folder=tmp_path / "staging",
                access=access(lab1),
                partitions=1,
                run_id=run_id,
                keep_batches=1,
            )
            sent.append(report["rows_sent_now"])

        rows = spark.readStream.text(str(given))
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        query.awaitTermination()
        return sent

    assert stream(0, "first") == [100]
    shutil.copytree(tmp_path / "first", tmp_path / "one-back")
    assert stream(100, "first") == [100]  # the query goes on under its own id
    assert len(probed) == 1
    assert executors._served in (served, [*served, *executors._served[-1:]])
    assert [p.name for p in (tmp_path / "staging" / name).iterdir()] == ["batch-1"]
    with pytest.raises(Exception, match=r"its checkpoint was set back.*newest checkpoint again"):
        stream(200, "one-back")  # batch 1 of 200 rows, of which 100 were not sent
    for done in (tmp_path / "first" / "commits").glob("*1*"):
        done.unlink()
    assert stream(200, "first") == [0, 100]  # as after a crash within batch 1
    for sent in given.iterdir():
        sent.unlink()
    # the same query from an earlier copy of its checkpoint: its id, and batch 0 once more
    (tmp_path / "earlier").mkdir()
    shutil.copy(tmp_path / "first" / "metadata", tmp_path / "earlier")
    with pytest.raises(Exception, match=r"its checkpoint was set back.*newest checkpoint again"):
        stream(300, "earlier")
    (tmp_path / "given" / "300.txt").unlink()
    staged = (tmp_path / "staging" / name).glob("batch-*/manifest.json")
    assert [path.parent.name for path in staged] == ["batch-2"]
    with pytest.raises(
        Exception,
        match=r"batch 2 here belongs to run [0-9a-f-]{36}, this is another run, [0-9a-f-]{36}",
    ):
        stream(300, "second")
    # neither with other numbers nor with another staging folder
    for batch, folder in ((0, "staging"), (7, "staging"), (7, "other")):
        with pytest.raises(RefusedError, match="another run") as refused:
            write_exactly_once(
                numbers(spark, 400, 100, 1),
                topic=name,
                job=name,
                batch=batch,
                staging_folder=tmp_path / folder,
                access=access(lab1),
                run_id="monthly",
            )
        assert "another job name" in (refused.value.remedy or "")
    assert values(lab1, name) == expected(0, 300)
