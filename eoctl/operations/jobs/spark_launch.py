"""Launch a job on Spark: a separate process, which is recorded, followed and cancelled completely.

Nothing secret is in its command line, its environment's new words, its confs or its record: the
cluster's access and the address of a remote, which may hold a token, go through a pipe.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.host.java import find_java
from eoctl.host.processes import identify
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.credentials import Confidential
from eoctl.kafka.connection.property_names import SECRET_KEY
from eoctl.operations.jobs import job_records as jobs
from eoctl.stores.job_folders import Job, JobFolder, Jobs
from eoctl.stores.journal_files import redacted, who, without_parameters
from recovery.errors import EoctlError, Exit, IncompleteError, RefusedError, UsageError
from recovery.times import not_done_within
from recovery.values import replace

ENGINES = ("auto", "local", "spark")
POLL_SECONDS = 0.25
LOCAL_FAILURES = 4  # plain local[N] tries a task once
PRIVATE = 0o600
PYTHON_CONF = "spark.pyspark.python"
DEPLOY_MODE = "spark.submit.deployMode"
SAFE = {"spark.ui.showConsoleProgress": "false", "spark.speculation": "false"}
"""Confs of every job, unless others are given."""

Show = Callable[[Mapping[str, Any]], None]
"""Called with each new line of progress."""


class Spark(Confidential):
    """How Spark runs the job, and where. remote: sc://HOST:PORT. env: for the job's process."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = msgspec.field(default_factory=dict)
    env: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def where(self) -> str:
        """Return the master, or a remote's address without its parameters (a token, say)."""
        if self.remote:
            return without_parameters(self.remote)
        return _with_retries(self.master or f"local[{os.cpu_count() or 1}]")

    @property
    def here(self) -> bool:
        """Return True if the executors are processes of this machine."""
        return not self.remote and self.where.startswith("local")


def read_options(
    master: str | None, remote: str | None, conf: Sequence[str], env_file: Path | None
) -> Spark:
    """Return the options of a command line. Raises UsageError."""
    if master and remote:
        raise UsageError("give --master or --remote, not both")
    if remote and not remote.startswith("sc://"):
        raise UsageError("write sc://HOST:PORT", where="--remote")
    settings: dict[str, str] = {}
    for pair in conf:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError("write spark.KEY=VALUE", where="--conf")
        if SECRET_KEY.search(key):
            raise UsageError(
                "Spark shows its confs, also this one",
                where=f"--conf {key}",
                remedy="give the secret to the job's environment with --env-file",
            )
        settings[key] = value
    return Spark(master, remote, settings, {} if env_file is None else _env_file(env_file))


def _env_file(path: Path) -> dict[str, str]:
    """Return the file's NAME=VALUE lines, without blank ones and those with #."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot be read: {reason}", where=f"--env-file {path}") from None
    variables = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.strip().partition("=")
        if not equals or not name.isidentifier():
            raise UsageError("not NAME=VALUE", where=f"{path}, line {number}")
        variables[name] = value
    return variables


def _with_retries(master: str) -> str:
    """Return local[N] as local[N,4]: else the first failed task ends the job."""
    if master == "local":
        return f"local[1,{LOCAL_FAILURES}]"
    if master.startswith("local[") and "," not in master:
        return f"{master.removesuffix(']')},{LOCAL_FAILURES}]"
    return master


def launch(
    name: str,
    request: Mapping[str, Any],
    access: Access,
    spark: Spark,
    *,
    summary: str,
    show: Show,
    context: str | None = None,
    cluster_id: str | None = None,
    output: str | None = None,
    seconds: float | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Mapping[str, Any]:
    """Run `spark_jobs.NAME` to its end, calling `show` with its progress; return the result.

    beat: called several times a second; what it raises cancels the job, and is raised.

    Raises what the job raised, as the same kind of error; UsageError if Spark or Java is missing;
    IncompleteError when `seconds` are over. A KeyboardInterrupt, also from SIGTERM (see
    `eoctl.__main__`), cancels the job and is raised again.
    """
    check_installed(spark)
    folder = Jobs().new()
    by = who()
    process_self = identify(os.getpid())
    job = Job(
        id=folder.path.name,
        job=name,
        engine="spark",
        summary=summary,
        argv=tuple(redacted(["eoctl", *sys.argv[1:]])),
        user=by["user"],
        host=by["host"],
        pid=process_self.pid,
        process=process_self.started,
        started=now_ms(),
        master=spark.where,
        context=context,
        cluster_id=cluster_id,
        output=output,
    )
    folder.write(job)
    conf = {**SAFE, **spark.conf}
    named = {
        "master": None if spark.remote else spark.where,
        "conf": dict(spark.conf) if spark.remote else conf,
        "name": f"eoctl {name} {job.id}",
    }
    spec = folder.path / "spec.json"
    spec.touch(mode=PRIVATE)
    spec.write_text(json.dumps({"spark": named, "request": request}, indent=1), encoding="utf-8")
    return _follow(folder, job, access, spark, show, seconds, beat)


def check_installed(spark: Spark) -> None:
    """Raise UsageError if Spark or its Java is missing, and for a driver on the cluster: the job's
    process, which is followed and cancelled from here, is the driver."""
    if spark.conf.get(DEPLOY_MODE) == "cluster":
        raise UsageError(
            "the driver runs here, where eoctl follows it",
            where=f"--conf {DEPLOY_MODE}=cluster",
            remedy="`eoctl jobs export DIR` writes what spark-submit needs to run it there",
        )
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("Spark is not installed", remedy="pip install 'eoctl[spark]'")
    if spark.remote:
        return
    try:
        find_java({**os.environ, **spark.env})
    except UsageError as error:
        raise UsageError(
            error.what.replace("Kafka needs", "Spark needs"),
            where="--engine spark",
            remedy=error.remedy,
        ) from None


def _environment(spark: Spark, job_id: str) -> dict[str, str]:
    env = {**os.environ, **spark.env, jobs.JOB_VARIABLE: job_id}
    if spark.here:
        env.setdefault("PYSPARK_PYTHON", sys.executable)  # other machines lack that path
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # its pages are for this machine
    if python := spark.conf.get(PYTHON_CONF):  # on its own, only spark-submit reads this
        env["PYSPARK_PYTHON"] = python
    env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return env


def _follow(
    folder: JobFolder,
    job: Job,
    access: Access,
    spark: Spark,
    show: Show,
    seconds: float | None,
    beat: Callable[[], None],
) -> Mapping[str, Any]:
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    words = [sys.executable, "-P", "-m", f"spark_jobs.{job.job}", "--job-folder", str(folder.path)]
    until = None if seconds is None else time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=_environment(spark, job.id),
            start_new_session=True,
        )
    finally:
        os.close(log)
    leader = identify(process.pid)
    try:
        job = replace(job, pid=leader.pid, process=leader.started)
        folder.write(job)
        _hand_over(process, access, spark.remote)
        shown_so_far = 0
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            shown_so_far = _show_new(folder, shown_so_far, show)
            beat()
            if until is not None and time.monotonic() > until:
                jobs.cancel(job.id)
                raise not_done_within(seconds)
        _show_new(folder, shown_so_far, show)
    except BaseException as error:
        if process.poll() is None:
            with suppress(RefusedError):  # it has just ended
                jobs.cancel(job.id)
        if isinstance(error, KeyboardInterrupt):
            folder.end(Exit.INTERRUPTED, error="cancelled", cancelled=True)
        raise
    finally:
        jobs.end_session(leader, job.id)
        process.wait()
    return _result(folder, process.returncode)


def _hand_over(process: "subprocess.Popen[bytes]", access: Access, remote: str | None) -> None:
    """Send access and remote through the pipe; the job reads these before anything else."""
    assert process.stdin is not None
    secrets = {**access.as_dict(), "remote": remote}
    try:
        process.stdin.write(json.dumps(secrets).encode())
        process.stdin.close()
    except BrokenPipeError:  # it ended at once; its log says why
        pass


def _show_new(folder: JobFolder, shown_so_far: int, show: Show) -> int:
    reports = folder.reports()
    for report in reports[shown_so_far:]:
        show(report)
    return len(reports)


def _result(folder: JobFolder, status: int) -> Mapping[str, Any]:
    job = folder.read()
    if job.ended is None:
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        job = folder.end(Exit.INTERNAL, error=f"the job's process ended ({how}) without saying why")
    if job.cancelled:
        raise IncompleteError("the job was cancelled", where=job.id)
    if job.error is not None:
        kind = _KINDS.get(Exit(job.exit_status or Exit.INTERNAL), EoctlError)
        raise kind(f"{job.error} (job {job.id}; its log: {folder.log})")
    return job.result


_KINDS = {kind.exit_status: kind for kind in EoctlError.__subclasses__()}
