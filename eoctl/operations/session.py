"""Opening a cluster for one command: properties, deadline, event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eoctl.config import Context
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.failures import Deadline
from eoctl.kafka.properties import client_settings
from recovery.errors import EoctlError, IncompleteError

Result = TypeVar("Result")


def now_ms() -> int:
    """Epoch milliseconds by this machine's clock."""
    return time.time_ns() // 1_000_000


def with_cluster(
    context: Context, timeout: float | None, use: Callable[[Cluster], Awaitable[Result]]
) -> Result:
    """Run `use` with an open cluster, all within `timeout` seconds.

    Raises IncompleteError when the time is up, UnreachableError when nobody answers.
    """
    settings = client_settings(context.properties, hosts=context.hosts, socks5=context.socks5)
    deadline = Deadline(timeout)

    async def run() -> Result:
        async with Cluster(settings, deadline, read_only=context.read_only) as cluster:
            return await use(cluster)

    async def bounded() -> Result:
        # every request is bounded by the same deadline; this bounds what lies between them
        async with asyncio.timeout(None if timeout is None else timeout + 0.5):
            return await run()

    try:
        return asyncio.run(bounded())
    except TimeoutError:
        raise IncompleteError(
            f"not done within {timeout:g} s", remedy="give more time with --timeout"
        ) from None


async def repeat_with_cluster(
    context: Context,
    seconds: float | None,
    interval: float,
    use: Callable[[Cluster], Awaitable[Result]],
    write: Callable[[Result | EoctlError], None],
) -> None:
    """Run `use` every `interval` seconds, each round within `seconds`, until cancelled.

    A round that fails is written as its error; the next one connects again.
    """
    settings = client_settings(context.properties, hosts=context.hosts, socks5=context.socks5)
    while True:
        try:
            async with Cluster(settings, Deadline(seconds), read_only=context.read_only) as cluster:
                while True:
                    write(await use(cluster))
                    await asyncio.sleep(interval)
                    cluster.deadline = Deadline(seconds)
                    cluster.forgive()
        except EoctlError as error:
            write(error)
            await asyncio.sleep(interval)
