"""What the cache keeps beside batches: ids that topics had, logs that a cluster has forgotten."""

from pathlib import Path

import pytest

from eoctl.stores.state_cache import StateCache
from recovery.formats.state_log import parts_of
from recovery.topic_sightings import Named, Sightings
from tests.unit.test_state_log import key, log_of, value


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))


def named(topic_id: str) -> Named:
    seen = StateCache("cluster", "state").sightings(["t"])
    return Sightings(topic_id, seen["t"]).of(3)


def test_a_topic_id_counts_from_the_end_that_was_read_after_it_was_seen() -> None:
    cache = StateCache("cluster", "state")
    assert named("A") == Named(None, 0)
    cache.sight({"t": "A"}, {3: 10})
    assert named("A") == Named(10, 0)
    cache.sight({"t": "A"}, {3: 20})
    assert named("A") == Named(10, 0)  # seen earlier already
    cache.sight({"t": "B"}, {3: 30})
    # what stood at 10 was there before A was seen the second time; at 20, nobody knows
    assert named("B") == Named(30, 10)
    assert named("C") == Named(None, 20)  # B was seen after 20 had been read


def test_what_a_log_contradicts_is_set_aside_and_an_earlier_topic_is_kept() -> None:
    first, second = StateCache("cluster", "first"), StateCache("cluster", "second")
    batches = parts_of([log_of((key("a"), value(7, 0, 1)))])
    first.save(4, batches)
    assert second.former()[0].same_topic is False
    second.save(4, batches)
    second.retire(4)
    second.save(4, batches)
    second.retire(4)
    assert second.load(4) is None
    assert [(f.partition, f.same_topic) for f in second.former()] == [
        (4, False),
        (4, True),
        (4, True),
    ]
    assert [f.same_topic for f in StateCache("another", "second").former()] == []


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
    cache = StateCache("cluster", "state")
    cache.sight({"t": "A"}, {3: 10})
    (path,) = tmp_path.rglob("topics.json")
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert named("A") == Named(None, 0)
    cache.sight({"t": "A"}, {3: 20})
    assert named("A") == Named(20, 0)


def test_files_and_folders_that_the_cache_did_not_make(tmp_path: Path) -> None:
    first, second = StateCache("cluster", "first"), StateCache("cluster", "second")
    first.save(4, parts_of([log_of((key("a"), value(7, 0, 1)))]))
    (folder,) = tmp_path.rglob("cluster_first")
    (folder.parent / "cluster_a-file").write_text("")
    (folder / "x.batches").write_bytes((folder / "4.batches").read_bytes())
    (folder / "5.batches").mkdir()
    assert [f.partition for f in second.former()] == [4]


def test_a_plain_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "transaction-state").mkdir()
    (tmp_path / "transaction-state" / "cluster_state").write_text("")
    cache = StateCache("cluster", "state")
    cache.sight({"t": "A"}, {3: 10})
    cache.save(4, parts_of([log_of((key("a"), value(7, 0, 1)))]))
    cache.retire(4)
    assert (cache.load(4), cache.former(), named("A")) == (None, [], Named(None, 0))
