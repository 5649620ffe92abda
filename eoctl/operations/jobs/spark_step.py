"""Run a plan's step as a Spark job: launched while the lock is kept alive, ended by signals."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.operations.session.signals import ended_by_signals
from eoctl.settings.context import Context
from recovery.errors import RefusedError, UsageError
from recovery.values import Value


class Launch(Value):
    """A job as it is launched and recorded; see `spark_launch.launch`."""

    name: str
    request: Mapping[str, Any]
    summary: str
    cluster_id: str | None
    output: str


class _EndedError(Exception):
    """The end was requested."""


async def launched(
    job: Launch,
    context: Context,
    spark: Spark,
    show: Show,
    cancel: threading.Event,
    ensure_held: Callable[[], None],
) -> Mapping[str, Any]:
    """Return the job's result. Ctrl-C, SIGTERM, a timeout, a lost lock and `cancel` cancel the job.

    Raises what the job raised, RefusedError if it could not begin, CancelledError.
    """

    def beat() -> None:
        ensure_held()
        if cancel.is_set():
            raise _EndedError

    def run() -> Mapping[str, Any]:
        return launch(
            job.name,
            job.request,
            context.access,
            spark,
            summary=job.summary,
            show=show,
            context=context.title,
            cluster_id=job.cluster_id,
            output=job.output,
            beat=beat,
        )

    with ended_by_signals(cancel):
        running = asyncio.create_task(asyncio.to_thread(run))
        try:
            return await asyncio.shield(running)
        except UsageError as error:  # a job raises none once it has begun to write
            raise RefusedError(error.what, where=error.where, remedy=error.remedy) from None
        except _EndedError:
            raise asyncio.CancelledError from None  # it was cancelled before its end
        except asyncio.CancelledError:
            cancel.set()
            await asyncio.gather(running, return_exceptions=True)  # until all writers have stopped
            raise
