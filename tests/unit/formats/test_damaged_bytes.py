"""Every decoder beside damaged bytes of Kafka, Flink, MirrorMaker and Spark: our own error or none.

What is damaged was written by the systems' own classes, or is built here where it is that plain. An
input is damaged at one to four places: a byte, a length with no end, a cut, a piece moved. A
million inputs each in `make trust-long`.
"""

import random
import resource
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from recovery.errors import EoctlError
from recovery.formats import (
    broker_files,
    coast,
    connect_protocol,
    consumer_offsets,
    mirror_maker,
    spark_checkpoint,
    transaction_state,
)
from recovery.formats.batches import HEADER_SIZE, batch_headers, scan_headers
from recovery.formats.columns import decode
from recovery.formats.flink_checkpoint import handles, read_states
from recovery.formats.flink_metadata import read_metadata
from recovery.formats.producer_ids import from_metadata_record, from_zookeeper
from recovery.formats.records import control_record, marker, records
from recovery.inspect.log_part import part_of
from recovery.inspect.log_tokens import tokens
from tests.conftest import Tried
from tests.share import fewer
from tests.unit.formats.test_formats_consumer_offsets import GOLDEN
from tests.unit.formats.test_formats_flink_checkpoint import metadata_file
from tests.unit.formats.test_formats_spark_checkpoint import files
from tests.unit.formats_build import seal

GIVEN = fewer(1_000_000, 500)
SECONDS, KIB = 2.0, 256 * 1024  # of processor for one input; what memory may grow by
LENGTHS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 9, b"\0"]
OF_JSON = [
    b"Infinity",
    b"NaN",
    b"1e999",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"null",
    b"9" * 5_000,
    b"v" + b"9" * 5_000,
]

Damage = Callable[[random.Random, bytes], bytes]


def damaged(rng: random.Random, data: bytes, tokens: Sequence[bytes] = LENGTHS) -> bytes:
    """The bytes with one to four faults; tokens: what is written over some of them."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        fault = rng.randrange(6)
        if fault < 2:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif fault == 2:
            token = rng.choice(tokens)
            out[at : at + len(token)] = token
        elif fault == 3:
            out[at:at] = rng.choice(tokens)
        elif fault == 4:
            del out[at : at + rng.randint(1, 9)]
        else:
            del out[at:]
    return bytes(out)


def in_a_batch(rng: random.Random, data: bytes) -> bytes:
    """Records that are damaged below a length and a CRC that are right, or all of it damaged."""
    if rng.randrange(4) == 0:
        return damaged(rng, data)
    return seal(bytearray(data[:HEADER_SIZE] + damaged(rng, data[HEADER_SIZE:])))


def in_json(rng: random.Random, data: bytes) -> bytes:
    return damaged(rng, data, OF_JSON)


def all_records(data: bytes) -> None:
    for header in batch_headers(data):
        if header.is_control:
            marker(data, header)
        for record in records(data, header):
            if header.is_control:
                control_record(record.key, record.value)


def a_flink_checkpoint(data: bytes) -> None:
    metadata = read_metadata(data)
    read_states(metadata, dict.fromkeys(handles(metadata), data))


def a_spark_checkpoint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    spark_checkpoint.read(files(**dict.fromkeys(("offsets_5", "commits_4"), text)))
    spark_checkpoint.read(files(offsets_5=text))


def hexed(cases: Sequence[Any]) -> list[bytes]:
    return [bytes.fromhex(case["hex"] if isinstance(case, dict) else case) for case in cases]


BATCHES = hexed(GOLDEN["batches"])
TASKS = struct.pack(">hhh2sh2sqih2sii", 0, 0, 2, b"m1", 2, b"u1", 7, 1, 2, b"c1", 1, 0)
SPARK = b'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":15,"1":20}}'
BLOCK = b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
DECODERS: dict[str, tuple[Sequence[bytes], Damage, Callable[[bytes], object]]] = {
    "headers": (BATCHES, damaged, lambda data: (list(batch_headers(data)), scan_headers(data))),
    "records": (BATCHES, in_a_batch, all_records),
    "columns": (BATCHES, in_a_batch, lambda data: list(decode(data, ()))),
    "a log of ids": (BATCHES, in_a_batch, lambda data: tokens(part_of(data))),
    "keys of ids": (hexed(GOLDEN["transaction_keys"]), damaged, transaction_state.decode_key),
    "values of ids": (hexed(GOLDEN["transaction_values"]), damaged, transaction_state.decode_value),
    "keys of groups": (
        hexed(GOLDEN["offset_keys"] + GOLDEN["group_keys"]),
        damaged,
        consumer_offsets.decode_key,
    ),
    "positions": (hexed(GOLDEN["offset_values"]), damaged, consumer_offsets.decode_value),
    "groups": (hexed(GOLDEN["group_values"]), damaged, consumer_offsets.decode_group),
    "pending positions": (
        BATCHES,
        in_a_batch,
        lambda data: consumer_offsets.pending_offsets([data]),
    ),
    "snapshots": ([bytes.fromhex(GOLDEN["snapshot"])], damaged, broker_files.read_snapshot),
    "transaction indexes": (
        [bytes.fromhex(GOLDEN["transaction_index"])],
        damaged,
        broker_files.read_transaction_index,
    ),
    "log ends": (BATCHES, damaged, broker_files.log_end),
    "blocks of producer ids": (hexed(GOLDEN["producer_ids"]), damaged, from_metadata_record),
    "blocks in ZooKeeper": ([BLOCK], in_json, from_zookeeper),
    "merge logs": (
        [coast.encode_merge(coast.MergeRecord("orders", 3, 77))],
        damaged,
        coast.decode_merge,
    ),
    "changelogs": (
        [struct.pack(">i2sqqi3s", 2, b"k1", 5, 6, 3, b"abc")],
        damaged,
        lambda data: coast.decode_changelog(data[:6], data[6:]),
    ),
    "offset syncs": (
        [struct.pack(">h2siqq", 2, b"t1", 3, 5, 6)],
        damaged,
        lambda data: mirror_maker.decode_sync(data[:8], data[8:]),
    ),
    "checkpoints of mirrors": (
        [struct.pack(">h2sh2sihqqh2s", 2, b"g1", 2, b"t1", 3, 0, 5, 6, 2, b"m1")],
        damaged,
        lambda data: mirror_maker.decode_checkpoint(data[:12], data[12:]),
    ),
    "workers of Connect": ([TASKS[:2] + TASKS[4:]], damaged, connect_protocol.decode_url),
    "tasks of Connect": ([TASKS], damaged, connect_protocol.decode_tasks),
    "checkpoints of Flink": (
        [metadata_file(case).read_bytes() for case in ("incrementing-2.2", "pooling-2.0")],
        damaged,
        a_flink_checkpoint,
    ),
    "checkpoints of Spark": ([SPARK], in_json, a_spark_checkpoint),
}


@pytest.mark.parametrize("name", DECODERS)
def test_damage_gives_our_own_error_in_bounded_time_and_memory(name: str, tried: Tried) -> None:
    whole, damage, decoder = DECODERS[name]
    for data in whole:
        decoder(data)  # in order as it is: what fails below fails by its damage
    rng, before = random.Random(13), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, slowest = 0, 0.0
    for number in range(GIVEN):
        data = damage(rng, whole[number % len(whole)])
        begun = time.process_time()
        try:
            decoder(data)
        except EoctlError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"input {number}: {data[:300]!r}") from error
        slowest = max(slowest, time.process_time() - begun)
    tried("damaged inputs", GIVEN)
    tried("refused inputs", refused)
    assert slowest < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIB
