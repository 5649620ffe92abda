"""What Spark's jobs make of errors, of their spec file and of a cluster that is not there."""

import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import TopicMetadata
from eoctl.kafka.write.exactly_once import FencedError
from eoctl.stores.storage import LocalFolder
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnreachableError,
    UnverifiedError,
    UsageError,
)
from recovery.merge.merge_request import ReplayRequest
from recovery.values import replace
from spark_jobs.session import executors, job
from spark_jobs.session.progress import JobProgress
from spark_jobs.sink import markers, query, staging, taking_over
from spark_jobs.sink import write as sink
from spark_jobs.sink.commit import Attempt, Work
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.staging import Manifest, StagedFile

BEFORE_RUNS = """{
 "batch": 4,
 "created": 0,
 "files": [
  {
   "bytes": 9,
   "file": "part-0.parquet",
   "partition": 0,
   "rows": 3,
   "sha256": ""
  }
 ],
 "job": "j",
 "marker_topic_id": "m",
 "topic": "t",
 "topic_id": "id"
}
"""

TRACE = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main
    process()
{errors}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(Py.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("errors", "kind", "sentence"),
    [
        ("recovery.errors.RefusedError: m:0: it is gone; again", RefusedError, "m:0: it is gone"),
        ("recovery.errors.UnreachableError: b:1: nobody", UnreachableError, "b:1: nobody"),
        ("recovery.formats.reader.CorruptError: m:0: not whole", IncompleteError, "m:0: not whole"),
        (
            "recovery.errors.UsageError: first\n\nDuring it:\n\nrecovery.errors.RefusedError: then",
            RefusedError,
            "then",
        ),
    ],
)
def test_errors_of_ours_below_a_stack_trace(
    errors: str, kind: type[EoctlError], sentence: str
) -> None:
    found = executors.of_ours(TRACE.format(errors=errors))
    assert type(found) is kind
    assert found.sentence.startswith(sentence)
    assert "Thread" not in found.sentence


def test_errors_of_others() -> None:
    told = "ValueError: recovery.errors.RefusedError: is only mentioned"
    assert executors.of_ours(TRACE.format(errors=told)) is None
    assert executors.of_ours(TRACE.format(errors="recovery.errors.NoSuchError: x")) is None


class JvmGoneError(Exception):
    """As py4j's: it asks for its words where nobody is."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("no gateway")


def test_an_error_whose_jvm_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert ended_with(JvmGoneError(), monkeypatch, tmp_path) == 70
    assert "eoctl: " in capsys.readouterr().err.splitlines()[-1]


def ended_with(error: Exception, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """The exit status of a job that raises this error."""

    def fails(*_spec_and_access: Any) -> Any:
        raise error

    ended: list[int] = []
    monkeypatch.setattr(job, "_run", fails)
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("signal.signal", lambda *_spec_and_access: None)
    monkeypatch.setattr("sys.argv", ["job", "--spec", str(folder)])
    job.main("job", fails)
    return ended[0]


def test_an_error_of_ours_comes_without_the_stack_trace_of_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = TRACE.format(errors="recovery.errors.RefusedError: it was written again")
    assert ended_with(RuntimeError(text), monkeypatch, tmp_path) == 4
    assert capsys.readouterr().err == "eoctl: it was written again\n"


@pytest.mark.parametrize("where", ["pipe", "terminal", "notebook"])
def test_a_job_without_a_folder_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: where == "terminal", raising=False)
    if where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    shown = JobProgress(None)
    reports = [{"stage": "read\x1b[2J", "records": n, "records_total": 100} for n in (50, 100)]
    for report in reports:
        shown.watch(report.copy)
        shown._tell()
    shown._console.end()
    told = capsys.readouterr().err
    if where == "pipe":
        lines = [json.loads(line) for line in told.splitlines()]
        assert [line["records"] for line in lines] == [50, 100]
        assert all(line["records_per_second"] > 0 for line in lines)
    else:
        first, second = told.removesuffix("\n").split("\r")[1:]
        assert "\x1b" not in told
        assert "50% 50 offsets" in first
        assert "100% 100 offsets" in second
        assert len(second) >= len(first)  # nothing of the first is left beside it


def spec(folder: Path, **found: Any) -> str:
    path = folder / "spec.json"
    access = {"properties": {"bootstrap.servers": "127.0.0.1:1"}}
    path.write_text(json.dumps({"access": access, **found}))
    return str(path)


def test_a_spec_file_without_a_request(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"spec\.json: no access and request in it"):
        job._spec_and_access(None, spec(tmp_path))
    with pytest.raises(UsageError, match=r"spec\.json: no access and request in it"):
        job._spec_and_access(None, spec(tmp_path, request=[]))
    found, _ = job._spec_and_access(None, spec(tmp_path, request={"merge": "m"}))
    assert found["request"] == {"merge": "m"}


@pytest.mark.parametrize("name", ["numpy", "pandas"])
def test_a_driver_that_lacks_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Below spark-submit, before a session is started: Spark itself would say less."""
    monkeypatch.setattr(job, "find_spec", lambda found: None if found == name else found)
    with pytest.raises(UsageError, match=f"the driver's Python has no {name}; install numpy, "):
        job._run(lambda *_: {}, None, spec(tmp_path, request={}), None)


def test_a_request_with_wrong_fields() -> None:
    with pytest.raises(UsageError, match=r"request, format: Field required \(and \d+ more\)"):
        job.understood(ReplayRequest.model_validate, {"merge": "m"})


def work(access: Access) -> Work:
    return Work(
        access=access,
        job="j",
        topic="t",
        batch=0,
        manifest="",
        partition=0,
        file=StagedFile(0, "part", 0, 1, ""),
        folder="/nowhere",
        transaction_timeout_ms=1000,
        rows_per_transaction=1,
        patience=0.5,
    )


def nobody() -> Access:
    """A cluster whose only broker is not there."""
    return Access({"bootstrap.servers": f"127.0.0.1:{random.randrange(1, 9)}"})


class Later(Attempt):
    """The cluster cannot be reached the first two times; then nothing is left to send."""

    tries = 0

    def take_over(self) -> int | None:
        self.tries += 1
        if self.tries <= 2:
            self.position()
        return None


def test_an_attempt_goes_on_once_the_cluster_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking_over, "POLL_SECONDS", 0.01)
    with pytest.raises(UnreachableError):
        Attempt(work(nobody())).position()
    assert Later(work(nobody())).run()["takeovers"] == 2


def test_an_attempt_that_was_fenced_waits_in_vain_for_an_unreachable_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fenced(Attempt):
        asked = 0

        def take_over(self) -> int | None:
            raise FencedError("taken over")

        def position(self) -> int | None:
            self.asked += 1
            return super().position()

    monkeypatch.setattr(taking_over, "TAKEOVERS", 1)
    one, begin = Fenced(work(nobody())), time.monotonic()
    with pytest.raises(IncompleteError, match="none of them ends"):
        one.run()
    assert time.monotonic() - begin >= 0.5
    assert one.asked <= 2  # a look every half second, not as many as it can


@pytest.mark.parametrize("next_row", [3, 2, None])
def test_a_batch_counts_as_sent_once_its_markers_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_row: int | None
) -> None:
    """Every task came back without an error; what the markers hold then decides.

    next_row: of 3, in the last partition's marker; None: it is still of the batch before.
    """
    manifest = Manifest(
        job="j",
        batch=4,
        topic="t",
        topic_id="id",
        marker_topic_id="m",
        files=tuple(StagedFile(p, f"part-{p}.parquet", 3, 9, "") for p in range(2)),
        created=0,
    )
    before = Marker(3, "earlier", 1, 1, now_ms())
    done = Marker(4, manifest.sha256, 3, 3, now_ms())
    last = before if next_row is None else replace(done, next_row=next_row)
    now = {0: before, 1: before}

    def run(*given: Any, sends: bool) -> list[Any]:
        now.update({0: done, 1: last})
        return [{"sent": 3, "transactions": 1, "takeovers": 0}] * 2

    monkeypatch.setattr(executors, "run", run)
    monkeypatch.setattr(markers, "last_committed", lambda *given: dict(now))
    monkeypatch.setattr(markers, "committed", lambda *given: dict(now))
    monkeypatch.setattr(markers, "retention_ms", lambda access: 3_600_000)

    def send() -> Any:
        access = Access({"bootstrap.servers": "127.0.0.1:1"})
        return sink._send(None, manifest, LocalFolder(tmp_path), access, 60_000, 10, in_query=False)  # type: ignore[arg-type]

    if next_row == 3:
        assert send()["rows_sent_now"] == 6
        assert (tmp_path / "done.json").exists()
        return
    with pytest.raises(UnverifiedError, match="the marker says batch") as caught:
        send()
    assert caught.value.where == f"{markers.name('j')}:1"
    assert not (tmp_path / "done.json").exists(), "the next run must not take it for sent"


def staged(batch: int = 4, run: str | None = None) -> Manifest:
    files = (StagedFile(0, "part-0.parquet", 3, 9, ""),)
    return Manifest("j", batch, "t", "id", "m", files, created=0, run=run)


def test_a_query_whose_checkpoint_was_set_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch 4 was sent, and 5 after it. Spark never repeats 4 then: its rows are others."""
    later = Marker(5, "later", 1, 1, now_ms(), run="q")
    monkeypatch.setattr(markers, "last_committed", lambda *given: {0: later})
    (tmp_path / "done.json").write_text("{}")
    access = Access({"bootstrap.servers": "127.0.0.1:1"})
    given: Any = (None, staged(run="q"), LocalFolder(tmp_path), access, 60_000, 10)
    assert sink._send(*given, in_query=False)["rows_sent_now"] == 0
    with pytest.raises(RefusedError, match="batch 5 was sent after it") as refused:
        sink._send(*given, in_query=True)
    assert "its checkpoint was set back" in refused.value.what


def test_a_batch_that_a_query_planned_anew_is_not_the_one_that_was_staged(tmp_path: Path) -> None:
    """Where either is not known, by an earlier version or a Spark that does not tell, it may be."""
    first = replace(staged(run="q"), planned="one")
    query.refuse_planned_anew(first, "one", "here")
    query.refuse_planned_anew(first, None, "here")
    query.refuse_planned_anew(staged(run="q"), "two", "here")
    with pytest.raises(RefusedError, match=r"batch 4 was staged before.*set back.*newest"):
        query.refuse_planned_anew(first, "two", "here")
    # its hash stands in markers that an earlier version wrote
    assert b"planned" in first.encode()
    assert b"planned" not in staged(run="q").encode()


def test_the_leader_of_a_topic_that_was_just_made_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may not know yet that it leads; one that never does is a sentence."""

    class Consumer:
        def __init__(self, refusals: int) -> None:
            self.left = refusals

        def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
            self.left -= 1
            if self.left >= 0:
                raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
            return 3, 7

    monkeypatch.setattr(markers, "PAUSE_SECONDS", 0)
    partition = TopicPartition("j-eoctl-sink", 1)
    assert markers._watermarks(Consumer(2), partition) == (3, 7)
    monkeypatch.setattr(markers, "ANSWER_SECONDS", 0.01)
    with pytest.raises(IncompleteError, match=r"cannot be seen: .*[Ll]eader") as refused:
        markers._watermarks(Consumer(1_000_000), partition)
    assert refused.value.where == "j-eoctl-sink:1"


@pytest.mark.parametrize("name", ["/etc/part.parquet", "../batch-3/part.parquet", ".."])
def test_a_staging_manifest_lists_files_of_its_own_folder(tmp_path: Path, name: str) -> None:
    made = replace(staged(), files=(StagedFile(0, name, 3, 9, ""),))
    (tmp_path / "manifest.json").write_bytes(made.encode())
    with pytest.raises(RefusedError, match="leads out of the batch's folder"):
        staging.load(LocalFolder(tmp_path))


def test_another_run_that_published_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs stage batch 4 at once: the manifest that stands is the other one's."""
    topics = {
        "t": TopicMetadata("t", "id", False, (), None),
        markers.name("j"): TopicMetadata(markers.name("j"), "m", False, (), None),
    }
    folder = tmp_path / "j" / "batch-4"

    def stage(*given: Any) -> list[StagedFile]:
        folder.mkdir(parents=True)
        staging.publish(LocalFolder(folder), staged(run="other"))
        return list(staged().files)

    def send(*given: Any, **named: Any) -> Any:
        raise AssertionError("it sends the rows of another run")

    monkeypatch.setattr(executors, "check_storage", lambda *given: None)
    monkeypatch.setattr(markers, "topics", lambda *given: topics)
    monkeypatch.setattr(markers, "last_committed", lambda *given: {})
    monkeypatch.setattr(staging, "stage", stage)
    monkeypatch.setattr(sink, "_same_count", lambda *given: None)
    monkeypatch.setattr(sink, "_markers_ready", lambda *given: topics[markers.name("j")])
    monkeypatch.setattr(sink, "_send", send)
    frame: Any = SimpleNamespace(sparkSession=None, coalesce=lambda count: None)
    with pytest.raises(RefusedError, match="belongs to run other, this is another run, mine"):
        sink.write_exactly_once(
            frame,
            topic="t",
            job="j",
            batch=4,
            staging_folder=tmp_path,
            access=Access({"bootstrap.servers": "127.0.0.1:1"}),
            run_id="mine",
            allow_speculation=True,
        )


def test_a_manifest_without_a_run_keeps_the_hash_that_earlier_markers_hold() -> None:
    """Its bytes are those of the version that knew of no runs."""
    assert b'"run"' not in staged().encode()
    assert b'"run": "q"' in staged(run="q").encode()
    told = hashlib.sha256(BEFORE_RUNS.encode()).hexdigest()
    assert staged().sha256 == told


def test_a_task_of_a_rebuild_keeps_its_own_row(tmp_path: Path) -> None:
    """Killed before Spark has collected anything, a job has lost nothing that was done."""
    from eoctl.engine.rebuild_task import BucketTask, Making
    from eoctl.stores.state import folder as state_folder
    from eoctl.stores.state.runs import Run, plan_merge, write_run
    from spark_jobs.rebuild import _work

    run = write_run(LocalFolder(tmp_path), "t-0", [])
    plan = plan_merge(LocalFolder(tmp_path), "t-0", [Run(run)])
    task = BucketTask("t", 0, plan, 0, 1, {}, Making("plain", {}, str(tmp_path)))
    work = _work([task], str(tmp_path), executors.EndedTasks(None))
    work(0)
    found = state_folder.Attempts(LocalFolder(tmp_path)).find(task.key(), task.token())
    assert found is not None
    state_folder.sweep(LocalFolder(tmp_path))  # as the next run does first
    assert [(tmp_path / f.path).exists() for f in found.files] == [True]


@pytest.mark.parametrize(("tasks", "most", "expected"), [(10, 4, 250), (2, 4, 500), (1, 4, 1000)])
def test_tasks_that_run_at_once_keep_a_rate_together(tasks: int, most: int, expected: int) -> None:
    from eoctl.engine.rebuild_task import Making, RangeTask, sharing_rate
    from eoctl.kafka.connection.access import Access

    one = RangeTask(Access({}), "t", 0, 0, 9, Making("plain", {}, "/x", max_rate=1000.0))
    shared = sharing_rate([one] * tasks, min(tasks, most))
    rates = [task.how.max_rate for task in shared if isinstance(task, RangeTask)]
    assert rates == [expected] * tasks
    assert {task.key() for task in shared} == {one.key()}


def test_a_frame_that_spark_cannot_evaluate_again_is_a_sentence() -> None:
    from types import SimpleNamespace

    from recovery.errors import IncompleteError
    from spark_jobs.session import executors

    class Frame:
        def collect(self) -> list[object]:
            raise RuntimeError(
                "An error occurred while calling o45.collectToPython.\n: org.apache.spark."
                "SparkException: Job aborted due to stage failure: A shuffle map stage with "
                "indeterminate output was failed and retried. However, Spark cannot rollback the "
                "ShuffleMapStage 1 to re-process the input data\n\tat org.apache.spark"
            )

    nothing = {"setLocalProperty", "addJobTag", "removeJobTag"}
    context = SimpleNamespace(**dict.fromkeys(nothing, lambda *_: None))
    context.accumulator = lambda *_: SimpleNamespace(value=[])
    session: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(IncompleteError, match="gives other rows each time") as said:
        executors.collected(session, Frame(), "x", executors.Refusals(session))
    assert "o45" not in said.value.sentence


def test_the_memory_of_a_process_is_its_own() -> None:
    """Started by one that holds 300 MB, it has not had them."""
    held = bytearray(300 << 20)
    held[::4096] = b"x" * len(held[::4096])
    script = "from eoctl.engine.rebuild_task import peak_bytes; print(peak_bytes())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert 10 << 20 < int(done.stdout) < 250 << 20


def test_a_spec_reaches_two_clusters_and_holds_the_secret_of_neither(tmp_path: Path) -> None:
    server = {"bootstrap.servers": "b:9092"}
    both = Access(server, {"b": "10.0.0.1"}, None, Access(server | {"client.id": "x"}))
    assert Access.read(json.loads(json.dumps(both.as_dict()))) == both
    secret = server | {"sasl.password": "x"}
    spec = tmp_path / "spec.json"
    for access, refused in (
        (both, False),
        (Access(secret), True),
        (replace(both, beside=Access(secret)), True),
    ):
        spec.write_text(json.dumps({"access": access.as_dict(), "request": {}}))
        if refused:
            with pytest.raises(UsageError, match="contains a secret"):
                job._spec_and_access(None, str(spec))
        else:
            assert job._spec_and_access(None, str(spec))[1] == both
