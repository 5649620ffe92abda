"""What waits behind the LSO, held against a decision record by record.

The oracle knows nothing of batches: it is a list of records, each with its producer and whether it
lies in a transaction, and the ends of transactions between them.
"""

import random
import struct
from dataclasses import dataclass

import pytest

from recovery.diagnose.waiting_records import waiting
from tests.share import share
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker, seal

T = 1_700_000_000_000
ME, OTHER = 41, 42


@dataclass
class Truth:
    """pid None: not transactional. end: this offset ends the transaction of pid."""

    offset: int
    pid: int | None = None
    end: str | None = None


def counted(truth: list[Truth], start: int, end: int, me: int | None) -> tuple[int, int, int, int]:
    """records, mine, aborted, other_open of [start, end)."""
    seen = [t for t in truth if start <= t.offset < end]
    fates = []
    for t in seen:
        if t.end is not None:
            continue
        fate = "plain"
        if t.pid is not None:
            ends = [e for e in seen if e.end and e.pid == t.pid and e.offset > t.offset]
            fate = ends[0].end or "" if ends else "mine" if t.pid == me else "open"
        fates.append(fate)
    return len(fates), fates.count("mine"), fates.count("abort"), fates.count("open")


def random_log(r: random.Random, start: int) -> tuple[list[bytes], list[Truth], int]:
    offset, batches, truth = start, [], []
    for _ in range(r.randrange(1, 25)):
        pid = r.choice([None, ME, OTHER, 43])
        if pid is not None and r.random() < 0.35:
            kind = r.choice(["abort", "commit"])
            batches.append(marker(offset, pid, ABORT if kind == "abort" else COMMIT))
            truth.append(Truth(offset, pid, kind))
            offset += 1
            continue
        n = r.randrange(1, 5)
        transactional = pid is not None and r.random() < 0.8
        batches.append(
            batch(
                offset,
                [Item(i) for i in range(n)],
                producer=(-1, -1, -1) if pid is None else (pid, 0, 0),
                transactional=transactional,
                codec=r.choice([0, 1]),
            )
        )
        truth += [Truth(offset + i, pid if transactional else None) for i in range(n)]
        offset += n
    return batches, truth, offset


@pytest.mark.parametrize("seed", range(share(300)))
def test_counts_are_those_of_the_records(seed: int) -> None:
    r = random.Random(seed)
    before, _, start = random_log(r, 0)
    batches, truth, end = random_log(r, start)
    after, _, _ = random_log(r, end)
    # responses begin at any batch, end in the middle of one, and overlap
    buffers = []
    at = 0
    while at < len(batches):
        upto = r.randrange(at + 1, len(batches) + 1)
        cut = batches[upto][: r.randrange(len(batches[upto]))] if upto < len(batches) else b""
        again = batches[max(0, at - r.randrange(3)) : at]
        buffers.append(b"".join([*again, *batches[at:upto]]) + cut)
        at = upto
    buffers[0] = b"".join(before[-2:]) + buffers[0]
    buffers[-1] += b"".join(after[:2])
    me = r.choice([ME, None])
    w = waiting(buffers, start, end, me, complete=True)
    assert (w.records, w.mine, w.aborted, w.other_open) == counted(truth, start, end, me)
    assert w.freed == w.records - w.mine - w.aborted - w.other_open


def test_a_marker_ends_its_own_producers_only() -> None:
    log = batch(5, [Item(0), Item(1)], producer=(ME, 0, 0), transactional=True)
    log += batch(7, [Item(0)], producer=(OTHER, 0, 0), transactional=True)
    log += marker(8, OTHER, COMMIT) + marker(9, 99, ABORT)
    w = waiting([log], 5, 10, ME, complete=True)
    assert (w.records, w.mine, w.aborted, w.other_open, w.freed) == (3, 2, 0, 0, 1)


def test_two_transactions_of_the_judged_producer() -> None:
    """The first was aborted in between: only what is open is its."""
    first = batch(0, [Item(0)], producer=(ME, 0, 0), transactional=True) + marker(1, ME, ABORT)
    log = first + batch(2, [Item(0), Item(1)], producer=(ME, 0, 1), transactional=True)
    w = waiting([log], 0, 4, ME, complete=True)
    assert (w.records, w.mine, w.aborted) == (3, 2, 1)
    assert w.mine_bytes == len(log) - len(first)


def test_a_control_batch_that_compaction_emptied_says_nothing() -> None:
    data = batch(0, [Item(0)], producer=(ME, 0, 0), transactional=True)
    empty = bytearray(marker(1, ME, ABORT)[:61])
    struct.pack_into(">i", empty, 57, 0)
    w = waiting([data + seal(empty)], 0, 2, ME, complete=True)
    assert (w.records, w.mine, w.aborted) == (1, 1, 0)


def test_control_records_of_another_kind_end_nothing() -> None:
    """KRaft's, of a later version: type 7 and no transaction's."""
    data = batch(0, [Item(0)], producer=(ME, 0, 0), transactional=True)
    w = waiting([data + marker(1, ME, b"\0\0\0\7")], 0, 2, ME, complete=True)
    assert (w.records, w.mine) == (1, 1)


def test_thinned_batches_count_what_is_left() -> None:
    log = batch(10, [Item(0), Item(4)], last_offset=19)
    w = waiting([log], 10, 20, ME, complete=True)
    assert w.records == 2


def test_nothing_read() -> None:
    w = waiting([], 5, 10, ME, complete=False)
    assert (w.records, w.freed, w.oldest_timestamp, w.complete) == (0, 0, None, False)


def test_time_of_the_first_record() -> None:
    plain = batch(0, [Item(0, T + 5), Item(1, T + 3)])
    assert waiting([plain], 0, 2, None, complete=True).oldest_timestamp == T + 5
    unknown = batch(0, [Item(0, -1)])
    assert waiting([unknown], 0, 1, None, complete=True).oldest_timestamp is None
    control = marker(0, OTHER, COMMIT) + batch(1, [Item(0, T)])
    assert waiting([control], 0, 2, None, complete=True).oldest_timestamp == T


def test_time_by_the_brokers_clock_is_the_batchs_maximum() -> None:
    """LogAppendTime leaves the client's base timestamp as it was and sets the maximum only
    (DefaultRecordBatch.setMaxTimestamp)."""
    log = batch(0, [Item(0, 12), Item(1, 13)], attributes=0x08, max_timestamp=T)
    assert waiting([log], 0, 2, None, complete=True).oldest_timestamp == T


@pytest.mark.parametrize(("time", "oldest"), [(-1, None), (0, 0), (1, 1)])
def test_a_time_that_is_not_known_is_minus_one(time: int, oldest: int | None) -> None:
    log = batch(0, [Item(0, time)])
    assert waiting([log], 0, 1, None, complete=True).oldest_timestamp == oldest
