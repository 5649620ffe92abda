"""Judging transactions: random histories of both versions, with faults that must be found alone."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recovery.audit.transaction_facts import (
    Coverage,
    Data,
    Ending,
    Mark,
    PartitionTransactions,
    coverage,
)
from recovery.audit.transactions import judge
from recovery.facts import TopicPartition
from recovery.formats.batches import scan_headers
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateLog, StateRecord
from recovery.values import replace
from tests.share import share
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
Found = tuple[str, int, int, str | None, tuple[TopicPartition, ...]]
"""kind, producer id, epoch of the data, what was decided, partitions that are wrong"""


@dataclass
class World:
    """Coordinators and partitions as a random run leaves them. Time goes on with every step."""

    rng: random.Random
    version: int
    now: int = 1_000_000
    records: list[StateRecord] = field(default_factory=list)
    logs: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    planted: list[Found] = field(default_factory=list)

    def record(
        self, pid: int, epoch: int, state: TransactionState, partitions: list[TopicPartition]
    ) -> None:
        self.now += self.rng.randrange(1, 50)
        value = TransactionValue(
            producer_id=pid,
            producer_epoch=epoch,
            timeout_ms=60_000,
            state=state,
            partitions=tuple(partitions),
            last_update_ms=self.now,
            start_ms=self.now,
            client_transaction_version=self.version if self.version >= 2 else 0,
        )
        self.records.append(StateRecord(f"id-{pid}", 0, len(self.records), self.now, value))

    def data(self, partition: TopicPartition, pid: int, epoch: int) -> None:
        self.now += self.rng.randrange(1, 50)
        end = self.ends.get(partition, 0)
        count = self.rng.randrange(1, 4)
        items = [Item(i, self.now) for i in range(count)]
        made = batch(end, items, producer=(pid, epoch, 0), transactional=True)
        self.logs.setdefault(partition, []).append(made)
        self.ends[partition] = end + count

    def mark(self, partition: TopicPartition, pid: int, epoch: int, outcome: str) -> None:
        self.now += self.rng.randrange(1, 50)
        end = self.ends.get(partition, 0)
        kind = COMMIT if outcome == "commit" else ABORT
        made = bytearray(marker(end, pid, kind, epoch=epoch))
        struct.pack_into(">qq", made, 27, self.now, self.now)
        self.logs.setdefault(partition, []).append(bytes(made))
        self.ends[partition] = end + 1

    def transaction(self, fault: str | None) -> None:
        """One transaction of one id on some partitions."""
        pid = 100 + self.rng.randrange(3)
        epoch = self.epochs.setdefault(pid, 0)
        if not any(r.transactional_id == f"id-{pid}" for r in self.records):
            self.record(pid, epoch, TransactionState.EMPTY, [])
        topic_partitions = self.rng.sample(PARTITIONS, self.rng.randrange(1, 4))
        decided = self.rng.choice(("commit", "abort"))
        opposite = "abort" if decided == "commit" else "commit"
        above = 1 if self.version >= 2 else 0
        victim = topic_partitions[0]
        empty = self.rng.random() < 0.2 and fault is None  # named, and nothing written to one
        self.record(pid, epoch, TransactionState.ONGOING, topic_partitions)
        for _ in range(self.rng.randrange(1, 3)):
            for partition in topic_partitions:
                if not (empty and partition == victim):
                    self.data(partition, pid, epoch)
        if fault == "torn":
            self.mark(victim, pid, epoch + above, opposite)
        prepared = (
            TransactionState.PREPARE_COMMIT
            if decided == "commit"
            else TransactionState.PREPARE_ABORT
        )
        self.record(pid, epoch + above, prepared, topic_partitions)
        if fault == "pending":
            for partition in topic_partitions[1:]:
                self.mark(partition, pid, epoch + above, decided)
            self.epochs[pid] = -1  # it ends here
            return
        for partition in topic_partitions:
            if fault == "marker-missing" and partition == victim:
                continue
            for _ in range(1 + (self.rng.random() < 0.1)):  # sent again after a failover
                self.mark(partition, pid, epoch + above, decided)
        complete = (
            TransactionState.COMPLETE_COMMIT
            if decided == "commit"
            else TransactionState.COMPLETE_ABORT
        )
        self.record(pid, epoch + above, complete, [])
        self.epochs[pid] = epoch + above
        if fault is not None:
            self.planted.append((fault, pid, epoch, decided, (victim,)))
        if fault == "marker-missing":
            self.epochs[pid] = -1  # its next transaction there would share the data's fate

    def live(self, faults: int) -> None:
        planned = [None] * self.rng.randrange(5, 20) + ["torn", "pending", "marker-missing"][
            :faults
        ]
        self.rng.shuffle(planned)
        for fault in planned:
            ids = [100 + i for i in range(3) if self.epochs.get(100 + i, 0) >= 0]
            if not ids:
                return
            state = self.rng.getstate()
            while 100 + self.rng.randrange(3) not in ids:
                state = self.rng.getstate()
            self.rng.setstate(state)
            self.transaction(fault)

    def read(self, chunk: int) -> dict[TopicPartition, dict[int, list[Ending]]]:
        found: dict[TopicPartition, dict[int, list[Ending]]] = {}
        for partition, log in self.logs.items():
            transactions = PartitionTransactions(0)
            for i in range(0, len(log), chunk):
                buffer = b"".join(log[i : i + chunk])
                transactions.add(buffer, scan_headers(buffer), self.ends[partition])
            for pid, ending in transactions.endings():
                found.setdefault(partition, {}).setdefault(pid, []).append(ending)
        return found

    def covered(self, keep: int = 0) -> list[Coverage]:
        """keep: the first offset that compaction left."""
        records = tuple(r for r in self.records if r.offset >= keep)
        return coverage([StateLog(0, records, keep, None)])


def wrong(world: World, covered: list[Coverage], chunk: int, skew: int = 0) -> list[Found]:
    found = []
    for t in judge(covered, world.read(chunk), skew):
        decided = t.decision.outcome if t.decision else None
        partitions = tuple(
            partition
            for partition, e in t.partitions
            if e.mark is None or (decided is not None and e.mark.outcome != decided)
        )
        found.append((t.kind, t.producer_id, t.epoch, decided, partitions))
    return sorted(found, key=str)


@pytest.mark.parametrize("skew", [0, 5_000])  # what may be, while the clocks agree
@pytest.mark.parametrize("version", [1, 2])
@example(seed=1003, chunk=1, faults=2)  # what is pending is not ended by a marker of long before
@given(seed=st.integers(0, 2**32), chunk=st.integers(1, 9), faults=st.integers(0, 3))
@settings(deadline=None, max_examples=share(80))
def test_planted_faults_are_found_and_nothing_else(
    version: int, skew: int, seed: int, chunk: int, faults: int
) -> None:
    if version == 1 and skew:
        # a torn and a lost one within the skew could as well be clocks that disagree
        faults = min(faults, 2)
    world = World(random.Random(seed), version)
    world.live(faults)
    assert wrong(world, world.covered(), chunk, skew) == sorted(world.planted, key=str)


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=share(60))
def test_what_compaction_took_is_unproven_and_no_finding(seed: int) -> None:
    """Only Complete* records are left: their transactions are counted, torn ones found under v2 by
    their partitions alone."""
    world = World(random.Random(seed), 2)
    world.live(1)
    latest = {r.transactional_id: r for r in world.records}
    log = StateLog(0, tuple(sorted(latest.values(), key=lambda r: r.offset)), 10**6, None)
    covered = coverage([log])
    assert all(c.decisions == () and not c.whole for c in covered)
    assert sum(len(c.ended) for c in covered) == len(covered)
    for kind, pid, epoch, decided, _ in wrong(world, covered, 3):
        assert (kind, decided) == ("torn", None)
        assert [(p[0], p[1], p[2]) for p in world.planted] == [("torn", pid, epoch)]


def value(state: TransactionState, epoch: int, pid: int = 7) -> TransactionValue:
    return TransactionValue(
        pid, epoch, 1, state, (TopicPartition("t", 0),), 0, 0, client_transaction_version=2
    )


def test_coverage_says_what_is_whole() -> None:
    def log(whole_from: int, *states: tuple[TransactionState, int]) -> Iterator[StateLog]:
        records = tuple(
            StateRecord("x", 0, 10 + i, 100 + i, value(state, epoch))
            for i, (state, epoch) in enumerate(states)
        )
        yield StateLog(0, records, whole_from, None)

    empty, ongoing = (TransactionState.EMPTY, 0), (TransactionState.ONGOING, 0)
    prepared, complete = (TransactionState.PREPARE_COMMIT, 1), (TransactionState.COMPLETE_COMMIT, 1)
    (c,) = coverage(log(10, empty, ongoing, prepared, complete))
    assert (c.whole, len(c.decisions), c.pending, c.ended) == (True, 1, 0, ())
    assert c.decisions[0].completed_at == 103
    # where the cache kept the beginning, what came next may have been compacted away
    (found,) = log(12, empty, prepared, complete)
    for stands_from, whole in ((10, True), (11, False)):
        (c,) = coverage([replace(found, stands_from=stands_from)])
        assert c.whole is whole
    # this host's cache dropped older records of the id, as many as there were
    (found,) = log(0, empty, prepared, complete)
    for cuts, whole in (({}, True), ({found.records[0].transactional_id: 10}, False)):
        (c,) = coverage([replace(found, cuts=cuts)])
        assert c.whole is whole
    (c,) = coverage(log(10, ongoing, prepared))
    assert (c.whole, len(c.decisions), c.pending, c.ended) == (False, 1, 1, ())
    (c,) = coverage(log(0, complete))
    assert (c.whole, c.ended) == (True, (100,))
    # a Complete* of another outcome than the decision before it proves that one is missing
    (c,) = coverage(log(10, prepared, (TransactionState.COMPLETE_ABORT, 2)))
    assert (len(c.decisions), c.ended) == (1, (101,))


def mark(offset: int, outcome: str, epoch: int) -> Mark:
    return Mark(offset, outcome, epoch, 0, 1000 + offset)


def test_data_below_a_later_transactions_marker() -> None:
    """A lost COMMIT, then the same id's next transaction ended on the partition."""
    at = {TopicPartition("t", 0): {7: [Ending(Data(4, 0, 9, 0), mark(20, "abort", 6))]}}
    states = [
        (TransactionState.PREPARE_COMMIT, 5),
        (TransactionState.COMPLETE_COMMIT, 5),
        (TransactionState.PREPARE_ABORT, 6),
        (TransactionState.COMPLETE_ABORT, 6),
    ]
    records = tuple(StateRecord("x", 0, i, i, value(s, e)) for i, (s, e) in enumerate(states))
    (torn,) = judge(coverage([StateLog(0, records, 0, None)]), at, 0)
    assert (torn.kind, torn.epoch) == ("wrong-marker", 4)
    assert torn.decision is not None
    assert torn.decision.outcome == "commit"
    # and by the marker's epoch alone, where the decisions are gone
    at[TopicPartition("t", 0)][7] = [Ending(Data(4, 0, 9, 0), mark(20, "abort", 7))]
    (torn,) = judge((), at, 0)
    assert (torn.kind, torn.decision) == ("wrong-marker", None)


def test_a_marker_ends_every_stretch_that_is_open() -> None:
    """Data of two epochs of one id below one marker: a lost COMMIT and the next transaction."""
    written = [
        batch(0, [Item(0)], producer=(7, 4, 0), transactional=True),
        batch(1, [Item(0)], producer=(7, 5, 0), transactional=True),
        batch(2, [Item(0)], producer=(8, 0, 0), transactional=True),
        marker(3, 7, ABORT, epoch=6),
    ]
    found = PartitionTransactions(0)
    buffer = b"".join(written)
    found.add(buffer, scan_headers(buffer), 4)
    seen = [
        (pid, e.data.epoch if e.data else None, e.mark.offset if e.mark else None)
        for pid, e in found.endings()
    ]
    assert sorted(seen, key=str) == [(7, 4, 3), (7, 5, 3), (8, 0, None)]


def test_a_stray_write_of_a_committed_transaction_is_not_torn() -> None:
    """Data that the decision does not name is an orphan: aborting it tears nothing."""
    records = tuple(
        StateRecord("x", 0, i, i, value(s, 5))
        for i, s in enumerate((TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT))
    )
    covered = coverage([StateLog(0, records, 0, None)])
    at = {
        TopicPartition("t", 0): {7: [Ending(Data(4, 0, 9, 0), mark(10, "commit", 5))]},
        TopicPartition("stray", 0): {7: [Ending(Data(4, 0, 9, 0), mark(10, "abort", 5))]},
    }
    assert judge(covered, at, 0) == []
    assert [t.kind for t in judge((), at, 0)] == ["torn"]  # who can tell, without the decision


def test_markers_that_are_not_written_as_usual_are_read_all_the_same() -> None:
    whole = bytearray(marker(0, 7, COMMIT, epoch=3))
    extra = batch(
        1,
        [Item(0, key=b"\0\0\0\0", value=struct.pack(">hi", 0, 9), headers=(("h", b""),))],
        producer=(7, 4, 0),
        transactional=True,
        attributes=0x20,
    )
    gzipped = batch(
        2,
        [Item(0, key=b"\0\0\0\1", value=struct.pack(">hi", 0, 8))],
        codec=1,
        producer=(7, 5, 0),
        transactional=True,
        attributes=0x20,
    )
    buffer = bytes(whole) + extra + gzipped
    found = PartitionTransactions(0)
    found.add(buffer, scan_headers(buffer), 3)
    marks = [ending.mark for _, ending in found.endings()]
    assert [(m.offset, m.outcome, m.epoch, m.coordinator_epoch) for m in marks if m] == [
        (0, "commit", 3, 31),
        (1, "abort", 4, 9),
        (2, "commit", 5, 8),
    ]
    assert found.repeated_markers == 3


def test_answers_without_any_transaction_end_none() -> None:
    """Plain data that is alone in what a broker answered says nothing, and is passed over."""
    items = [Item(0, 5), Item(1, 6)]
    answers = [
        batch(0, items),
        batch(2, items, producer=(7, 1, 0), transactional=True),
        batch(4, items, producer=(8, 0, 0)),
        marker(6, 7, COMMIT, epoch=1),
        batch(7, items),
    ]
    found = PartitionTransactions(0)
    for answer in answers:
        found.add(answer, scan_headers(answer), 9)
    assert found.next_offset == 9
    [(pid, (data, mark))] = found.endings()
    assert (pid, data and (data.first, data.last), mark and mark.offset) == (7, (2, 3), 6)
