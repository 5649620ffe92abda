"""The frame of every job: its command line, its session, its progress, its end.

eoctl starts `python -m spark_jobs.<job> --job-folder DIR` with the cluster's access (and Spark
Connect's address, which may hold a token) on stdin, and reads the outcome from DIR. By hand,
`spark-submit spark_jobs/<job>.py --spec FILE` does the same work: FILE is JSON
{"access": {"properties": {...}}, "request": {...}}, with secrets as `env:` or `file:`.
"""

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import ValidationError

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.property_names import in_clear
from eoctl.settings.folders import full_disk
from eoctl.stores import private
from eoctl.stores.job_folders import JobFolder
from recovery.errors import EoctlError, Exit, UsageError
from recovery.times import rfc3339
from spark_jobs.session import memory
from spark_jobs.session.executors import (
    INSTALL,
    NEEDED_BY_DRIVER,
    forget_code,
    is_connect,
    of_ours,
    text_of,
)
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SECONDS = 15.0
WAKE_SECONDS = 0.5

T = TypeVar("T")


class CancelledError(BaseException):
    """Somebody asked the job to stop."""


_asked_to_stop = threading.Event()


Work = Callable[["SparkSession", Mapping[str, Any], Access, JobProgress], Mapping[str, Any]]
"""A job's own part: (session, request, access, progress) -> its result, JSON-able; `exit_status`
in it is the job's."""


def main(name: str, work: Work) -> NoReturn:
    """Run one job and end the process."""
    words = argparse.ArgumentParser(prog=name)
    where = words.add_mutually_exclusive_group(required=True)
    where.add_argument("--job-folder", metavar="DIR", help="of eoctl; access comes on stdin")
    where.add_argument("--spec", metavar="FILE", help="JSON: access and request")
    words.add_argument("--date", metavar="YYYY-MM-DD", help="{date} in an output [today, UTC]")
    given = words.parse_args()
    folder = JobFolder(Path(given.job_folder)) if given.job_folder else None
    os.umask(private.UMASK)
    status, error, result = Exit.INTERNAL, None, {}
    cancelled = False
    try:
        signal.signal(signal.SIGTERM, _cancel)
        result = dict(_run(work, folder, given.spec, given.date))
        status = Exit(result.get("exit_status", Exit.OK))
    except EoctlError as failure:
        status, error = failure.exit_status, failure.sentence
    except (CancelledError, KeyboardInterrupt):
        status, error, cancelled = Exit.INTERRUPTED, "cancelled", True
    except Exception as failure:
        text = text_of(failure)
        if ours := of_ours(text) or full_disk(
            failure if isinstance(failure, OSError) else RuntimeError(text)
        ):
            status, error = ours.exit_status, ours.sentence
        else:
            error = traceback.format_exc().strip().splitlines()[-1]
            traceback.print_exc()
    if _asked_to_stop.is_set() and error is not None:
        # an error that follows the interruption is its consequence
        status, error, cancelled = Exit.INTERRUPTED, "cancelled", True
    if error is not None:
        print(f"eoctl: {error}", file=sys.stderr)
    if folder is not None:
        folder.end(status, error=error, cancelled=cancelled, result=result)
    elif result:
        print(json.dumps(result, indent=1))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # py4j's threads must not outlive the job


def _cancel(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _asked_to_stop.set()
    raise CancelledError


def _run(
    work: Work, folder: JobFolder | None, spec: str | None, asked_day: str | None
) -> Mapping[str, Any]:
    spec_values, access = _spec_and_access(folder, spec)
    request = spec_values["request"]
    if folder is None:
        request = dated(request, day(asked_day))
        for name in NEEDED_BY_DRIVER:
            if find_spec(name) is None:
                raise UsageError(f"the driver's Python has no {name}", remedy=INSTALL)
    progress = JobProgress(folder)
    spark = session(spec_values.get("spark") or {})
    signal.signal(signal.SIGTERM, _cancel)
    progress.of(spark)
    try:
        with progress:
            return _beside(lambda: work(spark, request, access, progress))
    finally:
        stop(spark)
        forget_code()


def _beside(run: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Run in another thread. A signal interrupts this thread, never an exchange with the JVM."""
    ended: list[Mapping[str, Any] | BaseException] = []

    def keep() -> None:
        try:
            ended.append(run())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=keep, name="eoctl-work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(WAKE_SECONDS)
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def _spec_and_access(folder: JobFolder | None, spec: str | None) -> tuple[dict[str, Any], Access]:
    """Return the request, and how to reach the cluster. Raises UsageError."""
    path = folder.path / "spec.json" if folder is not None else Path(spec or "")
    try:
        content = json.loads(path.read_bytes())
        access = json.loads(sys.stdin.buffer.read()) if folder is not None else content["access"]
        made = Access.read(access)
        if not isinstance(content["request"], dict):
            raise TypeError
        if folder is not None:
            content["spark"]["remote"] = access["remote"]
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, KeyError, TypeError):
        raise UsageError("no access and request in it", where=str(path)) from None
    if folder is None:
        for one in filter(None, (made, made.beside)):
            if keys := in_clear({k: str(v) for k, v in one.properties.items()}):
                raise UsageError(
                    "it contains a secret",
                    where=f"{path}, {keys[0]}",
                    remedy="write env:NAME or file:PATH",
                )
    return content, made


def day(given: str | None) -> str:
    """Return the day, YYYY-MM-DD: today in UTC if none is given. Raises UsageError."""
    if given is None:
        return (rfc3339(now_ms()) or "")[:10]
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise UsageError("write YYYY-MM-DD", where="--date") from None


def dated(request: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return a request with the day in place of `{date}` in every output. So each run of a
    scheduled job has its own output."""
    return {
        key: dated(value, of)
        if isinstance(value, Mapping)
        else value.replace("{date}", of)
        if key == "output" and isinstance(value, str)
        else value
        for key, value in request.items()
    }


def understood(parse: Callable[[Any], T], request: Mapping[str, Any]) -> T:
    """Return what `parse` makes of a request. Raises UsageError if the fields are wrong."""
    try:
        return parse(request)
    except ValidationError as error:
        first, *rest = error.errors()
        more = f" (and {len(rest)} more)" if rest else ""
        where = ", ".join(["request", *map(str, first["loc"])])
        raise UsageError(f"{first['msg']}{more}", where=where) from None
    except KeyError as error:
        raise UsageError("is missing", where=f"request, {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"its fields are not as they should be: {error}", where="request"
        ) from None


def session(settings: Mapping[str, Any]) -> "SparkSession":
    """Return the session that `master`, `remote` and `conf` ask for, else spark-submit's."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    conf = dict(settings.get("conf") or {})
    if not settings.get("remote"):
        conf["spark.app.name"] = settings.get("name") or "eoctl"
        if settings.get("master"):
            conf["spark.master"] = settings["master"]
        conf |= memory.settings(conf)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if settings.get("remote"):
        return builder.remote(settings["remote"]).getOrCreate()
    return builder.getOrCreate()


def stop(spark: "SparkSession") -> None:
    """End the session, its jobs and its JVM, and wait for them for a limited time."""
    gateway = None if is_connect(spark) else spark.sparkContext._gateway
    ending = threading.Thread(target=_end, args=(spark,), name="eoctl-stop", daemon=True)
    ending.start()
    ending.join(STOP_SECONDS)
    process = getattr(gateway, "proc", None)  # spark-submit has none and ends its JVM itself
    if process is not None:
        with suppress(Exception):
            process.stdin.close()  # its JVM ends with this pipe
            process.wait(STOP_SECONDS)


def _end(spark: "SparkSession") -> None:
    with suppress(Exception):
        if is_connect(spark):
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()
    with suppress(Exception):
        spark.stop()
