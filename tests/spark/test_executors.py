"""Executors that lack a package, run another Python or do not see the folder: a sentence each."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from eoctl.lab.cluster import Lab
from eoctl.stores.storage import LocalFolder
from recovery.audit.audit_request import DuplicatesFound
from recovery.errors import IncompleteError, RefusedError, UnreachableError, UsageError
from spark_jobs import audits
from spark_jobs.session import executors
from spark_jobs.sink import staging
from tests.conftest import Tried
from tests.kafka.test_security import CERTIFICATES, old_properties, old_server, wrong
from tests.spark.starting import home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.usefixtures("nothing_left")
__all__ = ["old_server"]  # a fixture


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "broken"),
    [*((name, False) for name in executors.NEEDED), ("crc32c", True), ("pydantic", True)],
)
def test_a_package_that_is_not_there(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: bool
) -> None:
    """Or is there, and breaks when it is imported."""
    packages, base = tmp_path / "packages", os.path.realpath(sys.executable)
    packages.mkdir()
    for path in home().parent.iterdir():
        if path.name.partition(".")[0].partition("-")[0] != name:
            (packages / path.name).symlink_to(path)
    said = f"the executors' Python has no {name}; install numpy, pyarrow, crc32c"
    if broken:
        (packages / f"{name}.py").write_text("raise SystemError('of another version')")
        said = f"the executors' Python cannot import {name}: of another version; install numpy"
    python = script(tmp_path / "python", f'PYTHONPATH="$PYTHONPATH:{packages}" exec {base} -S "$@"')
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(UsageError, match=said):
        executors.check(spark, tmp_path / "out", 2)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.long
def test_another_python(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.8")
    with pytest.raises(UsageError, match="the executors run another Python than this one; set"):
        executors.check(spark, tmp_path / "out", 2)


NOT_SEEN = "mount -t tmpfs tmpfs {out}"
NOT_SEEN_BACK = (
    "mount -t tmpfs tmpfs {rest} && mkdir {rest}/upper {rest}/work && "
    "mount -t overlay -o lowerdir={out},upperdir={rest}/upper,workdir={rest}/work overlay {out}"
)
BACK = "what executors write here is not seen by the process that publishes it"


@pytest.mark.long
@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (NOT_SEEN, "the executors do not see this folder as the job does"),
        (NOT_SEEN_BACK, BACK),
    ],
    ids=["there", "back"],
)
def test_a_folder_that_is_not_shared(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, said: str
) -> None:
    """In a mount namespace of the executors' own, as on another host."""
    out, rest = tmp_path / "out", tmp_path / "rest"
    out.mkdir()
    rest.mkdir()
    mounted = mount.format(out=out, rest=rest)
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, mounted], capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    python = script(
        tmp_path / "python",
        f'exec {" ".join(alone)} \'{mounted} && exec {sys.executable} "$@"\' sh "$@"',
    )
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(RefusedError, match=f"{said}; name a folder that all of them share"):
        executors.check(spark, out, 2)
    assert list(out.iterdir()) == []


LONG = 300  # seconds that the other tasks of a stage would take


def test_a_task_that_is_refused_ends_the_others(spark: "SparkSession", tmp_path: Path) -> None:
    """At once, not when the stage is over; tried again is only what may pass."""
    told = str(tmp_path)

    def work(number: int) -> int:
        Path(told, f"begun-{number}-{uuid.uuid4().hex}").touch()
        if number == 1:
            raise RefusedError("not this one", where="here", remedy="another")
        time.sleep(LONG)
        return number

    begin = time.monotonic()
    with pytest.raises(RefusedError, match="here: not this one; another"):
        executors.run(spark, work, 2)
    assert time.monotonic() - begin < LONG / 2
    assert len(list(tmp_path.glob("begun-1-*"))) == 1

    def passing(number: int) -> int:
        if not list(Path(told).glob(f"failed-{number}")):
            Path(told, f"failed-{number}").touch()
            raise IncompleteError("the leader moved")
        return number * 10

    assert executors.run(spark, passing, 2) == [0, 10]

    def never(number: int) -> int:
        raise UnreachableError("no broker answers", where="b1:9092")

    with pytest.raises(UnreachableError, match="b1:9092: no broker answers"):
        executors.run(spark, never, 1)

    def misused(number: int) -> int:
        raise UsageError("no such package")

    with pytest.raises(UsageError, match="no such package"):
        executors.run(spark, misused, 1)
    with pytest.raises(IncompleteError, match="no such package"):
        executors.run(spark, misused, 1, sends=True)


@pytest.mark.long
def test_an_audits_task_that_is_refused_ends_the_others(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Also before a shuffle, whose tasks give rows and no answers."""
    ddl = "piece int, told string, a bigint"
    tried = str(tmp_path)

    def give(number: int) -> Iterator[pa.RecordBatch]:
        yield audits.batch({"a": [number]}, ddl)
        if number == 1:
            raise RefusedError("not this one", where="here")
        time.sleep(LONG)

    def passing(number: int) -> Iterator[pa.RecordBatch]:
        yield audits.batch({"a": [number]}, ddl)
        if not list(Path(tried).glob(f"failed-{number}")):
            Path(tried, f"failed-{number}").touch()
            raise UnreachableError("the leader moved")

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(len(part) for part in audits.apart(batches, []))
        yield audits.answer_row(content=bytes(rows))

    def asked(what: audits.Give) -> list[bytes]:
        refusals = executors.Refusals(spark)
        rows = audits.frame(spark, what, 2, ddl, refusals).repartition(1, "a")
        rows = rows.mapInArrow(judged, audits.ANSWER)
        return audits.answers(spark, rows, DuplicatesFound, "a test", refusals)[1]

    begin = time.monotonic()
    with pytest.raises(RefusedError, match="here: not this one"):
        asked(give)
    assert time.monotonic() - begin < LONG / 2
    assert asked(passing) == [bytes(2)]


def test_a_staging_that_is_refused_ends_at_once_and_leaves_no_file(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def refused(rows: Iterator[Any]) -> Iterator[Any]:
        for batch in rows:
            if batch.column(0)[0].as_py() == 0:
                raise RefusedError("not this row")
            yield pa.RecordBatch.from_pydict({"value": [b"x"]})
            if batch.column(0)[0].as_py() == 2:
                time.sleep(LONG)

    frame = spark.range(0, 3, 1, 3).coalesce(3)
    begin = time.monotonic()
    with pytest.raises(RefusedError, match="not this row"):
        staging.stage(frame, LocalFolder(tmp_path), 3, refused)
    assert time.monotonic() - begin < LONG / 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.trust
def test_executors_refuse_a_wrong_certificate_and_an_old_protocol(
    spark: "SparkSession", secure_lab: Lab, old_server: str, tried: Tried
) -> None:
    """Asked in their own processes: before a job the driver's connection would refuse first."""
    cases = [wrong(secure_lab, case) for case in CERTIFICATES]
    cases.append(old_properties(secure_lab, old_server))

    def answer(properties: dict[str, str]) -> tuple[int, str]:
        from eoctl.kafka.connection.failures import Deadline, WireError
        from eoctl.kafka.connection.properties import client_settings
        from eoctl.kafka.connection.wire import Connection

        settings, bound = client_settings(properties), Deadline(10)
        open_ = Connection.open(*settings.bootstrap_servers[0], settings.security, bound)
        try:
            asyncio.run(open_)
        except WireError as error:
            return os.getpid(), error.error
        return os.getpid(), ""

    told = spark.sparkContext.parallelize(cases, len(cases)).map(answer).collect()
    assert os.getpid() not in {process for process, _ in told}
    assert [error for _, error in told] == ["TLS_FAILED"] * len(cases)
    properties = secure_lab.client_properties("viewer", "SCRAM")
    [(_, none)] = spark.sparkContext.parallelize([properties], 1).map(answer).collect()
    assert none == ""
    tried("connections of executors", len(cases))
