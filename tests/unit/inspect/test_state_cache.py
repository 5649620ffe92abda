"""What the cache keeps beside batches: ids that topics had, logs that a cluster has forgotten."""

import asyncio
import random
import struct
import threading
from collections.abc import Collection
from pathlib import Path

import pytest
from crc32c import crc32c

from eoctl.stores.history_cache import StateCache
from recovery.inspect.history import StateLog
from recovery.inspect.log_part import part_of
from recovery.inspect.state_log import state_log
from recovery.inspect.topic_sightings import Named, Sighting, Sightings
from tests.share import share
from tests.unit.formats.test_state_log import key, log_of, value
from tests.unit.formats_build import Item, batch


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))


def named(topic_id: str) -> Named:
    seen = StateCache("cluster", "state").sightings(["t"])
    return Sightings(topic_id, seen["t"]).of(3)


def sight(
    topic_id: str,
    ends: dict[int, int],
    *,
    confirmed: Collection[str] = ("t",),
    cache: StateCache | None = None,
) -> None:
    cache = cache or StateCache("cluster", "state")
    before = cache.noted_ends()
    asyncio.run(cache.sight({"t": topic_id}, ends, confirmed, before))


def test_a_topic_id_counts_from_the_end_that_was_read_after_it_was_seen() -> None:
    assert named("A") == Named(None, 0)
    sight("A", {3: 10})
    assert named("A") == Named(10, 0)
    sight("A", {3: 20})
    assert named("A") == Named(10, 0)  # seen earlier already
    sight("B", {3: 30})
    # what stood at 10 was there before A was seen the second time; at 20, nobody knows
    assert named("B") == Named(30, 10)
    assert named("C") == Named(None, 20)  # B was seen after 20 had been read


def test_a_broker_that_lags_behind_hides_no_decision_on_the_new_topic() -> None:
    sight("A", {3: 10})
    sight("B", {3: 20})
    sight("C", {3: 30})
    # told A again, though B and C were seen: what stood at 40 may be about C
    for end in (40, 50):
        sight("A", {3: end})
    assert named("C") == Named(30, 10)
    assert named("B") == Named(20, 0)


def test_an_id_that_only_a_broker_that_lags_behind_told_is_believed_no_further() -> None:
    sight("A", {3: 10})
    sight("A", {3: 20}, confirmed=())
    sight("A", {3: 30}, confirmed=())
    sight("B", {3: 40})
    assert named("B") == Named(40, 0)


def test_an_id_that_was_first_told_after_its_successor() -> None:
    sight("B", {3: 20})
    sight("A", {3: 30})
    sight("A", {3: 40})
    assert named("B") == Named(20, 0)


def test_what_stands_behind_the_first_sighting_is_never_an_earlier_topics() -> None:
    late = [Sighting("A", {}, {3: 50}), Sighting("B", {3: 20}, {})]
    assert Sightings("B", late).of(3) == Named(20, 20)


def test_looks_at_once_forget_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty processes' worth of looks, each with a topic of its own, patient on a busy machine."""
    monkeypatch.setattr("eoctl.stores.history_cache.WAIT_SECONDS", 120.0)

    def look(number: int) -> None:
        asyncio.run(StateCache("cluster", "state").sight({f"t{number}": "A"}, {number: 10}))

    looks = [threading.Thread(target=look, args=(n,)) for n in range(40)]
    for each in looks:
        each.start()
    for each in looks:
        each.join()
    seen = StateCache("cluster", "state").sightings([f"t{n}" for n in range(40)])
    assert [len(rows) for rows in seen.values()] == [1] * 40
    assert StateCache("cluster", "state").noted_ends() == dict.fromkeys(range(40), 10)


BATCHES = log_of((key("a"), value(7, 0, 1)))


def keep(cache: StateCache, data: bytes) -> None:
    """One read of partition 4."""
    cache.reading(4).add(part_of(data))


def kept(cache: StateCache) -> bytes:
    with cache.reading(4).batches() as log:
        return b"".join(bytes(extent.part().data) for extent in log.extents)


def former(cache: StateCache, present: dict[str, str]) -> list[tuple[int, bool]]:
    return [(f.partition, f.same_topic) for f in cache.former(present)]


def test_what_a_log_contradicts_is_set_aside_and_an_earlier_topic_is_kept() -> None:
    first, second = StateCache("cluster", "first"), StateCache("cluster", "second")
    keep(first, BATCHES)
    sight("A", {4: 1}, cache=first)
    assert second.has_earlier
    assert former(second, {"t": "A"}) == [(4, False)]
    for _ in range(2):
        keep(second, BATCHES)
        second.reading(4).retire()
    assert kept(second) == b""
    assert former(second, {"t": "A"}) == [(4, False), (4, True), (4, True)]
    for old in second.former({"t": "A"}):
        log = state_log(4, old.log, 1, (), ["a"])
        assert [r.transactional_id for r in log.records] == ["a"]
    assert former(StateCache("another", "second"), {"t": "A"}) == []
    assert not StateCache("another", "second").has_earlier


def test_another_cluster_of_the_same_id_is_no_evidence() -> None:
    """A fixed cluster id, a cluster installed anew: the topics have other ids."""
    earlier, now = StateCache("cluster", "former"), StateCache("cluster", "now")
    keep(earlier, BATCHES)
    assert former(now, {"t": "A"}) == []  # nothing says whose it is
    sight("A", {4: 1}, cache=earlier)
    assert former(now, {"t": "B", "u": "A"}) == []
    assert former(now, {}) == []
    assert former(now, {"t": "A"}) == [(4, False)]  # only its state was made anew
    sight("B", {4: 2}, cache=earlier)
    assert former(now, {"t": "B"}) == [(4, False)]


def test_what_another_process_has_set_aside_already_is_not_set_aside_again(tmp_path: Path) -> None:
    cache = StateCache("cluster", "state")
    keep(cache, BATCHES)
    one, other = cache.reading(4), cache.reading(4)
    one.retire()
    keep(cache, log_of((key("b"), value(8, 0, 1))))
    other.retire()
    assert b"b" in kept(cache)
    assert [p.name for p in sorted(tmp_path.rglob("*.lost"))] == ["4.0.lost"]


def test_what_was_set_aside_is_never_written_over(tmp_path: Path) -> None:
    cache = StateCache("cluster", "state")
    for number in range(3):
        keep(cache, log_of((key("a"), value(number, 0, 1))))
        cache.reading(4).retire()
        if number == 1:
            (folder,) = tmp_path.rglob("cluster_state")
            (folder / "4.0.lost").unlink()
    assert sorted(p.name for p in tmp_path.rglob("*.lost")) == ["4.0.lost", "4.1.lost"]


def one(offset: int, name: str) -> bytes:
    """A batch of one record, as coordinators write them."""
    return batch(offset, [Item(0, 0, key(name), value(7, offset, 1))])


def read_now(cache: StateCache, log: dict[int, bytes], end: int) -> StateLog:
    """One read of a log (offset → its batch), as `eoctl.kafka.read.state_logs` does it."""
    reading = cache.reading(4)
    seen = reading.last.last_offset if reading.last else -1
    for offset, data in sorted(log.items()):
        if offset > seen:
            reading.add(part_of(data))
    reading.ended(end)
    with reading.batches() as batches:
        return state_log(4, batches, end, (), None)


@pytest.mark.parametrize("seed", range(share(100, 30)))
def test_no_record_stands_for_a_later_one_that_nobody_read(seed: int) -> None:
    """Reads and compactions in any order. What was missed is counted record by record."""
    r = random.Random(seed)
    cache = StateCache("cluster", "state")
    written: list[str] = []
    log: dict[int, bytes] = {}
    for _ in range(r.randrange(1, 8)):
        for _ in range(r.randrange(1, 4)):
            log[len(written)] = one(len(written), name := r.choice("ab"))
            written.append(name)
        if r.random() < 0.5:
            upto = r.randrange(len(written))
            newest = {name: offset for offset, name in enumerate(written[:upto])}
            log = {o: b for o, b in log.items() if o >= upto or o in newest.values()}
        if r.random() < 0.7:
            seen = read_now(cache, log, len(written))
            again = read_now(cache, log, len(written))
            assert again.standing == seen.standing  # a second look knows what the first one did
    seen = read_now(cache, log, len(written))
    there = {record.offset for record in seen.records}
    for record in seen.standing:
        later = range(record.offset + 1, len(written))
        missed = [o for o in later if written[o] == record.transactional_id and o not in there]
        assert not missed
    assert {r for r in seen.records if r.offset >= seen.whole_from} <= set(seen.standing)


def test_what_stands_after_a_second_read() -> None:
    cache = StateCache("cluster", "state")
    log = {offset: one(offset, "a") for offset in (0, 2, 3)}  # 1 was compacted away before
    assert [r.offset for r in read_now(cache, log, 4).standing] == [0, 2, 3]
    log |= {5: one(5, "a")}  # 4 came and went
    assert [r.offset for r in read_now(cache, log, 6).standing] == [5]
    log |= {6: one(6, "a")}
    assert [r.offset for r in read_now(cache, log, 7).standing] == [5, 6]


def former_file(version: int, *reads: list[bytes]) -> bytes:
    """A partition as eoctl 0.2.0 and its predecessors kept it."""
    sizes = [
        len(data) | (1 << 31 if version and number and not row else 0)
        for number, read in enumerate(reads)
        for row, data in enumerate(read)
    ]
    made = b"".join(data for read in reads for data in read)
    made += struct.pack(f"<{len(sizes)}I", *sizes) + bytes([version])
    made += len(sizes).to_bytes(7, "big")
    check: int = crc32c(made)
    return made + check.to_bytes(4, "big")


@pytest.mark.parametrize(("version", "stands"), [(0, [3]), (1, [2, 3])])
def test_a_file_of_an_earlier_version_is_taken_over(
    tmp_path: Path, version: int, stands: list[int]
) -> None:
    """In version 0 any batch may have begun a read; version 1 knows which did."""
    folder = tmp_path / "transaction-state" / "cluster_state"
    folder.mkdir(parents=True)
    reads = [[one(0, "a")], [one(1, "a"), one(3, "a")]]
    if version:
        reads = [[one(0, "a")], [one(2, "a"), one(3, "a")]]
    (folder / "4.batches").write_bytes(former_file(version, *reads))
    cache = StateCache("cluster", "state")
    log = read_now(cache, {}, 4)
    assert [r.offset for r in log.standing] == stands
    assert kept(cache) == b"".join(data for read in reads for data in read)
    assert not (folder / "4.batches").exists()


def test_what_an_earlier_version_set_aside_is_still_evidence(tmp_path: Path) -> None:
    sight("A", {4: 1}, cache=(first := StateCache("cluster", "first")))
    folders = [tmp_path / "transaction-state" / f"cluster_{name}" for name in ("first", "state")]
    folders[1].mkdir()
    (folders[0] / "4.batches").write_bytes(former_file(1, [BATCHES]))
    (folders[1] / "4.0.lost").write_bytes(former_file(1, [BATCHES]))
    cache = StateCache("cluster", "state")
    for _ in range(2):  # as it was, and as it is taken over
        assert former(cache, {"t": "A"}) == [(4, False), (4, True)]
    assert kept(first) == BATCHES


def test_a_damaged_file_of_an_earlier_version_is_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "transaction-state" / "cluster_state"
    folder.mkdir(parents=True)
    data = bytearray(former_file(1, [BATCHES, one(1, "b")]))
    data[len(BATCHES) + 70] ^= 1
    (folder / "4.batches").write_bytes(data)
    cache = StateCache("cluster", "state")
    keep(cache, BATCHES)
    assert kept(cache) == BATCHES
    assert former(cache, {}) == [(4, False)]  # as far as it is sound


DAMAGED = [
    '{"topics": []}',
    '{"topics": {"t": []}}',
    '{"topics": {"t": {"A": [{}]}}}',
    '{"topics": {"t": {"A": [{"x": 1}, {}]}}}',
    '{"topics": {"t": {"A": [{"3": "10"}, {}]}}}',
    '{"topics": {"t": {"A": 5}}}',
    '{"ends": {"x": 1}}',
    '{"ends": []}',
    '{"ends": {"3": null}}',
    "[]",
    "[" * 100_000,
    '{"topics": ' * 5000,
    "\ud800",
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_no_cache(tmp_path: Path, content: str) -> None:
    sight("A", {3: 10})
    (path,) = tmp_path.rglob("topics.json")
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert named("A") == Named(None, 0)
    sight("A", {3: 20})
    assert named("A") == Named(20, 0)


def test_files_and_folders_that_the_cache_did_not_make(tmp_path: Path) -> None:
    first, second = StateCache("cluster", "first"), StateCache("cluster", "second")
    keep(first, log_of((key("a"), value(7, 0, 1))))
    (folder,) = tmp_path.rglob("cluster_first")
    (folder.parent / "cluster_a-file").write_text("")
    (folder / "x.log").write_bytes((folder / "4.log").read_bytes())
    (folder / "5.log").mkdir()
    (folder / "6.batches").mkdir()
    sight("A", {4: 1}, cache=first)
    assert former(second, {"t": "A"}) == [(4, False)]


def test_a_plain_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "transaction-state").mkdir()
    (tmp_path / "transaction-state" / "cluster_state").write_text("")
    cache = StateCache("cluster", "state")
    sight("A", {3: 10})
    keep(cache, BATCHES)
    cache.reading(4).retire()
    assert (kept(cache), former(cache, {}), named("A")) == (b"", [], Named(None, 0))
    assert [r.offset for r in read_now(cache, {0: BATCHES}, 1).records] == [0]  # from memory
