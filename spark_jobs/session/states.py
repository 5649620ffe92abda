"""Finished states as executors see them."""

import hashlib

from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import StateRows
from recovery.errors import RefusedError, UsageError
from recovery.state.state_jobs import NamedState
from spark_jobs.session.executors import SHARED


def opened(state: NamedState) -> StateRows:
    """Return a state as this process sees it. Raises RefusedError if it is not there, or another
    one."""
    try:
        storage, manifest, content = state_folder.read_bytes(state.address)
    except UsageError as error:
        raise RefusedError(
            f"executors do not see this state: {error.what}",
            where=state.address,
            remedy=SHARED,
        ) from None
    if hashlib.sha256(content).hexdigest() != state.sha256:
        raise RefusedError(
            "executors see another state there, or it was replaced meanwhile",
            where=state.address,
            remedy=SHARED,
        )
    return StateRows(storage, manifest)
