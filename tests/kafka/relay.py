"""A relay in front of every broker of a lab: which requests eoctl sends, and to whom.

It parses Kafka's framing and nothing else: a length, an API key, a version. The answers to some
requests can be lost on the way, or say something else: the broker has done what was asked.
"""

import asyncio
import functools
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

from eoctl.lab.cluster import Lab

WRITE_TXN_MARKERS, END_TXN, INIT_PRODUCER_ID, METADATA = 27, 26, 22, 3
LIST_OFFSETS, DESCRIBE_PRODUCERS, LIST_TRANSACTIONS = 2, 61, 66
READING = frozenset(
    {1, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 55, 61, 65, 66, 69, 75, 77, 89, 90}
)
"""Fetch, ListOffsets, Metadata, OffsetFetch, FindCoordinator, DescribeGroups, ListGroups,
ApiVersions, OffsetForLeaderEpoch, DescribeAcls, DescribeConfigs, DescribeQuorum,
DescribeProducers, DescribeTransactions, ListTransactions, ConsumerGroupDescribe,
DescribeTopicPartitions, ShareGroupDescribe, StreamsGroupDescribe, DescribeShareGroupOffsets."""


class Relay:
    """requests: (broker, API key, the whole request) in order. lose: keys without an answer.

    alter: a key, of all brokers or of one -> the place in its answers, and the 16 bits to be there.
    rewrite: (broker, key) -> what makes another answer of one, its length included.
    before: called with a request's broker and key before it goes on; the relay waits for it.
    answered: bytes of answers by (broker, key). delay: gives the seconds by which the next answer
    to a key is late; those of one connection keep their order. piece: so many bytes of an answer
    at a time, 0 = all.
    """

    def __init__(self, lab: Lab) -> None:
        self.requests: list[tuple[int, int, bytes]] = []
        self.lose: frozenset[int] = frozenset()
        self.alter: dict[int | tuple[int, int], tuple[int, int]] = {}
        self.rewrite: Mapping[tuple[int, int], Callable[[bytes], bytes]] = {}
        self.answered: Counter[tuple[int, int]] = Counter()
        self.before: Callable[[int, int], None] = lambda broker, key: None
        self.delay: Callable[[int], float] = lambda key: 0.0
        self.piece = 0
        self._targets = {n.id: n.ports["PLAINTEXT"] for n in lab.record.nodes}
        self._ports: dict[int, int] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def sent(self, *keys: int) -> Counter[int]:
        """How many requests of these kinds each broker got."""
        return Counter(broker for broker, key, _ in self.requests if key in keys)

    @property
    def changing(self) -> list[tuple[int, int]]:
        """(broker, API key) of every request that may change something."""
        return [(broker, key) for broker, key, _ in self.requests if key not in READING]

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of the relay of each broker."""
        return [f"127.0.0.1:{port}" for port in self._ports.values()]

    @property
    def hosts(self) -> dict[str, str]:
        """Advertised HOST:PORT -> the relay's, for every broker."""
        return {
            f"127.0.0.1:{self._targets[b]}": f"127.0.0.1:{port}" for b, port in self._ports.items()
        }

    def config(self, folder: Path) -> str:
        """A config file with the context `relayed`: every broker is reached through the relay."""
        hosts = ", ".join(f'"{there}" = "{here}"' for there, here in self.hosts.items())
        first = next(iter(self._ports.values()))
        path = folder / "relayed.toml"
        path.write_text(
            f'[contexts.relayed]\nbootstrap_servers = "127.0.0.1:{first}"\nhosts = {{ {hosts} }}\n'
        )
        return str(path)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    async def _main(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            for broker in self._targets:
                accept = functools.partial(self._accept, broker)
                server = await asyncio.start_server(accept, "127.0.0.1", 0)
                await stack.enter_async_context(server)
                self._ports[broker] = server.sockets[0].getsockname()[1]
            self._started.set()
            await self._ended.wait()
            await _settled()  # a server that is closed fails over what it accepted last
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await _settled()

    def _accept(
        self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """No coroutine: one that is cancelled before its first line would not close the writer."""

        def ended(task: "asyncio.Task[None]") -> None:
            self._serving.discard(task)
            writer.transport.abort()

        task = asyncio.create_task(self._serve(broker, reader, writer))
        self._serving.add(task)
        task.add_done_callback(ended)

    async def _serve(
        self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._targets[broker])
        except OSError:  # a broker that is down: whoever came here sees the connection end
            return
        asked: list[int] = []  # keys of the requests under way: answers come in the same order
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        now = asyncio.get_running_loop().time

        async def handed_on() -> None:
            while True:
                due, frame = await late.get()
                await asyncio.sleep(max(0.0, due - now()))
                size = self.piece or len(frame) or 1
                for start in range(0, len(frame), size):
                    writer.write(frame[start : start + size])
                    await asyncio.sleep(0)

        async def answers() -> None:
            while True:
                frame = await _frame(there)
                key = asked.pop(0)
                if key in self.lose:
                    return
                self.answered[broker, key] += len(frame)
                if altered := self.alter.get((broker, key), self.alter.get(key)):
                    position, code = altered
                    changed = bytearray(frame)
                    struct.pack_into(">h", changed, position % len(frame), code)
                    frame = bytes(changed)
                if rewrite := self.rewrite.get((broker, key)):
                    frame = rewrite(frame)
                late.put_nowait((now() + self.delay(key), frame))

        async def requests() -> None:
            while True:
                frame = await _frame(reader)
                (key,) = struct.unpack_from(">h", frame, 4)
                self.requests.append((broker, key, frame))
                asked.append(key)
                self.before(broker, key)
                back.write(frame)

        tasks = [asyncio.create_task(work()) for work in (answers, requests, handed_on)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in tasks:
                one.cancel()
            back.transport.abort()  # before the first wait, at which this task may be cancelled
            await asyncio.gather(*tasks, return_exceptions=True)
            while not late.empty():
                writer.write(late.get_nowait()[1])
            writer.close()  # what the broker has answered still goes out
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _settled() -> None:
    """A transport is made and closed some rounds of the loop after it was asked for."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])


@contextmanager
def relayed(lab: Lab) -> Iterator[Relay]:
    """A relay that runs as long as the block."""
    found = Relay(lab)
    found.start()
    try:
        yield found
    finally:
        found.stop()
