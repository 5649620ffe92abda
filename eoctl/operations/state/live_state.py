"""`state compare A live`: the changelogs' present content, rebuilt as long as it is needed."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.operations.state.rebuild_answer import RebuildProgress, rebuild_state
from eoctl.operations.state.spark_compare import OnSpark
from eoctl.operations.state.spark_rebuild import on_spark
from eoctl.settings.context import Context
from eoctl.stores import private
from eoctl.stores.state import folder as state_folder
from eoctl.stores.storage import LocalFolder
from eoctl.stores.storage_address import storage_at
from recovery.errors import EoctlError
from recovery.state.manifest import Manifest
from recovery.values import replace


@contextmanager
def live_state(
    context: Context,
    manifest: Manifest,
    at: str | None,
    scratch: str | None,
    on: OnSpark | None,
    timeout: float | None,
    progress: RebuildProgress | None,
) -> Iterator[str]:
    """Yield where the changelogs of a state are rebuilt, and remove it afterwards.

    at: the cut, None: the state's. scratch: the folder or address within which it is rebuilt, None:
    a temporary folder. on: None: by this process.
    """
    there = None if on is None else on_spark(on.spark, context, on.show, on.seconds)
    with private.temporary("compare") as folder, _place(scratch, folder) as output:
        cut = folder / state_folder.CUT
        if at is None:
            state_folder.write_cut(LocalFolder(folder), manifest.cut)
        rebuild = RebuildRequest(
            changelogs=tuple(t.topic for t in manifest.cut.topics),
            at=at or str(cut),
            how=Making(manifest.format, manifest.options, output),
            engine="local" if on is None else "spark",
        )
        if manifest.retention_ms:
            rebuild = replace(rebuild, retention_ms=next(iter(manifest.retention_ms.values())))
        rebuild_state(context, rebuild, timeout, progress, there)
        yield output


@contextmanager
def _place(scratch: str | None, folder: Path) -> Iterator[str]:
    """Yield where the state goes, and remove it. folder: of this process."""
    if scratch is None:
        yield str(folder / "state")
        return
    storage, name = storage_at(scratch), f"eoctl-live-{uuid.uuid4().hex}"
    try:
        yield f"{storage.address}/{name}"
    finally:
        with suppress(EoctlError, OSError):  # what was compared is the answer
            storage.delete_folder(name)
