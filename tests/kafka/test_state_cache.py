"""The cache of `__transaction_state`: the same answer with and without it, damaged or not."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from recovery.formats.batches import batch_headers
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.relay import relayed
from tests.share import only_here
from tests.unit.formats_build import seal

FETCH = 1


def _history(lab: Lab, cache: Path, name: str) -> list[dict[str, object]]:
    ran = eoctl(
        "txn", "history", name, "-o", "json", lab=lab, env=environment(EOCTL_CACHE_DIR=str(cache))
    )
    assert ran.status == 0, ran.stderr
    return ran.rows


@pytest.mark.parametrize(
    "damage", only_here(["none", "cut", "bit", "other", "empty"], "cut", "other")
)
def test_history_is_the_same_with_a_cache_whatever_became_of_it(
    lab1: Lab, tmp_path: Path, damage: str
) -> None:
    [first] = break_(lab1, "zombie")
    assert first.transactional_id is not None
    name = first.transactional_id
    fresh = _history(lab1, tmp_path / "a", name)
    assert len(fresh) >= 5
    kept = sorted((tmp_path / "a").glob("transaction-state/*/*.log"))
    assert kept
    for path in kept:
        data = path.read_bytes()
        if damage == "cut":
            path.write_bytes(data[:-7])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "bit":
            path.write_bytes(data[:90] + bytes([data[90] ^ 1]) + data[91:])
        elif damage == "other":  # whole and sound, but its last batch is not the log's
            last = [h.position for h in batch_headers(data)][-1]
            changed = seal(bytearray(data[last:-1] + bytes([data[-1] ^ 1])))
            path.write_bytes(data[:last] + changed)
    assert _history(lab1, tmp_path / "a", name) == fresh
    [more] = break_(lab1, "zombie", transactional_id=name)
    assert more.transactional_id == name
    grown = _history(lab1, tmp_path / "a", name)
    assert grown[: len(fresh)] == fresh
    assert grown == _history(lab1, tmp_path / "b", name)
    assert len(grown) > len(fresh)


def _committed(producer: Producer, topic: str, transactions: int) -> None:
    for _ in range(transactions):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=1)
        producer.commit_transaction(60)


@pytest.mark.long
def test_a_second_check_reads_only_what_is_new(lab1: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    """Bytes of all answers to Fetch, counted on the way, beside those of the log on disk."""
    where, name = topic(lab1, partitions=2), f"long-{uuid.uuid4().hex[:8]}"
    producer = Producer({**lab1.client_properties(), "transactional.id": name})
    producer.init_transactions(60)
    _committed(producer, where, 300)
    producer.begin_transaction()
    producer.produce(where, b"open", partition=0)
    assert producer.flush(60) == 0
    count = sum(1 for _ in lab1.data_folder(1).glob("__transaction_state-*"))
    home = coordinator_partition(name, count)
    (log,) = lab1.data_folder(1).glob(f"__transaction_state-{home}/*0.log")
    with relayed(lab1) as relay:
        env = environment(EOCTL_CACHE_DIR=str(tmp_path / "cache"))
        env["EOCTL_CONFIG"] = relay.config(tmp_path)

        def read() -> int:
            before = relay.answered[1, FETCH]
            ran = eoctl("--context", "relayed", "check", "-o", "json", env=env)
            assert ran.status in (0, 1), ran.stderr  # this lab is others' too
            return relay.answered[1, FETCH] - before

        size = log.stat().st_size
        first = read()
        assert first > size > 100_000
        producer.commit_transaction(60)
        _committed(producer, where, 1)
        producer.begin_transaction()
        producer.produce(where, b"open", partition=0)
        assert producer.flush(60) == 0
        assert read() < first - size * 0.9
    producer.abort_transaction(60)
