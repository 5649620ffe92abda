"""The reader of batches on real brokers: many ranges, ends, errors, holes, leaders that go."""

import asyncio
import time

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import fetch, fetch_reader, nearest
from eoctl.kafka.read.fetch import Chunk, Ended, Range
from eoctl.lab import admin
from eoctl.lab.admin import BROKER, TOPIC
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import TopicPartition
from recovery.formats.batches import batch_headers
from recovery.formats.records import records
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import led_uncleanly
from tests.share import share

Read = tuple[dict[TopicPartition, list[Chunk]], dict[TopicPartition, Ended]]


def read(lab: Lab, *ranges: Range, properties: dict[str, str] | None = None, **how: int) -> Read:
    """Everything of these ranges, in memory."""
    settings = client_settings(properties or lab.client_properties())

    async def run() -> Read:
        async with Cluster(settings, Deadline(60)) as cluster:
            return await fetch.read_all(cluster, ranges, **how)

    return asyncio.run(run())


def produce(lab: Lab, topic: str, counts: list[int], size: int = 100) -> list[list[bytes]]:
    """Values written to each partition, in order."""
    from confluent_kafka import Producer as Confluent

    how = {"linger.ms": 5, "batch.size": 16384, "enable.idempotence": True}  # else out of order
    producer = Confluent(lab.client_properties() | how)
    values = [
        [f"{number}:{i}:".encode().ljust(size, b"x") for i in range(count)]
        for number, count in enumerate(counts)
    ]
    for number, mine in enumerate(values):
        for value in mine:
            producer.produce(topic, value, partition=number)
        producer.flush()
    return values


def values_of(chunks: list[Chunk], r: Range) -> list[bytes | None]:
    """The values in a range; checks that chunks follow each other."""
    found = []
    position = r.start
    for chunk in chunks:
        assert chunk.fetch_offset == position
        position = chunk.next_offset
        for header in batch_headers(chunk.records):
            for record in records(chunk.records, header):
                if r.start <= record.offset < r.end:
                    found.append(record.value)
    return found


def test_many_ranges_are_read_whole_and_in_order(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=5)
    values = produce(lab1, name, [share(20_000), 1, 0, 700, share(5_000)])
    ranges = [Range(name, p, 0, len(mine)) for p, mine in enumerate(values)]
    ranges[3] = Range(name, 3, 123, 456)  # within batches at both ends
    chunks, ended = read(lab1, *ranges, partition_bytes=16 << 10)
    for r in ranges:
        assert values_of(chunks[r.topic_partition], r) == values[r.partition][r.start : r.end]
        assert ended[r.topic_partition].error is None
        assert ended[r.topic_partition].position >= r.end
    assert len(chunks[TopicPartition(name, 0)]) > 3  # so that order was at stake


@pytest.mark.long
def test_more_partitions_than_one_question_holds(lab1: Lab, topic: MakeTopic) -> None:
    count = nearest.MOST_PARTITIONS + 30
    name = topic(lab1, partitions=count)
    values = produce(lab1, name, [1] * count)
    ranges = [Range(name, p, 0, 1) for p in range(count)]
    chunks, ended = read(lab1, *ranges)
    assert [values_of(chunks[r.topic_partition], r) for r in ranges] == values
    assert all(e.error is None for e in ended.values())


def test_a_batch_larger_than_every_limit_is_read(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=3, config={"max.message.bytes": "3000000"})

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for p in range(3):
                await client.plain(name, p, [NewRecord(b"y" * 2_000_000), NewRecord(b"z")])

    asyncio.run(write())
    chunks, ended = read(lab1, *(Range(name, p, 1, 2) for p in range(3)), partition_bytes=10_000)
    for p in range(3):
        assert values_of(chunks[TopicPartition(name, p)], Range(name, p, 1, 2)) == [b"z"]
        assert ended[TopicPartition(name, p)].error is None


@pytest.mark.long
def test_ends_that_are_not_there(lab1: Lab, topic: MakeTopic) -> None:
    from confluent_kafka import TopicPartition as ConfluentPartition
    from confluent_kafka.admin import AdminClient

    name = topic(lab1, partitions=3)
    produce(lab1, name, [10, 10, 10])
    client = AdminClient(lab1.client_properties())
    next(iter(client.delete_records([ConfluentPartition(name, 0, 4)]).values())).result(10)
    begin = time.monotonic()
    chunks, ended = read(
        lab1,
        Range(name, 0, 2, 10),
        Range(name, 1, 5, 11),
        Range(name, 2, 7, 7),
        Range(name, 77, 0, 10),
        Range("no-such-topic", 0, 0, 10),
    )
    assert time.monotonic() - begin < 18  # only a new leader is waited for, nine seconds
    assert ended[TopicPartition(name, 0)].error == "OFFSET_OUT_OF_RANGE"
    assert (ended[TopicPartition(name, 1)].error, ended[TopicPartition(name, 1)].position) == (
        fetch.ABOVE,
        10,
    )
    assert "10" in ended[TopicPartition(name, 1)].detail
    assert len(values_of(chunks[TopicPartition(name, 1)], Range(name, 1, 5, 11))) == 5
    assert (ended[TopicPartition(name, 2)].error, chunks[TopicPartition(name, 2)]) == (None, [])
    assert ended[TopicPartition(name, 77)].error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert ended[TopicPartition("no-such-topic", 0)].error == "UNKNOWN_TOPIC_OR_PARTITION"


def test_an_end_that_the_leader_does_not_show_yet_is_waited_for(
    lab1: Lab, topic: MakeTopic
) -> None:
    """As of a new leader, whose high watermark lags the one that the old leader gave."""
    name = topic(lab1)
    produce(lab1, name, [3])

    async def run() -> Read:
        async with Cluster(client_settings(lab1.client_properties()), Deadline(60)) as cluster:
            reading = asyncio.create_task(fetch.read_all(cluster, [Range(name, 0, 0, 5)]))
            await asyncio.sleep(2)
            await asyncio.to_thread(produce, lab1, name, [2])
            return await reading

    chunks, ended = asyncio.run(run())
    assert ended[TopicPartition(name, 0)].error is None
    assert len(values_of(chunks[TopicPartition(name, 0)], Range(name, 0, 0, 5))) == 5


def test_the_lso_bounds_what_read_committed_shows(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)

    async def write() -> int:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            await owner.send(name, 0, [NewRecord(b"a")] * 2)
            await owner.abort()
            pid = owner.producer_id
            await owner.send(name, 0, [NewRecord(b"o")])
            return pid

    pid = asyncio.run(write())
    chunks, ended = read(lab1, Range(name, 0, 0, 4), isolation=fetch.READ_COMMITTED)
    assert ended[TopicPartition(name, 0)].error == fetch.ABOVE
    assert chunks[TopicPartition(name, 0)][0].aborted == ((pid, 0),)
    chunks, ended = read(lab1, Range(name, 0, 0, 4))
    assert ended[TopicPartition(name, 0)].error is None
    assert chunks[TopicPartition(name, 0)][0].aborted is None
    assert (
        chunks[TopicPartition(name, 0)][0].last_stable_offset,
        chunks[TopicPartition(name, 0)][0].high_watermark,
    ) == (3, 4)


@pytest.mark.parametrize(
    ("user", "error"),
    [
        ("no-topic-read", "TOPIC_AUTHORIZATION_FAILED"),
        ("nobody", "TOPIC_AUTHORIZATION_FAILED"),
        ("viewer", None),
    ],
)
def test_who_may_not_read_is_told_so(
    secure_lab: Lab, topic: MakeTopic, user: str, error: str | None
) -> None:
    name = topic(secure_lab)
    produce(secure_lab, name, [3])
    begin = time.monotonic()
    _, ended = read(secure_lab, Range(name, 0, 0, 3), properties=secure_lab.client_properties(user))
    assert ended[TopicPartition(name, 0)].error == error
    assert time.monotonic() - begin < 10


def test_a_rate_holds(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=2)
    produce(lab1, name, [2_000, 2_000], size=500)
    settings = client_settings(lab1.client_properties())

    async def run() -> tuple[float, int]:
        async with Cluster(settings, Deadline(60)) as cluster:
            begin, received = time.monotonic(), 0
            ranges = [Range(name, p, 0, 2_000) for p in range(2)]
            async for item in fetch.read(cluster, ranges, max_rate=1 << 20):
                if isinstance(item, Chunk):
                    received += len(item.records)
            return time.monotonic() - begin, received

    seconds, received = asyncio.run(run())
    # the last answer is not waited for: it may be a quarter of a second's worth
    assert (received - (256 << 10)) / seconds <= 1 << 20
    assert seconds < 30


CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
}


def test_nothing_left_below_the_lso_is_no_reason_to_wait(lab1: Lab, topic: MakeTopic) -> None:
    """Compaction drops records without a key: no batch is left between 0 and the LSO."""
    name = topic(lab1)

    async def write() -> int:
        async with Client.to(lab1.bootstrap_servers) as client:
            await client.plain(name, 0, [NewRecord(b"v")] * 5)
            await admin.set_config(client, TOPIC, name, CLEANED)
            await asyncio.sleep(1.5)
            owner = await Producer.init(client, name)
            start = await owner.send(name, 0, [NewRecord(b"o", b"other")] * 2)
            await admin.set_config(client, BROKER, "1", {"log.cleaner.backoff.ms": "100"})
            try:
                end = time.monotonic() + 60
                while set(await client.read(name, 0)) != {start, start + 1}:
                    assert time.monotonic() < end, "the cleaner did not take them"
                    await asyncio.sleep(0.3)
            finally:
                await admin.set_config(client, BROKER, "1", {"log.cleaner.backoff.ms": None})
            return start

    start = asyncio.run(write())
    assert start == 5
    begin = time.monotonic()
    chunks, ended = read(lab1, Range(name, 0, 0, start), isolation=fetch.READ_COMMITTED)
    assert (ended[TopicPartition(name, 0)].error, ended[TopicPartition(name, 0)].position) == (
        None,
        start,
    )
    assert values_of(chunks[TopicPartition(name, 0)], Range(name, 0, 0, start)) == []
    assert time.monotonic() - begin < 10


def test_a_leader_that_dies_is_followed(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3, partitions=2, replicas=3)
    values = produce(lab3, name, [share(30_000, 4_000), 10], size=500)
    ranges = [Range(name, p, 0, len(mine)) for p, mine in enumerate(values)]
    settings = client_settings(lab3.client_properties())
    killed: list[int] = []

    async def run() -> tuple[list[Chunk], dict[int, Ended]]:
        async with Cluster(settings, Deadline(120)) as cluster:
            leader = (await cluster.metadata([name])).topics[name].partitions[0].leader
            assert leader is not None
            chunks, ended = [], {}
            async for item in fetch.read(cluster, ranges, partition_bytes=64 << 10):
                if isinstance(item, Ended):
                    ended[item.partition] = item
                elif item.partition == 0:
                    chunks.append(item)
                    if not killed:
                        killed.append(leader)
                        await asyncio.to_thread(lab3.kill, leader)
            return chunks, ended

    try:
        chunks, ended = asyncio.run(run())
    finally:
        for broker in killed:
            lab3.start(broker)
    assert values_of(chunks, ranges[0]) == values[0]
    assert [ended[p].error for p in range(2)] == [None, None]


def test_a_connection_that_breaks_meanwhile_is_made_anew(
    lab1: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody took long over a chunk: that is no silence of the broker."""
    monkeypatch.setattr(fetch_reader, "WITHOUT_PROGRESS_SECONDS", 1.0)
    name = topic(lab1)
    values = produce(lab1, name, [3000], size=500)
    whole = Range(name, 0, 0, 3000)
    settings = client_settings(lab1.client_properties())

    async def run() -> tuple[list[Chunk], Ended]:
        async with Cluster(settings, Deadline(60)) as cluster:
            chunks = []
            async for item in fetch.read(cluster, [whole], partition_bytes=16 << 10):
                if isinstance(item, Ended):
                    break
                chunks.append(item)
                if len(chunks) == 3:
                    await asyncio.sleep(2)
                    (await cluster.connection(1)).close()
            return chunks, item  # type: ignore[return-value]

    chunks, ended = asyncio.run(run())
    assert ended.error is None
    assert values_of(chunks, whole) == values[0]


@pytest.mark.long
def test_a_reader_whose_taker_stops_the_loop_loses_nothing(
    lab1: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task of Spark does while a batch is taken: no question can be answered meanwhile."""
    monkeypatch.setattr(fetch_reader, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(fetch_reader, "WITHOUT_PROGRESS_SECONDS", 1.5)
    name = topic(lab1)
    values = produce(lab1, name, [3000], size=500)
    whole = Range(name, 0, 0, 3000)
    settings = client_settings(lab1.client_properties())
    chunks: list[Chunk] = []
    with asyncio.Runner() as runner:
        cluster = runner.run(Cluster(settings, Deadline(None)).__aenter__())
        stream = fetch.read(cluster, [whole], partition_bytes=16 << 10)
        while isinstance(item := runner.run(anext(stream)), Chunk):
            chunks.append(item)
            if len(chunks) in (2, 9):
                time.sleep(1.7)
        runner.run(stream.aclose())
        runner.run(cluster.__aexit__(None, None, None))
    assert (item.error, item.detail) == (None, "")
    assert values_of(chunks, whole) == values[0]
    assert len(chunks) > 20  # so that it stood still between questions, too


@pytest.mark.long
def test_a_leader_that_moves_while_a_low_rate_makes_wait_is_followed(
    lab3: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next question goes out long after the last record came."""
    monkeypatch.setattr(fetch_reader, "WITHOUT_PROGRESS_SECONDS", 2.0)
    first, second, _ = lab3.broker_ids
    name = topic(lab3)
    settings = client_settings(lab3.client_properties())

    async def run() -> tuple[list[Chunk], Ended, int | None]:
        async with (
            Client.to(lab3.bootstrap_servers) as client,
            Cluster(settings, Deadline(60)) as cluster,
        ):
            await admin.set_replicas(client, name, 0, [first])
            for _ in range(2):
                await client.plain(name, 0, [NewRecord(b"v" * 20_000)])
            chunks = []
            rate = 4_000  # bytes a second: 5 s for the first record
            reading = fetch.read(cluster, [Range(name, 0, 0, 2)], partition_bytes=1, max_rate=rate)
            async for item in reading:
                if isinstance(item, Ended):
                    break
                chunks.append(item)
                if len(chunks) == 1:
                    await admin.set_replicas(client, name, 0, [second])
            leader = (await cluster.metadata([name])).topics[name].partitions[0].leader
            return chunks, item, leader  # type: ignore[return-value]

    chunks, ended, leader = asyncio.run(run())
    assert (ended.error, leader) == (None, second)
    assert [c.fetch_offset for c in chunks] == [0, 1]


def write_more(lab: Lab, name: str, count: int, leader: int) -> None:
    """So many batches of a record each, as soon as this broker leads."""

    from confluent_kafka.admin import AdminClient

    seen, end = AdminClient(lab.client_properties()), time.monotonic() + 60
    while seen.list_topics(name, timeout=10).topics[name].partitions[0].leader != leader:
        assert time.monotonic() < end
        time.sleep(0.1)

    async def run() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            for _ in range(count):
                await client.plain(name, 0, [NewRecord(b"v" * 20_000)])

    asyncio.run(run())


def read_while_the_leader_goes(
    lab: Lab, name: str, leader: int, other: int
) -> tuple[list[Chunk], list[Ended]]:
    """Read 200 offsets; behind record 60 the leader is killed and the other one started."""

    async def run() -> tuple[list[Chunk], list[Ended]]:
        async with Cluster(client_settings(lab.client_properties()), Deadline(120)) as cluster:
            chunks, ended = [], []
            whole = Range(name, 0, 0, 200)
            async for item in fetch.read(cluster, [whole], partition_bytes=1 << 10):
                if isinstance(item, Ended):
                    ended.append(item)
                    continue
                chunks.append(item)
                if item.fetch_offset == 60:
                    await asyncio.to_thread(lab.kill, leader)
                    await asyncio.to_thread(lab.start, other)
            return chunks, ended

    return asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("elections", [1, 2])
def test_a_log_that_went_another_way_is_an_error(
    lab3: Lab, topic: MakeTopic, elections: int
) -> None:
    """Unclean elections: the successor lacks records that a reader has seen.

    A second one, back to the first leader, whose log has other records of the same offsets: the end
    that it tells, of an earlier leader epoch, is behind all that was read.
    """
    first, second, _ = lab3.broker_ids
    name = topic(lab3)
    asyncio.run(led_uncleanly(lab3, name, first, second))
    write_more(lab3, name, 50, first)
    lab3.kill(second)
    try:
        write_more(lab3, name, 150, first)
        if elections == 1:
            chunks, (ended,) = read_while_the_leader_goes(lab3, name, first, second)
            assert "from 50 on" in ended.detail
        else:
            lab3.kill(first)
            lab3.start(second)
            write_more(lab3, name, 150, second)
            chunks, (ended,) = read_while_the_leader_goes(lab3, name, second, first)
            assert "the leader does not know the leader epoch" in ended.detail
        assert (ended.error, ended.position) == ("LOG_TRUNCATED", chunks[-1].next_offset)
    finally:
        for broker in (first, second):
            lab3.start(broker)


def test_a_broker_found_silent_before_costs_a_reader_no_silence(
    lab3: Lab, topic: MakeTopic
) -> None:
    """It is asked again only where reading it failed."""
    name = topic(lab3)
    produce(lab3, name, [3])

    async def run() -> None:
        settings = client_settings(lab3.client_properties())
        async with Cluster(settings, Deadline(60)) as cluster:
            leader = (await cluster.metadata([name])).topics[name].partitions[0].leader
            silent = next(broker for broker in cluster.brokers if broker != leader)
            with pytest.raises(WireError):
                await cluster.ask(silent, messages.ListGroupsRequest(), seconds=0.0)
            assert cluster.silent == {silent}
            chunks, _ = await fetch.read_all(cluster, [Range(name, 0, 0, 3)])
            assert sum(len(found) for found in chunks.values())
            assert cluster.silent == {silent}

    asyncio.run(run())
