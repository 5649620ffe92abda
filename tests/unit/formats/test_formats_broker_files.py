"""Broker files and producer id blocks against files and records written by Kafka's own classes."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.formats.batches import batch_headers
from recovery.formats.broker_files import (
    AbortedTransaction,
    ProducerState,
    log_end,
    read_snapshot,
    read_transaction_index,
)
from recovery.formats.producer_ids import (
    BLOCK_SIZE,
    ProducerIdBlock,
    from_metadata_record,
    from_zookeeper,
)
from recovery.formats.reader import CorruptError
from tests.unit.formats_build import Item, batch

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())
SNAPSHOT = bytes.fromhex(GOLDEN["snapshot"])
INDEX = bytes.fromhex(GOLDEN["transaction_index"])


def test_a_snapshot_written_by_kafka() -> None:
    time = 1700000000000
    assert read_snapshot(SNAPSHOT) == [
        ProducerState(4000, 0, 10, 1000, 0, time, 5, 900),
        ProducerState(4001, 3, 11, 1001, 1, time + 1, -1, -1),
        ProducerState(4002, 6, 12, 1002, 2, time + 2, 7, 902),
        ProducerState(4003, 9, -1, -1, 0, time + 3, 8, -1),
    ]
    assert read_snapshot(bytes.fromhex(GOLDEN["snapshot_empty"])) == []


def test_a_damaged_snapshot() -> None:
    for length in range(len(SNAPSHOT)):
        with pytest.raises(CorruptError, match="producer state snapshot"):
            read_snapshot(SNAPSHOT[:length])
    for position in range(len(SNAPSHOT)):
        damaged = bytearray(SNAPSHOT)
        damaged[position] ^= 1
        with pytest.raises(CorruptError, match=r"the CRC is wrong|only 1 is known"):
            read_snapshot(bytes(damaged))


def test_a_transaction_index_written_by_kafka() -> None:
    assert read_transaction_index(INDEX) == [
        AbortedTransaction(4001, 10, 25, 8),
        AbortedTransaction(4002, 12, 5_000_000_000, 26),
    ]
    assert read_transaction_index(b"") == []


def test_a_damaged_transaction_index() -> None:
    for length in set(range(len(INDEX))) - {0, 34}:
        with pytest.raises(CorruptError, match="not a multiple of the 34-byte entries"):
            read_transaction_index(INDEX[:length])
    with pytest.raises(CorruptError, match="version 1, only 0 is known"):
        read_transaction_index(b"\0\1" + INDEX[2:])


def test_a_preallocated_log_ends_where_its_batches_end() -> None:
    log = batch(0, [Item(0)]) + batch(1, [Item(0, value=b"\0" * 9)])
    assert log.endswith(b"\0")  # so stripping zeros would cut the last batch
    for zeros in (0, 1, 11, 12, 17, 500):
        whole = log + bytes(zeros)
        end = log_end(whole)
        assert len(list(batch_headers(memoryview(whole)[:end]))) == 2
        assert end == len(log) or zeros < 12
    assert log_end(log + bytes(50) + b"\1") == len(log) + 51  # damage, not preallocation


@pytest.mark.parametrize("case", GOLDEN["producer_ids"], ids=lambda case: str(case["next"]))
def test_producer_ids_records_written_by_kafka(case: dict[str, int | str]) -> None:
    whole = bytes.fromhex(str(case["hex"]))
    following = int(case["next"])
    assert from_metadata_record(whole) == ProducerIdBlock(
        int(case["broker"]),
        int(case["broker_epoch"]),
        following - GOLDEN["producer_id_block_size"],
        following - 1,
    )
    for length in range(len(whole)):
        with pytest.raises(CorruptError, match="record of the metadata log"):
            from_metadata_record(whole[:length])


def test_other_metadata_records() -> None:
    assert from_metadata_record(bytes.fromhex(GOLDEN["other_metadata"])) is None
    for record, said in ((b"\0\x0f\0", "frame version 0"), (b"\1\x0f\1", "of version 1")):
        with pytest.raises(CorruptError, match=said):
            from_metadata_record(record)
    assert GOLDEN["producer_id_block_size"] == BLOCK_SIZE


def test_the_block_in_zookeeper() -> None:
    # As ProducerIdBlockZNode.generateProducerIdBlockJson writes it: numbers of ids as strings.
    node = b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}'
    assert from_zookeeper(node) == ProducerIdBlock(2, -1, 4000, 4999)


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"broker":2,"block_start":"x","block_end":"1"}',
        b'{"broker":2,"block_start":null,"block_end":"1"}',
        b'{"broker":2,"block_start":"5","block_end":"4"}',
        b"\xff\xfe{",
    ],
)
def test_a_node_that_is_no_block(node: bytes) -> None:
    with pytest.raises(CorruptError, match="/latest_producer_id_block"):
        from_zookeeper(node)


@given(st.binary(max_size=80))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    for read in (read_snapshot, read_transaction_index, from_metadata_record, from_zookeeper):
        with contextlib.suppress(CorruptError):
            read(noise)
    assert 0 <= log_end(noise) <= len(noise)
