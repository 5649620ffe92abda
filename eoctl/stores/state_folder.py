"""The folder of a state: rows of finished tasks until the manifest, the manifest, and tidying up.

manifest.json              published last; the state is what it lists
cut.json                   the same cut again: `--at DIR/cut.json`
data/TOPIC/P-UUID.parquet
request.json, tasks/, runs/    only while a rebuild is unfinished
"""

import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eoctl.stores.plan_files import sync_folder
from eoctl.stores.rebuild_task import TaskRow
from eoctl.stores.state_files import DATA, RUNS, StateFile, check_file, write_run
from recovery import cut as cuts
from recovery import manifest as manifests
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.manifest import Manifest

MANIFEST, CUT, REQUEST, TASKS = "manifest.json", "cut.json", "request.json", "tasks"


class Attempts:
    """The rows of tasks that are done, by the tasks' keys."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> TaskRow | None:
        """The row of an earlier run; None when there is none, or a file of it is gone."""
        path = self._folder / TASKS / f"{key}.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
            files = tuple(StateFile(**f) for f in found.pop("files"))
            row = TaskRow(**{**found, "files": files, "runs": tuple(found["runs"])})
            for file in files:
                check_file(self._folder, file)
            if not all((self._folder / run).exists() for run in row.runs):
                return None
        except (OSError, ValueError, TypeError, KeyError, EoctlError):
            return None
        return row

    def keep(self, key: str, row: TaskRow) -> None:
        """From now on the task is done."""
        write(self._folder / TASKS / f"{key}.json", json.dumps(asdict(row)))


def write(path: Path, text: str) -> None:
    """Write atomically (temporary file, fsync, rename). Raises UsageError."""
    name = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(name).chmod(0o644)
        Path(name).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if name is not None:
            with suppress(OSError):
                Path(name).unlink()
        raise UsageError(f"cannot be written: {error.strerror}", where=str(path)) from None


def unfinished(folder: Path) -> str | None:
    """The request that is unfinished there. Raises RefusedError for a folder of something else."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise UsageError("is no folder", where=str(folder))
    if (folder / MANIFEST).exists():
        raise RefusedError(
            "there is a state already", where=str(folder), remedy="give another --output"
        )
    with suppress(FileNotFoundError):
        return (folder / REQUEST).read_text(encoding="ascii")
    others = sorted(p.name for p in folder.iterdir() if not p.name.startswith(f".{REQUEST}."))
    if others:
        raise RefusedError(
            f"holds other files ({others[0]}, ...)",
            where=str(folder),
            remedy="give a new folder, or an empty one",
        )
    return None


def begin(folder: Path, request: str) -> None:
    """Note what is being made here."""
    write(folder / REQUEST, request)


def publish(folder: Path, manifest: Manifest) -> None:
    """Make the state the folder's; then remove what it does not need."""
    for part in manifest.partitions:
        sync_folder(folder / DATA / part.topic)
    write_cut(folder / CUT, manifest.cut)
    write(folder / MANIFEST, manifests.dump(manifest))
    tidy(folder, manifest)


def write_cut(path: Path, cut: cuts.Cut) -> None:
    """A cut file. Raises UsageError."""
    write(path, cuts.dump(cut))


def tidy(folder: Path, manifest: Manifest) -> None:
    """Remove unlisted attempts, runs and rows of tasks."""
    listed = {folder / f.path for p in manifest.partitions for f in p.files}
    for path in (folder / DATA).glob("*/*.parquet"):
        if path not in listed:
            path.unlink(missing_ok=True)
    for name in (RUNS, TASKS):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REQUEST).unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Remove what an unfinished rebuild has left."""
    for name in (DATA, RUNS, TASKS):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REQUEST).unlink(missing_ok=True)


def read(folder: Path) -> Manifest:
    """The manifest of a folder, or of a path to it. Raises UsageError."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        hint = "no state was finished there" if folder.is_dir() else None
        raise UsageError(f"cannot be read: {reason}", where=str(path), remedy=hint) from None
    return manifests.load(text, str(path))


def empty_run(folder: Path) -> str:
    """A run without records."""
    import pyarrow as pa

    from eoctl.stores.state_files import BUCKETS
    from recovery.formats.columns import rows_schema

    nothing = pa.Table.from_batches([], schema=rows_schema())
    return write_run(folder, "empty", [nothing] * BUCKETS)
