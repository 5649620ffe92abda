"""`jobs export`: write a folder with which a scheduler can run a job by spark-submit alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eoctl.engine.code_zip import code_zip
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.property_names import in_clear
from eoctl.operations.jobs.spark_launch import DEPLOY_MODE, PYTHON_CONF, SAFE, Spark
from eoctl.render.shell import command
from eoctl.settings.folders import full_disk
from eoctl.stores import private
from eoctl.stores.storage_address import is_address
from recovery.change.job_rows import JobExportRow
from recovery.errors import RefusedError, UsageError

SPEC, TEXT = "spec.json", "submit.txt"
ENTRY = '''"""The job of eoctl that spec.json describes, for the command line of submit.txt."""

import sys

try:
    from spark_jobs.session import job
    from spark_jobs.{name} import work
except ModuleNotFoundError as error:  # Python's own exit status is 1, which means a finding
    print(f"eoctl: the driver's Python has no {{error.name}}", file=sys.stderr)
    sys.exit(2)

job.main("{name}", work)
'''
DRIVER_PYTHON = "spark.pyspark.driver.python"
APP_ATTEMPTS = "spark.yarn.maxAppAttempts"
PY_FILES = "spark.submit.pyFiles"
OF_FILES = ("spark.archives", "spark.files", "spark.jars", PY_FILES)
"""Confs that list files, which spark-submit looks for below the folder it is run in."""


def export(
    folder: Path, name: str, request: Mapping[str, Any], access: Access, spark: Spark
) -> JobExportRow:
    """Write the job `spark_jobs.NAME` into a new folder: code, entry point, spec, command line.

    Every user of the machine, the scheduler's too, can read folder and files: they hold no secret.

    Raises UsageError for what spark-submit cannot do and for a secret that the spec would hold,
    RefusedError for a folder that is not empty, IncompleteError: disk full.
    """
    check(access, spark)
    entry = f"{name}.py"
    content = {
        "spark": {"name": f"eoctl {name}"},
        "access": {
            "properties": dict(access.properties),
            "hosts": dict(access.hosts),
            "socks5": access.socks5,
        },
        "request": dict(request),
    }
    try:
        private.make_folder(folder)
        if any(folder.iterdir()):
            raise RefusedError("holds other files", where=str(folder), remedy="give a new folder")
        code = code_zip(folder).name
        words = submit_words(spark, code, entry)
        texts = {
            entry: ENTRY.format(name=name),
            SPEC: json.dumps(content, indent=1) + "\n",
            TEXT: _line(words) + "\n",
        }
        for file, text in texts.items():
            private.make_file(folder / file).write_text(text, encoding="utf-8")
        for file in (code, *texts):
            (folder / file).chmod(0o644)
        folder.chmod(0o755)  # the scheduler's user reads it: `check` keeps every secret out
    except OSError as error:
        if full := full_disk(error):
            raise full from None
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder)) from None
    return JobExportRow(
        job=name,
        folder=str(folder),
        code=code,
        entry=entry,
        spec=SPEC,
        text=TEXT,
        argv=words,
    )


def check(access: Access, spark: Spark) -> None:
    """Raise UsageError for what cannot be exported."""
    master = spark.master or ""
    if _on_cluster(spark) and master.startswith(("spark:", "local")):
        raise UsageError(
            f"Spark runs no Python driver on {master}",
            where=f"--conf {DEPLOY_MODE}=cluster",
            remedy="leave it out: the driver then runs where spark-submit does",
        )
    if keys := in_clear(access.properties):
        raise UsageError(
            "the spec would contain the secret itself",
            where=keys[0],
            remedy="give env:NAME or file:PATH, which the job reads where it runs",
        )
    if "@" in (access.socks5 or ""):
        raise UsageError(
            "the spec would contain a login",
            where="socks5",
            remedy="name a proxy that takes none",
        )


def submit_words(spark: Spark, code: str, entry: str) -> list[str]:
    """Return the command line, its files relative to the exported folder."""
    conf = {**SAFE, **spark.conf}
    for key in OF_FILES:
        if key in conf:
            conf[key] = ",".join(anywhere(file.strip()) for file in conf[key].split(","))
    code = ",".join([code, *filter(None, [conf.pop(PY_FILES, "")])])
    words = ["spark-submit"]
    if spark.master is not None:  # else where spark-submit itself is set to run jobs
        words += ["--master", spark.where]
    if _on_cluster(spark):
        conf.pop(DEPLOY_MODE)
        files = ",".join([SPEC, *filter(None, [conf.pop("spark.files", "")])])
        words += ["--deploy-mode", "cluster", "--files", files]
        if spark.master in (
            None,
            "yarn",
        ):  # else YARN runs the job again whatever its exit status
            conf.setdefault(APP_ATTEMPTS, "1")
    elif PYTHON_CONF in conf:
        # else Spark looks for the executors' Python, maybe one in an archive, next to the driver
        conf.setdefault(DRIVER_PYTHON, "python3")
    for key, value in sorted(conf.items()):
        words += ["--conf", f"{key}={value}"]
    return [*words, "--py-files", code, entry, "--spec", SPEC]


def _line(words: list[str]) -> str:
    line = command(words)
    if line is None:
        raise UsageError("no command line can hold it", where="--conf")
    return line


def _on_cluster(spark: Spark) -> bool:
    return spark.conf.get(DEPLOY_MODE) == "cluster"


def anywhere(file: str) -> str:
    """Return a file's path made absolute, so that every folder can use it; addresses stay."""
    return file if is_address(file) else str(Path(file).absolute())
