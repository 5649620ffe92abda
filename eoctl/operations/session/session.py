"""Open a cluster for one command: properties, deadline, event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.settings.context import Context
from recovery.errors import EoctlError, UnreachableError
from recovery.times import not_done_within

Result = TypeVar("Result")


def with_cluster(
    context: Context, timeout: float | None, use: Callable[[Cluster], Awaitable[Result]]
) -> Result:
    """Run `use` with an open cluster, all within `timeout` seconds.

    Raises IncompleteError when the time is up, UnreachableError if nobody ever answers: a cluster
    that has answered is not unreachable because the time is up.
    """
    opened: list[Cluster] = []
    settings = context.settings()
    deadline = Deadline(timeout)

    async def run() -> Result:
        async with Cluster(settings, deadline, read_only=context.read_only) as cluster:
            opened.append(cluster)
            return await use(cluster)

    results: list[Result] = []

    async def bounded() -> None:
        # the same deadline bounds every request; this bounds the time between requests
        async with asyncio.timeout(None if timeout is None else timeout + 0.5):
            # not the task's result: when its loop ends, signal.getsignal makes a text of the task,
            # twice, including its 10,000 rows
            results.append(await run())

    try:
        asyncio.run(bounded())
        return results[0]
    except (TimeoutError, UnreachableError) as error:
        if isinstance(error, UnreachableError) and not (opened and deadline.passed):
            raise
        raise not_done_within(timeout) from None


class Session:
    """A cluster asked repeatedly, by one caller at a time; it is opened again after a failure.

    busy: seconds spent on requests that were answered, since the session began; a broker that stays
    silent costs the cluster nothing and is not counted.
    """

    def __init__(self, context: Context, seconds: float | None) -> None:
        self._settings = context.settings()
        self._read_only = context.read_only
        self.seconds = seconds
        self._cluster: _Metered | None = None
        self._spent = 0.0
        self._sent = 0

    @property
    def busy(self) -> float:
        return self._spent + (self._cluster.busy if self._cluster else 0.0)

    @property
    def requests_sent(self) -> int:
        return self._sent + (self._cluster.requests_sent if self._cluster else 0)

    @property
    def progress(self) -> tuple[int, int] | None:
        """Return how many brokers have answered, of how many; None before the first answer."""
        cluster = self._cluster
        return (len(cluster.answered), len(cluster.brokers)) if cluster else None

    async def ask(self, use: Callable[[Cluster], Awaitable[Result]]) -> Result:
        """Run `use` with the open cluster, its requests within the session's seconds.

        Brokers that were silent in the last call are asked again. Raises what `use` raises, and
        UnreachableError if nobody answers.
        """
        deadline = Deadline(self.seconds)
        if self._cluster is None:
            cluster = _Metered(self._settings, deadline, read_only=self._read_only)
            self._cluster = await cluster.__aenter__()
        self._cluster.deadline = deadline
        self._cluster.forgive()
        try:
            return await use(self._cluster)
        except EoctlError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; the next `ask` opens them again."""
        if self._cluster is not None:
            self._spent, self._sent = self.busy, self.requests_sent
            self._cluster.close()
            self._cluster = None


class _Metered(Cluster):
    """A cluster that measures how long answered requests were under way; overlaps count once.

    answered: the brokers that have answered a request of their own.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.busy = 0.0
        self.answered: set[int] = set()
        self._until = 0.0

    async def ask(self, broker: int, *given: Any, **named: Any) -> Any:
        begin = time.monotonic()
        answer = await super().ask(broker, *given, **named)
        self.answered.add(broker)
        self._count(begin)
        return answer

    async def ask_any(self, *given: Any, **named: Any) -> Any:
        begin = time.monotonic()
        answer = await super().ask_any(*given, **named)
        self._count(begin)
        return answer

    def _count(self, begin: float) -> None:
        # answers come in the order of their ends, so this one's new part begins at _until
        end = time.monotonic()
        self.busy += max(0.0, end - max(begin, self._until))
        self._until = max(end, self._until)


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
    session = Session(context, seconds)
    try:
        while True:
            try:
                write(await session.ask(use))
            except EoctlError as error:
                write(error)
            await asyncio.sleep(interval)
    finally:
        session.close()
