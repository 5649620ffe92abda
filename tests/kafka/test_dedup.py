"""`dedup` on real brokers: topics with planted repeats, and runs that are killed.

What is expected is told by a plain consumer: the first record of each id, in order.
"""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.share import share

Key = Callable[["Record"], object]


class Record(NamedTuple):
    """What a read_committed consumer got."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int

    def header(self, name: str) -> bytes | None:
        return dict(self.headers).get(name)


def consumed(lab: Lab, topic: str, partition: int) -> list[Record]:
    """Every record of a partition, in order."""
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error() is not None:
                break
            headers = tuple(message.headers() or ())
            found.append(Record(message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def firsts(records: Iterable[Record], key: Key) -> list[Record]:
    """The records whose key was not there before; one without a key is always kept."""
    seen, kept = set[object](), []
    for record in records:
        one = key(record)
        if one is None or one not in seen:
            kept.append(record)
            seen.add(one)
    return kept


def source(record: Record) -> object:
    return record.header("source.partition"), record.header("source.offset")


class Copier:
    """A job that copies source partitions, goes back when it crashes, and so repeats itself."""

    def __init__(self, lab: Lab, topic: str, seed: int, partitions: int = 2) -> None:
        self._random = random.Random(seed)
        self._lab, self._topic, self._partitions = lab, topic, partitions
        self._next: dict[int, int] = {}

    def run(self, records: int) -> None:
        """Copy so many, crashing on the way; some of it in transactions, some of these aborted."""
        config = {**self._lab.client_properties(), "transactional.id": f"copier-{self._topic}"}
        producer = Producer(config)
        producer.init_transactions(20)
        left = records
        while left > 0:
            count = min(left, self._random.randint(1, 60))
            left -= count
            begin = dict(self._next)
            producer.begin_transaction()
            for _ in range(count):
                self._send(producer)
            if self._random.random() < 0.2:
                producer.flush(20)  # librdkafka cannot abort what the broker has not seen begin
                producer.abort_transaction(20)
                self._next = begin
            else:
                producer.commit_transaction(20)
            for number in self._next:
                self._next[number] = max(0, self._next[number] - self._random.choice([0, 0, 3, 30]))

    def _send(self, producer: Producer) -> None:
        number = self._random.randrange(3)
        offset = self._next.get(number, 0)
        self._next[number] = offset + 1
        producer.produce(
            self._topic,
            key=f"customer-{(number + offset) % 7}",
            value=f'{{"order": {{"id": "{number}-{offset}"}}}}',
            partition=number % self._partitions,
            headers=[("source.partition", str(number)), ("source.offset", str(offset))],
            timestamp=1_700_000_000_000 + offset,
        )


def check_clean(lab: Lab, dirty: str, clean: str, key: Key, partitions: int = 2) -> int:
    """The clean topic holds the first of each; how many repeats there were."""
    repeats = 0
    for partition in range(partitions):
        there = consumed(lab, dirty, partition)
        wanted = firsts(there, key)
        assert consumed(lab, clean, partition) == wanted
        repeats += len(there) - len(wanted)
    return repeats


@pytest.fixture
def dirty_and_clean(lab1: Lab, topic: MakeTopic) -> tuple[str, str, Copier]:
    dirty, clean = topic(lab1, 2, name="dirty"), topic(lab1, 2, name="clean")
    copier = Copier(lab1, dirty, seed=hash(dirty) & 0xFFFF)
    copier.run(600)
    return dirty, clean, copier


def dedup(lab: Lab, *words: str, kill_at: str | None = None) -> Ran:
    return eoctl("dedup", *words, lab=lab, env=environment(EOCTL_TEST_KILL_AT=kill_at))


def test_planned_copied_and_followed(lab1: Lab, dirty_and_clean: tuple[str, str, Copier]) -> None:
    dirty, clean, copier = dirty_and_clean
    planned = dedup(lab1, dirty, clean, "-o", "json")
    assert planned.status == 0, planned.stderr
    tally = planned.rows[0]["details"]["tally"]
    assert not consumed(lab1, clean, 0)

    done = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert done.status == 0, done.stderr
    repeats = check_clean(lab1, dirty, clean, source)
    assert repeats > 50
    assert (tally["duplicates"], tally["without_id"], tally["differs"]) == (repeats, 0, 0)

    again = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (again.status, "nothing new" in again.stderr) == (0, True)
    copier.run(200)
    refused = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (refused.status, "--follow" in refused.stderr) == (4, True)
    shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup")  # a shortcut, no more
    for _ in range(2):
        followed = dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")
        assert followed.status == 0, followed.stderr
        check_clean(lab1, dirty, clean, source)
        copier.run(100)


KILLS = (
    "begun",
    "dedup-batch",
    "dedup-committed",
    "step-1-performed",
    "step-2-started",
    "step-2-done",
)


@pytest.mark.parametrize("kill_at", KILLS)
def test_killed_at_a_step_the_same_command_ends_it(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], kill_at: str
) -> None:
    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, "--execute", "--yes", kill_at=kill_at)
    assert killed.status == -signal.SIGKILL
    ended = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert ended.status == 0, ended.stderr
    check_clean(lab1, dirty, clean, source)


def test_killed_at_any_moment(lab1: Lab, topic: MakeTopic) -> None:
    """Seeded kills, --follow between them, and the memory lost now and then."""
    chance = random.Random(7)
    dirty, clean = topic(lab1, 2, name="dirty"), topic(lab1, 2, name="clean")
    copier = Copier(lab1, dirty, seed=7)
    killed = 0
    command = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, "dedup", dirty, clean]
    for _ in range(share(30)):
        copier.run(400)
        with subprocess.Popen(
            [*command, "--follow", "--execute", "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        ) as running:
            time.sleep(chance.uniform(0.6, 2.0))
            running.kill()
            killed += running.wait() == -signal.SIGKILL
        if chance.random() < 0.3:
            shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup", ignore_errors=True)
    assert killed
    while (last := dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")).stderr.count(
        "going on"
    ):
        assert last.status == 0, last.stderr
    assert last.status == 0, last.stderr
    check_clean(lab1, dirty, clean, source)


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("key", lambda r: r.key),
        ("value", lambda r: r.value),
        ("header:source.offset", lambda r: r.header("source.offset")),
        ("json:order.id", lambda r: r.value),
    ],
    ids=["key", "value", "header", "json"],
)
def test_by_an_id(lab1: Lab, dirty_and_clean: tuple[str, str, Copier], by: str, key: Key) -> None:
    dirty, clean, _ = dirty_and_clean
    done = dedup(lab1, dirty, clean, "--by", by, "--execute", "--yes")
    assert done.status == 0, done.stderr
    assert check_clean(lab1, dirty, clean, key)


def test_a_horizon_bounds_what_is_remembered_and_the_plan_says_so(
    lab1: Lab, topic: MakeTopic
) -> None:
    dirty, clean = topic(lab1, name="dirty"), topic(lab1, name="clean")
    producer = Producer(lab1.client_properties())
    for one in ["a", "b", "a", "c", "d", "e", "f", "a", "b", "a"]:
        producer.produce(dirty, key=one, value=b"")
    producer.flush(20)
    words = (dirty, clean, "--by", "key", "--horizon", "4")
    planned = dedup(lab1, *words, "-o", "json")
    assert "more than 4 offsets behind" in planned.rows[0]["details"]["beyond"]
    assert dedup(lab1, *words, "--execute", "--yes").status == 0
    found = [r.key for r in consumed(lab1, clean, 0)]
    assert found == [b"a", b"b", b"c", b"d", b"e", b"f", b"a", b"b"]


def produce(lab: Lab, topic: str, rows: Iterable[tuple[int, str, str]]) -> None:
    """(partition, source offset, value)"""
    producer = Producer(lab.client_properties())
    for partition, offset, value in rows:
        producer.produce(
            topic,
            value=value,
            partition=partition,
            headers=[("source.partition", "0"), ("source.offset", offset)],
        )
    producer.flush(20)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(0, "1", "a"), (0, "3", "b"), (0, "2", "c")], "comes for the first time after"),
        ([(0, "1", "a"), (1, "1", "a")], "in partitions 0 and 1"),
        ([(0, "one", "a")], "not decimal digits"),
    ],
    ids=["order", "scattered", "no number"],
)
def test_refused_where_numbers_cannot_tell(
    lab1: Lab, topic: MakeTopic, rows: list[tuple[int, str, str]], why: str
) -> None:
    dirty, clean = topic(lab1, 2, name="dirty"), topic(lab1, 2, name="clean")
    produce(lab1, dirty, rows)
    refused = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (refused.status, why in refused.stderr) == (4, True), refused.stderr
    assert not consumed(lab1, clean, 0)


def test_the_same_number_with_other_content_is_copied_and_told(lab1: Lab, topic: MakeTopic) -> None:
    dirty, clean = topic(lab1, name="dirty"), topic(lab1, name="clean")
    produce(lab1, dirty, [(0, "1", "a"), (0, "2", "b"), (0, "2", "other"), (0, "2", "b")])
    done = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (done.status, "1 that repeat a number with other content" in done.stderr) == (0, True)
    assert [r.value for r in consumed(lab1, clean, 0)] == [b"a", b"b", b"other"]


def test_refusals_of_topics(lab1: Lab, topic: MakeTopic) -> None:
    dirty, clean, small = (topic(lab1, n, name="t") for n in (2, 2, 1))
    produce(lab1, dirty, [(0, "1", "a")])
    produce(lab1, clean, [(0, "1", "a")])
    for output, status, why in (
        (small, 4, "has 1 partitions"),
        (clean, 4, "has been written to"),
        ("not-there", 4, "does not exist"),
        (dirty, 2, "its own clean copy"),
    ):
        refused = dedup(lab1, dirty, output)
        assert (refused.status, why in refused.stderr) == (status, True), refused.stderr


def test_a_position_that_expired_is_no_beginning(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    from confluent_kafka.admin import AdminClient

    dirty, clean, _ = dirty_and_clean
    assert dedup(lab1, dirty, clean, "--execute", "--yes").status == 0
    admin = AdminClient(lab1.client_properties())
    group = f"{dirty}-{clean}-eoctl-dedup"
    admin.delete_consumer_groups([group])[group].result(20)
    refused = dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")
    assert (refused.status, "no position of this job is known" in refused.stderr) == (4, True)
    check_clean(lab1, dirty, clean, source)


def test_a_position_that_expires_between_kill_and_rerun_doubles_nothing(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    from confluent_kafka.admin import AdminClient

    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, "--execute", "--yes", kill_at="step-1-performed")
    assert killed.status == -signal.SIGKILL
    there = [consumed(lab1, clean, p) for p in range(2)]
    assert any(there)
    admin = AdminClient(lab1.client_properties())
    group = f"{dirty}-{clean}-eoctl-dedup"
    admin.delete_consumer_groups([group])[group].result(20)
    again = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert again.status != 0, again.stderr
    assert consumed(lab1, clean, 0) == there[0]
