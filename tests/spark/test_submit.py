"""Jobs on a cluster whose machines have nothing of eoctl's, and jobs that a scheduler submits."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.docs.pages import follows
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill
from tests.kafka.test_state_objects import BUCKET, SECRET, Objects
from tests.object_store import environment as store_environment
from tests.object_store import make_bucket, s3_server
from tests.spark.starting import home, standalone_cluster

LOW = ("--conf", "spark.executor.memory=512m")


def made(lab: Lab, **config: str) -> str:
    """A changelog of two partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"store-{uuid.uuid4().hex[:8]}-changelog"
    admin = AdminClient(lab.client_properties())
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(20)
    fill(lab, name, seed=4, records=3000, keys=300, partitions=2)
    return name


@pytest.fixture(scope="module")
def changelog(lab1: Lab) -> str:
    return made(lab1, **{"cleanup.policy": "delete", "retention.ms": "-1"})


def interpreter(path: Path, *options: str) -> Path:
    """A Python that has this one's packages but eoctl's, or with -S none at all."""
    base, packages = os.path.realpath(sys.executable), home().parent
    paths = "" if "-S" in options else f'PYTHONPATH="$PYTHONPATH:{packages}" '
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{paths}exec {base} {" ".join(options)} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster whose python3 has no packages."""
    folder = tmp_path_factory.mktemp("cluster")
    bare = interpreter(folder / "bin" / "python3", "-S")
    path = f"{bare.parent}:{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYSPARK_PYTHON", raising=False)
        with standalone_cluster(folder, {"PATH": path, "PYSPARK_PYTHON": "python3"}) as url:
            yield url


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed environment: what venv-pack and conda-pack make has bin/python too."""
    folder = tmp_path_factory.mktemp("archive")
    packed = folder / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(interpreter(folder / "bin" / "python"), "bin/python")
    return packed


def sent(archive: Path) -> tuple[str, ...]:
    """The confs by which Spark sends an environment to its executors."""
    return (
        *("--conf", f"spark.archives={archive}#environment"),
        *("--conf", "spark.pyspark.python=./environment/bin/python"),
    )


def rebuild(lab: Lab, changelog: str, folder: Path, *words: str) -> Ran:
    plain = ("--format", "plain", "--at", "lso", "--output", str(folder), "-o", "json")
    return eoctl("state", "rebuild", changelog, *plain, *words, lab=lab, timeout=400)


def export(lab: Lab, changelog: str, job: Path, output: str, *words: str, **env: str) -> Ran:
    plain = ("--format", "plain", "--at", "lso", "--output", output, "-o", "json")
    asked = ("jobs", "export", str(job), changelog, *plain, *words)
    return eoctl(*asked, lab=lab, env=environment(**env))


def submitted(
    job: Path, python: Path, *more: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    """Run the line of an exported folder as a scheduler would, without eoctl beside it."""
    words = shlex.split((job / "submit.txt").read_text())
    there = environment(
        PATH=f"{home() / 'bin'}:{os.environ['PATH']}",
        PYSPARK_PYTHON=None,
        PYSPARK_DRIVER_PYTHON=None,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_HOME=str(home()),
        HOME=None,
        EOCTL_STATE_DIR=None,
        **env,
    )
    check = [str(python), "-c", "import numpy; import eoctl"]
    none = subprocess.run(check, cwd=job, capture_output=True, text=True, check=False)
    assert "No module named 'eoctl'" in none.stderr
    return subprocess.run(
        [*words, *more],
        cwd=job,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=there,
    )


@follows("docs/spark.md", "An environment for the executors")
@pytest.mark.timeout(900)
def test_the_page(
    it: Reading, lab1: Lab, changelog: str, cluster: str, archive: Path, tmp_path: Path
) -> None:
    """From the folder with the archive, as `conda pack` leaves it there."""
    shutil.copy(archive, "environment.tar.gz")
    it.lab = lab1
    it.names |= {
        "store-changelog": changelog,
        "/shared/state": str(tmp_path / "state"),
        "spark://m:7077": cluster,
    }
    it.run("state rebuild", 0, None, *LOW)
    found = Rebuilt(tmp_path / "state")
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_executors_that_lack_packages_get_them_by_an_archive(
    lab1: Lab, changelog: str, cluster: str, archive: Path, tmp_path: Path
) -> None:
    there = ("--master", cluster, *LOW)
    ran = rebuild(lab1, changelog, tmp_path / "no", *there)
    assert ran.status == 2, ran.stderr
    # the first that is imported there
    assert "eoctl: the executors' Python has no pydantic; install numpy, pyarrow" in ran.text
    assert "or send an archive (docs/spark.md, " in ran.text
    wrong = "/no/such/python"
    ran = rebuild(
        lab1, changelog, tmp_path / "no2", *there, "--conf", f"spark.pyspark.python={wrong}"
    )
    assert ran.status == 2, ran.stderr
    assert f"eoctl: the executors have no Python {wrong}; give theirs with --conf" in ran.text
    ran = rebuild(lab1, changelog, tmp_path / "out", *there, *sent(archive))
    assert ran.status == 0, ran.stderr
    found = Rebuilt(tmp_path / "out")
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_exported_job_runs_by_spark_submit_alone(
    lab1: Lab, changelog: str, cluster: str, archive: Path, tmp_path: Path
) -> None:
    """Its cut is made when it runs; its digest is that of the same rebuild by eoctl."""
    job, output = tmp_path / "job", str(tmp_path / "state" / "{date}")
    python = interpreter(tmp_path / "python")
    driver = ("--conf", f"spark.pyspark.driver.python={python}")
    ran = export(lab1, changelog, job, output, "--master", cluster, *LOW, *sent(archive), *driver)
    assert ran.status == 0, ran.stderr
    fill(lab1, changelog, seed=5, records=500, keys=300, partitions=2)
    done = submitted(job, python, "--date", "2026-11-20")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = Rebuilt(tmp_path / "state" / "2026-11-20")
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])
    ran = rebuild(lab1, changelog, tmp_path / "again", "--engine", "local")
    assert ran.json["digest"] == found.manifest.digest.model_dump(mode="json")
    # spark-submit writes the job's stderr to stdout as well: the result is the last
    result = json.loads(done.stdout[done.stdout.rindex('{\n "') :])
    assert (result["complete"], result["digest"]) == (True, ran.json["digest"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_exported_job_into_object_storage(lab1: Lab, changelog: str, tmp_path: Path) -> None:
    """Whose credentials are in the environment of the job alone."""
    job, python = tmp_path / "job", interpreter(tmp_path / "python")
    here = [f"spark.pyspark.{which}={python}" for which in ("python", "driver.python")]
    words = ("--master", "local[2]", "--conf", here[0], "--conf", here[1])
    with s3_server() as port:
        make_bucket(port, BUCKET)
        there = store_environment(port)
        ran = export(lab1, changelog, job, f"s3://{BUCKET}/jobs/{{date}}", *words, **there)
        assert ran.status == 0, ran.stderr
        for name in ("spec.json", "submit.txt"):
            assert SECRET not in (job / name).read_text()
        done = submitted(job, python, "--date", "2026-11-20", **there)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert SECRET not in done.stdout + done.stderr
        Objects(port, "jobs/2026-11-20").check(lab1, changelog)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_how_an_exported_job_ends(lab1: Lab, tmp_path: Path) -> None:
    """3 for a state that is not provably complete, which is written; 4 for one that is there."""
    log = made(lab1, **{"cleanup.policy": "delete", "retention.ms": "900000000"})
    job, python = tmp_path / "job", interpreter(tmp_path / "python")
    here = [f"spark.pyspark.{which}={python}" for which in ("python", "driver.python")]
    words = ("--master", "local[2]", "--conf", here[0], "--conf", here[1])
    assert export(lab1, log, job, str(tmp_path / "out"), *words).status == 0
    done = submitted(job, python)
    assert done.returncode == 3, done.stderr[-3000:]
    assert not Rebuilt(tmp_path / "out").manifest.complete
    done = submitted(job, python)
    assert done.returncode == 4, done.stderr[-3000:]
    assert "there is a state already" in done.stdout + done.stderr
    done = submitted(job, python, "--date", "tomorrow")
    assert done.returncode == 2, done.stderr[-3000:]


def test_an_export_is_tried_against_the_cluster_first(
    lab1: Lab, changelog: str, tmp_path: Path
) -> None:
    master = ("--master", "spark://m:7077")
    ran = export(lab1, f"{changelog}-x", tmp_path / "no", str(tmp_path / "out"), *master)
    assert ran.status != 0
    assert f"{changelog}-x" in ran.text
    assert not (tmp_path / "no").exists()
    ran = export(lab1, changelog, tmp_path / "job", str(tmp_path / "{date}"), *master)
    assert (ran.status, ran.rows[0]["folder"]) == (0, str(tmp_path / "job"))
    request = json.loads((tmp_path / "job" / "spec.json").read_text())["request"]
    assert (request["at"], request["how"]["output"]) == ("lso", str(tmp_path / "{date}"))
    assert "cut" not in request
