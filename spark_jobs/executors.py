"""Running our own code on Spark's executors: shipping it, checking where it lands, calling it.

`ship` sends eoctl's packages as a zip, `run` calls a picklable function once per task and brings
its answers back. Works with a classic session and with Spark Connect. What a function closes over
(credentials, say) travels pickled and shows up in no plan, conf or page.
"""

import atexit
import hashlib
import importlib
import json
import os
import re
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from eoctl.stores.state_files import not_written
from recovery import errors
from recovery.errors import EoctlError, RefusedError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("eoctl", "recovery", "spark_jobs")
NEEDED = ("numpy", "pyarrow", "crc32c", "kafka", "pydantic")
INSTALL = "install numpy, pyarrow, crc32c, kafka-python, pydantic and confluent-kafka there"

_shipped: "WeakSet[SparkSession]" = WeakSet()


def is_connect(spark: "SparkSession") -> bool:
    """Whether this session speaks Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def code_zip(folder: Path) -> Path:
    """Write the packages that executors import into one zip, named by its content; its path.

    Where this runs from such a zip (spark-submit --py-files), that one.
    """
    root = Path(__file__).resolve().parent.parent
    if root.is_file():
        return root
    files = sorted(
        path
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in (".py", ".json") and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    made = folder / f"eoctl-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
    return made


def ship(spark: "SparkSession") -> None:
    """Send our packages to the session's executors, once for each session."""
    if spark in _shipped:
        return
    folder = Path(tempfile.mkdtemp(prefix="eoctl-code-"))  # Spark serves it until the end
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(code_zip(folder))
    if is_connect(spark):
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)
    _shipped.add(spark)


def run(
    spark: "SparkSession", function: Callable[[int], Any], count: int, what: str = "eoctl"
) -> list[Any]:
    """`function(0)` to `function(count - 1)`, a task each; their JSON-able answers in that order.

    An EoctlError of a task is raised here and the task is not tried again; any other failure is
    Spark's to retry (spark.task.maxFailures). what: the jobs' name in Spark's UI.
    """
    if count == 0:
        return []
    ship(spark)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for task in batch.column(0).to_pylist():
                text = json.dumps(answer_or_error(function, task))
                yield pa.RecordBatch.from_pydict({"task": [task], "answer": [text]}, schema=schema)

    import pyarrow as pa

    schema = pa.schema([("task", pa.int64()), ("answer", pa.string())])
    frame = spark.range(0, count, 1, count).mapInArrow(call, "task long, answer string")
    rows = collected(spark, frame, what)
    found = {row["task"]: json.loads(row["answer"]) for row in rows}
    raise_first(found.values())
    return [found[task]["answer"] for task in range(count)]


def answer_or_error(function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
    """What a task sends home: its answer, or an error of ours as its parts."""
    try:
        return {"answer": function(argument)}
    except EoctlError as error:
        parts = {"what": error.what, "where": error.where, "remedy": error.remedy}
        return {"error": {"type": _public(type(error)), **parts}}


def _public(kind: type[EoctlError]) -> str:
    return next(k.__name__ for k in kind.__mro__ if k.__module__ == errors.__name__)


def raise_first(answers: Any) -> None:
    """Raise the first error among answers, as the type that it had in its task."""
    for answer in answers:
        if "error" in answer:
            parts = dict(answer["error"])
            raise getattr(errors, parts.pop("type"))(parts.pop("what"), **parts)


def collected(spark: "SparkSession", frame: Any, what: str) -> list[Any]:
    """The rows of a frame, in a sentence what goes wrong with the executors' Python."""
    _describe(spark, what)
    try:
        rows = list(frame.collect())
    except Exception as error:  # an interrupt passes: its connection to the JVM is still in use
        _describe(spark, None)
        text = text_of(error)
        if missing := re.search(r"No module named '([A-Za-z0-9_.]+)'", text):
            raise UsageError(f"the executors' Python has no {missing[1]}", remedy=INSTALL) from None
        if "PYTHON_VERSION_MISMATCH" in text:
            raise UsageError(
                "the executors run another Python than this one",
                remedy="set spark.pyspark.python there to the same minor version",
            ) from None
        if ours := of_ours(text):
            raise ours from None
        raise
    _describe(spark, None)
    return rows


def text_of(failure: Exception) -> str:
    """Its words. One of py4j's asks the JVM for them, and raises where that is gone."""
    try:
        return str(failure)
    except Exception as error:
        return f"{type(failure).__name__}, and Spark's JVM does not say more: {error}"


def of_ours(text: str) -> EoctlError | None:
    """The error of ours that a stack trace of Spark's ends with, in the Data Source, say."""
    found = re.findall(r"^recovery\.(?:errors|formats\.reader)\.(\w+Error): (.+)$", text, re.M)
    if not found:
        return None
    name, sentence = found[-1]  # the last one is what became of those before it
    kind = getattr(errors, "IncompleteError" if name == "CorruptError" else name, None)
    return None if kind is None else kind(sentence)


def _describe(spark: "SparkSession", what: str | None) -> None:
    """What Spark's pages call the jobs that follow."""
    if not is_connect(spark):
        spark.sparkContext.setLocalProperty("spark.job.description", what)  # type: ignore[arg-type]


def check(spark: "SparkSession", folder: Path, tasks: int) -> None:
    """Prove that executors and this process see one folder, and that our code runs there.

    Each writes a probe file that the other must read. Raises RefusedError, UsageError that names
    the package an executor lacks, IncompleteError where the disk is full.
    """
    token = uuid.uuid4().hex
    ours = folder / f".probe-{token}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours.write_text(token)
    except OSError as error:
        raise not_written(folder, error) from None
    path = str(folder)
    try:
        names = run(spark, lambda task: _probe(path, token, task), tasks, "eoctl: probe")
        for name in names:
            seen = folder / name
            if not seen.exists() or seen.read_text() != token:
                raise RefusedError(
                    "what executors write here is not seen by the process that publishes it",
                    where=path,
                    remedy="name a folder that all of them share",
                )
    finally:
        for probe in folder.glob(f".probe-{token}*"):
            probe.unlink(missing_ok=True)


def _probe(folder: str, token: str, task: int) -> str:
    for name in NEEDED:
        try:
            importlib.import_module(name) if name != "kafka" else _find(name)
        except ImportError:
            raise UsageError(f"the executors' Python has no {name}", remedy=INSTALL) from None
        except Exception as error:  # parts of it are of another version, say
            what = f"the executors' Python cannot import {name}: {error}"
            raise UsageError(what, remedy=INSTALL) from None
    ours = Path(folder) / f".probe-{token}"
    if not ours.exists() or ours.read_text() != token:
        raise RefusedError(
            "the executors do not see this folder as the job does",
            where=folder,
            remedy="name a folder that all of them share",
        )
    name = f".probe-{token}-{task}-{os.getpid()}"
    try:
        (Path(folder) / name).write_text(token)
    except OSError as error:
        raise not_written(Path(folder), error) from None
    return name


def _find(name: str) -> None:
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ImportError(name)
