"""Waiting for what blocks, without waiting for it at the end of the process."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

STAGGER_SECONDS = 0.25  # between a host's addresses (RFC 8305): a dead IPv6 costs no more


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in its own thread; a caller that stops waiting abandons the thread.

    asyncio.to_thread's threads are joined when the loop closes, so that one slow name server
    would hold up an answer that is long complete.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            failure = error
        if not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed meanwhile: no one waits
                loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=run, daemon=True, name="eoctl-waiting").start()
    return await future


async def _addresses(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Return getaddrinfo's answer for a host. Only names, not addresses, need a thread."""
    name = host.encode() if host.isascii() else host  # text would load the tables of IDNA first
    look_up = partial(
        socket.getaddrinfo, name, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    try:
        return look_up(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await in_thread(look_up)


async def dial(host: str, port: int) -> socket.socket:
    """Return a connected TCP socket: the first of the host's addresses to answer.

    Raises OSError (socket.gaierror when the name has no address); has no bound of its own.
    """
    waiting = [(family, address) for family, _, _, _, address in await _addresses(host, port)]
    attempts: set[asyncio.Task[socket.socket]] = set()
    refusal: OSError | None = None
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(asyncio.create_task(_attempt(*waiting.pop(0))))
            pause = STAGGER_SECONDS if waiting else None
            done, attempts = await asyncio.wait(
                attempts, timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                refusal = error
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close_late)
    raise refusal or OSError(f"{host} has no address")


async def _attempt(family: int, address: Any) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


def _close_late(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
