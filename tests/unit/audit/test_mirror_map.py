"""A mirror map that is kept in several runs, against comparing with the source itself."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.engine import mirror_continuing
from eoctl.engine.mirror_continuing import continued
from eoctl.engine.mirror_logs import Digested, MappedLog, OnProgress, Progress
from eoctl.engine.mirror_reading import Both, BothLogs, PartitionMirror
from eoctl.operations.audit.failover_map import lacking
from eoctl.operations.audit.ranges import AuditOptions, Resolved
from recovery.audit.mirror_map import (
    MapCommit,
    MapPartition,
    MirrorMap,
    dump,
    load,
    refuse_other_map,
    with_partition,
)
from recovery.audit.mirror_place import Around, Place
from recovery.audit.mirror_steps import PairSteps, Steps
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.formats.columns import ABORTED, NONE, Batches, ColumnBatch
from recovery.shared.record_digests import record_digests
from recovery.values import replace
from tests.share import share
from tests.unit.formats_build import Item, batch, decoded

Content = tuple[int, int]
"""A record's id, and its outcome."""
READING = AuditOptions(most=0)
WHOLE = MirrorMap(
    source_cluster_id="A",
    source_topic="orders",
    source_topic_id="one",
    mirror_cluster_id="B",
    mirror_topic="orders",
    mirror_topic_id="two",
    compared=("timestamp", "key", "value", "headers"),
    compacted=False,
    partitions=(),
    commits=(),
)


class ListLog:
    """A log in memory: every second offset is a marker's."""

    def __init__(self, records: Sequence[Content]) -> None:
        self.records = records

    async def read(self, r: Resolved, end: int, on_progress: OnProgress) -> Digested:
        rows = [i for i in range(len(self.records)) if r.start <= 2 * i < end]
        for at in range(0, len(rows), 5):
            part = _part([(i, *self.records[i]) for i in rows[at : at + 5]])
            yield part, record_digests(part)


def _part(records: Sequence[tuple[int, int, int]]) -> ColumnBatch:
    items = [Item(2 * i, 1_000 + one, key=b"k", value=b"v%d" % one) for i, one, _ in records]
    part = decoded(batch(0, items), None)
    outcome = np.array([outcome for _, _, outcome in records], np.int64)
    return replace(
        part, batch=outcome, batches=Batches(part.batches.scan, np.arange(4, dtype=np.int8))
    )


def _range(end: int, start: int = 0) -> Resolved:
    return Resolved("t", 0, start, end, start, end, end)


def keep(
    known: MapPartition | None,
    source: Sequence[Content],
    mirror: Sequence[Content],
    *,
    cut: int = 0,
) -> MapPartition:
    """One run, up to the present ends of both logs. cut: where the mirror begins."""
    starts = (0, cut) if known is None else (known.source.end, max(known.mirror.end, cut))
    mine, theirs = (
        (ListLog(log), replace(_range(2 * len(log)), start=start, log_start_offset=begin))
        for log, start, begin in zip((source, mirror), starts, (0, cut), strict=True)
    )
    return asyncio.run(continued(known, mine, theirs, Progress(None), timed=True))


def planned(
    kept: MapPartition, mirror: Sequence[Content], at: int, cut: int = 0
) -> tuple[BothLogs, MappedLog]:
    """Where a group at source offset `at` continues, by the map."""
    copies, r = ListLog(mirror), _range(2 * len(mirror), cut)
    log = MappedLog(copies, r, kept, compacted=False, offset=at)  # type: ignore[arg-type]
    pairing = PartitionMirror(
        _range(kept.source.end), r, around=Around(at), known_to=kept.mirror.end
    )
    return asyncio.run(Both(log, copies, READING).read(pairing)), log


def left_out(logs: BothLogs, log: MappedLog) -> int:
    """What a plan says that the mirror lacks of what the group has not read."""
    assert logs.place is not None
    return logs.place.lost + lacking(log, logs.place.reach)


def compared(source: Sequence[Content], mirror: Sequence[Content], at: int) -> BothLogs:
    """The same by the source itself."""
    pairing = PartitionMirror(_range(2 * len(source)), _range(2 * len(mirror)), around=Around(at))
    return asyncio.run(Both(ListLog(source), ListLog(mirror), READING).read(pairing))


def _copied(rng: random.Random, source: Sequence[Content], *, uncommitted: bool) -> list[int]:
    """The source's records in the order in which a mirror copies them, killed now and then."""
    copies: list[int] = []
    at = 0
    while at < len(source):
        end = min(len(source), at + rng.randrange(1, 15))
        copies += [i for i in range(at, end) if uncommitted or source[i][1] == NONE]
        at = end if rng.random() < 0.6 else rng.randrange(at, end)
        if end == len(source):
            break
    return copies


def _costs(place: Place) -> list[tuple[int, int, int] | None]:
    places = place.exact, place.earliest, place.latest
    return [None if c is None else (c.offset, c.again, c.left) for c in places]


def _source(rng: random.Random, *, alike: bool) -> list[Content]:
    """A source in which records come again, as a producer that sends an aborted one again does."""
    source: list[Content] = []
    for i in range(rng.randrange(1, 50)):
        again = source and rng.random() < 0.1
        one = rng.randrange(40) if alike else rng.choice(source)[0] if again else i
        source.append((one, NONE if alike or again or rng.random() < 0.8 else ABORTED))
    return source


@given(st.integers(0, 2**32), st.booleans())
@settings(deadline=None, max_examples=share(600))
def test_a_map_finds_what_the_source_itself_would(seed: int, alike: bool) -> None:
    """Kept in one to three runs while both logs grow; the mirror goes on after the last one."""
    rng = random.Random(seed)
    source = _source(rng, alike=alike)
    copies = _copied(rng, source, uncommitted=not alike and rng.random() < 0.3)
    mirror = [(source[i][0], NONE) for i in copies]
    kept, end, seen = None, 0, 0
    for length in sorted(rng.randrange(len(mirror) + 1) for _ in range(rng.randrange(1, 4))):
        end = rng.randrange(max([end - 1, *copies[:length]]) + 1, len(source) + 1)
        kept, seen = keep(kept, source[:end], mirror[:length]), length
    assert kept is not None
    known, at = source[:end], 2 * rng.randrange(end + 1)
    logs, log = planned(kept, mirror, at)
    found = logs.place
    assert found is not None
    # whatever comes again or not: what the group has not read of the source follows
    copied = {i for i in copies if source[i][1] == NONE}
    unread = Counter(source[i][0] for i in copied if 2 * i >= at)
    chosen = (found.exact or found.earliest).offset
    assert Counter(one for one, _ in mirror[chosen // 2 :]) >= unread
    assert found.unknown >= sum(i >= end for i in copies[seen:])
    times = Counter([*(one for one, _ in mirror), *(i for i, aborted in known if aborted)])
    if all(times[one] == 1 for one, _ in mirror[seen:]):
        newer = [(source[i][0], NONE) for i in copies if i >= end]
        expected = compared([*known, *newer], mirror, at).place
        assert expected is not None
        assert _costs(found) == _costs(expected)
        assert found.unknown == len(newer)
        lost = [i for i in range(end) if 2 * i >= at and source[i][1] == NONE and i not in copied]
        assert left_out(logs, log) == len(lost)
    steps, rest = kept.unpacked()
    assert steps.unread(at) == log.found_unread
    visible = [2 * i for i, (_, outcome) in enumerate(known) if outcome == NONE]
    in_steps = [
        int(first) + n
        for first, records in zip(steps.source, steps.records, strict=True)
        for n in range(int(records))
    ]
    assert sorted([*in_steps, *rest.offset[rest.visible].tolist()]) == visible


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=share(600))
def test_a_plan_after_a_gap_counts_what_was_in_it(seed: int) -> None:
    """The mirror copies in order, and deletes records, some of them before a run has seen them."""
    rng = random.Random(seed)
    source = [(n, NONE) for n in range(rng.randrange(1, 50))]
    kept, cut, length = None, 0, 0
    for _ in range(rng.randrange(1, 4)):
        length = rng.randrange(length, len(source) + 1)
        cut = rng.randrange(cut, length + 1)
        kept = keep(kept, source[: max(length, 1)], source[:length], cut=2 * cut)
    assert kept is not None
    if kept.source.start > (at := 2 * rng.randrange(length + 1)):
        return  # the plan is refused
    logs, log = planned(kept, source[:length], at, cut=2 * cut)
    assert logs.place is not None
    unread = [i for i in range(max(length, 1)) if 2 * i >= at]
    lost, exact = left_out(logs, log), logs.place.exact
    if exact is not None:
        there = [source[i][0] for i in range(cut, length) if 2 * i >= at]
        follow = [one for one, _ in source[(exact.offset + 1) // 2 : length]]
        assert Counter(follow) == Counter(there)
        assert lost == sum(i < cut or i >= length for i in unread)


@pytest.mark.parametrize(("at", "lost"), [(12, 3), (14, 2), (16, 1)])
def test_equal_records_around_a_gap_leave_a_range(at: int, lost: int) -> None:
    """The record at 10 equals that at 16, whose copy takes the pair: nobody can say whose it is."""
    source = [(n, NONE) for n in (0, 1, 2, 3, 4, 5, 6, 7, 5, 9, 10)]
    kept = keep(keep(None, source[:6], source[:5]), source, source, cut=16)
    logs, log = planned(kept, source, at, cut=16)
    assert logs.place is not None
    assert logs.place.exact is None
    assert (logs.place.earliest.offset, logs.place.latest.offset) == (16, 17)
    assert left_out(logs, log) == lost


@pytest.mark.parametrize(("at", "lost"), [(8, 2), (10, 2), (12, 1), (14, 0)])
def test_what_the_mirror_lost_before_its_last_copy_is_counted(at: int, lost: int) -> None:
    source = [(n, NONE) for n in range(11)]
    mirror = [one for one in source if one[0] not in (5, 6)]
    assert left_out(*planned(keep(None, source, mirror), mirror, at)) == lost


@pytest.mark.parametrize(
    ("newer", "alike"), [([77, 77], 1), ([3], 1), ([3, 77], 1), ([77], 0), ([3, 3], 2)]
)
def test_a_newer_record_that_equals_another_is_not_passed_over(
    newer: list[int], alike: int
) -> None:
    """A copy of what the map knows, or a record that A wrote later: nobody can say."""
    source = [(n, NONE) for n in range(10)]
    kept = keep(None, source, source)
    place = planned(kept, [*source, *((n, NONE) for n in newer)], 20)[0].place
    assert place is not None
    assert place.exact is not None
    assert (place.exact.offset, place.exact.left) == (19, 0)
    assert (place.unknown, place.exact.alike) == (len(newer), alike)


def test_records_that_the_mirror_had_not_copied_yet_are_known() -> None:
    """The group was ahead of the mirror, which then copies them, is killed, and copies again."""
    source = [(n, NONE) for n in range(10)]
    kept = keep(None, source, source[:6])
    for after, expected in (([6, 7, 8, 9], 19), ([6, 7, 8, 9, 8, 9, 10], 19)):
        place = planned(kept, [*source[:6], *((n, NONE) for n in after)], 20)[0].place
        assert place is not None
        assert place.exact is not None
        assert place.exact.offset == expected


def test_a_record_that_the_mirror_lost_does_not_hide_a_newer_one_like_it() -> None:
    source = [(n, NONE) for n in range(10)]
    mirror = [one for one in source if one[0] != 4]
    kept = keep(None, source, mirror)
    place = planned(kept, [*mirror, (4, NONE)], 20)[0].place
    assert place is not None
    assert place.exact is not None
    assert place.exact.offset <= 18


def test_a_map_is_one_text_and_refused_if_it_was_edited() -> None:
    part = keep(None, [(n, NONE) for n in range(9)], [(n, NONE) for n in range(7)])
    whole = WHOLE.model_copy(update={"partitions": (part,)})
    text = dump(whole)
    assert load(text, "m") == whole
    with pytest.raises(RefusedError, match="its seal does not fit"):
        load(text.replace('"one"', '"other"'), "m")
    for other in ("", "[]", "{}", text.replace("mirror-map/v1", "mirror-map/v2")):
        with pytest.raises(UsageError, match="not a mirror map"):
            load(other, "m")
    refuse_other_map(whole, whole, "m", "anew")
    with pytest.raises(RefusedError, match="source topic id one, and now it is three"):
        refuse_other_map(whole, whole.model_copy(update={"source_topic_id": "three"}), "m", "anew")


def _commit(group: str, partition: int, offset: int) -> MapCommit:
    return MapCommit(
        group=group,
        topic="orders",
        partition=partition,
        offset=offset,
        leader_epoch=0,
        metadata="",
        pending=False,
        seen_at=offset,
        held=True,
    )


def test_commits_are_of_the_run_that_read_their_partition() -> None:
    """A group that could not be seen keeps what was seen of it before."""
    part = keep(None, [(1, NONE)], [(1, NONE)])
    before = WHOLE.model_copy(
        update={"commits": (_commit("a", 0, 1), _commit("b", 0, 1), _commit("a", 1, 1))}
    )
    now = [_commit("a", 0, 2), _commit("a", 1, 2)]

    def offsets(*, complete: bool, read: tuple[str, ...] = ()) -> set[tuple[str, int, int | None]]:
        commits = with_partition(before, part, now, complete=complete, read=read).commits
        return {(c.group, c.partition, c.offset) for c in commits}

    assert offsets(complete=True) == {("a", 0, 2), ("a", 1, 1)}
    assert offsets(complete=False) == {("a", 0, 2), ("a", 1, 1), ("b", 0, 1)}
    assert offsets(complete=False, read=("a", "b")) == {("a", 0, 2), ("a", 1, 1)}


def test_a_map_is_as_old_as_the_oldest_of_what_it_should_know() -> None:
    part = keep(None, [(1, NONE)], [(1, NONE)]).model_copy(update={"looked_at": 900})
    kept = WHOLE.model_copy(update={"partitions": (part,), "asked": (0,)})
    assert kept.looked_at == 900
    assert kept.newest == 900
    old = kept.model_copy(update={"commits": (_commit("a", 0, 500),)})
    assert (old.looked_at, old.newest) == (500, 900)
    assert kept.model_copy(update={"asked": (0, 1)}).looked_at == 0
    never = kept.model_copy(update={"partitions": (part.model_copy(update={"looked_at": 0}),)})
    assert never.looked_at == 0


def test_what_retention_took_from_the_mirror_does_not_take_what_waits() -> None:
    source = [(n, NONE) for n in range(20)]
    kept = keep(None, source, source[:12])
    mirror = replace(_range(24, start=24), log_start_offset=24)
    mine = replace(_range(40), start=kept.source.end)
    logs = (ListLog(source), mine), (ListLog(source[:12]), mirror)
    later = asyncio.run(continued(kept, *logs, Progress(None), timed=True))
    assert later.waiting == 8
    assert (later.source.start, later.pairs) == (24, 0)


def test_copies_that_were_read_before_their_records_are_paired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the mirror once lost waits, and lets it be read to its end before the source."""
    source = [(n, NONE) for n in range(70)]
    mirror = source[39:40]
    kept = keep(None, source[:40], mirror)
    monkeypatch.setattr(mirror_continuing, "AHEAD", 5)
    assert (kept.waiting, kept.pairs) == (39, 1)
    assert keep(kept, source, [*mirror, *source[40:60]]).pairs == 21


def test_aborted_records_do_not_fill_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that reads uncommitted copies them: the newest are kept."""
    monkeypatch.setattr(mirror_continuing, "MOST_WAITING", 5)
    monkeypatch.setattr(mirror_continuing, "MOST_HIDDEN", 3)
    source = [(n, ABORTED if n % 2 else NONE) for n in range(40)]
    kept = keep(None, source, [(one, NONE) for one, _ in source])
    rest = kept.unpacked()[1]
    assert (kept.waiting, rest.offset.tolist()) == (0, [70, 74, 78])
    with pytest.raises(IncompleteError, match="6 records of the source have no partner"):
        keep(None, [(n, NONE) for n in range(16)], [(n, NONE) for n in range(10)])


def test_another_log_than_the_map_saw_is_refused() -> None:
    source = [(n, NONE) for n in range(30)]
    kept = keep(None, source, source)
    planned(kept, source, 20)
    with pytest.raises(RefusedError, match="are not those that the map saw"):
        planned(kept, [*source[:12], (99, NONE), *source[13:]], 20)


def test_records_that_changed_places_are_another_log() -> None:
    source = [(n, NONE) for n in range(30)]
    kept = keep(None, source, source)
    with pytest.raises(RefusedError, match="are not those that the map saw"):
        planned(kept, [*source[:12], source[13], source[12], *source[14:]], 20)


def test_records_beside_deleted_ones_are_not_compared_and_counted() -> None:
    source = [(n, NONE) for n in range(30)]
    kept = keep(None, source, source)
    assert planned(kept, source, 20)[1].unchecked == 0
    copies, r = ListLog(source), _range(60, start=8)
    log = MappedLog(copies, r, kept, compacted=False, offset=20)  # type: ignore[arg-type]
    asyncio.run(Both(log, copies, READING).read(PartitionMirror(_range(60), r)))
    assert log.unchecked == 26


def test_steps_take_little_space() -> None:
    """Transactions of a hundred records in both logs, and markers between them."""
    n = np.arange(100_000)
    steps = PairSteps()
    steps.see(n + n // 100, n + n // 170)
    kept = steps.after(Steps(*(np.zeros(0, np.int64) for _ in range(3))))
    assert kept.pairs == len(n)
    assert (kept.sources(n + n // 170) == n + n // 100).all()
    assert kept.sources(np.array([170, 10**9])).tolist() == [-1, -1]
    assert len(kept.packed()) < 2 * len(kept.source)
