"""Wait for a late answer as long as its broker shows that it is alive.

A broker under load answers late, one that hangs answers nobody. Another answer distinguishes them:
to a pending request, or to a new connection, where a stopped process gets no further than the
kernel's handshake.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from eoctl.kafka.connection.failures import Deadline

PERIODS = 10
"""Silences that a living broker may take for one answer: 30 s by default, as in Java."""


class Patience:
    """What each broker answered, and when.

    knock: opens another connection to a broker and closes it; never raises; True: it answered.
    silence: how long a broker may stay silent.
    """

    def __init__(
        self, knock: Callable[[int, Deadline], Awaitable[bool]], silence: Callable[[], Deadline]
    ) -> None:
        self._knock = knock
        self._silence = silence
        self._heard: dict[int, float] = {}
        self._knocking: dict[int, asyncio.Task[None]] = {}

    def heard(self, broker: int) -> None:
        """Note that a broker has just answered something."""
        self._heard[broker] = time.monotonic()

    def limit(self, deadline: Deadline) -> Deadline:
        """Return when to stop waiting for one answer: half of the time is for others."""
        silence, left = self._silence().seconds_left, deadline.seconds_left
        assert silence is not None
        most = PERIODS * silence
        return deadline.within(most if left is None else max(silence, min(most, left / 2)))

    async def outlasts(self, broker: int, answer: "asyncio.Future[object]") -> bool:
        """Return True once the answer has come, False once the broker counts as silent."""
        while True:
            period = self._silence()
            await asyncio.wait([answer], timeout=(period.seconds_left or 0) / 6)
            if answer.done():
                return True
            asked = time.monotonic()
            self._ask_for_life(broker, period)
            await asyncio.wait([answer], timeout=period.seconds_left)
            if answer.done():
                return True
            if self._heard.get(broker, 0.0) < asked:
                return False

    def _ask_for_life(self, broker: int, period: Deadline) -> None:
        if broker not in self._knocking:
            task = asyncio.create_task(self._knocked(broker, period))
            self._knocking[broker] = task

    async def _knocked(self, broker: int, period: Deadline) -> None:
        try:
            if await self._knock(broker, period):
                self.heard(broker)
        finally:
            del self._knocking[broker]

    def end(self) -> None:
        """Stop knocking."""
        for task in self._knocking.values():
            task.cancel()
