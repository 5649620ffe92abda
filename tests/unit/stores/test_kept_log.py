"""A kept partition of `__transaction_state`: appended to, cut, damaged, shared, pruned."""

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.kafka.read import temporary_log
from eoctl.kafka.read.temporary_log import TemporaryLog
from eoctl.stores import kept_log, log_pruning
from eoctl.stores.kept_log import DamagedError, KeptLog, index_of
from eoctl.stores.log_reading import LogReading
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect import chains
from recovery.inspect.chains import Chain, Wanted, wanted_of
from recovery.inspect.history import StateLog, StateRecord, read_history
from recovery.inspect.log_part import part_of
from recovery.inspect.log_tokens import id_token
from recovery.inspect.lost_markers import lost_decisions
from recovery.inspect.observation import OpenTransaction, StartBatch
from recovery.inspect.state_log import Fetched, state_log
from tests.share import only_here
from tests.unit.formats.test_state_log import HOMES, IDS, in_memory, key, random_log, value
from tests.unit.formats_build import Item, batch
from tests.unit.inspect.test_history import ELSEWHERE, HERE, PARTITIONS, PID, record


def one(offset: int, name: str, pid: int = 7) -> bytes:
    return batch(offset, [Item(0, 0, key(name), value(pid, offset % 90, 1))])


def read(path: Path, *batches: bytes) -> LogReading:
    """Read these batches into the log at `path`, a response each."""
    reading = LogReading(path)
    for data in batches:
        reading.add(part_of(data))
    return reading


def content(path: Path) -> bytes:
    with KeptLog(path) as log:
        return b"".join(bytes(e.part().data) for e in log.extents)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents of a few batches."""
    monkeypatch.setattr(kept_log, "EXTENT_BYTES", 300)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(40))
def test_it_answers_as_a_log_in_memory_does(seed: int, tmp_path: Path) -> None:
    """Random logs, read in random pieces: the same records, wholeness and gaps, read twice."""
    r = random.Random(seed)
    batches, _, _, end = random_log(r)
    path = tmp_path / "4.log"
    reading, at = LogReading(path), 0
    while at < len(batches):
        upto = r.randrange(at + 1, len(batches) + 1)
        reading = read(path, b"".join(batches[max(0, at - 2) : upto]))
        at = upto
    for _ in range(2):
        pids = r.sample(sorted(HOMES.values()), 2)
        asked = r.choice([(), None, r.sample(IDS, 2)])
        expected = state_log(4, in_memory(batches), end, pids, asked)
        with reading.batches() as log:
            found = state_log(4, log, end, pids, asked)
        assert (found.records, found.whole_from) == (expected.records, expected.whole_from)
        reading = LogReading(path)


@pytest.mark.usefixtures("small")
def test_a_question_reads_only_extents_that_may_answer_it(tmp_path: Path) -> None:
    path = tmp_path / "4.log"
    names = [f"id-{n // 10}" for n in range(1000)]
    read(path, b"".join(one(n, name, 1000 + n // 10) for n, name in enumerate(names)))
    for asked, pids in (["id-50"], ()), ((), [1050]):
        with KeptLog(path) as log:
            found = state_log(4, log, 1000, pids, asked)
            assert [r.offset for r in found.records] == list(range(500, 510))
            assert log.bytes_read < log.size / 20


@pytest.mark.usefixtures("small")
def test_an_append_that_was_cut_anywhere_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "4.log"
    first, second = [b"".join(one(n, "a") for n in span) for span in (range(5), range(5, 9))]
    read(path, first)
    before, index = path.read_bytes(), index_of(path).read_bytes()
    read(path, second)
    grown = index_of(path).read_bytes()
    for cut in range(len(before), len(before) + len(second) + 1, 5):
        path.write_bytes((first + second)[:cut])
        for left in (index, grown[: len(index) + (cut - len(before)) % 40], b"", None):
            index_of(path).unlink(missing_ok=True)
            if left is not None:
                index_of(path).write_bytes(left)
            path.write_bytes((first + second)[:cut])
            reading = read(path, second)
            assert content(path) == first + second
            with reading.batches() as log:
                assert log.wholeness.whole_from == 0


@pytest.mark.usefixtures("small")
def test_an_index_of_other_batches_is_made_again(tmp_path: Path) -> None:
    path, other = tmp_path / "4.log", tmp_path / "5.log"
    read(path, b"".join(one(n, "a") for n in range(9)))
    read(other, b"".join(one(n, "longer-name") for n in range(30)))
    index_of(path).write_bytes(index_of(other).read_bytes())
    with KeptLog(path) as log:
        assert [r.offset for r in state_log(4, log, 9, (), ["a"]).records] == list(range(9))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_found_or_changes_nothing(seed: int, tmp_path: Path) -> None:
    """What is set aside is still read as far as it is sound, and the log is read again."""
    r = random.Random(seed)
    path, batches = tmp_path / "4.log", [one(n, r.choice("ab")) for n in range(40)]
    data = b"".join(batches)
    read(path, data)
    changed = r.choice([path, index_of(path)])
    raw = bytearray(changed.read_bytes())
    # a batch that is not indexed yet has Kafka's checksum alone, which leaves out its offset
    raw[r.randrange(len(raw) - (500 if changed == path else 0))] ^= 1 << r.randrange(8)
    changed.write_bytes(raw)
    expected = state_log(4, in_memory([data]), 40, (), ["a", "b"]).records
    try:
        reading = LogReading(path)
    except UsageError:
        assert changed == index_of(path)  # its version
        return
    try:
        with reading.batches() as log:
            found = state_log(4, log, 40, (), ["a", "b"]).records
    except DamagedError:
        reading.set_aside_damaged()
        found = ()
    if found != expected:
        aside = list(tmp_path.glob("*.damaged"))
        if not aside:  # its end is taken for an append that was cut
            assert found == expected[: len(found)]
        reading.add(part_of(data))
        with reading.batches() as log:
            assert state_log(4, log, 40, (), ["a", "b"]).records == expected


@pytest.mark.usefixtures("small")
def test_writers_at_once_keep_each_batch_once(tmp_path: Path) -> None:
    path, batches = tmp_path / "4.log", [one(n, "a") for n in range(60)]

    def look(seed: int) -> None:
        r = random.Random(seed)
        for upto in sorted(r.sample(range(1, 61), 12)):
            reading = LogReading(path)
            after = reading.last.last_offset + 1 if reading.last else 0
            for data in batches[max(0, after - 1) : upto]:
                reading.add(part_of(data))

    looks = [threading.Thread(target=look, args=(n,)) for n in range(4)]
    for each in looks:
        each.start()
    for each in looks:
        each.join()
    read(path, b"".join(batches))
    assert content(path) == b"".join(batches)


def test_a_full_disk_keeps_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "4.log"
    read(path, one(0, "a"), one(1, "a"))

    def full(file: int, data: bytes, at: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_log, "_write", full)
    reading = read(path, one(2, "a"), one(3, "b"))
    with reading.batches() as log:
        found = state_log(4, log, 4, (), ["a", "b"])
    assert ([r.offset for r in found.records], found.whole_from) == ([0, 1, 2, 3], 0)
    monkeypatch.undo()
    assert content(path) == one(0, "a") + one(1, "a")
    read(path, one(2, "a"))
    assert content(path) == one(0, "a") + one(1, "a") + one(2, "a")


@pytest.mark.usefixtures("small")
def test_past_its_size_the_older_half_keeps_the_newest_of_each_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pruning, "MOST_BYTES", 12_000)
    monkeypatch.setattr(log_pruning, "KEPT", 3)
    path = tmp_path / "4.log"
    read(path, one(0, "idle", 9), one(1, "idle", 9), one(2, "gone", 8))
    read(path, batch(3, [Item(0, 0, key("gone"), None)]))
    sizes = []
    for offset in range(4, 404):
        read(path, one(offset, "busy"))
        sizes.append(path.stat().st_size)
    assert max(sizes) < 14_000
    with KeptLog(path) as log:
        found = state_log(4, log, 404, (), ["idle", "busy", "gone"])
    of = {n: [r.offset for r in found.of_ids([n])] for n in ("idle", "busy", "gone")}
    assert (of["idle"], of["gone"]) == ([0, 1], [2, 3])  # its lost marker is proven by it alone
    assert of["busy"] == list(range(of["busy"][0], 404))
    assert found.cuts == {"busy": of["busy"][0]}
    assert found.whole_from == 0  # no read missed anything: `cuts` says what is gone


def life(r: random.Random) -> list[StateRecord]:
    """What coordinators write of one id: sessions, transactions of v1 and v2, fences."""
    rows: list[tuple[str, int, int, tuple[TopicPartition, ...]]] = [("E", 0, 0, ())]
    for _ in range(r.randrange(25)):
        epoch = rows[-1][1]
        kind = r.choice(["v1", "v1", "v2", "v2", "session", "fence", "open"])
        named = r.choice([(HERE,), (ELSEWHERE,), (HERE, ELSEWHERE)])
        end = r.choice("CA")
        if kind == "session":
            rows.append(("E", epoch + 1, 0, ()))
            continue
        rows += [("O", epoch, 2 if kind == "v2" else 0, named)] * r.choice([1, 2])
        if kind == "fence":
            end = "A"
        if kind != "open":
            after, version = (epoch, 0) if kind == "v1" else (epoch + 1, 2)
            rows += [("P" + end, after, version, named), ("C" + end, after, version, named)]
    return [
        record(n, state, n, epoch=epoch, version=version, named=named)
        for n, (state, epoch, version, named) in enumerate(rows)
    ]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), newest=st.sampled_from([1, 2, 5]))
def test_of_a_chain_only_what_a_verdict_needs_is_loaded(seed: int, newest: int) -> None:
    """The history of all records says the same as that of the loaded ones."""
    r = random.Random(seed)
    records = life(r)
    start = StartBatch(PID, r.randrange(max(_epoch(x) for x in records) + 1))
    usual, chains.NEWEST = chains.NEWEST, newest
    try:
        chain = Chain({PID: Wanted(frozenset({start.producer_epoch}), frozenset({HERE}))})
        for each in reversed(records):
            if not chain.done:
                chain.add(each)
    finally:
        chains.NEWEST = usual
    few = sorted(chain.kept, key=lambda x: x.offset)
    assert len(few) == len(set(few))
    assert _said(few, start) == _said(records, start)


def test_of_a_long_chain_a_part_is_loaded_and_what_is_cut_is_said() -> None:
    records = [record(0, "E", 0)]
    for n in range(1, 4001, 4):
        states = ("O", "O", "PC", "CC")
        records += [record(n + i, state, n + i) for i, state in enumerate(states)]
    busy = Chain({PID: Wanted(frozenset({0}), frozenset({HERE}))}, most=50)
    for each in reversed(records):
        if not busy.done:
            busy.add(each)
    assert len(busy.kept) <= 52
    assert busy.cut is not None
    assert busy.cut > 3800
    v2 = [record(0, "E", 0)]
    for n in range(1000):
        for i, state in enumerate(("O", "PC", "CC")):
            v2.append(record(1 + 3 * n + i, state, n, epoch=n + (i > 0), version=2))
    quick = Chain({PID: Wanted(frozenset({1000}), frozenset({HERE}))}, most=50)
    steps = 0
    for each in reversed(v2):
        if not quick.done:
            quick.add(each)
            steps += 1
    assert steps < 50
    assert quick.cut is not None
    assert quick.cut < 1 + 3 * 999  # where the batch's epoch begins


def _epoch(record: StateRecord) -> int:
    assert isinstance(record.value, TransactionValue)
    return record.value.producer_epoch


def _said(records: list[StateRecord], start: StartBatch, where: TopicPartition = HERE) -> object:
    log = StateLog(0, tuple(records), 0, end=1000)
    h = read_history(start, where, [log], PARTITIONS, markers_from=0)
    later = [d for d in h.decisions if d.producer_epoch >= start.producer_epoch]
    lost = lost_decisions(h, start, 100, 0)
    return later, h.latest, h.reason, h.ended_by, h.begun_by_end, lost


def test_batches_of_two_epochs_of_one_producer_each_find_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart lost the markers of two transactions of an id that went on for long."""
    records = [record(0, "E", 0)]
    for epoch in range(60):
        for state, after in (("O", 0), ("PC", 1), ("CC", 1)):
            named = ({5: HERE, 40: ELSEWHERE}.get(epoch, TopicPartition("third", 0)),)
            at = len(records)
            records.append(record(at, state, at, epoch=epoch + after, version=2, named=named))
    starts = {
        partition: StartBatch(PID, epoch) for partition, epoch in ((HERE, 5), (ELSEWHERE, 40))
    }
    wanted = wanted_of(
        [about := OpenTransaction(*HERE, PID, 1), other := OpenTransaction(*ELSEWHERE, PID, 1)],
        {about: starts[HERE], other: starts[ELSEWHERE]},
    )
    chain = Chain(wanted)
    for each in reversed(records):
        if not chain.done:
            chain.add(each)
    few = sorted(chain.kept, key=lambda x: x.offset)
    for partition, start in starts.items():
        assert _said(few, start, partition) == _said(records, start, partition)


def test_what_a_chain_leaves_out_is_said() -> None:
    """Decisions of an epoch that is loaded in part measure no clock."""
    records = [record(0, "E", 0)]
    for epoch in range(2):
        for _ in range(30):
            for state in ("O", "PC", "CC"):
                records.append(record(len(records), state, len(records), epoch=epoch))
        records.append(record(len(records), "E", len(records), epoch=epoch + 1))
    chain = Chain({PID: Wanted(frozenset({1}), frozenset({HERE}))})
    for each in reversed(records):
        if not chain.done:
            chain.add(each)
    assert chain.done
    assert chain.cut == min(r.offset for r in chain.kept)
    h = read_history(
        StartBatch(PID, 1),
        HERE,
        [StateLog(0, tuple(reversed(chain.kept)), 0, cuts={"orders": chain.cut})],
        PARTITIONS,
        markers_from=0,
    )
    assert (h.reason, h.window) == (None, chain.cut)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("left", range(0, 400, 7))
def test_a_gap_is_seen_whatever_is_left_of_the_index(left: int, tmp_path: Path) -> None:
    """Compaction took records between two reads; the index is cut by a crash, or damaged."""
    path = tmp_path / "4.log"
    read(path, *(one(n, "a") for n in range(10)))
    read(path, *(one(n, "a") for n in range(8, 10)), *(one(n, "a") for n in range(20, 23)))
    index = index_of(path).read_bytes()
    index_of(path).write_bytes(index[: max(0, len(index) - left)])
    with KeptLog(path) as log:
        assert (log.wholeness.whole_from, log.wholeness.end) == (20, 23)
        assert log.wholeness.stands_from >= 10 - 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("left", only_here(range(0, 3000, 37), *range(0, 3000, 8 * 37)))
def test_what_was_pruned_is_said_whatever_is_left_of_the_index(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pruning, "MOST_BYTES", 12_000)
    monkeypatch.setattr(log_pruning, "KEPT", 3)
    path = tmp_path / "4.log"
    for offset in range(120):
        read(path, one(offset, "busy"))
    with KeptLog(path) as log:
        assert log.cuts
        first = log.extents[0].part().header(0).base_offset
    index = index_of(path).read_bytes()
    index_of(path).write_bytes(index[: max(0, len(index) - left)])
    with KeptLog(path) as log:
        assert max(log.cut("busy"), log.wholeness.whole_from) >= first > 0


def test_of_all_ids_too_it_is_said_what_was_pruned(tmp_path: Path) -> None:
    path = tmp_path / "4.log"
    read(path, one(0, "a"), one(1, "b"))
    with KeptLog(path) as log:
        log.note_pruned({id_token(b"a"): 9}, 0)
        assert state_log(4, log, 2, (), None).cuts == {"a": 9}


def test_what_another_process_replaced_stands_for_nothing(
    tmp_path: Path,
) -> None:
    """The log was read again by another process, and ends before what this one goes on with."""
    path = tmp_path / "4.log"
    read(path, *(one(n, "a") for n in range(10)))
    reading = LogReading(path)
    for n in range(9, 20):
        reading.add(part_of(one(n, "a")))
    path.unlink()
    index_of(path).unlink()
    read(path, *(one(n, "a") for n in range(15)))
    reading.add(part_of(one(20, "a")))
    with reading.batches() as log:
        found = state_log(4, log, 21, (), ["a"])
    assert found.whole_from == 20
    assert [r.offset for r in found.standing] == [20]


@pytest.mark.parametrize("disk", ["there", "none", "full"])
def test_without_a_cache_a_log_is_the_same_and_not_in_memory(
    disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_log, "MOST_IN_MEMORY", 200)
    if disk == "none":
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    log = TemporaryLog()
    data = [one(n, f"id-{n % 7}") for n in range(40)]
    for number, each in enumerate(data):
        if disk == "full" and number == 20:
            monkeypatch.setattr(log._file, "write", full_disk)
        log.add(part_of(each), 0)
    fetched = sum(isinstance(e, Fetched) for e in log.extents)
    assert fetched in {"there": [0], "full": [20], "none": [38, 39]}[disk]
    assert log.wholeness.whole_from == 0
    found = state_log(4, log, 40, (), ["id-3", "id-6"])
    expected = state_log(4, in_memory(data), 40, (), ["id-3", "id-6"])
    assert found.records == expected.records


def full_disk(data: bytes) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("asked", [["a", "b"], None])
def test_of_each_id_the_newest_records_are_enough(asked: list[str] | None) -> None:
    log = in_memory([one(n, "a" if n % 10 else "b") for n in range(40)])
    found = state_log(4, log, 40, (), asked, newest=5)
    assert [r.offset for r in found.of_ids(["a"])] == [35, 36, 37, 38, 39]
    assert [r.offset for r in found.of_ids(["b"])] == [0, 10, 20, 30]
    assert found.cuts == {"a": 35}
