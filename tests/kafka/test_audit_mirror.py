"""`audit mirror` between two real clusters: what was planted is found, and nothing else."""

import asyncio
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published, send_keyed
from tests.share import share

LONG = (pytest.mark.long, pytest.mark.timeout(3600))
PARTITIONS = 2
Planted = list[tuple[Any, ...]]


@dataclass(frozen=True)
class One:
    """A record as it was produced; state: visible, aborted or open."""

    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int
    state: str = "visible"

    @property
    def content(self) -> tuple[Any, ...]:
        return self.key, self.value, self.headers, self.timestamp


@pytest.fixture(scope="module")
def other(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """The mirror's cluster."""
    lab = start_lab(LabSpec(name="mirror"))
    yield lab
    lab.down()


def audit(source: Lab, mirror: Lab, *words: str, timeout: float = 1200) -> Ran:
    where = ("--mirror-bootstrap-server", mirror.bootstrap_servers, "-o", "json")
    ran = eoctl("audit", "mirror", *words, *where, lab=source, timeout=timeout)
    return ran if ran.status in (2, 4, 5) else as_published(ran, "audit-mirror")


def produced(
    lab: Lab, topic: str, partition: int, records: Sequence[One], **settings: Any
) -> list[One]:
    """Send them in this order, outside transactions or in one of the given id."""
    found: list[One] = []
    producer = settings.pop("producer", None) or Producer(
        {**lab.client_properties(), "enable.idempotence": True, "linger.ms": 20, **settings}
    )
    for one in records:

        def delivered(error: Any, message: Any, one: One = one) -> None:
            assert error is None, error
            found.append(replace(one, offset=message.offset()))

        while True:
            try:
                producer.produce(
                    topic,
                    one.value,
                    one.key,
                    partition=partition,
                    headers=list(one.headers),
                    timestamp=one.timestamp,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    return found


def _made(rng: random.Random, number: int, now: int) -> One:
    key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(5_000)
    headers = (("n", b"%d" % number),) if rng.random() < 0.5 else ()
    return One(-1, key, b"value %d" % number, headers, now + number // 10)


def written(lab: Lab, topic: str, count: int, seed: int) -> list[list[One]]:
    """By partition: transactions, every fifth one aborted; the last one stays open."""
    rng, now = random.Random(seed), int(time.time() * 1000) - 3_600_000
    producer = Producer({**lab.client_properties(), "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions(20)
    found: list[list[One]] = [[] for _ in range(PARTITIONS)]
    size = max(40, count // 50)
    for at in range(0, count, size):
        open_now = at + size >= count
        state = "open" if open_now else "aborted" if (at // size) % 5 == 4 else "visible"
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            batch = [_made(rng, 2 * (at + i) + partition, now) for i in range(size // PARTITIONS)]
            found[partition] += [
                replace(one, state=state)
                for one in produced(lab, topic, partition, batch, producer=producer)
            ]
        if state == "aborted":
            producer.abort_transaction(20)
        elif state == "visible":
            producer.commit_transaction(20)
    _OPEN.append(producer)  # an object that is collected aborts its transaction
    return found


_OPEN: list[Producer] = []


def mirrored(
    lab: Lab, topic: str, partition: int, source: list[One], lag: int, seed: int
) -> tuple[Planted, list[One], list[One]]:
    """A copy with some of each fault; what is expected, the source's part, the copy."""
    rng = random.Random(seed)
    whole = [one for one in source if one.state == "visible"]
    seen = whole[: len(whole) - lag]
    hidden = [one for one in source if one.state == "aborted"]
    undecided = [one for one in source if one.state == "open"]
    faults = ["lost", "value", "headers", "timestamp", "stranger", "repeat", "swap", "aborted"]
    faults = 2 * [*faults, "open"]
    rng.shuffle(faults)
    step = len(seen) // (len(faults) + 1)
    at = {step * (n + 1): fault for n, fault in enumerate(faults)}
    out: list[tuple[One, str]] = []
    for i, one in enumerate(seen):
        fault = at.get(i)
        if fault == "lost":
            continue
        if fault == "value":
            out.append((replace(one, value=one.value + b"!"), "value"))
        elif fault == "headers":
            out.append((replace(one, headers=(*one.headers, ("x", b"y"))), "headers"))
        elif fault == "timestamp":
            out.append((replace(one, timestamp=one.timestamp + 7), "timestamp"))
        elif fault == "swap":
            out.insert(len(out) - 1, (one, "swap"))
        else:
            out.append((one, ""))
        if fault == "repeat":
            out += [(again, "repeat") for again, _ in out[-5:]]
        elif fault == "stranger":
            out.append((One(-1, b"nobody", b"s%d" % i, (), one.timestamp), "stranger"))
        elif fault in ("aborted", "open"):
            out.append((rng.choice(hidden if fault == "aborted" else undecided), fault))
    copy = produced(lab, topic, partition, [one for one, _ in out])
    planted: Planted = [("lost", seen[i].offset, None, []) for i, f in at.items() if f == "lost"]
    first: dict[tuple[Any, ...], int] = {}
    for (one, fault), stands in zip(out, copy, strict=True):
        first.setdefault(one.content, stands.offset)
        if fault in ("value", "headers", "timestamp"):
            planted.append(("changed", one.offset, stands.offset, [fault]))
        elif fault == "repeat":
            planted.append(("repeat", one.offset, stands.offset, [first[one.content]]))
        elif fault == "stranger":
            planted.append(("only-in-mirror", None, stands.offset, []))
        elif fault in ("aborted", "open"):
            planted.append((fault, one.offset, stands.offset, []))
        elif fault == "swap":
            planted.append(("moved", None, None, []))
    return planted, seen, copy


def told(rows: Sequence[dict[str, Any]], partition: int) -> Planted:
    return [
        (
            row["finding"],
            None if row["finding"] == "moved" else row["source_offset"],
            None if row["finding"] == "moved" else row["mirror_offset"],
            row["differs"] if row["first_copy"] is None else [row["first_copy"]],
        )
        for row in rows
        if row["partition"] == partition
    ]


def _ranges(source: list[One], copy: list[One]) -> set[tuple[str, int, int]]:
    """The key ranges whose records differ, with how many each side has."""

    def name(one: One) -> str:
        if one.key is None:
            return "no key"
        low = zlib.crc32(one.key) >> 26 << 26
        return f"{low:08x}-{low + (1 << 26) - 1:08x}"

    both = [(Counter((name(o), o.content) for o in side)) for side in (source, copy)]
    unlike = {n for (n, _) in (both[0] - both[1]) + (both[1] - both[0])}
    counts = [Counter(map(name, side)) for side in (source, copy)]
    return {(n, counts[0][n], counts[1][n]) for n in unlike}


@pytest.mark.long
@pytest.mark.parametrize("count", [share(100_000), pytest.param(5_000_000, marks=LONG)])
def test_large_logs(lab1: Lab, other: Lab, topic: MakeTopic, count: int) -> None:
    """Holes, runs that come again, strangers, records in another place; a mirror that lags."""
    name, copy_name, rng = topic(lab1), topic(other), random.Random(5)
    lag = count // 50
    source = list(range(count))
    mirror: list[tuple[int, str]] = []
    moved: list[int] = []
    faults = sorted(rng.sample(range(100, count - lag - 100, 150), 40))
    kinds = {at: ("hole", "rewind", "stranger", "moved")[n % 4] for n, at in enumerate(faults)}
    begin = 0
    for at, kind in [*kinds.items(), (count - lag, "")]:
        mirror += [(number, "") for number in source[begin:at]]
        begin = at
        if kind == "hole":
            begin += rng.randrange(1, 50)
        elif kind == "rewind":
            again = rng.randrange(1, min(at, 2_000)) if at != faults[-3] else count // 40
            known = {number for number, _ in mirror[-2 * again :]}
            mirror += [(n, "repeat") for n in range(at - again, at) if n in known]
        elif kind == "stranger":
            mirror.append((1_000_000_000 + at, "stranger"))
        elif kind == "moved":
            moved.append(at - 30)
            near_end = len(mirror) - 30
            mirror.append(mirror.pop(near_end))

    async def fill() -> None:
        for lab, where, numbers in (
            (lab1, name, source),
            (other, copy_name, [number for number, _ in mirror]),
        ):
            async with Client.to(lab.bootstrap_servers) as client:
                await send_keyed(client, where, 0, numbers)

    asyncio.run(fill())
    expected: Planted = []
    first: dict[int, int] = {}
    for offset, (number, fault) in enumerate(mirror):
        if number in first:
            assert fault == "repeat"
            expected.append(("repeat", number, offset, [first[number]]))
        elif fault == "stranger":
            expected.append(("only-in-mirror", None, offset, []))
        first.setdefault(number, offset)
    expected += [("lost", n, None, []) for n in range(count - lag) if n not in first]
    ran = audit(lab1, other, name, copy_name, "--limit", "10000000")
    assert ran.status == 1, ran.stderr
    found = {str(row) for row in told(ran.rows, 0) if row[0] != "moved"}
    planted = {str(row) for row in expected}
    assert (sorted(found - planted), sorted(planted - found)) == ([], [])
    assert sorted(r["source_offset"] for r in ran.rows if r["finding"] == "moved") == moved
    assert ran.json["examined"][0]["behind"] == lag
    assert ran.json["examined"][0]["mirrored_to"] == count - lag


def test_planted_differences_are_found_and_nothing_else(
    lab1: Lab, other: Lab, topic: MakeTopic
) -> None:
    count = share(30_000)
    name, copy_name = topic(lab1, PARTITIONS), topic(other, PARTITIONS)
    source = written(lab1, name, count, 3)
    lag = count // 100
    made = [mirrored(other, copy_name, p, source[p], lag, p) for p in range(PARTITIONS)]
    ran = audit(lab1, other, name, copy_name)
    assert ran.status == 1, ran.stderr
    for partition, (planted, seen, copy) in enumerate(made):
        order = lambda row: tuple(str(x) for x in row)  # noqa: E731
        assert sorted(told(ran.rows, partition), key=order) == sorted(planted, key=order)
        [examined] = [e for e in ran.json["examined"] if e["partition"] == partition]
        assert examined["behind"] == lag
        assert examined["mirrored_to"] == seen[-1].offset + 1
        assert examined["source_records"] == len(seen)
        assert examined["mirror_records"] == len(copy)
        ranges = {(r["keys"], r["source_records"], r["mirror_records"]) for r in examined["ranges"]}
        assert ranges == _ranges(seen, copy)
    assert ran.json["findings"] == sum(len(planted) for planted, *_ in made)
    most = len(made[0][0]) + 2
    fewer = audit(lab1, other, name, copy_name, "--limit", str(most))
    assert (fewer.status, fewer.rows) == (1, ran.rows[:most]), fewer.stderr
    for counted in ("findings", "examined"):
        assert fewer.json[counted] == ran.json[counted]


def test_an_equal_mirror_and_one_that_lags_are_no_finding(
    lab1: Lab, other: Lab, topic: MakeTopic
) -> None:
    name, copy_name = topic(lab1, PARTITIONS), topic(other, PARTITIONS)
    source = written(lab1, name, 2_000, 4)
    for partition in range(PARTITIONS):
        whole = [one for one in source[partition] if one.state == "visible"]
        produced(other, copy_name, partition, whole[:-100])
    ran = audit(lab1, other, name, copy_name)
    assert (ran.status, ran.rows) == (0, []), ran.stderr
    assert [e["behind"] for e in ran.json["examined"]] == [100, 100]
    for partition in range(PARTITIONS):
        whole = [one for one in source[partition] if one.state == "visible"]
        produced(other, copy_name, partition, whole[-100:])
    ran = audit(lab1, other, name, copy_name)
    assert (ran.status, ran.rows) == (0, []), ran.stderr
    assert [e["behind"] for e in ran.json["examined"]] == [0, 0]
    for e in ran.json["examined"]:
        assert e["source_digest"] == e["mirror_digest"]
        assert e["ranges"] == []
    # an empty mirror lacks nothing that it may not get still
    ran = audit(lab1, other, name, topic(other, PARTITIONS))
    assert ran.status == 0
    assert all(e["mirrored_to"] is None and e["behind"] > 0 for e in ran.json["examined"])


def test_what_was_deleted_or_compacted_on_one_side_is_no_finding(
    lab1: Lab, other: Lab, topic: MakeTopic
) -> None:
    now = int(time.time() * 1000)
    records = [One(-1, b"k%d" % (i % 10), b"v%d" % i, (), now + i) for i in range(300)]
    name, copy_name = topic(lab1), topic(other)
    produced(lab1, name, 0, records)
    produced(other, copy_name, 0, records[:250])
    for lab, cut, before in ((lab1, name, "mirror_before"), (other, copy_name, "source_before")):
        admin = AdminClient(lab.client_properties())
        where = TopicPartition(cut, 0, 40 if lab is lab1 else 90)
        admin.delete_records([where])[where].result(20)
        ran = audit(lab1, other, name, copy_name)
        assert (ran.status, ran.rows) == (0, []), ran.stderr
        [examined] = ran.json["examined"]
        assert examined[before] == (40 if lab is lab1 else 50)
        assert examined["behind"] == 50
    # a mirror that lacks records where nothing was deleted from it has lost them
    late = topic(other)
    produced(other, late, 0, records[60:250])
    ran = audit(lab1, other, name, late)
    assert ran.status == 1
    assert {row["finding"] for row in ran.rows} == {"lost"}
    assert [row["source_offset"] for row in ran.rows] == list(range(40, 60))
    # the same mirror, compacted: what it lacks proves nothing
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        late,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient(other.client_properties())
    admin.incremental_alter_configs([resource])[resource].result(20)
    ran = audit(lab1, other, name, late)
    assert (ran.status, ran.rows) == (3, []), ran.stderr
    assert [e["error"] for e in ran.json["errors"]] == ["UNPROVEN"]
    assert ran.json["examined"][0]["unproven"] == 20


@pytest.mark.long
def test_offset_syncs_and_checkpoints(lab1: Lab, other: Lab, topic: MakeTopic) -> None:
    now = int(time.time() * 1000)
    records = [One(-1, None, b"v%d" % i, (), now + i) for i in range(100)]
    name, copy_name = topic(lab1), topic(other)
    produced(lab1, name, 0, records)
    # the mirror went back once: 0..59, then 40..99
    copied = list(range(60)) + list(range(40, 90))
    produced(other, copy_name, 0, [records[i] for i in copied])
    tag = name.rpartition("-")[2]

    def text(word: str) -> bytes:
        return struct.pack(">h", len(word)) + word.encode()

    good, bad = [(0, 0), (45, 45), (45, 65), (89, 109)], [(45, 64), (50, 20)]
    waiting = [(95, 115)]  # above the mirror's end
    key = text(name) + struct.pack(">i", 0)
    syncs = topic(lab1, name=f"mm2-offset-syncs.{tag}.internal")
    produced(
        lab1,
        syncs,
        0,
        [
            One(-1, key, struct.pack(">qq", up, down), (), now)
            for up, down in [*good, *bad, *waiting]
        ],
    )
    # group: where it is in the source, where in the mirror
    groups = {
        "exact": (90, 110),
        "early": (50, 30),
        "second": (45, 65),
        "skips": (50, 75),
        "never": (10, 30),
        "beyond": (99, 500),
    }
    found = topic(other, name=f"{tag}.checkpoints.internal")
    produced(
        other,
        found,
        0,
        [
            One(
                -1,
                text(group) + text(copy_name) + struct.pack(">i", 0),
                struct.pack(">hqq", 0, up, down) + text(""),
                (),
                now,
            )
            for group, (up, down) in groups.items()
        ],
    )
    ran = audit(lab1, other, name, copy_name, "--offset-syncs", syncs, "--checkpoints", found)
    assert ran.status == 1, ran.stderr
    wrong = [
        (r["source_offset"], r["mirror_offset"]) for r in ran.rows if r["finding"] == "offset-sync"
    ]
    assert wrong == bad
    assert (ran.json["examined"][0]["syncs"], ran.json["examined"][0]["syncs_wrong"]) == (6, 2)
    told_of = {c["group"]: (c["skipped"], c["read_again"]) for c in ran.json["checkpoints"]}
    for group, (up, down) in groups.items():
        read = copied[down:]
        skipped = sum(i not in read for i in set(copied) if i >= up)
        assert told_of[group] == (skipped, sum(i < up for i in read)), group
    bad_groups = {r["group"]: r["records"] for r in ran.rows if r["finding"] == "checkpoint"}
    assert bad_groups == {g: told_of[g][0] for g in ("skips", "never", "beyond")}
    repeats = [r["source_offset"] for r in ran.rows if r["finding"] == "repeat"]
    assert repeats == list(range(40, 60))
    none = audit(
        lab1, other, name, copy_name, "--offset-syncs", "none", "--checkpoints", "none"
    ).json
    assert (none["offset_syncs"], none["checkpoints"]) == (None, [])
    broken = topic(other)
    produced(other, broken, 0, [One(-1, b"no key of a checkpoint", b"v", (), now)])
    ran = audit(lab1, other, name, copy_name, "--offset-syncs", syncs, "--checkpoints", broken)
    assert ran.status == 3, ran.stderr
    [error] = ran.json["errors"]
    assert (error["topic"], ran.json["examined"][0]["syncs_wrong"]) == (broken, 2)


def test_what_is_asked_wrongly(lab1: Lab, other: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    assert audit(lab1, other, "a*", "b").status == 2
    assert audit(lab1, other, name, "--ignore", "value").status == 2
    assert audit(lab1, other, name, "--start", "12").status == 2
    assert audit(lab1, lab1, name, name).status == 2
    assert audit(lab1, other, name, name, "--offset-syncs", "no-such-topic").status == 2
    assert eoctl("audit", "mirror", name, lab=lab1).status == 2
    ran = audit(lab1, other, name, "no-such-topic")
    assert ran.status == 3
    assert ran.json["errors"][0]["topic"] == "no-such-topic"


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def _late(lab1: Lab, topic: MakeTopic, copy: str, other: Lab, copied: list[int]) -> tuple[str, int]:
    """300 records, a second apart, and copies of some; their topic and the time of the first."""
    began = int(time.time() * 1000) - 3_600_000
    records = [One(-1, b"k", b"v%d" % i, (), began + 1000 * i) for i in range(300)]
    name = topic(lab1)
    produced(lab1, name, 0, records)
    produced(other, copy, 0, [records[i] for i in copied])
    return name, began


@pytest.mark.parametrize("start", [120, 100, 200, 0])
def test_a_hole_where_the_instant_begins_is_lost(
    lab1: Lab, other: Lab, topic: MakeTopic, start: int
) -> None:
    """MirrorMaker jumped from 100 to 200: the mirror's first record of the range is behind."""
    copy = topic(other)
    name, began = _late(lab1, topic, copy, other, [*range(100), *range(200, 300)])
    ran = audit(lab1, other, name, copy, "--start", _time(began + 1000 * start))
    lost = list(range(max(start, 100), 200))
    assert ran.status == (1 if lost else 0), ran.stderr
    assert [(row["finding"], row["source_offset"]) for row in ran.rows] == [
        ("lost", offset) for offset in lost
    ]
    [examined] = ran.json["examined"]
    assert (examined["source_start"], examined["source_before"]) == (start, 0)
    assert examined["lost"] == len(lost)
    # retention of the mirror explains what is older than its first record, and nothing else
    admin = AdminClient(other.client_properties())
    where = TopicPartition(copy, 0, 50)
    admin.delete_records([where])[where].result(20)
    ran = audit(lab1, other, name, copy, "--start", _time(began + 1000 * start))
    assert [row["source_offset"] for row in ran.rows] == lost
    assert ran.json["examined"][0]["source_before"] == (50 if start == 0 else 0)


def test_a_hole_where_the_clocks_differ_is_not_proven(
    lab1: Lab, other: Lab, topic: MakeTopic
) -> None:
    """The mirror has times of its own: what it lacks at the head may stand before its range."""
    copy = topic(other, config={"message.timestamp.type": "LogAppendTime"})
    now = int(time.time() * 1000)
    records = [One(-1, b"k", b"v%d" % i, (), now) for i in range(30)]
    name = topic(lab1)
    produced(lab1, name, 0, records[:10])
    produced(other, copy, 0, records[:10])
    time.sleep(1.1)
    between = int(time.time() * 1000)
    later = [replace(one, timestamp=between + 1) for one in records[10:]]
    produced(lab1, name, 0, later)
    produced(other, copy, 0, later[5:])
    ran = audit(lab1, other, name, copy, "--start", _time(between))
    assert (ran.status, ran.rows) == (3, []), ran.stderr
    assert ran.json["examined"][0]["source_before"] == 5
    [error] = ran.json["errors"]
    assert error["error"] == "UNPROVEN"
    assert error["detail"].startswith("5 records before the first")


@pytest.mark.long
@pytest.mark.parametrize("timed", [True, False])
def test_copies_of_what_is_older_than_the_range_are_not_the_mirrors_own(
    lab1: Lab, other: Lab, topic: MakeTopic, timed: bool
) -> None:
    """MirrorMaker went back from 150 to 50; the source is read from 120, or begins there."""
    copy = topic(other)
    name, began = _late(lab1, topic, copy, other, [*range(150), *range(50, 300)])
    words: tuple[str, ...] = ()
    if timed:
        words = ("--start", _time(began + 120_000))
    else:
        admin = AdminClient(lab1.client_properties())
        where = TopicPartition(name, 0, 120)
        admin.delete_records([where])[where].result(20)
    ran = audit(lab1, other, name, copy, *words)
    assert [(r["finding"], r["source_offset"]) for r in ran.rows] == [
        ("repeat", offset) for offset in range(120, 150)
    ]
    [examined] = ran.json["examined"]
    assert (examined["only_in_mirror"], examined["unproven"]) == (0, 70)
    [error] = ran.json["errors"]
    assert error["error"] == "UNPROVEN"
    # a stranger of the range's time is one
    produced(other, copy, 0, [One(-1, b"nobody", b"s", (), began + 140_500)])
    ran = audit(lab1, other, name, copy, *words)
    assert ran.json["examined"][0]["only_in_mirror"] == 1
    assert ran.json["examined"][0]["unproven"] == 70


@pytest.mark.long
@pytest.mark.parametrize("timed", [True, False])
def test_checkpoints_before_the_ranges_prove_nothing(
    lab1: Lab, other: Lab, topic: MakeTopic, timed: bool
) -> None:
    """Its records from 10 to 40 would be skipped, but none of them is read."""
    copy = topic(other)
    name, began = _late(lab1, topic, copy, other, list(range(300)))
    groups = {"skips": (10, 40), "within": (150, 150), "across": (130, 90), "beyond": (20, 500)}
    found = topic(other, name=f"{copy.rpartition('-')[2]}.checkpoints.internal")

    def text(word: str) -> bytes:
        return struct.pack(">h", len(word)) + word.encode()

    records = [
        One(
            -1,
            text(group) + text(copy) + struct.pack(">i", 0),
            struct.pack(">hqq", 0, up, down) + text(""),
            (),
            began,
        )
        for group, (up, down) in groups.items()
    ]
    produced(other, found, 0, records)
    words: tuple[str, ...] = ("--checkpoints", found)
    if timed:
        words += ("--start", _time(began + 120_000))
    else:
        for lab, log in ((lab1, name), (other, copy)):
            admin = AdminClient(lab.client_properties())
            where = TopicPartition(log, 0, 120)
            admin.delete_records([where])[where].result(20)
    ran = audit(lab1, other, name, copy, *words)
    assert {c["group"]: (c["skipped"], c["read_again"]) for c in ran.json["checkpoints"]} == {
        "skips": (None, None),
        "within": (0, 0),
        "across": (None, None),
        "beyond": (None, None),
    }
    assert [(r["group"], r["records"]) for r in ran.rows] == [("beyond", None)]
    [error] = ran.json["errors"]
    assert (error["error"], error["detail"][:13]) == ("UNPROVEN", "3 checkpoints")
    alone = audit(lab1, other, name, copy, *words, "--checkpoints", "none")
    assert (alone.status, alone.json["errors"]) == (0, []), alone.stderr


@pytest.mark.parametrize("state", ["aborted", "open"])
def test_a_tail_is_lost_when_copies_of_hidden_records_follow_it(
    lab1: Lab, other: Lab, topic: MakeTopic, state: str
) -> None:
    """MirrorMaker, reading uncommitted, has come to 80: what lies below 80 comes no more."""
    now = int(time.time() * 1000)
    records = [One(-1, b"k", b"v%d" % i, (), now + i) for i in range(100)]
    name, copy = topic(lab1), topic(other)
    produced(lab1, name, 0, records[:70])
    producer = Producer({**lab1.client_properties(), "transactional.id": name, "linger.ms": 20})
    producer.init_transactions(20)
    producer.begin_transaction()
    produced(lab1, name, 0, records[70:80], producer=producer)
    if state == "aborted":
        producer.abort_transaction(20)
    else:
        _OPEN.append(producer)
    produced(lab1, name, 0, records[80:])  # above an open transaction: above the LSO
    # the mirror's own record says nothing of how far it has come
    produced(other, copy, 0, [*records[:50], One(-1, b"nobody", b"s", (), now)])
    ran = audit(lab1, other, name, copy)
    behind = 40 if state == "aborted" else 20
    assert [row["finding"] for row in ran.rows] == ["only-in-mirror"]
    assert (ran.json["examined"][0]["behind"], ran.json["examined"][0]["mirrored_to"]) == (
        behind,
        50,
    )
    produced(other, copy, 0, records[70:75])
    ran = audit(lab1, other, name, copy)
    assert ran.status == 1, ran.stderr
    lost = [row["source_offset"] for row in ran.rows if row["finding"] == "lost"]
    assert lost == list(range(50, 70))
    assert [r["source_offset"] for r in ran.rows if r["finding"] == state] == list(range(70, 75))
    [examined] = ran.json["examined"]
    assert (examined["behind"], examined["mirrored_to"]) == (behind - 20, 75)


def test_a_record_below_one_that_stands_elsewhere_is_lost(
    lab1: Lab, other: Lab, topic: MakeTopic
) -> None:
    """The mirror's first record is the source's 90th, which is later than those that it lacks."""
    copy = topic(other)
    name, _ = _late(lab1, topic, copy, other, [90, *range(50)])
    ran = audit(lab1, other, name, copy)
    assert ran.status == 1, ran.stderr
    lost = [row["source_offset"] for row in ran.rows if row["finding"] == "lost"]
    assert lost == list(range(50, 90))
    assert [r["source_offset"] for r in ran.rows if r["finding"] == "moved"] == [90]
    assert ran.json["examined"][0]["behind"] == 209
