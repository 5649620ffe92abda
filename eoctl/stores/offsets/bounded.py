"""Run blocking calls (a database, ZooKeeper, a disk) in a thread, and wait for a limited time.

An abandoned call must not write later, when its server recovers: it calls `Job.writing` right
before each request that changes something, and is stopped there.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from recovery.times import format_duration

Result = TypeVar("Result")


class SilentError(Exception):
    """No answer in time. sent: True if something that changes the store had been sent."""

    def __init__(self, seconds: float, *, sent: bool) -> None:
        super().__init__(f"no answer within {format_duration(seconds)}")
        self.sent = sent


class LostError(Exception):
    """A change was sent, but its answer never came. args: what came instead."""


class BlockingCall:
    """One blocking call. sent: something that changes the store was sent. heard: when the store
    answered last, or the call began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self.sent = False
        self.heard = time.monotonic()

    def answered(self) -> None:
        """Restart the time limit of a long call, which calls this after each answer."""
        self.heard = time.monotonic()

    def writing(self) -> None:
        """Note that the thread is about to send a change. Raises once the call was given up."""
        with self._lock:
            if self._given_up:
                raise SilentError(0, sent=self.sent)
            self.sent = True

    def give_up(self) -> bool:
        """Stop sending, and return True if something was sent before."""
        with self._lock:
            self._given_up = True
            return self.sent


async def bounded(call: Callable[[BlockingCall], Result], seconds: float) -> Result:
    """Run `call` in its own daemon thread. Raises what `call` raises, and SilentError after
    `seconds` without an answer."""
    job = BlockingCall()
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def set_result(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = call(job)
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(set_result, result, failed)

    threading.Thread(target=run, name="eoctl-store", daemon=True).start()
    try:
        while not done.done() and (left := job.heard + seconds - time.monotonic()) > 0:
            await asyncio.wait([done], timeout=left)
        if done.done():
            return done.result()
        raise SilentError(seconds, sent=job.give_up())
    finally:
        job.give_up()
