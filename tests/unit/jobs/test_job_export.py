"""What `jobs export` writes for a scheduler, and what it refuses to write."""

import json
import shlex
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.kafka.connection.access import Access
from eoctl.operations.jobs.job_export import export
from eoctl.operations.jobs.spark_launch import Spark, _environment, check_installed
from eoctl.operations.state.export import _from_anywhere
from recovery.errors import RefusedError, UsageError
from recovery.values import replace
from spark_jobs.session import job

REQUEST = RebuildRequest(("a", "b"), "lso", Making("plain", {}, "/state/{date}"), since="/old")
SERVERS = {"bootstrap.servers": "b1:9092"}


def exported(
    folder: Path,
    conf: Mapping[str, str] | None = None,
    master: str = "yarn",
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Export a rebuild; the words of its command line, as a shell reads them."""
    access = Access({**SERVERS, **(properties or {})})
    row = export(
        folder, "rebuild", json.loads(REQUEST.to_json()), access, Spark(master, conf=conf or {})
    )
    words = shlex.split((folder / "submit.txt").read_text())
    assert row.argv == words
    return words


def test_the_folder_holds_all_that_spark_submit_needs(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    secret = "env:KAFKA_PASSWORD"
    words = exported(folder, {"spark.executor.memory": "4g"}, properties={"sasl.password": secret})
    (code,) = folder.glob("*.zip")
    assert {p.name for p in folder.iterdir()} == {
        code.name,
        "rebuild.py",
        "spec.json",
        "submit.txt",
    }
    modes = {p.stat().st_mode & 0o777 for p in folder.iterdir()}
    assert (modes, folder.stat().st_mode & 0o777) == ({0o644}, 0o755)  # the scheduler's user reads
    assert words[:3] == ["spark-submit", "--master", "yarn"]
    assert words[-5:] == ["--py-files", code.name, "rebuild.py", "--spec", "spec.json"]
    confs = {words[i + 1] for i, word in enumerate(words) if word == "--conf"}
    assert {"spark.executor.memory=4g", "spark.speculation=false"} <= confs
    with zipfile.ZipFile(code) as archive:
        names = set(archive.namelist())
    assert {"eoctl/__init__.py", "recovery/errors.py", "spark_jobs/rebuild.py"} <= names
    spec, access = job._spec_and_access(None, str(folder / "spec.json"))
    assert access.properties == SERVERS | {"sasl.password": secret}
    assert RebuildRequest.from_json(json.dumps(spec["request"])) == REQUEST


@pytest.mark.parametrize(
    "key", ["sasl.password", "ssl.key.password", "sasl.jaas.config", "ssl.keystore.key"]
)
def test_a_literal_secret_is_never_written(tmp_path: Path, key: str) -> None:
    with pytest.raises(
        UsageError, match=f"{key}: the spec would contain the secret itself; give env:NAME or file"
    ):
        exported(tmp_path / "job", properties={key: "hunter2"})
    assert not (tmp_path / "job").exists()
    with pytest.raises(UsageError, match="the spec would contain a login"):
        export(tmp_path, "rebuild", {}, Access(SERVERS, {}, "me:hunter2@p:1080"), Spark("yarn"))
    assert list(tmp_path.iterdir()) == []


def test_where_a_key_lies_is_no_secret(tmp_path: Path) -> None:
    """Neither for the export nor for the job that reads the spec."""
    url = {"sasl.oauthbearer.token.endpoint.url": "https://login"}
    exported(tmp_path / "job", properties=url)
    _, access = job._spec_and_access(None, str(tmp_path / "job" / "spec.json"))
    assert access.properties == SERVERS | url


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(RefusedError, match="holds other files"):
        exported(tmp_path)


def test_files_are_found_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which spark-submit runs; the driver takes no Python out of the executors' archive."""
    monkeypatch.chdir(tmp_path)
    words = exported(
        tmp_path / "job",
        {
            "spark.archives": "env.tar.gz#environment,s3a://b/x.tar.gz#x",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.submit.pyFiles": "mine.zip",
        },
    )
    assert f"spark.archives={tmp_path}/env.tar.gz#environment,s3a://b/x.tar.gz#x" in words
    assert "spark.pyspark.python=./environment/bin/python" in words
    assert "spark.pyspark.driver.python=python3" in words
    assert words[words.index("--py-files") + 1].endswith(f".zip,{tmp_path}/mine.zip")


def test_a_rebuild_is_found_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths become absolute; addresses of object storage stay, and hold no path of this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    request = RebuildRequest(("t",), "c.json", Making("plain", {}, "new/{date}"), since="old")
    made = _from_anywhere(request)
    here = str(tmp_path)
    assert (made.at, made.how.output) == (f"{here}/c.json", f"{here}/new/{{date}}")
    assert made.since == f"{here}/old/manifest.json"
    for given, scheme in (("s3://b/", "s3"), ("s3a:/b/", "s3a"), ("gs://b/", "gs")):
        output = replace(request.how, output=f"{given}new/{{date}}")  # Path leaves one slash
        made = _from_anywhere(replace(request, at="lso", how=output, since=f"{given}old"))
        assert (made.at, made.how.output) == ("lso", f"{scheme}://b/new/{{date}}")
        assert made.since == f"{scheme}://b/old/manifest.json"
        assert here not in made.to_json()
        assert RebuildRequest.from_json(made.to_json()) == replace(made, engine="auto")
        rebuild_job = job.dated(json.loads(made.to_json()), "2026-02-28")
        assert rebuild_job["how"]["output"] == f"{scheme}://b/new/2026-02-28"


def test_a_driver_on_the_cluster(tmp_path: Path) -> None:
    """Exported, with the spec sent along; not launched, and not where Spark itself cannot."""
    conf = {"spark.submit.deployMode": "cluster", "spark.pyspark.python": "./e/bin/python"}
    words = exported(tmp_path / "job", conf)
    assert words[3:7] == ["--deploy-mode", "cluster", "--files", "spec.json"]
    assert "spark.yarn.maxAppAttempts=1" in words
    assert not [word for word in words if "driver.python" in word or "deployMode" in word]
    with pytest.raises(
        UsageError, match=r"the driver runs here, .*; `eoctl jobs export DIR` writes"
    ):
        check_installed(Spark("yarn", conf=conf))
    with pytest.raises(UsageError, match="Spark runs no Python driver on spark://m:7077"):
        exported(tmp_path / "other", conf, "spark://m:7077")


def python_of(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, given: str | None = None
) -> str | None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if given is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    return _environment(spark, "id").get("PYSPARK_PYTHON")


def test_the_executors_python_is_this_one_only_where_they_run_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf = {"spark.pyspark.python": "./environment/bin/python"}
    for master in (None, "local", "local[2]", "local-cluster[2,1,512]"):
        assert python_of(monkeypatch, Spark(master)) == sys.executable
        assert python_of(monkeypatch, Spark(master), "/mine") == "/mine"
    for spark in (Spark("spark://m:7077"), Spark("yarn"), Spark(None, "sc://m:15002")):
        assert python_of(monkeypatch, spark) is None
        assert python_of(monkeypatch, spark, "/mine") == "/mine"
    for master in ("local[2]", "yarn"):
        assert (
            python_of(monkeypatch, Spark(master, conf=conf), "/mine")
            == conf["spark.pyspark.python"]
        )


def test_the_day_of_a_scheduled_run() -> None:
    request: dict[str, Any] = {"how": {"output": "/s/{date}/{x}", "format": "{date}"}, "at": "lso"}
    day = job.day("2026-02-28")
    assert job.dated(request, day) == {
        "how": {"output": "/s/2026-02-28/{x}", "format": "{date}"},
        "at": "lso",
    }
    for wrong in ("yesterday", "2026-02-30"):
        with pytest.raises(UsageError, match="--date: write YYYY-MM-DD"):
            job.day(wrong)


def test_a_spec_of_a_wish_with_other_fields() -> None:
    with pytest.raises(UsageError, match="changelogs"):
        job.understood(lambda given: RebuildRequest.from_json(json.dumps(given)), {"at": "lso"})
