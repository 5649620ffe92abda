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
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from eoctl.stores import private
from eoctl.stores.state_files import not_written
from recovery import errors
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from recovery.formats.reader import CorruptError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("eoctl", "recovery", "spark_jobs")
NEEDED = ("numpy", "pyarrow", "crc32c", "kafka", "pydantic")
INSTALL = "install numpy, pyarrow, crc32c, kafka-python, pydantic and confluent-kafka there"

LOOK_SECONDS = 0.5

_checked: "WeakKeyDictionary[Any, set[Path]]" = WeakKeyDictionary()
"""Of each application (see `_application`) to whose executors our code was sent, the folders
within which they write where this process reads."""
_served: list[Path] = []
"""Folders of code that Spark serves until the application ends."""


def is_connect(spark: "SparkSession") -> bool:
    """Whether this session speaks Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def at_once(spark: "SparkSession", tasks: int) -> int:
    """How many of so many tasks run at once, at most: those that share a rate."""
    if is_connect(spark):
        return max(1, tasks)
    context = spark.sparkContext
    return max(1, min(tasks, slots(str(context.master), context.defaultParallelism) or tasks))


def slots(master: str, parallelism: int) -> int | None:
    """How many tasks run at once at most; None: it is a cluster, which does not tell.

    parallelism: Spark's default one, which anybody may set below what local[*] runs.
    """
    if master == "local":
        return 1
    if not (local := re.fullmatch(r"local\[ *(\d+|\*) *(?:,[^]]*)?\]", master)):
        return None
    if local[1] != "*":
        return int(local[1])
    return max(parallelism, os.cpu_count() or 1)


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
    """Send our packages to the application's executors, once."""
    if _application(spark) in _checked:
        return
    folder = Path(tempfile.mkdtemp(prefix="eoctl-code-"))
    _served.append(folder)
    path = str(code_zip(folder))
    if is_connect(spark):
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)
    _checked[_application(spark)] = set()


def _application(spark: "SparkSession") -> Any:
    """What lives as long as code that was sent: in foreachBatch each batch has another session of
    one SparkContext, and Spark Connect keeps code for each session."""
    return spark.client if is_connect(spark) else spark.sparkContext


@atexit.register
def forget_code() -> None:
    """Remove what was sent, at the end of the application."""
    while _served:
        shutil.rmtree(_served.pop(), ignore_errors=True)


def run(
    spark: "SparkSession",
    function: Callable[[int], Any],
    count: int,
    what: str = "eoctl",
    *,
    told: Path | None = None,
) -> list[Any]:
    """`function(0)` to `function(count - 1)`, a task each; their JSON-able answers in that order.

    An EoctlError of a task is raised here and the task is not tried again; any other failure is
    Spark's to retry (spark.task.maxFailures). what: the jobs' name in Spark's UI.
    told: a folder that tasks and this process see. With it the first error that no retry mends
    (see `lasting`) cancels the other tasks at once, and any other error is Spark's to retry.
    """
    if count == 0:
        return []
    ship(spark)

    refused = None if told is None else str(told / f"refused-{uuid.uuid4().hex}")

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for task in batch.column(0).to_pylist():
                found = _tried(function, task, refused)
                text = json.dumps(found)
                yield pa.RecordBatch.from_pydict({"task": [task], "answer": [text]}, schema=schema)

    import pyarrow as pa

    schema = pa.schema([("task", pa.int64()), ("answer", pa.string())])
    frame = spark.range(0, count, 1, count).mapInArrow(call, "task long, answer string")
    with _cancelled_by(spark, refused):
        rows = collected(spark, frame, what)
    found = {row["task"]: json.loads(row["answer"]) for row in rows}
    raise_first(found.values())
    return [found[task]["answer"] for task in range(count)]


def lasting(error: EoctlError) -> bool:
    """Whether trying again cannot mend it: what is refused, wrongly asked for, or corrupt."""
    return isinstance(error, CorruptError) or not isinstance(
        error, IncompleteError | UnreachableError
    )


def _tried(function: Callable[[int], Any], task: int, refused: str | None) -> dict[str, Any]:
    """A task's answer. refused: the path at which to leave an error that lasts, for `run`; one
    that may pass is raised then, for Spark to try again."""
    if refused is None:
        return answer_or_error(function, task)
    try:
        return {"answer": function(task)}
    except EoctlError as error:
        if not lasting(error):
            raise getattr(errors, _public(type(error)))(error.sentence) from error
        parts = _parts(error)
        Path(f"{refused}.part-{task}").write_text(json.dumps(parts), encoding="utf-8")
        Path(f"{refused}.part-{task}").replace(refused)
        return parts


@contextmanager
def _cancelled_by(spark: "SparkSession", refused: str | None) -> Iterator[None]:
    """Within it, what this thread runs on Spark is cancelled once there is a file `refused`, and
    the error that stands in it is raised instead of what comes of that."""
    if refused is None:
        yield
        return
    path, tag, ended = Path(refused), f"eoctl-{uuid.uuid4().hex}", threading.Event()

    # a classic session's own tags do not reach collect() in Spark 4.3.0
    add, remove = spark.addTag, spark.removeTag
    cancel: Callable[[str], object] = spark.interruptTag
    if not is_connect(spark):
        context = spark.sparkContext
        add, remove = context.addJobTag, context.removeJobTag
        cancel = context.cancelJobsWithTag

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            if path.exists():
                with suppress(Exception):  # the job has just ended
                    cancel(tag)

    watching = threading.Thread(target=watch, name="eoctl-refused", daemon=True)
    add(tag)
    watching.start()
    try:
        yield
    except Exception:
        if not path.exists():
            raise
        raise_first([json.loads(path.read_text(encoding="utf-8"))])
    finally:
        ended.set()
        watching.join()
        remove(tag)
        path.unlink(missing_ok=True)


def answer_or_error(function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
    """What a task sends home: its answer, or an error of ours as its parts."""
    try:
        return {"answer": function(argument)}
    except EoctlError as error:
        return _parts(error)


def _parts(error: EoctlError) -> dict[str, Any]:
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
        if re.search("indeterminate", text, re.IGNORECASE):
            raise IncompleteError(
                "Spark lost a part of a DataFrame that gives other rows each time it is evaluated, "
                "and broke off; nothing of it was sent",
                remedy="call it again, or checkpoint() the DataFrame before",
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


SHARED = "name a folder that all of them share, as one user: what is written there is private"


def check_within(spark: "SparkSession", folder: Path, shared: Path, tasks: int) -> None:
    """Make a folder, and `check` it once for all folders within `shared`: it is a job of Spark's.

    Raises what `check` does.
    """
    shared = shared.resolve()
    if shared in _checked.get(_application(spark), ()):
        try:
            private.make_folder(folder)
        except OSError as error:
            raise not_written(folder, error) from None
        return
    check(spark, folder, tasks)
    _checked[_application(spark)].add(shared)


def check(spark: "SparkSession", folder: Path, tasks: int) -> None:
    """Prove that executors and this process see one folder, and that our code runs there.

    Each writes a probe file, as private as what follows, that the other must read. Raises
    RefusedError, UsageError that names the package an executor lacks, IncompleteError where the
    disk is full.
    """
    token = uuid.uuid4().hex
    ours = folder / f".probe-{token}"
    try:
        private.make_folder(folder)
        private.make_file(ours).write_text(token)
    except OSError as error:
        raise not_written(folder, error) from None
    path = str(folder)
    try:
        names = run(spark, lambda task: _probe(path, token, task), tasks, "eoctl: probe")
        for name in names:
            if not _holds(folder / name, token):
                raise RefusedError(
                    "what executors write here is not seen by the process that publishes it",
                    where=path,
                    remedy=SHARED,
                )
    finally:
        for probe in folder.glob(f".probe-{token}*"):
            with suppress(OSError):
                probe.unlink()


def _holds(probe: Path, token: str) -> bool:
    """Is the file there, and may this process read it? It is another user's, perhaps."""
    try:
        return probe.read_text() == token
    except OSError:
        return False


def _probe(folder: str, token: str, task: int) -> str:
    for name in NEEDED:
        try:
            importlib.import_module(name) if name != "kafka" else _find(name)
        except ImportError:
            raise UsageError(f"the executors' Python has no {name}", remedy=INSTALL) from None
        except Exception as error:  # parts of it are of another version, say
            what = f"the executors' Python cannot import {name}: {error}"
            raise UsageError(what, remedy=INSTALL) from None
    if not _holds(Path(folder) / f".probe-{token}", token):
        raise RefusedError(
            "the executors do not see this folder as the job does",
            where=folder,
            remedy=SHARED,
        )
    name = f".probe-{token}-{task}-{uuid.uuid4().hex}"  # an attempt that comes again has its own
    try:
        private.make_file(Path(folder) / name).write_text(token)
    except OSError as error:
        raise not_written(Path(folder), error) from None
    return name


def _find(name: str) -> None:
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ImportError(name)
