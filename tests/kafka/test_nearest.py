"""Readers in a rack, on real brokers: the follower gives the bytes, the leader has the last word.

Who was asked and who gave how much is counted by a relay between eoctl and the brokers.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import fetch, fetch_reader, nearest
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Ended, Range
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.formats.batches import batch_headers
from recovery.formats.columns import ABORTED, decode
from recovery.formats.records import records
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import led_in_sync
from tests.kafka.relay import Relay, relayed
from tests.kafka.state_oracle import Rebuilt, dict_state, fill

FETCH, EPOCH_END = 1, 23
LEADER, FOLLOWER, OTHER = 1, 2, 3
EACH, SIZE = 400, 5_000


@pytest.fixture
def relay(lab3: Lab) -> Iterator[Relay]:
    with relayed(lab3) as made:
        yield made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that holds a broker for silent after 2 s, not 10."""
    monkeypatch.setattr(fetch_reader, "ANSWER_SECONDS", 2.0)


def led(lab: Lab, name: str, replicas: tuple[int, ...] = (LEADER, FOLLOWER, OTHER)) -> None:
    """Let the first of the replicas lead partition 0, the others in sync: others are not named."""

    async def run() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await led_in_sync(client, name, replicas)

    asyncio.run(run())


def write(lab: Lab, name: str, first: int, count: int = EACH) -> list[bytes]:
    """Values of `count` more records, each in a batch of its own."""
    values = [b"%d:" % i + b"x" * SIZE for i in range(first, first + count)]

    async def run() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            for value in values:
                await client.plain(name, 0, [NewRecord(value)])

    asyncio.run(run())
    return values


class Reading:
    """What a reader in a rack was given. on_chunk: called with each chunk's number, from 1 on."""

    def __init__(self, lab: Lab, relay: Relay, rack: str = f"rack-{FOLLOWER}") -> None:
        self.settings = client_settings(
            {**lab.client_properties(), "client.rack": rack}, hosts=relay.hosts
        )
        self.chunks: list[Chunk] = []
        self.on_chunk: Mapping[int, object] = {}
        self.ended: Ended | None = None

    def run(
        self,
        offsets: Range,
        *,
        at_chunk: int = 0,
        then: object = None,
        isolation: int = READ_UNCOMMITTED,
        nearest: bool = True,
    ) -> "Reading":
        async def run() -> None:
            async with Cluster(self.settings, Deadline(90)) as cluster:
                reading = fetch.read(
                    cluster,
                    [offsets],
                    isolation=isolation,
                    partition_bytes=20_000,
                    nearest=nearest,
                )
                async for item in reading:
                    if isinstance(item, Ended):
                        self.ended = item
                        continue
                    self.chunks.append(item)
                    if len(self.chunks) == at_chunk and callable(then):
                        await asyncio.to_thread(then)

        asyncio.run(run())
        return self

    @property
    def values(self) -> list[bytes | None]:
        found = []
        for chunk in self.chunks:
            for header in batch_headers(chunk.records):
                for record in records(chunk.records, header):
                    if record.offset >= chunk.fetch_offset:
                        found.append(record.value)
        return found

    @property
    def brokers(self) -> list[int]:
        """Who gave the chunks, repeats left out."""
        given = [c.broker for c in self.chunks]
        return [b for i, b in enumerate(given) if not i or given[i - 1] != b]


@pytest.mark.parametrize(
    ("rack", "near", "giver"),
    [
        (f"rack-{FOLLOWER}", True, FOLLOWER),
        (f"rack-{LEADER}", True, LEADER),
        ("nowhere", True, LEADER),
        ("", True, LEADER),
        (f"rack-{FOLLOWER}", False, LEADER),  # verdicts
    ],
)
def test_the_replica_in_the_rack_gives_the_bytes(
    lab3: Lab, topic: MakeTopic, relay: Relay, rack: str, near: bool, giver: int
) -> None:
    name = topic(lab3)
    led(lab3, name)
    values = write(lab3, name, 0, 40)
    reading = Reading(lab3, relay, rack).run(Range(name, 0, 0, 40), nearest=near)
    assert reading.values == values
    assert (reading.ended is not None, reading.ended and reading.ended.error) == (True, None)
    given = {broker: relay.answered[broker, FETCH] for broker in lab3.broker_ids}
    assert given[giver] > 40 * SIZE
    # the leader that names another is asked once, and gives none
    assert all(size < 2 * SIZE for broker, size in given.items() if broker != giver)
    assert {c.by_follower for c in reading.chunks} == {giver != LEADER}
    assert relay.sent(EPOCH_END) == ({LEADER: 1} if giver != LEADER else {})


def test_outcomes_of_transactions_are_those_that_the_leader_tells(
    lab3: Lab, topic: MakeTopic, relay: Relay
) -> None:
    name = topic(lab3)
    led(lab3, name)

    async def plant() -> tuple[list[bytes], int]:
        kept = []
        async with Client.to(lab3.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            for i in range(30):
                value = b"%d" % i
                await owner.send(name, 0, [NewRecord(value)])
                await (owner.abort() if i % 3 else owner.commit())
                if not i % 3:
                    kept.append(value)
            await owner.send(name, 0, [NewRecord(b"open")])
            _, stable, _ = await client.offsets(name, 0)
            await owner.abort()
        return kept, stable

    kept, stable = asyncio.run(plant())
    reading = Reading(lab3, relay).run(Range(name, 0, 0, stable), isolation=READ_COMMITTED)
    assert reading.brokers == [FOLLOWER]
    assert reading.ended is not None
    assert (reading.ended.error, reading.ended.position >= stable) == (None, True)
    found = [
        value
        for c in reading.chunks
        for part in decode(
            c.records, c.aborted, last_stable_offset=stable, start=c.fetch_offset, end=stable
        )
        for value, seen in zip(
            part.rows().column("value").to_pylist(),
            ((part.outcome != ABORTED) & ~part.is_control).tolist(),
            strict=True,
        )
        if seen
    ]
    assert found == kept


@pytest.mark.long
@pytest.mark.parametrize("way", ["killed", "frozen"])
@pytest.mark.usefixtures("short")
def test_a_follower_that_goes_is_replaced_by_the_leader(
    lab3: Lab, topic: MakeTopic, relay: Relay, way: str
) -> None:
    name = topic(lab3)
    led(lab3, name)
    values = write(lab3, name, 0)
    reading = Reading(lab3, relay)
    try:
        reading.run(
            Range(name, 0, 0, EACH),
            at_chunk=5,
            then=lambda: (lab3.kill if way == "killed" else lab3.freeze)(FOLLOWER),
        )
    finally:
        (lab3.start if way == "killed" else lab3.thaw)(FOLLOWER)
    assert reading.values == values
    assert reading.ended == Ended(name, 0, EACH)
    assert reading.brokers == [FOLLOWER, LEADER]


@pytest.mark.long
def test_what_a_follower_does_not_have_yet_the_leader_gives(
    lab3: Lab, topic: MakeTopic, relay: Relay
) -> None:
    """The relay takes the records out of a follower's later answers: brokers in sync lag for some
    milliseconds only, and others are not named."""
    name = topic(lab3)
    led(lab3, name)
    values = write(lab3, name, 0, 60)
    behind = error_position(name) + 2 + 3 * 8 + 2 * 4  # up to the length of the records

    def emptied(frame: bytes) -> bytes:
        if relay.sent(FETCH)[FOLLOWER] < 4:
            return frame
        return struct.pack(">i", behind) + frame[4:behind] + struct.pack(">i", 0)

    relay.rewrite = {(FOLLOWER, FETCH): emptied}
    reading = Reading(lab3, relay).run(Range(name, 0, 0, 60))
    assert reading.values == values
    assert reading.ended == Ended(name, 0, 60)
    assert reading.brokers == [FOLLOWER, LEADER]


def error_position(name: str) -> int:
    """The error's position in an answer about one partition, version 11: after length, correlation,
    throttle, error, session, topics, name, partitions, index."""
    return 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4


@pytest.mark.long
def test_beyond_the_end_it_is_the_leader_who_says_so(
    lab3: Lab, topic: MakeTopic, relay: Relay
) -> None:
    name = topic(lab3)
    led(lab3, name)
    write(lab3, name, 0, 10)
    reading = Reading(lab3, relay).run(Range(name, 0, 0, 20))
    assert reading.brokers == [FOLLOWER]
    assert reading.ended == Ended(name, 0, 10, fetch.ABOVE, "the high watermark is 10")
    # it named the follower, and told its end, again and again: a new leader may lag
    assert relay.sent(FETCH)[LEADER] > 2


def test_below_the_log_start_it_is_the_leader_who_says_so(
    lab3: Lab, topic: MakeTopic, relay: Relay
) -> None:
    from confluent_kafka import TopicPartition as ConfluentPartition
    from confluent_kafka.admin import AdminClient

    name = topic(lab3)
    led(lab3, name)
    write(lab3, name, 0, 10)
    client = AdminClient(lab3.client_properties())
    next(iter(client.delete_records([ConfluentPartition(name, 0, 4)]).values())).result(10)
    reading = Reading(lab3, relay).run(Range(name, 0, 2, 10))
    assert not reading.chunks
    assert reading.ended is not None
    assert reading.ended.error == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("error", ["OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION", "a bit"])
def test_what_a_follower_refuses_or_has_damaged_the_leader_gives(
    lab3: Lab, topic: MakeTopic, relay: Relay, error: str
) -> None:
    name = topic(lab3)
    led(lab3, name)
    values = write(lab3, name, 0, 40)
    position = error_position(name)
    codes = {"OFFSET_OUT_OF_RANGE": (position, 1), "UNKNOWN_TOPIC_OR_PARTITION": (position, 3)}
    # in the first batch's value; the batch begins 46 bytes on
    in_value = position + 2 + 8 + 8 + 8 + 4 + 4 + 4 + 61 + 100
    relay.alter = {(FOLLOWER, FETCH): codes.get(error, (in_value, 7))}
    reading = Reading(lab3, relay).run(Range(name, 0, 0, 40))
    assert reading.values == values
    assert reading.ended == Ended(name, 0, 40)
    assert reading.brokers == [LEADER]
    assert relay.sent(FETCH)[FOLLOWER] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("epoch", "end", "why"),
    [(0, 25, "from 25 on"), (-1, -1, "does not know the leader epoch")],
    ids=["cut off", "unknown"],
)
def test_what_the_leaders_log_has_not_is_not_taken_for_read(
    lab3: Lab, topic: MakeTopic, relay: Relay, epoch: int, end: int, why: str
) -> None:
    """An unclean election, which a follower may be slow to hear of: the leader tells its end.

    Kafka's consumer, too, takes an epoch that the leader does not know for a log that was cut off.
    """
    name = topic(lab3)
    led(lab3, name)
    write(lab3, name, 0, 40)
    told = struct.pack(">iq", epoch, end)  # the answer's last fields
    relay.rewrite = {(LEADER, EPOCH_END): lambda frame: frame[:-12] + told}
    reading = Reading(lab3, relay).run(Range(name, 0, 0, 40))
    assert reading.ended is not None
    assert (reading.ended.error, reading.ended.position) == ("LOG_TRUNCATED", 40)
    assert why in reading.ended.detail


@pytest.mark.long
def test_a_follower_is_left_and_named_again_after_a_while(
    lab3: Lab, topic: MakeTopic, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "PLACED_SECONDS", 0.0)
    name = topic(lab3)
    led(lab3, name)
    values = write(lab3, name, 0, 40)
    reading = Reading(lab3, relay).run(Range(name, 0, 0, 40))
    assert reading.values == values
    assert reading.ended == Ended(name, 0, 40)
    assert reading.brokers == [FOLLOWER]
    assert relay.sent(FETCH)[LEADER] > 5


@pytest.mark.long
def test_a_state_and_a_count_are_those_that_the_leader_gives(
    lab3: Lab, topic: MakeTopic, relay: Relay, tmp_path: Path
) -> None:
    """Aborted transactions, tombstones, ranges: the dict's state and counts, from the follower.

    Nothing is cleaned: with Kafka's own settings the leader's copy had lost 20 records of old
    timestamps when the follower's still had them.
    """
    never = {"min.cleanable.dirty.ratio": "0.9", "segment.ms": "3153600000000"}
    name = topic(lab3, config={"cleanup.policy": "compact", **never})
    led(lab3, name)
    fill(lab3, name, seed=8, records=4_000, keys=300, partitions=1)
    config = relay.config(tmp_path)

    def eoctl_in(rack: str, *words: str) -> Ran:
        relay.answered.clear()
        options = ("--context", "relayed", "-X", f"client.rack=env:{rack}")
        env = environment() | {"EOCTL_CONFIG": config, "IN_RACK": f"rack-{FOLLOWER}"}
        ran = eoctl(*words, *options, "-o", "json", env=env, timeout=120)
        assert ran.status == 0, ran.stderr
        return ran

    of_leader = eoctl_in("NOT_SET", "offsets", "count", name).rows
    assert relay.answered[LEADER, FETCH] > 100_000
    assert not relay.answered[FOLLOWER, FETCH]
    assert eoctl_in("IN_RACK", "offsets", "count", name).rows == of_leader
    assert relay.answered[FOLLOWER, FETCH] > 100_000
    assert relay.answered[LEADER, FETCH] < 1000
    words = (
        "state",
        "rebuild",
        name,
        "--format",
        "plain",
        "--at",
        "lso",
        "--range-offsets",
        "1500",
    )
    eoctl_in("IN_RACK", *words, "--output", str(tmp_path / "state"))
    assert relay.answered[FOLLOWER, FETCH] > 100_000
    assert relay.answered[LEADER, FETCH] < 1000
    found = Rebuilt(tmp_path / "state")
    expected, _ = dict_state(lab3, name, found.ends)
    assert found.state() == expected
