"""`status` of 10,000 partitions with 2,000 open transactional ids, each of which holds a partition.

Once with all of them within their limits, which one look tells, and once with all past
`--long-after`, which takes two looks, here without the pause between them. There is no peer.
`doctor` of the same cluster: it finds that the topics, which transactions write, have one copy.
"""

import asyncio
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, lab, make_topics, settled
from benchmarks.why import Took, process
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec

TOPICS, PARTITIONS, OPEN = 10, 10_000, 2_000
AT_ONCE = 16
ROUNDS = 5
TIMEOUT_MS = 900_000  # the longest that brokers allow by default


def measure() -> Iterator[Took]:
    with lab(LabSpec("status", brokers=3)) as three:
        names = [f"wide-{n}" for n in range(TOPICS)]
        make_topics(three, names, PARTITIONS // TOPICS)
        asyncio.run(open_ids(three.bootstrap_servers, names))
        words = [*EOCTL, "--bootstrap-server", three.bootstrap_servers, "status"]
        what = f"status, {PARTITIONS:,} partitions, {OPEN:,} open ids"
        settled(words)
        yield _took(what, words, 0)
        doctor = [*EOCTL, "--bootstrap-server", three.bootstrap_servers, "doctor"]
        doctor += ["--broker-version", KAFKA]  # else a bug of topics with one copy is unknown
        yield _took(f"doctor, {PARTITIONS:,} partitions, {OPEN:,} open ids", doctor, 1)
        again = [*words, "--long-after", "1s", "--sample-interval", "0s"]
        yield _took(f"{what}, all long: two looks, no pause", again, 1)


def _took(what: str, words: list[str], status: int) -> Took:
    rounds = [process(words, status) for _ in range(ROUNDS)]
    return Took(what, [wall for wall, _ in rounds], "3 s", [cpu for _, cpu in rounds])


async def open_ids(servers: str, topics: list[str]) -> None:
    """Begin a transaction of each id, with a record in a partition of its own."""
    ids = iter([(n, topics[n % TOPICS], n // TOPICS * 5) for n in range(OPEN)])

    async def some(client: Client) -> None:
        for number, topic, partition in ids:
            producer = await Producer.init(client, f"application-{number:04d}", TIMEOUT_MS)
            await producer.send(topic, partition, [NewRecord(b"waits")])

    async with Client.to(servers) as client:
        await asyncio.gather(*(some(client) for _ in range(AT_ONCE)))
