"""Run our own code on Spark's executors: ship it, check where it lands, call it.

`ship` sends eoctl's packages as a zip, `run` calls a picklable function once per task and returns
the answers. Works with a classic session and with Spark Connect. What a function closes over
(credentials, say) travels pickled and appears in no plan, conf or page.
"""

import atexit
import importlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from eoctl.engine.code_zip import code_zip
from eoctl.stores import private
from eoctl.stores.storage import PROBE, LocalFolder, Storage, not_written
from eoctl.stores.storage_address import storage_at
from recovery import errors
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.formats.reader import CorruptError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("numpy", "pyarrow", "crc32c", "kafka", "msgspec", "pydantic")
NEEDED_BY_DRIVER = (*NEEDED, "pandas")  # Spark's mapInArrow needs it in the driver
INSTALL = (
    "install numpy, pyarrow, crc32c, kafka-python, msgspec, pydantic, confluent-kafka, obstore "
    "(for object storage) and 'pandas<3' (for the driver) there, or send an archive "
    '(docs/spark.md, "An environment for the executors")'
)

LOOK_SECONDS = 0.5

_checked: "WeakKeyDictionary[Any, set[Path | str]]" = WeakKeyDictionary()
"""Of each application (see `_application`) to whose executors our code was sent, the folders and
the addresses within which they write where this process reads."""
_served: list[Path] = []
"""Folders of code that Spark serves until the application ends."""


def is_connect(spark: "SparkSession") -> bool:
    """Return True if this session uses Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def tries(spark: "SparkSession") -> int:
    """Return how often Spark tries a task before the job fails; 1 if that is not known."""
    conf = spark.conf
    return tries_of(conf.get("spark.master", None), conf.get("spark.task.maxFailures", None))


def tries_of(master: str | None, failures: str | None) -> int:
    """Return what `tries` does. failures: spark.task.maxFailures, which local[N] ignores."""
    if master is None or master == "local":
        return 1
    if local := re.fullmatch(r"local\[[^],]*(?:, *(\d+) *)?\]", master):
        return int(local[1] or 1)
    return int(failures or 4)


def last_try(most: int) -> bool:
    """Return True, in a task tried at most so often, if the job would fail with this try.

    Counts attempts that Spark does not count as failures: True may come too early, never too late.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or context.attemptNumber() + 1 >= most


def ship(spark: "SparkSession") -> None:
    """Send our packages to the application's executors, once."""
    if _application(spark) in _checked:
        return
    folder = private.make_temporary("code")
    _served.append(folder)
    path = str(code_zip(folder))
    if is_connect(spark):
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)
    _checked[_application(spark)] = set()


def _application(spark: "SparkSession") -> Any:
    """Return the object that lives as long as code that was sent.

    In foreachBatch each batch has another session of one SparkContext, while Spark Connect keeps
    the code per session.
    """
    return spark.client if is_connect(spark) else spark.sparkContext


@atexit.register
def forget_code() -> None:
    """Remove the code that was sent, at the end of the application."""
    while _served:
        private.remove_temporary(_served.pop())


class Refusals:
    """The tasks' errors that no retry fixes; the first one ends the job at once.

    Tasks call `tried`; the process that waits for them calls `cancelling`. What a task adds to an
    accumulator arrives when the task ends, while its row arrives when all tasks have ended. Spark
    Connect has no accumulators: the error is raised to Spark as well, which gives up the job after
    spark.task.maxFailures tries.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._told = _lists(spark)

    def tried(self, function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
        """Return, in a task, the answer, or the error as `lasting` returns it."""
        try:
            return {"answer": function(argument)}
        except EoctlError as error:
            return self.lasting(error)

    def lasting(self, error: EoctlError) -> dict[str, Any]:
        """Return, in a task, an error that no retry fixes, as `raise_first` takes it.

        Raises any other error, for Spark to try again.
        """
        row = answered(error)
        if self._told is None or not lasting(error):
            raise getattr(errors, row["error"]["type"])(error.sentence) from error
        self._told.add([row])
        return row

    @contextmanager
    def cancelling(self, spark: "SparkSession") -> Iterator[None]:
        """Cancel what this thread runs on Spark at the first error that no retry fixes. Raise that
        error, not the one that the cancelling causes."""
        if self._told is None:
            yield
            return
        tag, ended, context = f"eoctl-{uuid.uuid4().hex}", threading.Event(), spark.sparkContext

        def watch() -> None:
            while not ended.wait(LOOK_SECONDS):
                if self._told.value:
                    with suppress(Exception):  # the job has just ended
                        context.cancelJobsWithTag(tag)

        watching = threading.Thread(target=watch, name="eoctl-refused", daemon=True)
        # the context's tag: a session's own tags do not reach collect() in Spark 4.3.0
        context.addJobTag(tag)
        watching.start()
        try:
            yield
        except Exception:
            raise_first(self._told.value)
            raise
        finally:
            ended.set()
            watching.join()
            context.removeJobTag(tag)


class EndedTasks:
    """What tasks report when they end, by accumulator: available as soon as Spark hears of it.

    told: whether they can report: Spark Connect has no accumulators; without Spark nobody listens.
    """

    def __init__(self, spark: "SparkSession | None") -> None:
        self._rows = None if spark is None else _lists(spark)

    @property
    def told(self) -> bool:
        return self._rows is not None

    @property
    def by_task(self) -> dict[int, tuple[int, int]]:
        """Return bytes and records of each ended task; one that was tried again counts once."""
        rows = [] if self._rows is None else self._rows.value
        return {task: (size, records) for task, size, records in rows}

    def add(self, task: int, size: int, records: int) -> None:
        """Report, in a task, that it has ended, and what it read."""
        if self._rows is not None:
            self._rows.add([(task, size, records)])


class Early:
    """What tasks give before the others have ended: a text each."""

    def __init__(self, spark: "SparkSession") -> None:
        self._rows = _lists(spark)
        self._given: set[int] = set()

    def add(self, task: int, text: str) -> bool:
        """Give, in a task, its text. Return False with Spark Connect, which has no accumulators."""
        if self._rows is None:
            return False
        self._rows.add([(task, text)])
        return True

    @property
    def by_task(self) -> dict[int, str]:
        return {} if self._rows is None else dict(self._rows.value)

    def new(self) -> Iterator[tuple[int, str]]:
        """Yield what came since the last call; what was not taken comes again."""
        for task, text in self.by_task.items():
            if task not in self._given:
                yield task, text
                self._given.add(task)


@contextmanager
def meanwhile(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` again and again in another thread, and once at the end of the block, however it
    ends. Raises what the last call raises."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(LOOK_SECONDS):
            with suppress(Exception):  # the last call meets it again
                do()

    working = threading.Thread(target=work, name="eoctl-meanwhile", daemon=True)
    working.start()
    try:
        yield
    finally:
        ended.set()
        working.join()
        do()


def _lists(spark: "SparkSession") -> Any:
    """Return an accumulator of lists, None with Spark Connect."""
    if is_connect(spark):
        return None
    added: Any = _Lists()  # a subclass of pyspark's class would load pyspark for every importer
    return spark.sparkContext.accumulator([], added)


class _Lists:
    """An accumulator that adds up lists: pyspark.AccumulatorParam."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, one: list[Any], more: list[Any]) -> list[Any]:  # noqa: N802 - Spark's
        one += more  # a list of its own for each task and for the driver, see `zero`
        return one


def run(
    spark: "SparkSession",
    function: Callable[[int], Any],
    count: int,
    what: str = "eoctl",
    *,
    sends: bool = False,
) -> list[Any]:
    """Call `function(0)` to `function(count - 1)`, one per task; return the answers in that order.

    Answers are JSON-able. The first EoctlError that no retry fixes (see `lasting`) cancels the
    other tasks and is raised; Spark retries after any other failure (spark.task.maxFailures). what:
    the jobs' name in Spark's UI. sends: when one task fails, others may have sent records already,
    so a UsageError, which promises that nothing was done, is raised as an IncompleteError.
    """
    if count == 0:
        return []
    ship(spark)
    refusals = Refusals(spark)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for task in batch.column(0).to_pylist():
                text = json.dumps(refusals.tried(function, task))
                yield pa.RecordBatch.from_pydict({"task": [task], "answer": [text]}, schema=schema)

    import pyarrow as pa

    schema = pa.schema([("task", pa.int64()), ("answer", pa.string())])
    frame = spark.range(0, count, 1, count).mapInArrow(call, "task long, answer string")
    try:
        rows = collected(spark, frame, what, refusals)
        by_task = {row["task"]: json.loads(row["answer"]) for row in rows}
        raise_first(by_task.values())
    except UsageError as error:
        if not sends:
            raise
        raise IncompleteError(error.what, where=error.where, remedy=error.remedy) from None
    return [by_task[task]["answer"] for task in range(count)]


def lasting(error: EoctlError) -> bool:
    """Return True if no retry can fix the error: a refusal, a wrong request, or corrupt data."""
    return isinstance(error, CorruptError) or not isinstance(
        error, IncompleteError | UnreachableError
    )


def answered(error: EoctlError) -> dict[str, Any]:
    """Return an error as `raise_first` takes it."""
    kind = next(k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__)
    parts = {"what": error.what, "where": error.where, "remedy": error.remedy}
    return {"error": {"type": kind, **parts}}


def raise_first(answers: Any) -> None:
    """Raise the first error among answers, as the type that it had in its task."""
    for answer in answers:
        if "error" in answer:
            parts = dict(answer["error"])
            raise getattr(errors, parts.pop("type"))(parts.pop("what"), **parts)


def collected(spark: "SparkSession", frame: Any, what: str, refusals: Refusals) -> list[Any]:
    """Return the rows of a frame; explain what goes wrong with the executors' Python.

    refusals: those that the frame's tasks use. Raises the first error that they report,
    IncompleteError if the rows are too large for the driver.
    """
    _describe(spark, what)
    try:
        with refusals.cancelling(spark):
            rows = list(frame.collect())
    except EoctlError:
        _describe(spark, None)
        raise
    except Exception as error:  # not an interrupt's: its connection to the JVM is still in use
        _describe(spark, None)
        text = text_of(error)
        if missing := re.search(r"No module named '([A-Za-z0-9_.]+)'", text):
            raise UsageError(f"the executors' Python has no {missing[1]}", remedy=INSTALL) from None
        if absent := re.search(r'Cannot run program "([^"]+)"', text):
            raise UsageError(
                f"the executors have no Python {absent[1]}",
                remedy="give theirs with --conf spark.pyspark.python=PATH, "
                'or send one (docs/spark.md, "An environment for the executors")',
            ) from None
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
        if (limit := "spark.driver.maxResultSize") in text:
            raise IncompleteError(
                f"what its tasks found is more than {limit} allows",
                where=what,
                remedy=f"name fewer topics or a shorter range, or more with --conf {limit}=",
            ) from None
        raise
    _describe(spark, None)
    return rows


def text_of(failure: Exception) -> str:
    """Return an error's text. A py4j error asks the JVM, and raises if the JVM is gone."""
    try:
        return str(failure)
    except Exception as error:
        return f"{type(failure).__name__}, and Spark's JVM does not say more: {error}"


def of_ours(text: str) -> EoctlError | None:
    """Return the EoctlError that ends one of Spark's stack traces (the Data Source's), or None."""
    matches = re.findall(r"^recovery\.(?:errors|formats\.reader)\.(\w+Error): (.+)$", text, re.M)
    if not matches:
        return None
    name, sentence = matches[-1]  # the last one is what the earlier ones became
    kind = getattr(errors, "IncompleteError" if name == "CorruptError" else name, None)
    return None if kind is None else kind(sentence)


def _describe(spark: "SparkSession", what: str | None) -> None:
    """Set the description that Spark's pages show for the following jobs."""
    if not is_connect(spark):
        spark.sparkContext.setLocalProperty("spark.job.description", what)  # type: ignore[arg-type]


SHARED = "name a folder that all of them share, as one user: what is written there is private"


def check_storage(spark: "SparkSession", storage: Storage, shared: Storage, tasks: int) -> None:
    """Prove, once within `shared`, that executors and this process see one storage.

    Raises what `check` does, and UnreachableError; RefusedError for object storage that overwrites
    objects that may only be created.
    """
    if isinstance(storage, LocalFolder) and isinstance(shared, LocalFolder):
        _check_within(spark, storage.path, shared.path, tasks)
    else:
        _check_objects(spark, shared, tasks)


def _check_within(spark: "SparkSession", folder: Path, shared: Path, tasks: int) -> None:
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

    Each writes a probe file, as private as later files, that the other must read. Raises
    RefusedError, UsageError that names the package an executor lacks, IncompleteError if the disk
    is full.
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
    """Return True if the file exists and this process may read it: another user may own it."""
    try:
        return probe.read_text() == token
    except OSError:
        return False


def _check_objects(spark: "SparkSession", storage: Storage, tasks: int) -> None:
    """Check object storage: executors take credentials from their own environment."""
    address = storage.address
    if address in _checked.get(_application(spark), ()):
        return
    storage.prove()
    token = uuid.uuid4().hex
    written = [f"{PROBE}{token}"]
    storage.put(written[0], token.encode())
    try:
        names = run(spark, lambda n: _probe_objects(address, token, n), tasks, "eoctl: probe")
        written += names
        if not all(_has(storage, name, token) for name in names):
            raise RefusedError(
                "what executors write here is not seen by the process that publishes it",
                where=address,
                remedy="give them the same endpoint in their environment (AWS_ENDPOINT_URL)",
            )
    finally:
        storage.delete(written)
    _checked[_application(spark)].add(address)


def _has(storage: Storage, probe: str, token: str) -> bool:
    with suppress(OSError):
        return storage.get(probe) == token.encode()
    return False


def _probe_objects(address: str, token: str, task: int) -> str:
    _import_needed((*NEEDED, "obstore"))
    storage = storage_at(address)
    if not _has(storage, f"{PROBE}{token}", token):
        raise RefusedError(
            "the executors do not see this object storage as the job does",
            where=address,
            remedy="give them the same endpoint in their environment (AWS_ENDPOINT_URL)",
        )
    name = f"{PROBE}{token}-{task}-{uuid.uuid4().hex}"
    storage.put(name, token.encode())
    return name


def _import_needed(names: Iterable[str]) -> None:
    """Raise UsageError naming the package that an executor lacks."""
    for name in names:
        try:
            importlib.import_module(name) if name != "kafka" else _find(name)
        except ImportError:
            raise UsageError(f"the executors' Python has no {name}", remedy=INSTALL) from None
        except Exception as error:  # for example, parts of the package are of different versions
            what = f"the executors' Python cannot import {name}: {error}"
            raise UsageError(what, remedy=INSTALL) from None


def _probe(folder: str, token: str, task: int) -> str:
    _import_needed(NEEDED)
    if not _holds(Path(folder) / f".probe-{token}", token):
        raise RefusedError(
            "the executors do not see this folder as the job does",
            where=folder,
            remedy=SHARED,
        )
    name = f".probe-{token}-{task}-{uuid.uuid4().hex}"  # an attempt that is repeated writes its own
    try:
        private.make_file(Path(folder) / name).write_text(token)
    except OSError as error:
        raise not_written(Path(folder), error) from None
    return name


def _find(name: str) -> None:
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ImportError(name)
