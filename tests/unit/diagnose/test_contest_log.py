"""Contests found as the log is read are those that all its records show, and little is kept."""

import random
import struct
from collections.abc import Iterable

import pytest

from recovery.diagnose import contest_log
from recovery.diagnose.contest import contests
from recovery.diagnose.contest_log import ContestLog
from recovery.facts import TopicPartition
from recovery.formats import batches
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import part_of
from recovery.values import replace
from tests.unit.formats.test_state_log import key
from tests.unit.formats_build import Item, batch
from tests.unit.transaction_model import World

T0 = TopicPartition("t", 0)
STATES = list(TransactionState)


@pytest.fixture(params=["numpy", "base"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "base":
        monkeypatch.setattr(batches, "has_numpy", lambda: False)


def written(r: StateRecord) -> bytes:
    """A record as coordinators write it: a batch of its own."""
    value = None
    if isinstance(v := r.value, TransactionValue):
        flexible = int(v.client_transaction_version > 0)
        head = (flexible, v.producer_id, v.producer_epoch, v.timeout_ms, STATES.index(v.state))
        times = struct.pack(">qq", v.last_update_ms, v.start_ms)
        if flexible:
            topics = b"\x02\x02t\x02" + bytes(5) if v.partitions else b"\x01"
            times += b"\x01\x02\x02" + struct.pack(">h", v.client_transaction_version)
        else:
            topic = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ii", 1, 0)
            topics = topic if v.partitions else struct.pack(">i", 0)
        value = struct.pack(">hqhib", *head) + topics + times
    return batch(r.offset, [Item(0, r.timestamp, key(r.transactional_id), value)])


def read(records: Iterable[StateRecord], chunk: int, log: ContestLog) -> ContestLog:
    data = [written(r) for r in records]
    for start in range(0, len(data), chunk):
        log.add(part_of(b"".join(data[start : start + chunk])), 0)
    return log


def lives(r: random.Random) -> list[StateRecord]:
    """Some ids that are initialised, write, end, are fenced, time out or are forgotten."""
    world = World()
    names = [f"app-{n}" for n in range(r.randint(1, 4))]
    for _ in range(r.randint(10, 120)):
        i = world.init(r.choice(names), r.choice([1, 2]), r.choice([60_000, 45_000]))
        for _ in range(r.choice([0, 1, 1, 1, 2])):
            world.write(i, T0)
            world.tick(r.choice([10, 500, 70_000]))
            if r.random() < 0.4:
                world.end(i, r.choice(["commit", "abort"]))
            elif r.random() < 0.1:
                world.server_abort(i)
    ordered = sorted(
        (record for mine in world.state.values() for record in mine), key=lambda x: x.timestamp
    )
    return [replace(x, partition=0, offset=n) for n, x in enumerate(ordered)]


@pytest.mark.parametrize("seed", range(40))
def test_as_all_records_show(seed: int) -> None:
    r = random.Random(seed)
    records = lives(r)
    for n in r.sample(range(len(records)), k=r.choice([0, 0, 2])):
        records[n] = replace(records[n], value=None)
    log = read(records, r.choice([1, 7, 1000]), ContestLog())
    assert log.contests == contests(records)


def test_the_seeds_have_contests() -> None:
    found = [c for seed in range(40) for c in contests(lives(random.Random(seed)))]
    assert len(found) > 20


def test_of_what_commits_nothing_is_kept_and_else_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_log, "MOST_IDS", 3)
    world = World()
    for name in "abcd":
        i = world.init(name)
        world.write(i, T0)
        world.end(i, "commit")
    log = read([r for mine in world.state.values() for r in mine], 1, ContestLog())
    assert not log.full
    for name in "abc":
        world.write(world.ids[name], T0)
    read([r for mine in world.state.values() for r in mine], 1, log)
    assert log.full
