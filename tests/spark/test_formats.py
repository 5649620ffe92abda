"""Formats that are not plain on Spark, in ranges: the rows of a slow model, the digest of the
local engine. What a range alone cannot know (the highest time, the last offsets) is in the data.
And what came since an earlier state."""

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.lab.cluster import Lab
from eoctl.operations.state.rebuild_answer import rebuild_state
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import transactional
from tests.kafka.state_oracle import MODULUS, Rebuilt, dict_state, digest, fill
from tests.spark.rebuilding import context, on_session, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
PARTITIONS, TRANSACTIONS, EACH = 2, 40, 25
BEGIN, RETENTION = 1_700_000_000_000, 30_000

Record = tuple[bytes, int, bytes | None]
"""Key, timestamp, value."""

Rows = list[tuple[int, bytes, int, bytes]]
"""Partition, key, timestamp, value."""

Encode = Callable[[bytes, int, int, bytes | None], tuple[bytes, bytes | None]]
"""(user's key, time, number, user's value) -> key and value of a record."""


def coast(key: bytes, at: int, number: int, value: bytes | None) -> tuple[bytes, bytes | None]:
    if value is not None:
        value = struct.pack(">qqi", number, 2 * number, len(value)) + value
    return struct.pack(">i", len(key)) + key, value


def window(key: bytes, at: int, number: int, value: bytes | None) -> tuple[bytes, bytes | None]:
    return key + struct.pack(">qi", at // 1000 * 1000, 0), value


def session(key: bytes, at: int, number: int, value: bytes | None) -> tuple[bytes, bytes | None]:
    return key + struct.pack(">qq", at // 1000 * 1000, at // 1000 * 1000 - 500), value


def as_it_is(key: bytes, at: int, number: int, value: bytes | None) -> tuple[bytes, bytes | None]:
    return key, value


def last_of(partition: int, records: Iterable[Record], back: int = 0) -> Rows:
    """Last value per key; with `back`, of those whose time so many bytes before their key's end is
    not older than the highest of any record allows."""
    last = {key: (at, value) for key, at, value in records}

    def time(key: bytes) -> int:
        found: int = struct.unpack(">q", key[-back:][:8])[0]
        return found

    least = max(map(time, last)) - RETENTION + 1 if back else 0
    return [
        (partition, key, at, value)
        for key, (at, value) in last.items()
        if value is not None and (not back or time(key) >= least)
    ]


def versions(partition: int, records: Iterable[Record]) -> Rows:
    """As RocksDBVersionedStore.restoreBatch takes them, and what it answers with afterwards."""
    kept: dict[bytes, dict[int, bytes | None]] = {}
    now = -1
    for key, at, value in records:
        if at >= now - RETENTION:
            now = max(now, at)
            kept.setdefault(key, {})[at] = value
    rows = []
    for key, times in kept.items():
        ordered = sorted(times)
        for begin, end in zip(ordered, [*ordered[1:], 2**63], strict=True):
            if (value := times[begin]) is not None and end > now - RETENTION:
                rows.append((partition, key, begin, value))
    return rows


FORMATS: dict[str, tuple[Encode, Callable[[int, Iterable[Record]], Rows]]] = {
    "coast": (coast, last_of),
    "streams-window": (window, lambda p, records: last_of(p, records, 12)),
    "streams-session": (session, lambda p, records: last_of(p, records, 16)),
    "streams-versioned": (as_it_is, versions),
}


def transactions(partition: int, encode: Encode) -> Iterator[tuple[bool, list[Record]]]:
    """Time rises, many records are late, the newest are in what is aborted."""
    draw = random.Random(partition)
    for number in range(TRANSACTIONS):
        kept = draw.random() < 0.75 and number != TRANSACTIONS - 1
        records = []
        for n in range(EACH):
            now = BEGIN + number * 2000 + n * 50 + (0 if kept else 10**6)
            at = now - draw.choice((0, 0, draw.randrange(60_000)))
            value = None if draw.random() < 0.2 else b"%d" % draw.randrange(10**9)
            user_key = b"key-%d" % draw.randrange(40)
            key, encoded = encode(user_key, at, number * EACH + n, value)
            records.append((key, at, encoded))
        yield kept, records


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_a_format_in_ranges(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path, form: str
) -> None:
    encode, model = FORMATS[form]
    name = topic(lab1, PARTITIONS, 1, KEPT)
    producer = transactional(lab1, name)
    expected: Rows = []
    committed: dict[int, list[Record]] = {}
    for p in range(PARTITIONS):
        for kept, records in transactions(p, encode):
            producer.begin_transaction()
            for key, at, value in records:
                producer.produce(name, value, key, partition=p, timestamp=at)
            if kept:
                producer.commit_transaction(30)
                committed.setdefault(p, []).extend(records)
            else:
                producer.flush(30)
                producer.abort_transaction(30)
        expected += model(p, committed[p])

    def wanted(engine: str, range_offsets: int) -> RebuildRequest:
        at = "lso" if engine == "spark" else str(tmp_path / "spark" / "cut.json")
        retention = None if form == "coast" else RETENTION
        how = Making(form, {}, str(tmp_path / engine), range_offsets=range_offsets)
        return RebuildRequest((name,), at, how, engine, retention)

    found = on_session(spark, lab1, wanted("spark", 200))
    rows = [(r["partition"], r["key"], r["timestamp"], r["value"]) for r in found.rows()]
    assert sorted(rows) == sorted(expected)
    rebuild_state(context(lab1), wanted("local", 10**9), 120)
    local = Rebuilt(tmp_path / "local")
    each = [int(digest({(p, key): (at, value)})[1], 16) for p, key, at, value in expected]
    by_hand = len(each), f"{sum(each) % MODULUS:064x}"
    assert found.digest == local.digest == by_hand
    assert found.manifest.engine == "spark"
    seen = [[p.seen for p in one.manifest.partitions] for one in (found, local)]
    assert seen[0] == seen[1]
    if form == "coast":  # the restart offsets are those of the last committed record with a value
        for p, told in enumerate(seen[0]):
            last = next(value for _, _, value in reversed(committed[p]) if value is not None)
            assert (told["upstream"], told["downstream"]) == struct.unpack(">qq", last[:16])
        states = {(r["partition"], r["user_key"]): r["state"] for r in found.rows()}
        assert states == {(p, key[4:]): value[20:] for p, key, _, value in expected}


@pytest.mark.long
@pytest.mark.parametrize("most", [10**9, 100])
def test_only_what_came_since(
    spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path, most: int
) -> None:
    """An earlier state carried on by executors, whole and in ranges: that of a dict."""
    name = topic(lab1, 2, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"})
    found: list[Rebuilt] = []
    for number in range(3):
        fill(lab1, name, seed=number, records=600, keys=50 + 10 * number, partitions=2)
        since = found[-1].folder if found else None
        output = tmp_path / str(number)
        wanted = plain(name, output, since, range_offsets=most)
        found.append(on_session(spark, lab1, wanted))
        expected, _ = dict_state(lab1, name, found[-1].ends)
        assert found[-1].state() == expected
        assert found[-1].digest == digest(expected)
        assert found[-1].manifest.notes == ()
        assert found[-1].manifest.incremental_from == (since and str(since))
