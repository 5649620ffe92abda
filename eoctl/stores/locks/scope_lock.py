"""Take the lock of one scope, as the context says: on this host, or in ZooKeeper for all hosts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.stores.locks.lock import Lock, take_file_lock


@asynccontextmanager
async def locked(
    zookeeper: str | None, cluster_id: str, scope: str, who: dict[str, Any]
) -> AsyncIterator[Callable[[], None]]:
    """Hold the lock of one scope; yield `ensure_held`. zookeeper: a context's lock_zookeeper.

    Raises RefusedError when another holds it, UnreachableError when ZooKeeper does not answer.
    """
    holder = {**who, "since": now_ms()}
    lock: Lock
    if zookeeper is None:
        lock = await take_file_lock(cluster_id, scope, holder)
    else:
        from eoctl.stores.locks.zookeeper_lock import take_zookeeper_lock

        lock = await asyncio.to_thread(take_zookeeper_lock, zookeeper, cluster_id, scope, holder)
    try:
        yield lock.ensure_held
    finally:
        lock.release()
