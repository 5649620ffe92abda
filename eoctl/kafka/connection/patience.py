"""Wait for a late answer as long as its broker shows that it is alive.

A broker under load answers late, one that hangs answers nobody. Another answer distinguishes them:
to a pending request, or to a new connection, where a stopped process gets no further than the
kernel's handshake. The allowed time follows the slowest answer so far: if all brokers take seconds
to answer, three seconds of silence mean nothing. It follows the command's time, too: whoever gives
minutes wants an answer more than a quick one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from eoctl.kafka.connection.failures import Deadline

PERIODS = 10
"""Silences that a living broker may take for one answer: 30 s by default, as in Java."""
SHARE_OF_TIME, MOST_USUAL_SECONDS = 20, 10.0
"""A broker may be silent for a twentieth of the time that a command has left, 3 s of a minute,
though not longer than this: a leader that is gone is replaced after that. What has no end, such as
the dashboard, gains nothing by a long wait: it asks again."""
TIMES_SLOWEST, MOST_SILENCES = 3, 5
"""A broker is silent if it takes this many times as long as the slowest answer so far, or this many
of its usual silences: 15 s by default, less than a reader waits for a new leader."""


class Patience:
    """What each broker answered, and when.

    knock: opens another connection to a broker and closes it; never raises; True: it answered.
    deadline: returns the command's. silence: seconds that a broker may stay silent if others are
    quick.
    """

    def __init__(
        self,
        knock: Callable[[int, Deadline], Awaitable[bool]],
        deadline: Callable[[], Deadline],
        silence: float,
    ) -> None:
        self._knock = knock
        self._deadline = deadline
        self._silence = silence
        self._slowest = 0.0  # seconds that an answer took
        self._heard: dict[int, float] = {}
        self._knocking: dict[int, asyncio.Task[None]] = {}

    def heard(self, broker: int, asked: float) -> None:
        """Note that a broker has just answered what it was asked at `asked` (monotonic)."""
        now = self._heard[broker] = time.monotonic()
        self._slowest = max(self._slowest, now - asked)

    @property
    def usual(self) -> float:
        """Return the seconds that a broker may stay silent if others are quick."""
        left = self._deadline().seconds_left
        share = 0.0 if left is None else left / SHARE_OF_TIME
        return max(self._silence, min(share, MOST_USUAL_SECONDS))

    def silence(self) -> Deadline:
        """Return how long one broker may stay silent from now on, at most half of the time."""
        deadline, usual = self._deadline(), self.usual
        most = min(MOST_SILENCES * usual, TIMES_SLOWEST * self._slowest)
        return deadline.within(max(usual, deadline.half_for(most)))

    def forget(self) -> None:
        """Forget how slow the brokers were: a new command begins."""
        self._slowest = 0.0

    def limit(self) -> Deadline:
        """Return when to stop waiting for one answer: half of the time is for others."""
        deadline = self._deadline()
        return deadline.within(max(self._silence, deadline.half_for(PERIODS * self.usual)))

    async def outlasts(self, broker: int, answer: "asyncio.Future[object]") -> bool:
        """Return True once the answer has come, False once the broker counts as silent."""
        while True:
            period = self.silence()
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
        asked = time.monotonic()
        try:
            if await self._knock(broker, period):
                self.heard(broker, asked)
        finally:
            del self._knocking[broker]

    def end(self) -> None:
        """Stop knocking."""
        for task in self._knocking.values():
            task.cancel()
