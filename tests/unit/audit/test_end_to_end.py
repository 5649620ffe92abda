"""End to end: ids that did not come through once, against a count by hand; kills are continued."""

import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.engine import id_buckets
from eoctl.engine.id_buckets import IdBuckets, key_of, rows_of
from recovery.audit.end_to_end import (
    FIELDS,
    INPUT,
    INPUT_ABORTED,
    NEVER,
    OUTPUT,
    OUTPUT_OPEN,
    Cut,
    Judged,
    Reach,
)
from recovery.errors import IncompleteError, UsageError
from recovery.facts import TopicPartition
from tests.share import share

PLACES = [TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("out", 0)]
PLACES += [TopicPartition("out", 1)]
Record = tuple[int, int, int, int]
"""Id, offset, number of the partition, kind."""


def table(records: list[Record]) -> Any:
    rows = np.zeros(len(records), FIELDS)
    for row, (name, offset, place, kind) in zip(rows, records, strict=True):
        row["id"], row["offset"], row["range"], row["kind"] = (name, 7), offset, place, kind
    return rows


def world(rng: random.Random, ids: int) -> list[Record]:
    """Ids with zero to three records of each kind, in the order of a log."""
    drawn = [
        (name, place, kind)
        for name in range(ids)
        for kinds, places in (((INPUT, INPUT, INPUT_ABORTED), (0, 1)), ((OUTPUT,) * 3, (2, 3)))
        for kind in kinds
        for place in places
        if rng.random() < 0.3
    ]
    drawn += [(n, rng.choice((2, 3)), OUTPUT_OPEN) for n in range(ids) if rng.random() < 0.1]
    rng.shuffle(drawn)
    return [(name, offset, place, kind) for offset, (name, place, kind) in enumerate(drawn)]


@given(seed=st.integers(0, 2**32), number=st.integers(1, 5))
@settings(deadline=None, max_examples=share(300))
def test_what_did_not_come_through_once_is_counted(seed: int, number: int) -> None:
    rng = random.Random(seed)
    records = world(rng, 12)
    ends = [rng.randrange(len(records) + 1) for _ in range(2)]
    after = [rng.choice((-1, rng.randrange(len(records) + 1))) for _ in range(2)]
    inputs_known = rng.random() < 0.5
    by_id: dict[int, list[Record]] = defaultdict(list)
    for one in records:
        by_id[one[0]].append(one)
    counts = dict.fromkeys(
        ("lost", "unproven", "pending", "behind", "repeated", "from_aborted", "unknown"), 0
    )
    rows: dict[tuple[str, int], int] = {}
    proven: dict[tuple[str, int], bool] = {}
    ids_with_proof: set[tuple[str, int]] = set()
    for name, mine in by_id.items():
        kinds = {k: [r for r in mine if r[3] == k] for k in range(4)}
        # those before the cut come first, each in the order of partition and offset
        waiting = sorted(kinds[INPUT], key=lambda r: (r[1] >= ends[r[2]], r[2], r[1]))[
            len(kinds[OUTPUT]) :
        ]
        open_ = len(kinds[OUTPUT_OPEN])
        for n, (_, offset, place, _) in enumerate(waiting):
            if offset >= ends[place]:
                counts["behind"] += 1
            elif n < open_:
                counts["pending"] += 1
            else:
                lost, which = offset > after[place], ("no-output", name)
                counts["lost" if lost else "unproven"] += 1
                rows[which] = rows.get(which, 0) + 1
                proven[which] = proven.get(which, True) and lost
                ids_with_proof |= {which} if lost else set()
        given_, made = len(kinds[INPUT]), len(kinds[OUTPUT])
        if given_ and made > given_:
            counts["repeated"] += made - given_
            rows["repeated", name] = made - given_
        elif not given_ and made:
            kind = "from_aborted" if kinds[INPUT_ABORTED] else "unknown"
            counts[kind] += made
            if kind == "from_aborted":
                rows["aborted-input", name] = made
    for which in rows:
        if which[0] != "no-output":
            proven[which] = inputs_known
            ids_with_proof |= {which} if inputs_known else set()
    cut = Cut(np.array(ends), np.array(after), np.full(2, NEVER if inputs_known else 0))
    judged = Judged(PLACES, cut, most=1000)
    for bucket in range(number):
        judged.add(table([r for r in records if r[0] % number == bucket]))
    verdicts = judged.verdicts
    assert {name: sum(getattr(verdicts.counts, name)) for name in counts} == counts
    assert sum(verdicts.counts.rows) == len(records)
    names = {offset: name for name, offset, _, _ in records}
    found = {(f.kind, names[f.inputs[0].offset]): f.records for f in verdicts.found}
    assert found == rows
    shown = {(f.kind, names[f.inputs[0].offset]): f.proven for f in verdicts.found}
    assert shown == proven
    assert verdicts.findings == len(ids_with_proof)


@given(seed=st.integers(0, 2**32), number=st.integers(2, 5), most=st.integers(1, 12))
@settings(deadline=None, max_examples=share(300))
def test_buckets_that_tasks_share_give_what_one_task_gives(
    seed: int, number: int, most: int
) -> None:
    """The same findings are shown, too, where there are more than are kept."""
    rng = random.Random(seed)
    records = world(rng, 30)
    after = np.array([rng.choice((-1, 40, 80)) for _ in range(2)])
    cut = Cut(np.array([90, 60]), after, np.array([rng.choice((0, 50, NEVER)) for _ in range(2)]))
    one_reach, one = Reach(2, 2), Judged(PLACES, cut, most)
    one_reach.add(table(records))
    one.add(table(records))
    reach, judged = Reach(2, 2), Judged(PLACES, cut, most)
    for bucket in range(number):
        rows = table([r for r in records if r[0] % number == bucket])
        part, judged_part = Reach(2, 2), Judged(PLACES, cut, most)
        part.add(rows)
        judged_part.add(rows)
        reach.join(part.dump())
        judged.join(judged_part.dump())
    assert judged.verdicts == one.verdicts
    assert len(one.verdicts.found) <= most
    assert reach.dump() == one_reach.dump()
    assert reach.rows.tolist() == list(one.verdicts.counts.rows)


def test_a_proven_finding_is_shown_before_others() -> None:
    for bucket in ([0, 1], [0], [1]):
        judged = Judged(PLACES, Cut(np.array([9, 9]), np.array([4, 4]), np.full(2, NEVER)), most=1)
        for ids in (bucket, [n for n in (0, 1) if n not in bucket]):
            judged.add(table([(n, 4 + n, 0, INPUT) for n in ids]))
        assert [(f.proven, f.inputs[0].offset) for f in judged.verdicts.found] == [(True, 5)]


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=share(300))
def test_how_far_outputs_reach_and_where_they_begin(seed: int) -> None:
    rng = random.Random(seed)
    names = list(range(40))
    rng.shuffle(names)
    inputs = [(name, offset, offset % 2, INPUT) for offset, name in enumerate(names)]
    chosen = [one for one in inputs if rng.random() < 0.5]
    outputs = [(name, at, rng.choice((2, 3)), OUTPUT) for at, (name, _, _, _) in enumerate(chosen)]
    again = {name for name in names if rng.random() < 0.2}  # their output may be the second one's
    inputs += [
        (name, 100 + n, n % 2, rng.choice((INPUT, INPUT_ABORTED))) for n, name in enumerate(again)
    ]
    reach = Reach(2, 2)
    for bucket in range(3):
        reach.add(table([r for r in (*inputs, *outputs) if r[0] % 3 == bucket]))
    placed = {name: place for name, _, place, _ in outputs}
    for source in range(2):
        have = [
            min(
                (place, offset) for one, offset, place, kind in inputs if one == n and kind == INPUT
            )
            for n in placed
        ]
        assert reach.last[source] == max((o for place, o in have if place == source), default=-1)
        for out in (2, 3):
            sure = [r for r in chosen if r[0] not in again and r[2] == source]
            first = min((o for name, o, *_ in sure if placed[name] == out), default=NEVER)
            assert reach.first[source, out - 2] == first
    cut_off = np.array([True, False])
    assert reach.proven_after(cut_off).tolist() == reach.first[:, 0].tolist()
    assert reach.proven_after(np.zeros(2, np.bool_)).tolist() == [-1] * 2


def test_a_killed_run_keeps_what_it_had_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    rng = np.random.default_rng(5)

    def some(count: int) -> Any:
        ids = rng.integers(0, 2**63, (count, 2), dtype=np.uint64)
        return rows_of(ids, np.arange(count), np.zeros(count), 1, INPUT)

    first, lost, second = some(3_000), some(100), some(2_000)
    killed = IdBuckets("a", 3 * id_buckets.ROWS)
    assert killed.saved is None
    killed.add(first)
    now = time.time() * 1000
    killed.save({"at": 1, "began": now})
    with (killed.folder / "0.rows").open("ab") as file:
        file.write(lost.tobytes()[:1_001])  # it was killed while it wrote
    again = IdBuckets("a", 3 * id_buckets.ROWS)
    assert again.saved is not None
    assert again.saved["at"] == 1
    again.add(second)
    again.save({"at": 2, "began": now})
    buckets = list(again)
    assert len(buckets) == 3
    both = np.sort(np.concatenate(buckets), order=["offset", "id"])
    assert (both == np.sort(np.concatenate([first, second]), order=["offset", "id"])).all()
    assert IdBuckets("b", 1).saved is None, "another request"
    (again.folder / "1.rows").write_bytes(b"")
    assert IdBuckets("a", 1).saved is None, "what is damaged is read again"
    old = IdBuckets("c", 1)
    old.save({"began": now - 1000 * (id_buckets.KEPT_SECONDS + 1)})
    assert IdBuckets("c", 1).saved is None, "its ends are old, though it was saved just now"
    key = key_of(["a"])
    assert key == key_of(["a"]) != key_of(["b"])
    monkeypatch.setattr(id_buckets, "__version__", "0.0.1")
    assert key != key_of(["a"]), "of another eoctl, which may write otherwise"


def test_few_ids_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(id_buckets, "MOST", 100)
    monkeypatch.setattr(id_buckets, "ROWS", 100)
    buckets = IdBuckets("a", 200)
    buckets.add(rows_of(np.zeros((1, 2)), np.arange(1), np.zeros(1), 0, INPUT))
    buckets.save({"began": time.time() * 1000})
    ids = np.zeros((151, 2), np.uint64)
    ids[101:, 0] = np.arange(1, 51) << 32  # in both buckets
    buckets.add(rows_of(ids, np.arange(151), np.zeros(151), 0, OUTPUT))
    with pytest.raises(IncompleteError, match="the same id"):
        buckets.save({"began": 0})
    assert not buckets.folder.exists(), "nor are the rows of the other bucket kept"


def test_a_full_disk_is_said_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    buckets = IdBuckets("a", 10)
    buckets.add(rows_of(np.ones((9, 2)), np.arange(9), np.zeros(9), 0, OUTPUT))
    (buckets.folder / "0.rows").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left on device") as raised:
        buckets.save({"began": 0})
    assert raised.value.where == str(buckets.folder)
