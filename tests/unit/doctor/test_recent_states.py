"""What doctor keeps of a log as it reads it is what all records of that log show."""

import random

import pytest

from recovery.doctor.outages import outages
from recovery.doctor.recent_states import RecentStates
from recovery.doctor.version_rules import newest_versions
from recovery.facts import TopicPartition
from recovery.formats import batches
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect import log_part
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import LogPart, part_of
from tests.share import share
from tests.unit.diagnose.test_contest_log import written

NOW = 1_700_000_000_000
STATES = [*TransactionState][:8]
IDS = ["sink-0-1", "sink-0-2", "sink-1-1", "other-0-7", "app-x", "ö-0-1"]


@pytest.fixture(params=["numpy", "base"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "base":
        monkeypatch.setattr(batches, "has_numpy", lambda: False)
    return str(request.param)


def log(r: random.Random) -> list[StateRecord]:
    """Ids that do anything at all, in the order of nothing but offsets and times."""
    found, at = [], NOW
    for offset in range(r.randint(1, 60)):
        at += r.choice([1, 1000, 50_000])
        state, begun = r.choice(STATES), at - r.choice([0, 10, 70_000])
        partitions = (TopicPartition("t", 0),) if r.random() < 0.5 else ()
        value = TransactionValue(
            7,
            offset,
            60_000,
            state,
            partitions,
            at,
            begun,
            client_transaction_version=r.choice([0, 0, 1, 2]),
        )
        gone = r.random() < 0.1
        found.append(StateRecord(r.choice(IDS), 0, offset, at, None if gone else value))
    return found


@pytest.mark.parametrize("seed", range(share(200, 40)))
def test_as_all_records_show(seed: int, way: str) -> None:
    r = random.Random(seed)
    records, since, chunk = log(r), NOW + r.randint(0, 300_000), r.choice([1, 3, 100])
    reading = RecentStates(since)
    for start in range(0, len(records), chunk):
        part = b"".join(map(written, records[start : start + chunk]))
        reading.add(part_of(part), 0)
    assert reading.versions == newest_versions(x for x in records if x.timestamp >= since)
    assert sorted(reading.sinks.outages, key=str) == sorted(outages(records), key=str)


def test_the_seeds_have_outages_and_versions() -> None:
    logs = [log(random.Random(seed)) for seed in range(40)]
    assert sum(bool(outages(records)) for records in logs) > 10
    assert {v for records in logs for v in newest_versions(records).values()} == {0, 1, 2}


def test_few_records_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sink that commits, one of each id and part."""
    decoded: list[StateRecord] = []
    decode = LogPart.decoded

    def counted(part: LogPart, partition: int, rows: list[int]) -> list[StateRecord]:
        found = list(decode(part, partition, rows))
        decoded.extend(found)
        return found

    monkeypatch.setattr(log_part.LogPart, "decoded", counted)
    ongoing, done = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
    states = [ongoing, TransactionState.PREPARE_COMMIT, done] * 100
    records = [
        StateRecord(
            f"sink-0-{n % 2}", 0, n, NOW + n, TransactionValue(7, 0, 1, state, (), NOW, NOW)
        )
        for n, state in enumerate(states)
    ]
    reading = RecentStates(NOW)
    reading.add(part_of(b"".join(map(written, records))), 0)
    # the last batch of a buffer is decoded: numpy reads a few bytes after each
    assert len(decoded) <= 3
    assert set(reading.versions) == {"sink-0-0", "sink-0-1"}
