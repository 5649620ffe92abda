"""Exact counting against a model of a partition that knows the truth of every offset."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from recovery.formats.batches import batch_headers, scan_headers
from recovery.formats.counting import (
    AbortedTransactions,
    Counts,
    ExactCount,
    aborted_batches,
)
from recovery.formats.reader import CorruptError
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker
from tests.unit.log_model import Partition, partitions


def count(log: Partition, start: int, end: int, most: int) -> ExactCount:
    counter = ExactCount(start, end, log.last_stable_offset)
    isolation = 1
    for _ in range(10 * len(log.batches) + 2):
        if counter.done:
            break
        if counter.next_offset >= counter.last_stable_offset:
            isolation = 0
        asked = counter.next_offset
        buffer, aborted = log.fetch(asked, isolation, most)
        if not buffer:
            isolation = 0  # nothing is left below the last stable offset
        counter.add(asked, buffer, aborted)
        assert sum(counter.counts) == counter.next_offset - start
    return counter


@settings(max_examples=400)
@given(partitions(), st.data())
def test_counts_are_the_truth(log: Partition, data: st.DataObject) -> None:
    begin = log.batches[0].base if log.batches else log.end
    start = data.draw(st.just(begin) | st.integers(begin, log.end))
    end = data.draw(st.just(log.end) | st.integers(start, log.end))
    most = data.draw(st.sampled_from([1, 100, 250, 10_000]))
    counter = count(log, start, end, most)
    assert counter.done
    assert counter.counts == log.truth(start, end)
    assert sum(counter.counts) == end - start
    for name, number in counter.counts._asdict().items():
        event(f"{name}: {'some' if number else 'none'}")


@settings(max_examples=200)
@given(partitions())
def test_aborted_batches_are_the_truth(log: Partition) -> None:
    buffer, aborted = log.fetch(log.batches[0].base if log.batches else 0, 1, 1 << 20)
    assert aborted is not None
    wrong = {
        offset
        for one in log.batches
        if one.transaction is not None and one.transaction.aborted and one.marker is None
        for offset in range(one.base, one.last + 1)
    }
    tracker = AbortedTransactions(aborted)
    said = [tracker.is_aborted(buffer, header) for header in batch_headers(buffer)]
    assert said == [header.base_offset in wrong for header in batch_headers(buffer)]
    assert aborted_batches(buffer, scan_headers(buffer), aborted).tolist() == said


# --- single cases, written down ---------------------------------------------------------------


def data(
    base: int, last: int, pid: int = 7, *, epoch: int = 0, transactional: bool = True
) -> bytes:
    items = [Item(n) for n in range(last - base + 1)]
    return batch(base, items, producer=(pid, epoch, 0), transactional=transactional)


def test_a_producer_aborts_then_commits_in_one_response() -> None:
    log = data(0, 2) + marker(3, 7, ABORT, epoch=1) + data(4, 5, epoch=1) + marker(6, 7, COMMIT)
    counter = ExactCount(0, 7, 7)
    counter.add(0, log, [(7, 0)])
    assert counter.counts == Counts(data=2, aborted=3, control=2)


def test_a_transaction_that_began_before_the_response() -> None:
    log = data(10, 12) + marker(13, 7, ABORT) + data(14, 14)
    counter = ExactCount(10, 15, 15)
    counter.add(10, log, [(7, 3)])
    assert counter.counts == Counts(data=1, aborted=3, control=1)


def test_plain_records_of_an_aborted_producer_count() -> None:
    log = data(0, 1) + data(2, 3, transactional=False) + marker(4, 7, ABORT)
    counter = ExactCount(0, 5, 5)
    counter.add(0, log, [(7, 0)])
    assert counter.counts == Counts(data=2, aborted=2, control=1)


def test_an_emptied_marker_is_missing() -> None:
    emptied = batch(0, [], producer=(7, 0, 0), transactional=True, attributes=0x20, last_offset=0)
    counter = ExactCount(0, 2, 2)
    counter.add(0, emptied + data(1, 1), [])
    assert counter.counts == Counts(data=1, missing=1)


def test_a_compressed_batch_with_holes_across_both_ends() -> None:
    items = [Item(n, value=b"value" * 30) for n in (0, 2, 5, 6, 9)]
    log = batch(100, items, codec=4, last_offset=111)
    counter = ExactCount(101, 109, 106)
    counter.add(101, log, [])
    assert counter.counts == Counts(data=2, open=1, missing=5)  # 102, 105; 106


@pytest.mark.parametrize(
    ("stable", "expected"),
    [
        (100, Counts(open=5, missing=7)),
        (106, Counts(data=3, open=2, missing=7)),
        (112, Counts(data=5, missing=7)),
    ],
)
def test_a_batch_with_holes_beside_the_last_stable_offset(stable: int, expected: Counts) -> None:
    counter = ExactCount(90, 112, stable)
    counter.skip_to(100)
    counter.add(100, batch(100, [Item(n) for n in (0, 2, 5, 6, 9)], last_offset=111), [])
    assert counter.counts == expected._replace(missing=expected.missing + 10)


def test_what_was_open_when_counting_began_stays_open() -> None:
    log = data(0, 2, 8) + data(3, 5) + marker(6, 7, ABORT)
    counter = ExactCount(0, 7, 3)  # the response came when 3 to 6 had been aborted
    counter.add(0, log, [(7, 3)])
    assert counter.counts == Counts(data=3, open=3, control=1)


def test_the_log_begins_later() -> None:
    counter = ExactCount(5, 20, 20)
    counter.skip_to(12)
    counter.skip_to(9)
    counter.add(12, data(10, 15), [])
    assert counter.counts == Counts(data=4, missing=7)
    counter.skip_to(1000)
    assert (counter.next_offset, counter.counts) == (20, Counts(data=4, missing=11))
    assert counter.done


def test_a_cut_response_does_not_move() -> None:
    counter = ExactCount(0, 5, 5)
    counter.add(0, data(0, 4)[:-1], [])
    assert (counter.next_offset, counter.counts) == (0, Counts())


def test_the_same_response_twice_counts_once() -> None:
    counter = ExactCount(0, 9, 9)
    counter.add(0, data(0, 4), [])
    counter.add(0, data(0, 4) + data(5, 6), [])
    assert (counter.next_offset, counter.counts) == (7, Counts(data=7))


def test_misuse_is_refused_not_guessed() -> None:
    counter = ExactCount(0, 9, 9)
    with pytest.raises(ValueError, match="fetched from 3, but 0 comes next"):
        counter.add(3, data(3, 4), [])
    with pytest.raises(ValueError, match="no list"):
        counter.add(0, data(0, 4), None)
    counter.add(0, data(0, 4, transactional=False), None)
    assert counter.counts == Counts(data=5)
    with pytest.raises(ValueError, match="not a range"):
        ExactCount(5, 4, 9)


def test_damage_counts_nothing() -> None:
    log = bytearray(data(0, 4) + data(5, 6))
    log[-1] ^= 1
    counter = ExactCount(0, 7, 7)
    with pytest.raises(CorruptError, match="the CRC is wrong"):
        counter.add(0, log, [])
    assert (counter.next_offset, counter.counts) == (0, Counts())
    counter.add(0, log, [], check_crc=False)
    assert counter.counts == Counts(data=7)


def test_memoryviews_and_bytearrays_are_buffers_too() -> None:
    for kind in (bytearray, memoryview):
        counter = ExactCount(0, 3, 3)
        counter.add(0, kind(data(0, 1) + marker(2, 7, ABORT)), [(7, 0)])
        assert counter.counts == Counts(aborted=2, control=1)
