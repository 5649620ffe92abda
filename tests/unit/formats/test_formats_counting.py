"""Exact counting against a model of a partition that knows the truth of every offset."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from recovery.formats.batches import batch_headers, scan_headers
from recovery.formats.counting import (
    Aborted,
    AbortedTransactions,
    Counts,
    ExactCount,
    aborted_batches,
)
from recovery.formats.reader import CorruptError
from tests.share import fewer
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker


@dataclass
class Transaction:
    """first: offset of its first record; end: its marker's; None while open."""

    producer_id: int
    first: int
    end: int | None = None
    aborted: bool = False
    left: int = 0  # records not compacted away


@dataclass
class Written:
    """A batch before compaction; `kept`: the offsets that still have a record."""

    base: int
    last: int
    kept: list[int]
    codec: int = 0
    epoch: int = 0
    producer_id: int = -1
    transaction: Transaction | None = None
    marker: bytes | None = None
    removed: bool = False

    def encode(self) -> bytes:
        if self.marker is not None and self.kept:
            return marker(self.base, self.producer_id, self.marker, epoch=self.epoch)
        producer = (self.producer_id, self.epoch, 0) if self.producer_id >= 0 else (-1, -1, -1)
        return batch(
            self.base,
            [Item(offset - self.base, value=b"some value") for offset in self.kept],
            codec=self.codec,
            producer=producer,
            transactional=self.transaction is not None,
            attributes=0x20 if self.marker is not None else 0,
            last_offset=self.last,
        )


@dataclass
class Partition:
    """A log as a leader has it, with what a broker derives from it."""

    batches: list[Written] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    end: int = 0

    @property
    def last_stable_offset(self) -> int:
        open_ = [t.first for t in self.transactions if t.end is None]
        return min(open_, default=self.end)

    def truth(self, start: int, end: int) -> Counts:
        """Offset by offset; nothing here knows of batches' headers or of aborted lists."""
        what = dict.fromkeys(range(start, end), "missing")
        for one in self.batches:
            for offset in one.kept:
                if one.removed or offset not in what:
                    continue
                if one.marker is not None:
                    what[offset] = "control"
                elif offset >= self.last_stable_offset:
                    what[offset] = "open"
                elif one.transaction is not None and one.transaction.aborted:
                    what[offset] = "aborted"
                else:
                    what[offset] = "data"
        return Counts(**Counter(what.values()))

    def fetch(self, offset: int, isolation: int, most: int) -> tuple[bytes, list[Aborted] | None]:
        """As a broker answers: from the batch that holds `offset`, at least one batch whole, then
        cut at `most` bytes, and the aborted transactions that overlap what is returned."""
        limit = self.last_stable_offset if isolation else self.end
        out, upper = b"", offset
        for one in self.batches:
            if one.removed or one.last < offset or one.base >= limit:
                continue
            if out and len(out) >= most:
                break
            out, upper = out + one.encode(), one.last + 1
            if len(out) == len(one.encode()):
                most = max(most, len(out))
        aborted = [
            (t.producer_id, t.first)
            for t in self.transactions
            if t.aborted and t.end is not None and t.end >= offset and t.first < upper
        ]
        return out[:most], aborted[::-1] if isolation else None


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    log = Partition(end=draw(st.integers(0, 1000)))
    current: dict[int, Transaction] = {}
    epochs = Counter[int]()
    for _ in range(draw(st.integers(0, 3) | st.integers(8, 25))):
        pid = draw(st.sampled_from([-1, 7, 8, 9]))
        base = log.end
        if pid in current and draw(st.booleans()):
            transaction = current.pop(pid)
            transaction.end, transaction.aborted = base, draw(st.booleans())
            epochs[pid] += draw(st.integers(0, 1))  # transactions version 2 bumps, 1 does not
            kind = ABORT if transaction.aborted else COMMIT
            log.batches.append(Written(base, base, [base], 0, epochs[pid], pid, transaction, kind))
        else:
            last = base + draw(st.integers(0, 6))
            transaction_of = None
            if pid >= 0 and (pid in current or draw(st.booleans())):
                transaction_of = current.get(pid) or Transaction(pid, base)
                if pid not in current:
                    current[pid] = transaction_of
                    log.transactions.append(transaction_of)
            codec = draw(st.sampled_from([0, 1, 4]))
            log.batches.append(
                Written(
                    base, last, list(range(base, last + 1)), codec, epochs[pid], pid, transaction_of
                )
            )
        log.end = log.batches[-1].last + 1
    compact(draw, log)
    return log


def compact(draw: st.DrawFn, log: Partition) -> None:
    """Removes records below the LSO as the cleaner does: single records, all of a batch (which may
    stay, empty), and markers of transactions that have no record left, with their index entry."""
    stable = log.last_stable_offset
    for one in log.batches:
        if one.last < stable and one.marker is None and draw(st.booleans()):
            one.kept = [offset for offset in one.kept if draw(st.booleans())]
            one.removed = not one.kept and draw(st.booleans())
    for one in log.batches:
        if one.transaction is not None and one.marker is None:
            one.transaction.left += len(one.kept)
    for one in log.batches:
        forgotten = one.marker is not None and one.transaction and not one.transaction.left
        if forgotten and one.transaction and draw(st.booleans()):
            one.kept, one.transaction.aborted = [], False
            one.removed = draw(st.booleans())
    if log.batches:  # the cleaner never touches the active segment
        log.batches[-1].removed = False


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


@settings(max_examples=fewer(400, 100))
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


@settings(max_examples=fewer(200, 60))
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
