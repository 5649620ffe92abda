"""`audit mirror` on what a real MirrorMaker 2 made, killed midway and started again."""

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab, load
from eoctl.lab.mirror import running
from eoctl.lab.record import LabSpec
from tests.docs.pages import follows
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic, made_topic
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading
from tests.kafka.test_audit_mirror import audit
from tests.mirror_maker.maker import SOURCE, TARGET, MirrorMaker

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
PARTITIONS = 2
Log = list[tuple[int, bytes]]


@pytest.fixture
def other(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="target"))
    yield lab
    lab.down()


def _write(lab: Lab, topic: str, first: int, transactions: int, size: int) -> None:
    """Transactions over all partitions, every third aborted; the value is a number."""
    producer = Producer({**lab.client_properties(), "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions(20)
    for number in range(transactions):
        producer.begin_transaction()
        for i in range(size):
            n = first + number * size + i
            value = b"%s %d" % (b"aborted" if number % 3 == 2 else b"committed", n)
            producer.produce(
                topic, value, b"k%d" % (n % 900), partition=n % PARTITIONS, headers=[("n", b"1")]
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(20)


def visible(lab: Lab, topic: str, partition: int, isolation: str = "read_committed") -> Log:
    """Offsets and values of all visible records, by a client of its own."""
    found: Log = []
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        for message in consumer.consume(10_000, 1):
            if message.error():
                consumer.close()
                return found
            found.append((message.offset(), message.value()))


def _end(lab: Lab, topic: str) -> int:
    """Offsets in all partitions of a topic that may not be there yet."""
    consumer = Consumer({**lab.client_properties(), "group.id": "ends"})
    known = consumer.list_topics(timeout=10).topics
    ends = 0
    if topic in known and len(known[topic].partitions) == PARTITIONS:
        for partition in range(PARTITIONS):
            ends += consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1]
    consumer.close()
    return ends


def _commit(lab: Lab, topic: str, group: str, offsets: list[int]) -> None:
    consumer = Consumer({**lab.client_properties(), "group.id": group})
    partitions = [TopicPartition(topic, p, offset) for p, offset in enumerate(offsets)]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def _checked(ran: Ran, logs: list[tuple[Log, Log]]) -> None:
    """Repeats and checkpoints of the audit are those that two consumers' reading tells."""
    for partition, (mine, theirs) in enumerate(logs):
        offsets_of: dict[bytes, list[int]] = defaultdict(list)
        for offset, value in theirs:
            offsets_of[value].append(offset)
        source = {value: offset for offset, value in mine}
        assert set(source) <= set(offsets_of)
        repeats = sorted(
            (source[value], copy, at[0])
            for value, at in offsets_of.items()
            if value in source
            for copy in at[1:]
        )
        told = sorted(
            (r["source_offset"], r["mirror_offset"], r["first_copy"])
            for r in ran.rows
            if r["partition"] == partition and r["finding"] == "repeat"
        )
        assert told == repeats
        for one in ran.json["checkpoints"]:
            if one["partition"] != partition:
                continue
            read = {value for offset, value in theirs if offset >= one["mirror_offset"]}
            late = {value for value, offset in source.items() if offset >= one["source_offset"]}
            again = sum(
                source.get(value, 1 << 62) < one["source_offset"]
                for offset, value in theirs
                if offset >= one["mirror_offset"]
            )
            assert (one["skipped"], one["read_again"]) == (len(late - read), again)
            assert one["skipped"] == 0


@follows("docs/audit.md", "Audits: what is doubled, missing or torn")
def test_the_page(it: Reading, lab1: Lab, other: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1, PARTITIONS)
    copy = f"{SOURCE}.{name}"
    settings = {f"{SOURCE}.consumer.isolation.level": "read_committed"}
    maker = MirrorMaker(lab1, other, name, settings)
    _write(lab1, name, 0, 3, 100)
    wanted = {value for p in range(PARTITIONS) for _, value in visible(lab1, name, p)}
    try:
        maker.start()
        maker.until(lambda: _end(other, copy) >= len(wanted), "not all is mirrored")
    finally:
        maker.kill()
    it.lab = lab1
    it.contexts({"dc2": other})
    it.names |= {"orders": name, "dc1": SOURCE}
    assert it.run("audit mirror", 0, None, "-o", "json").rows == []


def test_two_labs_and_a_mirror_maker_by_hand(lab_state: Path) -> None:
    """Started, the same again, other settings refused, killed, started again; `down` ends it."""
    words = ("lab", "mirror", "--name", "pair", "-o", "json")
    labs: list[Lab] = []
    try:
        [row] = as_published(eoctl(*words, timeout=300), "lab-mirror").rows
        labs = [load(f"pair-{side}") for side in (SOURCE, TARGET)]
        contexts = ("lab-pair-a", "lab-pair-b", "running", False)
        names = ("context", "mirror_context", "state", "exactly_once")
        assert tuple(row[name] for name in names) == contexts
        name = made_topic(labs[0], PARTITIONS)
        _write(labs[0], name, 0, 2, 50)
        end = time.monotonic() + 120
        while _end(labs[1], f"{SOURCE}.{name}") < 100:
            assert time.monotonic() < end, row["log"]
            time.sleep(0.3)
        assert eoctl(*words, timeout=300).rows == [row]
        assert eoctl(*words, "--exactly-once", timeout=300).status == 4
        [killed] = eoctl(*words, "--kill").rows
        assert (killed["state"], killed["pid"]) == ("killed", None)
        assert eoctl(*words, "--kill").status == 4
        [again] = eoctl(*words, "--exactly-once", timeout=300).rows
        assert (again["state"], again["exactly_once"]) == ("running", True)
        process = running(labs[1])
    finally:
        for lab in labs:
            lab.down()
    assert process is not None
    assert not process.alive


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_mirror_maker_that_was_killed(
    lab1: Lab, other: Lab, topic: MakeTopic, tmp_path: Path, isolation: str
) -> None:
    name = topic(lab1, PARTITIONS)
    copy = f"{SOURCE}.{name}"
    settings = {f"{SOURCE}.consumer.isolation.level": isolation}
    maker = MirrorMaker(lab1, other, name, settings)
    try:
        _write(lab1, name, 0, 30, 1_000)
        # it saves its positions only once it is started again: what it wrote comes twice
        maker.start(offset_flush_interval_ms="600000")
        maker.until(lambda: _end(other, copy) >= 5_000, "nothing is mirrored")
        maker.kill()
        once = _end(other, copy)
        _write(lab1, name, 30_000, 6, 1_000)
        mine = [visible(lab1, name, p) for p in range(PARTITIONS)]
        wanted = {value for log in mine for _, value in log}
        for group, part in (("early", 10), ("middle", 2), ("late", 1)):
            _commit(lab1, name, f"{name}-{group}", [log[-1][0] // part + 1 for log in mine])
        maker.start(offset_flush_interval_ms="2000")

        def mirrored() -> bool:
            time.sleep(1)
            seen = {v for p in range(PARTITIONS) for _, v in visible(other, copy, p)}
            return wanted <= seen

        maker.until(lambda: _end(other, copy) > once and mirrored(), "the rest is not mirrored")
        found: dict[str, Any] = {}

        def translated() -> bool:
            found["ran"] = audit(lab1, other, name, copy, "--limit", "1000000")
            return len(found["ran"].json["checkpoints"]) >= 2 * PARTITIONS

        maker.until(translated, "no checkpoints")
    finally:
        maker.kill()
    ran = audit(lab1, other, name, "--source-alias", SOURCE, "--limit", "1000000")
    assert ran.status == 1, ran.stderr
    assert ran.json["offset_syncs"] == f"mm2-offset-syncs.{TARGET}.internal"
    assert ran.json["checkpoints_topic"] == f"{SOURCE}.checkpoints.internal"
    logs = [(mine[p], visible(other, copy, p)) for p in range(PARTITIONS)]
    _checked(ran, logs)
    kinds = Counter(row["finding"] for row in ran.rows)
    assert kinds["repeat"] > 1_000
    aborted = sum(value.startswith(b"aborted") for _, log in logs for _, value in log)
    assert kinds == Counter({"repeat": kinds["repeat"], "aborted": aborted}) - Counter()
    assert (aborted > 0) == (isolation == "read_uncommitted")
    examined = ran.json["examined"]
    assert [e["behind"] for e in examined] == [0] * PARTITIONS
    assert all(e["syncs"] > 10 for e in examined)
    assert [e["syncs_wrong"] for e in examined] == [0] * PARTITIONS
