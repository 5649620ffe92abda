"""What the cache keeps beside batches: ids that topics had, logs that a cluster has forgotten."""

import asyncio
import random
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from eoctl.stores.history_cache import StateCache
from recovery.inspect.history import StateLog
from recovery.inspect.state_log import parts_of, state_log
from recovery.inspect.topic_sightings import Named, Sighting, Sightings
from tests.unit.formats_build import Item, batch
from tests.unit.test_state_log import key, log_of, value


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


def test_what_a_log_contradicts_is_set_aside_and_an_earlier_topic_is_kept() -> None:
    first, second = StateCache("cluster", "first"), StateCache("cluster", "second")
    batches = parts_of([BATCHES])
    first.save(4, batches)
    sight("A", {4: 1}, cache=first)
    assert second.has_earlier
    assert second.former({"t": "A"})[0].same_topic is False
    for _ in range(2):
        second.save(4, batches)
        part = second.load(4)
        assert part is not None
        second.retire(4, part)
    assert second.load(4) is None
    assert [(f.partition, f.same_topic) for f in second.former({"t": "A"})] == [
        (4, False),
        (4, True),
        (4, True),
    ]
    assert [f.same_topic for f in StateCache("another", "second").former({"t": "A"})] == []
    assert not StateCache("another", "second").has_earlier


def test_another_cluster_of_the_same_id_is_no_evidence() -> None:
    """A fixed cluster id, a cluster installed anew: the topics have other ids."""
    former, now = StateCache("cluster", "former"), StateCache("cluster", "now")
    former.save(4, parts_of([BATCHES]))
    assert now.former({"t": "A"}) == []  # nothing says whose it is
    sight("A", {4: 1}, cache=former)
    assert now.former({"t": "B", "u": "A"}) == []
    assert now.former({}) == []
    assert [f.partition for f in now.former({"t": "A"})] == [4]  # only its state was made anew
    sight("B", {4: 2}, cache=former)
    assert [f.partition for f in now.former({"t": "B"})] == [4]


def test_what_another_process_has_set_aside_already_is_not_set_aside_again(tmp_path: Path) -> None:
    cache = StateCache("cluster", "state")
    cache.save(4, parts_of([BATCHES]))
    old = cache.load(4)
    assert old is not None
    cache.save(4, parts_of([log_of((key("b"), value(8, 0, 1)))]))
    cache.retire(4, old)
    assert cache.load(4) is not None
    assert list(tmp_path.rglob("*.lost")) == []


def test_what_was_set_aside_is_never_written_over(tmp_path: Path) -> None:
    cache = StateCache("cluster", "state")
    for number in range(3):
        cache.save(4, parts_of([log_of((key("a"), value(number, 0, 1)))]))
        part = cache.load(4)
        assert part is not None
        cache.retire(4, part)
        if number == 1:
            (folder,) = tmp_path.rglob("cluster_state")
            (folder / "4.0.lost").unlink()
    assert sorted(p.name for p in tmp_path.rglob("*.lost")) == ["4.0.lost", "4.1.lost"]


def test_a_log_too_large_to_keep_leaves_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = StateCache("cluster", "state")
    cache.save(4, parts_of([BATCHES]))
    monkeypatch.setattr("eoctl.stores.history_cache.MOST_BYTES", 100)
    cache.save(4, parts_of([BATCHES, BATCHES]))
    kept = cache.load(4)
    assert kept is not None
    assert bytes(kept.data[: kept.scan.end]) == BATCHES


def one(offset: int, name: str) -> bytes:
    """A batch of one record, as coordinators write them."""
    return batch(offset, [Item(0, 0, key(name), value(7, offset, 1))])


def read_now(cache: StateCache, log: dict[int, bytes], end: int) -> StateLog:
    """One read of a log (offset → its batch), as `eoctl.kafka.read.evidence` keeps it."""
    before = cache.load(4)
    seen = before.header(-1).last_offset if before else -1
    new = parts_of([data for offset, data in sorted(log.items()) if offset > seen])
    parts = [before, *new] if before else new
    if new:
        cache.save(4, parts)
    return state_log(4, parts, end, (), None)


@pytest.mark.parametrize("seed", range(100))
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


def test_any_batch_of_an_older_cache_may_have_begun_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = StateCache("cluster", "state")
    monkeypatch.setattr("eoctl.stores.history_cache.VERSION", 0)
    cache.save(4, parts_of([one(offset, "a") for offset in (0, 2, 3)]))
    monkeypatch.undo()
    kept = cache.load(4)
    assert kept is not None
    assert [r.offset for r in state_log(4, [kept], 4, (), None).standing] == [2, 3]


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
    first.save(4, parts_of([log_of((key("a"), value(7, 0, 1)))]))
    (folder,) = tmp_path.rglob("cluster_first")
    (folder.parent / "cluster_a-file").write_text("")
    (folder / "x.batches").write_bytes((folder / "4.batches").read_bytes())
    (folder / "5.batches").mkdir()
    sight("A", {4: 1}, cache=first)
    assert [f.partition for f in second.former({"t": "A"})] == [4]


def test_a_plain_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "transaction-state").mkdir()
    (tmp_path / "transaction-state" / "cluster_state").write_text("")
    cache = StateCache("cluster", "state")
    sight("A", {3: 10})
    cache.save(4, parts_of([BATCHES]))
    cache.retire(4, parts_of([BATCHES])[0])
    assert (cache.load(4), cache.former({}), named("A")) == (None, [], Named(None, 0))
