"""What Spark's jobs make of errors, of their spec file and of a cluster that is not there."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.access import Access
from eoctl.kafka.exactly_once import FencedError
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.merge_request import Request
from spark_jobs import executors, job, taking_over
from spark_jobs.attempt import Attempt, Work
from spark_jobs.staging import StagedFile

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
    def fails(*_given: Any) -> Any:
        raise JvmGoneError

    ended: list[int] = []
    monkeypatch.setattr(job, "_run", fails)
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("signal.signal", lambda *_given: None)
    monkeypatch.setattr("sys.argv", ["job", "--spec", str(tmp_path)])
    job.main("job", fails)
    assert ended == [70]
    assert "eoctl: " in capsys.readouterr().err.splitlines()[-1]


def spec(folder: Path, **found: Any) -> str:
    path = folder / "spec.json"
    access = {"properties": {"bootstrap.servers": "127.0.0.1:1"}}
    path.write_text(json.dumps({"access": access, **found}))
    return str(path)


def test_a_spec_file_without_a_request(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"spec\.json: no access and request in it"):
        job._given(None, spec(tmp_path))
    with pytest.raises(UsageError, match=r"spec\.json: no access and request in it"):
        job._given(None, spec(tmp_path, request=[]))
    found, _ = job._given(None, spec(tmp_path, request={"merge": "m"}))
    assert found["request"] == {"merge": "m"}


def test_a_request_with_wrong_fields() -> None:
    with pytest.raises(UsageError, match=r"request, format: Field required \(and \d+ more\)"):
        job.understood(Request.model_validate, {"merge": "m"})


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
