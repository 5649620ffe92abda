"""`txn hanging` over many partitions against kafka-transactions.sh find-hanging, run per broker.

20 open transactions among 10,000 partitions on three brokers, none of them a candidate for a
second look, so that the pause between two looks is not part of it (it is stated when taken).
"""

import time
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, make_topics, tool
from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec
from recovery.formats.state_log import parts_of, state_log

ROUNDS = 3
TOPICS, PARTITIONS = 10, 10_000
STATE_RECORDS = 1_000_000


def measure() -> Iterator[Measured]:
    yield _state_log()
    with lab(LabSpec("hanging", brokers=3)) as three:
        make_topics(three, [f"wide-{n}" for n in range(TOPICS)], PARTITIONS // TOPICS)
        break_(three, "open", count=20, hold=False)
        server = ("--bootstrap-server", three.bootstrap_servers)
        each = [
            command(tool(three, "TransactionsCommand", "find-hanging", "--broker-id", str(b)))
            for b in three.broker_ids
        ]

        def peer() -> None:
            for one in each:
                one()

        ours, theirs = alternate(
            command([*EOCTL, *server, "txn", "hanging", "--all"], least=20), peer, ROUNDS
        )
        yield Measured(
            f"txn hanging, {PARTITIONS:,} partitions, 20 held",
            ours,
            theirs,
            "find-hanging x 3",
            "4x or more",
        )


def _state_log() -> Measured:
    """Finding one producer among a million records of `__transaction_state`, in memory."""
    buffer = _records(STATE_RECORDS)
    begin = time.perf_counter()
    found = state_log(0, parts_of([buffer]), STATE_RECORDS, [STATE_RECORDS // 2])
    took = time.perf_counter() - begin
    assert len(found.records) == 1
    return Measured(
        f"one producer id among {STATE_RECORDS:,} records of __transaction_state",
        [took],
        [STATE_RECORDS / 500_000],
        "at 0.5 M records/s",
        "1x or more",
    )


def _records(count: int) -> bytes:
    """Batches of one record each: a million ids, each with its own producer id, Empty."""
    import struct

    from kafka.record.memory_records import MemoryRecordsBuilder

    def batch(number: int) -> bytes:
        name = f"application-{number:08d}".encode()
        key = struct.pack(">hh", 0, len(name)) + name
        value = struct.pack(">hqhib", 0, number, 0, 60_000, 0) + struct.pack(">iqq", -1, 1, -1)
        builder = MemoryRecordsBuilder(2, 0, 1 << 20)
        builder.append(timestamp=1, key=key, value=value)
        builder.close()
        return bytes(builder.buffer())

    sample = batch(0)
    at_name, at_pid = sample.index(b"application-"), sample.index(struct.pack(">hq", 0, 0), 70)
    made = bytearray(sample * count)
    size = len(sample)
    for number in range(count):  # offsets lie outside the CRC; the CRCs are not checked here
        start = number * size
        struct.pack_into(">q", made, start, number)
        struct.pack_into(">8s", made, start + at_name + 12, f"{number:08d}".encode())
        struct.pack_into(">q", made, start + at_pid + 2, number)
    return bytes(made)
